"""CommitQueues let one thread lead, and leave nothing behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from webhook.quota.ledger.ledger import Claim, ReservationSource, Undecided
from webhook.state.group_commit import CommitQueues, PendingClaim

DONE = Undecided("done")


def a_claim(uid: str = "a") -> PendingClaim:
    return PendingClaim(Claim(uid, uid, ReservationSource.BIND, {}, ()), frozenset(), deadline=0.0)


def test_the_first_leads_and_the_next_waits() -> None:
    lanes, first, second = CommitQueues(), a_claim(), a_claim("b")
    lane = lanes.join("team-a", first)
    assert lanes.join("team-a", second) is lane
    assert (first.is_leader, second.is_leader) == (True, False)
    assert lanes.take_batch(lane) == [first, second]
    assert lane.pending == []


def test_who_came_meanwhile_gets_the_lead() -> None:
    lanes, first, second = CommitQueues(), a_claim(), a_claim("b")
    lane = lanes.join("team-a", first)
    lanes.take_batch(lane)
    lanes.join("team-a", second)
    lanes.pass_leadership(lane)
    assert second.is_leader
    assert second.wake_lock.acquire(blocking=False)
    assert len(lanes) == 1


def test_a_lane_without_claims_is_dropped() -> None:
    lanes = CommitQueues()
    for number in range(100):
        lane = lanes.join(f"team-{number}", a_claim())
        lanes.take_batch(lane)
        lanes.pass_leadership(lane)
    assert len(lanes) == 0


def test_a_lane_that_was_dropped_is_not_entered() -> None:
    lanes = CommitQueues()
    old = lanes.join("team-a", a_claim())
    inner = lanes.of
    dropped: list[object] = []

    def of_old_once(namespace: str) -> object:
        # the thread was about to enter when the lane was dropped
        if not dropped:
            dropped.append(old)
            lanes.take_batch(old)
            lanes.pass_leadership(old)
            return old
        return inner(namespace)

    lanes.of = of_old_once  # type: ignore[method-assign,assignment]
    ticket = a_claim("b")
    lane = lanes.join("team-a", ticket)
    assert lane is not old
    assert ticket.is_leader
    assert old.pending == []


def test_who_gives_up_leaves_the_queue_unless_it_leads_by_now() -> None:
    lanes, first, second, third = CommitQueues(), a_claim(), a_claim("b"), a_claim("c")
    lane = lanes.join("team-a", first)
    lanes.take_batch(lane)
    lanes.join("team-a", second)
    lanes.join("team-a", third)
    assert not lanes.leave(lane, second)
    lanes.pass_leadership(lane)
    assert lanes.leave(lane, third)
    assert lane.pending == [third]


def test_every_ticket_is_taken_by_one_leader_and_nothing_is_left() -> None:
    lanes, lock = CommitQueues(), threading.Lock()
    taken: list[str] = []

    def work(number: int) -> None:
        ticket = a_claim(str(number))
        lane = lanes.join(f"team-{number % 3}", ticket)
        if not ticket.is_leader:
            assert ticket.wake_lock.acquire(timeout=10)
            if ticket.outcome is not None:
                return
        batch = lanes.take_batch(lane)
        lanes.pass_leadership(lane)
        with lock:
            taken.extend(one.claim.uid for one in batch)
        for one in batch:
            one.outcome = DONE
            one.wake_lock.release()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(3000)))
    assert sorted(taken, key=int) == [str(number) for number in range(3000)]
    assert len(lanes) == 0
