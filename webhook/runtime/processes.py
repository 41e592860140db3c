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
from typing import TYPE_CHECKING, Final

from webhook import __version__
from webhook.admission.serving.probes import ProbeServer, probe_pages
from webhook.admission.serving.server_settings import ServerParts
from webhook.admission.serving.sockets import ListenAddress, address_of, listen
from webhook.atomic_file import write_file
from webhook.config import ConfigurationFile
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.jsonfields.encoding import encode_json
from webhook.kube.rest import RestClient, RestConfig
from webhook.runtime.certificate_watch import CertificateSources, CertificateWatch
from webhook.runtime.controller_options import ControllerOptions, LeaderElectionConfig
from webhook.runtime.engine import Engine, EngineOptions
from webhook.runtime.server_parts import server_parts
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from webhook.runtime.page_server import PageServer

_log = logging.getLogger(__name__)

_USER_AGENT: Final = f"deferred-quota/{__version__}"
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
    system_namespace: str,
    certificates: CertificateSources,
    url: str,
) -> ServerParts:
    """Build what the admission server of a cluster runs.

    Args:
        access: How to reach the API server.
        configuration: The file to keep up with; None means the defaults.
        identity: The identity of this process as the controller; None if another one is.
        system_namespace: Namespace of the installation.
        certificates: What is served.
        url: Where it is served, on this machine.

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
    page = _page(engine, client, system_namespace, metrics)
    if page is not None:
        parts = replace(
            parts,
            start=partial(_call_all, parts.start, page.start),
            stop=partial(_call_all, page.stop, parts.stop),
        )
    watch = CertificateWatch(
        client,
        certificates,
        metrics,
        url=url,
        namespace=system_namespace,
        is_in_pod=access.is_in_pod,
    )
    return _watching(parts, watch)


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
    page = _page(engine, client, identity.namespace, metrics)
    server = ProbeServer(
        listener,
        probe_pages(
            problems_of_life=list,
            problems_of_readiness=lambda: _readiness_problems(engine, stopping),
            notes=engine.warnings,
            metrics=metrics.exposition,
        ),
    )
    engine.start()
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


def _watching(parts: ServerParts, watch: CertificateWatch) -> ServerParts:
    """Let a watch of the certificate run from the start of the parts to their stop."""
    return replace(
        parts,
        start=partial(_call_all, watch.start, parts.start),
        stop=partial(_call_all, watch.stop, parts.stop),
        readiness=lambda: [*parts.readiness(), *watch.readiness_problems()],
        warnings=lambda: [*parts.warnings(), *watch.warnings()],
    )


def _client(access: RestConfig, metrics: Metrics, *, seconds: float = 10.0) -> RestClient:
    return RestClient(
        access, user_agent=_USER_AGENT, timeout_seconds=seconds, on_call=metrics.api.observe
    )


def _page(
    engine: Engine, client: RestClient, system_namespace: str, metrics: Metrics
) -> PageServer | None:
    """Return the page of an engine with a controller; None where it is not asked for.

    Raises:
        StartError: Its port cannot be listened on.
    """
    if engine.controller is None or not engine.configuration.page.enabled:
        return None
    from webhook.runtime.page_server import page_server  # noqa: PLC0415 - slow to import

    return page_server(engine, engine.controller, client, system_namespace, metrics.page)


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
        write_file(file, encode_json(announcement))
