"""The queue of a namespace as its controller would run it now, and where one pod stands in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from webhook.quota.charging.deferral import DeferredQuota
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.elastic.owners_first import Lacking, owners_first, waiting_for_pools
from webhook.quota.explaining.facts import NamespaceFacts, PodFacts
from webhook.quota.ledger.ledger import Ledger, exceeded_quotas
from webhook.quota.queue.preemptors import unbound_preemptors
from webhook.quota.queue.queued_pods import (
    Blocker,
    CycleResult,
    PendingReason,
    PendingStatus,
    QueueCriteria,
    QueuedPod,
    blockers,
    is_in_flight,
    is_queued,
    to_queued_pod,
    with_pods_ahead,
    with_retried,
)
from webhook.quota.queue.release_order import release_limit, run_cycle


@dataclass(frozen=True, slots=True)
class QueueState:
    """One pod in the queue of its namespace."""

    queued: QueuedPod
    status: PendingStatus | None
    """Why it is not released; None where it is, or where it is not gated."""
    blockers: tuple[Blocker, ...]
    """Everything that keeps it whatever is used."""
    denials: tuple[QuotaExceeded, ...]
    """Every quota that it exceeds, the one that it waits for first."""
    total: int
    """How many pods have a place."""
    holder: QueuedPod | None
    """The pod that it waits behind."""
    holder_denials: tuple[QuotaExceeded, ...]
    ahead: tuple[QueuedPod, ...]
    """Pods that wait for room before it and share a quota with it."""
    ledger: Ledger | None
    """The ledger after the cycle."""
    is_reserved: bool


def queue_state(subject: PodFacts, there: NamespaceFacts, criteria: QueueCriteria) -> QueueState:
    """Run the queue of a namespace and return where a pod stands."""
    judged = {one.pod.uid: _judged(one, there, criteria) for one in there.pods}
    queue = _queue(there, judged)
    ledger = there.ledger
    cycle = _cycle(queue, there, criteria, judged)
    pod = subject.pod
    queued = judged.get(pod.uid) or _judged(subject, there, criteria)
    status = cycle.pending.get(pod.uid)
    by_name = {one.pod.name: one for one in queue if one.uid in cycle.pending}
    holder = by_name.get(status.blocked_by) if status is not None else None
    return QueueState(
        queued=queued,
        status=status,
        blockers=_blockers(queued, there, criteria),
        denials=_denials(queued, status, cycle.ledger),
        total=max((one.position for one in cycle.pending.values()), default=0),
        holder=holder,
        holder_denials=() if holder is None else cycle.pending[holder.uid].denials,
        ahead=tuple(_ahead(queued, queue, cycle.pending)),
        ledger=cycle.ledger,
        is_reserved=ledger is not None and ledger.is_reserved(pod.uid),
    )


def waits_for_pools(there: NamespaceFacts) -> tuple[Lacking, ...]:
    """Return what pods of a namespace lack that wait for elastic pools alone."""
    cycle = run_queue(there)
    return () if cycle is None else waiting_for_pools(cycle.pending.values())


def run_queue(there: NamespaceFacts) -> CycleResult | None:
    """Run the queue of a namespace; None where it is not deferred."""
    if there.criteria is None:
        return None
    judged = {one.pod.uid: _judged(one, there, there.criteria) for one in there.pods}
    return _cycle(_queue(there, judged), there, there.criteria, judged)


def _cycle(
    queue: tuple[QueuedPod, ...],
    there: NamespaceFacts,
    criteria: QueueCriteria,
    judged: Mapping[str, QueuedPod],
) -> CycleResult:
    in_flight = [one for one in judged.values() if is_in_flight(one.pod)]
    return run_cycle(
        there.ledger,
        queue,
        criteria.rules,
        room=release_limit(there.ledger, queue, there.max_reservations),
        history=there.history(),
        preemptors=unbound_preemptors(in_flight, criteria),
    )


def _judged(one: PodFacts, there: NamespaceFacts, criteria: QueueCriteria) -> QueuedPod:
    return to_queued_pod(one.pod, there.gate, since=one.arrival, terms=criteria)


def _queue(there: NamespaceFacts, judged: Mapping[str, QueuedPod]) -> tuple[QueuedPod, ...]:
    pods = [one.pod for one in there.pods]
    gated = [judged[pod.uid] for pod in pods if is_queued(pod, there.gate)]
    queue = tuple(sorted(gated, key=lambda one: one.sort_key))
    ahead = [one.pod for one in there.pods if is_in_flight(one.pod) and there.keeps_room_for(one)]
    if ahead:
        queue = with_pods_ahead(queue, [judged[pod.uid] for pod in ahead])
    refused = [judged[pod.uid] for pod in pods if is_in_flight(pod) and pod.is_bind_refused]
    queue = with_retried(queue, refused)
    if there.ledger is None or not there.shares:
        return queue
    return owners_first(queue, there.shares, there.ledger.reserved_uids)


def _blockers(
    queued: QueuedPod, there: NamespaceFacts, criteria: QueueCriteria
) -> tuple[Blocker, ...]:
    try:
        applying: Sequence[DeferredQuota] = criteria.quotas.applying_to(queued.pod)
        return tuple(blockers(queued.pod, there.gate, applying, queued.claim, criteria))
    except ScopeError as err:
        return (Blocker(PendingReason.NOT_COUNTED, str(err)),)


def _denials(
    queued: QueuedPod, status: PendingStatus | None, ledger: Ledger | None
) -> tuple[QuotaExceeded, ...]:
    if status is not None:
        return status.denials
    if queued.is_gated or queued.next_claim is None or ledger is None:
        return ()
    return exceeded_quotas(ledger, queued.next_claim)


def _ahead(
    queued: QueuedPod, queue: Sequence[QueuedPod], pending: Mapping[str, PendingStatus]
) -> list[QueuedPod]:
    quotas = set(queued.quotas)
    return [
        one
        for one in queue
        if one.sort_key < queued.sort_key
        and (status := pending.get(one.uid)) is not None
        and status.position
        and not quotas.isdisjoint(one.quotas)
    ]
