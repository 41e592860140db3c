"""The charge at the bind: the ledger of one namespace and, where pods are gated, its queue.

Everything is counted at once: what is bound is in `used` before anything else happens.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add, mask, subtract
from webhook.quota.ledger.apply_usage import (
    CountedQuota,
    Expiry,
    ObservedPod,
    UsageCount,
    apply_usage,
)
from webhook.quota.ledger.ledger import (
    EMPTY,
    NEWEST,
    Claim,
    Denied,
    Ledger,
    ReservationSource,
    Undecided,
    admit,
)
from webhook.quota.ledger.ledger_room import release_room
from webhook.quota.queue.queued_pods import (
    CycleResult,
    PendingReason,
    QueueCriteria,
    QueuedPod,
    QueueingStrategy,
    SortKey,
    WaitHistory,
    to_queued_pod,
)
from webhook.quota.queue.release_order import run_cycle
from webhook.quota.simulation.values import Arrival, PodTemplate

_Operation: TypeAlias = Callable[[ResourceList, ResourceList], ResourceList]
_Quotas: TypeAlias = tuple[str, ...]

_FIRST_LOOK: Final = 4
_AT_CREATION: Final = frozenset({PendingReason.NOT_COVERED, PendingReason.MUST_SPECIFY})
"""Rules by which a pod is refused when it is created."""


@dataclass(slots=True)
class _Pod:
    """A pod with a claim."""

    arrival: Arrival
    claim: Claim
    is_bound: bool = False


class DeferredCharging:
    """Quotas of one namespace as they are enforced at the bind.

    Args:
        criteria: What its pods are judged by.
        gate: The scheduling gate.
        max_reservations: How many there may be.
    """

    def __init__(self, criteria: QueueCriteria, gate: str, max_reservations: int) -> None:
        self._criteria = criteria
        self._gate = gate
        self._max_reservations = max_reservations
        self._judged: dict[PodTemplate, QueuedPod] = {}
        self._pods: dict[str, _Pod] = {}
        self._used: dict[str, ResourceList] = {
            quota.name: dict.fromkeys(quota.hard, ZERO) for quota in criteria.quotas.quotas
        }
        self._queues: dict[_Quotas, list[QueuedPod]] = {}
        """Queued pods by the quotas that they are about, each in order."""
        self._waits: dict[str, tuple[int, int]] = {}
        self.changes = 0
        """How often something was charged or given back; the version of what is counted."""
        self._ledger = apply_usage(None, self._count()) or Ledger({}, {})

    @property
    def ledger(self) -> Ledger:
        """The ledger as it is now."""
        return self._ledger

    def refusal_at_creation(self, arrival: Arrival) -> str:
        """Return by which rule a new pod is refused, whatever is used; empty if it is not."""
        blocker = self._judge(arrival.template).blocker
        return blocker.detail if blocker and blocker.reason in _AT_CREATION else ""

    def needs_gate(self, arrival: Arrival) -> bool:
        """Return whether a new pod has to wait for its reservation."""
        return self._judge(arrival.template).needs_gate

    def enqueue(self, arrival: Arrival, sequence: int) -> None:
        """Put a gated pod into its place."""
        judged = self._judge(arrival.template)
        priority, created, _, _ = judged.sort_key
        queued = replace(
            judged,
            pod=replace(judged.pod, name=arrival.name, uid=arrival.key),
            claim=replace(self._pod(arrival).claim, source=ReservationSource.RELEASE),
            sort_key=(priority, created, sequence, arrival.key),
        )
        insort(self._queues.setdefault(queued.quotas, []), queued, key=_sort_key)

    def bind(self, arrival: Arrival) -> str:
        """Charge a pod that is given a node; return the refusal, if it is refused."""
        if self._criteria.unreadable:
            return self._criteria.unreadable[0]
        pod = self._pod(arrival)
        if not pod.claim.quotas:
            return ""
        self._ledger, verdict = admit(self._ledger, pod.claim)
        if isinstance(verdict, Denied):
            return verdict.denial.message
        assert not isinstance(verdict, Undecided)  # noqa: S101 - every view is of this moment
        pod.is_bound = True
        self._sum(pod, add)
        self._settle()
        return ""

    def end(self, arrival: Arrival) -> None:
        """Charge a bound pod no more."""
        pod = self._pods.pop(arrival.key, None)
        if pod is not None and pod.is_bound:
            self._sum(pod, subtract)
            self._settle()

    def withdraw(self, arrival: Arrival) -> None:
        """Forget a pod that is not bound: it neither waits nor holds anything any more."""
        quotas = self._judge(arrival.template).quotas
        queue = self._queues.get(quotas, [])
        for queued in [one for one in queue if one.uid == arrival.key]:
            self._dequeue(queued)
        if self.is_reserved(arrival):
            self.expire(arrival)
        self._pods.pop(arrival.key, None)

    def expire(self, arrival: Arrival) -> None:
        """Give up the reservation of a pod that is not bound."""
        reservation = self._ledger.reservations[arrival.key]
        self._settle({arrival.key: Expiry(reservation.serial, self.changes)})

    def is_reserved(self, arrival: Arrival) -> bool:
        """Return whether something is reserved for a pod."""
        return arrival.key in self._ledger.reservations

    def run_queue(self, now: int) -> list[Arrival]:
        """Reserve for the queued pods that fit; return them in their order."""
        if not self._queues:
            return []
        cycle = self._run_cycle(now)
        if cycle.ledger is not None:
            self._ledger = cycle.ledger
        self.changes += bool(cycle.released)
        for queued in cycle.released:
            self._dequeue(queued)
        return [self._pods[queued.uid].arrival for queued in cycle.released]

    def _dequeue(self, queued: QueuedPod) -> None:
        queue = self._queues[queued.quotas]
        del queue[bisect_left(queue, queued.sort_key, key=_sort_key)]
        if not queue:
            del self._queues[queued.quotas]
        self._waits.pop(queued.uid, None)

    def _run_cycle(self, now: int) -> CycleResult:
        if self._criteria.rules.order is QueueingStrategy.STRICT:
            return self._run_strict()
        history = {
            uid: WaitHistory(overtaken, (now - since) / 1000)
            for uid, (since, overtaken) in self._waits.items()
        }
        cycle = self._run(self._queues.values(), history)
        self._waits = {
            uid: (self._waits.get(uid, (now, 0))[0], cycle.overtaken.get(uid, 0))
            for uid, pending in cycle.pending.items()
            if pending.position or uid in self._waits
        }
        return cycle

    def _run_strict(self) -> CycleResult:
        """Run the queue with no more of it than what can be released.

        Behind a pod that holds a quota, all that are about the quota wait.
        """
        looks = dict.fromkeys(self._queues, _FIRST_LOOK)
        while True:
            cycle = self._run([queue[: looks[name]] for name, queue in self._queues.items()], {})
            left = [
                quotas
                for quotas, queue in self._queues.items()
                if looks[quotas] < len(queue)
                and not _is_held(quotas, queue[looks[quotas]].sort_key, cycle)
            ]
            if not left:
                return cycle
            looks.update({quotas: 2 * looks[quotas] for quotas in left})

    def _run(
        self, queues: Iterable[list[QueuedPod]], history: Mapping[str, WaitHistory]
    ) -> CycleResult:
        return run_cycle(
            self._ledger,
            heapq.merge(*queues, key=_sort_key),
            self._criteria.rules,
            room=release_room(self._ledger, self._max_reservations),
            history=history,
        )

    def _pod(self, arrival: Arrival) -> _Pod:
        pod = self._pods.get(arrival.key)
        if pod is None:
            template = self._judge(arrival.template).claim
            claim = Claim(
                arrival.key,
                arrival.name,
                ReservationSource.BIND,
                EMPTY if template is None else template.usage,
                () if template is None else template.quotas,
                observed_version=NEWEST,
            )
            pod = self._pods[arrival.key] = _Pod(arrival, claim)
        return pod

    def _judge(self, template: PodTemplate) -> QueuedPod:
        judged = self._judged.get(template)
        if judged is None:
            gated = replace(
                template.pod, scheduling_gates=(*template.pod.scheduling_gates, self._gate)
            )
            judged = to_queued_pod(gated, self._gate, since=0, terms=self._criteria)
            self._judged[template] = judged
        return judged

    def _sum(self, pod: _Pod, operation: _Operation) -> None:
        for name in pod.claim.quotas:
            used = self._used[name]
            self._used[name] = operation(used, mask(pod.claim.usage, used))

    def _settle(self, expired: Mapping[str, Expiry] | None = None) -> None:
        self.changes += 1
        following = apply_usage(self._ledger, self._count(), expired=expired or {})
        assert following is not None  # noqa: S101 - every count is newer than the last
        self._ledger = following

    def _count(self) -> UsageCount:
        """Count the pods of the namespace: what is used is summed as pods come and go."""
        reserved = self._ledger.reservations if self.changes else ()
        return UsageCount(
            self.changes,
            {
                quota.name: CountedQuota(quota.observed, quota.hard, self._used[quota.name])
                for quota in self._criteria.quotas.quotas
            },
            {uid: self._observed(self._pods[uid]) for uid in reserved if uid in self._pods},
        )

    def _observed(self, pod: _Pod) -> ObservedPod:
        return ObservedPod(
            self.changes,
            is_assigned=pod.is_bound,
            is_live=True,
            usage=pod.claim.usage,
            quotas=frozenset(pod.claim.quotas),
        )


def _is_held(quotas: _Quotas, place: SortKey, cycle: CycleResult) -> bool:
    """Return whether a pod at this place waits behind another, whatever it asks for."""
    return any(name in cycle.blocking and cycle.blocking[name] < place for name in quotas)


def _sort_key(queued: QueuedPod) -> SortKey:
    return queued.sort_key
