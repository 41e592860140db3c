"""Reconcile the QuotaLedger of every managed namespace with its pods.

The controller counts pods from its cache (`usage_cache`) and, whenever the count of a namespace
changes, writes what follows from it (`reconciler`, `quota.ledger.apply_usage`). It also takes care
of what no event announces: reservations that expire, and pods that are stuck terminating. In the
same write it reserves for gated pods that fit (`queue.controller`); their gates are then removed by
threads of their own (`queue.gate_remover`).

Every process counts, and the one that leads writes. Several workers reconcile different namespaces
at the same time, never one namespace at once; the informers' threads only count, and add what they
changed to the work queue.

When a leadership begins, every namespace is reconciled anew. Ledgers that are missing in namespaces
that were opted in by then count as lost, and reservations are watched from then on: what the former
leader has seen is not known.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from typing import Final

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.drift import DriftDetector
from webhook.controllers.ledger.guard_adoption import GuardAdoption
from webhook.controllers.ledger.reconcile_worker import NamespaceReconciler
from webhook.controllers.ledger.reconciler import RETRY_SECONDS, LedgerReconciler
from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.mask.webhook_registration import read_registration
from webhook.controllers.queue.controller import PodQueues, ReleaseOptions
from webhook.controllers.queue.gate_remover import GateRemover
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import Controller
from webhook.controllers.runtime.leadership import Leadership, NotLeadingError
from webhook.controllers.runtime.periodic import PeriodicThread, stop_all
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.controllers.runtime.workqueue import WorkQueue
from webhook.controllers.shared.controller import SharedQuotaController
from webhook.controllers.shared.participation import Participation
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.kube.api import ApiError
from webhook.kube.informer import Change, Informer
from webhook.kube.kinds import split_key
from webhook.quota.objects.model import Pod
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
"""Between two looks at the leadership."""
_STOP_SECONDS: Final = 10.0
_WORKERS: Final = 4
"""How many namespaces are reconciled at the same time."""


class LedgerController:
    """Count all managed namespaces, and reconcile their ledgers while this process leads.

    Args:
        ledgers: Store of the ledgers; handlers in the same process share it.
        managed: The namespaces to count, and their quotas.
        shared: Store of the quotas that namespaces share.
        ledger_informer: Informer of the ledgers, not started yet; with it changes by others are
            noticed at once.
        options: How gated pods are released.
    """

    def __init__(
        self,
        context: ControllerContext,
        ledgers: LedgerStore,
        managed: ManagedNamespaces,
        *,
        shared: SharedQuotaStore,
        ledger_informer: Informer[LazyLedger] | None = None,
        options: ReleaseOptions | None = None,
    ) -> None:
        api, timings, metrics = context.api, context.timings, context.metrics
        options = options or ReleaseOptions()
        self._timings = timings
        self._leader_epoch = context.leader_epoch
        self._leadership = Leadership(context.leader_epoch, self._on_elected, self._on_epoch_change)
        self._metrics = metrics
        queue: WorkQueue[str] = WorkQueue(
            ExponentialBackoff(RETRY_SECONDS, self._timings.max_retry_seconds, jitter=0.3),
            rests_after_failure=True,
            clock=self._timings.clock,
        )
        self.usage_cache: Final = UsageCache(
            api,
            managed,
            self._timings,
            queue,
            options,
        )
        self.pods: Final[Informer[Pod]] = self.usage_cache.pods
        recorder = LedgerRecorder(context.events, metrics)
        drift = DriftDetector(
            api, self.usage_cache, self._timings, leadership=self._leadership, recorder=recorder
        )
        self.gate_remover: Final = GateRemover(
            api,
            workers=options.workers,
            clock=self._timings.clock,
            requeue_after=self.usage_cache.requeue_after,
            metrics=metrics,
        )
        pod_queues = PodQueues(
            options,
            self.gate_remover,
            clock=self._timings.clock,
            now=self._timings.now,
            metrics=metrics,
        )
        self.participation: Final = Participation(api, managed)
        self._shared = SharedQuotaContext(
            shared,
            ledgers,
            self.usage_cache,
            self._timings,
            leadership=self._leadership,
            participation=self.participation,
        )
        self.shared_controller: Final = SharedQuotaController(
            self._shared, managed.quotas, managed.namespaces, recorder
        )
        self._guard_adoption = GuardAdoption(self.usage_cache, ledgers, self._shared)
        ledger_context = LedgerContext(
            ledgers=ledgers,
            usage_cache=self.usage_cache,
            leadership=self._leadership,
            timings=self._timings,
            recorder=recorder,
            registration=lambda: read_registration(api),
            guard=self._guard_adoption.current,
            ledger_informer=ledger_informer,
        )
        reconciler = LedgerReconciler(ledger_context, pod_queues, self._shared, drift)
        self._ledgers = ledgers
        self._namespaces = managed.namespaces.informer
        self._ledger_informer = ledger_informer
        if ledger_informer is not None:
            ledger_informer.add_handler(self._on_ledger)
        self._was_ready = False
        self._poller = PeriodicThread(
            "ledger-controller", self._poll_safely, retry_seconds=RETRY_SECONDS
        )
        self.workers: Final = Controller(
            "ledger-controller",
            queue,
            NamespaceReconciler(ledger_context, pod_queues, reconciler, drift).reconcile,
            workers=_WORKERS,
            poll=self._is_synced,
        )
        self.drift_checks: Final = Controller("ledger-drift", drift.queue, drift.reconcile)

    def start(self) -> None:
        """Start to count; the caches of quotas and namespaces are started by their owner."""
        self.pods.start()
        self.start_threads()

    def start_threads(self) -> None:
        """Start to reconcile; the cache of pods has been started."""
        self.gate_remover.start()
        self._poller.start()
        self.workers.start()
        self.drift_checks.start()

    def stop(self) -> None:
        """Stop writing, then stop following."""
        self._leadership.stop()
        stop_all([self._poller, self.workers, self.drift_checks], _STOP_SECONDS)
        self.gate_remover.stop()
        self.pods.stop()

    def step(self) -> None:
        """Reconcile the namespaces that are due now, each once, without the threads.

        Raises:
            ApiError: A leadership cannot begin yet.
        """
        self.poll()
        self.workers.drain()

    def recount(self) -> None:
        """Count everything again: other resources are deferred, or other namespaces exempt."""
        self.usage_cache.recount()

    def requeue_waiting(self) -> None:
        """Requeue every namespace with waiting pods: their queues have other rules now."""
        self.usage_cache.requeue_waiting()

    def is_leader(self) -> bool:
        """Return whether this process writes ledgers now."""
        return self._leadership.is_leader()

    def readiness_problems(self) -> list[str]:
        """Return which namespaces have not been reconciled yet; nothing when all have.

        A standby has nothing to reconcile. A namespace that comes later holds up its own requests,
        not this process, and so does a leadership that begins later.
        """
        if not self.usage_cache.are_synced:
            return ["the controller has not seen all pods yet"]
        if self._was_ready:
            return []
        waiting: list[str] = []
        if self._leader_epoch():
            with self.usage_cache.lock:
                state = self.usage_cache.namespaces.items()
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
            for name in self.shared_controller.pending_quotas()
        ]

    # -- leadership ----------------------------------------------------------------------------

    def _on_epoch_change(self, epoch: int) -> None:
        if epoch:
            _log.info("leadership begins", extra={"epoch": epoch})
        self._metrics.controller.leader.set(int(epoch != 0))
        self._metrics.controller.changes.labels("began" if epoch else "ended").inc()

    def _on_elected(self) -> None:
        """Reset all state and requeue every namespace.

        Raises:
            ApiError: The caches are behind, or the API server does not answer.
        """
        opted_in = self.participation.check_caches()
        there: Set[str] = frozenset()
        if self._timings.waits_at_start:
            # Not from the cache: a namespace may have opted in, got a ledger and lost it under the
            # former leader. That leader has ended, so a list that is made now shows all of these;
            # the list that the caches were compared with will do.
            there = self.participation.managed_namespaces() if opted_in is None else opted_in
        self._shared.reset()
        self.shared_controller.reset()
        self._guard_adoption.reset()
        with self.usage_cache.lock:
            self.usage_cache.had_ledger.update(there)
            for namespace in {
                *self._abandoned_ledgers(),
                *self.usage_cache.orphaned_gate_namespaces(),
            }:
                self.usage_cache.stop_tracking(namespace, self.usage_cache.track(namespace))
            for namespace, state in self.usage_cache.namespaces.items():
                state.reset()
                self.usage_cache.workqueue.forget(namespace)
                self.usage_cache.workqueue.rest(namespace, 0.0)
                self.usage_cache.mark_dirty(namespace, state)

    def _abandoned_ledgers(self) -> list[str]:
        """Return namespaces that were left without a leader, and have a ledger that counts still.

        Should they opt in again, no handler may decide by what was counted then.
        """
        if self._ledger_informer is None:
            return []
        return [
            namespace
            for namespace in map(_namespace_of, self._ledger_informer.items())
            if self._namespaces.get(namespace) is not None
            and not self.usage_cache.managed.is_managed(namespace)
            and namespace not in self.usage_cache.namespaces
            and (known := self._ledgers.known(namespace)) is not None
            and known.ledger is not None
            and known.ledger.accounts
        ]

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_ledger(self, change: Change[LazyLedger]) -> None:
        """Requeue a namespace whose ledger another client has written or deleted."""
        namespace = _namespace_of(change.key)
        if change.type == "DELETED":
            self.shared_controller.requeue()  # shared quotas may have left it to be reconciled
        with self.usage_cache.lock:
            state = self.usage_cache.namespaces.get(namespace)
            if state is None:
                return
            if change.type == "DELETED" and state.lost_since is not None:
                # The ledger that replaced a lost one is lost, too, as while an emergency is closed
                # step by step: binds that bypassed the webhook until now may not be stored yet.
                state.lose_ledger(self._timings.clock())
            written = state.last_write
            is_own = (
                change.type != "DELETED"
                and written is not None
                and written.resource_version >= change.resource_version
            )
            if not is_own:
                self.usage_cache.workqueue.add_after(
                    namespace, self._timings.external_change_seconds
                )

    # -- reconciling, on the worker threads ----------------------------------------------------

    def _poll_safely(self) -> float:
        """Poll, and return the seconds until the next poll; errors are logged."""
        try:
            self.poll()
        except NotLeadingError:
            pass
        except ApiError as err:
            _log.warning("taking over failed", extra={"error": str(err)})
            return RETRY_SECONDS
        return _POLL_SECONDS

    def poll(self) -> None:
        """Check leadership and registration, and uncharge pods that are terminating for too long.

        Raises:
            ApiError: A leadership cannot begin yet.
        """
        self.usage_cache.uncharge_stuck_pods(self._timings.clock())
        if self._is_synced():
            epoch = self._leadership.current_epoch()
            if epoch:
                self._guard_adoption.adopt(epoch)
                self.shared_controller.reconcile(epoch)

    def _is_synced(self) -> bool:
        are_ledgers_seen = self._ledger_informer is None or self._ledger_informer.has_synced
        return are_ledgers_seen and self.usage_cache.are_synced


def _namespace_of(key: str) -> str:
    return split_key(key)[0]
