"""Remove our scheduling gate from pods that may go, several at a time.

What is to be done is said again after every look at a namespace, as long as the cache shows the
gate: a patch that failed, or that a leader before this one never sent, is sent then. A patch
names the pod's uid and the gate's place, so that it changes nothing else than what was meant.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from webhook.kube.api import (
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from webhook.quota.objects.model import Pod
from webhook.state.well_known import SCHEDULING_GATE, gate_removal
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 10.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_MAX_PAUSE_SECONDS: Final = 30.0
_IN_PROGRESS: Final = 2**64
"""The version in which the gate will be gone, of a pod whose patch was not answered yet."""


@dataclass(frozen=True, slots=True)
class _GateRemoval:
    """A gate that is to be removed, since when, and who says that this process still may."""

    pod: Pod
    since: float
    is_leader: Callable[[], bool]


class GateRemover:
    """A pool of threads that remove gates. Safe to use from several threads.

    Args:
        api: The API server.
        workers: How many patches are on their way at the same time.
        clock: The clock of `since`.
        requeue_after: Told of a namespace in which a patch came to nothing, and after how many
            seconds to say again what is to be done.
        metrics: Where it is counted.
    """

    def __init__(
        self,
        api: ClusterApi,
        *,
        workers: int,
        clock: Callable[[], float],
        requeue_after: Callable[[str, float], None],
        metrics: Metrics | None = None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._requeue_after = requeue_after
        self._metrics = metrics
        self._condition = threading.Condition()
        self._queue: deque[_GateRemoval] = deque()
        self._gone_at: dict[str, dict[str, int]] = {}
        """Namespace → pod uid → the version in which its gate is gone."""
        self._failures = 0
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"gates-{number}", daemon=True)
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
            self._queue.clear()
            self._condition.notify_all()
        give_up = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=max(0.0, give_up - time.monotonic()))

    def enqueue(
        self, namespace: str, pods: Iterable[Pod], *, since: float, is_leader: Callable[[], bool]
    ) -> None:
        """Remove the gates of these pods, in this order, as the cache shows them.

        Args:
            namespace: Their namespace.
            pods: All of it whose gate is to go; what was wanted before and is not among them is
                over.
            since: When it was found that they may go.
            is_leader: Returns whether this process still leads.
        """
        with self._condition:
            before = self._gone_at.pop(namespace, {})
            known: dict[str, int] = {}
            for pod in pods:
                gone_at = before.get(pod.uid, 0)
                if int(pod.resource_version or 0) >= gone_at:  # nothing is on its way
                    self._queue.append(_GateRemoval(pod, since, is_leader))
                    self._condition.notify()
                    gone_at = _IN_PROGRESS
                known[pod.uid] = gone_at
            if known:
                self._gone_at[namespace] = known

    @property
    def backlog(self) -> int:
        """How many gates wait to be removed."""
        return len(self._queue)

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
        if self._metrics is not None:
            self._metrics.queue.gates.labels(result).inc()
            if result == "removed":
                self._metrics.queue.seconds.observe(self._clock() - removal.since)
        return True

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self.remove_next(_IDLE_SECONDS)
            except Exception:  # noqa: BLE001 - outermost frame: logged, and the next one comes
                _log.exception("removing a gate failed")

    def _take(self, timeout_seconds: float) -> _GateRemoval | None:
        with self._condition:
            self._condition.wait_for(lambda: self._queue or self._is_stopping, timeout_seconds)
            return self._queue.popleft() if self._queue else None

    def _send(self, removal: _GateRemoval) -> tuple[str, int]:
        """Return what became of it, and in which version the gate is gone; 0 if it is not."""
        pod = removal.pod
        if not removal.is_leader() or not self._is_current(removal):
            return "dropped", 0
        try:
            patched = gate_removal(pod.uid, pod.scheduling_gates.index(SCHEDULING_GATE))
            written = self._api.patch(PODS, pod.name, patched, namespace=pod.namespace)
        except (NotFoundError, ConflictError, InvalidError):
            return "changed", 0  # gone, another pod, or other gates: the watch shows it
        except ApiError as err:
            _log.warning(
                "removing a gate failed",
                extra={"namespace": pod.namespace, "pod": pod.name, "error": str(err)},
            )
            return "failed", 0
        return "removed", written.resource_version

    def _is_current(self, removal: _GateRemoval) -> bool:
        """Return whether the last that was wanted of the namespace still has this pod in it."""
        with self._condition:
            wanted = self._gone_at.get(removal.pod.namespace, {})
            return wanted.get(removal.pod.uid) == _IN_PROGRESS

    def _record(self, removal: _GateRemoval, result: str, gone_at: int) -> float:
        """Record what became of a patch; return how long to wait until the next attempt."""
        with self._condition:
            known = self._gone_at.get(removal.pod.namespace, {})
            if removal.pod.uid in known:
                known[removal.pod.uid] = gone_at
            self._failures = min(self._failures + 1, 10) if result == "failed" else 0
            return float(
                min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** max(0, self._failures - 1))
            )
