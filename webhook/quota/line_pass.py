"""The line of pods that wait behind our scheduling gate: who may go, and why the others may not.

One pass over a namespace's line decides on one running ledger, in order: priority, age. A pod
that fits is reserved for (`ledger.admit`); its gate may be removed once that ledger is written.
Among them stand pods that have no gate, in their own place, so that their room is not given away.

Laws:

1. Order. Of two pods that both fit, the earlier one in the line is reserved for first.
2. Strict. With `StrictFIFO` a pod that does not fit holds every later pod that one of its
   failing quotas is about, whatever fits. A quota is about the pods that it selects and that take
   some of what it limits.
3. Bound. With `BestEffortFIFO` later pods pass it, until `most_overtakes` have or it has waited
   for `longest_wait_seconds`; then it holds them as in law 2.
4. Nobody waits for the impossible. A pod that cannot be released whatever the others do (it asks
   for more than a limit, lacks a quota that it needs, has gates of others) holds nobody.
5. Once. A pod that has been reserved for is not reserved for again: its gate may go.

What is decided here is never the last word. The bind is asked about again, as for any pod: a
release that was decided by an old view of its pod has at worst reserved too little. So the ledger's
barrier does not matter here.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Final

from webhook.quota.ledger import Admitted, Claim, Ledger, admit, exceeded
from webhook.quota.line import (
    Held,
    Hindrance,
    LineRules,
    Order,
    Passed,
    Place,
    Waited,
    Waiter,
    Waits,
)

_NOBODY: Final[Mapping[str, Waited]] = MappingProxyType({})


def pass_line(
    ledger: Ledger | None,
    line: Iterable[Waiter],
    rules: LineRules,
    *,
    room: int,
    history: Mapping[str, Waited] = _NOBODY,
) -> Passed:
    """Decide who of the line may go.

    Args:
        ledger: The ledger that is about to be written, for the quotas the waiters were judged by;
            None when there is none.
        line: The pods in their order.
        rules: How the line moves.
        room: How many more reservations may be made.
        history: What pods have been through in former passes.
    """
    one = _Pass(ledger, rules, room, history)
    for waiter in line:
        one.take(waiter)
    return one.outcome()


class _Pass:
    """One pass over a line."""

    def __init__(
        self,
        ledger: Ledger | None,
        rules: LineRules,
        room: int,
        history: Mapping[str, Waited],
    ) -> None:
        self._before = ledger
        self._running = ledger
        self._rules = rules
        self._room = room
        self._history = history
        self._released: list[Waiter] = []
        self._reserved: list[Waiter] = []
        self._free: list[Waiter] = []
        self._waiting: list[tuple[Waiter, Hindrance, Waiter | None]] = []
        self._holders: dict[str, Waiter] = {}
        self._overtaking = _Overtaking()
        self._fails: dict[object, frozenset[str]] = {}
        """What a claim that asks for the same fails, while nothing more is reserved."""

    def take(self, waiter: Waiter) -> None:
        """Decide on the next of the line."""
        if self._is_reserved(waiter):
            self._reserved.append(waiter)
        elif waiter.is_free:
            self._free.append(waiter)
        elif waiter.hindrance is not None:
            self._wait(waiter, waiter.hindrance)
        elif waiter.claim is not None:
            self._decide(waiter, waiter.claim)

    def _is_reserved(self, waiter: Waiter) -> bool:
        if self._before is None:
            return False
        found = self._before.reservations.get(waiter.uid)
        return found is not None and not found.is_intent

    def _wait(self, waiter: Waiter, why: Hindrance, holder: Waiter | None = None) -> None:
        self._waiting.append((waiter, why, holder))

    def _decide(self, waiter: Waiter, claim: Claim) -> None:
        if self._running is None:
            self._wait(waiter, Hindrance(Waits.NOT_COUNTED, "usage is being counted"))
            return
        held_in = next((name for name in waiter.quotas if name in self._holders), "")
        failing = self._failing(self._running, waiter, claim)
        if not held_in and not failing and self._room > 0:
            self._running, verdict = admit(self._running, claim)
            if isinstance(verdict, Admitted):
                self._release(waiter)
                return
        if held_in:
            self._wait(waiter, Hindrance(Waits.BEHIND, quota=held_in), self._holders[held_in])
        elif failing:
            self._wait(waiter, Hindrance(Waits.QUOTA_EXCEEDED, quota=min(failing)))
        else:
            self._wait(
                waiter, Hindrance(Waits.LEDGER_FULL, "the quota ledger has no room for more now")
            )
            failing = frozenset(waiter.quotas)  # nobody behind it may take its room
        self._hold(waiter, failing)

    def _release(self, waiter: Waiter) -> None:
        self._released.append(waiter)
        self._room -= 1
        self._fails.clear()
        for starved, failing in self._overtaking.passed_by(waiter.quotas):
            self._hold_all(starved, failing)

    def _failing(self, running: Ledger, waiter: Waiter, claim: Claim) -> frozenset[str]:
        """Return the quotas that it does not fit; those that are held already do not matter."""
        if all(name in self._holders for name in waiter.quotas):
            return frozenset()
        if claim.uid in running.reservations:
            return _failed(running, claim)
        asked = (claim.quotas, tuple(claim.usage.items()))
        if asked not in self._fails:
            self._fails[asked] = _failed(running, claim)
        return self._fails[asked]

    def _hold(self, waiter: Waiter, failing: frozenset[str]) -> None:
        """Let a pod that does not fit hold those behind it, now or once too many have passed."""
        if not failing:
            return
        waited = self._history.get(waiter.uid, Waited())
        left = self._rules.most_overtakes - waited.overtaken
        is_starved = left <= 0 or waited.seconds >= self._rules.longest_wait_seconds
        if self._rules.order is Order.STRICT or is_starved:
            self._hold_all(waiter, failing)
            left = 0
        self._overtaking.add(waiter, failing, left)

    def _hold_all(self, waiter: Waiter, failing: Set[str]) -> None:
        for name in failing:
            self._holders.setdefault(name, waiter)

    def outcome(self) -> Passed:
        """Return what was decided."""
        passed_now = self._overtaking.counts()
        return Passed(
            ledger=self._running,
            released=tuple(self._released),
            reserved=tuple(self._reserved),
            free=tuple(self._free),
            held=self._held(),
            holders={name: one.place for name, one in self._holders.items()},
            overtaken={
                waiter.uid: total
                for waiter, _, _ in self._waiting
                if (total := self._overtaken(waiter) + passed_now.get(waiter.uid, 0))
            },
        )

    def _overtaken(self, waiter: Waiter) -> int:
        return self._history.get(waiter.uid, Waited()).overtaken

    def _held(self) -> dict[str, Held]:
        holding = {one.uid for one in self._holders.values()}
        held: dict[str, Held] = {}
        place = 0
        for waiter, why, holder in self._waiting:
            is_in_line = why.reason in _IN_LINE
            place += is_in_line
            held[waiter.uid] = Held(
                why.reason,
                place if is_in_line else 0,
                "" if holder is None else holder.pod.name,
                why.quota,
                why.detail,
                is_holding=waiter.uid in holding,
                _claim=waiter.claim if why.reason is not Waits.NOT_COUNTED else None,
                _ledger=self._running,
            )
        return held


def _failed(running: Ledger, claim: Claim) -> frozenset[str]:
    return frozenset([one.quota for one in exceeded(running, claim)])


_IN_LINE: Final = frozenset({Waits.QUOTA_EXCEEDED, Waits.BEHIND, Waits.LEDGER_FULL})


class _Overtaking:
    """Counts by how many each pod is passed that does not fit and holds nobody yet.

    Pods with the same failing quotas are passed by the same ones, so they share a count.
    """

    def __init__(self) -> None:
        self._groups: dict[frozenset[str], _Group] = {}

    def add(self, waiter: Waiter, failing: frozenset[str], left: int) -> None:
        """Count for a pod from now on; it may be passed `left` more times."""
        self._groups.setdefault(failing, _Group()).add(waiter, left)

    def passed_by(self, quotas: Iterable[str]) -> list[tuple[Waiter, frozenset[str]]]:
        """Note that a pod of these quotas goes; return who has now been passed too often."""
        named = frozenset(quotas)
        return [
            (waiter, failing)
            for failing, group in self._groups.items()
            if failing & named
            for waiter in group.passed()
        ]

    def counts(self) -> dict[str, int]:
        """Return by how many each was passed, by uid."""
        return {
            uid: group.count - entered
            for group in self._groups.values()
            for uid, entered in group.entered.items()
        }


class _Group:
    """Pods with the same failing quotas."""

    def __init__(self) -> None:
        self.count = 0
        self.entered: dict[str, int] = {}
        self._limits: list[tuple[int, Place, Waiter]] = []

    def add(self, waiter: Waiter, left: int) -> None:
        self.entered[waiter.uid] = self.count
        if left > 0:
            heapq.heappush(self._limits, (self.count + left, waiter.place, waiter))

    def passed(self) -> list[Waiter]:
        self.count += 1
        starved: list[Waiter] = []
        while self._limits and self._limits[0][0] <= self.count:
            starved.append(heapq.heappop(self._limits)[2])
        return starved
