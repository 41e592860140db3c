"""A tracker that takes its steps when a test says so, on a clock that a test moves."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from tests.admission.doors.desk import (
    NAMESPACE,
    Line,
    a_namespace,
    accounts_in,
    eventually,
    new_cluster,
    recount,
)
from tests.builders import a_binding, a_pod
from webhook.cluster.api import EVENTS, NAMESPACES, PODS, QUOTA_LEDGERS, NotFoundError, known_kind
from webhook.cluster.informer import Change, Informer, Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.events import EventRecorder
from webhook.controllers.lines import Releasing
from webhook.controllers.opted import Opted
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.tracker import Tracker
from webhook.quota.deferral import claim_of_assignment, claim_of_update
from webhook.quota.ledger import NEWEST, Door, Ledger, Reservation
from webhook.quota.line import Held, LineRules
from webhook.quota.names import DEFERRED_KEYS
from webhook.quota.objects import Pod
from webhook.quota.resources import mask, to_text
from webhook.state.ledger_text import LedgerText
from webhook.state.ledgers import LedgerStore, LedgerVersion
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.reserver import Outcome, Reserver
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.shared_view import SharedQuotaCache
from webhook.telemetry.metrics import Metrics

Object = dict[str, object]

EXPIRE_SECONDS = 45.0
RESYNC_SECONDS = 60.0
GIVE_UP_SECONDS = 60.0
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
_QUICK = Timing(first_pause=0.01, longest_pause=0.05)


@dataclass
class Rig:
    """One tracker on a cluster, with caches that follow it; nothing settles but in `step`."""

    cluster: MemoryCluster
    clock: list[float] = field(default_factory=lambda: [1000.0])
    waits_at_start: bool = False
    exempt: frozenset[str] = frozenset()
    term: list[int] = field(default_factory=lambda: [1])
    """The leadership of this tracker; 0 while it is a standby."""
    follows: bool = False
    """Whether the tracker is told of changes of ledgers."""
    rules: LineRules = field(default_factory=LineRules)
    """How lines of waiting pods move."""
    capacity: int = 4000
    """How many reservations a namespace may have."""
    lets_through: bool = False
    """Whether pods need no gate while there is room."""
    holds_terminating: bool = False
    """Whether a pod that is stuck terminating is charged until it is gone."""
    removes_gates: bool = True
    """Whether `round` lets gates be removed that may go."""
    told_lines: list[tuple[str, dict[str, Held], list[str]]] = field(default_factory=list)
    """What was told of lines: namespace, who waits and why, who may go."""
    told_given_up: list[tuple[str, list[str]]] = field(default_factory=list)
    """What was told of reservations that were given up: namespace, whose."""
    line: Line = field(init=False)
    api: MemoryClient = field(init=False)
    ledgers: LedgerStore = field(init=False)
    followed: Informer[LedgerText] | None = field(init=False)
    tracker: Tracker = field(init=False)
    quotas: QuotaCache = field(init=False)
    store: SharedQuotaStore = field(init=False)
    shared: SharedQuotaCache = field(init=False)
    namespaces: NamespaceCache = field(init=False)
    events: EventRecorder = field(init=False)
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.api = MemoryClient(self.cluster)
        self.line = Line(self.cluster)
        self.namespaces = NamespaceCache(self.line, timing=_QUICK)
        self.store = SharedQuotaStore(self.line)
        self.shared = SharedQuotaCache(self.line, self.store, timing=_QUICK)
        self.quotas = QuotaCache(
            self.line,
            lambda: DEFERRED_KEYS,
            holds_terminating=lambda: self.holds_terminating,
            shared=self.shared,
            labels=self.namespaces.labels,
            timing=_QUICK,
        )
        timing = TrackerTiming(
            settle_seconds=0.0,
            fold_seconds=0.0,
            resync_seconds=RESYNC_SECONDS,
            followed_resync_seconds=RESYNC_SECONDS,
            expire_seconds=EXPIRE_SECONDS,
            waits_at_start=self.waits_at_start,
            clock=lambda: self.clock[0],
            now=lambda: NOON + timedelta(seconds=self.clock[0]),
            informer=_QUICK,
        )
        self.metrics = Metrics()
        self.events = EventRecorder(self.api, metrics=self.metrics)
        self.ledgers = LedgerStore(self.line)
        self.followed = self.ledgers.follow(_QUICK) if self.follows else None
        self.opted = Opted(
            quotas=self.quotas, namespaces=self.namespaces, exempt=lambda: self.exempt
        )
        self.tracker = Tracker(
            self.line,
            self.ledgers,
            self.opted,
            timing=timing,
            is_leader=lambda: self.term[0],
            events=self.events,
            metrics=self.metrics,
            ledger_informer=self.followed,
            shared=self.store,
            releasing=Releasing(
                rules=lambda: self.rules,
                capacity=lambda: self.capacity,
                give_up_seconds=lambda: GIVE_UP_SECONDS,
                lets_through=lambda _namespace: self.lets_through,
                on_line=lambda namespace, held, may_go: self.told_lines.append(
                    (namespace, dict(held), list(may_go))
                ),
                on_given_up=lambda namespace, uids: self.told_given_up.append(
                    (namespace, list(uids))
                ),
            ),
        )

    # -- time and steps --------------------------------------------------------------------

    def start(self) -> None:
        """Let the caches follow the cluster; the tracker's own thread does not run."""
        for informer in self.informers():
            informer.start()
        for informer in self.informers():
            assert informer.wait_for_sync(30)

    def stop(self) -> None:
        """Let go of the cluster."""
        self.line.resume()
        for informer in self.informers():
            informer.stop()

    def informers(self) -> list[Informer[Pod]]:
        """The caches, whatever they hold."""
        found: list[object] = [self.namespaces.informer, self.quotas.informer, self.tracker.pods]
        found.append(self.shared.informer)
        found += [] if self.followed is None else [self.followed]
        return cast("list[Informer[Pod]]", found)

    def catch_up(self) -> None:
        """Wait until the caches have seen all that is stored."""
        version = self.cluster.resource_version

        def has_seen_all() -> bool:
            self.cluster.send_bookmarks()
            return all(one.wait_for_version(version, 0.02) for one in self.informers())

        eventually(has_seen_all, f"the caches are at version {version}")

    def step(self) -> None:
        """Let the tracker see everything and settle what is due."""
        self.catch_up()
        self.round()

    def round(self) -> None:
        """Let the tracker settle what is due by what it has seen, each namespace once."""
        tracker = self.tracker
        tracker._look_around()
        for _ in range(tracker._agenda.due()):
            namespace = tracker._agenda.take(0)
            assert namespace is not None
            tracker._reconciler.reconcile(namespace)
        while self.removes_gates and tracker._gates.work(0):
            pass

    def poke(self, namespace: str = NAMESPACE) -> None:
        """Let the tracker believe that something has changed."""
        with self.tracker._counts.lock:
            self.tracker._counts.mark(namespace, self.tracked(namespace))

    def tracked(self, namespace: str = NAMESPACE) -> Tracked:
        """Return a namespace as the tracker keeps it."""
        return self.tracker._counts.tracked[namespace]

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

    def told(self) -> list[str]:
        """Return the reasons of all events so far, in their order, and write them."""
        while self.events._queue:
            series = self.events._next()
            assert series is not None
            self.events._write(series)
        found = self.api.list(EVENTS).items
        return [
            str(one["reason"])
            for one in sorted(found, key=lambda one: int(str(one["metadata"]["resourceVersion"])))  # type: ignore[index]
        ]

    def counted(self, name: str, **labels: str) -> float:
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

    # -- doors -----------------------------------------------------------------------------

    def reserve(self, name: str, namespace: str = NAMESPACE) -> Outcome:
        """Reserve for the bind of a pod, as a door of another replica does."""
        pod = self._stored(name, namespace)
        quotas = self.quotas.in_namespace(namespace).deferred
        claim = claim_of_assignment(pod, quotas, door=Door.BIND, seen=NEWEST)
        assert claim is not None
        give_up = time.monotonic() + 30
        return self._door().reserve(namespace, claim, quotas.observed, deadline=give_up)

    def reserve_resize(self, name: str, cpu: str, namespace: str = NAMESPACE) -> Outcome:
        """Reserve for a resize of a pod to `cpu`, and store nothing."""
        old = self._stored(name, namespace)
        quotas = self.quotas.in_namespace(namespace).deferred
        new = Pod.from_object(a_pod(name=name, node=old.node_name, requests={"cpu": cpu}))
        claim = claim_of_update(old, new, quotas, door=Door.RESIZE)
        assert claim is not None
        give_up = time.monotonic() + 30
        return self._door().reserve(namespace, claim, quotas.observed, deadline=give_up)

    def _door(self) -> Reserver:
        api = MemoryClient(self.cluster)
        return Reserver(
            LedgerStore(api),
            opted_in_at=self.namespaces.opted_in_at,
            shared=SharedQuotaStore(api),
        )

    def _stored(self, name: str, namespace: str) -> Pod:
        return Pod.from_stored(self.api.get(PODS, name, namespace=namespace))


@contextmanager
def a_rig(
    *objects: Mapping[str, object], mode: str = "deferred", **fields: object
) -> Iterator[Rig]:
    """Set up a tracker whose first step is still to come; `team-a` has the label `mode`."""
    cluster = new_cluster()
    stored = [a_namespace(mode=mode), *objects]
    loaded = [(known_kind(str(one["apiVersion"]), str(one["kind"])), one) for one in stored]
    cluster.load([(kind, one) for kind, one in loaded if kind is not None])
    rig = Rig(cluster, **fields)  # type: ignore[arg-type]
    rig.start()
    try:
        yield rig
    finally:
        rig.stop()


@contextmanager
def another_rig(rig: Rig, **fields: object) -> Iterator[Rig]:
    """Set up a second tracker on the cluster of `rig`: another replica, on the same clock."""
    other = Rig(rig.cluster, rig.clock, **fields)  # type: ignore[arg-type]
    other.start()
    try:
        yield other
    finally:
        other.stop()


__all__ = [
    "EXPIRE_SECONDS",
    "GIVE_UP_SECONDS",
    "NAMESPACE",
    "NAMESPACES",
    "RESYNC_SECONDS",
    "Change",
    "Rig",
    "a_rig",
    "another_rig",
]
