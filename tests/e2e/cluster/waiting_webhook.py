"""A webhook of somebody else's that keeps binds waiting, so that a test can act in the middle."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Literal, Self

from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import PATIENCE_SECONDS, eventually

Phase = Literal["mutating", "validating"]

_TIMEOUT_SECONDS: Final = 20
_PROBE: Final = "not-a-pod"


class HoldingWebhook:
    """Allows every bind of one namespace, once it is told to.

    Of the mutating phase it is asked after ours, because its name comes later; in the validating
    phase together with ours.

    Attributes:
        is_asked: Set when a bind waits.
        may_answer: Binds wait until it is set.
    """

    def __init__(self, tenant: Tenant, phase: Phase, certificates: Path) -> None:
        self._tenant = tenant
        self._phase = phase
        self._certificates = certificates
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        assert self._api.create(self._path, self._registration()).ok
        self._wait_until_asked()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self._api.delete(f"{self._path}/{self._name}")
        self._server.shutdown()
        self._server.server_close()

    def wait(self) -> None:
        """Wait until a bind waits."""
        assert self.is_asked.wait(PATIENCE_SECONDS), "the bind did not come so far"

    @property
    def _api(self) -> Api:
        return self._tenant.api

    @property
    def _name(self) -> str:
        return f"zz-{self._phase}-{self._tenant.namespace}"

    @property
    def _path(self) -> str:
        return f"/apis/admissionregistration.k8s.io/v1/{self._phase}webhookconfigurations"

    def _wait_until_asked(self) -> None:
        """Let binds of no pod through until one of them comes by."""
        self.may_answer.set()

        def is_asked() -> bool:
            self._tenant.bind(_PROBE, uid="of-nobody", dry_run=True)
            return self.is_asked.is_set()

        eventually(is_asked, "the holding webhook is asked")
        self.may_answer.clear()
        self.is_asked.clear()

    def _registration(self) -> Object:
        return objects.a_registration(
            self._name,
            self._tenant.namespace,
            self._server.server_address[1],
            "pods/binding",
            "bindings",
            operation="CREATE",
            certificates=self._certificates,
            timeoutSeconds=_TIMEOUT_SECONDS,
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                owner.is_asked.set()
                owner.may_answer.wait(_TIMEOUT_SECONDS)
                uid = review["request"]["uid"]
                answer = {
                    "apiVersion": "admission.k8s.io/v1",
                    "kind": "AdmissionReview",
                    "response": {"uid": uid, "allowed": True},
                }
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        return Handler
