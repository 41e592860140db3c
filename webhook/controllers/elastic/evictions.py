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
_UNDECIDED_SECONDS: Final = 12.0
"""How long an eviction without an answer may still be carried out."""
_ROUND_SECONDS: Final = 2.0
"""How long pods are evicted for one claim before the other claims have their turn."""
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
        self._times: deque[tuple[float, str]] = deque()
        """When pods were evicted, and for which quota, by its key."""

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

    def evictions_left(self, quota: str) -> int:
        """Return how many pods may be evicted for a quota in this minute.

        At most half of what others leave: a tenant that has pods of its own evicted for others of
        a higher priority, and makes them again, would take all evictions of the cluster.
        """
        while self._times and self._times[0][0] <= self._clock() - _MINUTE:
            self._times.popleft()
        own = sum(1 for _, key in self._times if key == quota)
        left_by_others = self._settings().max_evictions_per_minute - (len(self._times) - own)
        return max(0, (left_by_others + 1) // 2 - own)

    def evict(self, claim: PlannedClaim, epoch: int) -> bool:
        """Evict the victims of a plan, as many as may be now; return whether any was.

        One thread evicts for all. After some seconds the next look goes on with what is left, but
        pods of one group go together.

        Raises:
            NotLeadingError: Another process may be evicting.
            ApiError: The API server does not answer.
        """
        refused, max_grace = {*self.refused()}, self._settings().max_grace_seconds
        has_evicted, until, group = False, self._clock() + _ROUND_SECONDS, ""
        for victim in claim.plan.victims:
            is_begun, group = victim.group != "" and victim.group == group, victim.group
            if self._clock() > until and not is_begun:
                break
            if not self.evictions_left(claim.quota.key):
                break
            if victim.uid in refused:
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
            except RequestTimeoutError as err:
                # a tenant that writes a budget without a pause has each eviction take 10 s. It may
                # be carried out yet: until then no other pod goes for it, after that another one
                undecided = self._clock() + _UNDECIDED_SECONDS
                self._evicted[victim.uid] = undecided
                self._refused[victim.uid] = undecided + _REFUSED_SECONDS
                self._times.append((self._clock(), claim.quota.key))
                _log.info("pod not evicted", extra={"pod": pod_key(victim), "error": err.message})
                break
            except (UnavailableError, UnauthorizedError):
                raise  # of the API server, whatever the pod
            except ApiError as err:
                # a budget, two of them, or what others demand of evictions: of this pod alone
                self._refused[victim.uid] = self._clock() + _REFUSED_SECONDS
                _log.info("pod not evicted", extra={"pod": pod_key(victim), "error": err.message})
                continue
            has_evicted = True
            self._evicted[victim.uid] = self._clock() + _EVICTED_SECONDS
            self._times.append((self._clock(), claim.quota.key))
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
