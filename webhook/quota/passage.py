"""Which new pods need no scheduling gate, because nobody waits and there is room.

A pod without a gate goes to the scheduler at once and is charged at its bind, like any other. What
is promised to nobody is only safe to hand out twice as long as there is plenty: so a pod passes
while all that is on its way takes no more than half of what is free, itself included. The last of
a quota always goes to whoever is first in the line. A decision that rests on an old view lets at
worst a pod through that its bind refuses.
"""

from __future__ import annotations

from dataclasses import replace

from webhook.quota.cluster_quotas import PREFIX
from webhook.quota.deferral import DeferredQuota
from webhook.quota.ledger import Ledger, exceeded
from webhook.quota.line import Terms, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.quantity import ZERO
from webhook.quota.resources import ResourceList, add


def may_pass(pod: Pod, terms: Terms, ledger: Ledger | None, underway: ResourceList) -> bool:
    """Say whether a new pod may be created without our gate, if nobody waits.

    Args:
        pod: The pod, which has no node.
        terms: What its namespace's pods are judged by.
        ledger: The namespace's ledger as last known; None when there is none.
        underway: What pods take that have no gate and no node yet. Those that it is not about may
            be among them.
    """
    if ledger is None or pod.is_gated:
        return False
    waiter = waiter_of(pod, "", since=0, terms=terms)
    claim = waiter.claim
    if waiter.hindrance is not None or claim is None:
        return False
    if not all(_is_known(quota, ledger) for quota in terms.quotas.quotas):
        return False
    asked = claim.usage
    beside = {name: underway.get(name, ZERO) for name, amount in asked.items() if amount > ZERO}
    once = add(asked, beside)
    return not exceeded(ledger, replace(claim, usage=add(once, once)))


def _is_known(quota: DeferredQuota, ledger: Ledger) -> bool:
    """Say whether a quota was counted as it is now, and is the namespace's own."""
    account = ledger.accounts.get(quota.name)
    is_counted = account is not None and account.observed == quota.observed
    return is_counted and not quota.name.startswith(PREFIX)
