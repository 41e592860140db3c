"""Evictions of victims: as many as may be, remembered until the cache shows them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

from webhook.config import ReclaimSettings
from webhook.controllers.elastic.reclaim_planner import PlannedClaim, pod_key
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.kube.api import (
    PODS,
    ApiError,
    ConflictError,
    NotFoundError,
    RequestTimeoutError,
    UnauthorizedError,
    UnavailableError,
)
from webhook.quota.elastic.balance import Claim
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.elastic_quotas import ElasticQuota

_log = logging.getLogger(__name__)

_EVICTED_SECONDS: Final = 60.0
"""How long an eviction is remembered that the cache does not show."""
_REFUSED_SECONDS: Final = 10.0
"""How long a pod is not tried again whose eviction was refused."""
_MINUTE: Final = 60.0
_ENTITLEMENT: Final = {
    Claim.OWN: "which stays within the min of its quota",
    Claim.FAIR: "which stays within what is guaranteed to its quota beyond min",
    Claim.NONE: "which has a higher priority",
}


class Evictor:
    """Evicts pods. For the thread of one controller.

    Args:
        leadership: The leadership to evict under.
        quotas: Returns the elastic quotas that count, by namespace.
        settings: Returns what the configuration says of reclaim.
    """

    def __init__(
        self,
        context: ControllerContext,
        leadership: Leadership,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
        settings: Callable[[], ReclaimSettings],
    ) -> None:
        self._api = context.api
        self._events = context.events
        self._metrics = context.metrics.elastic
        self._clock = context.timings.clock
        self._leadership = leadership
        self._quotas = quotas
        self._settings = settings
        self._evicted: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._times: deque[float] = deque()

    def reset(self) -> None:
        """Forget what was seen under an earlier leadership; the limit holds on."""
        self._evicted.clear()
        self._refused.clear()

    def evicted(self) -> Collection[str]:
        """Return the uids of pods that were evicted just now."""
        self._evicted = self._current(self._evicted)
        return self._evicted.keys()

    def refused(self) -> Collection[str]:
        """Return the uids of pods whose eviction was refused just now."""
        self._refused = self._current(self._refused)
        return self._refused.keys()

    def evictions_left(self) -> int:
        """Return how many pods may be evicted in this minute."""
        while self._times and self._times[0] <= self._clock() - _MINUTE:
            self._times.popleft()
        return max(0, self._settings().max_evictions_per_minute - len(self._times))

    def evict(self, claim: PlannedClaim, epoch: int) -> bool:
        """Evict the victims of a plan, as many as may be now; return whether any was.

        Raises:
            NotLeadingError: Another process may be evicting.
            ApiError: The API server does not answer.
        """
        refused, max_grace = {*self.refused()}, self._settings().max_grace_seconds
        has_evicted = False
        for victim in claim.plan.victims:
            if victim.uid in refused or not self.evictions_left():
                continue
            self._leadership.require(epoch)
            try:
                self._api.evict(
                    victim.name,
                    namespace=victim.namespace,
                    uid=victim.uid,
                    grace_seconds=max_grace if victim.grace_seconds > max_grace else None,
                )
            except (NotFoundError, ConflictError):
                continue  # it is gone, or another one by now: the next plan is without it
            except (UnavailableError, RequestTimeoutError, UnauthorizedError):
                raise  # of the API server, whatever the pod
            except ApiError as err:
                # a budget, two of them, or what others demand of evictions: of this pod alone
                self._refused[victim.uid] = self._clock() + _REFUSED_SECONDS
                _log.info("pod not evicted", extra={"pod": pod_key(victim), "error": err.message})
                continue
            has_evicted = True
            self._evicted[victim.uid] = self._clock() + _EVICTED_SECONDS
            self._times.append(self._clock())
            self._report(victim, claim)
        return has_evicted

    def _current(self, until: Mapping[str, float]) -> dict[str, float]:
        now = self._clock()
        return {uid: end for uid, end in until.items() if end > now}

    def _report(self, victim: ElasticPod, claim: PlannedClaim) -> None:
        quota = self._quotas().get(victim.namespace)
        theirs = victim.namespace if quota is None else quota.key
        self._metrics.evictions.labels(theirs, claim.quota.key).inc()
        self._events.normal(
            ObjectReference(PODS, victim.name, victim.namespace, victim.uid),
            "Reclaimed",
            f"evicted for pod {pod_key(claim.queued.pod)} of {claim.quota.account},"
            f" {_ENTITLEMENT[claim.plan.claim]}; this frees {claim.frees(victim)}",
        )
