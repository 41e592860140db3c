"""Requests to an API server over connections that are kept and used again.

Rules:

1. Every call has one deadline for everything: connecting, sending, waiting, reading.
2. A request is sent a second time only when the first cannot have had an effect: it was a read,
   or it was not sent to its end, or it was answered with 401.
3. Redirects are answers like any other.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from webhook.kube.api import RequestTimeoutError, UnreachableError
from webhook.kube.rest.config import AccessError, RestConfig
from webhook.kube.rest.dialer import Dialer
from webhook.kube.rest.http1 import BodyTooLongError, Connection, ConnectionBrokenError, Head
from webhook.kube.rest.identity import Identity
from webhook.telemetry.trace import current_trace

_KEPT_IDLE: Final = 64
"""As many as a webhook has threads: each may write a ledger of its own at a time."""
_KEPT_SECONDS: Final = 60.0
"""Shorter than the 90 seconds after which an API server closes an idle connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request: method, path with query, body and its media type, and what is wanted back."""

    method: str
    target: str
    body: bytes = b""
    media_type: str = "application/json"
    accept: str = "application/json"
    most_bytes: int = 0
    """How long the body of an answer that says yes may be; 0 for no limit."""
    most_seconds: float = 0.0
    """How long the call may take; 0 for as long as any."""

    @property
    def is_read(self) -> bool:
        """Return whether it may be sent twice without harm."""
        return self.method == "GET"

    def __str__(self) -> str:
        """Return what messages call it."""
        return f"{self.method} {self.target.partition('?')[0]}"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that was read to its end."""

    head: Head
    body: bytes


class Transport:
    """The connections of one client. Safe to use from several threads."""

    def __init__(self, config: RestConfig, *, user_agent: str, timeout_seconds: float) -> None:
        """Connect to nothing yet.

        Args:
            config: Where, and as whom.
            user_agent: What the API server's audit log calls the client.
            timeout_seconds: The whole time of a call.

        Raises:
            AccessError: A certificate cannot be used.
        """
        self.config: Final = config
        self.timeout_seconds: Final = timeout_seconds
        self._dialer = Dialer(config)
        self._prefix: Final = urlsplit(config.server).path.rstrip("/")
        self._headers: Final = _fixed_headers(config, user_agent)
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    def close(self) -> None:
        """Close the connections that are not in use; those in use close when they are done."""
        self._is_closed = True
        self._drop_idle()

    @property
    def idle_connections(self) -> int:
        """Number of open connections that are kept for the next calls."""
        return sum(connection.is_quiet() for connection in tuple(self._idle))

    def send(self, request: Request) -> Response:
        """Send a request and read its answer, whatever it says.

        Raises:
            RequestTimeoutError: The time was up first.
            UnreachableError: There is no connection, or it broke before the end of the answer.
            BodyTooLongError: The answer is longer than asked for.
        """
        head, connection, deadline = self._begin(request, self._take_idle)
        most_bytes = request.most_bytes if head.status == 200 else 0
        try:
            body = connection.read_body(head, deadline, most_bytes=most_bytes)
        except BodyTooLongError:
            connection.close()
            raise
        except (ConnectionBrokenError, TimeoutError) as err:
            connection.close()
            raise self._failure(request, err) from err
        self._give_back(connection, head)
        return Response(head, body)

    def stream(self, request: Request) -> tuple[Head, Connection]:
        """Send a request on a connection of its own, which is the caller's once it is answered.

        Raises:
            RequestTimeoutError: The time was up before the head of the answer.
            UnreachableError: There is no connection, or it broke.
        """
        head, connection, _ = self._begin(request, lambda: None)
        return head, connection

    def rest(self, request: Request, head: Head, connection: Connection) -> Response:
        """Read the body of an answer whose head `stream` returned; closes the connection.

        Raises:
            RequestTimeoutError: The time was up first.
            UnreachableError: It ends too early.
        """
        try:
            deadline = time.monotonic() + self.timeout_seconds
            return Response(head, connection.read_body(head, deadline))
        except (ConnectionBrokenError, TimeoutError) as err:
            raise self._failure(request, err) from err
        finally:
            connection.close()

    def _begin(
        self, request: Request, take_idle: Callable[[], Connection | None]
    ) -> tuple[Head, Connection, float]:
        """Send a request and read the head of its answer; once more for a refused identity."""
        deadline = time.monotonic() + self._seconds_for(request)
        try:
            identity = self.config.credentials.identity()
            head, connection = self._exchange(request, identity, take_idle(), deadline)
            if head.status == 401 and self.config.credentials.renew(identity):
                connection.close()
                self._drop_idle()  # they may stand for the certificate that was refused
                identity = self.config.credentials.identity()
                head, connection = self._exchange(request, identity, None, deadline)
        except (ConnectionBrokenError, AccessError, OSError) as err:
            raise self._failure(request, err) from err
        return head, connection, deadline

    def _exchange(
        self, request: Request, identity: Identity, idle: Connection | None, deadline: float
    ) -> tuple[Head, Connection]:
        data = self._written(request, identity)
        if idle is not None:
            try:
                return _sent(idle, data, deadline), idle
            except ConnectionBrokenError as err:
                # the server has closed what it thought to be unused
                if err.was_answered or (err.was_sent and not request.is_read):
                    raise
        try:
            connection = self._dialer.connect(identity, deadline)
        except TimeoutError as err:
            # whatever is asked about takes long to be answered only once it was asked
            seconds = self._seconds_for(request)
            raise ConnectionBrokenError(f"no connection within {seconds:g} s") from err
        return _sent(connection, data, deadline), connection

    def _written(self, request: Request, identity: Identity) -> bytes:
        lines = f"{request.method} {self._prefix}{request.target} HTTP/1.1\r\n{self._headers}"
        lines += f"Accept: {request.accept}\r\n"
        if identity.authorization:
            lines += f"Authorization: {identity.authorization}\r\n"
        trace = current_trace()
        if trace is not None:
            lines += f"Traceparent: {trace.header}\r\n"
        if request.body:
            lines += f"Content-Type: {request.media_type}\r\n"
        if request.body or request.method != "GET":
            lines += f"Content-Length: {len(request.body)}\r\n"
        return lines.encode("latin-1") + b"\r\n" + request.body

    def _take_idle(self) -> Connection | None:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                return None
            if time.monotonic() - connection.idle_since < _KEPT_SECONDS and connection.is_quiet():
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection, head: Head) -> None:
        usable = head.keeps_alive and connection.is_drained() and not self._is_closed
        if not usable or len(self._idle) >= _KEPT_IDLE:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._is_closed:  # in this very moment
            self._drop_idle()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _seconds_for(self, request: Request) -> float:
        return request.most_seconds or self.timeout_seconds

    def _failure(self, request: Request, err: Exception) -> UnreachableError | RequestTimeoutError:
        where = f"{request}: {self.config.server}"
        if isinstance(err, TimeoutError):
            return RequestTimeoutError(
                f"{where}: no answer within {self._seconds_for(request):g} s"
            )
        if isinstance(err, ssl.SSLCertVerificationError):
            detail = f"its certificate is not trusted: {err.verify_message}"
        elif isinstance(err, OSError):
            detail = err.strerror or str(err)
        else:
            detail = str(err)
        return UnreachableError(f"{where}: {detail} ({self.config.source})")


def _sent(connection: Connection, data: bytes, deadline: float) -> Head:
    """Send a request and read the head of the answer; the connection is closed when that fails."""
    try:
        try:
            connection.send(data, deadline)
        except ConnectionBrokenError as failure:
            return _early_answer(connection, failure, deadline)
        return connection.read_head(deadline)
    except BaseException:
        connection.close()
        raise


def _early_answer(connection: Connection, failure: ConnectionBrokenError, deadline: float) -> Head:
    """Return what a server said that did not want to read a request to its end."""
    try:
        head = connection.read_head(deadline)
    except ConnectionBrokenError:
        raise failure from None
    if head.status < 400:
        raise ConnectionBrokenError(f"answered {head.status} to half a request") from failure
    return replace(head, keeps_alive=False)


def _fixed_headers(access: RestConfig, user_agent: str) -> str:
    lines = [
        f"Host: {urlsplit(access.server).netloc.rpartition('@')[2]}",
        f"User-Agent: {user_agent}",
        *(f"{name}: {value}" for name, value in access.impersonation),
    ]
    if not all(line.isprintable() for line in lines):
        raise ValueError("a header of every request holds characters that no header can")
    return "".join(f"{line}\r\n" for line in lines)
