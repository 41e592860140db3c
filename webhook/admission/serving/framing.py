"""End of a request: bytes in, "more" or "complete" out. No I/O, no parsing of meaning.

The server collects a whole request before it gives it a thread, so it has to know where the
request ends. What is allowed inside is not decided here: a head that looks wrong is handed on as
complete, and the HTTP parser behind refuses it. The rules:

- The head ends with an empty line and has at most HEAD_BYTES.
- The body is as long as the one Content-Length says, or ends with the last chunk.
- Both headers, or one of them twice, or a bare LF: complete as it is, for the parser to refuse.
- Behind such a request nothing is known to be another one: its connection does not stay, whatever
  it is answered.

Source: RFC 9112 sections 2.2, 6.3 and 7.1.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

HEAD_BYTES: Final = 64 * 1024
"""Longest head: request line and all headers."""

CHUNK_LINE_BYTES: Final = 1024
"""Longest line that gives the size of a chunk."""

BEGINNING_BYTES: Final = 64 * 1024
"""Of a body, what is looked at before it is complete."""

DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""Most that is received to be dropped: a client that still sends may not take an answer."""

MAX_CHUNKS: Final = 8192
"""Most chunks of one body: tiny ones would cost more to count than to read."""

_LENGTH: Final = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_CODING: Final = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_EXPECT: Final = re.compile(rb"\r\nexpect[ \t]*:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,12})[ \t]*(?:;.*)?", re.DOTALL)
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_HEAD_END: Final = b"\r\n\r\n"


class Progress(Enum):
    """Progress of a request."""

    MORE = "more"
    COMPLETE = "complete"
    HEAD_TOO_LARGE = "head too large"
    BODY_TOO_LARGE = "body too large"


class RequestBuffer:
    """Collects the bytes of one connection and cuts requests from them, one at a time."""

    __slots__ = (
        "_body_limit", "_chunks", "_data", "_end", "_expects", "_head", "_is_broken", "_next_chunk",
        "_searched", "is_framed", "unread",
    )  # fmt: skip

    def __init__(self, body_limit: int) -> None:
        self._data = bytearray()
        self.unread = 0
        """How much of a request that was discarded is still to come."""
        self.is_framed = True
        """Whether the request that was taken last ended where another may begin."""
        self._expects: bool | None
        self._searched: int
        self._body_limit = body_limit
        self._forget()

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> Progress:
        """Add what was received, and say how far the request at the front is."""
        if self.unread:
            skipped = min(self.unread, len(data))
            self.unread -= skipped
            data = data[skipped:]
        self._data += data
        return self.progress()

    def progress(self) -> Progress:
        """Return how far the request at the front is."""
        if self.unread:
            return Progress.MORE
        if self._head == 0:
            refused = self._find_head()
            if refused is not None:
                return refused
        if self.is_too_large:
            return Progress.BODY_TOO_LARGE
        if self._end == 0:
            return self._scan_chunks()
        return Progress.COMPLETE if len(self._data) >= self._end else Progress.MORE

    def expects_continue(self) -> bool:
        """Return whether the client waits for "100 Continue" before it sends the body."""
        if self._expects is None and self._head:
            self._expects = _EXPECT.search(self._data, 0, self._head) is not None
        return bool(self._expects)

    def take(self) -> tuple[bytes, bytes]:
        """Cut the complete request off: its head with the empty line, and its body as sent."""
        end = min(self._end, len(self._data))
        head, body = bytes(self._data[: self._head]), bytes(self._data[self._head : end])
        del self._data[:end]
        self.is_framed = not self._is_broken
        self._forget()
        return head, body

    def has_begun(self, sign: bytes) -> bool:
        """Return whether as much of a body of known length is here as is looked at, or a sign."""
        received = len(self._data) - self._head
        start = max(self._searched - len(sign), self._head)
        self._searched = len(self._data)
        return received >= BEGINNING_BYTES or self._data.find(sign, start) >= 0

    @property
    def can_discard(self) -> bool:
        """Return whether it is known where the request at the front ends, and that is not far."""
        return 0 < self._head < self._end <= len(self._data) + DISCARDED_BYTES

    def discard(self) -> None:
        """Drop the request at the front, also what is still to come of it."""
        self.unread = max(self._end - len(self._data), 0)
        del self._data[: self._end]
        self._forget()

    def _forget(self) -> None:
        self._head = 0  # where the head ends; 0 is not known yet
        self._end = 0  # where the request ends; 0 is not known yet
        self._next_chunk = 0
        self._chunks = 0
        self._is_broken = False
        self._searched = 0  # up to where no empty line was found, so that a byte costs one look
        self._expects = None  # not looked at yet

    def _find_head(self) -> Progress | None:
        """Look for the end of the head; None when it is found."""
        before = self._searched
        found = self._find_empty_line(0, HEAD_BYTES)
        if found < 0:
            if len(self._data) > HEAD_BYTES:
                return Progress.HEAD_TOO_LARGE
            lines = self._data.count(b"\r\n", max(before - 1, 0))
            return self._hand_on() if self._data.count(b"\n", before) != lines else Progress.MORE
        end = found + len(_HEAD_END)
        if self._data.count(b"\n", 0, end) != self._data.count(b"\r\n", 0, end):
            return self._hand_on()
        self._head = self._next_chunk = end
        self._searched = 0
        return self._find_end()

    def _find_empty_line(self, start: int, end: int | None = None) -> int:
        """Return where the empty line begins that ends the head or the trailers, or -1."""
        found = self._data.find(_HEAD_END, max(start, self._searched - 3), end)
        self._searched = len(self._data)
        return found

    def _find_end(self) -> Progress | None:
        lengths = _LENGTH.findall(self._data, 0, self._head)
        codings = _CODING.findall(self._data, 0, self._head)
        if codings and not lengths:
            self._is_broken = [each.strip().lower() for each in codings] != [b"chunked"]
            return None
        self._end = self._head
        if len(lengths) == 1 and not codings and _DIGITS.fullmatch(lengths[0].strip()):
            self._end += int(lengths[0])
        else:
            self._is_broken = bool(lengths)
        return None

    @property
    def is_too_large(self) -> bool:
        """Return whether the head says that the body is."""
        return self._end - self._head > self._body_limit

    def begun(self) -> tuple[bytes, bytes]:
        """Return the head of a request that is not complete, and how its body begins."""
        return bytes(self._data[: self._head]), bytes(
            self._data[self._head : self._head + BEGINNING_BYTES]
        )

    def _scan_chunks(self) -> Progress:
        """Step over whole chunks; where it stopped is kept for the next time."""
        while True:
            line_end = self._data.find(b"\r\n", self._next_chunk)
            # the same line is too long in whatever pieces it comes: half of its end may be here
            line = (len(self._data) - 1 if line_end < 0 else line_end) - self._next_chunk
            if line > CHUNK_LINE_BYTES:
                return self._hand_on(self._next_chunk + CHUNK_LINE_BYTES)
            if line_end < 0:
                return Progress.MORE
            size = _CHUNK_SIZE.fullmatch(self._data, self._next_chunk, line_end)
            if size is None or self._chunks > MAX_CHUNKS:
                return self._hand_on()
            length = int(size[1], 16)
            if length == 0:
                return self._scan_trailers(line_end)
            after = line_end + 2 + length + 2
            if after - self._head > self._body_limit + HEAD_BYTES:
                return Progress.BODY_TOO_LARGE
            if after > len(self._data):
                return Progress.MORE
            self._is_broken |= not self._data.endswith(b"\r\n", 0, after)
            self._next_chunk = after
            self._chunks += 1

    def _scan_trailers(self, line_end: int) -> Progress:
        found = self._find_empty_line(line_end)
        trailers = (len(self._data) - len(_HEAD_END) + 1 if found < 0 else found) - line_end
        if trailers > HEAD_BYTES:
            return self._hand_on(line_end + HEAD_BYTES)
        if found < 0:
            return Progress.MORE
        self._end = found + len(_HEAD_END)
        return Progress.COMPLETE

    def _hand_on(self, end: int | None = None) -> Progress:
        """Give up on finding the end: the parser is to see a part of it, and refuse it."""
        self._is_broken = True
        self._head = self._head or len(self._data)
        self._end = len(self._data) if end is None else end
        return Progress.COMPLETE
