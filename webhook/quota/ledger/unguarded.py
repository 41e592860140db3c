"""Notice a pod that got its node although nothing was reserved for it.

A handler writes its claim before storage gives a pod its node. So the ledger over which a count is
written that has the pod for the first time holds the pod's reservation, unless no handler was
called. The pod is counted all the same; what is lost is that it could have been refused.

That holds only where it is sure that a handler would have claimed: see `is_watched`. Whatever
leaves a doubt is not reported.
"""

from __future__ import annotations

from webhook.quota.ledger.apply_usage import ObservedPod
from webhook.quota.ledger.ledger import Ledger


def is_watched(former: Ledger | None, following: Ledger) -> bool:
    """Return whether handlers claim for all that is counted by both of two ledgers in a row.

    They do not for what no quota limited when they were asked. So both have to count the very same
    quotas, and at least one.
    """
    return former is not None and bool(former.accounts) and former.observed == following.observed


def is_unguarded(uid: str, pod: ObservedPod | None, ledger: Ledger) -> bool:
    """Return whether a pod that was just given its node takes what the ledger was not asked for.

    Args:
        uid: The pod's uid.
        pod: The pod as it is counted now; None when it is gone.
        ledger: The ledger that was written over.
    """
    if uid in ledger.reservations or pod is None or not (pod.is_assigned and pod.is_live):
        return False
    accounts = [ledger.accounts[name] for name in pod.quotas if name in ledger.accounts]
    return any(
        amount.sign > 0 and resource in account.hard
        for account in accounts
        for resource, amount in pod.usage.items()
    )
