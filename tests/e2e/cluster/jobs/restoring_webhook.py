"""A mutating webhook of somebody else's that takes back what people change of a Job's image."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import Tenant

_PATH: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
_IMAGE: Final = "/spec/template/spec/containers/0/image"


@contextmanager
def restoring(tenant: Tenant, certificates: Path) -> Iterator[None]:
    """Let it be asked about updates of Jobs in a namespace, after most others by its name."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    name = f"somebody-{tenant.namespace}"
    registration = objects.a_registration(
        name,
        tenant.namespace,
        server.server_address[1],
        "jobs",
        group="batch",
        certificates=certificates,
    )
    try:
        assert tenant.api.create(_PATH, registration).ok
        yield
    finally:
        tenant.api.delete(f"{_PATH}/{name}")
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        image = request["oldObject"]["spec"]["template"]["spec"]["containers"][0]["image"]
        patch = [{"op": "replace", "path": _IMAGE, "value": image}]
        response = {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
        }
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        body = json.dumps({**answer, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        pass
