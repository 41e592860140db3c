"""The requests that wake refused pods: what a pod says is read, and an annotation is written.

A pod whose request fails rests, and so does its namespace where others may fare no better.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from webhook.cluster.api import PODS, ApiError, ClusterApi, ConflictError, NotFoundError
from webhook.controllers.budget import Budget
from webhook.controllers.refused import BOUND_SECONDS, RefusedPods, Woken
from webhook.quota.line import Waiter
from webhook.quota.objects import Pod
from webhook.quota.scheduler_words import is_refused_by_quota
from webhook.state.names import MARK_PREFIX

_log = logging.getLogger(__name__)

WOKEN_ANNOTATION: Final = f"{MARK_PREFIX}requeued"
"""When the pod was touched last, so that its scheduler tries it again."""

_LONGEST_AGAIN_SECONDS: Final = 300.0
_SERVER_ERRORS: Final = 500
_PASSING: Final = frozenset({408, 429})
"""Codes below 500 that say nothing of the very pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeLimits:
    """How much is done; all times are seconds.

    Attributes:
        per_second: How many requests are sent, reads and writes.
        most_at_once: How many pods of a namespace may be woken and not heard of.
        again_seconds: From one touch of a pod to the next; longer than a scheduler lets a pod
            pause, which is 10.
        look_seconds: Between two looks at what has changed.
        clock: The monotonic clock.
        now: The time of day.
    """

    per_second: float = 100.0
    most_at_once: int = 200
    again_seconds: float = 15.0
    look_seconds: float = 0.1
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class WakeRequests:
    """Sends them, no more than is allowed.

    Args:
        api: The API server.
        limits: How much is done.
        lock: Held while what is known of pods is changed.
        may_write: Tells whether this process still may.
    """

    def __init__(
        self,
        api: ClusterApi,
        limits: WakeLimits,
        lock: threading.Lock,
        may_write: Callable[[], bool],
    ) -> None:
        self._api = api
        self._limits = limits
        self._lock = lock
        self._may_write = may_write
        self._budget = Budget(lambda: limits.per_second, limits.clock)
        self.served = ""
        """The namespace that was served last."""

    @property
    def are_spent(self) -> bool:
        """Whether none may be sent now."""
        return self._budget.wait_seconds() > 0

    def take(self, namespace: str) -> bool:
        """Tell whether one more may be sent now, and count it."""
        if self.are_spent or not self._may_write():
            return False
        self._budget.spend()
        self.served = namespace
        return True

    @contextmanager
    def noting_failure(self, space: RefusedPods, pod: Pod) -> Iterator[None]:
        """Let a pod rest whose request fails, and all of its namespace if that may be no better.

        Raises:
            ApiError: The API server does not do it, and not because of the very pod.
        """
        try:
            yield
        except ApiError as err:
            with self._lock:
                space.note_failed(pod.uid, self._limits.clock())
            if err.code >= _SERVER_ERRORS or err.code in _PASSING:
                raise
            key = f"{pod.namespace}/{pod.name}"
            _log.info("pod not woken", extra={"pod": key, "error": str(err)})
        space.rest.times = 0

    def read(self, space: RefusedPods, pod: Pod, now: float) -> None:
        """Read why a pod has no node.

        Raises:
            ApiError: The API server does not say.
        """
        version, is_ours = int(pod.resource_version or 0), False
        try:
            found = self._api.get(PODS, pod.name, namespace=pod.namespace)
            metadata = found.get("metadata")
            if isinstance(metadata, Mapping) and metadata.get("uid") == pod.uid:
                version = max(version, int(str(metadata.get("resourceVersion") or 0)))
                is_ours = is_refused_by_quota(found)
        except NotFoundError:
            pass  # it is gone, as the watch will show
        with self._lock:
            space.note_read(pod.uid, version, now, is_ours=is_ours)

    def wake(self, space: RefusedPods, waiter: Waiter, state: object, now: float) -> int:
        """Touch a pod; return 1, or 0 where it is not there any more.

        Raises:
            ApiError: The API server does not do it.
        """
        pod = waiter.pod
        if not self._may_write():
            return 0
        moment = self._limits.now().isoformat(timespec="microseconds")
        mark = {"uid": pod.uid, "annotations": {WOKEN_ANNOTATION: moment}}
        try:
            written = self._api.patch(
                PODS, pod.name, {"metadata": mark}, namespace=pod.namespace
            ).resource_version
        except (NotFoundError, ConflictError):
            with self._lock:
                space.note_gone(pod)
            return 0
        with self._lock:
            before = space.woken.get(pod.uid)
            times = 1 if before is None else before.times + 1
            pause = self._limits.again_seconds * 2.0 ** min(times - 1, 10)
            if pod.uid not in space.pods:
                pause = BOUND_SECONDS  # it has its node already
            until = now + min(_LONGEST_AGAIN_SECONDS, pause)
            woken = Woken(waiter.claim, written, now, until, times, state=state)
            space.note_woken(pod.uid, woken)
        return 1
