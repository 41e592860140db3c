"""Group commit: queues of claims, one for each namespace, each with a leader.

A queue has at most one leader at a time: a thread that decides all that waits. Who comes while it
is at work waits; when it is done, the one that has waited longest leads. A queue without claims is
closed and dropped, so that namespaces that come and go leave nothing behind.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Claim, QuotaRevision, Undecided


@dataclass(frozen=True, slots=True)
class Reserved:
    """The claim is in the ledger at this version; of a dry run, it would fit there."""

    ledger_version: int


Outcome: TypeAlias = Reserved | QuotaExceeded | Undecided


@dataclass(slots=True, eq=False)
class PendingClaim:
    """A claim that waits for its outcome.

    Attributes:
        claim: What is asked.
        observed: The quotas that it was made for.
        deadline: When to give up, on the monotonic clock.
        wake_lock: Released once: there is an outcome, or the claim leads.
        outcome: The answer; None while there is none.
        is_leader: Whether its thread has to decide for all.
    """

    claim: Claim
    observed: frozenset[QuotaRevision]
    deadline: float
    wake_lock: threading.Lock = field(default_factory=threading.Lock)
    outcome: Outcome | None = None
    is_leader: bool = False

    def __post_init__(self) -> None:
        self.wake_lock.acquire()


@dataclass(slots=True, eq=False)
class CommitQueue:
    """The claims of one namespace: those that wait, and whether a thread is at work."""

    namespace: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    pending: list[PendingClaim] = field(default_factory=list)
    has_leader: bool = False
    is_closed: bool = False
    """It was dropped: whoever still has it in hand has to ask for the namespace's queue again."""


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
        """Let a claim wait in its queue; it leads if nobody is at work there."""
        while True:
            queue = self.of(namespace)
            with queue.lock:
                if queue.is_closed:
                    continue
                queue.pending.append(claim)
                claim.is_leader = not queue.has_leader
                queue.has_leader = True
                return queue

    @staticmethod
    def take_batch(queue: CommitQueue) -> list[PendingClaim]:
        """Return all that waits, for the one that leads, and leave nothing waiting."""
        with queue.lock:
            batch, queue.pending = queue.pending, []
            return batch

    @staticmethod
    def is_crowded(queue: CommitQueue) -> bool:
        """Tell whether several claims wait."""
        return len(queue.pending) > 1

    @staticmethod
    def leave(queue: CommitQueue, claim: PendingClaim) -> bool:
        """Leave the queue because time is up, unless the lead was handed over meanwhile."""
        with queue.lock:
            if claim in queue.pending and not claim.is_leader:
                queue.pending.remove(claim)
            return claim.is_leader

    def pass_leadership(self, queue: CommitQueue) -> None:
        """End one's lead: the next that waits gets it, or the queue is dropped."""
        with queue.lock:
            if not queue.pending:
                queue.has_leader = False
                queue.is_closed = True
                with self._lock:
                    if self._queues.get(queue.namespace) is queue:
                        del self._queues[queue.namespace]
                return
            following = queue.pending[0]
            following.is_leader = True
        following.wake_lock.release()
