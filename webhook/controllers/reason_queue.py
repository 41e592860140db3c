"""Whose condition is looked at next: pods that say nothing yet first, then in their order.

Nothing is asked or written here, and no message is worked out. What is heard of a namespace is
kept as it came; a pod is compared with it only when its turn comes. One thread uses it.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.quota.line import Held
from webhook.quota.pod_conditions import Found

SETTLED_SECONDS: Final = 1.0
"""How long a pod waits until that is worth saying: most are released at the next look."""
RELEASED_SECONDS: Final = 2.0
"""From its release until that is said: first the gate goes, and most pods have a node by then."""


@dataclass(slots=True, eq=False)
class Reason:
    """One pod, and what is known of its condition.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        uid: Its uid.
        is_released: Quota is reserved for it.
        is_given_up: Nothing is reserved for it any more, and it may say otherwise.
        is_over: Nothing more is to be said of it.
        found: Its condition, as it was read or written last; None before.
        must_read: It may say something else by now.
        written_at: When it was read or written, by the monotonic clock.
        has_warned: There was an event that it waits.
        uncounted_since: Since when it waits only because its namespace is being counted.
        failures: How often in a row it could not be written.
        turn: Its place in a queue; others that it may have are void.
        is_queued: It waits for its turn.
        due: When that begins at the latest; other moments that were planned are void.
    """

    namespace: str
    name: str
    uid: str
    is_released: bool = False
    is_given_up: bool = False
    is_over: bool = False
    found: Found | None = None
    must_read: bool = False
    written_at: float = 0.0
    has_warned: bool = False
    uncounted_since: float | None = None
    failures: int = 0
    turn: int = 0
    is_queued: bool = False
    due: float | None = None

    @property
    def key(self) -> str:
        """The pod's key."""
        return f"{self.namespace}/{self.name}"

    @property
    def says_that_it_waits(self) -> bool:
        """Whether the pod's condition is known to be False."""
        found = self.found
        return found is not None and found.said is not None and found.said.status == "False"

    def note(self, found: Found, now: float) -> None:
        """Take down what the condition says, as it was read or written just now."""
        self.found = found
        self.must_read = False
        self.written_at = now


@dataclass(slots=True, eq=False)
class _Space:
    """What was heard of a namespace last, and its pods by uid."""

    held: Mapping[str, Held] = field(default_factory=dict)
    total: int = 0
    reasons: dict[str, Reason] = field(default_factory=dict)
    asleep: dict[str, Reason] = field(default_factory=dict)


class ReasonQueue:
    """All pods of which something is or will be said.

    Args:
        pod_seconds: Between two writes for the same pod, also where it waits anew.
    """

    def __init__(self, pod_seconds: float) -> None:
        self._pod_seconds = pod_seconds
        self._spaces: dict[str, _Space] = {}
        self._turns = itertools.count(1)
        self._first: deque[tuple[Reason, int]] = deque()
        self._rest: deque[tuple[Reason, int]] = deque()
        self._later: list[tuple[float, int, Reason]] = []

    @property
    def backlog(self) -> int:
        """How many pods wait for their turn."""
        return len(self._first) + len(self._rest)

    def clear(self) -> None:
        """Forget everything."""
        for collection in (self._spaces, self._first, self._rest, self._later):
            collection.clear()

    def held(self, reason: Reason) -> tuple[Held | None, int]:
        """Return why a pod waits, if it does, and how many have a place in its line."""
        space = self._spaces.get(reason.namespace)
        return (None, 0) if space is None else (space.held.get(reason.uid), space.total)

    def hear(
        self,
        namespace: str,
        held: Mapping[str, Held],
        released: Collection[str],
        *,
        names: Callable[[], Mapping[str, str]],
        now: float,
    ) -> None:
        """Take in what a look at a namespace has shown.

        Args:
            namespace: The namespace.
            held: Why its pods wait, by uid, in the order of the line.
            released: The uids of all that were found to may go since this was heard last; one
                that waits now may not any more.
            names: Gives the names of the namespace's pods by uid; asked only if one is new.
            now: The time.
        """
        space = self._spaces.setdefault(namespace, _Space())
        space.held = held
        space.total = max((one.place for one in held.values()), default=0)
        going = {uid: None for uid in released if uid not in held}  # in their order
        self._wake(space)
        self._add_new(namespace, space, going, names, now)
        for uid in going:
            self._release(space.reasons.get(uid), now)
        for uid in space.reasons.keys() - held.keys() - going.keys():
            self._leave(space, space.reasons[uid])
        for uid in [uid for uid in held if space.reasons[uid].is_released]:
            self._take_back(space.reasons[uid], now)
        self._forget_if_empty(namespace)

    def give_up(
        self, namespace: str, uids: Collection[str], *, names: Callable[[], Mapping[str, str]]
    ) -> None:
        """Take in that nothing is reserved for some pods any more; those that wait say that anyway.

        Args:
            namespace: The namespace.
            uids: Their uids.
            names: Gives the names of the namespace's pods by uid.
        """
        space = self._spaces.setdefault(namespace, _Space())
        named = names()
        for uid in uids:
            if uid in named and uid not in space.held:
                reason = space.reasons.setdefault(uid, Reason(namespace, named[uid], uid))
                reason.is_released = reason.is_over = False
                reason.is_given_up = True
                self._put(reason)
        self._forget_if_empty(namespace)

    def _add_new(
        self,
        namespace: str,
        space: _Space,
        going: Collection[str],
        names: Callable[[], Mapping[str, str]],
        now: float,
    ) -> None:
        known = space.reasons
        new = [uid for uid in (*space.held, *going) if uid not in known]
        named = names() if new else {}
        for uid in new:
            reason = known[uid] = Reason(namespace, named.get(uid, ""), uid)
            reason.is_over = not reason.name  # it is gone
            if uid in space.held and not reason.is_over:
                self.put_off(reason, now + SETTLED_SECONDS)

    def _wake(self, space: _Space) -> None:
        asleep, space.asleep = space.asleep, {}
        for reason in asleep.values():
            self._put(reason)

    def _release(self, reason: Reason | None, now: float) -> None:
        if reason is not None and not reason.is_released:
            reason.is_released = True
            self.put_off(reason, now + RELEASED_SECONDS)

    def _take_back(self, reason: Reason, now: float) -> None:
        """Take in that what was reserved for a pod is not any more."""
        reason.is_released = reason.is_over = False
        earliest = now + SETTLED_SECONDS
        if reason.found is not None:
            earliest = max(earliest, reason.written_at + self._pod_seconds)
        self.put_off(reason, earliest)

    def _leave(self, space: _Space, reason: Reason) -> None:
        """Take in that a pod is not in the line any more."""
        is_stale = reason.is_released or reason.is_given_up or reason.says_that_it_waits
        if reason.is_over or not is_stale:
            self.drop(reason)
            space.reasons.pop(reason.uid, None)
        elif not (reason.is_released or reason.is_given_up):
            self._put(reason)

    def _forget_if_empty(self, namespace: str) -> None:
        space = self._spaces.get(namespace)
        if space is not None and not space.reasons:
            del self._spaces[namespace]

    # -- turns ---------------------------------------------------------------------------------

    def take(self, now: float) -> Reason | None:
        """Return the pod whose turn it is; it has to be put off, put to sleep or dropped."""
        while self._later and self._later[0][0] <= now:
            moment, _, reason = heapq.heappop(self._later)
            if reason.due == moment and not reason.is_queued:
                self._put(reason)
        for queue in (self._first, self._rest):
            while queue:
                reason, turn = queue.popleft()
                if reason.turn == turn:
                    reason.is_queued = False
                    return reason
        return None

    def put_off(self, reason: Reason, moment: float) -> None:
        """Come back to a pod at a moment, and not before whatever is heard."""
        self._withdraw(reason)
        self._plan(reason, moment)

    def sleep(self, reason: Reason, *, until: float | None = None) -> None:
        """Leave a pod alone until its namespace is heard of again, or until a moment."""
        self._withdraw(reason)
        self._plan(reason, until)
        space = self._spaces.get(reason.namespace)
        if space is not None:
            space.asleep[reason.uid] = reason

    def drop(self, reason: Reason) -> None:
        """Say no more of a pod."""
        self._withdraw(reason)
        self._plan(reason, None)
        reason.is_over = True
        space = self._spaces.get(reason.namespace)
        if reason.is_given_up and space is not None and reason.uid not in space.held:
            space.reasons.pop(reason.uid, None)  # no line will be heard of that it has left
            self._forget_if_empty(reason.namespace)

    def _put(self, reason: Reason) -> None:
        """Give a pod its turn as soon as those before it had theirs."""
        if not reason.is_over:
            self._withdraw(reason)
            reason.is_queued = True
            says_nothing = reason.found is None or reason.found.said is None
            is_first = says_nothing and not reason.is_released
            (self._first if is_first else self._rest).append((reason, reason.turn))

    def _withdraw(self, reason: Reason) -> None:
        """Make the places void that a pod has in queues."""
        reason.turn, reason.is_queued = next(self._turns), False
        space = self._spaces.get(reason.namespace)
        if space is not None:
            space.asleep.pop(reason.uid, None)

    def _plan(self, reason: Reason, moment: float | None) -> None:
        if moment is not None and moment != reason.due:
            heapq.heappush(self._later, (moment, next(self._turns), reason))
        reason.due = moment
