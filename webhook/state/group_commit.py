"""Group commit: queues of claims, one for each namespace, each with at most one leader.

The leader is a thread that decides all claims that are pending. Claims that arrive meanwhile are
followers: they wait for an outcome, or for the lead, which the leader hands to the oldest of them
when its own batch is done. A queue without claims is closed and dropped, so that namespaces that
come and go leave nothing behind.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Claim, QuotaRevision, Undecided


@dataclass(frozen=True, slots=True)
class Reserved:
    """The claim is in the ledger at this version; of a dry run, it would fit there."""

    ledger_version: int


Outcome: TypeAlias = Reserved | QuotaExceeded | Undecided

DEADLINE_EXCEEDED: Final = Undecided(
    "the request's time ran out before its quota could be reserved"
)


@dataclass(frozen=True, slots=True)
class Lead:
    """The claim's thread decides for all claims that are pending."""


LEAD: Final = Lead()


@dataclass(frozen=True, slots=True, eq=False)
class PendingClaim:
    """A claim without outcome."""

    claim: Claim
    observed: frozenset[QuotaRevision]
    """The quotas that it was made for."""
    deadline: float
    """When to give up, on the monotonic clock."""
    signal: Future[Outcome | Lead] = field(default_factory=Future)
    """Set once by the leader: the outcome, or the lead."""
    since: float = field(default_factory=time.monotonic)
    """When it was made, on the same clock."""


@dataclass(slots=True, eq=False)
class CommitQueue:
    """The pending claims of one namespace, and whether a thread leads."""

    namespace: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    pending: list[PendingClaim] = field(default_factory=list)
    has_leader: bool = False
    is_closed: bool = False
    """It was dropped: a thread that still holds it has to ask for the namespace's queue again."""


class CommitQueues:
    """The queues of all namespaces. Safe to use from many threads.

    A queue's own lock is taken before the lock of the whole, never after it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, CommitQueue] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return in how many namespaces claims are being decided."""
        return len(self._queues)

    def of(self, namespace: str) -> CommitQueue:
        """Return the namespace's queue, a new one if there is none."""
        with self._lock:
            queue = self._queues.get(namespace)
            if queue is None:
                queue = self._queues[namespace] = CommitQueue(namespace)
            return queue

    def join(self, namespace: str, claim: PendingClaim) -> CommitQueue:
        """Add a claim to its queue; it has the lead at once where no thread has it."""
        while True:
            queue = self.of(namespace)
            with queue.lock:
                if queue.is_closed:
                    continue
                queue.pending.append(claim)
                if not queue.has_leader:
                    queue.has_leader = True
                    claim.signal.set_result(LEAD)
                return queue

    @staticmethod
    def wait(queue: CommitQueue, claim: PendingClaim) -> Outcome | Lead:
        """Wait for the claim's outcome, or for the lead, until the claim's deadline."""
        try:
            return claim.signal.result(max(0.0, claim.deadline - time.monotonic()))
        except TimeoutError:
            with queue.lock:
                # The lead is handed over under this lock. One that came together with the
                # deadline has to be taken: no other thread would decide what is pending.
                if claim.signal.done():
                    return claim.signal.result()
                if claim in queue.pending:
                    queue.pending.remove(claim)
            return DEADLINE_EXCEEDED

    @staticmethod
    def take_batch(queue: CommitQueue) -> list[PendingClaim]:
        """Return all pending claims, for the leader to decide, and leave none pending."""
        with queue.lock:
            batch, queue.pending = queue.pending, []
            return batch

    @staticmethod
    def is_crowded(queue: CommitQueue) -> bool:
        """Return whether several claims are pending."""
        return len(queue.pending) > 1

    def pass_leadership(self, queue: CommitQueue) -> None:
        """End a thread's lead: the oldest pending claim gets it, or the queue is dropped."""
        with queue.lock:
            if queue.pending:
                queue.pending[0].signal.set_result(LEAD)
                return
            queue.has_leader = False
            queue.is_closed = True
            with self._lock:
                if self._queues.get(queue.namespace) is queue:
                    del self._queues[queue.namespace]
