"""Pods without gates for which the scheduler has found no node, by namespace, in their order.

Why it found none is not kept with a pod; here is what was read of it, and in which version.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from webhook.quota.ledger import Claim, Ledger, exceeded
from webhook.quota.line import Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.pods import is_terminal
from webhook.state.names import GATE

BOUND_SECONDS: Final = 1.0
"""From the sight of a pod's node to that of the ledger that has its reservation."""
_FIRST_REST: Final = 1.0
_LONGEST_REST: Final = 15.0
_LONGEST_VAIN_SECONDS: Final = 300.0
"""As long as a scheduler itself leaves a pod alone that it has found no node for.

Source: kubernetes v1.36, pkg/scheduler/backend/queue/scheduling_queue.go
DefaultPodMaxInUnschedulablePodsDuration.
"""
_LONGEST_UNREAD_SECONDS: Final = 60.0
_POD_FAILED_SECONDS: Final = 2.0
"""Longer than its namespace pauses first, so that another pod is tried before it."""
_NAMESPACE_FAILED_SECONDS: Final = 1.0
_LONGEST_NAMESPACE_REST: Final = 30.0


@dataclass(slots=True)
class Rest:
    """A pause that doubles each time.

    Attributes:
        until: When it is over.
        times: How often in a row.
    """

    until: float = 0.0
    times: int = 0

    def begin(self, now: float, *, first: float, longest: float) -> None:
        """Pause from now on, for seconds."""
        self.until = now + min(longest, first * 2.0 ** min(self.times, 16))
        self.times += 1


@dataclass(slots=True)
class Woken:
    """A pod that was woken.

    Attributes:
        claim: What it takes, if anything.
        version: The pod's version by that write.
        at: When.
        until: It is left alone until then.
        times: How often in a row.
        keeps_room: What it takes is kept for it meanwhile.
        state: By what it was decided, see `Facts.state`.
    """

    claim: Claim | None
    version: int
    at: float
    until: float
    times: int = 1
    keeps_room: bool = True
    state: object = None

    def end(self, now: float) -> None:
        """Take down that it was tried in vain: it may be woken again after a pause."""
        if self.keeps_room:
            self.keeps_room = False
            self._pause(now, _LONGEST_VAIN_SECONDS)

    def note(self, state: object, now: float) -> None:
        """Let it be woken again soon if it was tried in vain and something has changed since."""
        if not self.keeps_room and state != self.state:
            self._pause(now, _LONGEST_REST)

    def _pause(self, now: float, longest: float) -> None:
        pause = min(longest, _FIRST_REST * 2.0 ** min(self.times - 1, 16))
        self.until = min(self.until, max(now, self.at + pause))


@dataclass(slots=True, eq=False)
class RefusedPods:
    """Those of one namespace. Not safe to use from several threads.

    Attributes:
        pods: Uid → a pod that no node takes.
        woken: Uid → a pod that was woken, also for a moment after it got its node.
        said: Uid → in which version it was read, and whether its quota was the reason.
        changes: Grows with every change.
        looked: What there was when they were looked at last.
        due: When to look again though nothing changes.
        terms: What they were judged by last.
        resting: Uid → for how long a pod is left alone because its request failed, or because it
            said something else when it was read.
        rest: For how long all of them are left alone, because the API server did not do it.
        was_deferred: The namespace was opted in when it was looked at last.
        leaving: Uids of those who were there when it opted out, and may be woken for that once;
            None while it is opted in, or nothing is known of that.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    woken: dict[str, Woken] = field(default_factory=dict)
    said: dict[str, tuple[int, bool]] = field(default_factory=dict)
    changes: int = 0
    looked: object = None
    due: float = 0.0
    terms: Terms | None = None
    resting: dict[str, Rest] = field(default_factory=dict)
    rest: Rest = field(default_factory=Rest)
    was_deferred: bool = False
    leaving: set[str] | None = None
    _first_seen: dict[str, int] = field(default_factory=dict)
    _waiters: dict[str, Waiter] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known that could matter later."""
        return not self._first_seen and not self.woken

    def put(self, pod: Pod, now: float) -> None:
        """Note a pod that is new or has changed."""
        if pod.is_assigned:
            self.remove(pod.uid, is_bound=True, now=now)
        elif pod.is_gated or pod.is_deleting or is_terminal(pod):
            self.remove(pod.uid, is_bound=False, now=now)
        else:
            self._first_seen.setdefault(pod.uid, int(pod.resource_version or 0))
            if pod.is_unplaced:
                self.pods[pod.uid] = pod
                self._waiters.pop(pod.uid, None)
                self.changes += 1
            elif self.pods.pop(pod.uid, None) is not None:
                self.changes += 1

    def remove(self, uid: str, *, is_bound: bool, now: float) -> None:
        """Forget a pod; what it was woken for is kept for a moment if it has its node."""
        self._first_seen.pop(uid, None)
        if self.pods.pop(uid, None) is not None:
            self.changes += 1
        self.said.pop(uid, None)
        self.resting.pop(uid, None)
        self._waiters.pop(uid, None)
        self._let_go(uid)
        woken = self.woken.get(uid)
        if woken is not None and is_bound:
            woken.until = min(woken.until, now + BOUND_SECONDS)
            self.due = min(self.due, woken.until)
        elif woken is not None:
            del self.woken[uid]
            self.changes += 1

    def forget(self) -> None:
        """Forget what was read and done: others may have led since."""
        self.woken.clear()
        self.said.clear()
        self.resting.clear()
        self.rest = Rest()
        self.looked = self.terms = self.leaving = None
        self.was_deferred = False
        self.due = 0.0

    # -- whether the namespace is opted in -----------------------------------------------------

    def note_deferred(self) -> None:
        """Take down that the namespace is opted in."""
        self.was_deferred = True
        self.leaving = None

    def note_left(self) -> bool:
        """Take down that it is not; tell whether some are still to be woken for that."""
        if self.was_deferred:
            self.was_deferred = False
            self.leaving = set(self.pods)
            self.woken.clear()
        return bool(self.leaving)

    def _let_go(self, uid: str) -> None:
        if self.leaving is not None:
            self.leaving.discard(uid)

    # -- what was done -------------------------------------------------------------------------

    def note_read(self, uid: str, version: int, now: float, *, is_ours: bool) -> None:
        """Take down what a pod says; one that says something else is not read at every change."""
        if uid not in self._first_seen:
            return  # it went meanwhile
        self.said[uid] = (version, is_ours)
        if is_ours:
            self.resting.pop(uid, None)
        else:
            rest = self.resting.setdefault(uid, Rest())
            rest.begin(now, first=_FIRST_REST, longest=_LONGEST_UNREAD_SECONDS)
            self._let_go(uid)

    def note_gone(self, pod: Pod) -> None:
        """Take down that a pod is not there any more."""
        if pod.uid in self._first_seen:
            self.said[pod.uid] = (int(pod.resource_version or 0), False)
        self._let_go(pod.uid)

    def note_woken(self, uid: str, woken: Woken) -> None:
        """Take down that a pod was woken; where nothing is counted, that was all."""
        if uid in self._first_seen:
            self.said[uid] = (woken.version, True)
        self.resting.pop(uid, None)
        if self.leaving is None:
            self.woken[uid] = woken
        self._let_go(uid)

    def note_failed(self, uid: str, now: float) -> None:
        """Let a pod rest whose request failed."""
        if uid not in self._first_seen:
            return
        rest = self.resting.setdefault(uid, Rest())
        rest.begin(now, first=_POD_FAILED_SECONDS, longest=_LONGEST_VAIN_SECONDS)

    def note_stuck(self, now: float) -> None:
        """Let all of them rest."""
        self.rest.begin(now, first=_NAMESPACE_FAILED_SECONDS, longest=_LONGEST_NAMESPACE_REST)

    def note_look(self, seen: object, now: float) -> None:
        """Take down that all had their turn."""
        self.looked = seen
        moments = [one.until for one in self.woken.values()]
        moments += [
            rest.until
            for uid, rest in self.resting.items()
            if uid in self.pods and self.is_refused(self.pods[uid]) is not False
        ]
        self.due = min([one for one in moments if one > now], default=math.inf)

    def take_answers(self, ledger: Ledger | None, state: object, now: float) -> None:
        """Find out whose room is not to be kept any more, and who can be forgotten."""
        for uid, woken in list(self.woken.items()):
            pod = self.pods.get(uid)
            if pod is None:
                if woken.until <= now:
                    del self.woken[uid]
            elif int(pod.resource_version or 0) > woken.version:
                woken.end(now)
                if self.is_refused(pod) is False:
                    del self.woken[uid]
            elif ledger is not None and woken.claim is not None and exceeded(ledger, woken.claim):
                woken.end(now)  # others were quicker
            woken.note(state, now)

    def left_alone(self, now: float) -> set[str]:
        """Return the uids of those who are not to be touched now."""
        found = {uid for uid, one in self.woken.items() if one.until > now}
        found.update([uid for uid, one in self.resting.items() if one.until > now])
        if self.leaving is not None:
            found.update(self.pods.keys() - self.leaving)
        return found

    # -- their order ---------------------------------------------------------------------------

    def line(self, terms: Terms, *, besides: Collection[str]) -> tuple[Waiter, ...]:
        """Return those who may have been refused for their quota, in their order.

        Args:
            terms: What they are judged by.
            besides: Uids of those who are left out.
        """
        if terms is not self.terms:
            self._waiters.clear()
            self.terms = terms
        found = [
            self._judged(uid, terms)
            for uid, pod in self.pods.items()
            if uid not in besides and self.is_refused(pod) is not False
        ]
        return tuple(sorted(found, key=lambda one: one.place))

    def is_refused(self, pod: Pod) -> bool | None:
        """Tell whether a pod's quota is why it has no node; None if that was not read yet."""
        version, is_ours = self.said.get(pod.uid, (-1, False))
        return is_ours if version >= int(pod.resource_version or 0) else None

    def _judged(self, uid: str, terms: Terms) -> Waiter:
        waiter = self._waiters.get(uid)
        if waiter is None:
            pod, since = self.pods[uid], self._first_seen.get(uid, 0)
            waiter = self._waiters[uid] = waiter_of(pod, GATE, since=since, terms=terms)
        return waiter
