"""The gunicorn worker: an event loop that waits for clients, and threads that only decide.

gunicorn's own `gthread` gives a thread to a connection as soon as a byte arrives, and the thread
then waits for the TLS handshake and the body without an end: as many bad sockets as there are
threads stop all service. Here `serving.event_loop` does the waiting, and a thread gets a
request only when it is complete.

gunicorn keeps its HTTP parser, its responses, the process model and the signals. What is used of
it and is not public is pinned by `gunicorn>=27.0.1,<28` and by tests.
"""

from __future__ import annotations

import errno
import logging
import math
import resource
import selectors
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from gunicorn import sock as gunicorn_sock
from gunicorn.http import RequestParser
from gunicorn.http.errors import (
    ExpectationFailed,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.workers.gthread import ThreadWorker

from webhook.admission.serving.app import RECEIVED
from webhook.admission.serving.concurrency import (
    ConcurrencyLimiter,
    DeadlineQueue,
    MemoryBudget,
    body_weight,
)
from webhook.admission.serving.connection import Connection, ResponseBuffer, pieces
from webhook.admission.serving.event_loop import ConnectionLoop, WorkerHooks, target_of
from webhook.admission.serving.http_response import HttpResponse, failure
from webhook.admission.serving.server_settings import ServerSettings
from webhook.admission.serving.undecided import overload_response, turned_away_response
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ACCEPTS_PER_TURN: Final = 64
TURN_SECONDS: Final = 0.5
"""Longest wait for an event: signals and deadlines are looked at that often at least."""
MAINTENANCE_SECONDS: Final = 5.0
"""How often the certificate files are looked at while no connection comes."""
SPARE_DESCRIPTORS: Final = 384
"""File descriptors kept for everything that is not a connection of this port."""
MIN_CONNECTIONS: Final = 16
"""Connections that are taken however few descriptors there are."""

_EXHAUSTED: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_HTTP_ERRORS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (LimitRequestLine, 414),
    (LimitRequestHeaders, 431),
    (UnsupportedTransferCoding, 501),
    (ExpectationFailed, 417),
    (ParseException, 400),
    (NoMoreData, 400),
)

log = logging.getLogger(__name__)


class AdmissionWorker(ThreadWorker):  # type: ignore[misc]
    """A threaded worker that no client can hold up."""

    metrics: Metrics
    loop: ConnectionLoop
    wsgi: WSGIApplication

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.settings: ServerSettings = self.app.settings
        self.limiter = ConcurrencyLimiter(self.settings.threads)
        self.budget = MemoryBudget()
        self.waiting: DeadlineQueue[Connection] = DeadlineQueue()
        self.last_turn = time.monotonic()
        """When the event loop last turned, on the monotonic clock."""
        self._stop_at = math.inf
        self._accept_again = math.inf
        self._next_maintenance = 0.0
        self._thread = threading.local()

    @property
    def stopping(self) -> bool:
        """Return whether a signal stopped the worker; it still serves for a while."""
        return self._stop_at < math.inf

    def load_wsgi(self) -> None:
        """Build the application, and the loop around it, in this process."""
        super().load_wsgi()
        self.metrics = self.app.parts.metrics
        self.wsgi = self._with_time(self.wsgi)
        surroundings = WorkerHooks(
            poller=self.poller,
            defer=self.method_queue.defer,
            submit=self._submit,
            overloaded=overload_response,
            refused=turned_away_response,
            wrap=self._start_tls if self.cfg.is_ssl else None,
        )
        self.loop = ConnectionLoop(surroundings, self.settings, self.limiter, self.metrics)
        self.metrics.admission.in_flight.set_function(lambda: self.limiter.inside)
        self.metrics.connections.open.set_function(lambda: len(self.loop.connections))

    def handle_exit(self, _sig: int, _frame: object) -> None:
        """Begin to stop (SIGTERM): serve on while clients move elsewhere."""
        if self.alive and not self.stopping:
            self._stop_at = time.monotonic() + self.settings.drain_seconds
            self.max_keepalived = 0  # from here on every response says "Connection: close"
            self.method_queue.defer(_nothing)

    def run(self) -> None:
        """Serve until a signal, then finish what was begun."""
        self.loop.limit = _descriptor_limit(self.loop.limit)
        queue = self.method_queue
        self.poller.register(queue.fileno(), selectors.EVENT_READ, queue.run_callbacks)
        self.set_accept_enabled(enabled=True)
        while time.monotonic() < self._stop_at and self.alive and self.is_parent_alive():
            self._turn()
            self._maintain()
        self._finish()

    def accept(self, listener: Any) -> None:
        """Take the connections that wait on a listener; called by the loop."""
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, client = listener.accept()
            except OSError as err:
                if err.errno in _EXHAUSTED:
                    self._pause_accepting(err)
                return
            self.loop.accept(sock, client, listener.getsockname())

    def _turn(self) -> None:
        self.notify()
        self.last_turn = time.monotonic()
        self.wait_for_and_dispatch_events(TURN_SECONDS)
        self.loop.sweep()

    def _maintain(self) -> None:
        self.loop.stopping = self.stopping
        now = time.monotonic()
        if now >= self._accept_again:
            self._accept_again = math.inf
            self.set_accept_enabled(enabled=True)
        if self.settings.tls and now >= self._next_maintenance:
            self._next_maintenance = now + MAINTENANCE_SECONDS
            self.settings.tls.context()

    def _finish(self) -> None:
        """Take no new connections, answer what was begun, and close the rest."""
        self.alive = False
        self.loop.stopping = True
        self.set_accept_enabled(enabled=False)
        for listener in self.sockets:
            listener.close()
        end = time.monotonic() + self.settings.graceful_seconds
        while self.loop.connections and time.monotonic() < end:
            # each turn: what was begun before the signal may have invited another request
            self.loop.drain()
            self._turn()
        self.loop.close()
        self.tpool.shutdown(wait=False)

    def _pause_accepting(self, err: OSError) -> None:
        """Wait for descriptors instead of spinning on a listener that stays readable."""
        log.error("cannot accept connections", extra={"error": str(err)})
        self.set_accept_enabled(enabled=False)
        self._accept_again = time.monotonic() + TURN_SECONDS
        self.loop.evict()

    def _start_tls(self, sock: Any) -> Any:
        return gunicorn_sock.ssl_wrap_socket(sock, self.cfg)

    def _with_time(self, application: WSGIApplication) -> WSGIApplication:
        """Let the application see when its request was complete."""
        thread = self._thread

        def with_time(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
            environ[RECEIVED] = thread.received
            return application(environ, start_response)

        return with_time

    def _submit(self, connection: Connection, deadline: float) -> None:
        # a thread that becomes free takes the most urgent request, not the one of its own call
        self.waiting.push(connection, deadline)
        self.tpool.submit(self._serve_next)

    def _serve_next(self) -> None:
        self._serve(self.waiting.pop())

    def _serve(self, connection: Connection) -> None:
        """Answer one request; the outermost frame of a thread's work."""
        started = time.monotonic()
        size = body_weight(connection.request[1])
        has_room = self.budget.enter(size)
        try:
            answer, keep = self._respond(connection) if has_room else self._reject(connection, size)
        except Exception:
            log.exception("request failed")
            answer, keep = failure(500, "internal error").wire(), False
        finally:
            if has_room:
                self.budget.leave(size)
            self.limiter.leave(time.monotonic() - started)
        self.loop.complete(connection, answer, keep=keep)

    def _respond(self, connection: Connection) -> tuple[bytes, bool]:
        """Return the answer on the wire, and whether the connection can be used again."""
        self._thread.received = connection.received
        outbox = ResponseBuffer()
        parser = RequestParser(self.cfg, pieces(*connection.request), connection.client)
        try:
            keep = self.handle_request(next(parser), _GunicornConnection(outbox, connection))
        except StopIteration:  # the application failed behind the first line of its response
            return failure(500, "internal error").wire(), False
        except (ParseException, NoMoreData) as err:
            return self._explain(connection, err).wire(), False
        # bytes that are left over mean that the parser saw another end than the loop did
        clean = parser.finish_body() and not parser.unreader.read()
        return outbox.getvalue(), bool(keep and clean)

    def _reject(self, connection: Connection, size: int) -> tuple[bytes, bool]:
        """Answer a request that would take too much memory, now or ever."""
        if self.budget.could_hold(size):
            code, detail = 503, "too much is being decoded already"
            self.metrics.admission.turned_away.labels("overload").inc()
            log.warning("turned away", extra={"reason": "overload", "detail": detail})
        else:
            code, detail = 413, "the body is made of too many values"
            self.metrics.admission.malformed.labels("too_large").inc()
            client = connection.client[0]
            log.info("refused", extra={"reason": "too_large", "detail": detail, "client": client})
        head, body = connection.request
        answer = turned_away_response(target_of(head), body, detail, code)
        keep = connection.buffer.is_framed and not self.stopping
        return answer.wire(keep=keep), keep

    def _explain(self, connection: Connection, err: Exception) -> HttpResponse:
        code = next(code for kind, code in _HTTP_ERRORS if isinstance(err, kind))
        detail, client = str(err)[:200], connection.client[0]
        self.metrics.admission.malformed.labels("http").inc()
        log.info("refused", extra={"reason": "http", "detail": detail, "client": client})
        return failure(code, detail)


class _GunicornConnection:
    """Attributes of a connection that gunicorn's `handle_request` reads."""

    __slots__ = ("client", "server", "sock")

    def __init__(self, outbox: ResponseBuffer, connection: Connection) -> None:
        self.sock = outbox
        self.client = connection.client
        self.server = connection.server


def _descriptor_limit(connections: int) -> int:
    """Lower the number of connections to what file descriptors are left for."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    return min(connections, max(MIN_CONNECTIONS, soft - SPARE_DESCRIPTORS))


def _nothing() -> None:
    """Wake the loop."""
