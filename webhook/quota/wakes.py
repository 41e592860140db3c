"""Which of the pods that a scheduler refused for their quota would be let through by now.

They have no gate, so nothing is reserved for them and nobody holds anybody: whoever fits may be
tried again, in the order of the line. Pods that were woken and have not been heard of keep their
room, so that no more are woken than fit. And a pod does not pass one that stands before it behind
our gate and holds a quota of both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from webhook.quota.ledger import Claim, Ledger, admit, exceeded
from webhook.quota.line import LineRules, Order, Passed, Place, Waiter
from webhook.quota.line_pass import pass_line


def who_fits(
    ledger: Ledger | None,
    line: Sequence[Waiter],
    rules: LineRules,
    *,
    promised: Iterable[Claim],
    holders: Mapping[str, Place],
    room: int,
) -> tuple[Waiter, ...]:
    """Return those who fit, in their order.

    Args:
        ledger: The newest that is known; None where nothing is counted, and nobody asked.
        line: The pods in their order, judged by the quotas that the ledger counts.
        rules: What else a pod needs; that the order is strict does not matter here.
        promised: What those take who were woken already; none of them is in the line.
        holders: Quota → where a pod behind our gate stands that holds it.
        room: How many may be returned.
    """
    running = None if ledger is None else _keeping(ledger, promised)
    passing = replace(
        rules,
        order=Order.BEST_EFFORT,
        most_overtakes=len(line) + 1,
        longest_wait_seconds=math.inf,
    )
    passed = pass_line(running, line, passing, room=room)
    found = sorted(_fitting(running, passed), key=lambda one: one.place)
    return tuple(one for one in found if not _is_held(one, holders))[:room]


def _keeping(ledger: Ledger, promised: Iterable[Claim]) -> Ledger:
    for claim in promised:
        ledger, _ = admit(ledger, replace(claim, is_forced=True))
    return ledger


def _fitting(ledger: Ledger | None, passed: Passed) -> list[Waiter]:
    """Return those who may go; a reservation that is left of something else may not suffice."""
    suffices = [
        one
        for one in passed.reserved
        if ledger is None or one.claim is None or not exceeded(ledger, one.claim)
    ]
    return [*passed.free, *suffices, *passed.released]


def _is_held(waiter: Waiter, holders: Mapping[str, Place]) -> bool:
    return any(name in holders and holders[name] < waiter.place for name in waiter.quotas)
