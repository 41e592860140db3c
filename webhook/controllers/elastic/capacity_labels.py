"""Label the assigned pods of elastic quotas `nos.nebuly.com/capacity: in-quota | over-quota`.

Which pods are over their quota is computed from all of them, in order (`quota.elastic.capacity`);
present labels are only compared with that. What differs is written, several at a time, as many per
second as the configuration allows, `in-quota` first, so that a pod is marked for eviction last. A
pod whose namespace has no elastic quota any more loses the label.

The pods are followed once there is an elastic quota: a cluster without any pays nothing, and labels
that another process left there stay. Where `elastic.enabled` is false they may be those of nos.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from webhook.config import Configuration
from webhook.controllers.elastic.assigned_pods import (
    AssignedPod,
    EvictionLimits,
    KnownPods,
    elastic_pod,
    follow_assigned_pods,
)
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import (
    ExponentialBackoff,
    SlowNamespaces,
    TokenBucket,
    rest_seconds,
)
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.kube.api import (
    PODS,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    RequestTimeoutError,
    TooLargeError,
)
from webhook.kube.informer import Change, Informer
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.elastic.capacity import LabelOrder, in_label_order, over_quota
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.objects.model import Pod
from webhook.state.well_known import CAPACITY_LABEL

_log = logging.getLogger(__name__)

IN_QUOTA: Final = "in-quota"
OVER_QUOTA: Final = "over-quota"
ASSIGNED_PODS: Final = "assigned pods"
"""Name of the cache."""

_SETTLE_SECONDS: Final = 0.2
"""From a change of a pod to the walk: those that follow are part of it."""
_ALL: Final = "/"
"""Key of all namespaces: none has this name."""
_WRITERS: Final = 4
"""How many labels are written at the same time: most of one's time goes by waiting for the API."""
_OF_ONE_POD: Final = (ForbiddenError, TooLargeError)
"""What another webhook, or the size of a pod, is the reason of: other labels are written."""
_BACKOFF: Final = ExponentialBackoff(0.2, 30.0)
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0


class CapacityLabels:
    """Labels pods by the quota of their namespace, while it leads.

    Args:
        quotas: Returns the elastic quotas that count, by namespace.
        configuration: Returns the configuration.
        known: Returns a pod of the cache of all pods.
    """

    def __init__(
        self,
        context: ControllerContext,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
        configuration: Callable[[], Configuration],
        known: KnownPods,
    ) -> None:
        self._api = context.api
        self._quotas = quotas
        self._configuration = configuration
        self._now = context.timings.now
        self._clock = context.timings.clock
        self._metrics = context.metrics.elastic
        self._leadership = Leadership(context.leader_epoch, self.requeue_all)
        self._queue: WorkQueue[str] = WorkQueue(_BACKOFF, clock=context.timings.clock)
        self._limit = TokenBucket(
            lambda: configuration().limits.labels_per_second, context.timings.clock
        )
        self._is_following = False
        self._refused: dict[str, frozenset[str]] = {}
        """Key of the queue → pods whose labels were refused, by uid: the others go first."""
        self._slow = SlowNamespaces()
        self.pods: Final = follow_assigned_pods(context.api, known, context.timings.informer)
        self.pods.add_handler(self._on_pod)
        self.workers: Final = Controller(
            "capacity-labels",
            self._queue,
            self.reconcile,
            poll=self._poll,
            poll_seconds=_POLL_SECONDS,
        )

    @property
    def informers(self) -> dict[str, Informer[AssignedPod]]:
        """The cache by what it holds; none while it is not kept."""
        return {ASSIGNED_PODS: self.pods} if self._is_following else {}

    def start(self) -> None:
        """Start the worker."""
        self.workers.start()

    def stop(self) -> None:
        """Stop writing."""
        self._leadership.stop()
        self.workers.stop(_STOP_SECONDS)
        if self._is_following:
            self.pods.stop()

    def requeue_all(self) -> None:
        """Requeue all namespaces: quotas were created, deleted or changed.

        Very many may change at once, and one look at all pods is for those together.
        """
        if self._is_following:
            self._queue.add(_ALL)

    def _on_pod(self, change: Change[AssignedPod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.is_like(new):
            return
        key = _key(self._quotas(), change.key.partition("/")[0])
        self._queue.add_after(key, _SETTLE_SECONDS)

    def _poll(self) -> bool:
        if not self._leadership.current_epoch():
            return False
        if not self._is_following and self._quotas():
            self._is_following = True
            self.pods.start()
        return self._is_following and self.pods.has_synced

    def reconcile(self, namespace: str) -> Result:
        """Label the pods of the quota that counts a namespace, while this process leads.

        Args:
            namespace: Its name; or `_ALL`, to look at all that have quotas or labels.
        """
        if namespace == _ALL:
            self._add_all()
            return DONE
        quota, began = self._quotas().get(namespace), self._clock()
        namespaces = (namespace,) if quota is None else quota.namespaces
        pods = [
            one
            for name in namespaces
            for one in self.pods.in_namespace(name)
            if not is_terminal(one.pod)
        ]
        wanted = {} if quota is None else self._labels(quota, pods)
        differing = [one.pod for one in pods if one.capacity != wanted.get(one.pod.uid, "")]
        # a pod that comes and goes has all be walked again, and the labels of others wait
        self._queue.rest(namespace, rest_seconds(self._clock() - began))
        refused = self._refused.pop(namespace, frozenset())
        differing.sort(key=lambda pod: (pod.uid in refused, wanted.get(pod.uid) == OVER_QUOTA))
        pauses = {name: self._pause(name) for name in namespaces}
        due = [pod for pod in differing if not pauses[pod.namespace]]
        allowed = due[: self._take(len(due))]
        errors = self._write_all(allowed, wanted)
        tried = {pod.uid for pod in allowed}
        left = refused.intersection(pod.uid for pod in differing if pod.uid not in tried)
        if errors or left:
            self._refused[namespace] = left.union(errors)
        if errors:
            return RATE_LIMITED
        if len(allowed) < len(due):
            # each walk looks at all pods of the quota: the next is for several labels
            return RequeueAfter(max(self._limit.delay(), _SETTLE_SECONDS))
        rests = [pauses[pod.namespace] for pod in differing if pauses[pod.namespace]]
        return RequeueAfter(min(rests)) if rests else DONE

    def _add_all(self) -> None:
        quotas, began = self._quotas(), self._clock()
        labelled = {one.pod.namespace for one in self.pods.items().values() if one.capacity}
        for key in {_key(quotas, namespace) for namespace in {*quotas, *labelled}}:
            self._queue.add(key)
        self._queue.rest(_ALL, rest_seconds(self._clock() - began))

    def _pause(self, namespace: str) -> float:
        """Return how long the pods of a namespace rest after a timeout; 0 where they do not."""
        return max(0.0, self._slow.retry_at(namespace) - self._clock())

    def _take(self, number: int) -> int:
        """Return how many of so many labels may be written now, and count them."""
        taken = 0
        while taken < number and not self._limit.delay():
            self._limit.take()
            taken += 1
        return taken

    def _labels(self, quota: ElasticQuota, pods: Iterable[AssignedPod]) -> dict[str, str]:
        settings = self._configuration().elastic
        now, limits = self._now(), EvictionLimits()
        live = [elastic_pod(one, quota, settings.gpu_memory_gb, limits, now) for one in pods]
        over = over_quota(quota, in_label_order(live, LabelOrder(settings.label_order)))
        return {one.uid: OVER_QUOTA if one.uid in over else IN_QUOTA for one in live}

    def _write_all(self, pods: Sequence[Pod], wanted: Mapping[str, str]) -> Mapping[str, ApiError]:
        """Write labels until the API server fails; return why pods are to be tried again, by uid.

        A namespace with a pod that takes too long to write rests.
        """
        errors: dict[str, ApiError] = {}

        def write(pod: Pod) -> None:
            is_due = all(isinstance(one, _OF_ONE_POD) for one in list(errors.values()))
            if is_due and self._leadership.is_leader():
                error = self._write(pod, wanted.get(pod.uid))
                errors.update({} if error is None else {pod.uid: error})

        with ThreadPoolExecutor(_WRITERS, "capacity-label") as threads:
            for _ in threads.map(write, pods):
                pass  # what one raises is raised here
        late = [pod for pod in pods if isinstance(errors.get(pod.uid), RequestTimeoutError)]
        for namespace in {pod.namespace for pod in late}:
            self._slow.note_timeout(namespace, self._clock())
        return errors

    def _write(self, pod: Pod, value: str | None) -> ApiError | None:
        """Write a label, or remove it for None; return why that has to be tried again."""
        patch = {"metadata": {"uid": pod.uid, "labels": {CAPACITY_LABEL: value}}}
        try:
            self._api.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except (NotFoundError, ConflictError):
            return None  # it is gone, or another one by now: the watch shows it
        except InvalidError as err:
            _log.warning("pod not labelled", extra={"pod": pod.key, "error": err.message})
            return None
        except ApiError as err:
            _log.info("pod not labelled", extra={"pod": pod.key, "error": err.message})
            return err
        self._metrics.labels.labels(value or "removed").inc()
        return None


def _key(quotas: Mapping[str, ElasticQuota], namespace: str) -> str:
    """Return the namespace under which a quota is walked, the same for all of its namespaces."""
    quota = quotas.get(namespace)
    return namespace if quota is None else quota.namespaces[0]
