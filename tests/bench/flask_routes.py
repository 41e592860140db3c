"""Flask routes that do nothing, served as plainly as gunicorn's threads serve it: a yardstick.

`/nothing` answers an empty object, `/validate` allows the review that it reads.

Arguments: the directory of certificates, and the file in which to announce the address.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from flask import Flask, Response, request
from gunicorn.app.base import BaseApplication

THREADS = 16


def nothing() -> Response:
    return Response("{}", mimetype="application/json")


def allow(asked: Iterator[None]) -> Response:
    next(asked, None)
    uid = json.loads(request.get_data())["request"]["uid"]
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": True},
    }
    return Response(json.dumps(review, separators=(",", ":")), mimetype="application/json")


class Yardstick(BaseApplication):  # type: ignore[misc]
    """One worker with threads, TLS, and connections that are kept."""

    def __init__(self, certs: Path, announce: Path) -> None:
        self.certs, self.announce = certs, announce
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        self.descriptor = listener.detach()  # gunicorn takes it over
        super().__init__()

    def load_config(self) -> None:
        options: dict[str, object] = {
            "bind": f"fd://{self.descriptor}",
            "worker_class": "gthread",
            "threads": THREADS,
            "keepalive": 150,
            "loglevel": "error",
            "control_socket_disable": True,
            "certfile": str(self.certs / "tls.crt"),
            "keyfile": str(self.certs / "tls.key"),
            "post_worker_init": self._tell,
        }
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        app = Flask("nothing", static_folder=None)
        app.add_url_rule("/nothing", view_func=nothing, methods=["POST"])
        app.add_url_rule(
            "/validate", "allow", view_func=partial(allow, self._first()), methods=["POST"]
        )
        return app

    def _first(self) -> Iterator[None]:
        """Leave a file when the first review has come."""
        self.announce.with_name("asked").touch()
        yield

    def _tell(self, _worker: Any) -> None:
        part = self.announce.with_suffix(".part")
        part.write_text(json.dumps({"webhook": {"url": self.url}, "ops": {"url": ""}}))
        part.replace(self.announce)


if __name__ == "__main__":
    Yardstick(Path(sys.argv[1]), Path(sys.argv[2])).run()
