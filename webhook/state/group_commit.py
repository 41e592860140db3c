"""Group commit: queues of claims, one for each namespace, each with at most one leader.

The leader is a thread that decides all claims that are pending. Claims that arrive meanwhile are
followers: they wait for an outcome, or for the lead, which the leader hands to the oldest of them
when its own batch is done. A queue without claims is closed and dropped, so that namespaces that
come and go leave nothing behind. Raises of shared quotas (`grant_raising`) queue in the same way.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

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


class Pending(Protocol):
    """Item that waits in a queue."""

    @property
    def deadline(self) -> float:
        """When to give up, on the monotonic clock."""

    @property
    def signal(self) -> Future[Any]:
        """Set once by the leader: an outcome, or the lead."""


_Item = TypeVar("_Item", bound=Pending)


@dataclass(slots=True, eq=False)
class CommitQueue(Generic[_Item]):
    """Items that are pending under one name, and whether a thread leads."""

    name: str
    """The namespace of claims."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    pending: list[_Item] = field(default_factory=list)
    has_leader: bool = False
    is_closed: bool = False
    """It was dropped: a thread that still holds it has to ask for the queue of the name again."""


class CommitQueues(Generic[_Item]):
    """The queues of all names. Safe to use from many threads.

    A queue's own lock is taken before the lock of the whole, never after it.
    """

    def __init__(self) -> None:
        self._queues: dict[str, CommitQueue[_Item]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many queues there are: in how many namespaces claims are being decided."""
        return len(self._queues)

    def of(self, name: str) -> CommitQueue[_Item]:
        """Return the queue of a name, a new one if there is none."""
        with self._lock:
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = CommitQueue(name)
            return queue

    def join(self, name: str, item: _Item) -> CommitQueue[_Item]:
        """Add an item to its queue; it has the lead at once where no thread has it."""
        while True:
            queue = self.of(name)
            with queue.lock:
                if queue.is_closed:
                    continue
                queue.pending.append(item)
                if not queue.has_leader:
                    queue.has_leader = True
                    item.signal.set_result(LEAD)
                return queue

    @staticmethod
    def wait(queue: CommitQueue[_Item], item: _Item) -> bool:
        """Wait for the item's signal until its deadline; return whether it came."""
        try:
            item.signal.result(max(0.0, item.deadline - time.monotonic()))
        except TimeoutError:
            with queue.lock:
                # The lead is handed over under this lock. One that came together with the
                # deadline has to be taken: no other thread would decide what is pending.
                if item.signal.done():
                    return True
                if item in queue.pending:
                    queue.pending.remove(item)
            return False
        return True

    @staticmethod
    def take_batch(queue: CommitQueue[_Item]) -> list[_Item]:
        """Return all that is pending, for the leader to decide, and leave nothing pending."""
        with queue.lock:
            batch, queue.pending = queue.pending, []
            return batch

    @staticmethod
    def is_crowded(queue: CommitQueue[_Item]) -> bool:
        """Return whether several items are pending."""
        return len(queue.pending) > 1

    def pass_leadership(self, queue: CommitQueue[_Item]) -> None:
        """End a thread's lead: the oldest pending item gets it, or the queue is dropped."""
        with queue.lock:
            if queue.pending:
                queue.pending[0].signal.set_result(LEAD)
                return
            queue.has_leader = False
            queue.is_closed = True
            with self._lock:
                if self._queues.get(queue.name) is queue:
                    del self._queues[queue.name]
