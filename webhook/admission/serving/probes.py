"""The operations port: `/livez`, `/readyz`, `/metrics` over plain HTTP, in a thread of its own.

It shares nothing with the webhook port, so a saturated pool of threads is not a dead pod. One
asyncio loop holds all its connections: a client that sends nothing costs no thread, and when
there are too many the oldest has to go. A flood of requests must not keep the kubelet from its
probes: metrics, which take tens of milliseconds to write out, have a part of the thread's time.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from webhook.admission.serving.http_response import HttpResponse, failure
from webhook.jsonfields.encoding import encode_json

REQUEST_SECONDS: Final = 5.0
"""Longest life of a connection, from its first byte to its last."""

HEAD_BYTES: Final = 8 * 1024
MAX_CONNECTIONS: Final = 256
BACKLOG: Final = 1024
"""Connections that may wait to be accepted; with asyncio's own 100 a burst costs a second."""

PATIENCE_SECONDS: Final = 0.05
"""How long a connection is left alone where there are too many; until then others wait. Probes come
with their requests, so that some 5,000 silent ones a second keep them for less than a second."""

METRICS_SECONDS: Final = 1.0
METRICS_SHARE: Final = 0.25
"""How long metrics may be written out at once, and for which part of the time then; beyond that
they are as the last time."""

ACCEPTS_PER_TURN: Final = 64
PAUSE_SECONDS: Final = 0.5
TURN_SECONDS: Final = 0.01
_OPEN_METRICS: Final = "application/openmetrics-text"
_ACCEPT: Final = re.compile(rb"\r\naccept:([^\r\n]*)", re.IGNORECASE)

log = logging.getLogger(__name__)

Page: TypeAlias = Callable[[str], HttpResponse]
"""Makes the answer of a path for a client that accepts such content; must not block, because all
pages share one thread."""


def probe_pages(
    *,
    problems_of_life: Callable[[], Sequence[str]],
    problems_of_readiness: Callable[[], Sequence[str]],
    metrics: Callable[[str], tuple[bytes, str]],
    notes: Callable[[], Sequence[str]] = tuple,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Page]:
    """Make the three pages.

    Args:
        problems_of_life: Why the process should be restarted; usually nothing.
        problems_of_readiness: Why it should get no requests now.
        metrics: Returns all metrics in a format that is accepted, and its content type.
        notes: What does not keep it from getting requests, and people should see to; `/readyz`
            says it.
        clock: The monotonic clock.
    """
    return {
        "/livez": lambda _accept: _probe(problems_of_life()),
        "/readyz": lambda _accept: _probe(problems_of_readiness(), notes()),
        "/metrics": _MetricsPage(metrics, clock),
    }


class _MetricsPage:
    """The page of metrics, as fresh as its part of the time allows."""

    def __init__(
        self, metrics: Callable[[str], tuple[bytes, str]], clock: Callable[[], float]
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._left = METRICS_SECONDS
        self._looked_at = clock()
        self._made: dict[bool, HttpResponse] = {}
        """Whether OpenMetrics are accepted → the last page."""

    def __call__(self, accept: str) -> HttpResponse:
        now, kind = self._clock(), _OPEN_METRICS in accept
        self._left += (now - self._looked_at) * METRICS_SHARE
        self._left, self._looked_at = min(self._left, METRICS_SECONDS), now
        if kind not in self._made or self._left > 0:
            body, content_type = self._metrics(accept)
            self._left -= self._clock() - now
            self._made[kind] = HttpResponse(200, body, (), content_type)
        return self._made[kind]


class ProbeServer:
    """Serves pages on a listening socket until it is stopped."""

    def __init__(self, listener: socket.socket, pages: Mapping[str, Page]) -> None:
        self._listener = listener
        self._pages = pages
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="ops", daemon=True)
        self._open: dict[asyncio.Task[None], float] = {}
        """Those that are served, in their order → when they came, on the monotonic clock."""

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving; connections are closed."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=REQUEST_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        self._watch()
        self._loop.run_forever()
        self._loop.remove_reader(self._listener)
        self._loop.run_until_complete(self._close())
        self._loop.close()

    def _watch(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        """Take the connections that wait; those whose clients have left cost next to nothing."""
        for _ in range(ACCEPTS_PER_TURN):
            if len(self._open) >= MAX_CONNECTIONS and not self._evict():
                self._pause(TURN_SECONDS)
                return
            try:
                sock, _client = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptors are left, for a moment
                self._pause(PAUSE_SECONDS)
                return
            if _is_left(sock):
                sock.close()
            else:
                self._admit(sock)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener)
        self._loop.call_later(seconds, self._watch)

    def _evict(self) -> bool:
        """End the oldest connection; return whether it is old enough for that."""
        oldest, came = next(iter(self._open.items()))
        if time.monotonic() - came < PATIENCE_SECONDS:
            return False
        del self._open[oldest]
        oldest.cancel()
        return True

    def _admit(self, sock: socket.socket) -> None:
        task = self._loop.create_task(self._connected(sock))
        self._open[task] = time.monotonic()
        task.add_done_callback(lambda ended: self._open.pop(ended, None))

    async def _close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _connected(self, sock: socket.socket) -> None:
        closes: socket.socket | asyncio.StreamWriter = sock
        try:
            sock.setblocking(False)
            async with asyncio.timeout(REQUEST_SECONDS):
                reader, writer = await asyncio.open_connection(sock=sock, limit=HEAD_BYTES)
                closes = writer  # the socket is the transport's from here on
                await self._serve(reader, writer)
        except (OSError, TimeoutError, EOFError, asyncio.LimitOverrunError):
            pass  # the client's business
        finally:
            closes.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer(head))
        await writer.drain()
        writer.write_eof()
        await reader.read(HEAD_BYTES)

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        page = self._pages.get(path)
        if page is None:
            return failure(404, f"there is {', '.join(self._pages)}").wire()
        if method not in {"GET", "HEAD"}:
            return failure(405, "only GET and HEAD", ("Allow", "GET, HEAD")).wire()
        return _answer_of(page, _accepted(head)).wire(with_body=method == "GET")


def _is_left(sock: socket.socket) -> bool:
    """Return whether the client of a new connection has closed it without a word."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _accepted(head: bytes) -> str:
    """Return the header `Accept` of a request; empty where it has none."""
    found = _ACCEPT.search(head)
    return "" if found is None else found[1].decode("latin-1").strip()


def _answer_of(page: Page, accept: str) -> HttpResponse:
    try:
        return page(accept)
    except Exception:
        log.exception("operations page failed")
        return failure(500, "internal error")


def _probe(problems: Sequence[str], notes: Sequence[str] = ()) -> HttpResponse:
    told = {"notes": list(notes)} if notes else {}
    if problems:
        reasons = list(problems)
        return HttpResponse(503, encode_json({"status": "failing", "reasons": reasons, **told}))
    return HttpResponse(200, encode_json({"status": "ok", **told}))
