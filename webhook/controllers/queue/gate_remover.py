"""Remove our scheduling gate from released pods, several at a time.

The pods to release are handed over again after every reconciliation of a namespace, as long as the
cache shows the gate. So a patch that failed, or that the former leader did not send, is sent then;
one that failed less and less often while its pod does not change. A patch tests the pod's uid and
the position of the gate, so that it changes nothing else.

Namespaces take turns, and none takes more threads than it leaves free: half where it is alone. So
a few whose patches are answered just in time do not occupy all of them. The API server compares
each toleration of a changed pod with every other one: with ten thousand of them no patch is
answered in time. A namespace with such a pod gets one thread, and its slow pods are tried again one
at a time; all such namespaces together get half of the threads. A namespace stays slow for a while
after its slow pods are gone: otherwise their creator could delete and recreate them, and take all
threads.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go validateOnlyAddedTolerations.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from webhook.controllers.runtime.periodic import PeriodicThread, stop_all
from webhook.controllers.runtime.rate_limit import ExponentialBackoff, SlowNamespaces
from webhook.kube.api import (
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    InvalidError,
    NotFoundError,
    RequestTimeoutError,
)
from webhook.quota.objects.compact import MAX_KEPT_GATES
from webhook.quota.objects.model import Pod
from webhook.state.well_known import SCHEDULING_GATE, gate_removal
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0
_BACKOFF: Final = ExponentialBackoff(1.0, 30.0)
_SLOW_BACKOFF: Final = ExponentialBackoff(1.0, 120.0)
_Known = TypeVar("_Known")
_IN_PROGRESS: Final = 2**64
"""The version in which the gate will be gone, of a pod whose patch was not answered yet."""


@dataclass(frozen=True, slots=True)
class _GateRemoval:
    """A gate that is to be removed, since when, and whether this process still leads."""

    pod: Pod
    since: float
    is_leader: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Failure:
    """Patches of a pod that came to nothing: of which version, how many in a row, and a pause."""

    version: str
    times: int
    retry_at: float


@dataclass(slots=True)
class _NamespaceRemovals:
    """Gates to be removed in one namespace."""

    queue: deque[_GateRemoval] = field(default_factory=deque)
    gone_at: dict[str, int] = field(default_factory=dict)
    """Pod uid → the version in which its gate is gone; all pods whose gate is to go."""
    sending: int = 0
    """Patches that were not answered yet."""
    slow: dict[str, None] = field(default_factory=dict)
    """Uids of pods whose patch was not answered in time; the one that was tried last comes last."""
    timeouts: int = 0
    """How many patches in a row were not answered in time, of pods that were slow before."""
    retry_at: float = -math.inf
    """When the first of the slow ones is tried again."""
    failed: dict[str, _Failure] = field(default_factory=dict)
    """Pod uid → what came of it last; a policy may forbid it for good."""

    def pause_of(self, pod: Pod, now: float) -> float:
        """Return how long a pod that is as it was when a patch of it failed is left alone."""
        known = self.failed.get(pod.uid)
        return known.retry_at - now if known and known.version == pod.resource_version else 0.0

    def note_failure(self, pod: Pod, now: float) -> float:
        """Note a patch that came to nothing; return how long its pod is left alone."""
        known = self.failed.get(pod.uid)
        times = 1 if known is None else known.times + 1
        pause = _BACKOFF.seconds(times)
        self.failed[pod.uid] = _Failure(pod.resource_version, times, now + pause)
        return pause

    def note_slow(self, uid: str, now: float) -> float:
        """Note a patch that was not answered in time; return how long the slow ones wait."""
        self.timeouts += uid in self.slow
        self.slow.pop(uid, None)
        self.slow[uid] = None
        pause = _SLOW_BACKOFF.seconds(self.timeouts + 1)
        self.retry_at = now + pause
        return pause

    def note_answer(self, uid: str) -> None:
        """Note that a patch was answered: where it is one of the slow, they are slow no more."""
        if uid in self.slow:
            self.slow.clear()
            self.timeouts = 0


class GateRemover:
    """A pool of threads that remove gates. Safe to use from several threads.

    Args:
        workers: How many patches are on their way at the same time.
        clock: The clock of `since`.
        requeue_after: Has a namespace in which a patch came to nothing looked at again after some
            seconds.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        workers: int,
        clock: Callable[[], float],
        requeue_after: Callable[[str, float], None],
        metrics: Metrics,
    ) -> None:
        self._api = api
        self._clock = clock
        self._requeue_after = requeue_after
        self._metrics = metrics
        self._condition = threading.Condition()
        self._namespaces: dict[str, _NamespaceRemovals] = {}
        self._turns: dict[str, None] = {}
        """The namespaces with something in their queue; the one that was served last comes last."""
        self._max_sending = max(1, workers // 2)
        self._sending = 0
        """Patches of all namespaces that were not answered yet."""
        self._slow = SlowNamespaces()
        """Namespaces whose patches were not answered in time, also deleted ones, until it is over:
        no more of them than patches that timed out meanwhile."""
        self._is_stopping = False
        self._threads = [
            PeriodicThread(f"gates-{number}", self._work, retry_seconds=0.0)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait for what was sent."""
        with self._condition:
            self._is_stopping = True
            self._turns.clear()
            self._condition.notify_all()
        stop_all(self._threads, _STOP_SECONDS)

    def enqueue(
        self, namespace: str, pods: Sequence[Pod], *, since: float, is_leader: Callable[[], bool]
    ) -> None:
        """Remove the gates of these pods, in this order, as the cache shows them.

        Args:
            pods: All of it whose gate is to go; what was wanted before and is not among them is
                over.
            since: When it was found that they may go.
            is_leader: Returns whether this process still leads.
        """
        now, wait = self._clock(), math.inf
        with self._condition:
            removals = self._namespaces.setdefault(namespace, _NamespaceRemovals())
            removals.slow = _of_these(removals.slow, pods)
            removals.failed = _of_these(removals.failed, pods)
            retried = next(iter(removals.slow), "") if removals.retry_at <= now else ""
            if removals.slow and not retried:
                wait = removals.retry_at - now
            known: dict[str, int] = {}
            for pod in pods:
                gone_at = removals.gone_at.get(pod.uid, 0)
                is_due = pod.uid == retried or pod.uid not in removals.slow
                pause = removals.pause_of(pod, now)
                if pause > 0:
                    is_due, wait = False, min(wait, pause)
                if is_due and int(pod.resource_version or 0) >= gone_at:  # nothing is on its way
                    removals.queue.append(_GateRemoval(pod, since, is_leader))
                    self._turns.setdefault(namespace)
                    self._condition.notify()
                    gone_at = _IN_PROGRESS
                known[pod.uid] = gone_at
            removals.gone_at = known
            self._forget_if_idle(namespace, removals)
        if wait < math.inf:
            self._requeue_after(namespace, wait)

    @property
    def backlog(self) -> int:
        """Number of gates that wait to be removed."""
        with self._condition:
            return sum(len(self._namespaces[name].queue) for name in self._turns)

    def remove_next(self, timeout_seconds: float) -> bool:
        """Remove one gate; return whether there was one, or came in time."""
        removal = self._take(timeout_seconds)
        if removal is None:
            return False
        result, gone_at = "failed", 0
        try:
            result, gone_at = self._send(removal)
        finally:  # whatever happened, it is no longer on its way
            pause = self._record(removal, result, gone_at)
            if not gone_at:
                self._requeue_after(removal.pod.namespace, pause)
        self._metrics.queue.gates.labels(result).inc()
        if result == "removed":
            self._metrics.queue.seconds.observe(self._clock() - removal.since)
        return True

    def _work(self) -> float:
        self.remove_next(_IDLE_SECONDS)
        return 0.0

    def _take(self, timeout_seconds: float) -> _GateRemoval | None:
        with self._condition:
            self._condition.wait_for(
                lambda: self._next_namespace() or self._is_stopping, timeout_seconds
            )
            name = self._next_namespace()
            if not name:
                return None
            removals = self._namespaces[name]
            removal = removals.queue.popleft()
            removals.sending += 1
            self._sending += 1
            del self._turns[name]
            if removals.queue:
                self._turns[name] = None
            return removal

    def _next_namespace(self) -> str:
        """Return the namespace whose turn it is, of those that may send one more; lock held."""
        now = self._clock()
        left = self._max_sending - sum(
            self._namespaces[name].sending
            for name in self._slow
            if name in self._namespaces and self._is_slow(name, now)
        )
        free = len(self._threads) - self._sending
        for name in self._turns:
            limit = min(1, left) if self._is_slow(name, now) else free
            if self._namespaces[name].sending < limit:
                return name
        return ""

    def _is_slow(self, namespace: str, now: float) -> bool:
        return self._slow.rests(namespace, now) or bool(self._namespaces[namespace].slow)

    def _forget_if_idle(self, namespace: str, removals: _NamespaceRemovals) -> None:
        if not (removals.gone_at or removals.queue or removals.sending):
            del self._namespaces[namespace]

    def _send(self, removal: _GateRemoval) -> tuple[str, int]:
        """Return what became of it, and in which version the gate is gone; 0 if it is not."""
        pod = removal.pod
        if not removal.is_leader() or not self._is_current(removal):
            return "dropped", 0
        try:
            gates = self._gates_of(pod)
            if SCHEDULING_GATE not in gates:
                return "changed", 0
            patched = gate_removal(pod.uid, gates.index(SCHEDULING_GATE))
            written = self._api.patch(PODS, pod.name, patched, namespace=pod.namespace)
        except (NotFoundError, ConflictError, InvalidError):
            return "changed", 0  # gone, another pod, or other gates: the watch shows it
        except ApiError as err:
            _log.warning(
                "removing a gate failed",
                extra={"namespace": pod.namespace, "pod": pod.name, "error": str(err)},
            )
            return "timeout" if isinstance(err, RequestTimeoutError) else "failed", 0
        return "removed", written.resource_version

    def _gates_of(self, pod: Pod) -> tuple[str, ...]:
        """Return all gates of a pod in their order, which the cache does not keep of very many.

        Raises:
            ApiError: They have to be read, and cannot be.
        """
        if len(pod.scheduling_gates) <= MAX_KEPT_GATES:
            return pod.scheduling_gates
        stored = self._api.get(PODS, pod.name, namespace=pod.namespace)
        return Pod.from_stored(stored).scheduling_gates

    def _is_current(self, removal: _GateRemoval) -> bool:
        """Return whether the last that was wanted of the namespace still has this pod in it."""
        with self._condition:
            removals = self._namespaces[removal.pod.namespace]
            return removals.gone_at.get(removal.pod.uid) == _IN_PROGRESS

    def _record(self, removal: _GateRemoval, result: str, gone_at: int) -> float:
        """Record what became of a patch; return how long to wait until the next attempt."""
        uid, namespace = removal.pod.uid, removal.pod.namespace
        with self._condition:
            removals = self._namespaces[namespace]
            removals.sending -= 1
            self._sending -= 1
            self._condition.notify()
            if uid in removals.gone_at:
                removals.gone_at[uid] = gone_at
            self._forget_if_idle(namespace, removals)
            if result == "timeout":
                now = self._clock()
                self._slow.note_timeout(namespace, now)
                return removals.note_slow(uid, now)
            if result in ("removed", "changed"):
                removals.note_answer(uid)
            if result in ("failed", "changed"):
                return removals.note_failure(removal.pod, self._clock())
            return _BACKOFF.first_seconds


def _of_these(known: Mapping[str, _Known], pods: Sequence[Pod]) -> dict[str, _Known]:
    """Return what is known by uid of some of the pods, in its order."""
    if not known:
        return {}
    wanted = {pod.uid for pod in pods}
    return {uid: one for uid, one in known.items() if uid in wanted}
