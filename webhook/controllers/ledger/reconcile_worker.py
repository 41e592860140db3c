"""Reconcile one namespace of the ledger controller's work queue, and requeue it.

A namespace that changes all the time is reconciled at most every `write_interval_seconds`, one that
was quiet at once, and one that fails after growing pauses, so that none keeps the others waiting. A
namespace in which nothing happens is reconciled every `resync_seconds`: a reservation whose request
failed leaves no other trace, and the ledger may have been edited.
"""

from __future__ import annotations

import logging

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.drift import DriftDetector
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.namespace_usage import MAX_DELETED_PODS
from webhook.controllers.ledger.reconciler import RETRY_SECONDS, LedgerReconciler
from webhook.controllers.queue.controller import PodQueues
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Done,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.leadership import NotLeadingError
from webhook.controllers.runtime.rate_limit import rest_seconds
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, UnavailableError
from webhook.kube.errors import is_namespace_terminating

_log = logging.getLogger(__name__)


class NamespaceReconciler:
    """Reconciler of the ledger controller; for several threads, each with another namespace.

    Args:
        pod_queues: Queues of gated pods.
        ledgers: Reconciler of ledgers.
        drift: Comparison of counts with fresh lists of pods.
    """

    def __init__(
        self,
        context: LedgerContext,
        pod_queues: PodQueues,
        ledgers: LedgerReconciler,
        drift: DriftDetector,
    ) -> None:
        self._context = context
        self._usage_cache = context.usage_cache
        self._pod_queues = pod_queues
        self._ledgers = ledgers
        self._drift = drift
        self._resync_seconds = (
            context.timings.resync_seconds
            if context.ledger_informer is None
            else context.timings.followed_resync_seconds
        )

    def reconcile(self, namespace: str) -> Result:
        """Reconcile a namespace while this process leads."""
        began = self._context.timings.thread_time()
        result: Result = RATE_LIMITED
        state: NamespaceState | None = None
        try:
            epoch = self._context.leadership.current_epoch()
            if epoch:
                state = self._begin(namespace)
            else:
                self._stand_by(namespace, began)
            if state is not None:
                result = self._ledgers.reconcile(namespace, state, epoch)
                self._drift.schedule(namespace)
        except NotLeadingError:
            _log.info("not leading any more", extra={"namespace": namespace})
            result = RequeueAfter(RETRY_SECONDS)
        except (ApiError, InvalidFieldError) as err:
            self._record_failure(namespace, state, err)
        finally:
            result = self._finish(namespace, state, result, began)
        return result

    def _begin(self, namespace: str) -> NamespaceState | None:
        with self._usage_cache.lock:
            state = self._usage_cache.refreshed(namespace)
            if state is not None:
                state.begin_reconcile()
            return state

    def _stand_by(self, namespace: str, began: float) -> None:
        """Reconcile nothing, and let nothing pile up.

        Few of the deleted pods have a reservation. A namespace that has opted out leaves nothing to
        the next leader where no ledger counts anything and no pod is behind our gate.
        """
        with self._usage_cache.lock:
            # on a standby as well: its page shows the queue, and it may lead at any time
            state = self._usage_cache.refreshed(namespace)
            if state is None:
                return
            self._usage_cache.workqueue.rest(namespace, self._rest_seconds(state, began))
            is_left = state.is_opted_out and not len(state.usage.gated_pods)
            if is_left and self._rests(state):
                self._usage_cache.workqueue.add(namespace)  # the next run forgets the namespace
                return
            if not is_left and state.usage.deleted_count < MAX_DELETED_PODS:
                return
            known = self._context.ledgers.known(namespace)
            ledger = None if known is None else known.ledger
            if is_left and (ledger is None or not ledger.accounts):
                del self._usage_cache.namespaces[namespace]
            else:
                state.usage.forget_deleted(() if ledger is None else ledger.reservations)

    def _record_failure(
        self, namespace: str, state: NamespaceState | None, err: ApiError | InvalidFieldError
    ) -> None:
        # in a namespace that is being deleted no ledger can be made, and none is needed
        is_end = isinstance(err, ApiError) and is_namespace_terminating(err)
        level = logging.INFO if is_end else logging.WARNING
        _log.log(level, "reconciling failed", extra={"namespace": namespace, "error": str(err)})
        self._context.recorder.reconciled("failed")
        if state is not None:
            state.is_unanswered = isinstance(err, UnavailableError)
            # ready all the same: handlers answer 429 in this namespace, and decide in the others
            state.has_reconciled |= not state.is_unanswered

    def _finish(
        self, namespace: str, state: NamespaceState | None, result: Result, began: float
    ) -> Result:
        """Record what became of a namespace; return when to come again."""
        is_done = isinstance(result, Done)
        with self._usage_cache.lock:
            present = self._usage_cache.namespaces.get(namespace)
            if state is not None:
                if is_done and state.reconciling_since is not None:
                    lag = self._context.timings.clock() - state.reconciling_since
                    self._context.recorder.lagged(lag)
                state.finish_reconcile(is_done=is_done)
                if state.is_left and not self._rests(state) and present is state:
                    del self._usage_cache.namespaces[namespace]
                    present = None
            if present is None:
                self._usage_cache.workqueue.remove(namespace)
            elif state is not None:
                # one that is counted anew by now was added by that
                rest = self._rest_seconds(state, began)
                return self._next_turn(namespace, state, result, rest) if present is state else DONE
        self._pod_queues.forget(namespace)  # gone, or another process leads
        return DONE  # a leadership that begins adds all namespaces

    def _next_turn(
        self, namespace: str, state: NamespaceState, result: Result, rest: float
    ) -> Result:
        """Let a namespace rest between two writes, and return when it is due if nothing changes."""
        timings, queue = self._context.timings, self._usage_cache.workqueue
        match result:
            case RequeueAfter(seconds):
                # what was put off can wait, and not what is added meanwhile
                pause = 0.0 if state.deferrals else seconds
                queue.rest(namespace, max(pause, rest))
            case Done():
                queue.rest(namespace, rest)
                expiry = state.expiry.next_due()
                seconds = rest if state.is_left else self._resync_seconds
                if expiry is not None:
                    seconds = min(seconds, expiry - timings.clock())
                return RequeueAfter(seconds)
        return result

    def _rest_seconds(self, state: NamespaceState, began: float) -> float:
        """Return how long a namespace rests; `began` is in processor time of this thread.

        Edits of quotas and of its label, and changes of pods in a long queue, however many, delay
        this namespace and no other.
        """
        timings = self._context.timings
        took = timings.thread_time() - began
        rest = state.rests_until - timings.clock()
        return max(timings.write_interval_seconds, rest, rest_seconds(took))

    def _rests(self, state: NamespaceState) -> bool:
        """Return whether its pods would be counted too soon if it were forgotten and came again."""
        return self._context.timings.clock() < state.rests_until
