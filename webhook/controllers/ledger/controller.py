"""Reconcile the QuotaLedger of every managed namespace with its pods.

The controller counts pods from its cache (`ledger.usage_cache`) and, whenever the count of a
namespace changes, writes what follows from it (`ledger.reconciler`, `quota.settlement`). It also
takes care of what no event announces: reservations that expire, and pods that are stuck
terminating. In the same write it reserves for pods that wait behind our scheduling gate and fit
(`queue.controller`); the gates are then removed by threads of their own (`queue.gate_remover`).

Every process counts, and the one that leads writes. Some threads reconcile different namespaces at
the same time, never one namespace in two of them (`ledger.reconcile_worker`); the informers'
threads only count and put what they changed on the workqueue.

When a leadership begins, everything is looked at anew. Ledgers that are missing in namespaces that
were opted in by then count as lost, and reservations are watched from then on: what an earlier
leader saw is not known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Set
from typing import Final

from webhook.controllers.ledger.drift import DriftDetector
from webhook.controllers.ledger.namespace_state import ControllerTimings
from webhook.controllers.ledger.reconcile_worker import ReconcileWorker
from webhook.controllers.ledger.reconciler import RETRY_SECONDS, LedgerReconciler
from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.queue.controller import PodQueues, ReleaseOptions
from webhook.controllers.queue.gate_remover import GateRemover
from webhook.controllers.runtime.events import EventRecorder
from webhook.controllers.runtime.leadership import Leadership, NotLeadingError, always_leader
from webhook.controllers.runtime.periodic import PeriodicThread
from webhook.controllers.runtime.workqueue import DelayingQueue
from webhook.controllers.shared.controller import SharedQuotaController
from webhook.controllers.shared.participation import Participation
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.kube.api import ApiError, ClusterApi
from webhook.kube.informer import Change, Informer
from webhook.kube.kinds import split_key
from webhook.quota.objects.model import Pod
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledgers import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.telemetry.metrics import Metrics

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
"""Between two looks at the leadership."""
_SYNC_POLL_SECONDS: Final = 0.05
"""Between two looks whether the caches have been filled."""
_IDLE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 10.0


class LedgerController:
    """Count all managed namespaces, and reconcile their ledgers while this process leads.

    Args:
        api: The API server.
        ledgers: Where ledgers are read and written; handlers in the same process share it.
        managed: Which namespaces are to be counted, and by which quotas.
        timings: When to act.
        leader_epoch: Returns whether this process may write: 0 for no, else a number that is
            another one in every leadership (`Election.epoch`).
        events: Where people are told what happened to ledgers.
        metrics: Where it is counted.
        ledger_informer: What follows the ledgers, if something does; not started yet. Changes that
            others make are then noticed at once.
        shared: Where quotas that namespaces share are read and written.
        options: How pods are released that wait behind our gate.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        api: ClusterApi,
        ledgers: LedgerStore,
        managed: ManagedNamespaces,
        *,
        timings: ControllerTimings | None = None,
        leader_epoch: Callable[[], int] = always_leader,
        events: EventRecorder | None = None,
        metrics: Metrics | None = None,
        ledger_informer: Informer[LazyLedger] | None = None,
        shared: SharedQuotaStore | None = None,
        options: ReleaseOptions | None = None,
    ) -> None:
        options = options or ReleaseOptions()
        self._timings = timings or ControllerTimings()
        self._leader_epoch = leader_epoch
        self._leadership = Leadership(leader_epoch, self._on_elected, self._on_epoch_change)
        self._metrics = metrics
        self._workqueue: DelayingQueue[str] = DelayingQueue(self._timings.clock)
        self._usage_cache = UsageCache(
            api,
            managed,
            self._timings,
            self._workqueue.add_at,
            policy=options.policy,
            gate_release_seconds=options.gate_release_seconds,
            may_admit_ungated=options.may_admit_ungated,
        )
        self.pods: Final[Informer[Pod]] = self._usage_cache.pods
        self._recorder = LedgerRecorder(events, metrics)
        self._drift = DriftDetector(
            api,
            self._usage_cache,
            self._timings,
            is_leader=self.is_leader,
            on_drift=self._recorder.drifted,
            on_result=self._recorder.drift_checked,
        )
        self._gate_remover = GateRemover(
            api,
            workers=options.workers,
            clock=self._timings.clock,
            requeue_after=self._usage_cache.requeue_after,
            metrics=metrics,
        )
        self._pod_queues = PodQueues(
            options, self._gate_remover, clock=self._timings.clock, metrics=metrics
        )
        self._participation = Participation(api, managed)
        self._shared = SharedQuotaContext(
            shared or SharedQuotaStore(api),
            self._usage_cache,
            self._timings,
            is_current=self._is_current,
            participation=self._participation,
        )
        self._shared_controller = SharedQuotaController(
            self._shared, ledgers, managed.quotas, managed.namespaces, self._recorder
        )
        reconciler = LedgerReconciler(
            ledgers,
            self._usage_cache,
            self._pod_queues,
            self._shared,
            self._timings,
            is_current=self._is_current,
            verify=self._drift.verify,
            is_following=lambda: (
                self._ledger_informer is not None and self._ledger_informer.is_following
            ),
            recorder=self._recorder,
        )
        is_followed = ledger_informer is not None
        self._worker = ReconcileWorker(
            self._workqueue,
            self._usage_cache,
            ledgers,
            self._pod_queues,
            reconciler,
            self._timings,
            resync_seconds=(
                self._timings.followed_resync_seconds
                if is_followed
                else self._timings.resync_seconds
            ),
            current_epoch=self._leadership.current_epoch,
            schedule_drift_check=self._drift.schedule,
            recorder=self._recorder,
        )
        self._ledgers = ledgers
        self._namespaces = managed.namespaces.informer
        self._ledger_informer = ledger_informer
        if ledger_informer is not None:
            ledger_informer.add_handler(self._on_ledger)
        self._was_ready = False
        self._poller = PeriodicThread(
            "ledger-controller", self._poll_safely, retry_seconds=RETRY_SECONDS
        )
        recounts = PeriodicThread(
            "ledger-drift", self._drift.check_next, retry_seconds=RETRY_SECONDS
        )
        workers = [
            PeriodicThread(
                f"ledger-controller-{number}", self._reconcile_next, retry_seconds=_POLL_SECONDS
            )
            for number in range(self._timings.workers)
        ]
        self._threads = [self._poller, recounts, *workers]

    def start(self) -> None:
        """Start to count; the caches of quotas and namespaces are started by their owner."""
        self.pods.start()
        self._gate_remover.start()
        for one in self._threads:
            one.start()

    def stop(self) -> None:
        """Stop writing, then stop following."""
        for one in self._threads:
            one.request_stop()
        self._workqueue.shut_down()
        self._drift.shut_down()
        give_up = time.monotonic() + _STOP_SECONDS
        for one in self._threads:
            one.stop(max(0.0, give_up - time.monotonic()))
        self._gate_remover.stop()
        self.pods.stop()

    def recount(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self._usage_cache.recount()

    def requeue_waiting(self) -> None:
        """Look at every queue of waiting pods again: other rules move them now."""
        self._usage_cache.requeue_waiting()

    def is_leader(self) -> bool:
        """Return whether this process writes ledgers now."""
        return self._leadership.is_leader() and not self._poller.is_stopping

    def readiness_problems(self) -> list[str]:
        """Return which namespaces have not been reconciled yet; nothing when all have.

        A standby has nothing to reconcile. A namespace that comes later holds up its own requests,
        not this process, and so does a leadership that begins later.
        """
        if not self._usage_cache.are_synced:
            return ["the controller has not seen all pods yet"]
        if self._was_ready:
            return []
        waiting: list[str] = []
        if self._leader_epoch():
            with self._usage_cache.lock:
                state = self._usage_cache.namespaces.items()
                waiting = sorted(name for name, one in state if not one.has_reconciled)
        self._was_ready = not waiting
        return [f"the ledger of namespace {name} has not been counted yet" for name in waiting]

    def pending_shared_quotas(self) -> list[str]:
        """Return which shared quotas are still being counted; nothing when none is.

        Binds that concern them are answered 429 until then. That keeps no process from doing its
        work, and one that lasts is said on the quota itself. What waiting does not cure is left
        out, see `SharedQuotaController.pending_quotas`.
        """
        return [
            f"usage is being counted for quota: {name}"
            for name in self._shared_controller.pending_quotas()
        ]

    # -- leadership ----------------------------------------------------------------------------

    def _is_current(self, epoch: int) -> bool:
        return self._leadership.is_current(epoch) and not self._poller.is_stopping

    def _on_epoch_change(self, epoch: int) -> None:
        if epoch:
            _log.info("settling begins", extra={"term": epoch})
        if self._metrics is not None:
            self._metrics.controller.leader.set(int(epoch != 0))

    def _on_elected(self) -> None:
        """Look at everything anew.

        Raises:
            ApiError: The caches are behind, or the API server does not answer.
        """
        opted_in = self._participation.check_caches()
        there: Set[str] = frozenset()
        if self._timings.waits_at_start:
            # Not from the cache: it may be from before somebody opted in, got a ledger and lost it,
            # all under an earlier leader. That leader is over, so a list that was made since has
            # all who did, and one that the caches were checked with is as good as another.
            there = self._participation.managed_namespaces() if opted_in is None else opted_in
        self._shared.completeness.reset()
        self._shared_controller.reset()
        with self._usage_cache.lock:
            self._usage_cache.had_ledger.update(there)
            for namespace in {
                *self._abandoned_ledgers(),
                *self._usage_cache.orphaned_gate_namespaces(),
            }:
                self._usage_cache.stop_tracking(namespace, self._usage_cache.track(namespace))
            for namespace, state in self._usage_cache.namespaces.items():
                state.reset()
                self._usage_cache.mark_dirty(namespace, state)

    def _abandoned_ledgers(self) -> list[str]:
        """Return namespaces that were left while nobody led, and have a ledger that counts still.

        Should they opt in again, nobody may decide by what was counted then.
        """
        if self._ledger_informer is None:
            return []
        return [
            namespace
            for namespace in map(_namespace_of, self._ledger_informer.items())
            if self._namespaces.get(namespace) is not None
            and not self._usage_cache.managed.is_managed(namespace)
            and namespace not in self._usage_cache.namespaces
            and (known := self._ledgers.known(namespace)) is not None
            and known.ledger is not None
            and known.ledger.accounts
        ]

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_ledger(self, change: Change[LazyLedger]) -> None:
        """Look at a ledger that somebody else has written or deleted."""
        namespace = _namespace_of(change.key)
        with self._usage_cache.lock:
            state = self._usage_cache.namespaces.get(namespace)
            if state is None:
                return
            written = state.last_write
            is_own = (
                change.type != "DELETED"
                and written is not None
                and written.resource_version >= change.resource_version
            )
            if not is_own:
                moment = self._timings.clock() + self._timings.external_change_seconds
                self._workqueue.add_at(namespace, max(state.not_before, moment))

    # -- reconciling, on the worker threads ----------------------------------------------------

    def _poll_safely(self) -> float:
        """Notice leaderships, and pods that have been terminating for too long."""
        try:
            self._poll()
        except NotLeadingError:
            pass
        except ApiError as err:
            _log.warning("taking over failed", extra={"error": str(err)})
            return RETRY_SECONDS
        return _POLL_SECONDS

    def _poll(self) -> None:
        if self._is_synced():
            epoch = self._leadership.current_epoch()
            if epoch:
                self._shared_controller.reconcile(epoch)
        self._usage_cache.uncharge_stuck_pods(self._timings.clock())

    def _is_synced(self) -> bool:
        are_ledgers_seen = self._ledger_informer is None or self._ledger_informer.has_synced
        return are_ledgers_seen and self._usage_cache.are_synced

    def _reconcile_next(self) -> float:
        """Reconcile the namespace whose turn it is; the workqueue is what rests."""
        if not self._is_synced():
            return _SYNC_POLL_SECONDS
        namespace = self._workqueue.get(_IDLE_SECONDS)
        if namespace is not None:
            try:
                self._worker.sync(namespace)
            except Exception:  # noqa: BLE001 - logged with its name, and it is tried again
                _log.exception("settling failed", extra={"namespace": namespace})
        return 0.0


def _namespace_of(key: str) -> str:
    return split_key(key)[0]
