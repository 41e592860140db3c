"""Which new pods need no scheduling gate, because there is room and nobody is kept waiting by them.

A pod without a gate goes to the scheduler at once and is charged at its bind, like any other. What
is promised to nobody is only safe to hand out twice as long as there is plenty: so a pod passes
while all that has no gate and no node, itself included, takes no more than half of what is free.
The last of a quota always goes to whoever is first in the line. Those that wait are no reason to
wait while there is room for them too, as if they were on their way. Where there is not, a pod
passes none that it would stand behind. A decision that rests on an old view lets at worst a pod
through that its bind refuses.
"""

from __future__ import annotations

from dataclasses import replace

from webhook.quota.cluster_quotas import PREFIX
from webhook.quota.ledger import NOTHING, Ledger, exceeded
from webhook.quota.line import Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.quantity import ZERO
from webhook.quota.resources import ResourceList, add


def may_pass(
    newcomer: Waiter,
    terms: Terms,
    ledger: Ledger | None,
    underway: ResourceList,
    waiting: ResourceList = NOTHING,
) -> bool:
    """Say whether there is room for a new pod to be created without our gate.

    Args:
        newcomer: The pod, which has no node, as the line would judge it.
        terms: What its namespace's pods are judged by.
        ledger: The namespace's ledger as last known; None when there is none.
        underway: What pods take that have no gate and no node yet.
        waiting: What those take that are to come before it out of the line. There has to be room
            for all of it, also where the pod asks for none: what one of them lacks may keep others
            waiting that ask for no more than this pod.

    Pods that no quota of this one is about may be among both.
    """
    if newcomer.pod.is_gated or ledger is None or not _has_counted(ledger, terms):
        return False
    claim = newcomer.claim
    if newcomer.hindrance is not None or claim is None:
        return False
    if any(name.startswith(PREFIX) for name in claim.quotas):
        return False  # others take of it too
    asked = claim.usage
    before = add(asked, waiting)
    beside = {name: underway.get(name, ZERO) for name, amount in before.items() if amount > ZERO}
    once = add(before, beside)
    return not exceeded(ledger, replace(claim, uid="", usage=add(once, once)))


def stands_before(waiting: Pod, newcomer: Waiter, gate: str, terms: Terms) -> bool:
    """Say whether a pod that waits behind our gate has to be waited for by a new one.

    It has not while it waits for something else than room, nor if no quota is about both.
    """
    first = waiter_of(waiting, gate, since=0, terms=terms)
    return first.waits_for_room and not set(first.quotas).isdisjoint(newcomer.quotas)


def _has_counted(ledger: Ledger, terms: Terms) -> bool:
    """Say whether the ledger has counted the very quotas that the pod is judged by."""
    counted = {account.observed for account in ledger.accounts.values()}
    return counted == terms.quotas.observed
