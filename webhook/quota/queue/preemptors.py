"""Bound on released pods that may preempt others: without a node they take no more than a quota.

A gate cannot be put back. A released pod that no node takes loses what is reserved for it, and the
next one is released. When that comes which all of them wait for, such as a volume, a scheduler
evicts pods of lower priority for each of them, of other namespaces too, and the quota admits a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    add,
    add_to,
    mask,
    remove_zeros,
    render,
    take_from,
)
from webhook.quota.charging.denials import QuotaName, name_quota
from webhook.quota.ledger.ledger import EMPTY
from webhook.quota.queue.queued_pods import Blocker, PendingReason, QueueCriteria, QueuedPod


@dataclass(frozen=True, slots=True)
class UnboundPreemptors:
    """Pods without a gate and a node for which others may be evicted, and what they take."""

    usage: Mapping[str, ResourceList] = field(default_factory=dict)
    """Quota → what they take of it, whether it is reserved for them or not."""
    limits: Mapping[str, ResourceList] = field(default_factory=dict)
    """Quota → its limits: of one that namespaces share all of it."""

    def with_released(self, released: Iterable[QueuedPod]) -> UnboundPreemptors:
        """Return these and those whose gate is about to go.

        Where there are none yet, the latter have no bound but that of what is reserved for them.
        """
        if not self.usage:
            return self
        usage = {**self.usage}
        for queued in released:
            if queued.claim is not None and queued.is_gated and queued.pod.may_preempt:
                for name in queued.claim.quotas:
                    usage[name] = add(usage.get(name, EMPTY), queued.claim.usage)
        return replace(self, usage=usage)

    def blocker(self, queued: QueuedPod) -> Blocker | None:
        """Return why a pod cannot be released beside them; None where it can."""
        claim = queued.claim
        if not self.usage or claim is None or not (queued.is_gated and queued.pod.may_preempt):
            return None
        for name in claim.quotas:
            taken, limits = self.usage.get(name, EMPTY), self.limits.get(name, EMPTY)
            keys = [
                key
                for key, amount in claim.usage.items()
                if amount > ZERO and key in taken and key in limits
                if taken[key] + amount > limits[key]
            ]
            if keys:
                amounts = [mask(each, keys) for each in (claim.usage, taken, limits)]
                text = _text(name_quota(name), *amounts)
                return Blocker(PendingReason.PREEMPTORS_UNBOUND, text, quota=name)
        return None


NO_PREEMPTORS: Final = UnboundPreemptors()


class PreemptorUsage:
    """What pods without a gate and a node take for which others may be evicted.

    One that never fits is left out: others would wait for as long as it stands. Not safe to use
    from several threads.
    """

    def __init__(self) -> None:
        self._usage: dict[str, dict[str, Quantity]] = {}
        self._pods: Counter[str] = Counter()
        """Quota → how many of them take of it, if only zero."""

    def add(self, queued: QueuedPod) -> None:
        """Add what a pod without a gate and a node takes."""
        for name, claimed in _taken(queued):
            self._pods[name] += 1
            add_to(self._usage.setdefault(name, {}), claimed)

    def remove(self, queued: QueuedPod) -> None:
        """Take out what was added for a pod, judged as it was then."""
        for name, claimed in _taken(queued):
            self._pods[name] -= 1
            take_from(self._usage[name], claimed)
            if not self._pods[name]:
                del self._pods[name], self._usage[name]

    def unbound(self, terms: QueueCriteria) -> UnboundPreemptors:
        """Return them as they are now.

        Args:
            terms: What they were judged by.
        """
        usage = {name: remove_zeros(amounts) for name, amounts in self._usage.items()}
        return UnboundPreemptors(usage, {one.name: one.hard for one in terms.quotas.quotas})


def _taken(queued: QueuedPod) -> list[tuple[str, ResourceList]]:
    never = queued.blocker is not None and queued.blocker.reason is PendingReason.NEVER_FITS
    if queued.claim is None or never or not queued.pod.may_preempt:
        return []
    return [(name, queued.claim.usage) for name in queued.claim.quotas]


def unbound_preemptors(in_flight: Iterable[QueuedPod], terms: QueueCriteria) -> UnboundPreemptors:
    """Return those of the pods in flight for which others may be evicted.

    Args:
        in_flight: Pods without a gate and a node.
        terms: What they were judged by.
    """
    total = PreemptorUsage()
    for queued in in_flight:
        total.add(queued)
    return total.unbound(terms)


def _text(
    quota: QuotaName, requested: ResourceList, taken: ResourceList, limits: ResourceList
) -> str:
    asked, without_node, limited = (
        render({quota.resource(key): amount for key, amount in each.items()})
        for each in (requested, taken, limits)
    )
    return (
        f"released pods that may preempt others have no node yet, and leave too little of"
        f" {quota.text} for one more of them: requested: {asked}, without a node: {without_node},"
        f" {quota.limit}: {limited}"
    )
