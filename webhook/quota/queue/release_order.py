"""One cycle of a namespace's queue: which gated pods are released, and why the others are not.

A cycle takes the pods in order (priority, age) and decides on one running ledger. For a pod that
fits, a reservation is made (`ledger.admit`); its gate may be removed once that ledger is written.
Ungated pods in flight have their own position in the queue, so that their room is not given away.
So have pods of elastic pools whose bind was refused when nothing was reserved for them any more:
by their place here it is known that they wait, and what others borrow can be reclaimed for them.

Laws:

1. Order. Of two pods that both fit, the earlier one gets its reservation first.
2. Strict. With `StrictFIFO` a pod that does not fit blocks every later pod that shares one of its
   failing quotas, whatever fits. Two pods share a quota that selects both and limits a resource
   of both. In a quota of which something was promised to the later pod (law E of `shared.escrow`)
   it is blocked by no pod that has no promise there, or a later one.
3. Bound. With `BestEffortFIFO` later pods overtake it, until `max_overtakes` have or it has waited
   for `max_wait_seconds`; then it blocks them as in law 2.
4. No pod waits for the impossible. A pod that cannot be released whatever the others do (it
   requests more than a limit, lacks a quota that it needs, has gates of others) blocks none.
5. Once. A pod with a reservation gets no second one: its gate may be removed.
6. Preemption. Pods that may preempt others are released only while all of them that have no gate
   and no node fit each quota together. One that does not fit beside them blocks others by what it
   lacks without them, as in law 2, and where that is nothing it blocks none.

The bind decides again, as for any pod: a release that was decided by an old view of its pod has at
worst reserved too little. So the ledger's `pods_barrier` does not matter here.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from webhook.quota.charging.denials import name_quota
from webhook.quota.ledger.ledger import (
    Account,
    Admitted,
    Claim,
    Ledger,
    Undecided,
    admit,
    exceeded_quotas,
)
from webhook.quota.ledger.ledger_room import release_room
from webhook.quota.queue.preemptors import NO_PREEMPTORS, UnboundPreemptors
from webhook.quota.queue.queued_pods import (
    Blocker,
    CycleResult,
    PendingReason,
    PendingStatus,
    QueuedPod,
    QueueingStrategy,
    QueuePolicy,
    SortKey,
    WaitHistory,
)

MAX_PENDING_RELEASES: Final = 1000
"""Pods of a namespace that may be reserved for and still have their gate: more would wait for
their patches with quota that others could not use."""
NO_PLACE: Final = "quota is reserved for as many pods without a node as may be at the same time"
"""Why a pod waits that fits."""
_NO_HISTORY: Final[Mapping[str, WaitHistory]] = MappingProxyType({})


def release_limit(ledger: Ledger | None, queue: Iterable[QueuedPod], max_reservations: int) -> int:
    """Return for how many pods of a queue quota may be reserved now."""
    # a pod without a gate waits for no patch
    on_their_way = sum(one.is_gated and _is_reserved(ledger, one) for one in queue)
    return max(0, min(release_room(ledger, max_reservations), MAX_PENDING_RELEASES - on_their_way))


def run_cycle(
    ledger: Ledger | None,
    line: Iterable[QueuedPod],
    rules: QueuePolicy,
    *,
    room: int,
    history: Mapping[str, WaitHistory] = _NO_HISTORY,
    preemptors: UnboundPreemptors = NO_PREEMPTORS,
) -> CycleResult:
    """Decide which queued pods are released.

    Args:
        ledger: The ledger that is about to be written, for the quotas the pods were judged by;
            None when there is none.
        line: The pods in their order.
        rules: The policy of the queue.
        room: How many more reservations may be made.
        history: Overtakes and waiting time of pods in former cycles, by uid.
        preemptors: What pods that may preempt take without a gate and a node.
    """
    waiting = tuple(line)
    reserved = (waiter for waiter in waiting if _is_reserved(ledger, waiter))
    one = _Cycle(ledger, rules, room, history, preemptors.with_released(reserved))
    for waiter in waiting:
        one.take(waiter)
    return one.outcome()


class _Cycle:
    """State of one cycle."""

    def __init__(
        self,
        ledger: Ledger | None,
        rules: QueuePolicy,
        room: int,
        history: Mapping[str, WaitHistory],
        preemptors: UnboundPreemptors,
    ) -> None:
        self._before = ledger
        self._running = ledger
        self._rules = rules
        self._room = room
        self._history = history
        self._preemptors = preemptors
        self._released: list[QueuedPod] = []
        self._reserved: list[QueuedPod] = []
        self._free: list[QueuedPod] = []
        self._waiting: list[tuple[QueuedPod, Blocker, QueuedPod | None]] = []
        self._holders: dict[str, list[QueuedPod]] = {}
        """Quota → the first pod that holds it, and those after it to which it was promised."""
        self._overtaking = _Overtaking()
        self._fails: dict[object, frozenset[str]] = {}
        """What a claim that asks for the same fails, while nothing more is reserved; of pods to
        which nothing is promised."""

    def take(self, waiter: QueuedPod) -> None:
        """Decide on the next pod of the queue."""
        if _is_reserved(self._before, waiter):
            self._reserved.append(waiter)
        elif waiter.is_retried and not self._must_wait(waiter):
            return
        elif waiter.needs_no_quota:
            self._free.append(waiter)
        elif waiter.blocker is not None:
            self._wait(waiter, waiter.blocker)
        elif waiter.claim is not None:
            self._decide(waiter, waiter.claim)

    def _must_wait(self, retried: QueuedPod) -> bool:
        """Return whether a pod whose bind is tried again cannot be left to that."""
        if retried.claim is None or retried.blocker is not None or self._running is None:
            return False
        return retried.uid in self._history or bool(_failed(self._running, retried.claim))

    def _wait(self, waiter: QueuedPod, why: Blocker, holder: QueuedPod | None = None) -> None:
        self._waiting.append((waiter, why, holder))

    def _decide(self, waiter: QueuedPod, claim: Claim) -> None:
        if self._running is None:
            self._wait(waiter, Blocker(PendingReason.NOT_COUNTED, "usage is being counted"))
            return
        holders = self._holders_of(self._running, waiter)
        failing = self._failing(self._running, waiter, claim, holders)
        full = Blocker(PendingReason.LEDGER_FULL, NO_PLACE)
        unbound = self._preemptors.blocker(waiter)
        # else what it lacks of elastic quotas would be reclaimed for it, in vain
        if unbound is not None and all(name_quota(one).is_elastic for one in (*holders, *failing)):
            self._wait(waiter, replace(unbound, failing=failing))
            self._hold(waiter, failing)
            return
        if not holders and not failing and self._room > 0:
            self._running, verdict = admit(self._running, claim)
            if isinstance(verdict, Admitted):
                self._release(waiter)
                return
            if isinstance(verdict, Undecided):
                full = Blocker(PendingReason.NOT_COUNTED, verdict.message)
        if holders:
            held_in, holder = next(iter(holders.items()))
            self._wait(waiter, Blocker(PendingReason.BEHIND, quota=held_in), holder)
        elif failing:
            lacking = Blocker(PendingReason.QUOTA_EXCEEDED, quota=min(failing), failing=failing)
            self._wait(waiter, lacking)
        else:
            self._wait(waiter, full)
            failing = frozenset(waiter.quotas)  # no pod behind it may take its room
        self._hold(waiter, failing)

    def _release(self, waiter: QueuedPod) -> None:
        self._released.append(waiter)
        self._preemptors = self._preemptors.with_released((waiter,))
        self._room -= 1
        self._fails.clear()
        for starved, failing in self._overtaking.passed_by(waiter.quotas):
            self._hold_all(starved, failing)

    def _holders_of(self, running: Ledger, waiter: QueuedPod) -> dict[str, QueuedPod]:
        """Return which of its quotas are held against a pod, and by which."""
        found: dict[str, QueuedPod] = {}
        for name in waiter.quotas:
            for one in self._holders.get(name, ()):
                if not _yields(running.accounts[name], one, waiter):
                    found.setdefault(name, one)
        return found

    def _failing(
        self, running: Ledger, waiter: QueuedPod, claim: Claim, held: Collection[str]
    ) -> frozenset[str]:
        """Return the quotas that it does not fit; those that are held already do not matter."""
        if all(name in held for name in waiter.quotas):
            return frozenset()
        has_promise = any(claim.uid in running.accounts[name].promised for name in claim.quotas)
        if has_promise or claim.uid in running.reservations:
            return _failed(running, claim)
        asked = (claim.quotas, tuple(claim.usage.items()))
        if asked not in self._fails:
            self._fails[asked] = _failed(running, claim)
        return self._fails[asked]

    def _hold(self, waiter: QueuedPod, failing: frozenset[str]) -> None:
        """Let a pod that does not fit hold those behind it, now or once too many have passed."""
        if not failing or waiter.is_retried:
            return
        waited = self._history.get(waiter.uid, WaitHistory())
        left = self._rules.max_overtakes - waited.overtaken
        is_starved = left <= 0 or waited.seconds >= self._rules.max_wait_seconds
        if self._rules.order is QueueingStrategy.STRICT or is_starved:
            self._hold_all(waiter, failing)
            left = 0
        self._overtaking.add(waiter, failing, left)

    def _hold_all(self, waiter: QueuedPod, failing: Set[str]) -> None:
        assert self._running is not None  # noqa: S101 - else no pod was found not to fit
        for name in failing:
            holders = self._holders.setdefault(name, [])
            if not holders or waiter.uid in self._running.accounts[name].promised:
                holders.append(waiter)

    def outcome(self) -> CycleResult:
        """Return what was decided."""
        passed_now = self._overtaking.counts()
        return CycleResult(
            ledger=self._running,
            released=tuple(self._released),
            reserved=tuple(self._reserved),
            free=tuple(self._free),
            pending=self._held(),
            blocking={name: first.sort_key for name, (first, *_) in self._holders.items()},
            overtaken={
                waiter.uid: total
                for waiter, _, _ in self._waiting
                if (total := self._overtaken(waiter) + passed_now.get(waiter.uid, 0))
            },
        )

    def _overtaken(self, waiter: QueuedPod) -> int:
        return self._history.get(waiter.uid, WaitHistory()).overtaken

    def _held(self) -> dict[str, PendingStatus]:
        holding: dict[str, list[str]] = {}
        for name, holders in self._holders.items():
            for one in holders:
                holding.setdefault(one.uid, []).append(name)
        held: dict[str, PendingStatus] = {}
        place = 0
        for waiter, why, holder in self._waiting:
            is_in_line = why.reason in _IN_LINE
            place += is_in_line
            held[waiter.uid] = PendingStatus(
                why.reason,
                place if is_in_line else 0,
                "" if holder is None else holder.pod.name,
                why.quota,
                why.detail,
                blocking=frozenset(holding.get(waiter.uid, ())),
                is_retried=waiter.is_retried,
                failing=why.failing,
                quotas=waiter.quotas,
                _claim=waiter.claim if why.reason is not PendingReason.NOT_COUNTED else None,
                _ledger=self._running,
            )
        return held


def _is_reserved(ledger: Ledger | None, waiter: QueuedPod) -> bool:
    return ledger is not None and ledger.is_reserved(waiter.uid)


def _failed(running: Ledger, claim: Claim) -> frozenset[str]:
    return frozenset([one.quota for one in exceeded_quotas(running, claim)])


def _yields(account: Account, holder: QueuedPod, later: QueuedPod) -> bool:
    """Return whether what is promised of a quota to a pod is nothing that an earlier one holds."""
    if later.uid not in account.promised:
        return False
    return holder.uid not in account.promised or holder.uid in account.promised_from(later.uid)


_IN_LINE: Final = frozenset(
    {PendingReason.QUOTA_EXCEEDED, PendingReason.BEHIND, PendingReason.LEDGER_FULL}
)


class _Overtaking:
    """Counts by how many pods each one that does not fit was overtaken, while it blocks none yet.

    Pods with the same failing quotas are passed by the same ones, so they share a count.
    """

    def __init__(self) -> None:
        self._groups: dict[frozenset[str], _Group] = {}

    def add(self, waiter: QueuedPod, failing: frozenset[str], left: int) -> None:
        """Count for a pod from now on; it may be passed `left` more times."""
        self._groups.setdefault(failing, _Group()).add(waiter, left)

    def passed_by(self, quotas: Iterable[str]) -> list[tuple[QueuedPod, frozenset[str]]]:
        """Note that a pod of these quotas goes; return those overtaken too often by now."""
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
        self._limits: list[tuple[int, SortKey, QueuedPod]] = []

    def add(self, waiter: QueuedPod, left: int) -> None:
        self.entered[waiter.uid] = self.count
        if left > 0:
            heapq.heappush(self._limits, (self.count + left, waiter.sort_key, waiter))

    def passed(self) -> list[QueuedPod]:
        self.count += 1
        starved: list[QueuedPod] = []
        while self._limits and self._limits[0][0] <= self.count:
            starved.append(heapq.heappop(self._limits)[2])
        return starved
