"""Watches: one connection each, one line per event."""

from __future__ import annotations

import threading
import time
from typing import Final, Self

from webhook.kube.api import UnreachableError, WatchEvent
from webhook.kube.rest.http1 import Body, Connection, ConnectionBrokenError, Head
from webhook.kube.rest.responses import event_of


class RestWatch:
    """A running watch: a `WatchStream`. One thread reads it; any thread may close it."""

    def __init__(
        self, connection: Connection, head: Head, *, silence_seconds: float, name: str
    ) -> None:
        """Take over a connection on which a watch has been granted.

        Args:
            connection: The connection; closed at the end of the watch.
            head: The head of the answer.
            silence_seconds: After so long without a byte the connection counts as broken.
            name: What messages call the watch.
        """
        self._connection: Final = connection
        self._body: Final = Body(connection, head)
        self._silence_seconds: Final = silence_seconds
        self._name: Final = name
        self._lines = _Lines()
        self._lock = threading.Lock()
        self.is_reading = False
        """Whether a thread waits for bytes."""
        self._is_closed = False

    def __iter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Wait for the next event; see `WatchStream`."""
        while not self._is_closed:
            line = self._lines.next()
            if line is None:
                self._read_more()
            elif line.strip():
                return event_of(line)
        raise StopIteration

    def close(self) -> None:
        """End the watch; a reader on another thread is woken and sees its end."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if not self.is_reading:
                self._connection.close()
                return
        # the reader closes the connection, which may not be done while another thread reads
        self._connection.wake()

    def __enter__(self) -> Self:
        """Return the stream; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the stream."""
        self.close()

    def _read_more(self) -> None:
        """Wait for further bytes; closes the watch when it is over.

        Raises:
            UnreachableError: The connection broke.
        """
        with self._lock:
            if self._is_closed:
                return
            self.is_reading = True
        try:
            part = self._body.read_some(time.monotonic() + self._silence_seconds)
        except (ConnectionBrokenError, TimeoutError) as err:
            self._end(err)
            return
        except BaseException:
            self._stop_reading(is_over=True)
            raise
        if part:
            self._lines.add(part)
        elif self._lines.rest():
            self._end(ConnectionBrokenError("the watch ended within a line"))
            return
        self._stop_reading(is_over=not part)

    def _end(self, err: Exception) -> None:
        if self._stop_reading(is_over=True):
            return  # closed from another thread
        silent = f"no byte within {self._silence_seconds:g} s"
        detail = silent if isinstance(err, TimeoutError) else str(err)
        raise UnreachableError(f"{self._name}: {detail}") from err

    def _stop_reading(self, *, is_over: bool) -> bool:
        """Let `close` close the connection again; return whether it has been called meanwhile."""
        with self._lock:
            self.is_reading = False
            was_closed = self._is_closed
            self._is_closed = was_closed or is_over
            if self._is_closed:
                self._connection.close()
            return was_closed


class _Lines:
    """Bytes in, lines out. A line may be megabytes long; nothing is searched twice."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def add(self, part: bytes) -> None:
        self._buffer += part

    def next(self) -> bytes | None:
        """Return the next whole line; None if there is none yet."""
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(memoryview(self._buffer)[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    def rest(self) -> bool:
        """Return whether a line has begun that has not ended."""
        return bool(self._buffer.strip())
