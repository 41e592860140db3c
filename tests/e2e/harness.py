"""Starts the real server in a process of its own, waits until it listens, and stops it.

```
with running_server(tmp_path, threads=4) as server:
    assert server.post(a_review()).status == 200
```
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from webhook.tls.bootstrap import CertificateDirectory, CertificateSpec, bootstrap

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 20.0
STOP_SECONDS = 20.0
WANTED = CertificateSpec(
    dns_names=["localhost"], ip_addresses=["127.0.0.1"], lifetime=timedelta(days=30)
)


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP response that was read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """The body as a JSON object."""
        decoded: dict[str, Any] = json.loads(self.body)
        return decoded


@dataclass(slots=True)
class Server:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    announcement: dict[str, Any]
    log: Path
    certificates: Path | None
    _context: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def port(self) -> int:
        """The port of the webhook."""
        port: int = self.announcement["webhook"]["port"]
        return port

    @property
    def context(self) -> ssl.SSLContext:
        """A client's context that trusts the server's CA."""
        if self._context is None:
            assert self.certificates is not None
            self._context = ssl.create_default_context(cafile=str(self.certificates / "ca.crt"))
        return self._context

    def connect(self, seconds: float = 10.0) -> http.client.HTTPConnection:
        """Open a connection to the webhook that can be used more than once."""
        if self.certificates is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        return http.client.HTTPSConnection(
            "localhost", self.port, timeout=seconds, context=self.context
        )

    def socket(self, seconds: float = 10.0) -> socket.socket:
        """Open a TCP connection to the webhook, without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)

    def tls_socket(self, seconds: float = 10.0) -> ssl.SSLSocket:
        """Open a TLS connection to the webhook."""
        return self.context.wrap_socket(self.socket(seconds), server_hostname="localhost")

    def post(self, review: object, path: str = "/validate", **headers: str) -> Reply:
        """Post a review, or bytes, on a connection of its own."""
        with contextlib.closing(self.connect()) as connection:
            return post(connection, review, path, **headers)

    def ops(self, path: str) -> Reply:
        """Get a page of the operations port."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.announcement["ops"]["port"], timeout=5
        )
        with contextlib.closing(connection):
            connection.request("GET", path)
            return _read(connection)

    def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, 0 if there is none with these labels."""
        inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        wanted = f"deferred_quota_{name}" + (f"{{{inside}}}" if inside else "")
        for line in self.ops("/metrics").body.decode().splitlines():
            key, _, value = line.rpartition(" ")
            if key == wanted:
                return float(value)
        return 0.0

    def log_lines(self, message: str, **facts: object) -> list[dict[str, Any]]:
        """Lines with this message and these facts; waits a moment for the first one."""
        eventually(lambda: self._logged(message, facts))
        return self._logged(message, facts)

    def _logged(self, message: str, facts: Mapping[str, object]) -> list[dict[str, Any]]:
        whole = [
            text for text in self.log.read_text().splitlines(keepends=True) if text[-1] == "\n"
        ]
        wanted = {"message": message, **facts}.items()
        return [line for line in map(json.loads, whole) if wanted <= line.items()]

    def workers(self) -> list[int]:
        """The worker processes."""
        pid = self.process.pid
        return [int(child) for child in _text(f"/proc/{pid}/task/{pid}/children").split()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the parent process."""
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end, and give the exit code."""
        return self.process.wait(STOP_SECONDS)


def post(
    connection: http.client.HTTPConnection, review: object, path: str = "/validate", **headers: str
) -> Reply:
    """Post a review, or bytes, and leave the connection open."""
    body = review if isinstance(review, bytes) else json.dumps(review).encode()
    connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
    return _read(connection)


def make_certificates(directory: Path, *, force: bool = False) -> Path:
    """Make a pair for this machine, valid now."""
    bootstrap(CertificateDirectory(directory), WANTED, now=datetime.now(UTC), force=force)
    return directory


@contextlib.contextmanager
def running_server(
    directory: Path,
    parts: str = "tests.e2e.parts:plain",
    *,
    tls: bool = True,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[Server]:
    """Start a server, and stop it in the end.

    Args:
        directory: For certificates, log and announcement.
        parts: "module:function" that makes `ServerParts`.
        tls: False serves plain HTTP.
        environment: Further environment variables.
        settings: Fields of `ServerSettings`; see `tests.e2e.run_server` for addresses.
    """
    certificates = make_certificates(directory / "certs") if tls else None
    announce = directory / "announce.json"
    options = {
        "parts": parts,
        "announce": str(announce),
        "drain_seconds": 0.0,
        **({"certificates": str(certificates)} if certificates else {}),
        **settings,
    }
    process, log = spawn(directory, options, environment)
    try:
        yield Server(process, _wait_for(announce, process, log), log, certificates)
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def spawn(
    directory: Path, options: Mapping[str, object], environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the server's process, which may fail to start; give it and its log."""
    log = directory / "server.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.run_server", json.dumps(options)],
            cwd=ROOT,
            stderr=file,
            env={**os.environ, **(environment or {})},
        )
    return process, log


def eventually(condition: Any, seconds: float = 5.0) -> bool:
    """Wait until a condition holds; False when the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())


def _wait_for(announce: Path, process: subprocess.Popen[bytes], log: Path) -> dict[str, Any]:
    if not eventually(lambda: announce.exists() or process.poll() is not None, START_SECONDS):
        raise AssertionError(f"the server does not listen:\n{log.read_text()}")
    if process.poll() is not None:
        raise AssertionError(f"the server ended:\n{log.read_text()}")
    announcement: dict[str, Any] = json.loads(announce.read_bytes())
    return announcement


def _read(connection: http.client.HTTPConnection) -> Reply:
    response = connection.getresponse()
    return Reply(response.status, response.headers, response.read())


def _text(path: str) -> str:
    return Path(path).read_text()
