"""Settings of the server: limits and times, and where its certificate comes from."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from webhook.admission.serving.app import MAX_BODY_BYTES, ReviewHandler
from webhook.admission.serving.sockets import ListenAddress
from webhook.config import Limits
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


class TlsSource(Protocol):
    """Source of the server's certificate; `webhook.tls.files` implements it."""

    @property
    def certificate(self) -> Path:
        """Return the file with the certificate chain."""

    @property
    def key(self) -> Path:
        """Return the file with the private key."""

    def file_problems(self) -> Sequence[str]:
        """Return why the files as they are now cannot be served; each text names the file."""

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection, made of the newest usable files."""

    def serving_problems(self) -> Sequence[str]:
        """Return why clients refuse the certificate that is in use now, if they do."""

    def client_refusal(self, certificate: Mapping[str, object] | None) -> tuple[str, str]:
        """Return why a client is refused, by its verified certificate; empty if it is not.

        First the reason as the metric `clients_refused` counts it, then a sentence.
        """

    def refusals(self) -> Sequence[str]:
        """Return why the newest files are not served, if the last good pair is served instead."""

    def observe(self, metrics: Metrics) -> None:
        """Count reloads in `metrics` from now on."""


def _nothing() -> None:
    """Do nothing."""


def _no() -> bool:
    return False


def _no_reasons() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerParts:
    """Parts of the server; made inside the worker process, because threads do not survive a fork.

    `start` is called before the first request and must not block; `stop` after the last one.
    """

    review_handler: ReviewHandler
    readiness: Callable[[], Sequence[str]] = _no_reasons
    """Why no requests should come now; empty means ready. Called often, must not block."""
    warnings: Callable[[], Sequence[str]] = _no_reasons
    """What people should see to although requests may come; as `readiness`."""
    start: Callable[[], None] = _nothing
    stop: Callable[[], None] = _nothing
    log_allowed_every: Callable[[], int] = lambda: 1
    """Of how many allowed decisions one is logged; 0 for none."""
    extra_wsgi: Mapping[str, WSGIApplication] = field(default_factory=dict)
    """Applications for `ServerSettings.extra_listeners`, by the same names."""
    metrics: Metrics = field(default_factory=Metrics)


Build: TypeAlias = Callable[[Mapping[str, str]], ServerParts]
"""Makes the parts; is given the URL of every listener by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the server, and limits of its clients. Times are in seconds."""

    tls: TlsSource | None
    """None serves plain HTTP, which an API server does not call."""
    webhook: ListenAddress = ListenAddress("", 9443)  # noqa: RUF009 - frozen
    ops: ListenAddress = ListenAddress("", 8080)  # noqa: RUF009 - frozen
    """Probes and metrics, always plain HTTP."""
    extra_listeners: Mapping[str, ListenAddress] = field(default_factory=dict)
    """Name → address of plain HTTP listeners for `ServerParts.extra_wsgi`."""
    announce: Path | None = None
    """A JSON file that is written when the server listens; see `serving.server`."""

    threads: int = Limits().threads
    """Requests that are answered at the same time."""
    body_bytes: int = MAX_BODY_BYTES
    serves_extender: Callable[[], bool] = _no
    """Whether schedulers are answered now; asked in the worker, for each of their calls."""
    max_connections: int = 1000
    """Of the webhook port. All API servers of a cluster together need less than a hundred."""
    keepalive_seconds: float = 150.0
    """How long a connection may be idle. The API server keeps one for 90 s, and a server that
    closes first loses the request that is on its way."""
    handshake_seconds: float = 3.0
    """For the whole TLS handshake; inside a cluster it takes milliseconds."""
    request_seconds: float = 5.0
    """From the first byte of a request to its last."""
    write_seconds: float = 5.0
    """For a client to take an answer."""
    stuck_seconds: float = 60.0
    """When every thread has been busy for that long, the process asks to be restarted: the API
    server gives up on a review after 30 s at most."""
    drain_seconds: float = 5.0
    """Between SIGTERM and the end of service: not ready, but still answering, until every API
    server has seen that this replica is going."""
    graceful_seconds: float = 25.0
    """For requests that are being answered when service ends."""
