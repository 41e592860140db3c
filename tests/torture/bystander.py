"""Another validating webhook on the same requests: mostly quick, sometimes slow, sometimes against.

Validating webhooks are asked side by side, so what ours has allowed may be stored much later, or
never. `python -m tests.torture.bystander CERTIFICATES SEED` prints its port and serves until it is
killed.
"""

from __future__ import annotations

import base64
import http.server
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.torture.children import ROOT, command_of
from tests.torture.load.shapes import Space

REFUSED: Final = 0.05
"""How many requests it refuses."""

SLOW: Final = 0.05
VERY_SLOW: Final = 0.004
LONGEST_SECONDS: Final = 28.0
"""Less than the 30 s that a webhook may take at most."""


def dither(rng: random.Random) -> tuple[float, bool]:
    """Choose how long a request waits, and whether it is refused then."""
    chance = rng.random()
    if chance < VERY_SLOW:
        wait = rng.uniform(5, LONGEST_SECONDS)
    elif chance < VERY_SLOW + SLOW:
        wait = rng.uniform(0.05, 2)
    else:
        wait = 0.0
    return wait, rng.random() < REFUSED


def answer_to(review: dict[str, Any], *, is_refused: bool) -> dict[str, Any]:
    """Answer an AdmissionReview."""
    response: dict[str, Any] = {"uid": review["request"]["uid"], "allowed": not is_refused}
    if is_refused:
        response["status"] = {"code": 409, "reason": "Conflict", "message": "not in the mood"}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def registration(port: int, authority: bytes, spaces: list[Space]) -> dict[str, Any]:
    """Give the configuration that has it asked about whatever charges, in some namespaces."""

    def rule(operation: str, *resources: str) -> dict[str, Any]:
        return {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": [operation],
            "resources": list(resources),
        }

    names = [space.name for space in spaces if space.has_bystander]
    selector = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "torture-bystander"},
        "webhooks": [
            {
                "name": "bystander.torture.example",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "timeoutSeconds": 30,
                "namespaceSelector": {"matchExpressions": [selector]},
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}/",
                    "caBundle": base64.b64encode(authority).decode(),
                },
                "rules": [
                    rule("CREATE", "pods/binding", "bindings"),
                    rule("UPDATE", "pods/resize"),
                ],
            }
        ],
    }


@dataclass(slots=True)
class Bystander:
    """The process."""

    process: subprocess.Popen[bytes]
    port: int

    @classmethod
    def start(cls, certificates: Path, seed: int) -> Bystander:
        """Start it; it serves when this returns."""
        command = command_of("tests.torture.bystander", str(certificates), str(seed))
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        with process.stdout as said:
            line = said.readline()
        if not line:
            raise RuntimeError(f"the bystander has ended with {process.wait(10)}")
        return cls(process, int(line))

    def stop(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, certificates: Path, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
        self._rng = random.Random(f"{seed}/bystander")  # noqa: S311 - repeatable, not secret
        self._lock = threading.Lock()

    def dither(self) -> tuple[float, bool]:
        """Choose for one request."""
        with self._lock:
            return dither(self._rng)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands on the connection's own thread, and serve."""
        with self._context.wrap_socket(request, server_side=True) as secured:
            secured.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: API servers that are killed close connections."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        """Wait, and answer."""
        review = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        wait, is_refused = self.server.dither()
        time.sleep(wait)
        body = msgspec.json.encode(answer_to(review, is_refused=is_refused))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until killed."""
    server = _Server(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
