"""Plans to reclaim as the leader makes them: from its caches, and what the API server has now.

One thread makes those of all pools, which have their turns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from webhook.config import ElasticSettings, NodeFit
from webhook.controllers.elastic.reclaim_view import ReclaimView
from webhook.controllers.elastic.unassigned_pods import UnassignedPods
from webhook.controllers.runtime.events import ObjectReference
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    ClusterApi,
    Kind,
    ListOptions,
    Object,
    Page,
)
from webhook.kube.pager import of_newest_version
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import render
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.elastic.balance import Balance, Claim, Queued, Shortage, shortage_of
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder
from webhook.quota.elastic.disruption_budgets import (
    UNREAD,
    BudgetWalk,
    DisruptionBudgets,
    NamespaceBudgets,
    protect,
    read_budgets,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge
from webhook.quota.elastic.fair_share import nanos
from webhook.quota.elastic.pod_groups import PodGroups
from webhook.quota.elastic.reclaim_plan import TOO_MANY_PROMISES, Plan, plan_reclaim
from webhook.quota.elastic.victims import AnyRoom, Circumstances, Room
from webhook.quota.nodes.node_room import NOT_JUDGED, NodeRoom
from webhook.quota.objects.model import Pod
from webhook.quota.shared.grants import may_promise

_NAMED_VICTIMS: Final = 8
_LONG: Final = 1.0
"""Seconds after which a pool leaves the others their turn."""
_FACTOR: Final = 3.0
"""How many times as long as its turn took a pool rests."""
_MOST: Final = 5.0
"""Seconds of the longest rest: the thread forgets soon which pods could not be evicted."""
_OBJECT_BYTES: Final = 16 * 2**20
_POD_BYTES: Final = 64 * 2**20
"""JSON of the budgets of a namespace, of its PodGroups, and of the metadata of its pods that a plan
reads; some 15,000 usual pods. Pods that are left, or all where budgets are, count as protected."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class PlannedClaim:
    """A pod that waits, with the plan for it."""

    queued: Queued
    quota: ElasticQuota
    plan: Plan
    judges_nodes: bool
    awaits_leaving: bool = False
    """Whether it has no victims because what it is entitled to is leaving already."""

    @property
    def reference(self) -> ObjectReference:
        """The pod, for events."""
        pod = self.queued.pod
        return ObjectReference(PODS, pod.name, pod.namespace, pod.uid)

    @property
    def victims(self) -> str:
        """The victims in words, and what was not judged."""
        victims = self.plan.victims
        named = [f"{pod_key(one)} ({self.frees(one)})" for one in victims[:_NAMED_VICTIMS]]
        more = len(victims) - len(named)
        text = ", ".join([*named, *([f"and {more} more"] if more else [])])
        judged = f"{NOT_JUDGED} are" if self.judges_nodes else "nodes are"
        return f"{text}, by its {self.plan.claim.value} claim; {judged} not judged"

    def frees(self, victim: ElasticPod) -> str:
        """Return what a victim takes of the resources that the claim is about."""
        named = {**self.quota.min, **self.quota.max}
        return render(
            {
                name: Quantity.of_nano(amount, named[name].format)
                for name, amount in sorted(victim.amounts.items())
                if name in named
            }
        )


def pod_key(pod: ElasticPod) -> str:
    """Return "namespace/name" of a pod."""
    return f"{pod.namespace}/{pod.name}"


class ReclaimPlanner:
    """Plans for pods that wait. Nodes and budgets are read when a plan needs them.

    Args:
        settings: Returns what the configuration says of elastic quotas.
        refused: Returns the uids of pods whose eviction was refused just now.
        reluctant: Returns the namespaces of quotas whose pods come last.
    """

    def __init__(
        self,
        api: ClusterApi,
        settings: Callable[[], ElasticSettings],
        refused: Callable[[], Collection[str]],
        reluctant: Callable[[], Collection[str]],
    ) -> None:
        self._api = api
        self._settings = settings
        self._refused = refused
        self._reluctant = reluctant
        self._unassigned = UnassignedPods(api)
        self.forget()

    def forget(self) -> None:
        """Read budgets, PodGroups and nodes again for the next plan.

        All plans of one look share them, or the creators of many or large objects would decide
        how often all of these are read.
        """
        self._budgets = DisruptionBudgets(self._budgets_of)
        self._groups = PodGroups(self._pod_groups)
        self._nodes: Sequence[Object] | None = None
        self._unassigned.begin()

    def take(self, evicted: Iterable[ElasticPod]) -> None:
        """Count pods that were evicted in the budgets that are known."""
        for pod in evicted:
            self._budgets.take(pod)

    def plan(self, view: ReclaimView, quota: ElasticQuota, raw: Object) -> PlannedClaim:
        """Return which pods to evict for one.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: The pod or a node cannot be read.
        """
        queued, settings = self.queued(quota, raw), self._settings()
        judges_nodes = settings.reclaim.node_fit is NodeFit.REQUIRE
        circumstances = Circumstances(
            LabelOrder(settings.label_order),
            self._others_first,
            self._room(view, quota, raw) if judges_nodes else AnyRoom,
            self._groups.is_disrupted_whole,
        )
        pool, assigned = view.pools[quota.pool], view.without(quota, queued.pod.uid)
        found = plan_reclaim(pool, assigned, queued, circumstances)
        if self._reluctant() and not self._others_first().allow(found.victims):
            # others are not enough, and of those that come last some may go
            circumstances = replace(circumstances, disruptions=self._disruptions)
            found = plan_reclaim(pool, assigned, queued, circumstances)
        if judges_nodes and found.is_possible:
            self._unassigned.note(raw)
        waits = (
            found.is_possible and not found.victims and self._awaits_leaving(view, quota, queued)
        )
        if (found.victims or waits) and not _may_be_promised(view, quota, queued.pod.uid):
            found, waits = Plan(found.shortage, False, obstacle=TOO_MANY_PROMISES), False
        return PlannedClaim(queued, quota, found, judges_nodes, waits)

    def _awaits_leaving(self, view: ReclaimView, quota: ElasticQuota, queued: Queued) -> bool:
        """Return whether a pod lacks what is leaving, and may claim it as it may claim victims."""
        pool, uid = view.pools[quota.pool], queued.pod.uid
        usage = usage_of_pods(view.with_leaving(quota, uid))
        shortage = shortage_of(pool, usage, queued)
        after = Balance(pool, queued, usage_of_pods(view.without(quota, uid)))
        claims = [after.claim(name) for name in shortage.beyond_pool]
        return bool(claims) and not shortage.beyond_max and Claim.NONE not in claims

    def shortage(self, view: ReclaimView, quota: ElasticQuota, raw: Object) -> Shortage:
        """Return of what there is too little for a pod, those that are ending taken as gone."""
        queued = self.queued(quota, raw)
        usage = usage_of_pods(view.without(quota, queued.pod.uid))
        return shortage_of(view.pools[quota.pool], usage, queued)

    def queued(self, quota: ElasticQuota, raw: Object) -> Queued:
        """Return a pod that waits as plans look at it."""
        pod = Pod.from_stored(raw)
        return replace(self.claimant(quota, pod), takes=not pod.never_preempts)

    def claimant(self, quota: ElasticQuota, pod: Pod) -> Queued:
        """Return a pod that waits as far as the order of claims depends on it."""
        amounts = charge(charged_to(pod), quota.names, self._settings().gpu_memory_gb)
        asked = ElasticPod(
            pod.namespace, pod.name, pod.uid, pod.created, pod.priority or 0, nanos(amounts)
        )
        return Queued(quota.key, asked)

    def may_go(self, victims: Sequence[ElasticPod]) -> bool:
        """Return whether pods may be evicted now, as far as is known.

        Beside pods of a quota that comes last no others go for a plan: it might be in vain.
        """
        reluctant = self._reluctant()
        is_mixed = len({one.namespace in reluctant for one in victims}) > 1
        return not is_mixed and self._disruptions().allow(victims)

    def _disruptions(self) -> _Unrefused:
        """Return the budgets, and the pods whose eviction was refused, while no pod is taken."""
        return _Unrefused(frozenset(self._refused()), self._budgets.begin())

    def _others_first(self) -> _Unrefused:
        """Return the same with the pods of quotas that come last as if they were refused."""
        return replace(self._disruptions(), reluctant=self._reluctant())

    def _budgets_of(self, namespace: str) -> NamespaceBudgets:
        """Return the budgets of a namespace, read when one of its pods is asked about.

        No cache keeps the labels of pods: they are read where a namespace has budgets.
        """
        stored = self._first(POD_DISRUPTION_BUDGETS, namespace)
        budgets = read_budgets(stored)
        budgets += [UNREAD] if stored.is_cut else []
        if not budgets:
            return NamespaceBudgets()
        assigned = ListOptions(namespace=namespace, field_selector="spec.nodeName!=")
        pods = _First(self._api.pages(PODS, assigned, is_brief=True), _POD_BYTES)
        metadata = (FieldReader(raw).child("metadata") for raw in pods)
        found = protect(budgets, ((one.text("uid"), one.string_map("labels")) for one in metadata))
        return found.protecting_others() if pods.is_cut else found

    def _pod_groups(self, namespace: str) -> Iterator[Object]:
        return of_newest_version(POD_GROUPS, lambda kind: self._first(kind, namespace))

    def _first(self, kind: Kind, namespace: str) -> _First:
        return _First(self._api.pages(kind, ListOptions(namespace=namespace)), _OBJECT_BYTES)

    def _room(
        self, view: ReclaimView, quota: ElasticQuota, raw: Object
    ) -> Callable[[Iterable[ElasticPod]], Room]:
        uid = FieldReader(raw).child("metadata").text("uid")
        rooms: list[NodeRoom] = []

        def room(gone: Iterable[ElasticPod]) -> Room:
            if self._nodes is None:
                self._nodes = self._api.list(NODES).items
            if not rooms:
                self._unassigned.keep(view.released.keys() | view.promised.keys())
                unassigned = self._unassigned.placements(view.unassigned_before(quota, uid))
                placed = (one for one in view.placed if one.uid not in view.ending)
                rooms.append(NodeRoom(raw, self._nodes, placed, unassigned))
            return rooms[0].after(one.uid for one in gone)

        return room


def _may_be_promised(view: ReclaimView, quota: ElasticQuota, uid: str) -> bool:
    """Return whether a pod has a promise, or its quota may get one more."""
    owners = [view.quotas[one.namespace] for one in view.promised.values()]
    own = sum(1 for one in owners if one.key == quota.key)
    others = sum(1 for one in owners if one.pool == quota.pool) - own
    return uid in view.promised or may_promise(own, others)


class _First:
    """First objects of a list, which members of its namespace can make very large.

    Attributes:
        is_cut: Whether there are more of them, once these have been read.
    """

    def __init__(self, pages: Iterable[Page], most_bytes: int) -> None:
        self.is_cut = False
        self._pages = pages
        self._most_bytes = most_bytes

    def __iter__(self) -> Iterator[Object]:
        size = 0
        for revision in (one for page in self._pages for one in page.items):
            size += len(revision.data)
            if size > self._most_bytes:
                self.is_cut = True
                return
            yield revision.object


@dataclass(frozen=True, slots=True)
class _Unrefused:
    """Budgets, and pods that may not go whatever these allow."""

    refused: frozenset[str]
    """Uids of the pods."""
    budgets: BudgetWalk
    reluctant: Collection[str] = ()
    """Namespaces of further ones."""

    def allow(self, unit: Sequence[ElasticPod]) -> bool:
        """Return whether a unit may go now, after the pods that were taken already."""
        for pod in unit:
            if pod.uid in self.refused or pod.namespace in self.reluctant:
                return False
        return self.budgets.allow(unit)

    def take(self, unit: Sequence[ElasticPod]) -> None:
        """Count the pods of a unit as gone."""
        self.budgets.take(unit)


class Turns:
    """Turns of pools: one that takes long is cut short, rests, and goes on where it was.

    So creators of pods that make the plans of their pool slow keep neither other pools from theirs
    nor what comes last in their own.

    Args:
        clock: Returns seconds that only go forward, for rests.
        planning_clock: Returns the same without what counts as no part of a turn.
    """

    def __init__(
        self, clock: Callable[[], float], planning_clock: Callable[[], float] | None = None
    ) -> None:
        self._clock = clock
        self._planning_clock = planning_clock or clock
        self._rests: dict[str, float] = {}
        self.had: Final[defaultdict[str, set[str]]] = defaultdict(set)
        """Pool → what had its turn since all of the pool had; the caller adds to it."""

    def of(self, pool: str, items: Iterable[_T]) -> Iterator[_T]:
        """Yield what there is to do for a pool, in order: nothing while it rests."""
        if self._clock() < self._rests.get(pool, 0.0):
            return
        begun = self._planning_clock()
        for item in items:
            number = len(self.had[pool])
            yield item
            took = self._planning_clock() - begun
            if took > _LONG and len(self.had[pool]) > number:
                self._rests[pool] = self._clock() + min(_MOST, _FACTOR * took)
                return
        self.had.pop(pool, None)
        self._rests.pop(pool, None)
