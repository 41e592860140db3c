"""Processes over an API server: the admission server, and the controller on its own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from webhook import __version__
from webhook.admission.serving.probes import ProbeServer, probe_pages
from webhook.admission.serving.server_settings import ListenAddress, ServerParts
from webhook.admission.serving.sockets import address_of, listen, write_whole
from webhook.config import ConfigurationFile
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import ApiError
from webhook.kube.rest import RestClient, RestConfig
from webhook.runtime.controller_manager import ControllerOptions, LeaderElectionConfig
from webhook.runtime.engine import Engine, EngineOptions
from webhook.runtime.page_server import page_server
from webhook.runtime.server_parts import server_parts, start
from webhook.state.well_known import DEFAULT_NAMESPACE
from webhook.telemetry.metrics import Metrics
from webhook.tls.called_names import read_called_names
from webhook.tls.files import CertificateFiles

_log = logging.getLogger(__name__)

_USER_AGENT: Final = f"deferred-quota/{__version__}"
_NAMES_SECONDS: Final = 5.0
"""Between two looks at the registrations."""
_ELECTION_SECONDS: Final = 4.0
"""For one call about the Lease; a leader has ten seconds to renew it."""


@dataclass(frozen=True, slots=True)
class ElectionIdentity:
    """The identity of a process in elections: the installation's namespace, and its name there."""

    namespace: str
    name: str


def live_server(
    access: RestConfig,
    configuration: ConfigurationFile | None,
    identity: ElectionIdentity | None,
    *,
    system_namespace: str = DEFAULT_NAMESPACE,
    certificates: CertificateFiles | None = None,
) -> ServerParts:
    """Build what the admission server of a cluster runs.

    Args:
        access: How to reach the API server.
        configuration: The file to keep up with; None means the defaults.
        identity: The identity of this process as the controller; None if another one is.
        system_namespace: Namespace of the installation.
        certificates: What is served, which has to cover the names that the registrations call; None
            leaves them alone.

    Raises:
        StartError: The port of the controller's page cannot be listened on.
    """
    metrics = Metrics()
    control = None if identity is None else _control(access, identity, metrics)
    options = EngineOptions(
        configuration,
        controller=control,
        system_namespace=system_namespace,
        follow_ledgers=True,
        is_registered=True,
    )
    client = _client(access, metrics)
    engine = Engine(client, metrics, options)
    parts = server_parts(engine, metrics)
    page = page_server(engine, client, system_namespace, metrics.page)
    if page is not None:
        parts = replace(
            parts,
            start=partial(_call_all, parts.start, page.start),
            stop=partial(_call_all, page.stop, parts.stop),
        )
    if certificates is None:
        return parts
    return _following_names(parts, _client(access, metrics), certificates)


def run_controller(
    access: RestConfig,
    configuration: ConfigurationFile | None,
    identity: ElectionIdentity,
    *,
    ops: ListenAddress,
    announce: Path | None = None,
) -> None:
    """Run the controller until SIGTERM or SIGINT; its lease is then given back.

    Args:
        access: How to reach the API server.
        configuration: The file to keep up with; None means the defaults.
        identity: Its identity in elections.
        ops: Where probes and metrics are served, plain HTTP.
        announce: A JSON file that is written when it listens: `{"pid": 7, "ops": {"url": ...}}`,
            and `page` where that is served.

    Raises:
        StartError: The address cannot be listened on.
    """
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    listener = listen("ops", ops)
    metrics = Metrics()
    control = _control(access, identity, metrics)
    options = EngineOptions(
        configuration,
        with_handlers=False,
        controller=control,
        system_namespace=identity.namespace,
        follow_ledgers=True,
        is_registered=True,
    )
    client = _client(access, metrics)
    engine = Engine(client, metrics, options)
    page = page_server(engine, client, identity.namespace, metrics.page)
    server = ProbeServer(
        listener,
        probe_pages(
            problems_of_life=list,
            problems_of_readiness=lambda: _readiness_problems(engine, stopping),
            notes=engine.warnings,
            metrics=metrics.exposition,
        ),
    )
    start(engine)
    server.start()
    if page is not None:
        page.start()
    _announce(listener, announce, {} if page is None else {"page": page.address})
    stopping.wait()
    _log.info("stopping")
    if page is not None:
        page.stop()
    engine.stop()
    server.stop()


def _call_all(*calls: Callable[[], None]) -> None:
    for call in calls:
        call()


def _following_names(
    parts: ServerParts, client: RestClient, certificates: CertificateFiles
) -> ServerParts:
    """Let the certificates follow the registrations, from the start of the parts to their stop."""
    names = _RegisteredNames(client, certificates)
    rounds = PeriodicThread("called-names", names, retry_seconds=_NAMES_SECONDS)

    def start_all() -> None:
        rounds.start()
        parts.start()

    def stop_all() -> None:
        rounds.request_stop()  # a look that hangs is nothing to wait for
        parts.stop()

    def not_ready() -> Sequence[str]:
        return [*parts.readiness(), *([] if names.has_looked else ["registrations: not read yet"])]

    return replace(parts, start=start_all, stop=stop_all, readiness=not_ready)


class _RegisteredNames:
    """The names that the API server calls, for certificates; unread registrations change nothing.

    Attributes:
        has_looked: Whether it has tried once.
    """

    def __init__(self, client: RestClient, certificates: CertificateFiles) -> None:
        self.has_looked = False
        self._client = client
        self._is_in_pod = client.config.is_in_pod
        self._certificates = certificates
        self._failure = ""
        self._names: frozenset[str] = frozenset()

    def __call__(self) -> float:
        """Look once; return the seconds until the next look."""
        try:
            self._look()
        finally:
            self.has_looked = True
        return _NAMES_SECONDS

    def _look(self) -> None:
        try:
            names = read_called_names(self._client, is_in_pod=self._is_in_pod)
        except ApiError as err:
            if err.message != self._failure:
                _log.warning("registrations cannot be looked at", extra={"error": err.message})
            self._failure = err.message
            return
        self._failure = ""
        if names != self._names:
            _log.info("called by the API server", extra={"names": sorted(names)})
            self._names = names
        self._certificates.require(names)


def _client(access: RestConfig, metrics: Metrics, *, seconds: float = 10.0) -> RestClient:
    return RestClient(
        access, user_agent=_USER_AGENT, timeout_seconds=seconds, on_call=metrics.api.observe
    )


def _control(access: RestConfig, identity: ElectionIdentity, metrics: Metrics) -> ControllerOptions:
    client = _client(access, metrics, seconds=_ELECTION_SECONDS)
    candidate = LeaderElectionConfig(client, identity.namespace, identity.name)
    return ControllerOptions(candidate, ControllerTimings(waits_at_start=True))


def _readiness_problems(engine: Engine, stopping: threading.Event) -> Sequence[str]:
    return [*engine.readiness_problems(), *(["stopping"] if stopping.is_set() else [])]


def _announce(listener: socket.socket, file: Path | None, further: Mapping[str, object]) -> None:
    announcement = {"pid": os.getpid(), "ops": address_of(listener, "http"), **further}
    _log.info("listening", extra=announcement)
    if file is not None:
        write_whole(file, encode_json(announcement))
