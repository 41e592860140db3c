"""The plan to reclaim quota for one pod, and why there is none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    QUOTA_LEDGERS,
    Object,
)
from webhook.kube.metadata import object_namespace
from webhook.kube.pager import of_newest_version
from webhook.operations.elastic.reading import Elastic, elastic_pod, priority_of
from webhook.operations.explain.nodes import judged_view
from webhook.operations.explain.session import Session
from webhook.operations.reading import name_of
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList, render
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder
from webhook.quota.elastic.disruption_budgets import (
    DisruptionBudgets,
    NamespaceBudgets,
    protect,
    read_budgets,
)
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Nanos, Pool, Usage
from webhook.quota.elastic.pod_groups import PodGroups
from webhook.quota.elastic.reclaim_plan import TOO_MANY_PROMISES, Plan, plan_reclaim
from webhook.quota.elastic.victims import AnyRoom, Circumstances
from webhook.quota.ledger.ledger import ReservationSource
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView, PendingPod
from webhook.quota.nodes.node_resources import unoffered
from webhook.quota.nodes.node_room import NodeRoom, PlacedPod, placement_key
from webhook.quota.nodes.requested import requested_of
from webhook.quota.objects.model import Pod
from webhook.quota.shared.grants import may_promise
from webhook.state.ledger_store import LEDGER_NAME, read_ledger


class NotPlannedError(Exception):
    """A pod for which no plan is made: it is bound, or no elastic quota counts it."""


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The plan for one pod, with its words."""

    plan: Plan
    elastic: Elastic
    reason: str
    notes: tuple[str, ...] = ()
    """What was not known or not judged."""


def plan_for(
    session: Session, elastic: Elastic, raw: Object, order: LabelOrder = LabelOrder.CREATION_TIME
) -> PodPlan:
    """Return which pods to evict so that a pod can be bound.

    Raises:
        NotPlannedError: The pod is bound, ends, or has no elastic quota.
        InvalidFieldError: The pod cannot be read.
        ApiError: The cluster does not answer.
    """
    pod = Pod.from_object(raw)
    quota = _quota_of(elastic, pod)
    pool = elastic.pools[quota.pool]
    given = priority_of(session, raw)
    asked = elastic_pod(
        replace(pod, priority=given.value), raw, quota, elastic.gb_per_gpu, elastic.now
    )
    queued = Queued(quota.key, asked, given.preempts)
    assigned = {
        key: [one for one in elastic.pods[key] if one.uid not in elastic.ending]
        for key in pool.quotas
    }
    none: dict[str, _Held] = {}
    unassigned = session.read(lambda: _unassigned(session, elastic, pool), none, "promises")
    former = unassigned.pop(asked.uid, None)
    is_promised = former is not None and former.is_promised
    for one in unassigned.values():
        assigned[pool.quota_of[one.pod.namespace]].append(one.pod)
    # a pod with a promise was planned for beside the others, see `ReclaimView.unassigned_before`
    beside = [one.raw for one in unassigned.values() if not (one.is_promised and is_promised)]
    nodes = _Nodes(session, elastic, raw, beside)
    circumstances = Circumstances(
        order,
        _budgets(session, elastic).begin,
        lambda gone: AnyRoom(gone, nodes.have_room),
        _pod_groups(session).is_disrupted_whole,
    )
    found = plan_reclaim(pool, assigned, queued, circumstances)
    if found.victims and not is_promised:
        keys = [pool.quota_of[one.pod.namespace] for one in unassigned.values() if one.is_promised]
        own = keys.count(quota.key)
        if not may_promise(own, len(keys) - own):
            found = Plan(found.shortage, False, obstacle=TOO_MANY_PROMISES)
    reason = _reason(pool, assigned, queued, found)
    notes = dict.fromkeys((*elastic.notes, *session.unknown, *nodes.notes))
    return PodPlan(found, elastic, reason, tuple(notes))


def _quota_of(elastic: Elastic, pod: Pod) -> ElasticQuota:
    if pod.is_assigned:
        raise NotPlannedError(f"pod {pod.key} is on node {pod.node_name} already")
    if is_terminal(pod) or pod.is_deleting:
        raise NotPlannedError(f"pod {pod.key} is ending")
    quota = elastic.quota_of(pod.namespace)
    if quota is None:
        raise NotPlannedError(f"namespace {pod.namespace} has no elastic quota that counts")
    return quota


@dataclass(frozen=True, slots=True)
class _Held:
    """A pod without a node for which quota is held."""

    pod: ElasticPod
    raw: Object
    is_promised: bool
    """Whether that is promised and not reserved yet."""


def _unassigned(session: Session, elastic: Elastic, pool: Pool) -> dict[str, _Held]:
    """Return the pods of a pool for which quota is held and that have no node, by uid."""
    promised = {
        promise.text("uid")
        for raw in session.readable(CLUSTER_DEFERRED_QUOTAS) or ()
        for promise in FieldReader(raw).child("status").children("promises")
    }
    released = set(_released(session, pool))
    what = "pods for which quota is held"
    uids = promised | released
    waiting = session.readable(PODS, what, field_selector="spec.nodeName=") if uids else ()
    found = {}
    for raw in waiting or ():
        namespace = object_namespace(raw)
        if _uid(raw) in uids and namespace in pool.quota_of:
            quota = pool.quotas[pool.quota_of[namespace]]
            held = elastic_pod(Pod.from_stored(raw), raw, quota, elastic.gb_per_gpu, elastic.now)
            found[held.uid] = _Held(replace(held, is_exempt=True), raw, held.uid not in released)
    return found


def _released(session: Session, pool: Pool) -> Iterator[str]:
    """Yield the uids of pods of a pool for which quota is reserved since their release."""
    for raw in session.readable(QUOTA_LEDGERS, "quota ledgers") or ():
        namespace = object_namespace(raw)
        if namespace in pool.quota_of and name_of(raw) == f"{namespace}/{LEDGER_NAME}":
            what = f"the ledger of namespace {namespace}"
            ledger = session.read(lambda raw=raw: read_ledger(raw).ledger, None, what)  # type: ignore[misc]
            for uid, one in ({} if ledger is None else ledger.reservations).items():
                if one.source is ReservationSource.RELEASE and not one.is_intent:
                    yield uid


def _budgets(session: Session, elastic: Elastic) -> DisruptionBudgets:
    raws = _by_namespace(session.readable(POD_DISRUPTION_BUDGETS) or ())
    pods = _by_namespace(elastic.raws if raws else ())

    def of_namespace(namespace: str) -> NamespaceBudgets:
        metadata = (FieldReader(raw).child("metadata") for raw in pods.get(namespace, ()))
        labelled = (
            (one.text("uid") or f"{namespace}/{one.text('name')}", one.string_map("labels"))
            for one in metadata
        )
        return protect(read_budgets(raws.get(namespace, ())), labelled)

    return DisruptionBudgets(of_namespace)


def _by_namespace(raws: Iterable[Object]) -> Mapping[str, list[Object]]:
    found: dict[str, list[Object]] = {}
    for raw in raws:
        found.setdefault(object_namespace(raw), []).append(raw)
    return found


def _pod_groups(session: Session) -> PodGroups:
    none: tuple[Object, ...] = ()

    def of_namespace(namespace: str) -> tuple[Object, ...]:
        groups = of_newest_version(
            POD_GROUPS, lambda kind: session.objects(kind, namespace=namespace)
        )
        return session.read(lambda: tuple(groups), none, POD_GROUPS[0].plural)

    return PodGroups(of_namespace)


class _Nodes:
    """The nodes of the cluster, as a plan would leave them."""

    def __init__(
        self, session: Session, elastic: Elastic, raw: Object, promised: Iterable[Object]
    ) -> None:
        nodes = session.readable(NODES)
        self._raw, self._elastic = raw, elastic
        namespace = object_namespace(raw)
        self._view = judged_view(session, raw, namespace, nodes) if nodes else None
        self.notes: list[str] = []
        if self._view is None:
            self.notes.append("nodes are not known: whether one has room is not judged")
        keys = Counter(filter(None, map(placement_key, promised)))
        self._beside = self._room_beside(self._view, keys) if self._view and keys else None

    def _room_beside(self, view: NodeView, unassigned: Mapping[bytes, int]) -> NodeRoom:
        """Return the room beside pods that have no node yet, as the controller judges it."""
        stay = [one for one in self._elastic.raws if _uid(one) not in self._elastic.ending]
        placed = [
            PlacedPod(_uid(one), node.name, requested_of(one))
            for node in replace(view, pods=stay).infos
            for one in node.pods
        ]
        return NodeRoom(self._raw, view.nodes, placed, unassigned)

    def have_room(self, taken: Iterable[ElasticPod]) -> bool:
        """Return whether some node has room once pods are gone; true where it is not known."""
        if self._view is None:
            return True
        gone = {pod.uid for pod in taken} | self._elastic.ending
        if self._beside is not None and not self._beside.after(gone).fits:
            return False
        kept = [one for one in self._elastic.raws if _uid(one) not in gone]
        devices = unoffered(PendingPod.from_object(self._raw).amounts, self._view.infos)
        view: NodeView = replace(self._view, pods=kept, devices=devices)
        verdicts = judge_nodes(self._raw, view)
        for name in verdicts.unknown:
            note = f"{name} are not judged: they may keep the pod from nodes"
            if note not in self.notes:
                self.notes.append(note)
        return bool(verdicts.fits)


def _uid(raw: Object) -> str:
    metadata = FieldReader(raw).child("metadata")
    key = f"{metadata.text('namespace')}/{metadata.text('name')}"
    return metadata.text("uid") or key


def _reason(
    pool: Pool, assigned: Mapping[str, Sequence[ElasticPod]], queued: Queued, found: Plan
) -> str:
    """Return what is in the way, as a denied bind says it, and what the plan does about it."""
    usage = {
        key: {
            name: sum(pod.amounts.get(name, 0) for pod in pods) for name in pool.quotas[key].names
        }
        for key, pods in assigned.items()
    }
    parts = [
        *_beyond_max(pool.quotas[queued.quota], usage, queued, found.shortage.beyond_max),
        *_beyond_pool(pool, usage, queued, found.shortage.beyond_pool),
    ]
    if found.obstacle:
        parts.append(found.obstacle)
    return "; ".join(parts) or "it fits its quota and the pool: nothing has to be evicted"


def _beyond_max(
    quota: ElasticQuota, usage: Usage, queued: Queued, names: Sequence[str]
) -> Iterator[str]:
    if names:
        yield (
            f"exceeded elastic quota: {quota.account},"
            f" requested: {_text(quota, queued.pod.amounts, names)},"
            f" used: {_text(quota, usage[quota.key], names)},"
            f" max: {render({name: quota.max[name] for name in names})}"
        )


def _beyond_pool(pool: Pool, usage: Usage, queued: Queued, names: Sequence[str]) -> Iterator[str]:
    if not names:
        return
    quota = pool.quotas[queued.quota]
    used = {name: sum(one.get(name, 0) for one in usage.values()) for name in names}
    size = {name: pool.size(name) for name in names}
    yield (
        f"elastic pool {pool.name} is used up,"
        f" requested: {_text(quota, queued.pod.amounts, names)},"
        f" used: {_text(quota, used, names)}, size: {_text(quota, size, names)}"
    )
    borrowed = ", ".join(
        f"{_full_name(pool.quotas[key])} {_text(pool.quotas[key], {name: amount}, [name])}"
        for name in names
        for key, amount in pool.borrowed(name, usage).items()
        if amount
    )
    if borrowed:
        yield f"borrowed: {borrowed}"


def _full_name(quota: ElasticQuota) -> str:
    """Return a name that no quota of another namespace has: `eq/NAMESPACE/NAME`."""
    return f"{quota.account.partition('/')[0]}/{quota.namespace}/{quota.name}"


def amounts_of(quota: ElasticQuota, amounts: Nanos) -> ResourceList:
    """Return amounts as quantities, in the format of what the quota names."""
    named = {**quota.min, **quota.max}
    return {
        name: Quantity.of_nano(amount, named[name].format)
        if name in named
        else Quantity.of_nano(amount)
        for name, amount in amounts.items()
    }


def _text(quota: ElasticQuota, amounts: Nanos, names: Iterable[str]) -> str:
    return render(amounts_of(quota, {name: amounts.get(name, 0) for name in names}))
