"""A load generator: requests over kept TLS connections, one at a time on each.

One thread serves all connections, so that the generator takes less of the machine than what it
measures. Requests are made beforehand; an answer is read to its Content-Length and compared with
what every answer has to contain.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

READ_BYTES = 65536


@dataclass(frozen=True)
class Result:
    """What a run measured: seconds of each request, seconds of the whole run, wrong answers."""

    latencies: Sequence[float]
    seconds: float
    wrong: int
    first_wrong: str = ""
    """The first wrong answer, for messages."""

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(eq=False)
class _Connection:
    """One kept connection and the requests it still has to send."""

    sock: ssl.SSLSocket
    requests: list[bytes]
    sent_at: float = 0.0
    received: bytearray = field(default_factory=bytearray)

    def send_next(self) -> bool:
        if not self.requests:
            return False
        self.received.clear()
        request = self.requests.pop()
        self.sent_at = time.perf_counter()
        self.sock.sendall(request)
        return True

    def read(self) -> bytes | None:
        """Read what is there; the whole answer once it is complete."""
        while True:
            try:
                part = self.sock.recv(READ_BYTES)
            except ssl.SSLWantReadError:
                return None
            if not part:
                raise ConnectionError("the server closed a kept connection")
            self.received += part
            answer = bytes(self.received)
            if _is_complete(answer):
                return answer


def _is_complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    lower = head.lower()
    at = lower.find(b"content-length:")
    if at >= 0:
        return len(body) >= int(lower[at + 15 :].split(b"\r\n", 1)[0])
    if b"transfer-encoding: chunked" in lower:
        return body.endswith(b"\r\n0\r\n\r\n")
    raise ConnectionError("an answer without Content-Length")


def request_bytes(path: str, body: bytes) -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def run(url: str, ca: str, requests: Sequence[bytes], clients: int, expected: bytes) -> Result:
    """Send all requests over `clients` connections; every answer has to contain `expected`."""
    return run_with(ssl.create_default_context(cafile=ca), url, requests, clients, expected)


def run_with(
    context: ssl.SSLContext, url: str, requests: Sequence[bytes], clients: int, expected: bytes
) -> Result:
    """Do as `run`, with a context that may carry a client certificate."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    connections = []
    for number in range(min(clients, len(requests))):
        sock = context.wrap_socket(
            socket.create_connection((place.hostname, place.port)),
            server_hostname=place.hostname,
        )
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(_Connection(sock, list(requests[number::clients])))
    return _drive(connections, expected)


def _drive(connections: list[_Connection], expected: bytes) -> Result:
    latencies: list[float] = []
    wrong: list[bytes] = []
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for one in connections:
            one.send_next()
            one.sock.setblocking(False)
            selector.register(one.sock, selectors.EVENT_READ, one)
        busy = len(connections)
        while busy:
            for key, _ in selector.select():
                one = key.data
                answer = one.read()
                if answer is None:
                    continue
                latencies.append(time.perf_counter() - one.sent_at)
                if expected not in answer:
                    wrong.append(answer)
                if not one.send_next():
                    selector.unregister(one.sock)
                    one.sock.close()
                    busy -= 1
        seconds = time.perf_counter() - began
    return Result(latencies, seconds, len(wrong), wrong[0].decode() if wrong else "")
