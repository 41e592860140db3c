"""Event loop that owns every socket until a request is complete, and again while it is answered.

The laws:

Rule 1: nothing here blocks, and no thread elsewhere waits for a client. A request is handed over
only when its last byte is here; what a client does not take of an answer at once is sent by the
loop.

Rule 2: every state but BUSY has a deadline for the whole of it, which single bytes do not renew:
handshake, request, answer, close. How long BUSY may last is up to the deadline of the review.

Rule 3: while BUSY only the thread that answers touches the socket; in every other state only the
loop does. An event meanwhile parks the connection: it is not watched until it is handed back.

Rule 4: when there are too many connections, one that never sent a request goes first.

Rule 5: a client that is refused by its certificate, or for want of one, is answered as soon as it
sends anything: nothing of it is read as a request.
"""

from __future__ import annotations

import logging
import math
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from webhook.admission.deadline import deadline_of
from webhook.admission.serving.concurrency import SMALL_BYTES, ConcurrencyLimiter
from webhook.admission.serving.connection import Address, Connection, State
from webhook.admission.serving.framing import Progress, RequestBuffer
from webhook.admission.serving.http_response import HttpResponse, failure
from webhook.admission.serving.server_settings import ServerSettings
from webhook.admission.serving.undecided import OVERLOAD, USER
from webhook.telemetry.metrics import Metrics

RECEIVE_BYTES: Final = 64 * 1024
RECEIVES_PER_TURN: Final = 16
SWEEP_SECONDS: Final = 0.2
"""How often deadlines are looked at, at most."""
LINGER_SECONDS: Final = 1.0
"""How long a closing connection waits for its client."""
HELD_SECONDS: Final = 0.01
"""How long a count of what is held stands: it looks at all connections."""
QUIET_SECONDS: Final = 1.0
"""How long a warning about overload stands for those behind it: there may be thousands."""
REFUSAL_SECONDS: Final = 10.0
"""How long a line about a refused client stands for those behind it."""
HELD_BYTES: Final = ((256 * 1024, 64 * 1024 * 1024), (SMALL_BYTES, 96 * 1024 * 1024))
"""What requests and answers that are not sent yet may hold together until requests of more than a
size are turned away, the largest first. What is small is always taken: binds are."""
UNSENT_BYTES: Final = 64 * 1024 * 1024
"""What answers may hold together that clients do not take; those stalled for longest go first. A
small request may have a large answer, so it is not enough to turn requests away."""

_READ: Final = selectors.EVENT_READ
_WRITE: Final = selectors.EVENT_WRITE
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_WAIT: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)
_EXPIRED: Final = {
    State.HANDSHAKE: "handshake_timeout",
    State.IDLE: "idle",
    State.WRITING: "write_timeout",
    State.CLOSING: "answered",
}
_REFUSED: Final = {
    Progress.HEAD_TOO_LARGE: (431, "the request head is too large"),
    Progress.BODY_TOO_LARGE: (413, "the body is too large"),
}

Step: TypeAlias = Callable[[Connection], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHooks:
    """Calls of the event loop to the worker around it."""

    poller: selectors.BaseSelector
    """Calls the data of a key with its file when it is ready."""
    defer: Callable[..., None]
    """Runs a function with arguments in the loop's thread, later; safe for threads."""
    submit: Callable[[Connection, float], None]
    """Has a thread answer the request of a BUSY connection, which it then hands back. Of requests
    that wait for a thread the one with the earliest deadline (on the monotonic clock) is next."""
    overloaded: Callable[[str, bytes, str], HttpResponse]
    """Returns the answer to a request that would wait for too long: target, body, and why."""
    refused: Callable[[str, bytes, str, int], HttpResponse]
    """Returns the answer to a request that is too large: target, how its body begins, why, and the
    HTTP status."""
    wrap: Callable[[socket.socket], socket.socket] | None
    """Starts TLS on an accepted socket without a handshake; None is plain HTTP."""


class ConnectionLoop:
    """The connections of one port; all methods but `complete` are for the loop's thread."""

    def __init__(
        self,
        worker: WorkerHooks,
        settings: ServerSettings,
        limiter: ConcurrencyLimiter,
        metrics: Metrics,
    ) -> None:
        self.connections: dict[Connection, None] = {}
        self.limit = settings.max_connections
        self.stopping = False
        """While stopping, no answer invites another request."""
        self._worker = worker
        self._settings = settings
        self._limiter = limiter
        self._metrics = metrics
        self._next_sweep = 0.0
        self._next_warning = 0.0
        self._next_unsent_warning = 0.0
        self._next_refusal = 0.0
        self._held_bytes = 0
        self._next_count = 0.0
        self._steps: dict[State, Step] = {
            State.HANDSHAKE: self._handshake,
            State.IDLE: self._read,
            State.READING: self._read,
            State.BUSY: self._park,
            State.WRITING: self._write,
            State.CLOSING: self._discard,
        }

    # --- connections come and go --------------------------------------------------------------

    def accept(self, sock: socket.socket, client: Address, server: Address) -> None:
        """Take a connection that was just accepted."""
        if len(self.connections) >= self.limit and not self.evict():
            sock.close()
            return
        sock.setblocking(False)
        state, seconds = State.IDLE, self._settings.keepalive_seconds
        if self._worker.wrap:
            state, seconds = State.HANDSHAKE, self._settings.handshake_seconds
            try:
                sock = self._worker.wrap(sock)
            except (OSError, ValueError):  # the client is gone already
                sock.close()
                return
        connection = Connection(sock, client, server, self._settings.body_bytes)
        self.connections[connection] = None
        self._enter(connection, state, seconds)
        self._watch(connection, _READ)

    def evict(self) -> bool:
        """Close the connection that is missed least; False when all of them are busy."""
        waiting = [each for each in self.connections if each.state is not State.BUSY]
        if not waiting:
            return False
        self._drop(min(waiting, key=_eviction_rank), "evicted")
        return True

    def busy_longer_than(self, seconds: float) -> int:
        """Count requests that a thread has had for longer; safe for other threads."""
        since = time.monotonic() - seconds
        return sum(
            each.state is State.BUSY and each.received < since for each in list(self.connections)
        )

    def sweep(self) -> None:
        """End what has lasted too long; cheap to call often."""
        now = time.monotonic()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_SECONDS
        for connection in [each for each in self.connections if each.deadline <= now]:
            if connection.state is State.READING:
                late = failure(408, "the request did not come to an end")
                self._respond_now(connection, connection.early or late)
            elif connection.state in _EXPIRED:
                self._drop(connection, _EXPIRED[connection.state])

    def drain(self) -> None:
        """Grant idle connections a last moment in which to send a request."""
        end = time.monotonic() + LINGER_SECONDS
        for connection in self.connections:
            if connection.state in {State.HANDSHAKE, State.IDLE}:
                connection.deadline = min(connection.deadline, end)

    def close(self) -> None:
        """Close everything at once."""
        for connection in list(self.connections):
            self._drop(connection, "stopping")

    def _drop(self, connection: Connection, reason: str) -> None:
        if connection.state is State.CLOSED:
            return
        self._watch(connection, 0)
        connection.state = State.CLOSED
        self.connections.pop(connection, None)
        connection.sock.close()
        self._metrics.connections.closed.labels(reason).inc()

    def _enter(self, connection: Connection, state: State, seconds: float) -> None:
        connection.deadline = time.monotonic() + seconds
        connection.state = state

    def _watch(self, connection: Connection, events: int) -> None:
        """Have the poller watch for events; 0 is none."""
        if connection.interest == events:
            return
        poller, sock = self._worker.poller, connection.sock
        if events == 0:
            poller.unregister(sock)
        elif connection.interest == 0:
            poller.register(sock, events, partial(self._event, connection))
        else:
            poller.modify(sock, events, partial(self._event, connection))
        connection.interest = events

    # --- events -------------------------------------------------------------------------------

    def _event(self, connection: Connection, _sock: object) -> None:
        """Go on with a connection whose socket is ready."""
        step = self._steps.get(connection.state)
        if step is not None:  # it may have been closed by an earlier event of the same turn
            self._take(step, connection)

    def _take(self, step: Step, connection: Connection) -> None:
        """Take one step; whatever happens, it costs this connection only."""
        try:
            step(connection)
        except ssl.SSLCertVerificationError as err:
            self._note_refusal(connection, "untrusted", err.verify_message)
            self._linger_in_plain(connection)
        except OSError:  # resets, TLS alerts and the like: the client's business
            failed = connection.state is State.HANDSHAKE
            self._drop(connection, "handshake_failed" if failed else "peer")
        except Exception:
            log.exception("connection failed")
            self._drop(connection, "error")

    def _handshake(self, connection: Connection) -> None:
        try:
            connection.handshake()
        except ssl.SSLWantReadError:
            self._watch(connection, _READ)
        except ssl.SSLWantWriteError:
            self._watch(connection, _WRITE)
        else:
            self._watch(connection, _READ)
            self._judge_client(connection)
            refused, settings = connection.refusal[0], self._settings
            seconds = settings.request_seconds if refused else settings.keepalive_seconds
            self._enter(connection, State.IDLE, seconds)

    def _judge_client(self, connection: Connection) -> None:
        if self._settings.tls is None:
            return
        connection.refusal = self._settings.tls.client_refusal(connection.certificate())

    def _note_refusal(self, connection: Connection, reason: str, detail: str) -> None:
        self._metrics.connections.refused.labels(reason).inc()
        now = time.monotonic()
        if now >= self._next_refusal:
            self._next_refusal = now + REFUSAL_SECONDS
            client = connection.client[0]
            log.warning(
                "client refused", extra={"reason": reason, "detail": detail, "client": client}
            )

    def _park(self, connection: Connection) -> None:
        with connection.lock:
            if connection.state is State.BUSY:
                connection.parked = True
                self._watch(connection, 0)
                return
        self._read(connection)

    def _discard(self, connection: Connection) -> None:
        for _ in range(RECEIVES_PER_TURN):
            try:
                data = connection.sock.recv(RECEIVE_BYTES)
            except _WAIT:
                return
            if not data:
                self._drop(connection, "answered")
                return

    # --- requests -----------------------------------------------------------------------------

    def _read(self, connection: Connection) -> None:
        """Receive until the request is complete or nothing more is there."""
        for _ in range(RECEIVES_PER_TURN):
            try:
                data = connection.sock.recv(RECEIVE_BYTES)
            except ssl.SSLWantWriteError:  # a key update has to be answered first
                self._watch(connection, _READ | _WRITE)
                return
            except _WAIT:
                self._watch(connection, _READ)
                return
            if not data:
                self._drop(connection, "peer")
                return
            if connection.state is State.IDLE:
                self._enter(connection, State.READING, self._settings.request_seconds)
            if not self._advance(connection, connection.buffer.feed(data)):
                return
        if connection.pending():
            self._worker.defer(self._event, connection, None)

    def _next_request(self, connection: Connection) -> None:
        """Go on with what was received behind a request that is answered now."""
        if connection.state is not State.IDLE:
            return
        if len(connection.buffer):
            self._enter(connection, State.READING, self._settings.request_seconds)
            if not self._advance(connection, connection.buffer.progress()):
                return
        self._read(connection)

    def _advance(self, connection: Connection, progress: Progress) -> bool:
        """Act on how far the request is; return whether more has to be received."""
        reason, words = connection.refusal
        if reason:  # one that only shakes hands, as this process itself, asks nothing
            self._note_refusal(connection, reason, words)
            self._respond_now(connection, failure(403, words))
            return False
        if connection.early is not None:
            return self._discarded(connection, connection.early)
        if progress is Progress.COMPLETE:
            self._submit(connection)
            return False
        if progress in _REFUSED:
            return self._refuse(connection, *_REFUSED[progress])
        size = len(connection.buffer)
        if any(size > large and self._held() > most for large, most in HELD_BYTES):
            detail = "too much is being received already"
            self._count_turned_away(detail)
            return self._dismiss(connection, OVERLOAD, detail)
        if not connection.continued and connection.buffer.expects_continue():
            connection.continued = True
            connection.sock.send(_CONTINUE)
        return True

    def _held(self) -> int:
        """Count what was received and is not answered yet, and what clients have not taken yet."""
        now = time.monotonic()
        if now >= self._next_count:
            self._next_count = now + HELD_SECONDS
            self._held_bytes = sum(
                len(connection.buffer) + len(connection.request[1]) + len(connection.out)
                for connection in self.connections
            )
        return self._held_bytes

    def _submit(self, connection: Connection) -> None:
        """Hand a complete request to a thread, unless it would wait there for too long."""
        now = time.monotonic()
        connection.request = connection.buffer.take()
        connection.received = now
        connection.served = True
        connection.continued = False
        target = target_of(connection.request[0])
        deadline = deadline_of(target.partition("?")[2], received=now)
        if not self._limiter.enter(deadline.at - now):
            detail = "too many requests wait for an answer"
            answer = self._worker.overloaded(target, connection.request[1], detail)
            self._turn_away(connection, answer, detail)
            return
        self._enter(connection, State.BUSY, math.inf)
        self._worker.submit(connection, deadline.at)

    def _refuse(self, connection: Connection, code: int, detail: str) -> bool:
        """Refuse a request that is too large, once it says what it is about."""
        if _can_discard(connection) and not connection.buffer.has_begun(USER):
            return True
        self._metrics.admission.malformed.labels("too_large").inc()
        client = connection.client[0]
        log.info("refused", extra={"reason": "too_large", "detail": detail, "client": client})
        return self._dismiss(connection, code, detail)

    def _dismiss(self, connection: Connection, code: int, detail: str) -> bool:
        """Answer a request of which not all is here; return whether to receive the rest first.

        A client may take no answer while it sends.
        """
        if not _can_discard(connection):
            self._respond_now(connection, failure(code, detail))
            return False
        head, body = connection.buffer.begun()
        connection.early = self._worker.refused(target_of(head), body, detail, code)
        connection.buffer.discard()
        return self._discarded(connection, connection.early)

    def _discarded(self, connection: Connection, answer: HttpResponse) -> bool:
        """Answer a request once all of it is received; return whether more of it is to come."""
        if connection.buffer.unread:
            return True
        connection.early = None
        connection.served = True
        connection.continued = False
        self._respond_now(connection, answer, keep=not self.stopping)
        return False

    def _turn_away(self, connection: Connection, answer: HttpResponse, detail: str) -> None:
        """Answer a request that is complete, and that no thread will decide."""
        self._count_turned_away(detail)
        connection.request = (b"", b"")
        keep = connection.buffer.is_framed and not self.stopping
        self._respond_now(connection, answer, keep=keep)

    def _count_turned_away(self, detail: str) -> None:
        self._metrics.admission.turned_away.labels("overload").inc()
        now = time.monotonic()
        if now >= self._next_warning:
            self._next_warning = now + QUIET_SECONDS
            log.warning("turned away", extra={"reason": "overload", "detail": detail})

    # --- answers ------------------------------------------------------------------------------

    def complete(self, connection: Connection, answer: bytes, *, keep: bool) -> None:
        """Send the answer of a BUSY connection; called by the thread that made it.

        Usually the socket takes all of it, and the loop does not even have to wake up.
        """
        connection.request = (b"", b"")
        connection.out, connection.keep = answer, keep
        try:
            sent = connection.sock.send(answer)
        except _WAIT:
            sent = 0
        except OSError:
            self._worker.defer(self._drop, connection, "peer")
            return
        connection.out = answer[sent:]
        if connection.out or not keep or len(connection.buffer) or connection.pending():
            self._worker.defer(self._resume_writing, connection)
            return
        with connection.lock:
            self._enter(connection, State.IDLE, self._settings.keepalive_seconds)
            parked, connection.parked = connection.parked, False
        if parked:
            self._worker.defer(self._resume, connection)

    def _resume_writing(self, connection: Connection) -> None:
        """Go on with a connection whose answer is not out yet, or that has more to say."""
        if connection.state is not State.CLOSED:
            connection.parked = False
            self._start_writing(connection)
            if len(connection.out) > SMALL_BYTES:
                self._bound_unsent()

    def _bound_unsent(self) -> None:
        """Drop clients that do not take their answers, while these are too much together."""
        writing = [each for each in self.connections if each.state is State.WRITING]
        unsent = sum(len(each.out) for each in writing)
        if unsent <= UNSENT_BYTES:
            return
        now = time.monotonic()
        if now >= self._next_unsent_warning:
            self._next_unsent_warning = now + QUIET_SECONDS
            detail = "clients do not take their answers"
            log.warning("connections dropped", extra={"reason": "unsent", "detail": detail})
        for connection in sorted(writing, key=lambda each: _unsent_rank(each, now)):
            unsent -= len(connection.out)
            self._drop(connection, "unsent")
            if unsent <= UNSENT_BYTES:
                return

    def _resume(self, connection: Connection) -> None:
        """Watch a socket again that had an event while its connection was BUSY."""
        if connection.state is not State.CLOSED:
            self._watch(connection, _READ)

    def _respond_now(
        self, connection: Connection, answer: HttpResponse, *, keep: bool = False
    ) -> None:
        """Answer without a thread."""
        connection.out, connection.keep = answer.wire(keep=keep), keep
        if not keep:
            connection.buffer = RequestBuffer(self._settings.body_bytes)  # nothing more is read
        self._start_writing(connection)

    def _start_writing(self, connection: Connection) -> None:
        self._enter(connection, State.WRITING, self._settings.write_seconds)
        connection.progressed = time.monotonic()
        self._event(connection, None)

    def _write(self, connection: Connection) -> None:
        while connection.out:
            try:
                sent = connection.sock.send(connection.out)
            except ssl.SSLWantReadError:
                self._watch(connection, _READ)
                return
            except _WAIT:
                self._watch(connection, _WRITE)
                return
            connection.out = connection.out[sent:]
            connection.progressed = time.monotonic()
        self._watch(connection, _READ)
        if not connection.keep:
            self._linger(connection)
            return
        self._enter(connection, State.IDLE, self._settings.keepalive_seconds)
        if len(connection.buffer) or connection.pending():
            self._worker.defer(self._take, self._next_request, connection)

    def _linger(self, connection: Connection) -> None:
        """Announce the end and await the client's: an early close could cut the answer off."""
        self._enter(connection, State.CLOSING, LINGER_SECONDS)
        if isinstance(connection.sock, ssl.SSLSocket):
            with suppress(OSError, ValueError):  # sends "close notify"; its answer is not awaited
                connection.sock.unwrap()
        connection.sock.shutdown(socket.SHUT_WR)

    def _linger_in_plain(self, connection: Connection) -> None:
        """Let the alert of a handshake that failed arrive, as `_linger` does for an answer."""
        self._watch(connection, 0)
        connection.sock = socket.socket(fileno=connection.sock.detach())
        connection.sock.setblocking(False)
        self._enter(connection, State.CLOSING, LINGER_SECONDS)
        with suppress(OSError):  # the client is gone already
            connection.sock.shutdown(socket.SHUT_WR)
        self._watch(connection, _READ)


def _eviction_rank(connection: Connection) -> tuple[bool, float]:
    """Rank connections: strangers first, the oldest of them first; then those idle longest."""
    return connection.served, connection.deadline if connection.served else 0.0


def _can_discard(connection: Connection) -> bool:
    """Return whether a request can be received to its end, without being kept."""
    waits = connection.buffer.expects_continue() and not connection.continued
    return connection.buffer.can_discard and not waits


def _unsent_rank(connection: Connection, now: float) -> tuple[bool, int, int]:
    """Rank unsent answers: what is not small first, then by whole seconds stalled, then by size."""
    size = len(connection.out)
    return size <= SMALL_BYTES, -int(now - connection.progressed), -size


def target_of(head: bytes) -> str:
    """Return path and query of the URL in the first line of a request."""
    target = head[: head.find(b"\r\n")].partition(b" ")[2]
    return target.partition(b" ")[0].decode("latin-1")
