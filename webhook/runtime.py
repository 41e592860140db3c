"""Build and wire the objects of one process; nothing is decided here."""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from webhook.admission.deadline import Deadline
from webhook.admission.doors.context import DoorContext
from webhook.admission.doors.table import decide
from webhook.admission.review import AdmissionRequest, Answer
from webhook.admission.rules import Rules, rules_of
from webhook.admission.serving.settings import ServerParts
from webhook.cluster.api import NAMESPACES, ClusterApi, NotFoundError
from webhook.cluster.informer import Change, Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.config import Configuration, ConfigurationFile
from webhook.controllers.tracked import TrackerTiming
from webhook.controllers.tracker import Tracker
from webhook.embedded import registration
from webhook.embedded.admission import AdmissionChain
from webhook.embedded.apiserver import ApiServer
from webhook.embedded.calls import WebhookCaller
from webhook.embedded.snapshots import with_defaults
from webhook.quota.fields import mapping
from webhook.state.ledgers import LedgerStore
from webhook.state.reserver import Reserver, ReserverStats
from webhook.state.view import CachedView, NamespaceCache, QuotaCache
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS: Final = 1.0


def check_configuration(configuration: Configuration) -> None:
    """Judge with the core what the configuration package cannot.

    Raises:
        InvalidFieldError: A rule cannot be evaluated; the error has its path.
    """
    rules_of(configuration)


class Follower(Protocol):
    """What an informer shows of itself, whatever it holds."""

    @property
    def has_synced(self) -> bool:
        """Whether a whole list has been taken in."""

    @property
    def relists(self) -> int:
        """How many lists have been taken in."""

    @property
    def last_event_age_seconds(self) -> float:
        """How long ago the server was last heard of."""

    def __len__(self) -> int:
        """How many objects are known."""

    def start(self) -> None:
        """Begin to follow."""

    def stop(self) -> None:
        """End following."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is built.

    Attributes:
        configuration: The file to keep up with; None means the defaults.
        with_tracker: Whether this process also counts pods and writes ledgers.
        informer: Clock and pauses of all informers.
        settle_seconds: Between two writes of one ledger by the tracker.
    """

    configuration: ConfigurationFile | None = None
    with_tracker: bool = True
    informer: Timing = field(default_factory=Timing)
    settle_seconds: float = 0.1


def embedded_server(
    cluster: MemoryCluster,
    configuration: ConfigurationFile | None,
    *,
    webhook_url: str = "",
    ca_pem: str = "",
) -> ServerParts:
    """Build what a server with an embedded cluster runs.

    Args:
        cluster: The cluster to decide on.
        configuration: The file to keep up with; None means the defaults.
        webhook_url: Where this very webhook serves, if the cluster is to be served as well, as
            `api`: its writes are then asked of the webhook.
        ca_pem: The CA that signed the webhook's certificate.
    """
    metrics = Metrics()
    engine = Engine(MemoryClient(cluster), metrics, EngineOptions(configuration))
    listeners = {}
    if webhook_url:
        chain = AdmissionChain(
            registration.hooks(webhook_url),
            WebhookCaller(ca_pem),
            namespace_labels=partial(_namespace_labels, MemoryClient(cluster)),
            defaults=with_defaults,
        )
        listeners = {"api": ApiServer(cluster, chain)}
    return ServerParts(
        review_handler=engine.decide,
        readiness=engine.not_ready,
        start=partial(_start, engine),
        stop=engine.stop,
        extra_wsgi=listeners,
        metrics=metrics,
    )


def _start(engine: Engine) -> None:
    # Caches hold many objects that live on; the collector's usual pace would go through the
    # young ones every few requests, and takes a tenth of the processor.
    gc.set_threshold(50_000, 50, 100)
    engine.start()


def _namespace_labels(client: MemoryClient, namespace: str) -> Mapping[str, str]:
    try:
        found = client.get(NAMESPACES, namespace)
    except NotFoundError:
        return {}
    labels = mapping(mapping(found.get("metadata"), "metadata").get("labels"), "metadata.labels")
    return {name: str(value) for name, value in labels.items()}


class Engine:
    """Everything that answers admission requests about one cluster.

    Args:
        api: The cluster.
        metrics: Where things are counted.
        options: How to build it.
    """

    def __init__(
        self, api: ClusterApi, metrics: Metrics, options: EngineOptions | None = None
    ) -> None:
        options = options or EngineOptions()
        self._options = options
        self._metrics = metrics
        self._rules = rules_of(self._configuration())
        limits = self._configuration().limits
        ledgers = LedgerStore(api)
        self._quotas = QuotaCache(api, self._deferred_keys, timing=options.informer)
        self._namespaces = NamespaceCache(api, timing=options.informer)
        self._namespaces.informer.add_handler(partial(_forget_deleted, ledgers))
        self._view = CachedView(
            api, ledgers, self._quotas, self._namespaces, timing=options.informer
        )
        reserver = Reserver(
            ledgers, capacity=limits.reservations_per_namespace, stats=_stats(metrics)
        )
        self._context = DoorContext(self._view, reserver, self._current_rules)
        self._tracker = self._make_tracker(api, ledgers) if options.with_tracker else None
        self._relists: dict[str, int] = {}
        self._stopping = threading.Event()
        self._housekeeper = threading.Thread(
            target=self._keep_house, name="housekeeping", daemon=True
        )

    def start(self) -> None:
        """Start to follow the cluster; returns at once."""
        for informer in self._informers().values():
            informer.start()
        if self._tracker is not None:
            self._tracker.start()
        self._housekeeper.start()

    def stop(self) -> None:
        """Stop all threads."""
        self._stopping.set()
        if self._tracker is not None:
            self._tracker.stop()
        for informer in self._informers().values():
            informer.stop()

    def not_ready(self) -> list[str]:
        """Say why requests cannot be decided yet; nothing when they can."""
        reasons = [
            f"{name} have not been listed yet"
            for name, informer in self._informers().items()
            if not informer.has_synced
        ]
        if self._tracker is not None:
            reasons += self._tracker.not_ready()
        return reasons

    def wait_until_ready(self, seconds: float) -> list[str]:
        """Wait until requests can be decided; return what is still missing when time is up."""
        give_up = time.monotonic() + seconds
        while (reasons := self.not_ready()) and time.monotonic() < give_up:
            time.sleep(0.005)
        return reasons

    def decide(self, request: AdmissionRequest, deadline: Deadline) -> Answer:
        """Answer one admission request."""
        return decide(self._context, request, deadline)

    # -- inside ----------------------------------------------------------------------------

    def _make_tracker(self, api: ClusterApi, ledgers: LedgerStore) -> Tracker:
        timing = TrackerTiming(
            settle_seconds=self._options.settle_seconds,
            expire_seconds=float(self._configuration().timeouts.expire_reservation_seconds),
            informer=self._options.informer,
        )
        return Tracker(
            api,
            ledgers,
            self._quotas,
            self._namespaces,
            self._deferred_keys,
            exempt=lambda: self._rules.exempt_namespaces,
            timing=timing,
        )

    def _configuration(self) -> Configuration:
        source = self._options.configuration
        return Configuration() if source is None else source.current

    def _current_rules(self) -> Rules:
        return self._rules

    def _deferred_keys(self) -> Set[str]:
        return self._rules.deferred_keys

    def _informers(self) -> dict[str, Follower]:
        return {
            "namespaces": self._namespaces.informer,
            "resourcequotas": self._quotas.informer,
            "pods": self._view.pods,
        }

    def _keep_house(self) -> None:
        """Keep up with the configuration file and show the state of the caches."""
        while not self._stopping.wait(_HOUSEKEEPING_SECONDS):
            try:
                self._reload()
                self._show_caches()
            except Exception:  # noqa: BLE001 - outermost frame: logged, and tried again
                _log.exception("housekeeping failed")

    def _reload(self) -> None:
        source = self._options.configuration
        if source is None or not source.poll():
            return
        former, self._rules = self._rules, rules_of(source.current)
        if self._tracker is not None and former.deferred_keys != self._rules.deferred_keys:
            self._tracker.recount()

    def _show_caches(self) -> None:
        cache = self._metrics.cache
        for kind, informer in self._informers().items():
            cache.synced.labels(kind).set(int(informer.has_synced))
            cache.objects.labels(kind).set(len(informer))
            cache.relists.labels(kind).inc(informer.relists - self._relists.get(kind, 0))
            self._relists[kind] = informer.relists
            if informer.has_synced:
                cache.age_seconds.labels(kind).set(informer.last_event_age_seconds)


def _forget_deleted(ledgers: LedgerStore, change: Change[bool]) -> None:
    if change.type == "DELETED":
        ledgers.forget(change.key)


def _stats(metrics: Metrics) -> ReserverStats:
    def batch_written(claims: int) -> None:
        metrics.ledger.writes.labels("written").inc()
        metrics.ledger.batch_size.observe(claims)

    def conflicted() -> None:
        metrics.ledger.writes.labels("conflict").inc()
        metrics.ledger.conflicts.inc()

    return ReserverStats(batch_written, conflicted)
