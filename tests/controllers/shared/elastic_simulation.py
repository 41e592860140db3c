"""The world of shared quotas, in which the quotas are those that elastic quotas are charged by.

An ElasticQuota of `a`, a CompositeElasticQuota of `b` and `c`, and an ElasticQuota of `d` lend each
other what they do not use; some have a max. People edit min, max and lendable, move a namespace
from the composite to `d` and back, let namespaces join with running pods, and lose objects. What
charges them is written one object at a time, so handlers and leaders meet every state between.

Leaders release pods in the order of `OwnersFirst`, and reclaim: their plans begin with a promise,
their victims end one by one, and each promise ends in a bind or in a withdrawal. The laws of what
is held are checked at each write; those of labels, shares and plans after each step, on what really
runs (`tests.quota.elastic.laws`).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any, ClassVar, Final, cast

from tests.controllers.shared.sharing_simulation import (
    CPU,
    Acts,
    ControllerActor,
    PodState,
    SharingSimulation,
    StoredQuota,
    StoredState,
    Task,
    held_in,
    number,
    pause,
)
from tests.quota.elastic import laws
from webhook.config import ElasticSettings, NodeFit, ReclaimMode, ReclaimSettings
from webhook.controllers.elastic.assigned_pods import AssignedPod, read_assigned_pod
from webhook.controllers.elastic.precedence import OwnersFirst
from webhook.controllers.elastic.reclaim_controller import Reclaimer
from webhook.controllers.elastic.reclaim_view import ReclaimParts
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, ClusterApi, NotFoundError, Object
from webhook.kube.informer import Informer
from webhook.kube.kinds import Kind
from webhook.kube.metadata import time_text
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.derived_quotas import DerivedQuota, derived_quotas
from webhook.quota.elastic.elastic_quotas import ElasticQuota, read_elastic_quota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.reclaim_plan import plan_reclaim
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import CycleResult, PendingReason, QueuedPod, QueuePolicy
from webhook.quota.queue.release_order import run_cycle
from webhook.quota.shared.cluster_quotas import ledger_name, own_name
from webhook.state.grant_raising import PendingRaise
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

POOL: Final = "cdq/epool.default"
_RESOURCE: Final = CPU.removeprefix("requests.")
_GB: Final = 32
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_UNIT: Final = 10**9
_PATIENCE: Final = 30.0
_ROUNDS: Final = 8
"""Looks at promises after which each has ended."""
_SETTINGS: Final = ElasticSettings(
    reclaim=ReclaimSettings(
        mode=ReclaimMode.ACT, after_seconds=0, node_fit=NodeFit.OFF, cool_down_seconds=5
    )
)
_METRICS: Final = Metrics()


def _quota(name: str, namespaces: list[str], spec: Mapping[str, int | None]) -> ElasticQuota:
    limits: dict[str, object] = {
        part: {_RESOURCE: limit} for part, limit in spec.items() if limit is not None
    }
    kind = "CompositeElasticQuota" if len(namespaces) > 1 else "ElasticQuota"
    if len(namespaces) > 1:
        limits["namespaces"] = namespaces
    metadata = {"namespace": namespaces[0], "name": name}
    return read_elastic_quota({"kind": kind, "metadata": metadata, "spec": limits})


@dataclass
class ElasticSimulation(SharingSimulation):
    """The laws of elastic quotas that handlers and leaders have to keep.

    Attributes:
        tried: Number of a law → how often it was put to the test.
    """

    namespaces: ClassVar[tuple[str, ...]] = ("a", "b", "c", "d")
    sizes: ClassVar[tuple[int, ...]] = (1, 1, 2, 3)
    tried: Counter[str] = field(default_factory=Counter)
    _elastic: dict[str, ElasticQuota] = field(default_factory=dict)
    _written: dict[str, Mapping[str, object]] = field(default_factory=dict)
    """Name of an object that charges elastic quotas → its spec."""
    leaving: list[str] = field(default_factory=list)
    """Pods that were evicted and have not ended yet."""
    _checked: object = None
    reclaimers: dict[int, Reclaimer] = field(default_factory=dict)
    """Those of the leaders, by the identity of the store of each."""
    had_quota: set[str] = field(default_factory=set)
    """Uids of pods that something was reserved for."""

    # -- people ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the elastic quotas."""
        is_small = self.seed % 3
        for name, namespaces in (("a", ["a"]), ("b", ["b", "c"]), ("d", ["d"])):
            spec: dict[str, int | None] = {"min": 2}
            if name == "a" and self.holds_back:
                spec["lendable"] = self.seed % 3
            if (name == "b") == bool(is_small):
                spec["max"] = 3
            self._elastic[name] = _quota(name, namespaces, spec)
        while self.keep():
            pass

    def edit(self) -> None:
        """Edit min, max and lendable of an elastic quota, or move the namespace `c`."""
        rng = self.rng
        name = rng.choice(sorted(self._elastic))
        former = self._elastic[name]
        least = rng.choice((0, 1, 2, 3, 4))
        most = rng.choice((None, None, least, least + 2))
        lendable = rng.choice((None, least // 2)) if self.holds_back else None
        spec = {"min": least, "max": most, "lendable": lendable}
        self._elastic[name] = _quota(name, list(former.namespaces), spec)
        if rng.random() < 0.2:
            self._move("c", *(("b", "d") if "c" in self._elastic["b"].namespaces else ("d", "b")))

    def _move(self, namespace: str, source: str, target: str) -> None:
        for name, is_in in ((source, False), (target, True)):
            one = self._elastic[name]
            left = sorted({*one.namespaces} - {namespace} | ({namespace} if is_in else set()))
            spec = {
                part: int(number(amounts[_RESOURCE])) if _RESOURCE in amounts else None
                for part, amounts in (("min", one.min), ("max", one.max))
            }
            self._elastic[name] = _quota(name, left, spec)

    def label(self, _namespace: str) -> None:
        """Edit another quota: no label decides here."""
        self.edit()

    def _derived(self) -> dict[str, DerivedQuota]:
        opted_in = self.views[-1].opted_in
        derived = derived_quotas(
            self._elastic.values(), opted_in.__contains__, _GB, has_headroom=True
        )
        return {ledger_name(name): one for name, one in derived.items()}

    def keep(self) -> bool:
        """Write the next object that is not what charges the elastic quotas, if there is one.

        A quota that is new to a namespace is written before one that it leaves.
        """
        wanted, present = self._derived(), self._written

        def loses(item: tuple[str, DerivedQuota]) -> bool:
            known = self.views[-1].quotas.get(item[0])
            labels = ({"kubernetes.io/metadata.name": one} for one in item[1].namespaces)
            return known is not None and all(map(known.selects, labels))

        for name, derived in sorted(wanted.items(), key=loses):
            if present.get(name) != derived.spec:
                self.write_quota(own_name(name), {"kept": [], "headroom": [], **derived.spec})
                self._written[name] = derived.spec
                return True
        for name in sorted(present.keys() - wanted.keys()):
            self.delete_quota(name)
            return True
        return False

    def delete_quota(self, name: str = POOL) -> None:
        """Lose an object that charges elastic quotas."""
        super().delete_quota(name)
        self._written.pop(name, None)

    def run_all(self) -> None:
        """Write what charges the elastic quotas too."""
        while self.keep():
            pass
        super().run_all()

    # -- actors ----------------------------------------------------------------------------

    @property
    def has_deletions(self) -> bool:
        """Namespaces stay: elastic quotas list them by name."""
        return False

    @property
    def has_terminations(self) -> bool:
        """The same."""
        return False

    @property
    def takes_back(self) -> bool:
        """Selectors follow from the elastic quotas."""
        return False

    @property
    def acts(self) -> Acts:
        """What may happen."""
        acts = super().acts
        # of more objects and namespaces more has to be seen and settled until binds are admitted
        often = {"settle": 40, "see": 20, "run all": 5}
        return {**acts, **{name: (often[name], acts[name][1]) for name in often}, **_ACTS}

    def pod_queues(self, store: SharedQuotaStore, ledgers: LedgerStore) -> object:
        """Return queues of a leader in which owners come first, and for which it reclaims."""
        self.reclaimers[id(store)] = self.reclaimer(store, ledgers)
        return _PodQueues(self, store)

    def by_namespace(self) -> dict[str, ElasticQuota]:
        """Return the quotas that count, with their opted-in namespaces, by each of these."""
        opted_in = self.views[-1].opted_in
        found: dict[str, ElasticQuota] = {}
        for one in self._elastic.values():
            names = tuple(name for name in one.namespaces if name in opted_in)
            found.update(dict.fromkeys(names, replace(one, namespaces=names)))
        return found

    def reclaim(self, actor: ControllerActor) -> None:
        """Let a controller look after promises, and plan for the pods that wait."""
        if actor.task is None:
            reclaimer = self.reclaimers[id(actor.shared.store)]
            actor.task = Task(lambda: self._reclaim_with(reclaimer), is_webhook=False)
            actor.task.may_promise = True
            self.step(actor)

    def _reclaim_with(self, reclaimer: Reclaimer) -> None:
        reclaimer.reconcile("")
        untold = cast("Task", threading.current_thread()).withdrawn
        assert not untold, f"E6: what was promised to {untold} is withdrawn without a word"

    def evict(self, uid: str) -> None:
        """Let a pod end some time later."""
        if uid not in self.leaving:
            self.leaving.append(uid)

    def leave(self) -> None:
        """Let the next victim end."""
        if self.leaving:
            pod = self.pods.get(self.leaving.pop(0))
            if pod is not None:
                self.end(pod)

    def reclaimer(self, store: SharedQuotaStore, ledgers: LedgerStore) -> Reclaimer:
        """Return what a leader reclaims with."""
        context = ControllerContext(
            api=cast("ClusterApi", _PodApi(self)),
            leader_epoch=lambda: self.epoch,
            timings=ControllerTimings(clock=lambda: self.clock[0], now=lambda: _START),
            events=_Told(self),
            metrics=_METRICS,
        )
        parts = ReclaimParts(
            quotas=self.by_namespace,
            assigned=cast("Informer[AssignedPod]", _AssignedPods(self)),
            pods=lambda: cast("Informer[Pod]", _AllPods(self)),
            caches=dict,
            ledgers=ledgers,
            shared=store,
            cluster_quotas=lambda: sorted(self.views[-1].quotas),
            requeue_after=lambda *_: None,
            settings=lambda: _SETTINGS,
            uncharged_at=lambda *_: math.inf,
            holds_terminating=lambda: False,
            patience=lambda: _PATIENCE,
            max_reservations=lambda: 100,
        )
        return Reclaimer(context, parts)

    def check_quiet(self) -> None:
        """Check that promises have an end, under a leader that has not made them."""
        self.run_all()
        for request in list(self.requests):  # none lasts for as long as a promise may
            self.commit(request, fails=False)
        leader = self.controllers[0]
        store = leader.shared.store
        self.reclaimers[id(store)] = self.reclaimer(store, leader.shared.ledgers)
        for _ in range(_ROUNDS):
            self.reclaim(leader)
            self.finish(leader)
            while self.leaving:
                self.leave()
            self.clock[0] += _PATIENCE / 2
            self.run_all()
        promises = {uid for one in self.read_stored().quotas.values() for uid in one.promises}
        assert not promises, f"E6: what is promised to {sorted(promises)} is never withdrawn"
        super().check_quiet()

    # -- what must hold, at each write -----------------------------------------------------

    def check_write(self, kind: Kind, before: StoredState) -> None:
        """Check the laws of what is held, then those of all shared quotas."""
        for ledger in self.read_stored().ledgers.values():
            self.had_quota |= set() if ledger is None else ledger.reservations.keys()
        task = threading.current_thread()
        if kind == CLUSTER_DEFERRED_QUOTAS and isinstance(task, Task):
            now = self.read_stored()
            raised = 0
            for name in before.quotas.keys() & now.quotas.keys():
                raised += self._check_written(task, name, before.quota(name), now.quota(name))
            self.tried["together"] += raised and len(task.raises) > 1
        super().check_write(kind, before)

    def _check_written(self, task: Task, name: str, before: StoredQuota, now: StoredQuota) -> bool:
        """Check what a write did to one quota; return whether a handler raised it."""
        if not task.may_promise:
            assert now.promises == before.promises, "E6: a write of another kind changed promises"
            self.tried["E6"] += now.granted != before.granted and bool(now.promises)
        self._note_promises(task, before, now)
        if not task.is_webhook or now.total <= before.total:
            return False
        assert before.is_complete, "E3: raised by one that does not say complete"
        for namespace, held in now.granted.items():
            if held > before.granted.get(namespace, 0):
                needed = max(
                    held_in(_following(one).accounts[name])
                    for one, _ in task.raises
                    if one.namespace == namespace
                )
                most = needed + before.most_headroom(namespace, needed)
                assert held <= most, f"E4: {held} of {name} are given, {needed} are needed"
                self.tried["headroom"] += held > needed
        law = "E2" if name == POOL else "E1"
        assert now.total <= now.hard, f"{law}: {now.total} are held of {now.hard} of {name}"
        self.tried.update({"E3", "E4", law})
        return True

    def _note_promises(self, task: Task, before: StoredQuota, now: StoredQuota) -> None:
        """Note which promises a write ends that were there before, of pods without quota."""
        task.promised |= now.promises.keys() - before.promises.keys()
        left = {uid for one in self.read_stored().quotas.values() for uid in one.promises}
        ended = before.promises.keys() - left - task.promised
        bound = {uid for uid in ended if uid in self.pods and self.pods[uid].is_assigned}
        task.withdrawn |= ended - self.had_quota - bound  # while it had opted out, nothing is asked
        self.tried["ended"] += len(ended)

    def check_owners_first(
        self, store: SharedQuotaStore, waits: Mapping[str, int], namespace: str, own: Fraction
    ) -> None:
        """Check that no pod borrows what the first pod of another queue lacks within its min.

        Args:
            store: What the leader knows of the pool.
            waits: Namespace → what its first pod lacks of the pool and of nothing else.
            namespace: Where a pod is to be released.
            own: What the namespace needs of the pool then beyond what was promised to that pod.
        """
        version, quotas = store.known(POOL), self.by_namespace()
        if version is None or namespace not in quotas:
            return
        granted = version.grants.in_use
        held = {one: number(granted.get(one, {}).get(CPU, ZERO)) for one in self.namespaces}

        def beyond(name: str, changed: Mapping[str, Fraction]) -> Fraction:
            after = {**held, **changed}
            used = sum((after[one] for one in quotas[name].namespaces), Fraction())
            return used - number(quotas[name].min.get(_RESOURCE, ZERO))

        for owner, lacking in waits.items():
            is_other = owner in quotas and quotas[owner].key != quotas[namespace].key
            if is_other and beyond(owner, {owner: held[owner] + lacking}) <= 0:
                self.tried["E5"] += 1
                assert beyond(namespace, {namespace: own}) <= 0, (
                    f"E5: {namespace} borrows what {owner} lacks within its min"
                )

    # -- what must hold, after each step ---------------------------------------------------

    def pool(self) -> Pool:
        """Return the pool of what counts now."""
        return Pool("default", {one.key: one for one in self.by_namespace().values()}.values())

    def _pods(self) -> dict[str, list[ElasticPod]]:
        quota_of = self.pool().quota_of
        found: dict[str, list[ElasticPod]] = {key: [] for key in quota_of.values()}
        for pod in self.pods.values():
            if pod.is_assigned and pod.namespace in quota_of:
                found[quota_of[pod.namespace]].append(_elastic_pod(pod))
        return found

    def check(self, now: StoredState | None = None) -> None:
        """Check the laws of labels, shares and plans too, where something has changed."""
        super().check(now)
        running = frozenset((one.uid, one.is_assigned) for one in self.pods.values())
        state = running, self.views[-1].opted_in, tuple(self._elastic.values())
        if state != self._checked:
            self._checked = state
            self._check_plans()

    def _check_plans(self) -> None:
        pool, pods = self.pool(), self._pods()
        usage = laws.usage_of(pods)
        laws.check_e10(pool, usage)
        for key, listed in pods.items():
            laws.check_e11(pool.quotas[key], listed)
            self.tried["E11"] += bool(laws.expected_over(pool.quotas[key], listed))
        if _RESOURCE in pool.resources:
            self.tried["E10"] += laws.available(pool, usage, _RESOURCE) > 0
        for pod in self.waiting():
            if pod.namespace not in pool.quota_of:
                continue
            queued = Queued(pool.quota_of[pod.namespace], _elastic_pod(pod))
            found = plan_reclaim(pool, pods, queued)
            laws.check_plan(pool, pods, queued, found)
            laws.check_e12(pool, pods, queued, found)
            tried = {"E12"} if len(pool.quotas[queued.quota].namespaces) > 1 else set()
            self.tried.update(tried | ({"E7", "E8", "E9"} if found.victims else set()))


class _PodQueues:
    """Queues of one leader; their pods go when they are asked about, as all others."""

    def __init__(self, world: ElasticSimulation, store: SharedQuotaStore) -> None:
        self._world = world
        self._store = store
        self._waits: dict[str, int] = {}
        self._owners = OwnersFirst(
            world.by_namespace, store, ElasticSettings, lambda *_: None, lambda: world.epoch
        )

    def run_cycle(
        self, namespace: str, _state: object, ledger: Ledger, queue: tuple[QueuedPod, ...]
    ) -> CycleResult:
        """Decide on a queue, owners first."""
        ordered = self._owners.order(namespace, ledger, queue)
        cycle = run_cycle(ledger, ordered, QueuePolicy(), room=2)
        waits = {name: cpu for name, cpu in self._waits.items() if name != namespace}
        if cycle.released and cycle.ledger is not None and POOL in cycle.ledger.accounts:
            promised = ledger.accounts[POOL].promised
            own = held_in(cycle.ledger.accounts[POOL]) - sum(
                number(promised.get(one.uid, {}).get(CPU, ZERO)) for one in cycle.released
            )
            self._world.check_owners_first(self._store, waits, namespace, own)
        return cycle

    def commit(self, namespace: str, _state: object, cycle: CycleResult, **_rest: object) -> None:
        """Note which pod waits for the pool alone."""
        self._owners.on_queue(namespace, cycle.pending, ())
        self._world.reclaimers[id(self._store)].waiting_pods.on_queue(namespace, cycle.pending, ())
        self._waits.pop(namespace, None)
        for uid, status in cycle.pending.items():
            is_of_pool = {one.quota for one in status.denials} == {POOL}
            is_exceeded = status.reason is PendingReason.QUOTA_EXCEEDED
            if is_of_pool and is_exceeded and uid in self._world.pods:
                self._waits[namespace] = self._world.pods[uid].cpu

    def report_lost_reservations(self, *_given: object) -> None:
        """Nothing follows here."""


class _PodApi:
    """The API server as far as a leader asks it about pods."""

    def __init__(self, world: ElasticSimulation) -> None:
        self._world = world

    def get(self, _kind: Kind, name: str, *, namespace: str, **_options: object) -> Object:
        """Return a pod."""
        pause()
        pod = self._world.pods.get(name)
        if pod is None or pod.namespace != namespace:
            raise NotFoundError(name)
        return pod_object(pod)

    def pages(self, *_given: object) -> list[Any]:
        """Return no PodDisruptionBudget."""
        return []

    def evict(self, _name: str, *, uid: str, dry_run: bool = False, **_options: object) -> None:
        """Let a pod end some time later."""
        pause()
        if not dry_run:
            self._world.evict(uid)


class _AssignedPods:
    """The pods that run, as the cache of a leader shows them: all that is true now."""

    resource_version = 1

    def __init__(self, world: ElasticSimulation) -> None:
        self._world = world

    def in_namespace(self, namespace: str) -> list[AssignedPod]:
        """Return those of a namespace."""
        return [read_assigned_pod(one) for one in _stored(self._world, namespace, assigned=True)]


class _AllPods:
    """The pods as the cache of a leader shows them."""

    resource_version = 1

    def __init__(self, world: ElasticSimulation) -> None:
        self._world = world

    def in_namespace(self, namespace: str) -> list[Pod]:
        """Return those of a namespace."""
        return [
            Pod.from_stored(one)
            for is_assigned in (False, True)
            for one in _stored(self._world, namespace, assigned=is_assigned)
        ]

    def get(self, key: str) -> Pod | None:
        """Return one of them."""
        namespace, _, name = key.partition("/")
        found = [pod for pod in self.in_namespace(namespace) if pod.name == name]
        return found[0] if found else None


class _Told:
    """Takes the events on pods."""

    def __init__(self, world: ElasticSimulation) -> None:
        self._world = world

    def normal(self, regarding: ObjectReference, reason: str, message: str) -> None:
        """Take what is as it should be."""

    def warning(self, regarding: ObjectReference, reason: str, _message: str) -> None:
        """Take the word that a promise is withdrawn."""
        if reason == "ReclaimWithdrawn":
            cast("Task", threading.current_thread()).withdrawn.discard(regarding.uid)
            self._world.tried["told"] += 1


def _stored(world: ElasticSimulation, namespace: str, *, assigned: bool) -> list[Object]:
    pods = world.pods.values() if assigned else world.waiting()
    return [
        pod_object(one, is_ending=one.uid in world.leaving)
        for one in pods
        if one.namespace == namespace and one.is_assigned == assigned
    ]


def pod_object(pod: PodState, *, is_ending: bool = False) -> Object:
    """Return a pod as it is stored."""
    elastic = _elastic_pod(pod)
    created = elastic.created
    assert created is not None
    requests = {"cpu": str(pod.cpu)}
    metadata = {"namespace": pod.namespace, "name": pod.uid, "uid": pod.uid}
    times = {"creationTimestamp": time_text(created)}
    if is_ending:
        times["deletionTimestamp"] = time_text(created)
    spec = {
        "containers": [{"name": "main", "resources": {"requests": requests}}],
        "priority": elastic.priority,
        **({"nodeName": "node"} if pod.is_assigned else {}),
    }
    return {"metadata": {**metadata, **times, "resourceVersion": "1"}, "spec": spec}


def _following(one: PendingRaise) -> Ledger:
    """Return the ledger that a raise is for."""
    return cast("Any", one.decide).__self__.decision.following  # type: ignore[no-any-return]


def _elastic_pod(pod: PodState) -> ElasticPod:
    serial = int(pod.uid[1:])
    created = _START + timedelta(seconds=serial)
    amounts = {_RESOURCE: pod.cpu * _UNIT}
    priority = int(serial % 3 == 0)
    return ElasticPod(pod.namespace, pod.uid, pod.uid, created, priority, amounts)


def _reclaim(world: ElasticSimulation, _namespace: str) -> None:
    if world.holds_back:
        world.reclaim(world.rng.choice(world.controllers))


_ACTS: Final[Acts] = {
    "keep": (8, lambda world, _name: world.keep()),
    "reclaim": (8, _reclaim),
    "leave": (8, lambda world, _name: world.leave()),
}
