"""Where the claims of a namespace wait for each other.

A lane has at most one leader at a time: a thread that decides all that waits. Who comes while it
is at work waits; when it is done, the one that has waited longest leads. A lane without claims is
closed and dropped, so that namespaces that come and go leave nothing behind.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TypeAlias

from webhook.quota.ledger import Claim, Observed, Undecided
from webhook.quota.refusals import QuotaExceeded


@dataclass(frozen=True, slots=True)
class Reserved:
    """The claim is in the ledger at this version; of a dry run, it would fit there."""

    ledger_version: int


Outcome: TypeAlias = Reserved | QuotaExceeded | Undecided


@dataclass(slots=True, eq=False)
class Ticket:
    """A claim that waits for its outcome.

    Attributes:
        claim: What is asked.
        observed: The quotas that it was made for.
        deadline: When to give up, on the monotonic clock.
        woken: Released once: there is an outcome, or the ticket leads.
        outcome: The answer; None while there is none.
        leads: Whether its thread has to decide for all.
    """

    claim: Claim
    observed: frozenset[Observed]
    deadline: float
    woken: threading.Lock = field(default_factory=threading.Lock)
    outcome: Outcome | None = None
    leads: bool = False

    def __post_init__(self) -> None:
        self.woken.acquire()


@dataclass(slots=True, eq=False)
class Lane:
    """The claims of one namespace: those that wait, and whether a thread is at work."""

    namespace: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[Ticket] = field(default_factory=list)
    is_busy: bool = False
    is_closed: bool = False
    """It was dropped: whoever still has it in hand has to ask for the namespace's lane again."""


class Lanes:
    """The lanes of all namespaces. Safe to use from many threads.

    A lane's own lock is taken before the lock of the whole, never after it.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return in how many namespaces claims are being decided."""
        return len(self._lanes)

    def of(self, namespace: str) -> Lane:
        """Return the namespace's lane, a new one if there is none."""
        with self._lock:
            lane = self._lanes.get(namespace)
            if lane is None:
                lane = self._lanes[namespace] = Lane(namespace)
            return lane

    def enter(self, namespace: str, ticket: Ticket) -> Lane:
        """Let a ticket wait in its lane; it leads if nobody is at work there."""
        while True:
            lane = self.of(namespace)
            with lane.lock:
                if lane.is_closed:
                    continue
                lane.waiting.append(ticket)
                ticket.leads = not lane.is_busy
                lane.is_busy = True
                return lane

    @staticmethod
    def take_all(lane: Lane) -> list[Ticket]:
        """Return all that waits, for the one that leads, and leave nothing waiting."""
        with lane.lock:
            batch, lane.waiting = lane.waiting, []
            return batch

    @staticmethod
    def is_crowded(lane: Lane) -> bool:
        """Tell whether several claims wait."""
        return len(lane.waiting) > 1

    @staticmethod
    def takes_over(lane: Lane, ticket: Ticket) -> bool:
        """Leave the queue because time is up, unless the lead was handed over meanwhile."""
        with lane.lock:
            if ticket in lane.waiting and not ticket.leads:
                lane.waiting.remove(ticket)
            return ticket.leads

    def hand_over(self, lane: Lane) -> None:
        """End one's lead: the next that waits gets it, or the lane is dropped."""
        with lane.lock:
            if not lane.waiting:
                lane.is_busy = False
                lane.is_closed = True
                with self._lock:
                    if self._lanes.get(lane.namespace) is lane:
                        del self._lanes[lane.namespace]
                return
            following = lane.waiting[0]
            following.leads = True
        following.woken.release()
