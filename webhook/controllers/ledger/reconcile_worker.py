"""Take one namespace after the other from the workqueue, reconcile it, and requeue it.

A namespace that changes all the time is reconciled at most every `settle_seconds`, one that was
quiet at once, and one that fails is tried again after growing pauses, so that none keeps the others
waiting. One in which nothing happens is looked at every `resync_seconds`: a reservation whose
request came to nothing leaves no other trace, and somebody may have edited the ledger.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable
from typing import Final

from webhook.controllers.ledger.namespace_state import ControllerTimings, NamespaceState
from webhook.controllers.ledger.reconciler import RETRY_SECONDS, LedgerReconciler
from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.queue.controller import PodQueues
from webhook.controllers.runtime.leadership import NotLeadingError
from webhook.controllers.runtime.workqueue import DelayingQueue
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, UnavailableError
from webhook.kube.errors import is_namespace_terminating
from webhook.state.ledgers import LedgerStore

_log = logging.getLogger(__name__)

_MAX_DELETED_PODS: Final = 200
"""Deleted pods of a namespace that a standby remembers before it asks which of them matter."""


class ReconcileWorker:
    """Worker of the ledger workqueue. Safe to use from several threads for different namespaces.

    Args:
        workqueue: Where namespaces are taken from.
        usage_cache: What was counted.
        ledgers: Where ledgers are read and written.
        pod_queues: Who waits in each namespace.
        reconciler: Reconciles one namespace.
        timings: When to act.
        resync_seconds: Between two looks at a namespace in which nothing happens.
        current_epoch: Returns the leadership to work under, see `Leadership`.
        schedule_drift_check: Told of a namespace that was reconciled.
        recorder: Where it is told how that went.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        workqueue: DelayingQueue[str],
        usage_cache: UsageCache,
        ledgers: LedgerStore,
        pod_queues: PodQueues,
        reconciler: LedgerReconciler,
        timings: ControllerTimings,
        *,
        resync_seconds: float,
        current_epoch: Callable[[], int],
        schedule_drift_check: Callable[[str], None],
        recorder: LedgerRecorder,
    ) -> None:
        self._workqueue = workqueue
        self._usage_cache = usage_cache
        self._ledgers = ledgers
        self._pod_queues = pod_queues
        self._reconciler = reconciler
        self._timings = timings
        self._resync_seconds = resync_seconds
        self._current_epoch = current_epoch
        self._schedule_drift_check = schedule_drift_check
        self._recorder = recorder

    def sync(self, namespace: str) -> None:
        """Reconcile a namespace that was taken from the workqueue, and give it back.

        What the API server does not do is tried again; what else goes wrong is raised after that.
        """
        retry: float | None = RETRY_SECONDS
        state: NamespaceState | None = None
        try:
            epoch = self._current_epoch()
            if not epoch:
                self._stand_by(namespace)
                return
            state = self._begin(namespace)
            if state is not None:
                retry = self._reconciler.reconcile(namespace, state, epoch)
                state.failures = 0
                self._schedule_drift_check(namespace)
        except NotLeadingError:
            _log.info("not leading any more", extra={"namespace": namespace})
        except (ApiError, InvalidFieldError) as err:
            retry = self._back_off(namespace, state, err)
        finally:
            self._end(namespace, state, retry)

    def _begin(self, namespace: str) -> NamespaceState | None:
        with self._usage_cache.lock:
            state = self._usage_cache.namespaces.get(namespace)
            if state is not None:
                state.begin_reconcile()
                self._usage_cache.refresh_quotas(namespace, state)
            return state

    def _stand_by(self, namespace: str) -> None:
        """Reconcile nothing, and let nothing pile up.

        Few of the deleted pods have a reservation. What has left leaves nothing to be done for who
        leads next, where no ledger counts anything and no pod is behind our gate.
        """
        with self._usage_cache.lock:
            state = self._usage_cache.namespaces.get(namespace)
            if state is None:
                return
            releasable = state.is_opted_out and not len(state.usage.gated_pods)
            if not releasable and state.usage.deleted_count < _MAX_DELETED_PODS:
                return
            known = self._ledgers.known(namespace)
            ledger = None if known is None else known.ledger
            if releasable and (ledger is None or not ledger.accounts):
                del self._usage_cache.namespaces[namespace]
            else:
                state.usage.forget_deleted(() if ledger is None else ledger.reservations)

    def _back_off(
        self, namespace: str, state: NamespaceState | None, err: ApiError | InvalidFieldError
    ) -> float:
        # no ledger can be made any more, and none is needed
        is_end = isinstance(err, ApiError) and is_namespace_terminating(err)
        level = logging.INFO if is_end else logging.WARNING
        _log.log(level, "settling failed", extra={"namespace": namespace, "error": str(err)})
        self._recorder.reconciled("failed")
        if state is None:
            return RETRY_SECONDS
        # its handlers say that they cannot decide; those of the other namespaces can
        state.has_reconciled = state.has_reconciled or not isinstance(err, UnavailableError)
        state.failures += 1
        pause = min(self._timings.max_retry_seconds, math.ldexp(RETRY_SECONDS, state.failures - 1))
        return pause if state.failures == 1 else pause * random.uniform(0.7, 1.0)  # noqa: S311

    def _end(self, namespace: str, state: NamespaceState | None, retry: float | None) -> None:
        """Give a namespace back to the workqueue."""
        now = self._timings.clock()
        with self._usage_cache.lock:
            present = self._usage_cache.namespaces.get(namespace)
            if state is not None:
                if retry is None and state.reconciling_since is not None:
                    self._recorder.lagged(now - state.reconciling_since)
                pause = self._timings.write_interval_seconds if retry is None else retry
                state.finish_reconcile(now + pause, is_done=retry is None)
                if state.is_removable and present is state:
                    del self._usage_cache.namespaces[namespace]
                    present = None
            if present is None:
                self._workqueue.forget(namespace)
                self._workqueue.done(namespace)
            elif state is None:  # a standby; it is planned again when a leadership begins
                self._workqueue.done(namespace)
            else:
                again = present.next_reconcile_at(self._resync_seconds)
                self._workqueue.done(namespace, requeue_at=again, not_before=present.not_before)
        if present is None or state is None:  # gone, or somebody else leads
            self._pod_queues.forget(namespace)
