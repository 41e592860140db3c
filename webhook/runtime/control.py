"""The controller's parts in one process, and which of several such processes writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from webhook.admission.rules import Rules, line_rules_of
from webhook.cluster.api import CONFIG_MAPS, ClusterApi
from webhook.cluster.informer import Informer
from webhook.config import Configuration
from webhook.controllers.election import Election
from webhook.controllers.events import About, EventLimits, EventRecorder
from webhook.controllers.guards import LiveGuard, standing
from webhook.controllers.lines import Releasing
from webhook.controllers.mask import MaskRepair
from webhook.controllers.modes import LabelWatch
from webhook.controllers.opted import Opted
from webhook.controllers.reasons import ReasonLimits, Reasons
from webhook.controllers.shadow import ShadowTiming, ShadowWatch
from webhook.controllers.terms import always
from webhook.controllers.tracked import TrackerTiming
from webhook.controllers.tracker import Tracker
from webhook.controllers.waking import Waker, Wakes
from webhook.quota.line import Held, LineRules
from webhook.quota.objects import Pod
from webhook.state.ledger_text import LedgerText
from webhook.state.ledgers import LedgerStore
from webhook.state.names import (
    AUTO_PACING,
    CONFIG_MAP,
    IN_FORCE,
    LEADER_LEASE,
    NOT_IN_FORCE,
)
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.pacing import pacing_of
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

_POD_EVENTS: Final = EventLimits(per_second=1000.0, burst=1000)
"""Whoever reports on pods paces it; what is said of ledgers and quotas does not wait for that."""


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
        gate_workers: How many scheduling gates are removed at the same time.
        shadow: When the records of namespaces in shadow mode are written.
    """

    candidate: Candidate | None = None
    timing: TrackerTiming = field(default_factory=TrackerTiming)
    expire_seconds: float | None = None
    gate_workers: int = 16
    shadow: ShadowTiming = field(default_factory=ShadowTiming)


@dataclass(frozen=True, slots=True)
class Current:
    """The configuration as it is now, and what the doors make of it."""

    configuration: Callable[[], Configuration]
    rules: Callable[[], Rules]

    def line_rules(self) -> LineRules:
        """Return how lines of waiting pods move."""
        return line_rules_of(self.configuration(), self.rules())

    def lets_through(self, labels: Mapping[str, str] | None) -> bool:
        """Say whether pods need no gate while there is room, in a namespace with these labels."""
        return pacing_of(labels or {}, self.configuration().pacing) == AUTO_PACING


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What doors and controller of one process share; its informers are started by the engine."""

    api: ClusterApi
    ledgers: LedgerStore
    quotas: QuotaCache
    namespaces: NamespaceCache
    shared: SharedQuotaStore
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
        opted = Opted(
            quotas=known.quotas,
            namespaces=known.namespaces,
            exempt=lambda: current.rules().exempt_namespaces,
            unmasked=lambda: current.rules().unmasked_namespaces,
        )
        self._events = EventRecorder(known.api, instance=instance, metrics=metrics)
        self._pod_events = EventRecorder(
            known.api, instance=instance, limits=_POD_EVENTS, metrics=metrics
        )
        self._reasons = Reasons(
            known.api,
            lambda: self.tracker.pods,
            is_leader=leads,
            limits=ReasonLimits(
                per_second=lambda: current.configuration().limits.reasons_per_second
            ),
            events=self._pod_events,
            metrics=metrics,
        )
        self._waker = Waker(
            known.api,
            lambda: self.tracker.pods,
            Wakes(
                is_enabled=lambda: current.configuration().extender.enabled,
                ledgers=known.ledgers,
                opted=opted,
                rules=current.line_rules,
            ),
            is_leader=leads,
        )
        expire = options.expire_seconds
        if expire is None:
            expire = float(current.configuration().timeouts.expire_reservation_seconds)
        self.tracker: Final = Tracker(
            known.api,
            known.ledgers,
            opted,
            timing=replace(options.timing, expire_seconds=expire),
            is_leader=leads,
            events=self._events,
            metrics=metrics,
            ledger_informer=known.ledger_informer,
            shared=known.shared,
            releasing=Releasing(
                rules=current.line_rules,
                capacity=lambda: current.configuration().limits.reservations_per_namespace,
                give_up_seconds=lambda: current.configuration().timeouts.gate_release_seconds,
                lets_through=lambda name: current.lets_through(known.namespaces.labels(name)),
                workers=options.gate_workers,
                on_line=self._on_line,
                on_given_up=self._reasons.on_given_up,
            ),
        )
        self.tracker.pods.add_handler(self._waker.on_pod)
        self._mask = MaskRepair(
            known.api,
            opted,
            guard=standing if candidate is None else LiveGuard(known.api),
            is_leader=leads,
            events=self._events,
            metrics=metrics,
        )
        self._labels = LabelWatch(
            known.api,
            self._events,
            pacing=lambda: current.configuration().pacing,
            exempt=lambda: current.rules().exempt_namespaces,
            is_leader=leads,
            timing=options.timing.informer,
        )

        self._shadow = ShadowWatch(
            known.api,
            self.tracker.pods,
            known.quotas,
            name=f"controller-{uuid4().hex[:8]}",
            exempt=opted.exempt,
            is_leader=leads,
            metrics=metrics,
            timing=replace(options.shadow, informer=options.timing.informer),
        )

    @property
    def informers(self) -> dict[str, Informer[Pod]]:
        """The caches that are the controller's own, by what they hold."""
        return {"pods of the controller": self.tracker.pods}

    def start(self) -> None:
        """Begin to count, and to stand for election."""
        self._events.start()
        self._pod_events.start()
        self.tracker.start()
        self._reasons.start()
        self._waker.start()
        self._mask.start()
        self._labels.start()
        self._shadow.start()
        if self._election is not None:
            self._election.start()

    def stop(self) -> None:
        """Stop writing, and let another process lead."""
        self._shadow.stop()
        self._labels.stop()
        self._mask.stop()
        self._waker.stop()
        self._reasons.stop()
        self.tracker.stop()
        if self._election is not None:
            self._election.stop()
        self._pod_events.stop()
        self._events.stop()

    def take_over_configuration(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self.tracker.recount()
        self._mask.recheck()

    def report_configuration(self, namespace: str, faults: Sequence[str]) -> bool:
        """Report by an event what is not in force of a configuration, or that all is.

        Return whether this process leads; without, nothing is reported.
        """
        if not self.tracker.leads():
            return False
        about = About(CONFIG_MAPS, CONFIG_MAP, namespace)
        if faults:
            self._events.warning(about, NOT_IN_FORCE, "; ".join(faults))
        else:
            self._events.normal(about, IN_FORCE, "the configuration is in force")
        return True

    def look_at_lines(self) -> None:
        """Look again at the pods that wait: other rules may let them go."""
        self.tracker.look_at_lines()

    def _on_line(self, namespace: str, held: Mapping[str, Held], may_go: Collection[str]) -> None:
        """Hand on who waits behind our gate, see `lines.OnLine`."""
        self._reasons.on_line(namespace, held, may_go)
        self._waker.on_line(namespace, held, may_go)

    def not_ready(self) -> list[str]:
        """Say what keeps the ledgers from being true; nothing when they are."""
        return self.tracker.not_ready()

    def uncounted(self) -> list[str]:
        """Say which quotas that namespaces share are being counted still; nothing when none is."""
        return self.tracker.uncounted()


def _election(candidate: Candidate) -> Election:
    return Election(
        candidate.api, namespace=candidate.namespace, name=LEADER_LEASE, identity=candidate.identity
    )
