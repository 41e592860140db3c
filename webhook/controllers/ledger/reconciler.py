"""Reconcile one ledger: bring it to what follows from the count of its namespace.

The ledger comes from `ledger_reader` and is written by `ledger_writer`. In between the grants of
shared quotas are raised, and the queue of gated pods is run.

The ledger of a namespace that opts out counts nothing any more, because what happens there from
then on is not seen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.drift import DriftDetector
from webhook.controllers.ledger.ledger_conditions import marked
from webhook.controllers.ledger.ledger_reader import LedgerReader
from webhook.controllers.ledger.ledger_writer import LedgerWriter
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.unguarded_binds import UnguardedBinds
from webhook.controllers.mask.webhook_registration import Guard
from webhook.controllers.queue.controller import PodQueues
from webhook.controllers.runtime.controller import DONE, RequeueAfter, Result
from webhook.controllers.shared.grant_transaction import GrantTransaction, begin
from webhook.controllers.shared.ledgerless import grant_counted, is_all_granted
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.errors import ForbiddenError, is_namespace_terminating
from webhook.quota.ledger.apply_usage import Expiry, only_folds
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.ledger.ledger_codec import is_derived_edited
from webhook.quota.queue.queued_pods import CycleResult
from webhook.state.ledger_store import LedgerVersion

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
_UNCONFIRMED_SECONDS: Final = 0.5
_LOST_LEDGER_POLL_SECONDS: Final = 5.0
_MAX_CONFLICTS: Final = 8
"""How often a race with the handlers is run before others get their turn."""
_MAX_DEFERRALS: Final = 4
"""How often in a row it is put off where nothing waits for its end: the ledger grows meanwhile."""


class _WriteConflictError(Exception):
    """Another client wrote the ledger between the read and the write.

    Attributes:
        resource_version: Which version was read.
        can_wait: Whether nothing waits for what was to be written.
    """

    def __init__(self, resource_version: int, *, can_wait: bool = False) -> None:
        super().__init__(f"version {resource_version} is not the newest")
        self.resource_version = resource_version
        self.can_wait = can_wait


@dataclass(frozen=True, slots=True)
class _FoundLedger:
    """A ledger as it was found, and what was asked before shared quotas are locked."""

    version: LedgerVersion
    required_version: int
    """How far pods have to have been counted, because handlers wait for that."""
    is_fetched: bool
    """Whether this reconciliation has read it, so that no newer one is on its way here."""
    expired: Mapping[str, Expiry]
    """Proofs that no request uses reservations; some of them are kept."""
    guard: Guard | None
    """The registration that pods have been counted up to; None where none is named."""


class LedgerReconciler:
    """Reconcile ledgers. Safe to use from several threads for different namespaces.

    Args:
        pod_queues: Queues of gated pods; what they decide goes into the same write.
        shared: Grants of quotas that namespaces share.
        drift: Comparison of a count with a fresh list of the pods.
    """

    def __init__(
        self,
        context: LedgerContext,
        pod_queues: PodQueues,
        shared: SharedQuotaContext,
        drift: DriftDetector,
    ) -> None:
        self._usage_cache = context.usage_cache
        self._pod_queues = pod_queues
        self._shared = shared
        self._timings = context.timings
        self._leadership = context.leadership
        self._drift = drift
        self._recorder = context.recorder
        self._guard = context.guard
        self._reader = LedgerReader(context)
        self._writer = LedgerWriter(context)
        self._unguarded = UnguardedBinds(context, shared.participation)

    def reconcile(self, namespace: str, state: NamespaceState, epoch: int) -> Result:
        """Write what follows from the count; `RequeueAfter` where that has to be tried again.

        Handlers that write all the time win most races: after a conflict the ledger is read again
        at once. A write that only folds reservations is put off instead, since each race that is
        lost costs the API server as much as a bind; but only `_MAX_DEFERRALS` times in a row.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
            InvalidFieldError: The pods of the namespace cannot be counted.
        """
        if (
            state.is_opted_out
            and len(state.usage.gated_pods)
            and self._has_opted_back_in(namespace)
        ):
            return RequeueAfter(RETRY_SECONDS)
        if state.is_opted_out and self._has_nothing_recorded(namespace):
            self._release_all(namespace, state, epoch)
            return DONE
        lost = 0
        for _ in range(_MAX_CONFLICTS):
            try:
                return self._reconcile_once(namespace, state, epoch, newer_than=lost)
            except _WriteConflictError as race:
                self._recorder.reconciled("conflict")
                lost = race.resource_version
                if race.can_wait and state.deferrals < _MAX_DEFERRALS:
                    state.deferrals += 1
                    return RequeueAfter(self._timings.fold_seconds)
        state.deferrals = 0
        return self._next_turn

    @property
    def _next_turn(self) -> RequeueAfter:
        return RequeueAfter(self._timings.write_interval_seconds)

    def _reconcile_once(
        self, namespace: str, state: NamespaceState, epoch: int, *, newer_than: int
    ) -> Result:
        """Reconcile once; return as `reconcile`.

        Raises:
            _WriteConflictError: Another client wrote first.
        """
        version = self._reader.cached(namespace, state, newer_than)
        is_fetched = version is None
        if version is None:
            version = self._reader.fetch(namespace, state)
        unreadable = next(iter(state.unreadable_pods.values()), None)
        if unreadable is not None and not state.is_opted_out:
            # what such a pod takes is not known, and usage is never counted too low
            self._writer.write_uncounted_conditions(namespace, state, version, epoch)
            raise InvalidFieldError("", unreadable)
        if version is None or version.ledger is None:
            wait = self._reader.lost_ledger_delay(namespace, state, version)
            if not state.usage.quotas.quotas and version is None:
                self._release_all(namespace, state, epoch)
                return DONE
            if wait:  # it may come back by itself
                return RequeueAfter(min(wait, _LOST_LEDGER_POLL_SECONDS))
            version = version or self._create(namespace, state, epoch)
            if version is None or version.ledger is not None:
                return self._next_turn
        guard = None if state.is_opted_out else self._guard()
        required_version = self._required_version(namespace, state, version, guard)
        if not self._is_confirmed(namespace, state, version, required_version):
            _log.info("pods have not all been seen yet", extra={"namespace": namespace})
            return RequeueAfter(_UNCONFIRMED_SECONDS)
        # expiry is asked for here, since other namespaces wait for shared quotas that are locked
        expired = self._expired(namespace, state, version)
        found = _FoundLedger(version, required_version, is_fetched, expired, guard)
        with begin(self._shared, namespace, state, version.ledger, epoch) as transaction:
            if transaction is None:
                return self._next_turn
            return self._write(transaction, state, found, epoch)

    def _required_version(
        self, namespace: str, state: NamespaceState, version: LedgerVersion, guard: Guard | None
    ) -> int:
        """Return up to which version pods have to be counted, by opt-in and registration."""
        if state.is_opted_out:
            return 0
        required = self._usage_cache.managed.required_version(namespace)
        if guard is None or guard.has_marked(_mark_of(version)):
            return required
        return max(required, guard.since)

    def _create(self, namespace: str, state: NamespaceState, epoch: int) -> LedgerVersion | None:
        """Create a ledger; None where pods have to be seen first, or it went meanwhile.

        Where none can be made, because the namespace is being deleted, it has what is counted
        granted before that is raised: other namespaces wait for its count, perhaps for good.
        """
        try:
            return self._writer.create(namespace, epoch)
        except ForbiddenError as err:
            if is_namespace_terminating(err) and not self._is_granted(namespace, state, epoch):
                return None
            raise

    def _is_granted(self, namespace: str, state: NamespaceState, epoch: int) -> bool:
        """Grant what is counted in a namespace without a ledger; return False to try it again.

        What was reserved in its former ledger is over, as for one that is made anew.
        """
        guard = self._guard()
        update = self._usage_cache.next_ledger(namespace, state, None, {})
        if update is not None and is_all_granted(self._shared, namespace, update.ledger):
            return True
        since = 0 if guard is None else guard.since
        if not self._drift.verify(namespace, state, None, required_version=since):
            return False
        update = self._usage_cache.next_ledger(namespace, state, None, {})
        if update is not None:
            count = marked(update.ledger, "" if guard is None else guard.mark(""))
            grant_counted(self._shared, namespace, state, count, epoch)
            state.listing = None  # what is granted next is compared with a list of its own
        return update is not None

    def _expired(
        self, namespace: str, state: NamespaceState, version: LedgerVersion
    ) -> Mapping[str, Expiry]:
        """Return proofs that no request uses reservations of a ledger; some of them are kept."""
        if version.ledger is None:
            state.expiry.reset()
            return {}
        state.expiry.observe(version.ledger, version.uid)
        return state.expiry.expired(namespace, version.ledger, state.usage.observed)

    def _is_confirmed(
        self, namespace: str, state: NamespaceState, version: LedgerVersion, required_version: int
    ) -> bool:
        """Return whether the count is as complete as it has to be, by a list where need be."""
        is_behind = self._usage_cache.complete_version(state) < required_version
        is_first = self._is_first(state, version)
        if not (is_behind or is_first):
            state.listing = None
            return True
        return self._drift.verify(
            namespace,
            state,
            version,
            required_version=required_version if is_behind else 0,
            is_first=is_first,
        )

    def _is_first(self, state: NamespaceState, version: LedgerVersion) -> bool:
        """Return whether no version in the ledger says how far pods have to have been seen."""
        is_empty = version.ledger is None or not version.ledger.accounts or state.is_rejoining
        return is_empty and bool(state.usage.quotas.quotas)

    def _write(
        self,
        transaction: GrantTransaction,
        state: NamespaceState,
        found: _FoundLedger,
        epoch: int,
    ) -> Result:
        """Write what follows from the count and this version; return as `reconcile`.

        A ledger that says the same is written again where handlers wait for a newer count.
        """
        namespace, version = transaction.namespace, found.version
        edited: list[str] = []
        if version.ledger is not None and state.last_write is not None:
            edited = state.last_write.edited(version.uid, version.ledger)
        former = _mark_of(version)
        is_before = found.guard is not None and found.guard.is_new_to(former)
        update = self._usage_cache.next_ledger(
            namespace, state, version.ledger, found.expired, is_from_before=is_before
        )
        if update is None:
            _log.info("the count cannot be written yet", extra={"namespace": namespace})
            self._recorder.reconciled("stale")
            # it may wait for reservations that the API server was not asked about yet
            has_more = (state.expiry.next_due() or math.inf) <= self._timings.clock()
            return self._next_turn if has_more else RequeueAfter(RETRY_SECONDS)
        mark = "" if found.guard is None else found.guard.mark(former)
        update = replace(update, ledger=marked(update.ledger, mark))
        # Count, queue and grants go into one write: what a pod frees is reserved for the next one
        # in the same version, so that no handler can take it in between.
        prepared = transaction.prepare(update)
        if prepared is None:
            raise _WriteConflictError(version.resource_version)
        cycle = self._pod_queues.run_cycle(namespace, state, prepared.ledger, prepared.queue)
        transaction.recall_headroom(cycle.pending)
        # Grants rise before the ledger that relies on them is written, and fall after the ledger
        # that needs less: a crash in between leaves too much granted, never too little.
        granted = transaction.raise_grants(
            cycle.ledger or prepared.ledger, has_released=bool(cycle.released)
        )
        if granted is None:
            raise _WriteConflictError(version.resource_version)
        ledger = self._writer.with_conditions(
            namespace, state, granted, is_new=version.ledger is None
        )
        written: LedgerVersion | None = None
        if version.ledger is None or not _is_up_to_date(
            version.ledger, ledger, found.required_version
        ):
            written = self._unguarded.write_and_report(
                namespace,
                state,
                version,
                ledger,
                partial(self._writer.write, namespace, state, version, ledger, epoch),
                is_edited=bool(edited),
            )
            if written is None:
                is_awaited = bool(cycle.releasable) or (
                    version.ledger is not None
                    and version.ledger.pods_resource_version < found.required_version
                )
                can_wait = not is_awaited and only_folds(version.ledger, ledger)
                raise _WriteConflictError(version.resource_version, can_wait=can_wait)
            self._writer.report_edited(namespace, version.uid, edited)
            # an expired reservation may stay, where a newer claim of the pod raised its serial
            lost = found.expired.keys() - ledger.reservations.keys()
            self._pod_queues.report_lost_reservations(namespace, state, lost)
            version = written
        else:
            self._recorder.reconciled("unchanged")
        # of a ledger that was neither read nor written over, a newer one may be on its way here,
        # with a reservation of a pod that is gone
        is_newest = found.is_fetched or version is written
        self._writer.record(namespace, state, version, ledger, is_newest=is_newest)
        transaction.lower_grants()
        transaction.close(ledger, version.uid)
        self._commit_cycle(namespace, state, cycle, epoch)
        return DONE

    def _has_opted_back_in(self, namespace: str) -> bool:
        """Return whether a namespace that is left has opted in by now.

        Gates go for good, so what a cache shows does not suffice: its watch may be silent.
        """
        return self._shared.participation.is_opted_in(namespace)

    def _has_nothing_recorded(self, namespace: str) -> bool:
        """Return whether no ledger counts anything in a namespace, and no shared quota names it.

        What it holds of those is given back when it is reconciled.
        """
        return self._reader.has_no_ledger(namespace) and not self._shared.quotas_naming(namespace)

    def _release_all(self, namespace: str, state: NamespaceState, epoch: int) -> None:
        """Take all gates off in a namespace without quotas, and write no ledger into it.

        What else the object says, of shadow mode, stays as it is.
        """
        cycle = self._pod_queues.run_cycle(
            namespace, state, None, self._usage_cache.queue(namespace, state)
        )
        self._commit_cycle(namespace, state, cycle, epoch)
        with self._usage_cache.lock:
            state.usage.forget_deleted(())  # without a ledger none has a reservation

    def _commit_cycle(
        self, namespace: str, state: NamespaceState, cycle: CycleResult, epoch: int
    ) -> None:
        """Carry out the decisions of a cycle: the ledger that has them is written."""
        since = (
            self._timings.clock() if state.reconciling_since is None else state.reconciling_since
        )
        self._pod_queues.commit(
            namespace,
            state,
            cycle,
            since=since,
            is_leader=partial(self._leadership.is_current, epoch),
        )


def _mark_of(version: LedgerVersion) -> str:
    return "" if version.ledger is None else version.ledger.guard_uid


def _is_up_to_date(present: Ledger, new_ledger: Ledger, required_version: int) -> bool:
    version = present.pods_resource_version
    return (
        version >= required_version
        and replace(new_ledger, pods_resource_version=version) == present
        and not is_derived_edited(present)
    )
