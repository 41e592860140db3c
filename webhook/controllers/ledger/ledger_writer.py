"""Write the ledger of a namespace by compare-and-swap, under a leadership, with its conditions.

It is written only under the leadership in which it was counted. What a former leader has sent
already conflicts with any later write; where there was none, it still says what is true.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.ledger_conditions import (
    NOT_FOUND,
    REBUILT,
    CountingProblems,
    counting_conditions,
    merge_conditions,
    opted_out_conditions,
)
from webhook.controllers.ledger.namespace_state import LastWrite, NamespaceState
from webhook.kube.api import ApiError, ConflictError, NotFoundError
from webhook.kube.metadata import time_text
from webhook.quota.ledger.ledger import Condition, Ledger
from webhook.state.ledger_store import LedgerVersion

_log = logging.getLogger(__name__)


class LedgerWriter:
    """Writes ledgers. Safe to use from several threads for different namespaces."""

    def __init__(self, context: LedgerContext) -> None:
        self._ledgers = context.ledgers
        self._usage_cache = context.usage_cache
        self._leadership = context.leadership
        self._timings = context.timings
        self._recorder = context.recorder

    def create(self, namespace: str, epoch: int) -> LedgerVersion | None:
        """Create an empty ledger, or read the one that another process created.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
            InvalidFieldError: The other one cannot be read.
        """
        self._leadership.require(epoch)
        return self._ledgers.create(namespace)

    def write(
        self,
        namespace: str,
        state: NamespaceState,
        version: LedgerVersion,
        new_ledger: Ledger,
        epoch: int,
    ) -> LedgerVersion | None:
        """Write by compare-and-swap; None when another client was first.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it, or that is unknown.
        """
        self._leadership.require(epoch)
        try:
            written = self._ledgers.write(namespace, version, new_ledger)
        except (ConflictError, NotFoundError):
            return None
        except ApiError:
            state.last_write = None  # what it says now is unknown
            if state.lost_since is not None:
                # it may be there, let requests in, and be lost once more before the next look
                state.lose_ledger(self._timings.clock())
            raise
        self._recorder.reconciled("written")
        return written

    def record(
        self,
        namespace: str,
        state: NamespaceState,
        version: LedgerVersion,
        new_ledger: Ledger,
        *,
        is_newest: bool,
    ) -> None:
        """Record what a ledger says now.

        Args:
            version: The ledger as it was written, or as it stays.
            new_ledger: What it says.
            is_newest: Whether no newer one may be on its way here.
        """
        state.expiry.observe(new_ledger, version.uid)
        with self._usage_cache.lock:
            if is_newest:
                state.usage.forget_deleted(new_ledger.reservations)
            self._usage_cache.note_ledger(namespace)
            state.lost_since = state.listing = None
            state.is_rejoining = False
            state.last_write = LastWrite(version.uid, version.resource_version, new_ledger.accounts)

    def with_conditions(
        self, namespace: str, state: NamespaceState, new_ledger: Ledger, *, is_new: bool
    ) -> Ledger:
        """Return a ledger that says what could not be counted, and whether another was lost."""
        wanted = self._conditions(namespace, state)
        if is_new and state.lost_since is not None:
            wanted += (NOT_FOUND if state.last_write is None else REBUILT,)
        return replace(
            new_ledger, conditions=merge_conditions(new_ledger.conditions, wanted, self._now())
        )

    def write_uncounted_conditions(
        self, namespace: str, state: NamespaceState, version: LedgerVersion | None, epoch: int
    ) -> None:
        """Write into the conditions of a ledger why it is not counted any further.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
        """
        wanted = self._conditions(namespace, state)
        _log.error(
            "usage cannot be counted", extra={"namespace": namespace, "why": wanted[0].message}
        )
        uid = "" if version is None else version.uid
        self._recorder.warn(namespace, uid, "PodsUnreadable", wanted[0].message)
        if version is None or version.ledger is None:
            return
        conditions = merge_conditions(version.ledger.conditions, wanted, self._now())
        if conditions != version.ledger.conditions:
            kept = replace(version.ledger, conditions=conditions)
            self.write(namespace, state, version, kept, epoch)

    def report_edited(self, namespace: str, uid: str, edited: list[str]) -> None:
        """Report quotas that had been edited in the ledger that was written over."""
        if not edited:
            return
        _log.error("the ledger was edited", extra={"namespace": namespace, "quotas": edited})
        self._recorder.repaired("edited")
        self._recorder.warn(
            namespace,
            uid,
            "LedgerRepaired",
            f"another client had changed what is counted for quota {', '.join(edited)}; "
            "it was counted again",
        )

    def _conditions(self, namespace: str, state: NamespaceState) -> tuple[Condition, ...]:
        with self._usage_cache.lock:
            pods, unmatchable = dict(state.unreadable_pods), state.usage.unmatchable
            uncountable = state.usage.uncountable
        if state.is_opted_out:
            return opted_out_conditions()
        quotas = self._usage_cache.managed.quotas_of(namespace).errors
        return counting_conditions(CountingProblems(pods, quotas, unmatchable, uncountable))

    def _now(self) -> str:
        return time_text(self._timings.now())
