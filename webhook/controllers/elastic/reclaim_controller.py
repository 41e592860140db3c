"""Reclaim: evict pods above what is guaranteed to their quota, for pods that wait for theirs.

`quota.elastic.reclaim_plan` says what may be taken from which quota. For the first pods of each
queue that wait for elastic quotas alone the leader makes plans, for a pod behind others once these
have their promises, and with `elastic.reclaim.mode: Act` carries them out:

1. What the pod requests is promised to it in the derived quotas (`promises`): from then on no other
   pod can take what becomes free, but for those with an earlier promise. That is so also where
   nothing is to be evicted because enough is leaving already: a borrower could create each pod that
   it deletes again before the owner is released, and there would never be anything to evict.
2. The victims are evicted, by their uid and as far as PodDisruptionBudgets allow.
3. Once they have ended, the queue reserves for the pod, and the promise goes.

All of it is found in objects, so that another leader goes on: it plans again for each promise, with
pods that are ending taken as gone (`promise_reconciler`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from webhook.config import ReclaimMode
from webhook.controllers.elastic.evictions import Evictor
from webhook.controllers.elastic.promise_reconciler import (
    PromiseReconciler,
    note_failure,
    stored_pod,
)
from webhook.controllers.elastic.promises import HeldPromise
from webhook.controllers.elastic.reclaim_planner import PlannedClaim, ReclaimPlanner, Turns
from webhook.controllers.elastic.reclaim_view import (
    OverdueReleases,
    ReclaimParts,
    ReclaimSources,
    ReclaimView,
    ledger_of,
    read_view,
)
from webhook.controllers.elastic.waiting_pods import Advice, WaitingPod, WaitingPods
from webhook.controllers.queue.queue_state import UNTRIED_FACTOR
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.leadership import Leadership, NotLeadingError
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, Object
from webhook.kube.informer import Change, Informer
from webhook.quota.charging.pod_usage import is_terminal
from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.beneficiaries import in_claim_order, usage_of_pods
from webhook.quota.elastic.reclaim_plan import Plan
from webhook.quota.ledger.ledger_room import is_for_binds_only
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.queue.queued_pods import PendingReason
from webhook.quota.queue.release_order import NO_PLACE
from webhook.state.shared_quotas import SharedQuotaVersion

_KEY: Final = "reclaim"
_BACKOFF: Final = ExponentialBackoff(0.2, 30.0)
_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 1.0
"""Until promises and waiting pods are looked at again."""
_FRUITLESS: Final = ExponentialBackoff(1.0, 30.0)
"""Between plans for one pod that come to nothing: a plan may read all nodes."""
_STALE_SECONDS: Final = 5.0
"""For how long caches are old before conditions say so."""
_BLOCKED: Final = (
    "a PodDisruptionBudget or elastic.reclaim.maxEvictionsPerMinute does not allow it now"
)
_NO_EVICTIONS: Final = "nothing is evicted for it"
_STALE: Final = "the API server was not heard of lately about"
_IS_PROMISED: Final = (PendingReason.RECLAIMING, "room is being made for it")


class Reclaimer:
    """Evicts pods for pods that wait for their elastic quota, while it leads.

    Args:
        parts: Sources of plans, and stores of promises.
    """

    def __init__(self, context: ControllerContext, parts: ReclaimParts) -> None:
        self._api = context.api
        self._parts = parts
        self._metrics = context.metrics.elastic
        self._clock, self._now = context.timings.clock, context.timings.now
        self._stale_since = math.inf
        """Time since which caches are too old to evict by."""
        self._overdue = OverdueReleases(self._clock, lambda: UNTRIED_FACTOR * parts.patience())
        self._queue: WorkQueue[str] = WorkQueue(_BACKOFF, clock=self._clock)
        self._leadership = Leadership(context.leader_epoch, self._begin)
        self.waiting_pods: Final = WaitingPods(
            context, parts, lambda seconds: self._queue.add_after(_KEY, seconds)
        )
        self._evictor = Evictor(
            context,
            self._leadership,
            parts.quotas,
            lambda: parts.settings().reclaim,
            self.waiting_pods.is_waiting,
        )
        self._planner = ReclaimPlanner(
            context.api, parts.settings, self._evictor.refused, self._evictor.reluctant
        )
        self._reconciler = PromiseReconciler(
            context,
            parts,
            self._leadership,
            self.waiting_pods,
            self._evictor,
            self._planner,
            self._view,
        )
        self._claiming = Turns(self._clock, self._reconciler.planning_clock)
        self.workers: Final = Controller(
            "reclaim", self._queue, self.reconcile, poll=self._poll, poll_seconds=_POLL_SECONDS
        )

    def start(self) -> None:
        """Start the worker."""
        self.workers.start()

    def stop(self) -> None:
        """Stop the worker; nothing is evicted any more."""
        self._leadership.stop()
        self.workers.stop(_STOP_SECONDS)

    def _begin(self) -> None:
        """Forget what an earlier leadership saw; what it promised stands in the objects."""
        # turns go on: else leaderships that end soon would all begin with the same pods
        self._reconciler.reset()
        self._overdue.reset()
        self._evictor.reset()
        self._queue.add(_KEY)

    def _poll(self) -> bool:
        return bool(self._leadership.current_epoch())

    def on_shared_quota(self, change: Change[SharedQuotaVersion]) -> None:
        """Take a change of a cluster quota, on the thread of its informer.

        Promises that no leader has made, as of a backup that was restored, would else hold all of a
        pool for as long as no pod waits.
        """
        is_derived = change.key.startswith(DERIVED_PREFIXES)
        if is_derived and change.new is not None and change.new.grants.promises:
            self._queue.add_after(_KEY, _AGAIN_SECONDS)

    def reconcile(self, _key: str) -> Result:
        """Look at the promises, then at the pods that wait, while this process leads."""
        epoch = self._leadership.current_epoch()
        if not epoch:
            return DONE
        promises, waiting = self._reconciler.promises.held(), self.waiting_pods.of_epoch(epoch)
        if not (promises or waiting):
            self._overdue.reset()
            self.waiting_pods.advise({})
            self.waiting_pods.note_promised(promises.values())
            return DONE
        stale = self._stale_caches()
        self._overdue.look(self._parts.quotas(), self._parts.ledgers)
        settings = self._parts.settings()
        mode = settings.reclaim.mode if settings.enabled else ReclaimMode.OFF
        try:
            promises = self._reconciler.reconcile(promises, epoch, mode=mode, is_stale=bool(stale))
            if mode is ReclaimMode.OFF:
                advice: Mapping[str, Advice] = {}
            elif stale:
                advice = self._postpone(promises, waiting, stale)
            else:
                advice = self._claim(promises, waiting, epoch)
            self.waiting_pods.advise(advice)
            self.waiting_pods.note_promised(self._reconciler.promises.held().values())
        except NotLeadingError:
            return DONE
        except (ApiError, InvalidFieldError) as err:
            note_failure("", err)
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
        self, promises: Mapping[str, HeldPromise], waiting: Iterable[WaitingPod], stale: str
    ) -> Mapping[str, Advice]:
        """Return the advice while caches are too old to evict by."""
        now = self._clock()
        self._stale_since = min(self._stale_since, now)
        if now - self._stale_since < _STALE_SECONDS:
            # a watch that ends is opened again, in most cases at once
            return self.waiting_pods.advice
        said = PendingReason.QUOTA_EXCEEDED, f"{_NO_EVICTIONS}: {_STALE} {stale}"
        return {
            **{one.uid: said for one in waiting if one.behind <= promises.keys()},
            **{uid: self.waiting_pods.advice.get(uid, _IS_PROMISED) for uid in promises},
        }

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

    def _claim(
        self, promises: Mapping[str, HeldPromise], waiting: Sequence[WaitingPod], epoch: int
    ) -> dict[str, Advice]:
        """Plan for pods that wait, in the order of their claims, and act by it; return advice."""
        made = dict(promises)
        uids = {one.uid for one in waiting}
        advice = {
            uid: one
            for uid, one in self.waiting_pods.advice.items()
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
        kept = {uid: self.waiting_pods.advice.get(uid, _IS_PROMISED) for uid in promises}
        return {**advice, **kept}

    def _claim_for(
        self, one: WaitingPod, made: dict[str, HeldPromise], planned: set[str], epoch: int
    ) -> Advice | None:
        """Plan for a pod, and act by it; return the advice for it, None without a plan."""
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
            promise = self._reconciler.carry_out(claim, epoch) if is_claimed else None
        except (ApiError, InvalidFieldError) as err:
            note_failure(f"{one.namespace}/{one.name}", err)
            self._rest(one)
            return None
        if promise is not None:
            made[one.uid] = promise
        else:
            self._rest(one)
        return self._advice_by(claim, is_promised=promise is not None)

    def _has_no_place(self, pod: Pod) -> bool:
        """Return whether nothing may be reserved for a pod behind a gate, whatever is free."""
        ledger = ledger_of(self._parts.ledgers, pod.namespace)
        if ledger is None or not pod.is_gated:
            return False
        return is_for_binds_only(ledger, self._parts.max_reservations())

    def _rest(self, waiting: WaitingPod) -> None:
        """Postpone the next plan for a pod, longer each time."""
        waiting.fruitless += 1
        waiting.not_before = self._clock() + _FRUITLESS.seconds(waiting.fruitless)

    def _is_due(self, waiting: WaitingPod) -> bool:
        quota = self._parts.quotas().get(waiting.namespace)
        if quota is None or self._reconciler.is_cooling(waiting.namespace):
            return False
        due = waiting.since + self.waiting_pods.after_seconds(quota)
        return self._clock() >= max(waiting.not_before, due)

    def _in_order(
        self, due: Sequence[WaitingPod], promises: Mapping[str, HeldPromise]
    ) -> dict[str, list[WaitingPod]]:
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

    def _waiting_pod(self, waiting: WaitingPod) -> Object | None:
        """Return a pod as it is stored, while it may still be released."""
        raw = stored_pod(self._api, waiting.namespace, waiting.name, waiting.uid)
        return None if raw is None or _is_over(Pod.from_stored(raw)) else raw

    def _advice_by(self, claim: PlannedClaim, *, is_promised: bool) -> Advice:
        """Return the advice for a pod by the plan for it, and count the plan."""
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


def _is_none(cache: Informer[Any]) -> bool:
    return cache.is_absent and not len(cache)


def _is_over(pod: Pod) -> bool:
    """Return whether a pod is released no more."""
    return pod.is_assigned or pod.is_deleting or is_terminal(pod)
