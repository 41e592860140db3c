"""The controller's parts in one process, and which of several such processes writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.admission.rules import Rules
from webhook.cluster.api import ClusterApi
from webhook.cluster.informer import Informer
from webhook.config import Configuration
from webhook.controllers.election import Election
from webhook.controllers.events import EventRecorder
from webhook.controllers.guards import LiveGuard, standing
from webhook.controllers.mask import MaskRepair
from webhook.controllers.modes import ModeWatch
from webhook.controllers.terms import always
from webhook.controllers.tracked import TrackerTiming
from webhook.controllers.tracker import Tracker
from webhook.quota.objects import Pod
from webhook.state.ledger_text import LedgerText
from webhook.state.ledgers import LedgerStore
from webhook.state.names import LEADER_LEASE
from webhook.state.view import NamespaceCache, QuotaCache
from webhook.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Candidate:
    """How a process stands for election.

    Attributes:
        api: A client of its own, with short timeouts: a call that hangs must not cost the lease.
        namespace: The Lease's namespace.
        identity: The name in the Lease, unlike that of any other process.
    """

    api: ClusterApi
    namespace: str
    identity: str


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """How the controller is built.

    Attributes:
        candidate: How it stands for election; None where this process is the only one.
        timing: When the tracker acts, except for when reservations expire.
        expire_seconds: When they do; None is what the configuration says.
    """

    candidate: Candidate | None = None
    timing: TrackerTiming = field(default_factory=TrackerTiming)
    expire_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """The configuration as it is now, and what the doors make of it."""

    configuration: Callable[[], Configuration]
    rules: Callable[[], Rules]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What doors and controller of one process share; its informers are started by the engine."""

    api: ClusterApi
    ledgers: LedgerStore
    quotas: QuotaCache
    namespaces: NamespaceCache
    ledger_informer: Informer[LedgerText] | None


class Control:
    """Counts pods, writes ledgers, keeps quotas masked, and says what people should know."""

    def __init__(
        self, known: Known, current: Current, metrics: Metrics, options: ControlOptions
    ) -> None:
        self._metrics = metrics
        candidate = options.candidate
        self._election = None if candidate is None else _election(candidate)
        leads = always if self._election is None else self._election.term
        instance = "" if candidate is None else candidate.identity
        self._events = EventRecorder(known.api, instance=instance, metrics=metrics)
        expire = options.expire_seconds
        if expire is None:
            expire = float(current.configuration().timeouts.expire_reservation_seconds)
        self.tracker: Final = Tracker(
            known.api,
            known.ledgers,
            known.quotas,
            known.namespaces,
            lambda: current.rules().deferred_keys,
            exempt=lambda: current.rules().exempt_namespaces,
            timing=replace(options.timing, expire_seconds=expire),
            is_leader=leads,
            events=self._events,
            metrics=metrics,
            ledger_informer=known.ledger_informer,
        )
        self._mask = MaskRepair(
            known.api,
            known.quotas,
            known.namespaces,
            lambda: current.rules().deferred_keys,
            exempt=lambda: current.rules().exempt_namespaces,
            guard=standing if candidate is None else LiveGuard(known.api),
            is_leader=leads,
            events=self._events,
            metrics=metrics,
        )
        self._modes = ModeWatch(
            known.api, self._events, is_leader=leads, timing=options.timing.informer
        )

    @property
    def informers(self) -> dict[str, Informer[Pod]]:
        """The caches that are the controller's own, by what they hold."""
        return {"pods of the controller": self.tracker.pods}

    def start(self) -> None:
        """Begin to count, and to stand for election."""
        self._events.start()
        self.tracker.start()
        self._mask.start()
        self._modes.start()
        if self._election is not None:
            self._election.start()

    def stop(self) -> None:
        """Stop writing, and let another process lead."""
        self._modes.stop()
        self._mask.stop()
        self.tracker.stop()
        if self._election is not None:
            self._election.stop()
        self._events.stop()

    def take_over_configuration(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self.tracker.recount()
        self._mask.recheck()

    def not_ready(self) -> list[str]:
        """Say what keeps the ledgers from being true; nothing when they are."""
        return self.tracker.not_ready()


def _election(candidate: Candidate) -> Election:
    return Election(
        candidate.api, namespace=candidate.namespace, name=LEADER_LEASE, identity=candidate.identity
    )
