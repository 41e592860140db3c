"""HTTP/1.1 on one connection: requests out, answers in, every wait against a deadline.

Just what an API server needs, read straight from the socket: a write to the ledger is a few hundred
bytes each way, and general-purpose clients take most of the processor's time of such a call.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_RECEIVE_BYTES: Final = 1 << 15
_HEAD_LIMIT: Final = 1 << 18
_WITHOUT_BODY: Final = frozenset({204, 304})
_LISTED: Final = "warning"
"""The only header that an API server sends more than once, one for each warning."""


def seconds_until(deadline: float) -> float:
    """Return how long there is until a time of `time.monotonic`; `TimeoutError` if it is over."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("timed out")
    return seconds


class BodyTooLongError(Exception):
    """The body of an answer is longer than its reader takes."""


class ConnectionBrokenError(Exception):
    """The connection ended, or what came is not HTTP.

    Attributes:
        was_sent: The whole request had been handed to the network. If not, no server can have
            acted on it: half a request is none.
        was_answered: At least one byte of the answer had come.
    """

    def __init__(self, detail: str, *, was_sent: bool = True, was_answered: bool = True) -> None:
        super().__init__(detail)
        self.was_sent = was_sent
        self.was_answered = was_answered


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of an answer; header names are in lower case.

    Of a header that comes several times the last one stands, but Warning headers are one list.
    """

    status: int
    reason: str
    headers: Mapping[str, str]
    keeps_alive: bool


class Connection:
    """A connection to a server, for one request after the other. One thread uses it at a time.

    Every method that waits raises `TimeoutError` when its deadline, a time of
    `time.monotonic`, has passed. After any error the connection can only be closed.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket, plain or TLS."""
        self._socket = sock
        self._buffer = bytearray()
        self.idle_since = 0.0

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def wake(self) -> None:
        """End the connection under a thread that reads from it."""
        try:
            # a server that is in the middle of sending learns of it at once, too
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # not the method of a TLS socket, which would pull the session from under the reader
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return  # it is closed, or the server has closed it

    def is_quiet(self) -> bool:
        """Return whether the server has sent nothing since the last answer, nor closed."""
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return not poller.poll(0)

    def send(self, request: bytes, deadline: float) -> None:
        """Send a whole request.

        Raises:
            ConnectionBrokenError: The server does not take it.
        """
        rest = memoryview(request)
        try:
            while rest:
                self._socket.settimeout(seconds_until(deadline))
                rest = rest[self._socket.send(rest) :]
        except TimeoutError:
            raise
        except OSError as err:
            raise ConnectionBrokenError(_words(err), was_sent=False, was_answered=False) from err

    def read_head(self, deadline: float) -> Head:
        """Read the head of the next answer; interim answers (1xx) are skipped.

        Raises:
            ConnectionBrokenError: There is none, or it is not HTTP.
        """
        while True:
            head = _parse_head(self._read_head_bytes(deadline))
            if head.status >= 200:
                return head

    def _read_head_bytes(self, deadline: float) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\r\n\r\n", searched)) < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ConnectionBrokenError("the head of the answer does not end")
            searched = max(0, len(self._buffer) - 3)
            if not self._receive(deadline):
                raise ConnectionBrokenError(
                    "the server closed the connection", was_answered=bool(self._buffer)
                )
        return self._take(end + 4)[:end]

    def read_body(self, head: Head, deadline: float, *, most_bytes: int = 0) -> bytes:
        """Read the whole body of an answer.

        Args:
            deadline: Until when, on the monotonic clock.
            most_bytes: Of a longer one no more is read; 0 for no limit.

        Raises:
            ConnectionBrokenError: It ends too early.
            BodyTooLongError: It is longer; the rest is still to come.
        """
        length = _content_length(head)
        if length is not None:
            if most_bytes and length > most_bytes:
                raise BodyTooLongError(f"the answer has {length} bytes")
            return self._read_exactly(length, deadline)
        whole = bytearray()
        for part in self.body_parts(head, deadline):
            whole += part
            if most_bytes and len(whole) > most_bytes:
                raise BodyTooLongError(f"the answer has more than {most_bytes} bytes")
        return bytes(whole)

    def body_parts(self, head: Head, deadline: float) -> Iterator[bytes]:
        """Read a body as it comes; `read_some` does the same against deadlines that move.

        Raises:
            ConnectionBrokenError: It ends too early.
        """
        body = Body(self, head)
        while part := body.read_some(deadline):
            yield part

    def is_drained(self) -> bool:
        """Return whether nothing is left over after an answer, as it has to be for the next one."""
        return not self._buffer

    def _read_exactly(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) < size:
            if not self._receive(deadline):
                raise ConnectionBrokenError(
                    f"the answer broke off after {len(self._buffer)} of {size} bytes"
                )
        return self._take(size)

    def read_line(self, deadline: float) -> bytes:
        """Read up to the next line end, which is dropped; for the framing of chunks."""
        while (end := self._buffer.find(b"\r\n")) < 0:
            if len(self._buffer) > _HEAD_LIMIT:
                raise ConnectionBrokenError("a line of the answer does not end")
            if not self._receive(deadline):
                raise ConnectionBrokenError("the answer broke off between two parts")
        return self._take(end + 2)[:end]

    def read_at_most(self, size: int, deadline: float) -> bytes:
        """Read what has come, up to a size, or wait for it; empty when the server closed."""
        if not self._buffer and not self._receive(deadline):
            return b""
        return self._take(min(size, len(self._buffer)))

    def _take(self, size: int) -> bytes:
        taken = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return taken

    def _receive(self, deadline: float) -> bool:
        """Wait for more bytes; False when the server has closed the connection."""
        self._socket.settimeout(seconds_until(deadline))
        try:
            received = self._socket.recv(_RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError as err:
            raise ConnectionBrokenError(_words(err), was_answered=bool(self._buffer)) from err
        self._buffer += received
        return bool(received)


class Body:
    """The body of one answer, read piece by piece as the server sends it."""

    def __init__(self, connection: Connection, head: Head) -> None:
        """Begin after the head."""
        self._connection = connection
        coding = head.headers.get("transfer-encoding", "").lower()
        if coding not in ("", "chunked"):
            raise ConnectionBrokenError(f"the answer is encoded as {coding[:40]!r}")
        self._is_chunked = bool(coding)
        length = _content_length(head)
        self._left = 0 if self._is_chunked else length
        self._is_over = length == 0

    def read_some(self, deadline: float) -> bytes:
        """Return the next bytes, whatever has come; empty at the end of the body.

        Raises:
            ConnectionBrokenError: The connection ended before the body.
        """
        if self._is_over:
            return b""
        if self._is_chunked and not self._left:
            self._begin_chunk(deadline)
            if self._is_over:
                return b""
        if self._left is None:  # as long as the connection
            return self._connection.read_at_most(_RECEIVE_BYTES, deadline)
        part = self._connection.read_at_most(self._left, deadline)
        if not part:
            raise ConnectionBrokenError(f"the answer broke off {self._left} bytes before an end")
        self._left -= len(part)
        if not self._left:
            self._end_part(deadline)
        return part

    def _begin_chunk(self, deadline: float) -> None:
        line = self._connection.read_line(deadline)
        try:
            self._left = int(line.partition(b";")[0], 16)
        except ValueError as err:
            raise ConnectionBrokenError(f"{line[:40]!r} is no size of a part") from err
        if not self._left:
            self._is_over = True
            while self._connection.read_line(deadline):
                pass  # trailers

    def _end_part(self, deadline: float) -> None:
        if not self._is_chunked:
            self._is_over = True
        elif self._connection.read_line(deadline):
            raise ConnectionBrokenError("a part of the answer is longer than it says")


def _words(err: OSError) -> str:
    return err.strerror or str(err) or type(err).__name__


def _parse_head(raw: bytes) -> Head:
    first, _, rest = raw.decode("latin-1").partition("\r\n")
    version, _, status_line = first.partition(" ")
    code, _, reason = status_line.partition(" ")
    if not version.startswith("HTTP/1.") or len(code) != 3 or not code.isdecimal():
        raise ConnectionBrokenError(f"{first[:40]!r} is not the beginning of an HTTP/1.1 answer")
    headers: dict[str, str] = {}
    for line in rest.split("\r\n"):
        name, _, value = line.partition(":")
        name, value = name.strip().lower(), value.strip()
        is_more = name == _LISTED and name in headers
        headers[name] = f"{headers[name]}, {value}" if is_more else value
    wishes = headers.get("connection", "").lower()
    keeps_alive = "close" not in wishes and (version != "HTTP/1.0" or "keep-alive" in wishes)
    return Head(int(code), reason, headers, keeps_alive)


def _content_length(head: Head) -> int | None:
    """Return how long the body is; None if its framing or the connection's end says so."""
    if head.status in _WITHOUT_BODY:
        return 0
    if "transfer-encoding" in head.headers:
        return None
    text = head.headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()):
        raise ConnectionBrokenError(f"{text[:40]!r} is no length of an answer")
    return int(text)
