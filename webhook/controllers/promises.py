"""What is promised to pods that wait: who may go soon, and how long a promise is kept."""

from __future__ import annotations

import math
from typing import Final

from webhook.controllers.tracked import Tracked
from webhook.quota.ledger import Door, Reservation, exceeded

_UNTRIED_TIMES: Final = 10
"""How much longer a pod is waited for that no scheduler has tried than one that no node takes."""


def kept_until(tracked: Tracked | None, one: Reservation, give_up_seconds: float) -> float:
    """Return until when a reservation is kept at least; minus infinity for one of a request.

    One that released a pod is kept while the pod has our gate or may get a node, so for ever as
    far as is known now, and for `give_up_seconds` more once the scheduler finds none for it. A pod
    that no scheduler says anything of, because there is none for it, is waited for longer.
    Needs no lock.
    """
    pod = None if tracked is None else tracked.count.pod(one.uid)
    if one.door is not Door.RELEASE or tracked is None or tracked.is_leaving or pod is None:
        return -math.inf
    is_only_behind_others = pod.is_gated and one.uid not in tracked.count.waiting
    if pod.is_assigned or pod.is_deleting or is_only_behind_others:
        return -math.inf
    unplaced = tracked.unplaced_since.get(one.uid, math.inf)
    untried = tracked.untried_since.get(one.uid, math.inf)
    return min(unplaced + give_up_seconds, untried + _UNTRIED_TIMES * give_up_seconds)


def may_go(tracked: Tracked, uid: str) -> bool:
    """Tell whether a pod may be released that waits behind our gate, as far as is known here."""
    if uid not in tracked.count.waiting:
        return False
    passed, waiter = tracked.passed, tracked.count.waiting.waiter(uid)
    if passed is None or passed.ledger is None or waiter is None or waiter.is_free:
        return True
    claim = waiter.claim
    if waiter.hindrance is not None or claim is None or uid in passed.ledger.reservations:
        return False
    holders = [passed.holders[name] for name in waiter.quotas if name in passed.holders]
    if any(place < waiter.place for place in holders):
        return False
    if not passed.ledger.accounts.keys() >= set(claim.quotas):
        return True  # counted for other quotas
    return not exceeded(passed.ledger, claim)
