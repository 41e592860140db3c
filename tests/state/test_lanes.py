"""Lanes let one thread lead, and leave nothing behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from webhook.quota.ledger import Claim, Door, Undecided
from webhook.state.lanes import Lanes, Ticket

DONE = Undecided("done")


def a_ticket(uid: str = "a") -> Ticket:
    return Ticket(Claim(uid, uid, Door.BIND, {}, ()), frozenset(), deadline=0.0)


def test_the_first_leads_and_the_next_waits() -> None:
    lanes, first, second = Lanes(), a_ticket(), a_ticket("b")
    lane = lanes.enter("team-a", first)
    assert lanes.enter("team-a", second) is lane
    assert (first.leads, second.leads) == (True, False)
    assert lanes.take_all(lane) == [first, second]
    assert lane.waiting == []


def test_who_came_meanwhile_gets_the_lead() -> None:
    lanes, first, second = Lanes(), a_ticket(), a_ticket("b")
    lane = lanes.enter("team-a", first)
    lanes.take_all(lane)
    lanes.enter("team-a", second)
    lanes.hand_over(lane)
    assert second.leads
    assert second.woken.acquire(blocking=False)
    assert len(lanes) == 1


def test_a_lane_without_claims_is_dropped() -> None:
    lanes = Lanes()
    for number in range(100):
        lane = lanes.enter(f"team-{number}", a_ticket())
        lanes.take_all(lane)
        lanes.hand_over(lane)
    assert len(lanes) == 0


def test_a_lane_that_was_dropped_is_not_entered() -> None:
    lanes = Lanes()
    old = lanes.enter("team-a", a_ticket())
    inner = lanes.of
    dropped: list[object] = []

    def of_old_once(namespace: str) -> object:
        # the thread was about to enter when the lane was dropped
        if not dropped:
            dropped.append(old)
            lanes.take_all(old)
            lanes.hand_over(old)
            return old
        return inner(namespace)

    lanes.of = of_old_once  # type: ignore[method-assign,assignment]
    ticket = a_ticket("b")
    lane = lanes.enter("team-a", ticket)
    assert lane is not old
    assert ticket.leads
    assert old.waiting == []


def test_who_gives_up_leaves_the_queue_unless_it_leads_by_now() -> None:
    lanes, first, second, third = Lanes(), a_ticket(), a_ticket("b"), a_ticket("c")
    lane = lanes.enter("team-a", first)
    lanes.take_all(lane)
    lanes.enter("team-a", second)
    lanes.enter("team-a", third)
    assert not lanes.takes_over(lane, second)
    lanes.hand_over(lane)
    assert lanes.takes_over(lane, third)
    assert lane.waiting == [third]


def test_every_ticket_is_taken_by_one_leader_and_nothing_is_left() -> None:
    lanes, lock = Lanes(), threading.Lock()
    taken: list[str] = []

    def work(number: int) -> None:
        ticket = a_ticket(str(number))
        lane = lanes.enter(f"team-{number % 3}", ticket)
        if not ticket.leads:
            assert ticket.woken.acquire(timeout=10)
            if ticket.outcome is not None:
                return
        batch = lanes.take_all(lane)
        lanes.hand_over(lane)
        with lock:
            taken.extend(one.claim.uid for one in batch)
        for one in batch:
            one.outcome = DONE
            one.woken.release()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(3000)))
    assert sorted(taken, key=int) == [str(number) for number in range(3000)]
    assert len(lanes) == 0
