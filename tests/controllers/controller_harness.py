"""A controller that takes its steps when a test says so, on a clock that a test moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from tests.admission.handlers.harness import (
    NAMESPACE,
    a_namespace,
    accounts_in,
    new_cluster,
    recount,
    wait_until_seen,
)
from tests.builders import a_binding, a_pod
from tests.reactions import ReactiveClient
from webhook.controllers.ledger.controller import LedgerController
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.mask.webhook_registration import Guard
from webhook.controllers.queue.controller import ReleaseOptions
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import EventRecorder
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import EVENTS, NAMESPACES, PODS, QUOTA_LEDGERS, NotFoundError, known_kind
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.quota.amounts.resources import mask, to_text
from webhook.quota.charging.deferral import claim_for_bind, claim_for_update
from webhook.quota.ledger.ledger import NEWEST, Ledger, Reservation, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import PendingStatus, QueuePolicy
from webhook.state.batch_decision import BatchDecider
from webhook.state.grant_raising import GrantRaiser
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore, LedgerVersion
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.reserver import Outcome, Reserver
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]

EXPIRE_SECONDS = 45.0
RESYNC_SECONDS = 60.0
GATE_RELEASE_SECONDS = 60.0
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
_QUICK = InformerTimings(first_pause=0.01, longest_pause=0.05)


@dataclass
class ControllerHarness:
    """One controller on a cluster, with caches that follow it; nothing settles but in `step`."""

    cluster: FakeCluster
    clock: list[float] = field(default_factory=lambda: [1000.0])
    processor_seconds: float = 0.0
    """What every thread has spent."""
    waits_at_start: bool = False
    exempt: frozenset[str] = frozenset()
    epoch: list[int] = field(default_factory=lambda: [1])
    """The leadership of this controller; 0 while it is a standby."""
    guard: list[Guard | None] = field(default_factory=lambda: [None])
    """The registration of the guard, as this controller and its handlers have seen it."""
    follows_ledgers: bool = False
    """Whether the controller is told of changes of ledgers."""
    fold_seconds: float = 0.0
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    """How lines of waiting pods move."""
    max_reservations: int = 4000
    """How many reservations a namespace may have."""
    may_admit_ungated: bool = False
    """Whether pods need no gate while there is room."""
    holds_terminating: bool = False
    """Whether a pod that is stuck terminating is charged until it is gone."""
    removes_gates_at_once: bool = True
    """Whether `round` lets gates be removed that may go."""
    queue_updates: list[tuple[str, dict[str, PendingStatus], list[str]]] = field(
        default_factory=list
    )
    """What was told of lines: namespace, who waits and why, who may go."""
    lost_reservations: list[tuple[str, list[str]]] = field(default_factory=list)
    """What was told of reservations that were given up: namespace, whose."""
    client: ReactiveClient = field(init=False)
    api: FakeClient = field(init=False)
    ledgers: LedgerStore = field(init=False)
    followed: Informer[LazyLedger] | None = field(init=False)
    controller: LedgerController = field(init=False)
    quotas: QuotaCache = field(init=False)
    store: SharedQuotaStore = field(init=False)
    shared: SharedQuotaCache = field(init=False)
    namespaces: NamespaceCache = field(init=False)
    events: EventRecorder = field(init=False)
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        self.namespaces = NamespaceCache(self.client, timing=_QUICK)
        self.store = SharedQuotaStore(self.client)
        self.shared = SharedQuotaCache(self.client, self.store, timing=_QUICK)
        self.before_spec_changes: list[Callable[[], None]] = []
        self.shared.on_specs(self._before_spec_change)
        self.quotas = QuotaCache(
            self.client,
            lambda: DEFERRED_KEYS,
            holds_terminating=lambda: self.holds_terminating,
            shared=self.shared,
            labels=self.namespaces.labels,
            timing=_QUICK,
        )
        timing = ControllerTimings(
            write_interval_seconds=0.0,
            fold_seconds=self.fold_seconds,
            resync_seconds=RESYNC_SECONDS,
            followed_resync_seconds=RESYNC_SECONDS,
            expire_seconds=EXPIRE_SECONDS,
            waits_at_start=self.waits_at_start,
            clock=lambda: self.clock[0],
            thread_time=lambda: self.processor_seconds,
            now=lambda: NOON + timedelta(seconds=self.clock[0]),
            informer=_QUICK,
        )
        self.metrics = Metrics()
        self.events = EventRecorder(self.api, metrics=self.metrics)
        self.context = ControllerContext(
            api=self.client,
            leader_epoch=lambda: self.epoch[0],
            timings=timing,
            events=self.events,
            metrics=self.metrics,
        )
        self.ledgers = LedgerStore(self.client)
        self.followed = self.ledgers.follow(_QUICK) if self.follows_ledgers else None
        self.opted = ManagedNamespaces(
            quotas=self.quotas,
            namespaces=self.namespaces,
            exempt=lambda: self.exempt,
            guard=lambda: self.guard[0],
        )
        self.after_pod_changes: list[Callable[[Change[Pod]], None]] = []
        self.controller = LedgerController(
            self.context,
            self.ledgers,
            self.opted,
            ledger_informer=self.followed,
            shared=self.store,
            options=ReleaseOptions(
                policy=lambda: self.policy,
                max_reservations=lambda: self.max_reservations,
                gate_release_seconds=lambda: GATE_RELEASE_SECONDS,
                may_admit_ungated=lambda _namespace: self.may_admit_ungated,
                on_queue=lambda namespace, held, may_go: self.queue_updates.append(
                    (namespace, dict(held), list(may_go))
                ),
                on_reservations_lost=lambda namespace, uids: self.lost_reservations.append(
                    (namespace, list(uids))
                ),
            ),
        )

        self.controller.pods.add_handler(self._after_pod_change)

    def _before_spec_change(self, *_specs: object) -> None:
        for listener in self.before_spec_changes:
            listener()

    def _after_pod_change(self, change: Change[Pod]) -> None:
        for listener in self.after_pod_changes:
            listener(change)

    # -- time and steps --------------------------------------------------------------------

    def start(self) -> None:
        """Let the caches follow the cluster; the controller's own thread does not run."""
        for informer in self.informers():
            informer.start()
        for informer in self.informers():
            assert informer.wait_for_sync(30)

    def stop(self) -> None:
        """Let go of the cluster."""
        self.client.resume()
        for informer in self.informers():
            informer.stop()

    def informers(self) -> list[Informer[Any]]:
        """The caches, whatever they hold."""
        followed = [] if self.followed is None else [self.followed]
        return [
            self.namespaces.informer,
            self.quotas.informer,
            self.controller.pods,
            self.shared.informer,
            *followed,
        ]

    def catch_up(self) -> None:
        """Wait until the caches have seen all that is stored."""
        wait_until_seen(self.cluster, self.informers())

    def step(self) -> None:
        """Let the controller see everything and settle what is due."""
        self.catch_up()
        self.reconcile_once()

    def reconcile_once(self) -> None:
        """Let the controller settle what is due by what it has seen, each namespace once."""
        controller = self.controller
        controller.step()
        while self.removes_gates_at_once and controller.gate_remover.remove_next(0):
            pass

    def mark_dirty(self, namespace: str = NAMESPACE) -> None:
        """Let the controller believe that something has changed."""
        with self.controller.usage_cache.lock:
            self.controller.usage_cache.mark_dirty(namespace, self.state(namespace))

    def state(self, namespace: str = NAMESPACE) -> NamespaceState:
        """Return a namespace as the controller keeps it."""
        return self.controller.usage_cache.namespaces[namespace]

    def lose_pod(self, name: str, namespace: str = NAMESPACE) -> None:
        """Let the controller forget a pod, as if it had missed that it came."""
        with self.controller.usage_cache.lock:
            self.state(namespace).usage.remove(f"uid-{name}")

    def put_pod(self, pod: Pod) -> None:
        """Let the controller count a pod that no watch has shown."""
        with self.controller.usage_cache.lock:
            self.controller.usage_cache.put_pod(NAMESPACE, self.state(), pod)

    def check_drift(self, namespace: str = NAMESPACE) -> None:
        """Let the controller compare a namespace with a fresh list of its pods now."""
        self.controller.drift_checks.queue.add(namespace)
        assert self.controller.drift_checks.step()

    def is_tracked(self, namespace: str = NAMESPACE) -> bool:
        """Return whether the controller counts a namespace."""
        return namespace in self.controller.usage_cache.namespaces

    def seconds_to_next(self) -> float:
        """Return the seconds until the controller reconciles the next namespace."""
        return self.controller.workers.queue.seconds_to_next()

    def pass_time(self, seconds: float) -> None:
        """Move the clock."""
        self.clock[0] += seconds

    # -- the cluster -----------------------------------------------------------------------

    def create(self, obj: Mapping[str, object]) -> Object:
        """Store a new object."""
        kind = known_kind(str(obj["apiVersion"]), str(obj["kind"]))
        assert kind is not None
        return dict(self.api.create(kind, obj).object)

    def pod(self, name: str, cpu: str = "1", namespace: str = NAMESPACE, **fields: object) -> None:
        """Store a pod of uid `uid-<name>`."""
        fields = {"requests": {"cpu": cpu}, **fields}
        made = a_pod(name=name, namespace=namespace, uid=f"uid-{name}", **fields)  # type: ignore[arg-type]
        self.cluster.load([(PODS, made)])

    def bind(self, name: str, namespace: str = NAMESPACE) -> None:
        """Give a pod its node, unasked."""
        self.api.bind(a_binding(name, namespace=namespace))

    def finish(self, name: str, namespace: str = NAMESPACE) -> None:
        """Let a pod succeed."""
        patch = {"status": {"phase": "Succeeded"}}
        self.api.patch(PODS, name, patch, namespace=namespace, subresource="status")

    def delete(self, name: str, grace: int = 0, namespace: str = NAMESPACE) -> None:
        """Delete a pod, at once or after a grace period."""
        self.api.delete(PODS, name, namespace=namespace, grace_period_seconds=grace)

    # -- what is told ------------------------------------------------------------------------

    def events_recorded(self) -> list[str]:
        """Return the reasons of all events so far, in their order, and write them."""
        while self.events.backlog:
            assert self.events.step(5)
        found = self.api.list(EVENTS).items
        return [
            str(one["reason"])
            for one in sorted(found, key=lambda one: int(str(one["metadata"]["resourceVersion"])))  # type: ignore[index]
        ]

    def metric(self, name: str, **labels: str) -> float:
        """Return the value of a metric."""
        found = self.metrics.registry.get_sample_value(f"deferred_quota_{name}", labels)
        return 0.0 if found is None else found

    def conditions(self, namespace: str = NAMESPACE) -> dict[str, tuple[str, str]]:
        """Return status and reason of the ledger's conditions, by type."""
        return {one.type: (one.status, one.reason) for one in self.ledger(namespace).conditions}

    # -- the ledger ------------------------------------------------------------------------

    def version(self, namespace: str = NAMESPACE) -> LedgerVersion | None:
        """Read the ledger object."""
        return LedgerStore(self.api).fetch(namespace)

    def ledger(self, namespace: str = NAMESPACE) -> Ledger:
        """Read the ledger, which must have been counted."""
        version = self.version(namespace)
        assert version is not None
        assert version.ledger is not None
        return version.ledger

    def used(self, quota: str = "p1", namespace: str = NAMESPACE) -> dict[str, str]:
        return to_text(self.ledger(namespace).accounts[quota].used)

    def reserved(self, quota: str = "p1", namespace: str = NAMESPACE) -> dict[str, str]:
        account = self.ledger(namespace).accounts[quota]
        return to_text(mask(account.reserved, account.hard))

    def pending(self, quota: str = "p1", namespace: str = NAMESPACE) -> dict[str, str]:
        return to_text(self.ledger(namespace).accounts[quota].pending)

    def held(self, namespace: str = NAMESPACE) -> dict[str, Reservation]:
        """Return the reservations by pod name."""
        return {one.pod: one for one in self.ledger(namespace).reservations.values()}

    def is_exact(self, namespace: str = NAMESPACE) -> bool:
        """Say whether the ledger's quotas are as a recount finds them."""
        status = self.api.get(QUOTA_LEDGERS, "ledger", namespace=namespace).get("status")
        return accounts_in(cast("Object", status)) == recount(self.api, namespace)

    def has_ledger(self, namespace: str = NAMESPACE) -> bool:
        """Say whether there is a ledger object."""
        try:
            self.api.get(QUOTA_LEDGERS, "ledger", namespace=namespace)
        except NotFoundError:
            return False
        return True

    # -- handlers -----------------------------------------------------------------------------

    def reserve(self, name: str, namespace: str = NAMESPACE) -> Outcome:
        """Reserve for the bind of a pod, as a handler of another replica does."""
        pod = self._stored(name, namespace)
        quotas = self.quotas.in_namespace(namespace).deferred
        claim = claim_for_bind(pod, quotas, source=ReservationSource.BIND, observed_version=NEWEST)
        assert claim is not None
        give_up = time.monotonic() + 30
        return self._new_reserver().reserve(namespace, claim, quotas.observed, deadline=give_up)

    def reserve_resize(self, name: str, cpu: str, namespace: str = NAMESPACE) -> Outcome:
        """Reserve for a resize of a pod to `cpu`, and store nothing."""
        old = self._stored(name, namespace)
        quotas = self.quotas.in_namespace(namespace).deferred
        new = Pod.from_object(a_pod(name=name, node=old.node_name, requests={"cpu": cpu}))
        claim = claim_for_update(old, new, quotas, source=ReservationSource.RESIZE)
        assert claim is not None
        give_up = time.monotonic() + 30
        return self._new_reserver().reserve(namespace, claim, quotas.observed, deadline=give_up)

    def reserve_activity(self, name: str, seconds: int, namespace: str = NAMESPACE) -> Outcome:
        """Reserve for `activeDeadlineSeconds` of a waiting pod without a gate; store nothing."""
        old = self._stored(name, namespace)
        quotas = self.quotas.in_namespace(namespace).deferred
        new = replace(old, active_deadline_seconds=seconds)
        claim = claim_for_update(old, new, quotas, source=ReservationSource.RELEASE)
        assert claim is not None
        claim = replace(claim, is_intent=False)
        give_up = time.monotonic() + 30
        return self._new_reserver().reserve(namespace, claim, quotas.observed, deadline=give_up)

    def _new_reserver(self) -> Reserver:
        api = FakeClient(self.cluster)
        return Reserver(
            LedgerStore(api),
            GrantRaiser(SharedQuotaStore(api)),
            decider=BatchDecider(
                opted_in_at=self.namespaces.opted_in_at,
                guard_uid=lambda: None if self.guard[0] is None else self.guard[0].uid,
            ),
        )

    def _stored(self, name: str, namespace: str) -> Pod:
        return Pod.from_stored(self.api.get(PODS, name, namespace=namespace))


@contextmanager
def new_harness(
    *objects: Mapping[str, object], mode: str = "deferred", **fields: object
) -> Iterator[ControllerHarness]:
    """Set up a controller whose first step is still to come; `team-a` has the label `mode`."""
    cluster = new_cluster()
    stored = [a_namespace(mode=mode), *objects]
    loaded = [(known_kind(str(one["apiVersion"]), str(one["kind"])), one) for one in stored]
    cluster.load([(kind, one) for kind, one in loaded if kind is not None])
    harness = ControllerHarness(cluster, **fields)  # type: ignore[arg-type]
    harness.start()
    try:
        yield harness
    finally:
        harness.stop()


@contextmanager
def second_harness(harness: ControllerHarness, **fields: object) -> Iterator[ControllerHarness]:
    """Set up a second controller on the cluster of `harness`: another replica, the same clock."""
    other = ControllerHarness(harness.cluster, harness.clock, **fields)  # type: ignore[arg-type]
    other.start()
    try:
        yield other
    finally:
        other.stop()


__all__ = [
    "EXPIRE_SECONDS",
    "GATE_RELEASE_SECONDS",
    "NAMESPACE",
    "NAMESPACES",
    "RESYNC_SECONDS",
    "Change",
    "ControllerHarness",
    "new_harness",
    "second_harness",
]
