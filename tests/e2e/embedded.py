"""Starts `deferred-quota serve --embedded`, as a user would, and gives the means to talk to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.harness import (
    ROOT,
    START_SECONDS,
    STOP_SECONDS,
    Reply,
    Server,
    eventually,
    make_certificates,
)


@dataclass(frozen=True, slots=True)
class Embedded:
    """The webhook, and the API server in memory beside it."""

    webhook: Server

    def api(self, method: str, path: str, body: object = None, kind: str = "") -> Reply:
        """Send a request to the API server; `kind` is the content type of a patch."""
        port = self.webhook.announcement["listeners"]["api"]["port"]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind or "application/json"}
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else data, headers)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())


@contextlib.contextmanager
def serving(
    directory: Path, objects: Iterable[Mapping[str, object]], *arguments: str
) -> Iterator[Embedded]:
    """Serve a snapshot with these objects, ready to decide, and stop in the end."""
    cluster, announce, log = (
        directory / name for name in ("cluster.yaml", "announce.json", "server.log")
    )
    snapshot = {"apiVersion": "v1", "kind": "List", "items": [*objects]}
    cluster.write_text(json.dumps(snapshot))
    certificates = make_certificates(directory / "certs")
    command = [
        sys.executable, "-m", "webhook", "serve",
        "--embedded", str(cluster), "--certs", str(certificates), "--announce", str(announce),
        "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0", "--embedded-api", "127.0.0.1:0",
        *arguments,
    ]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stderr=file)
    try:
        assert eventually(announce.exists, START_SECONDS), log.read_text()
        announcement: dict[str, Any] = json.loads(announce.read_bytes())
        server = Server(process, announcement, log, certificates)
        assert eventually(lambda: server.ops("/readyz").status == 200), log.read_text()
        yield Embedded(server)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(STOP_SECONDS)
