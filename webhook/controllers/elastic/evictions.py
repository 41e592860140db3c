"""Evictions of victims, within the rate limit, and remembered until the cache shows them."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, groupby
from typing import Final, TypeVar

from webhook.config import ReclaimSettings
from webhook.controllers.elastic.reclaim_planner import PlannedClaim, pod_key
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.kube.api import (
    PODS,
    ApiError,
    BadRequestError,
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
_MOST_REFUSED: Final = 3
"""Pods of a quota that are refused in a minute before all of its pods come last for another."""
_DOUBTED_SECONDS: Final = 86_400.0
"""How long pods of a quota of which one was refused go before others of their plan."""
_UNDECIDED_SECONDS: Final = 12.0
"""How long an eviction without an answer may still be carried out."""
_ROUND_SECONDS: Final = 2.0
"""How long pods are evicted for one claim before the other claims have their turn."""
_ASKING_SECONDS: Final = 1.0
"""How long it is asked before whether they would go."""
_MINUTE: Final = 60.0
_WAITING_SECONDS: Final = 90.0
"""How long a group has its turn after it was last asked for: a plan may rest for 30 s."""
_REMEMBERED_SECONDS: Final = 3600.0
"""How long it is remembered that a group of a quota went which was larger than its share."""
_INTERRUPTED_SECONDS: Final = 90.0
"""How long the rest of a group may go of which one eviction was not answered."""
_ENTITLEMENT: Final = {
    Claim.OWN: "which stays within the min of its quota",
    Claim.FAIR: "which stays within what is guaranteed to its quota beyond min",
    Claim.NONE: "which has a higher priority",
}

_K = TypeVar("_K")


class Evictor:
    """Evicts pods. For the thread of one controller.

    Args:
        leadership: The leadership to evict under.
        quotas: Returns the elastic quotas that count, by namespace.
        settings: Returns what the configuration says of reclaim.
        waits: Returns whether the pod with a uid waits for elastic quotas still.
    """

    def __init__(
        self,
        context: ControllerContext,
        leadership: Leadership,
        quotas: Callable[[], Mapping[str, ElasticQuota]],
        settings: Callable[[], ReclaimSettings],
        waits: Callable[[str], bool],
    ) -> None:
        self._api = context.api
        self._events = context.events
        self._metrics = context.metrics.elastic
        self._clock = context.timings.clock
        self._leadership = leadership
        self._quotas = quotas
        self._settings = settings
        self._waits = waits
        self.unanswered_seconds = 0.0
        """How long it was waited in all for evictions that were not answered in time."""
        self._evicted: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._refusals: dict[str, dict[str, float]] = {}
        """Key of a quota → uid of each of its pods that was refused → until when that counts."""
        self._reluctant: dict[str, float] = {}
        """Key of a quota of which too many were not → until when its pods come last."""
        self._doubted: dict[str, float] = {}
        """Key of a quota of which one was not → until when its pods are the first of a plan."""
        self._willing: dict[str, float] = {}
        """Uid of a pod of which a dry run told that it would go → until when that is remembered."""
        self._undecided: dict[tuple[str, str], float] = {}
        """Uid of a pod that waits, and key of a quota of which one is to go for it → until when its
        eviction may still be carried out that was not answered."""
        self._times: deque[tuple[float, str, bool]] = deque()
        """When pods were evicted, for which quota, by its key, and whether within its share."""
        self._waiting: dict[str, dict[str, float]] = {}
        """Key of a quota for which a group beyond its share is to go → uid of each pod that asked
        for one, and until when it waits."""
        self._went: dict[str, float] = {}
        """Key of a quota for which one went → until when that is remembered."""
        self._interrupted: dict[str, float] = {}
        """Key of a quota for which a part of one went → until when the rest has its turn."""

    def reset(self) -> None:
        """Forget what was seen under an earlier leadership; the limit holds on."""
        self._evicted.clear()
        self._refused.clear()
        self._refusals.clear()
        self._reluctant.clear()

    def evicted(self) -> Collection[str]:
        """Return the uids of pods that were evicted just now."""
        self._evicted = self._current(self._evicted)
        return self._evicted.keys()

    def refused(self) -> Collection[str]:
        """Return the uids of pods whose eviction was refused just now."""
        self._refused = self._current(self._refused)
        return self._refused.keys()

    def reluctant(self) -> Collection[str]:
        """Return the namespaces of quotas whose pods come last.

        A tenant can have the API server refuse its pods for reasons that no plan sees, as by a
        budget that is edited all the time. With one pod after the other tried, all plans that could
        take another quota's pods would wait.
        """
        self._reluctant = self._current(self._reluctant)
        if not self._reluctant:
            return ()
        quotas = self._quotas().items()
        return frozenset([name for name, one in quotas if one.key in self._reluctant])

    def may_begin(self, claim: PlannedClaim) -> bool:
        """Return whether the first victims of a plan that go now may be evicted in this minute.

        Of those that do not go, because others hinder it, none is asked for: no turn would be
        taken, and other quotas would wait for it.
        """
        hindering = self._hindering(claim)
        units = [
            unit
            for unit in self._units(claim.plan.victims)
            if hindering <= {self._quota_of(unit[0])}
        ]
        return not units or self._is_within(claim, len(units[0]))

    def _is_within(self, claim: PlannedClaim, pods: int) -> bool:
        """Return whether so many pods may be evicted together for a claim now.

        A group that is larger than the share of its quota would wait for ever, and a tenant would
        keep what it borrows by one label. One such group goes in a minute, of all quotas in turn.
        """
        quota = claim.quota.key
        left = self._evictions_left(quota)
        if left >= pods:
            return True
        if left == 0:  # its share is used up: it waits for no turn
            return False
        asking = self._waiting.setdefault(quota, {})
        asking[claim.queued.pod.uid] = self._clock() + _WAITING_SECONDS
        is_free = all(is_within for _, _, is_within in self._times)
        return is_free and not self._is_others_turn(quota)

    def _is_others_turn(self, quota: str) -> bool:
        """Return whether a group of a quota waits for which none went, or longer ago.

        A tenant that makes a group again as soon as it was evicted for its others would be first
        in every minute. One that asks for a group and takes its pod away has no turn.
        """
        self._interrupted = self._current(self._interrupted)
        if quota in self._interrupted:
            return False
        self._went = self._current(self._went)
        for key, asking in list(self._waiting.items()):
            still = {uid: end for uid, end in self._current(asking).items() if self._waits(uid)}
            self._waiting[key] = still
            if not still:
                del self._waiting[key]
        last = self._went.get(quota, 0.0)
        return any(self._went.get(one, 0.0) < last for one in self._waiting if one != quota)

    def _take_turn(self, quota: str, pods: int) -> None:
        """Note that pods go now; also of a group whose pods turn out not to be evicted."""
        self._waiting.pop(quota, None)
        if self._evictions_left(quota) < pods:
            self._went[quota] = self._clock() + _REMEMBERED_SECONDS

    def _evictions_left(self, quota: str) -> int:
        """Return how many pods may be evicted for a quota in this minute.

        Half of the evictions is divided among all quotas, and of the other half a quota gets at
        most half of what others leave. A tenant that has pods of its own evicted for others of a
        higher priority, and makes them again, would take all evictions of the cluster; one that
        does so in several namespaces takes no more than that half.
        """
        while self._times and self._times[0][0] <= self._clock() - _MINUTE:
            self._times.popleft()
        limit = self._settings().max_evictions_per_minute
        quotas = {quota, *(one.key for one in self._quotas().values())}
        own = sum(1 for _, key, _ in self._times if key == quota)
        made = Counter(key for _, key, is_within in self._times if is_within)
        reserved = max(1, limit // (2 * len(quotas)))
        taken = sum(max(0, count - reserved) for key, count in made.items() if key != quota)
        is_short = reserved * len(quotas) > limit // 2  # one for each is more than that half
        divided = limit // 2 if is_short else reserved * len(quotas)
        shared = max(0, limit - divided - taken)
        part = shared // 2 if is_short else (shared + 1) // 2
        return max(0, min(reserved + part - own, limit - made.total()))

    def _units(self, victims: Sequence[ElasticPod]) -> list[list[ElasticPod]]:
        """Return victims as they go: those of one group together, but for those just refused.

        A group of more than a whole minute's evictions is none: no tenant sets that limit. Quotas
        of which a pod was refused come first, as all others would go in vain where it is again.
        """
        refused, limit = self.refused(), self._settings().max_evictions_per_minute
        left = [one for one in victims if one.uid not in refused]
        groups = [
            [*pods] for _, pods in groupby(left, lambda one: (one.namespace, one.group or one.uid))
        ]
        self._doubted = self._current(self._doubted)
        groups.sort(key=lambda pods: self._quota_of(pods[0]) not in self._doubted)
        return [
            unit for pods in groups for unit in ([pods] if len(pods) <= limit else _singly(pods))
        ]

    def _quota_of(self, pod: ElasticPod) -> str:
        """Return the key of a pod's quota, and its namespace without one."""
        quota = self._quotas().get(pod.namespace)
        return pod.namespace if quota is None else quota.key

    def _hindering(self, claim: PlannedClaim) -> set[str]:
        """Return the quotas of which a pod is needed for a claim that does not go now."""
        refused = self.refused()
        found = {self._quota_of(one) for one in claim.plan.victims if one.uid in refused}
        self._undecided = self._current(self._undecided)
        return found | {key for uid, key in self._undecided if uid == claim.queued.pod.uid}

    def evict(self, claim: PlannedClaim, epoch: int) -> bool:
        """Evict the victims of a plan, as many as may be now; return whether any was.

        One thread evicts for all. After some seconds the next look goes on with what is left, but
        pods of one group go together. While a pod of another quota does not go that the plan needs,
        or would not, none goes: it might be in vain.

        Raises:
            NotLeadingError: Another process may be evicting.
            ApiError: The API server does not answer.
        """
        hindering, units = self._hindering(claim), self._units(claim.plan.victims)
        if not hindering and self._is_one_refused(units):
            return False
        has_evicted, until = False, self._clock() + _ROUND_SECONDS
        for unit in units:
            theirs = self._quota_of(unit[0])
            if not hindering <= {theirs}:
                continue
            if self._clock() > until or not self._is_within(claim, len(unit)):
                break
            self._take_turn(claim.quota.key, len(unit))
            for victim in unit:
                self._leadership.require(epoch)
                try:
                    has_evicted |= self._is_evicted(victim, claim)
                except RequestTimeoutError:
                    # once for a group: a budget that is written all the time holds no turn
                    undecided = self._clock() + _UNDECIDED_SECONDS
                    self._undecided[claim.queued.pod.uid, theirs] = undecided
                    end = self._clock() + _INTERRUPTED_SECONDS
                    self._interrupted = {
                        claim.quota.key: end,
                        **self._current(self._interrupted),
                    }
                    return has_evicted
            self._interrupted.pop(claim.quota.key, None)
            if any(one.uid in self._refused for one in unit):
                hindering.add(theirs)
        return has_evicted

    def _is_one_refused(self, units: Sequence[Sequence[ElasticPod]]) -> bool:
        """Return whether a pod of several quotas' would not go, as far as there is time to ask."""
        self._willing = self._current(self._willing)
        until = self._clock() + _ASKING_SECONDS
        are_mixed = len({self._quota_of(unit[0]) for unit in units}) > 1
        for victim in chain.from_iterable(units) if are_mixed else ():
            if victim.uid in self._willing:
                continue
            begun = self._clock()
            if begun > until:
                break
            try:
                self._ask(victim, dry_run=True)
            except (NotFoundError, ConflictError, BadRequestError):
                pass  # it is gone, or an admission webhook knows no dry run
            except (UnavailableError, UnauthorizedError):
                raise
            except ApiError as err:
                is_late = isinstance(err, RequestTimeoutError)
                self.unanswered_seconds += (self._clock() - begun) if is_late else 0.0
                self._note_refused(victim, err, most=1 if is_late else _MOST_REFUSED)
                return True
            self._willing[victim.uid] = self._clock() + _MINUTE
        return False

    def _ask(self, victim: ElasticPod, *, dry_run: bool = False) -> None:
        max_grace = self._settings().max_grace_seconds
        self._api.evict(
            victim.name,
            namespace=victim.namespace,
            uid=victim.uid,
            grace_seconds=max_grace if victim.grace_seconds > max_grace else None,
            dry_run=dry_run,
        )

    def _is_evicted(self, victim: ElasticPod, claim: PlannedClaim) -> bool:
        """Evict one pod; return whether it goes."""
        begun = self._clock()
        try:
            self._ask(victim)
        except (NotFoundError, ConflictError):
            return False  # it is gone, or another one by now: the next plan is without it
        except RequestTimeoutError as err:
            # a tenant that writes a budget without a pause has each eviction take 10 s. It may
            # be carried out yet: until then no other pod goes for it, after that another one
            self.unanswered_seconds += self._clock() - begun
            undecided = self._clock() + _UNDECIDED_SECONDS
            self._evicted[victim.uid] = undecided
            self._refused[victim.uid] = undecided + _REFUSED_SECONDS
            self._note_refusal(victim, most=1)
            self._count(claim.quota.key)
            _log.info("pod not evicted", extra={"pod": pod_key(victim), "error": err.message})
            raise
        except (UnavailableError, UnauthorizedError):
            raise  # of the API server, whatever the pod
        except ApiError as err:
            self._note_refused(victim, err, most=_MOST_REFUSED)
            return False
        self._evicted[victim.uid] = self._clock() + _EVICTED_SECONDS
        self._count(claim.quota.key)
        self._report(victim, claim)
        return True

    def _note_refused(self, victim: ElasticPod, err: ApiError, most: int) -> None:
        """Note a pod kept by a budget, two of them, or what others demand of evictions."""
        self._refused[victim.uid] = self._clock() + _REFUSED_SECONDS
        self._note_refusal(victim, most)
        _log.info("pod not evicted", extra={"pod": pod_key(victim), "error": err.message})

    def _note_refusal(self, victim: ElasticPod, most: int) -> None:
        """Note a pod that was not evicted; of so many its quota's pods come last.

        Of a quota, not a namespace: a composite has as many as it likes.
        """
        key, until = self._quota_of(victim), self._clock() + _MINUTE
        refusals = self._current(self._refusals.get(key, {}))
        self._refusals[key] = {**refusals, victim.uid: until}
        if len(self._refusals[key]) >= most:
            self._reluctant[key] = until
        self._doubted[key] = self._clock() + _DOUBTED_SECONDS

    def _count(self, quota: str) -> None:
        is_within = self._evictions_left(quota) > 0
        self._times.append((self._clock(), quota, is_within))

    def _current(self, until: Mapping[_K, float]) -> dict[_K, float]:
        now = self._clock()
        return {key: end for key, end in until.items() if end > now}

    def _report(self, victim: ElasticPod, claim: PlannedClaim) -> None:
        self._metrics.evictions.labels(self._quota_of(victim), claim.quota.key).inc()
        self._events.normal(
            ObjectReference(PODS, victim.name, victim.namespace, victim.uid),
            "Reclaimed",
            f"evicted for pod {pod_key(claim.queued.pod)} of {claim.quota.account},"
            f" {_ENTITLEMENT[claim.plan.claim]}; this frees {claim.frees(victim)}",
        )


def _singly(pods: Sequence[ElasticPod]) -> list[list[ElasticPod]]:
    return [[one] for one in pods]
