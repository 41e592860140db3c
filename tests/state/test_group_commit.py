"""One thread leads each queue of claims, and queues leave nothing behind."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from webhook.quota.ledger.ledger import Claim, ReservationSource, Undecided
from webhook.state.group_commit import (
    LEAD,
    CommitQueue,
    CommitQueues,
    Lead,
    PendingClaim,
)

DONE = Undecided("done")
Queues = CommitQueues[PendingClaim]


def a_claim(uid: str = "a", *, seconds: float = 0.0) -> PendingClaim:
    claim = Claim(uid, uid, ReservationSource.BIND, {}, ())
    return PendingClaim(claim, frozenset(), deadline=time.monotonic() + seconds)


def test_the_first_claim_leads_and_the_next_waits() -> None:
    queues, first, second = Queues(), a_claim(), a_claim("b")
    queue = queues.join("team-a", first)
    assert queues.join("team-a", second) is queue
    assert queues.wait(queue, first)
    assert first.signal.result() == LEAD
    assert not second.signal.done()
    assert queues.take_batch(queue) == [first, second]
    assert queue.pending == []


def test_the_oldest_claim_that_came_meanwhile_gets_the_lead() -> None:
    queues, first, second, third = Queues(), a_claim(), a_claim("b"), a_claim("c")
    queue = queues.join("team-a", first)
    queues.take_batch(queue)
    queues.join("team-a", second)
    queues.join("team-a", third)
    queues.pass_leadership(queue)
    assert queues.wait(queue, second)
    assert second.signal.result() == LEAD
    assert not third.signal.done()
    assert len(queues) == 1


def test_a_queue_without_claims_is_dropped() -> None:
    queues = Queues()
    for number in range(100):
        queue = queues.join(f"team-{number}", a_claim())
        queues.take_batch(queue)
        queues.pass_leadership(queue)
    assert len(queues) == 0


class DroppedOnEntry(Queues):
    """The queue is dropped when a thread has found it, and has not entered it yet."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped: CommitQueue[PendingClaim] | None = None

    def of(self, name: str) -> CommitQueue[PendingClaim]:
        queue = super().of(name)
        if queue.pending and self.dropped is None:
            self.dropped = queue
            self.take_batch(queue)
            self.pass_leadership(queue)
        return queue


def test_a_queue_that_was_dropped_is_not_entered() -> None:
    queues = DroppedOnEntry()
    old = queues.join("team-a", a_claim())
    claim = a_claim("b")
    queue = queues.join("team-a", claim)
    assert queues.dropped is old
    assert queue is not old
    assert queues.wait(queue, claim)
    assert claim.signal.result() == LEAD
    assert old.pending == []


def test_a_claim_leaves_the_queue_at_its_deadline_unless_it_leads_by_then() -> None:
    queues, first, second, third = Queues(), a_claim(), a_claim("b"), a_claim("c")
    queue = queues.join("team-a", first)
    queues.take_batch(queue)
    queues.join("team-a", second)
    queues.join("team-a", third)
    assert not queues.wait(queue, second)
    queues.pass_leadership(queue)
    assert queues.wait(queue, third)
    assert third.signal.result() == LEAD
    assert queue.pending == [third]


def test_a_claim_that_is_being_decided_at_its_deadline_gets_no_lead() -> None:
    queues, first, second = Queues(), a_claim(), a_claim("b")
    queue = queues.join("team-a", first)
    queues.join("team-a", second)
    queues.take_batch(queue)
    assert not queues.wait(queue, second)
    queues.pass_leadership(queue)
    assert len(queues) == 0


def test_every_claim_is_taken_by_one_leader_and_none_is_left() -> None:
    queues, lock = Queues(), threading.Lock()
    taken: list[str] = []

    def work(number: int) -> None:
        own = a_claim(str(number), seconds=10)
        queue = queues.join(f"team-{number % 3}", own)
        assert queues.wait(queue, own)
        match own.signal.result():
            case Lead():
                batch = queues.take_batch(queue)
                queues.pass_leadership(queue)
                with lock:
                    taken.extend(one.claim.uid for one in batch)
                for one in batch:
                    if one is not own:
                        one.signal.set_result(DONE)
            case outcome:
                assert outcome == DONE

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(3000)))
    assert sorted(taken, key=int) == [str(number) for number in range(3000)]
    assert len(queues) == 0
