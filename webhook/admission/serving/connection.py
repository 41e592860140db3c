"""One connection of the webhook port, and the answer that is collected for it."""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Final, NoReturn, TypeAlias

from webhook.admission.serving.framing import RequestBuffer
from webhook.admission.serving.http_response import HttpResponse

_PIECE_BYTES: Final = 64 * 1024

Address: TypeAlias = tuple[str, int] | tuple[str, int, int, int]


class State(Enum):
    """State of a connection. All but BUSY belong to the event loop."""

    HANDSHAKE = auto()
    IDLE = auto()
    """For the first byte of a request."""
    READING = auto()
    """For the rest of it."""
    BUSY = auto()
    """For a thread that answers; only that thread touches the socket."""
    WRITING = auto()
    """For the client to take the rest of an answer."""
    CLOSING = auto()
    """For the client to close, so that it is sure to read the answer first."""
    CLOSED = auto()


class Connection:
    """A socket with its state; a plain record, changed by the worker."""

    __slots__ = (
        "buffer", "client", "continued", "deadline", "early", "interest", "keep", "lock", "out",
        "parked", "progressed", "received", "refusal", "request", "served", "server", "sock",
        "state",
    )  # fmt: skip

    def __init__(
        self, sock: socket.socket, client: Address, server: Address, body_bytes: int
    ) -> None:
        self.sock = sock
        self.client = client
        self.server = server
        self.state = State.IDLE
        self.deadline = math.inf
        """On the monotonic clock: when the state has lasted too long."""
        self.buffer = RequestBuffer(body_bytes)
        self.interest = 0
        """Events the poller watches for; 0 is not watched."""
        self.served = False
        """Whether it ever sent a whole request: strangers are the first to go."""
        self.refusal = "", ""
        """Why no request of this client is looked at (`TlsSource.client_refusal`)."""
        self.continued = False
        """Whether "100 Continue" was sent for the request that is being read."""
        self.early: HttpResponse | None = None
        """The answer to a request that is received only to be dropped."""
        self.request = (b"", b"")
        self.received = 0.0
        self.out = b""
        self.progressed = 0.0
        """When the client last took something of its answer, on the monotonic clock."""
        self.keep = False
        self.lock = threading.Lock()
        """Guards `state` and `parked` where a thread hands the connection back."""
        self.parked = False
        """An event came while BUSY; the loop does not watch the socket until it is handed back."""

    def handshake(self) -> None:
        """Go on with the TLS handshake.

        Raises:
            ssl.SSLWantReadError, ssl.SSLWantWriteError: It waits for the socket.
            OSError: It failed.
        """
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def certificate(self) -> Mapping[str, object] | None:
        """Return what TLS has verified of the client's certificate; None if it showed none."""
        return self.sock.getpeercert() if isinstance(self.sock, ssl.SSLSocket) else None

    def pending(self) -> bool:
        """Return whether decrypted bytes wait inside the TLS layer, where no poller sees them."""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0


def pieces(head: bytes, body: bytes) -> Iterator[bytes]:
    """Yield a request as gunicorn's parser is to read it.

    Of a body in chunks the parser copies, for each chunk, all of the piece that is left.
    """
    if head:
        yield head
    for start in range(0, len(body), _PIECE_BYTES):
        yield body[start : start + _PIECE_BYTES]


class ResponseBuffer:
    """Stands in for the socket while gunicorn writes a response: collects it in memory.

    The whole answer is then sent in one piece, by a thread that never waits for the client.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        """Keep a piece of the response."""
        self._parts.append(data)

    def send(self, data: bytes) -> int:
        """Drop "100 Continue": the event loop has sent it before the body came."""
        return len(data)

    def getvalue(self) -> bytes:
        """Return all that was written."""
        return b"".join(self._parts)

    def shutdown(self, _how: int) -> NoReturn:
        """Refuse: gunicorn gives up on a half-written response this way, and goes on."""
        raise OSError("nothing was sent yet")

    def close(self) -> None:
        """Do nothing; the connection is the worker's."""
