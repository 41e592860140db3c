"""Queue of pods whose condition is checked, in turns of their namespaces.

Namespaces take turns, so that pods of one do not wait for thousands of another, nor for pods that
are created and deleted there. Within a namespace, pods without a condition come first.

No request is sent here, and no message is composed. The last cycle of a namespace's queue is kept
as it is; a pod is compared with it only when the pod is due. One thread uses it.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from webhook.controllers.runtime.turns import Turns
from webhook.quota.objects.model import Pod
from webhook.quota.queue.pod_conditions import RESERVED, ObservedCondition
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus

MIN_WAIT_SECONDS: Final = 1.0
"""How long a pod waits until that is worth saying: most are released at the next look."""
RELEASE_DELAY_SECONDS: Final = 2.0
"""From its release until that is said: first the gate goes, and most pods have a node by then."""


@dataclass(slots=True, eq=False)
class PodConditionState:
    """One pod, and what is known of its condition."""

    namespace: str
    """Its namespace."""
    name: str
    """Its name."""
    uid: str
    """Its uid."""
    is_released: bool = False
    """Quota is reserved for it."""
    released_at: float = 0.0
    """When that was taken in, by the monotonic clock."""
    untried_by: str = ""
    """The scheduler that it names, where none had tried it when it was read last."""
    read_at: float = 0.0
    """When that was, by the monotonic clock."""
    is_watched: bool = False
    """What it says holds only for as long as it has no node, or no scheduler has tried it."""
    hurries_from: float = 0.0
    """When a change of its reason may be written again before its time."""
    has_lost_reservation: bool = False
    """Nothing is reserved for it any more, and it may say otherwise."""
    is_done: bool = False
    """Nothing more is to be said of it."""
    observed: ObservedCondition | None = None
    """Its condition, as it was read or written last; None before."""
    must_refresh: bool = False
    """It may say something else by now."""
    observed_at: float = 0.0
    """When it was read or written, by the monotonic clock."""
    has_warned: bool = False
    """There was an event that it waits."""
    uncounted_since: float | None = None
    """Since when it waits only because its namespace is being counted."""
    failures: int = 0
    """How often in a row it could not be written."""
    is_queued: bool = False
    """It waits for its turn."""
    due: float | None = None
    """When that begins at the latest; other moments that were planned are void."""

    @property
    def key(self) -> str:
        """The pod's key."""
        return f"{self.namespace}/{self.name}"

    @property
    def reports_passing(self) -> bool:
        """Whether the pod's condition ends with its bind, as far as is known."""
        if self.observed is None:
            return self.has_lost_reservation  # it is read first
        return self.observed.condition not in (None, RESERVED)

    @property
    def reports_waiting(self) -> bool:
        """Whether the pod's condition is False, as far as is known."""
        observed = self.observed
        return (
            observed is not None
            and observed.condition is not None
            and observed.condition.status == "False"
        )

    def record(self, observed: ObservedCondition, now: float) -> None:
        """Record what the condition says, as it was read or written just now."""
        self.observed = observed
        self.must_refresh = False
        self.observed_at = now


@dataclass(slots=True, eq=False)
class _Namespace:
    """The last cycle of a namespace's queue, and its pods by uid."""

    pending: Mapping[str, PendingStatus] = field(default_factory=dict)
    total: int = 0
    releasable: Collection[str] = frozenset()
    pods: dict[str, PodConditionState] = field(default_factory=dict)
    parked: dict[str, PodConditionState] = field(default_factory=dict)


class PodLister(Protocol):
    """The pods of the cluster, as an informer has them."""

    def get(self, key: str) -> Pod | None:
        """Return a pod by "namespace/name"."""

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        """Return the pods of a namespace."""

    def items(self) -> Mapping[str, Pod]:
        """Return all pods by "namespace/name"."""


class ConditionQueue:
    """All pods of which something is or will be said.

    Args:
        pods: Returns the cache of pods.
        pod_seconds: Between two writes for the same pod, also where it waits anew.
    """

    def __init__(self, pods: Callable[[], PodLister], pod_seconds: float) -> None:
        self._pods = pods
        self._pod_seconds = pod_seconds
        self._namespaces: dict[str, _Namespace] = {}
        self._tickets = itertools.count(1)
        self._turns: Turns[str, PodConditionState] = Turns()
        self._delayed: list[tuple[float, int, PodConditionState]] = []

    @property
    def backlog(self) -> int:
        """Number of pods that wait for their turn."""
        return len(self._turns)

    @property
    def is_empty(self) -> bool:
        """Whether no pod is known."""
        return not self._namespaces

    @property
    def scheduled(self) -> int:
        """Number of times that are planned, void ones included."""
        return len(self._delayed)

    def clear(self) -> None:
        """Forget everything."""
        self._turns.clear()
        self._namespaces.clear()
        self._delayed.clear()

    def pending_status(self, state: PodConditionState) -> tuple[PendingStatus | None, int]:
        """Return why a pod waits, if it does, and how many have a place in its queue."""
        entry = self._namespaces.get(state.namespace)
        return (None, 0) if entry is None else (entry.pending.get(state.uid), entry.total)

    def is_listed(self, state: PodConditionState) -> bool:
        """Return whether a pod waited, or was releasable, in the last cycle of its queue."""
        entry = self._namespaces.get(state.namespace)
        return entry is not None and (state.uid in entry.pending or state.uid in entry.releasable)

    def update(
        self,
        namespace: str,
        pending: Mapping[str, PendingStatus],
        released: Collection[str],
        *,
        releasable: Collection[str] = (),
        now: float,
    ) -> None:
        """Take the result of a cycle of a namespace's queue.

        Args:
            pending: Why its pods wait, by uid, in the order of the queue.
            released: The uids of all that became releasable since the last update; one
                that waits now may not any more.
            releasable: The uids of those that still are: a later update shows when one is not.
        """
        entry = self._namespaces.setdefault(namespace, _Namespace())
        entry.pending = pending
        entry.total = max((one.position for one in pending.values()), default=0)
        entry.releasable = frozenset(releasable)
        going = {uid: None for uid in released if uid not in pending}  # in their order
        self._unpark(entry)
        self._add_new(namespace, entry, going, now)
        for uid, status in pending.items():
            self._hurry(entry.pods[uid], status, now)
        for uid in going:
            self._release(entry.pods[uid], now)
        for uid in entry.pods.keys() - pending.keys() - going.keys():
            self._note_left(entry.pods[uid])
        for uid in [uid for uid in pending if entry.pods[uid].is_released]:
            self._note_lost_reservation(entry.pods[uid], now)
        self._forget_if_empty(namespace)

    def note_lost_reservations(self, namespace: str, uids: Collection[str]) -> None:
        """Note lost reservations; the conditions of pods that wait again say so anyway."""
        entry = self._namespaces.setdefault(namespace, _Namespace())
        named = self._names(namespace)
        for uid in uids:
            if uid in named and uid not in entry.pending:
                state = entry.pods.setdefault(uid, PodConditionState(namespace, named[uid], uid))
                state.is_released = state.is_done = False
                state.has_lost_reservation = True
                if not state.is_queued:  # each change of the pod comes here
                    self._enqueue(state)
        self._forget_if_empty(namespace)

    def _names(self, namespace: str) -> Mapping[str, str]:
        return {pod.uid: pod.name for pod in self._pods().in_namespace(namespace)}

    def _add_new(
        self, namespace: str, entry: _Namespace, going: Collection[str], now: float
    ) -> None:
        known = entry.pods
        new = [uid for uid in (*entry.pending, *going) if uid not in known]
        named = self._names(namespace) if new else {}
        for uid in new:
            state = known[uid] = PodConditionState(namespace, named.get(uid, ""), uid)
            state.is_done = not state.name  # it is gone
            if uid in entry.pending and not state.is_done:
                self.requeue_at(state, now + MIN_WAIT_SECONDS)

    def _hurry(self, state: PodConditionState, status: PendingStatus, now: float) -> None:
        """Let a pod that rests after a write say another reason soon, once in its time.

        A reason that goes to and fro is written no more than twice as often.
        """
        rests = state.due is not None and state.due > now + MIN_WAIT_SECONDS
        present = None if state.observed is None else state.observed.condition
        if not rests or state.is_queued or state.failures or present is None:
            return
        is_other = (
            status.reason is not PendingReason.NOT_COUNTED and status.reason != present.reason
        )
        if is_other and now >= state.hurries_from:
            state.hurries_from = now + self._pod_seconds
            self.requeue_at(state, now + MIN_WAIT_SECONDS)

    def _unpark(self, entry: _Namespace) -> None:
        asleep, entry.parked = entry.parked, {}
        for state in asleep.values():
            self._enqueue(state)

    def _release(self, state: PodConditionState, now: float) -> None:
        if state.is_done:
            self.forget(state)  # it may not be releasable any more
        elif not state.is_released:
            state.is_released, state.released_at = True, now
            self.requeue_at(state, now + RELEASE_DELAY_SECONDS)

    def _note_lost_reservation(self, state: PodConditionState, now: float) -> None:
        """Note that a pod has lost its reservation."""
        state.is_released = state.is_done = False
        earliest = now + MIN_WAIT_SECONDS
        if state.observed is not None:
            earliest = max(earliest, state.observed_at + self._pod_seconds)
        self.requeue_at(state, earliest)

    def _note_left(self, state: PodConditionState) -> None:
        """Note that a pod has left the queue.

        One that is gone is forgotten at once: its turn may come late, and tenants choose how many
        come and go.
        """
        is_stale = state.is_released or state.has_lost_reservation or state.reports_waiting
        if state.is_done or not is_stale or not self._is_there(state):
            self.forget(state)
        elif not (
            state.is_released or state.has_lost_reservation or state.is_queued or state.failures
        ):
            self._enqueue(state)

    def _is_there(self, state: PodConditionState) -> bool:
        pod = self._pods().get(state.key)
        return pod is not None and pod.uid == state.uid

    def _forget_if_empty(self, namespace: str) -> None:
        entry = self._namespaces.get(namespace)
        if entry is not None and not entry.pods:
            del self._namespaces[namespace]

    # -- turns ---------------------------------------------------------------------------------

    def get(self, now: float) -> PodConditionState | None:
        """Return the pod whose turn it is; it has to be put off, put to sleep or dropped."""
        while self._delayed and self._delayed[0][0] <= now:
            moment, _, state = heapq.heappop(self._delayed)
            if state.due == moment and not state.is_queued:
                self._enqueue(state)
        found = self._turns.pop()
        if found is not None:
            found.is_queued = False
        return found

    def purge(self, now: float, is_past: Callable[[PodConditionState], bool]) -> None:
        """Forget pods that are due and need no condition; the others stay due."""
        kept: list[PodConditionState] = []
        while (state := self.get(now)) is not None:
            if is_past(state):
                self.forget(state)
            else:
                kept.append(state)
        for state in kept:
            self._enqueue(state)

    def requeue_at(self, state: PodConditionState, due_at: float) -> None:
        """Requeue a pod for a time, and no earlier whatever changes."""
        self._withdraw(state)
        self._schedule(state, due_at)

    def park(self, state: PodConditionState, *, until: float | None = None) -> None:
        """Leave a pod alone until the next cycle of its queue, or until a time."""
        self._withdraw(state)
        self._schedule(state, until)
        entry = self._namespaces.get(state.namespace)
        if entry is not None:
            entry.parked[state.uid] = state

    def forget(self, state: PodConditionState) -> None:
        """Write no condition of a pod any more."""
        self._withdraw(state)
        self._schedule(state, None)
        state.is_done = True
        entry = self._namespaces.get(state.namespace)
        if entry is not None and not self.is_listed(state):
            entry.pods.pop(state.uid, None)  # no later cycle shows that it has left
            self._forget_if_empty(state.namespace)

    def _enqueue(self, state: PodConditionState) -> None:
        """Make a pod due after those that are due already."""
        if not state.is_done:
            self._withdraw(state)
            state.is_queued = True
            reports_nothing = state.observed is None or state.observed.condition is None
            goes_first = reports_nothing and not state.is_released
            self._turns.append(state.namespace, state.uid, state, goes_first=goes_first)

    def _withdraw(self, state: PodConditionState) -> None:
        """Take from a pod its place among those whose turn comes."""
        if state.is_queued:
            self._turns.remove(state.namespace, state.uid)
            state.is_queued = False
        entry = self._namespaces.get(state.namespace)
        if entry is not None:
            entry.parked.pop(state.uid, None)

    def _schedule(self, state: PodConditionState, due_at: float | None) -> None:
        if due_at is not None and due_at != state.due:
            heapq.heappush(self._delayed, (due_at, next(self._tickets), state))
        state.due = due_at
