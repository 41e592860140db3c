"""Plans to reclaim as the leader makes them: from its caches, and what the API server has now."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from webhook.config import ElasticSettings, NodeFit
from webhook.controllers.elastic.reclaim_view import ReclaimView
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
)
from webhook.kube.pager import of_newest_version
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import render
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.elastic.balance import Balance, Claim, Queued, Shortage, shortage_of
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder
from webhook.quota.elastic.disruption_budgets import (
    DisruptionBudgets,
    NamespaceBudgets,
    protect,
    read_budgets,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge
from webhook.quota.elastic.fair_share import nanos
from webhook.quota.elastic.pod_groups import PodGroups
from webhook.quota.elastic.reclaim_plan import Plan, plan_reclaim
from webhook.quota.elastic.victims import Circumstances
from webhook.quota.nodes.node_room import NOT_JUDGED, NodeRoom
from webhook.quota.objects.model import Pod

_NAMED_VICTIMS: Final = 8


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
    """

    def __init__(
        self,
        api: ClusterApi,
        settings: Callable[[], ElasticSettings],
        refused: Callable[[], Collection[str]],
    ) -> None:
        self._api = api
        self._settings = settings
        self._refused = refused

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
            self.evictable(),
            self._has_node(view, raw) if judges_nodes else lambda _taken: True,
            PodGroups(self._pod_groups).is_disrupted_whole,
        )
        assigned = view.without(quota, queued.pod.uid)
        found = plan_reclaim(view.pools[quota.pool], assigned, queued, circumstances)
        waits = (
            found.is_possible and not found.victims and self._awaits_leaving(view, quota, queued)
        )
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
        amounts = charge(charged_to(pod), quota.names, self._settings().gpu_memory_gb)
        policy = FieldReader(raw).child("spec").text("preemptionPolicy")
        asked = ElasticPod(
            pod.namespace, pod.name, pod.uid, pod.created, pod.priority or 0, nanos(amounts)
        )
        return Queued(quota.key, asked, takes=policy != "Never")

    def evictable(self) -> Callable[[Sequence[ElasticPod], Sequence[ElasticPod]], bool]:
        """Return what says whether pods may be evicted now, after others."""
        refused = frozenset(self._refused())
        budgets: list[DisruptionBudgets] = []

        def allow(unit: Sequence[ElasticPod], taken: Sequence[ElasticPod]) -> bool:
            if any(pod.uid in refused for pod in unit):
                return False
            if not budgets:
                budgets.append(self._budgets())
            return budgets[0].allow(unit, taken)

        return allow

    def _budgets(self) -> DisruptionBudgets:
        """Return the budgets, those of a namespace read when one of its pods is asked about.

        No cache keeps the labels of pods: they are read where a namespace has budgets.
        """

        def of_namespace(namespace: str) -> NamespaceBudgets:
            budgets = read_budgets(self._pages(POD_DISRUPTION_BUDGETS, namespace))
            if not budgets:
                return NamespaceBudgets()
            metadata = (
                FieldReader(raw).child("metadata")
                for raw in self._pages(PODS, namespace, field_selector="spec.nodeName!=")
            )
            pods = ((one.text("uid"), one.string_map("labels")) for one in metadata)
            return protect(budgets, pods)

        return DisruptionBudgets(of_namespace)

    def _pod_groups(self, namespace: str) -> Iterator[Object]:
        return of_newest_version(POD_GROUPS, lambda kind: self._pages(kind, namespace))

    def _pages(self, kind: Kind, namespace: str, *, field_selector: str = "") -> Iterator[Object]:
        pages = self._api.pages(
            kind, ListOptions(namespace=namespace, field_selector=field_selector)
        )
        return (revision.object for page in pages for revision in page.items)

    def _has_node(self, view: ReclaimView, raw: Object) -> Callable[[Iterable[ElasticPod]], bool]:
        rooms: list[NodeRoom] = []

        def has_room(taken: Iterable[ElasticPod]) -> bool:
            if not rooms:
                rooms.append(NodeRoom(raw, self._api.list(NODES).items, view.placed))
            return rooms[0].fits({*(one.uid for one in taken), *view.ending})

        return has_room
