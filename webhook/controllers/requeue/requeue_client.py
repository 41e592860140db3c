"""Requests that requeue pods: read the reason of a pod, and write an annotation.

A pod whose request fails rests, and so does its namespace where others may fare no better: much
longer where a request was not answered in time, which keeps the one thread for as long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from webhook.controllers.requeue.unschedulable import (
    BIND_LAG_SECONDS,
    RequeuedPod,
    UnschedulablePods,
)
from webhook.controllers.runtime.rate_limit import (
    ExponentialBackoff,
    SlowNamespaces,
    TokenBucket,
)
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import (
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    NotFoundError,
    RequestTimeoutError,
)
from webhook.quota.objects.model import Pod
from webhook.quota.objects.scheduler_messages import is_denied_by_quota
from webhook.quota.queue.queued_pods import QueuedPod
from webhook.state.well_known import MANAGED_PREFIX

_log = logging.getLogger(__name__)

REQUEUED_ANNOTATION: Final = f"{MANAGED_PREFIX}requeued"
"""When the pod was touched last, so that its scheduler tries it again."""

_PER_SECOND: Final = 100.0
"""How many requests are sent per second, reads and writes."""
_MAX_RETRY_SECONDS: Final = 300.0
_SERVER_ERRORS: Final = 500
_TRANSIENT: Final = frozenset({408, 429})
"""Codes below 500 that say nothing of the very pod."""


class RequeueClient:
    """Client that requeues pods within a rate limit.

    Args:
        lock: Held while the state of pods is changed.
        may_write: Returns whether this process still may.
    """

    def __init__(
        self,
        api: ClusterApi,
        timings: ControllerTimings,
        *,
        lock: threading.Lock,
        may_write: Callable[[], bool],
    ) -> None:
        self._api = api
        self._timings = timings
        self._backoff = ExponentialBackoff(timings.requeue_interval_seconds, _MAX_RETRY_SECONDS)
        self._lock = lock
        self._may_write = may_write
        self._bucket = TokenBucket(lambda: _PER_SECOND, timings.clock)
        self._slow = SlowNamespaces()
        """Namespaces with requests that were not answered in time, also when its pods are gone."""
        self.last_served = ""
        """The namespace that was served last."""

    @property
    def is_exhausted(self) -> bool:
        """Whether none may be sent now."""
        return self._bucket.delay() > 0

    def acquire(self, namespace: str) -> bool:
        """Return whether one more may be sent now, and count it."""
        if self.is_exhausted or not self._may_write():
            return False
        self._bucket.take()
        self.last_served = namespace
        return True

    def is_slow(self, namespace: str, now: float) -> bool:
        """Return whether a namespace rests because requests about its pods take too long."""
        return self._slow.rests(namespace, now)

    @contextmanager
    def backing_off(self, pods: UnschedulablePods, pod: Pod) -> Iterator[None]:
        """Let a pod rest whose request fails, and all of its namespace if that may be no better.

        Raises:
            ApiError: The API server does not do it, and not because of the very pod.
        """
        try:
            yield
        except ApiError as err:
            now = self._timings.clock()
            with self._lock:
                pods.back_off_pod(pod.uid, now)
            if isinstance(err, RequestTimeoutError):
                self._slow.note_timeout(pod.namespace, now)
            if err.code >= _SERVER_ERRORS or err.code in _TRANSIENT:
                raise
            key = f"{pod.namespace}/{pod.name}"
            _log.info("pod not requeued", extra={"pod": key, "error": str(err)})
        pods.pause.failures = 0

    def read(self, pods: UnschedulablePods, pod: Pod, now: float) -> None:
        """Read why a pod has no node.

        Raises:
            ApiError: The API server does not say.
        """
        version, is_ours = int(pod.resource_version or 0), False
        try:
            stored = self._api.get(PODS, pod.name, namespace=pod.namespace)
            metadata = stored.get("metadata")
            if isinstance(metadata, Mapping) and metadata.get("uid") == pod.uid:
                version = max(version, int(str(metadata.get("resourceVersion") or 0)))
                is_ours = is_denied_by_quota(stored)
        except NotFoundError:
            pass  # it is gone, as the watch will show
        with self._lock:
            pods.record_read(pod.uid, version, now, is_ours=is_ours)

    def requeue(
        self, pods: UnschedulablePods, queued: QueuedPod, snapshot_version: object, now: float
    ) -> int:
        """Touch a pod; return 1, or 0 where it is not there any more.

        Raises:
            ApiError: The API server does not do it.
        """
        pod = queued.pod
        if not self._may_write():
            return 0
        moment = self._timings.now().isoformat(timespec="microseconds")
        mark = {"uid": pod.uid, "annotations": {REQUEUED_ANNOTATION: moment}}
        try:
            written = self._api.patch(
                PODS, pod.name, {"metadata": mark}, namespace=pod.namespace
            ).resource_version
        except (NotFoundError, ConflictError):
            with self._lock:
                pods.record_gone(pod)
            return 0
        with self._lock:
            before = pods.requeued.get(pod.uid)
            times = 1 if before is None else before.times + 1
            pause = self._backoff.seconds(times)
            if pod.uid not in pods.pods:
                pause = BIND_LAG_SECONDS  # it has its node already
            until = now + pause
            requeued = RequeuedPod(
                queued.next_claim, written, now, until, times, snapshot_version=snapshot_version
            )
            pods.record_requeue(pod.uid, requeued)
        return 1
