"""Fast path: whether a new pod may be created without our scheduling gate.

An ungated pod goes to the scheduler at once and is charged at its bind, like any other. Nothing is
reserved for it, so it is ungated only while there is plenty: all pods without gate and node, itself
included, take no more than half of what is free. The last of a quota always goes to the first pod
of the queue. Queued pods are no reason to gate a new one while there is room for them too, as if
they were in flight; where there is not, it overtakes none that it would queue behind. A decision by
an old view admits at worst a pod whose bind is denied.
"""

from __future__ import annotations

from dataclasses import replace

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, add
from webhook.quota.ledger.ledger import EMPTY, Ledger, exceeded_quotas
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, to_queued_pod


def can_skip_gate(
    newcomer: QueuedPod,
    terms: QueueCriteria,
    ledger: Ledger | None,
    underway: ResourceList,
    waiting: ResourceList = EMPTY,
) -> bool:
    """Return whether there is room for a new pod to be created without our gate.

    Args:
        newcomer: The pod, which has no node, as the queue would judge it.
        terms: What its namespace's pods are judged by.
        ledger: The namespace's ledger as last known; None when there is none.
        underway: Usage of the pods that have no gate and no node yet.
        waiting: Usage of the queued pods that are before it. There has to be room for all of it,
            also for resources that the pod does not request: a pod that lacks them may block
            others that request no more than this one.

    Both may include pods that share no quota with this one.
    """
    if newcomer.pod.is_gated or ledger is None or not _has_counted(ledger, terms):
        return False
    claim = newcomer.claim
    if newcomer.blocker is not None or claim is None:
        return False
    if any(name.startswith(SHARED_PREFIX) for name in claim.quotas):
        return False  # others take of it too
    asked = claim.usage
    # queued pods may name any number of resources: of those that no quota limits nothing is taken
    limited = {key for account in ledger.accounts.values() for key in account.hard}
    before = add(asked, {key: waiting[key] for key in limited if key in waiting})
    beside = {name: underway.get(name, ZERO) for name, amount in before.items() if amount > ZERO}
    once = add(before, beside)
    return not exceeded_quotas(ledger, replace(claim, uid="", usage=add(once, once)))


def is_ahead_of(waiting: Pod, newcomer: QueuedPod, gate: str, terms: QueueCriteria) -> bool:
    """Return whether a gated pod is ahead of a new one.

    It is not while it waits for something other than room, nor if they share no quota.
    """
    first = to_queued_pod(waiting, gate, since=0, terms=terms)
    return first.is_waiting_for_quota and not set(first.quotas).isdisjoint(newcomer.quotas)


def _has_counted(ledger: Ledger, terms: QueueCriteria) -> bool:
    """Return whether the ledger has counted the very quotas that the pod is judged by."""
    counted = {account.observed for account in ledger.accounts.values()}
    return counted == terms.quotas.observed
