"""Pods that a scheduler rejected for their quota, and that would be admitted now.

They have no gate, so nothing is reserved for them and none blocks another: those that fit may be
tried again, in the order of the queue. Room is kept for requeued pods without a result, so that no
more are requeued than fit. A pod does not overtake a gated one that blocks a quota of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from webhook.quota.ledger.ledger import Claim, Ledger, admit, exceeded_quotas
from webhook.quota.queue.queued_pods import (
    CycleResult,
    QueuedPod,
    QueueingStrategy,
    QueuePolicy,
    SortKey,
)
from webhook.quota.queue.release_order import run_cycle


def fitting_pods(
    ledger: Ledger | None,
    line: Sequence[QueuedPod],
    rules: QueuePolicy,
    *,
    promised: Iterable[Claim],
    holders: Mapping[str, SortKey],
    room: int,
) -> tuple[QueuedPod, ...]:
    """Return the pods that fit, in their order.

    Args:
        ledger: The newest that is known; None where nothing is counted, so that all are tried.
        line: The pods in their order, judged by the quotas that the ledger counts.
        rules: What else a pod needs; that the order is strict does not matter here.
        promised: Claims of the pods that were requeued already; none of them is in `line`.
        holders: Quota → sort key of the gated pod that blocks it.
        room: At most so many are returned.
    """
    running = None if ledger is None else _keeping(ledger, promised)
    passing = replace(
        rules,
        order=QueueingStrategy.BEST_EFFORT,
        max_overtakes=len(line) + 1,
        max_wait_seconds=math.inf,
    )
    passed = run_cycle(running, line, passing, room=room)
    found = sorted(_fitting(running, passed), key=lambda one: one.sort_key)
    return tuple(one for one in found if not _is_held(one, holders))[:room]


def _keeping(ledger: Ledger, promised: Iterable[Claim]) -> Ledger:
    for claim in promised:
        ledger, _ = admit(ledger, replace(claim, skip_limits=True))
    return ledger


def _fitting(ledger: Ledger | None, passed: CycleResult) -> list[QueuedPod]:
    """Return releasable pods; a reservation that is left of something else may not suffice."""
    suffices = [
        one
        for one in passed.reserved
        if ledger is None or one.next_claim is None or not exceeded_quotas(ledger, one.next_claim)
    ]
    return [*passed.free, *suffices, *passed.released]


def _is_held(waiter: QueuedPod, holders: Mapping[str, SortKey]) -> bool:
    return any(name in holders and holders[name] < waiter.sort_key for name in waiter.quotas)
