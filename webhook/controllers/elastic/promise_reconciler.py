"""Promises to pods that wait: made, gone on with, and ended.

A promise ends well once quota is reserved for its pod. One whose pod is gone, or for which nothing
happens any more, is withdrawn, and nothing is evicted for its namespace for a while. With it go
those of the pods behind it, which are not released before it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.config import ReclaimMode
from webhook.controllers.elastic.evictions import Evictor
from webhook.controllers.elastic.promises import HeldPromise, Promises
from webhook.controllers.elastic.reclaim_planner import PlannedClaim, ReclaimPlanner, Turns, pod_key
from webhook.controllers.elastic.reclaim_view import ReclaimParts, ReclaimView, ledger_of
from webhook.controllers.elastic.waiting_pods import WaitingPods
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.rate_limit import ListPauses
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    PODS,
    ApiError,
    ClusterApi,
    ForbiddenError,
    ListOptions,
    Object,
    find_object,
    object_key,
)
from webhook.kube.pager import listed_versions
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import mask
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.derived_quotas import quota_key
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.shared.cluster_quotas import ledger_name

_log = logging.getLogger(__name__)

_ENDING_MARGIN: Final = 30.0
"""How long a pod that is ending is still waited for once it is charged no more."""
_UNSTORED_SECONDS: Final = 120.0
"""How long a reservation for a pod that is not stored is waited for; it expires before that."""
_MAX_LOOKUPS: Final = 50
"""Promises whose pods the API server is asked about one by one although none is cached."""
_LATE_SECONDS: Final = 5.0
"""Of the time in which the pool of a promise had no turn, how much counts against it."""
_DERIVED: Final = tuple(ledger_name(one) for one in DERIVED_PREFIXES)
_GONE: Final = "the pod is gone"
_ENDING: Final = "the pod is ending"


@dataclass(slots=True)
class _KeptPromise:
    """A promise, as this process has seen it."""

    since: float
    progress: float
    """Time at which something was last on its way: an eviction, or a pod that ends."""
    looked: float
    """Time of the last look."""
    victims: set[str] = field(default_factory=set)
    """Uids of the pods that were evicted for it."""
    has_room: bool = False
    """Whether all that it holds was free at the last look."""
    is_passed_over: bool = False
    """Whether it was not looked at since because its pool had no turn, or caches were too old."""

    def look(self, now: float) -> None:
        """Note a look: little of the time in which its pool had no turn counts against it."""
        if self.is_passed_over:
            self.progress += max(0.0, now - self.looked - _LATE_SECONDS)
        self.looked, self.is_passed_over = now, False


class PromiseReconciler:
    """Makes promises, goes on with them and ends them. For the thread of one controller.

    Args:
        leadership: The leadership to write and to evict under.
        view: Returns the quotas and their pods beside what is promised.
    """

    def __init__(
        self,
        context: ControllerContext,
        parts: ReclaimParts,
        leadership: Leadership,
        waiting_pods: WaitingPods,
        evictor: Evictor,
        planner: ReclaimPlanner,
        view: Callable[[Mapping[str, HeldPromise]], ReclaimView],
    ) -> None:
        self._api = context.api
        self._parts = parts
        self._waiting_pods = waiting_pods
        self._evictor = evictor
        self._planner = planner
        self._view = view
        self._events = context.events
        self._metrics = context.metrics.elastic
        self._clock = context.timings.clock
        self.promises: Final = Promises(parts.shared, self._derived, leadership)
        self._kept: dict[str, _KeptPromise] = {}
        self._unstored: dict[str, float] = {}
        """Uid of a pod that is reserved for and not stored → until when it is waited for."""
        self._cooling: dict[str, float] = {}
        """Namespace → until when nothing is evicted for its pods."""
        self._lists = ListPauses(self._clock)
        self._evicting = 0.0
        self._keeping = Turns(self._clock, self.planning_clock)

    def reset(self) -> None:
        """Forget what was seen under an earlier leadership."""
        for seen in (self._kept, self._unstored, self._cooling):
            seen.clear()

    def planning_clock(self) -> float:
        """Return seconds without those of evictions, which have limits of their own.

        Those that were not answered in time count: a tenant brings them about for as many promises
        as its pool has.
        """
        return self._clock() - self._evicting

    def _derived(self) -> list[str]:
        return [name for name in self._parts.cluster_quotas() if name.startswith(_DERIVED)]

    def is_cooling(self, namespace: str) -> bool:
        """Return whether nothing is evicted for the pods of a namespace now."""
        return self._cooling.get(namespace, 0.0) > self._clock()

    def reconcile(
        self, promises: Mapping[str, HeldPromise], epoch: int, *, mode: ReclaimMode, is_stale: bool
    ) -> dict[str, HeldPromise]:
        """Go on with what is promised; return what is kept, which without `Act` is nothing.

        Args:
            is_stale: Whether caches are too old to evict by: then promises only end, of pods that
                have what they need, or are over.
        """
        if mode is not ReclaimMode.ACT:
            self._end(promises, dict.fromkeys(promises, "nothing is reclaimed any more"), epoch)
            return {}
        kept = dict(promises)
        standing = self._end_over(kept, epoch)
        pools = {} if is_stale else self._by_pool(kept[uid] for uid in standing)
        looked: set[str] = set()
        for pool, uids in pools.items():
            for uid in self._keeping.of(pool, uids):
                if uid in self._keeping.had[pool] or uid not in kept:
                    continue
                self._keeping.had[pool].add(uid)
                looked.add(uid)
                self._keep_one(uid, kept, epoch)
        for uid in self._kept.keys() - looked:
            self._kept[uid].is_passed_over = True
        return kept

    def _end_over(self, kept: dict[str, HeldPromise], epoch: int) -> list[str]:
        """End promises whose pods have what they need, or are over; return those that stand.

        That no cache takes back, however old it is.
        """
        # what is promised again to a pod is another promise
        self._kept = {uid: one for uid, one in self._kept.items() if uid in kept}
        unseen = frozenset(uid for uid, one in kept.items() if self._cached(one) is None)
        if len(unseen) > _MAX_LOOKUPS:
            # no leader makes so many: they were forged, or the cache is far behind
            self._end_all(kept, self._without_pod(unseen), epoch)
        else:
            unseen = frozenset()
        ends = self._ends([one for uid, one in kept.items() if uid not in unseen])
        self._end_all(kept, {uid: end for uid, end in ends.items() if end is not None}, epoch)
        return [uid for uid in ends if uid in kept]

    def _by_pool(self, promises: Iterable[HeldPromise]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for one in promises:
            quota = self._parts.quotas().get(one.namespace)
            found.setdefault("" if quota is None else quota.pool, []).append(one.uid)
        return found

    def _keep_one(self, uid: str, kept: dict[str, HeldPromise], epoch: int) -> None:
        """Go on with one promise, and keep it no longer where it comes to nothing."""
        try:
            end = self._go_on(kept[uid], kept, epoch)
        except (ApiError, InvalidFieldError) as err:
            note_failure(f"{kept[uid].namespace}/{kept[uid].pod}", err)
            end = self._end_if_late(uid)
        if end is None:
            return
        later = self._ends([kept[uid]])[uid]  # its queue may have reserved for it meanwhile
        end = end if later is None else later
        is_withdrawn = end not in ("", _GONE, _ENDING)
        behind = [
            other
            for other in kept
            if is_withdrawn and uid in self._waiting_pods.behind(kept[other])
        ]
        also = f"it waits behind pod {kept[uid].pod}: {end}"
        self._end_all(kept, {uid: end, **dict.fromkeys(behind, also)}, epoch)

    def _cached(self, promise: HeldPromise) -> Pod | None:
        """Return the pod of a promise as a cache shows it."""
        pod = self._parts.pods().get(object_key(promise.namespace, promise.pod))
        return pod if pod is not None and pod.uid == promise.uid else None

    def _without_pod(self, uids: Collection[str]) -> dict[str, str]:
        """Return why promises end whose pods are not cached, and do not wait by a list made now."""
        if self._lists.seconds_left():
            return {}
        waiting = ListOptions(field_selector="spec.nodeName=")
        try:
            with self._lists.measured():
                newest = self._parts.pods().resource_version
                listed = listed_versions(self._api, PODS, waiting, uids, newest=newest)
        except ApiError as err:
            note_failure("", err)
            return {}
        return {uid: _GONE for uid in uids if uid not in listed}

    def _ends(self, promises: Iterable[HeldPromise]) -> dict[str, str | None]:
        """Return `_end_of` promises; None also where nothing is known now."""
        ends: dict[str, str | None] = {}
        for promise in promises:
            try:
                ends[promise.uid] = self._end_of(promise)
            except (ApiError, InvalidFieldError) as err:
                note_failure(f"{promise.namespace}/{promise.pod}", err)
                ends[promise.uid] = None
        return ends

    def _end_all(self, kept: dict[str, HeldPromise], ends: Mapping[str, str], epoch: int) -> None:
        """End promises, and keep them no longer."""
        self._end({uid: kept.pop(uid) for uid in ends}, ends, epoch)

    def _end_of(self, promise: HeldPromise) -> str | None:
        """Return why a promise is at its end, empty for a good one; None if it is not."""
        if self._is_reserved(promise):
            return ""
        pod = self._cached(promise)
        if pod is None:
            raw = stored_pod(self._api, promise.namespace, promise.pod, promise.uid)
            return _end_of_stored(raw)
        return _end_with_pod(pod)

    def _is_reserved(self, promise: HeldPromise) -> bool:
        ledger = ledger_of(self._parts.ledgers, promise.namespace)
        return ledger is not None and ledger.is_reserved(promise.uid)

    def _go_on(
        self, promise: HeldPromise, promises: Mapping[str, HeldPromise], epoch: int
    ) -> str | None:
        """Evict what a promise still needs; return why it comes to nothing, if so."""
        view, now = self._view(promises), self._clock()
        # an earlier leader may have evicted what is ending
        kept = self._kept.setdefault(promise.uid, _KeptPromise(now, now, now, set(view.ending)))
        kept.look(now)
        quota = view.quotas.get(promise.namespace)
        raw = stored_pod(self._api, promise.namespace, promise.pod, promise.uid)
        end = _end_of_stored(raw)  # the cache may be behind
        if raw is None or quota is None or end is not None:
            return "its namespace has no elastic quota any more" if end is None else end
        whole = self._promise_to(self._planner.queued(quota, raw))
        if not self.promises.make(whole, epoch):  # its ledger or a quota cannot be read now
            return self._end_if_late(promise.uid)
        had_room, kept.has_room = kept.has_room, self.promises.has_room(promise.uid)
        ending, obstacle = self._ending(view, quota), ""
        if self._planner.shortage(view, quota, raw).resources:
            # what ends is not enough, nor is it to be behind another one: what it holds is kept
            # from all others, so without further evictions only its own victims are waited for
            try:
                claim = self._planner.plan(view, quota, raw)
            except (ApiError, InvalidFieldError) as err:
                note_failure(f"{promise.namespace}/{promise.pod}", err)
                is_progress = False
            else:
                plan, obstacle = claim.plan, claim.plan.obstacle
                # its node may be taken for a moment, and its first victims would go in vain
                if not (plan.is_possible or (plan.lacks_node and kept.victims)):
                    return obstacle
                # with no evictions left in this minute it waits for the next, as its room would
                # be lost; an impossible plan has no victims
                goes_on = self._evict(claim, epoch) or not self._evictor.may_begin(claim)
                is_progress = goes_on or not ending.isdisjoint(kept.victims)
        else:
            # what ends frees nothing for a promise that has its room: then the queue is awaited
            before = self._waiting_pods.behind(promise)
            is_behind = not before.isdisjoint(promises)  # these end in time
            is_progress = is_behind or bool(ending and not kept.has_room)
        # the room of one before it is not free until that is no more both promised and reserved
        if is_progress or (kept.has_room and not had_room):
            kept.progress = now
        end = self._end_if_late(promise.uid, obstacle)
        if end is None:
            self._parts.requeue_after(promise.namespace, 0.0)
        return end

    def _end_if_late(self, uid: str, obstacle: str = "") -> str | None:
        """Return why a promise ends for which nothing was on its way for too long."""
        kept = self._kept.get(uid)
        if kept is None or kept.looked - kept.progress <= self._parts.patience():
            return None
        return obstacle or "it got no quota in time"

    def _ending(self, view: ReclaimView, quota: ElasticQuota) -> frozenset[str]:
        """Return the uids of what leaves a quota's pool, and is not late."""
        now = self._clock()
        self._unstored = {
            uid: self._unstored.get(uid, now + _UNSTORED_SECONDS) for uid in view.unstored
        }
        return frozenset(
            one.uid
            for key in view.pools[quota.pool].quotas
            for one in view.leaving[key]
            if now < self._unstored.get(one.uid, self._late_at(one))
        )

    def _late_at(self, pod: ElasticPod) -> float:
        return self._parts.uncharged_at(pod.namespace, pod.uid) + _ENDING_MARGIN

    def _end(
        self, promises: Mapping[str, HeldPromise], ends: Mapping[str, str], epoch: int
    ) -> None:
        """End promises with one write: those kept, and, with a fault, those that come to nothing.

        Nothing follows of the faults of many whose pods were never seen.
        """
        if not (ends and self.promises.withdraw(ends, epoch)):
            return
        is_crowd = len(ends) > _MAX_LOOKUPS
        for uid, fault in ends.items():
            promise, kept = promises[uid], self._kept.pop(uid, None)
            if not fault:
                self._metrics.plans.labels("bound").inc()
                if kept is not None:
                    self._metrics.reclaim_seconds.observe(self._clock() - kept.since)
                continue
            self._metrics.plans.labels("withdrawn").inc()
            if kept is None and is_crowd and self._cached(promise) is None:
                continue
            # not the other namespaces of a composite: a tenant can make its own pod go at any time
            cool_down = self._parts.settings().reclaim.cool_down_seconds
            now = self._clock()
            self._cooling = {key: end for key, end in self._cooling.items() if end > now}
            self._cooling[promise.namespace] = now + cool_down
            pod = ObjectReference(PODS, promise.pod, promise.namespace, promise.uid)
            said = f"nothing is held for it any more: {fault}"
            self._events.warning(pod, "ReclaimWithdrawn", said)
            self._parts.requeue_after(promise.namespace, 0.0)

    def carry_out(self, claim: PlannedClaim, epoch: int) -> HeldPromise | None:
        """Promise and evict; return the promise, None where nothing is done."""
        if self._parts.settings().reclaim.mode is not ReclaimMode.ACT:
            return None
        promise = self._promise_to(claim.queued)
        may_begin = claim.awaits_leaving or (
            self._planner.may_go(claim.plan.victims) and self._evictor.may_begin(claim)
        )
        if not (may_begin and promise.amounts):
            return None
        if not self.promises.make(promise, epoch):
            self.promises.withdraw([promise.uid], epoch)
            return None
        now = self._clock()
        self._kept[promise.uid] = _KeptPromise(now, now, now)
        if claim.plan.victims:
            self._events.normal(claim.reference, "Reclaiming", f"evicting {claim.victims}")
            self._evict(claim, epoch)
        return promise

    def _evict(self, claim: PlannedClaim, epoch: int) -> bool:
        """Evict the victims of a plan; return whether any was. The next look goes on."""
        begun, unanswered = self._clock(), self._evictor.unanswered_seconds
        try:
            return self._evictor.evict(claim, epoch)
        except ApiError as err:
            note_failure(pod_key(claim.queued.pod), err)
            return False
        finally:
            self._evicting += self._clock() - begun
            self._evicting -= self._evictor.unanswered_seconds - unanswered
            evicted = self._evictor.evicted()
            gone = [one for one in claim.plan.victims if one.uid in evicted]
            self._planner.take(gone)
            kept = self._kept.get(claim.queued.pod.uid)
            if kept is not None:
                kept.victims.update(one.uid for one in gone)

    def _promise_to(self, queued: Queued) -> HeldPromise:
        """Return what a pod needs of each derived quota that its namespace's ledger counts."""
        pod, gb_per_gpu = queued.pod, self._parts.settings().gpu_memory_gb
        keys = {name: quota_key(name, gb_per_gpu) for name in pod.amounts}
        by_key = {
            key: Quantity.of_nano(pod.amounts[name])
            for name, key in keys.items()
            if key is not None
        }
        ledger = ledger_of(self._parts.ledgers, pod.namespace)
        amounts = {
            name: found
            for name, account in sorted(({} if ledger is None else ledger.accounts).items())
            if name.startswith(_DERIVED) and (found := mask(by_key, account.hard))
        }
        return HeldPromise(pod.uid, pod.namespace, pod.name, amounts)


def stored_pod(api: ClusterApi, namespace: str, name: str, uid: str) -> Object | None:
    """Return a pod as it is stored; None for another one of its name."""
    raw = find_object(api, PODS, name, namespace=namespace)
    is_it = raw is not None and FieldReader(raw).child("metadata").text("uid") == uid
    return raw if is_it else None


def _end_with_pod(pod: Pod) -> str | None:
    """Return why the promise of a pod is at its end, see `PromiseReconciler._end_of`."""
    if pod.is_deleting or is_terminal(pod):
        return _ENDING
    return "" if pod.is_assigned else None


def _end_of_stored(raw: Object | None) -> str | None:
    return _GONE if raw is None else _end_with_pod(Pod.from_stored(raw))


def note_failure(pod: str, err: ApiError | InvalidFieldError) -> None:
    """Log why nothing is done for a pod, or, without a name, for any."""
    if isinstance(err, ForbiddenError):
        _log.warning("reclaim is not allowed", extra={"pod": pod, "error": str(err)})
    else:
        _log.info("nothing reclaimed", extra={"pod": pod, "error": str(err)})
