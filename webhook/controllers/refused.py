"""Pods without gates for which the scheduler has found no node, by namespace, in their order.

Why it found none is not kept with a pod; here is what was read of it, and in which version.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from webhook.quota.ledger import Claim
from webhook.quota.line import Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.pods import is_terminal
from webhook.state.names import GATE

BOUND_SECONDS: Final = 1.0
"""From the sight of a pod's node to that of the ledger that has its reservation."""
_FIRST_REST: Final = 1.0
_LONGEST_REST: Final = 15.0


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
    """

    claim: Claim | None
    version: int
    at: float
    until: float
    times: int = 1
    keeps_room: bool = True

    def end(self, now: float) -> None:
        """Take down that it was tried in vain: it may be woken again soon."""
        if self.keeps_room:
            self.keeps_room = False
            pause = min(_LONGEST_REST, _FIRST_REST * 2.0 ** (self.times - 1))
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
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    woken: dict[str, Woken] = field(default_factory=dict)
    said: dict[str, tuple[int, bool]] = field(default_factory=dict)
    changes: int = 0
    looked: object = None
    due: float = 0.0
    terms: Terms | None = None
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
        self._waiters.pop(uid, None)
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
        self.looked = self.terms = None
        self.due = 0.0

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
