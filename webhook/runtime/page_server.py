"""The page of a controller as a server of its process, where the configuration asks for it."""

from __future__ import annotations

import time
from typing import Final

from webhook.admission.serving.plain_http import ConnectionLimits, PlainHttpServer
from webhook.admission.serving.sockets import ListenAddress, address_of, listen
from webhook.controllers.overview import ClusterOverview
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.kube.rest import RestClient
from webhook.page import PageParts, UsageHistory, create_page
from webhook.page.access import Authenticator, Authorizer
from webhook.page.explaining import ExplainSettings, PodExplainer, user_clients
from webhook.page.history import SAMPLE_SECONDS
from webhook.runtime.controller_manager import ControllerManager
from webhook.runtime.engine import Engine
from webhook.telemetry.metrics import PageMetrics

_LOOPBACK: Final = "127.0.0.1"
"""Tokens of users come over plain HTTP: they must not cross a network. `kubectl port-forward` leads
here, through connections of its own that are encrypted."""
_LIMITS: Final = ConnectionLimits(connections=32, silence_seconds=10.0)


class PageServer:
    """The page and the samples of its history, from start to stop."""

    def __init__(self, server: PlainHttpServer, sampler: PeriodicThread, address: object) -> None:
        self._server = server
        self._sampler = sampler
        self.address: Final = address
        """Where it listens, as announcements have it."""

    def start(self) -> None:
        """Begin to serve and to take samples."""
        self._sampler.start()
        self._server.start()

    def stop(self) -> None:
        """End both."""
        self._server.stop()
        self._sampler.request_stop()


def page_server(
    engine: Engine,
    manager: ControllerManager,
    client: RestClient,
    system_namespace: str,
    metrics: PageMetrics,
) -> PageServer:
    """Return the page of an engine with a controller.

    Args:
        manager: That controller.
        client: The API server as the controller's own identity, for reviews.
        system_namespace: Namespace of the installation.

    Raises:
        StartError: Its port cannot be listened on.
    """
    history = UsageHistory(time.monotonic)
    overview = manager.overview
    explaining = ExplainSettings(
        lambda: engine.configuration, system_namespace, lambda: overview.pod_count
    )
    page = create_page(
        PageParts(
            overview=overview,
            history=history,
            authenticator=Authenticator(client, time.monotonic),
            authorizer=Authorizer(client, time.monotonic),
            explainer=PodExplainer(user_clients(client.config), explaining),
            is_leader=manager.ledger_controller.is_leader,
            metrics=metrics,
        )
    )
    listener = listen("page", ListenAddress(_LOOPBACK, engine.configuration.page.port))
    address = address_of(listener, "http")
    sampler = PeriodicThread(
        "page-history", lambda: _sample(overview, history), retry_seconds=SAMPLE_SECONDS
    )
    return PageServer(PlainHttpServer("page", listener, page, _LIMITS), sampler, address)


def _sample(overview: ClusterOverview, history: UsageHistory) -> float:
    ledgers = {name: overview.ledger(name) for name in overview.namespaces()}
    history.record({name: {} if one is None else one.accounts for name, one in ledgers.items()})
    return SAMPLE_SECONDS
