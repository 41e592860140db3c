"""Bound on released pods that may preempt others: without a node they take no more than a quota.

A gate cannot be put back. A released pod that no node takes loses what is reserved for it, and the
next one is released. When that comes which all of them wait for, such as a volume, a scheduler
evicts pods of lower priority for each of them, of other namespaces too, and the quota admits a few.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, add_to, mask, render
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


def unbound_preemptors(in_flight: Iterable[QueuedPod], terms: QueueCriteria) -> UnboundPreemptors:
    """Return those of the pods in flight for which others may be evicted.

    One that never fits is left out: others would wait for as long as it stands.

    Args:
        in_flight: Pods without a gate and a node.
        terms: What they were judged by.
    """
    usage: dict[str, dict[str, Quantity]] = {}
    for queued in in_flight:
        never = queued.blocker is not None and queued.blocker.reason is PendingReason.NEVER_FITS
        if queued.claim is not None and queued.pod.may_preempt and not never:
            for name in queued.claim.quotas:
                add_to(usage.setdefault(name, {}), queued.claim.usage)
    return UnboundPreemptors(usage, {one.name: one.hard for one in terms.quotas.quotas})


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
