"""Reclaim: evict pods above what is guaranteed to their quota, for pods that wait for theirs.

What may be taken from which quota is in `quota.elastic.reclaim`. For the first pods of each queue
that wait for elastic quotas alone the leader makes plans, for a pod behind others once these have
their promises, and with `elastic.reclaim.mode: Act` carries them out:

1. What the pod requests is promised to it in the derived quotas (`promises`): from then on no other
   pod can take what becomes free, but for those with an earlier promise. That is so also where
   nothing is to be evicted because enough is leaving already: a borrower could create each pod that
   it deletes again before the owner is released, and there would never be anything to evict.
2. The victims are evicted, by their uid and as far as PodDisruptionBudgets allow.
3. Once they have ended, the queue reserves for the pod, and the promise goes.

All of it is found in objects, so that another leader goes on: it plans again for each promise, with
pods that are ending taken as gone. A promise whose pod is gone, or for which nothing happens any
more, is withdrawn, and nothing is evicted for its namespace for a while. With it go those of the
pods behind it, which are not released before it.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from webhook.config import ElasticSettings, ReclaimMode
from webhook.controllers.elastic.assigned_pods import AssignedPod
from webhook.controllers.elastic.evictions import Evictor
from webhook.controllers.elastic.promises import HeldPromise, Promises
from webhook.controllers.elastic.reclaim_planner import (
    PlannedClaim,
    ReclaimPlanner,
    Turns,
    pod_key,
)
from webhook.controllers.elastic.reclaim_view import (
    OverdueReleases,
    ReclaimSources,
    ReclaimView,
    ledger_of,
    read_view,
)
from webhook.controllers.queue.queue_state import UNTRIED_FACTOR
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.events import ObjectReference
from webhook.controllers.runtime.leadership import Leadership, NotLeadingError
from webhook.controllers.runtime.rate_limit import ExponentialBackoff, ListPauses
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    PODS,
    ApiError,
    ForbiddenError,
    ListOptions,
    Object,
    find_object,
    object_key,
)
from webhook.kube.informer import Change, Informer
from webhook.kube.pager import listed_versions
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import mask
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.beneficiaries import in_claim_order, usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.derived_quotas import quota_key
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.owners_first import waiting_for_elastic
from webhook.quota.elastic.reclaim_plan import Plan
from webhook.quota.ledger.ledger_room import is_for_binds_only
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus
from webhook.quota.queue.release_order import NO_PLACE
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

_log = logging.getLogger(__name__)

_KEY: Final = "reclaim"
_BACKOFF: Final = ExponentialBackoff(0.2, 30.0)
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0
"""Until promises and waiting pods are looked at again."""
_FRUITLESS: Final = ExponentialBackoff(1.0, 30.0)
"""Between plans for one pod that come to nothing: a plan may read all nodes."""
_ENDING_MARGIN: Final = 30.0
"""How long a pod that is ending is still waited for once it is charged no more."""
_UNSTORED_SECONDS: Final = 120.0
"""How long a reservation for a pod that is not stored is waited for; it expires before that."""
_MAX_LOOKUPS: Final = 50
"""Promises whose pods the API server is asked about one by one although none is cached."""
_LATE_SECONDS: Final = 5.0
"""Of the time in which the pool of a promise had no turn, how much counts against it."""
_DERIVED: Final = tuple(ledger_name(one) for one in DERIVED_PREFIXES)
_BLOCKED: Final = (
    "a PodDisruptionBudget or elastic.reclaim.maxEvictionsPerMinute does not allow it now"
)
_NO_EVICTIONS: Final = "nothing is evicted for it"
_STALE: Final = "the API server was not heard of lately about"
_GONE: Final = "the pod is gone"
_ENDING: Final = "the pod is ending"
_IS_PROMISED: Final = (PendingReason.RECLAIMING, "room is being made for it")

Advice = tuple[PendingReason, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimParts:
    """What plans are made from, and where promises are kept."""

    quotas: Callable[[], Mapping[str, ElasticQuota]]
    """Returns the elastic quotas that count, by namespace."""
    assigned: Informer[AssignedPod]
    pods: Callable[[], Informer[Pod]]
    """Returns the cache of all pods, those without a node included."""
    caches: Callable[[], Mapping[str, Informer[Any]]]
    """Returns all caches that plans depend on, by what they hold."""
    ledgers: LedgerStore
    shared: SharedQuotaStore
    cluster_quotas: Callable[[], Iterable[str]]
    """Returns the names of the cluster quotas that there are, as ledgers name them."""
    requeue_after: Callable[[str, float], None]
    """Has a namespace looked at again after some seconds."""
    settings: Callable[[], ElasticSettings]
    """Returns what the configuration says of elastic quotas."""
    uncharged_at: Callable[[str, str], float]
    """Returns when a pod is charged no more although it is there, by its namespace and uid; never
    for one that is not being deleted."""
    holds_terminating: Callable[[], bool]
    """Returns whether pods that are stuck terminating are charged until they are gone."""
    patience: Callable[[], float]
    """Returns for how many seconds a promise is kept while nothing happens."""
    max_reservations: Callable[[], int]
    """Returns how many reservations the ledger of a namespace may hold."""


@dataclass(slots=True)
class _Waiting:
    """A pod that waits for elastic quotas alone."""

    uid: str
    namespace: str
    since: float
    epoch: int
    name: str = ""
    """Of the pod, once a cache has shown it."""
    fruitless: int = 0
    """How many plans for it in a row came to nothing."""
    not_before: float = 0.0
    """When it is planned for again."""
    behind: frozenset[str] = frozenset()
    """Uids of such pods that are released before it."""


@dataclass(slots=True)
class _Kept:
    """A promise, as this process has seen it."""

    since: float
    progress: float
    """When something was last on its way: an eviction, or a pod that ends."""
    looked: float
    """When it was last looked at."""
    victims: set[str] = field(default_factory=set)
    """Uids of the pods that were evicted for it."""
    has_room: bool = False
    """Whether all that it holds was free at the last look."""

    is_passed_over: bool = False
    """Whether it was not looked at since because its pool had no turn."""

    def look(self, now: float) -> None:
        """Note a look: little of the time in which its pool had no turn counts against it."""
        if self.is_passed_over:
            self.progress += max(0.0, now - self.looked - _LATE_SECONDS)
        self.looked, self.is_passed_over = now, False


class Reclaimer:
    """Evicts pods for pods that wait for their elastic quota, while it leads.

    Args:
        parts: What plans are made from.
    """

    def __init__(self, context: ControllerContext, parts: ReclaimParts) -> None:
        self._api = context.api
        self._parts = parts
        self._events = context.events
        self._metrics = context.metrics.elastic
        self._clock, self._now = context.timings.clock, context.timings.now
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        """Namespace → uid → a pod that waits for elastic quotas alone."""
        self._promised: dict[str, frozenset[str]] = {}
        """Namespace → uids of its pods to which something is promised."""
        self._advice: dict[str, Advice] = {}
        """Pod uid → what its condition says beside the numbers."""
        self._kept: dict[str, _Kept] = {}
        self._unstored: dict[str, float] = {}
        """Uid of a pod that is reserved for and not stored → until when it is waited for."""
        self._cooling: dict[str, float] = {}
        """Namespace → until when nothing is evicted for its pods."""
        self._stale_since = math.inf
        """Since when caches show too little."""
        self._overdue = OverdueReleases(self._clock, lambda: UNTRIED_FACTOR * parts.patience())
        self._epoch = context.leader_epoch
        self._leadership = Leadership(context.leader_epoch, self._begin)
        self.promises: Final = Promises(parts.shared, self._derived, self._leadership)
        self._evictor = Evictor(
            context,
            self._leadership,
            parts.quotas,
            lambda: parts.settings().reclaim,
            self._is_waiting,
        )
        self._planner = ReclaimPlanner(context.api, parts.settings, self._evictor.refused)
        self._lists = ListPauses(self._clock)
        self._evicting = 0.0
        self._keeping = Turns(self._clock, self._planning_clock)
        self._claiming = Turns(self._clock, self._planning_clock)
        self._queue: WorkQueue[str] = WorkQueue(_BACKOFF, clock=self._clock)
        self.workers: Final = Controller(
            "reclaim", self._queue, self.reconcile, poll=self._poll, poll_seconds=_POLL_SECONDS
        )

    def start(self) -> None:
        """Begin to look."""
        self.workers.start()

    def stop(self) -> None:
        """Evict nothing any more."""
        self._leadership.stop()
        self.workers.stop(_STOP_SECONDS)

    def _begin(self) -> None:
        """Forget what an earlier leadership saw; what it promised stands in the objects."""
        # turns go on: else leaderships that end soon would all begin with the same pods
        for seen in (self._kept, self._unstored, self._cooling):
            seen.clear()
        self._overdue.reset()
        self._evictor.reset()
        self._queue.add(_KEY)

    def _poll(self) -> bool:
        return bool(self._leadership.current_epoch())

    def _planning_clock(self) -> float:
        """Return seconds without those of evictions, which have limits of their own.

        Those that were not answered in time count: a tenant brings them about for as many promises
        as its pool has.
        """
        return self._clock() - self._evicting

    def _derived(self) -> list[str]:
        return [name for name in self._parts.cluster_quotas() if name.startswith(_DERIVED)]

    def on_shared_quota(self, change: Change[SharedQuotaVersion]) -> None:
        """Take a change of a cluster quota, on the thread of its informer.

        Promises that no leader has made, as of a backup that was restored, would else hold all of a
        pool for as long as no pod waits.
        """
        is_derived = change.key.startswith(DERIVED_PREFIXES)
        if is_derived and change.new is not None and change.new.grants.promises:
            self._queue.add_after(_KEY, _AGAIN_SECONDS)

    # -- from the queues, on their threads -----------------------------------------------------

    def on_queue(
        self, namespace: str, pending: Mapping[str, PendingStatus], _releasable: Collection[str]
    ) -> None:
        """Take the result of a cycle of a queue, see `QueueListener`."""
        quota = self._parts.quotas().get(namespace)
        uids = {} if quota is None else waiting_for_elastic(pending)
        epoch = self._epoch()
        with self._lock:
            is_released = not self._promised.get(namespace, frozenset()) <= pending.keys()
        if is_released:  # what was held for it is reserved: others need not leave it any more
            self._queue.add(_KEY)
        with self._lock:
            known = self._waiting.pop(namespace, {})
            kept = {uid: one for uid, one in known.items() if uid in uids and one.epoch == epoch}
            new = [uid for uid in uids if uid not in kept]
            kept |= {uid: _Waiting(uid, namespace, self._clock(), epoch) for uid in new}
            for uid, one in kept.items():
                one.behind = uids[uid]
            if kept:
                self._waiting[namespace] = kept
        if new and quota is not None:
            self._queue.add_after(_KEY, self._after(quota))

    def with_advice(self, pending: Mapping[str, PendingStatus]) -> Mapping[str, PendingStatus]:
        """Return why pods wait, with what reclaim does or would do for them."""
        with self._lock:
            found = {uid: self._advice[uid] for uid in self._advice if uid in pending}
        advised = {
            uid: _with_advice(pending[uid], advice)
            for uid, advice in found.items()
            if pending[uid].reason in (PendingReason.QUOTA_EXCEEDED, PendingReason.BEHIND)
        }
        return {**pending, **advised} if advised else pending

    # -- on the thread -------------------------------------------------------------------------

    def reconcile(self, _key: str) -> Result:
        """Look at the promises, then at the pods that wait, while this process leads."""
        epoch = self._leadership.current_epoch()
        if not epoch:
            return DONE
        promises, waiting = self.promises.held(), self._waiting_now(epoch)
        if not (promises or waiting):
            self._overdue.reset()
            self._advise({})
            self._note_promised()
            return DONE
        stale = self._stale_caches()
        self._overdue.look(self._parts.quotas(), self._parts.ledgers)
        settings = self._parts.settings()
        mode = settings.reclaim.mode if settings.enabled else ReclaimMode.OFF
        try:
            if mode is not ReclaimMode.ACT:
                self._end(promises, dict.fromkeys(promises, "nothing is reclaimed any more"), epoch)
                promises = {}
            elif not stale:
                promises = self._keep(promises, epoch)
            if mode is ReclaimMode.OFF:
                self._advise({})
            elif stale:
                self._advise(self._postpone(promises, waiting, stale, epoch))
            else:
                self._advise(self._claim(promises, waiting, epoch))
            self._note_promised()
        except NotLeadingError:
            return DONE
        except (ApiError, InvalidFieldError) as err:
            _note_failure("", err)
            return RATE_LIMITED
        finally:
            self._planner.forget()
        return RequeueAfter(_AGAIN_SECONDS)

    def _stale_caches(self) -> str:
        """Return which caches show too little now to evict a pod by; empty for none.

        A kind that is not installed has no objects, as long as none were seen.
        """
        caches = self._parts.caches()
        stale = [name for name, one in caches.items() if not (one.is_current or _is_none(one))]
        if not stale:
            self._stale_since = math.inf
        return ", ".join(stale)

    def _postpone(
        self,
        promises: Mapping[str, HeldPromise],
        waiting: Iterable[_Waiting],
        stale: str,
        epoch: int,
    ) -> Mapping[str, Advice]:
        """Keep what is promised until its pod has it, or is over; return what there is to say."""
        kept = dict(promises)
        self._end_over(kept, epoch)
        for one in self._kept.values():
            one.is_passed_over = True
        now = self._clock()
        self._stale_since = min(self._stale_since, now)
        if now - self._stale_since < _LATE_SECONDS:
            return self._advice  # a watch that ends is opened again, in most cases at once
        said = PendingReason.QUOTA_EXCEEDED, f"{_NO_EVICTIONS}: {_STALE} {stale}"
        return {
            **{one.uid: said for one in waiting if one.behind <= kept.keys()},
            **{uid: self._advice.get(uid, _IS_PROMISED) for uid in kept},
        }

    def _note_promised(self) -> None:
        by_namespace: dict[str, set[str]] = {}
        for uid, one in self.promises.held().items():
            by_namespace.setdefault(one.namespace, set()).add(uid)
        with self._lock:
            self._promised = {name: frozenset(uids) for name, uids in by_namespace.items()}

    def _waiting_now(self, epoch: int) -> list[_Waiting]:
        with self._lock:
            known = [one for pods in self._waiting.values() for one in pods.values()]
        return [one for one in known if one.epoch == epoch]

    def _is_waiting(self, uid: str) -> bool:
        with self._lock:
            return any(uid in pods for pods in (*self._waiting.values(), *self._promised.values()))

    def _view(self, promises: Mapping[str, HeldPromise]) -> ReclaimView:
        sources = ReclaimSources(
            self._parts.assigned,
            self._parts.pods(),
            self._parts.ledgers,
            self._parts.settings(),
            self._parts.holds_terminating(),
            self._evictor.evicted(),
            self._overdue.uids(),
            self._now(),
        )
        return read_view(self._parts.quotas(), sources, promises.values())

    # -- promises that are made already --------------------------------------------------------

    def _keep(self, promises: Mapping[str, HeldPromise], epoch: int) -> dict[str, HeldPromise]:
        """Go on with what is promised; return what is kept."""
        self._kept = {uid: one for uid, one in self._kept.items() if uid in promises}
        kept = dict(promises)
        standing = self._end_over(kept, epoch)
        looked: set[str] = set()
        for pool, uids in self._by_pool(kept[uid] for uid in standing).items():
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
            _note_failure(f"{kept[uid].namespace}/{kept[uid].pod}", err)
            end = self._end_if_late(uid)
        if end is None:
            return
        later = self._ends([kept[uid]])[uid]  # its queue may have reserved for it meanwhile
        end = end if later is None else later
        is_withdrawn = end not in ("", _GONE, _ENDING)
        behind = [other for other in kept if is_withdrawn and uid in self._behind(kept[other])]
        also = f"it waits behind pod {kept[uid].pod}: {end}"
        self._end_all(kept, {uid: end, **dict.fromkeys(behind, also)}, epoch)

    def _behind(self, promise: HeldPromise) -> frozenset[str]:
        """Return the uids of the pods that the one of a promise waits behind."""
        with self._lock:
            one = self._waiting.get(promise.namespace, {}).get(promise.uid)
        return frozenset() if one is None else one.behind

    def _cached(self, promise: HeldPromise) -> Pod | None:
        """Return the pod of a promise as a cache shows it."""
        pod = self._parts.pods().get(object_key(promise.namespace, promise.pod))
        return pod if pod is not None and pod.uid == promise.uid else None

    def _without_pod(self, uids: Collection[str]) -> dict[str, str]:
        """Return why promises end whose pods are not cached, and do not wait by a list made now."""
        if not self._lists.is_over():
            return {}
        waiting = ListOptions(field_selector="spec.nodeName=")
        try:
            with self._lists.measured():
                newest = self._parts.pods().resource_version
                listed = listed_versions(self._api, PODS, waiting, uids, newest=newest)
        except ApiError as err:
            _note_failure("", err)
            return {}
        return {uid: _GONE for uid in uids if uid not in listed}

    def _ends(self, promises: Iterable[HeldPromise]) -> dict[str, str | None]:
        """Return `_end_of` promises; None also where nothing is known now."""
        ends: dict[str, str | None] = {}
        for promise in promises:
            try:
                ends[promise.uid] = self._end_of(promise)
            except (ApiError, InvalidFieldError) as err:
                _note_failure(f"{promise.namespace}/{promise.pod}", err)
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
            raw = self._stored(promise.namespace, promise.pod, promise.uid)
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
        kept = self._kept.setdefault(promise.uid, _Kept(now, now, now, set(view.ending)))
        kept.look(now)
        quota = view.quotas.get(promise.namespace)
        raw = self._stored(promise.namespace, promise.pod, promise.uid)
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
                _note_failure(f"{promise.namespace}/{promise.pod}", err)
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
            is_behind = not self._behind(promise).isdisjoint(promises)  # these end in time
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

    # -- pods that wait ------------------------------------------------------------------------

    def _claim(
        self, promises: Mapping[str, HeldPromise], waiting: Sequence[_Waiting], epoch: int
    ) -> dict[str, Advice]:
        """Plan for the pods that wait, in the order of their claims, and act by it."""
        made = dict(promises)
        uids = {one.uid for one in waiting}
        advice = {
            uid: one
            for uid, one in self._advice.items()
            if uid in uids and one[0] is not PendingReason.RECLAIMING
        }
        due = [
            one
            for one in waiting
            if one.uid not in promises and one.behind <= promises.keys() and self._is_due(one)
        ]
        for pool, ordered in self._in_order(due, made).items():
            planned = self._claiming.had[pool]
            for one in self._claiming.of(pool, ordered):
                if one.namespace in planned:
                    continue  # a plan takes long where there are many pods; others wait for theirs
                said = self._claim_for(one, made, planned, epoch)
                if said is not None:
                    advice.pop(one.uid, None)
                    advice.update({one.uid: said} if said[1] else {})
        kept = {uid: self._advice.get(uid, _IS_PROMISED) for uid in promises}
        return {**advice, **kept}

    def _claim_for(
        self, one: _Waiting, made: dict[str, HeldPromise], planned: set[str], epoch: int
    ) -> Advice | None:
        """Plan for a pod, and act by it; return what there is to say, None without a plan."""
        try:
            raw = self._waiting_pod(one)
            if raw is None:
                return None
            planned.add(one.namespace)
            view = self._view(made)
            quota = view.quotas.get(one.namespace)
            if quota is None:
                return None
            claim = self._planner.plan(view, quota, raw)
            is_claimed = bool(claim.plan.victims or claim.awaits_leaving)
            if is_claimed and self._has_no_place(Pod.from_stored(raw)):
                no_place = Plan(claim.plan.shortage, False, obstacle=NO_PLACE)
                claim, is_claimed = replace(claim, plan=no_place, awaits_leaving=False), False
            promise = self._act(claim, epoch) if is_claimed else None
        except (ApiError, InvalidFieldError) as err:
            _note_failure(f"{one.namespace}/{one.name}", err)
            self._rest(one)
            return None
        if promise is not None:
            made[one.uid] = promise
        else:
            self._rest(one)
        return self._words(claim, is_promised=promise is not None)

    def _has_no_place(self, pod: Pod) -> bool:
        """Return whether nothing may be reserved for a pod behind a gate, whatever is free."""
        ledger = ledger_of(self._parts.ledgers, pod.namespace)
        if ledger is None or not pod.is_gated:
            return False
        return is_for_binds_only(ledger, self._parts.max_reservations())

    def _rest(self, waiting: _Waiting) -> None:
        """Have a pod wait for its next plan, longer each time."""
        waiting.fruitless += 1
        waiting.not_before = self._clock() + _FRUITLESS.seconds(waiting.fruitless)

    def _is_due(self, waiting: _Waiting) -> bool:
        quota, now = self._parts.quotas().get(waiting.namespace), self._clock()
        if quota is None or self._cooling.get(waiting.namespace, 0.0) > now:
            return False
        return now >= max(waiting.not_before, waiting.since + self._after(quota))

    def _after(self, quota: ElasticQuota) -> float:
        given = quota.after_seconds
        return float(self._parts.settings().reclaim.after_seconds if given is None else given)

    def _in_order(
        self, due: Sequence[_Waiting], promises: Mapping[str, HeldPromise]
    ) -> dict[str, list[_Waiting]]:
        """Return pods that wait, by pool, in the order of their claims."""
        if not due:
            return {}
        view = self._view(promises)
        usage = usage_of_pods(view.pods)
        by_pool: dict[str, list[Queued]] = {}
        by_uid = {one.uid: one for one in due}
        for namespace in sorted({one.namespace for one in due}):
            quota = view.quotas.get(namespace)
            for pod in () if quota is None else self._parts.pods().in_namespace(namespace):
                if quota is not None and pod.uid in by_uid and not _is_over(pod):
                    by_uid[pod.uid].name = pod.name
                    by_pool.setdefault(quota.pool, []).append(self._planner.claimant(quota, pod))
        return {
            pool: [by_uid[one.pod.uid] for one in in_claim_order(view.pools[pool], usage, queued)]
            for pool, queued in sorted(by_pool.items())
        }

    def _waiting_pod(self, waiting: _Waiting) -> Object | None:
        """Return a pod as it is stored, while it may still be released."""
        raw = self._stored(waiting.namespace, waiting.name, waiting.uid)
        return None if raw is None or _is_over(Pod.from_stored(raw)) else raw

    def _stored(self, namespace: str, name: str, uid: str) -> Object | None:
        raw = find_object(self._api, PODS, name, namespace=namespace)
        is_it = raw is not None and FieldReader(raw).child("metadata").text("uid") == uid
        return raw if is_it else None

    def _act(self, claim: PlannedClaim, epoch: int) -> HeldPromise | None:
        """Promise and evict; return the promise, None where nothing is done."""
        if self._parts.settings().reclaim.mode is not ReclaimMode.ACT:
            return None
        promise = self._promise_to(claim.queued)
        may_begin = claim.awaits_leaving or (
            self._planner.disruptions().allow(claim.plan.victims) and self._evictor.may_begin(claim)
        )
        if not (may_begin and promise.amounts):
            return None
        if not self.promises.make(promise, epoch):
            self.promises.withdraw([promise.uid], epoch)
            return None
        now = self._clock()
        self._kept[promise.uid] = _Kept(now, now, now)
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
            _note_failure(pod_key(claim.queued.pod), err)
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

    # -- words ---------------------------------------------------------------------------------

    def _words(self, claim: PlannedClaim, *, is_promised: bool) -> Advice:
        """Return what the condition of a pod says of the plan for it, and count the plan."""
        mode, obstacle = self._parts.settings().reclaim.mode, claim.plan.obstacle
        if is_promised:
            evicting = f"evicting {claim.victims}" if claim.plan.victims else _IS_PROMISED[1]
            outcome, text = "acted", evicting
        elif claim.plan.victims:
            is_blocked = mode is ReclaimMode.ACT
            outcome = "blocked" if is_blocked else "planned"
            why = _BLOCKED if is_blocked else f"elastic.reclaim.mode is {mode}"
            text = f"would evict {claim.victims}; {why}"
        else:
            outcome = "impossible" if obstacle else "needless"
            text = f"{_NO_EVICTIONS}: {obstacle}" if obstacle else ""
        self._metrics.plans.labels(outcome).inc()
        reason = PendingReason.RECLAIMING if is_promised else PendingReason.QUOTA_EXCEEDED
        return reason, text

    def _advise(self, advice: Mapping[str, Advice]) -> None:
        """Have the conditions of pods written again for which something else is to be said."""
        with self._lock:
            former, self._advice = self._advice, dict(advice)
            changed = {uid for uid in {*former, *advice} if former.get(uid) != advice.get(uid)}
            namespaces = [
                name for name, pods in self._waiting.items() if not changed.isdisjoint(pods)
            ]
        for namespace in namespaces:
            self._parts.requeue_after(namespace, 0.0)


def _with_advice(status: PendingStatus, advice: Advice) -> PendingStatus:
    reason, text = advice
    is_promised = reason is PendingReason.RECLAIMING
    return replace(status, reason=reason if is_promised else status.reason, detail=text)


def _end_with_pod(pod: Pod) -> str | None:
    """Return why the promise of a pod is at its end, see `Reclaimer._end_of`."""
    if pod.is_deleting or is_terminal(pod):
        return _ENDING
    return "" if pod.is_assigned else None


def _end_of_stored(raw: Object | None) -> str | None:
    return _GONE if raw is None else _end_with_pod(Pod.from_stored(raw))


def _is_none(cache: Informer[Any]) -> bool:
    return cache.is_absent and not len(cache)


def _is_over(pod: Pod) -> bool:
    """Return whether a pod is released no more."""
    return pod.is_assigned or pod.is_deleting or is_terminal(pod)


def _note_failure(pod: str, err: ApiError | InvalidFieldError) -> None:
    """Log why nothing is done for a pod, or, without a name, for any."""
    if isinstance(err, ForbiddenError):
        _log.warning("reclaim is not allowed", extra={"pod": pod, "error": str(err)})
    else:
        _log.info("nothing reclaimed", extra={"pod": pod, "error": str(err)})
