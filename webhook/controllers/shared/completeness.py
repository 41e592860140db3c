"""Mark shared quotas complete once all participants are counted, and incomplete again.

Complete means one spec of the quota, counted by all ledgers, and without one where none can be made
(`ledgerless`); handlers admit by it. So the mark is removed before a ledger begins to count another
spec, or one that it had stopped to count: handlers may not rely on what is granted from then on.

A namespace is counted as long as the very ledger is there that counts it. While there is none pods
may be bound unasked, in an emergency, and these are in no grant. So before the mark is made, the
ledgers are listed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.controllers.ledger.ledger_conditions import merge_conditions
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.runtime.rate_limit import rest_seconds
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.metadata import time_text
from webhook.quota.ledger.ledger import Condition, QuotaRevision
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.grants import (
    Grants,
    is_derived_edited,
    mark_complete,
    mark_incomplete,
)
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

SHARED_RETRY_SECONDS: Final = 0.2
"""Until a namespace is looked at again that could not be reconciled, or has to be counted."""
_LIST_SECONDS: Final = 1.0
"""Least pause between two lists of ledgers for one quota."""
_COUNTED: Final = "Counted"
_ALL_COUNTED: Final = Condition(_COUNTED, "True", "AllCounted")


@dataclass(frozen=True, slots=True)
class Count:
    """Count of a namespace."""

    state: NamespaceState
    """What was counted; a namespace that is made anew, or opts in again, has another."""
    ledger_uid: str
    """Of the ledger that says so; empty where none can be made."""
    guard_uid: str
    """Of the registration under which it was counted, see `Ledger.guard_uid`."""


@dataclass(slots=True)
class _Progress:
    """Counting of a quota that is not complete."""

    observed: QuotaRevision | None = None
    """What the quota is now, as the namespaces below have counted it."""
    counts: Mapping[str, Count] = field(default_factory=dict)
    """Namespace → its count, where that is granted."""
    list_after: float = -math.inf
    """When ledgers may be listed again for it."""
    awaited: str = ""
    """A namespace that was missing when all were looked at."""


class Completeness:
    """Participants that have been counted in one leadership; the caller holds the quota's lock.

    Args:
        usage_cache: The participants.
        ledgers: Their ledgers.
        write: Writes a quota, see `SharedQuotaContext.write`.
    """

    def __init__(
        self,
        usage_cache: UsageCache,
        ledgers: LedgerStore,
        write: Callable[[SharedQuotaVersion, Grants, int], SharedQuotaVersion],
        timings: ControllerTimings,
    ) -> None:
        self._usage_cache = usage_cache
        self._ledgers = ledgers
        self._write = write
        self._timings = timings
        self._progress: dict[str, _Progress] = {}

    def reset(self) -> None:
        """Forget what an earlier leadership has seen."""
        self._progress.clear()

    def noted_quotas(self) -> tuple[str, ...]:
        """Return the quotas of which something is noted, by their names in ledgers."""
        return tuple(self._progress)

    def forget(self, name: str) -> None:
        """Forget a quota that is gone."""
        self._progress.pop(name, None)

    def record_counted(
        self,
        namespace: str,
        count: Count,
        observed: QuotaRevision,
        version: SharedQuotaVersion,
        epoch: int,
    ) -> SharedQuotaVersion:
        """Note that a namespace is counted and granted; mark the quota complete once all are.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Another client wrote first.
            ApiError: The API server does not do it.
        """
        if version.grants.observed == observed:
            self.forget(observed.name)
            return version
        progress = self._of(observed.name)
        progress.counts = {**self._noted(observed, version.grants), namespace: count}
        progress.observed = observed
        return self.mark_complete(observed, version, epoch)

    def uncount(self, namespace: str, name: str) -> None:
        """Forget that a namespace is counted: its ledger begins anew to count a quota, or stops."""
        if name in self._progress:
            progress = self._progress[name]
            progress.counts = _without(progress.counts, {namespace})

    def awaits_other(self, name: str, namespaces: Set[str]) -> bool:
        """Return whether a quota waits for a namespace that is none of these."""
        progress = self._progress.get(name)
        awaited = "" if progress is None else progress.awaited
        return awaited != "" and awaited not in namespaces

    def mark_complete(
        self, observed: QuotaRevision, version: SharedQuotaVersion, epoch: int
    ) -> SharedQuotaVersion:
        """Mark a quota complete, or not, if that is not recorded yet.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Another client wrote first.
            ApiError: The API server does not do it.
        """
        shared = version.shared
        if shared is None or shared.grants.observed == observed:
            return version
        grants = shared.grants
        is_said = any(one.type == _COUNTED and one.status == "False" for one in grants.conditions)
        progress = self._of(observed.name)
        # each of very many namespaces comes here: not all are looked at for each of them
        if is_said and self._is_missing(progress.awaited, observed, grants):
            return version
        noted = self._noted(observed, grants)
        missing = self._missing(observed, grants, noted)
        if noted and not missing:
            wait = progress.list_after - self._timings.clock()
            if wait > 0:
                # one of them tries it for all, where possible one that comes as far as this
                fails = self._usage_cache.any_failing
                chosen = min(noted, key=lambda one: (fails({one}), one))
                self._usage_cache.requeue_after(chosen, wait)
                return version
            missing = self._lost(progress, version, noted)
        if missing:
            progress.awaited = missing[-1]  # most often the one that is counted last
            if is_said:
                return version
            marked = replace(grants, serial=grants.serial + 1)
        else:
            _log.info("shared quota counted", extra={"quota": observed.name})
            marked = mark_complete(grants, observed)
        return self._write(version, self._with_condition(marked, missing), epoch)

    def repaired(self, grants: Grants, quota: ClusterQuota, observed: QuotaRevision) -> Grants:
        """Return the grants with conditions and texts as they have to be; the same if they are.

        A client with a stolen token may have changed them, and the next write can be days away.
        """
        conditions = tuple(one for one in grants.conditions if one.type == _COUNTED)
        if grants.observed == observed:
            conditions = merge_conditions(
                conditions, [_ALL_COUNTED], time_text(self._timings.now())
            )
        if conditions == grants.conditions and not is_derived_edited(grants, quota.quota.hard):
            return grants
        return replace(grants, conditions=conditions, serial=grants.serial + 1)

    def mark_incomplete(self, version: SharedQuotaVersion, epoch: int) -> SharedQuotaVersion:
        """Note that not all namespaces of a quota are counted; they are looked at again.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Another client wrote first.
            ApiError: The API server does not do it.
        """
        self._of(version.name).counts = {}
        written = self._write(version, mark_incomplete(version.grants), epoch)
        for namespace in self._usage_cache.sharing_namespaces(version.name):
            self._usage_cache.requeue_after(namespace, SHARED_RETRY_SECONDS)
        return written

    def _of(self, name: str) -> _Progress:
        return self._progress.setdefault(name, _Progress())

    def _noted(self, observed: QuotaRevision, grants: Grants) -> Mapping[str, Count]:
        """Return which of the namespaces that a quota names are noted as counted."""
        progress = self._of(observed.name)
        if progress.observed != observed:
            return {}
        return {name: one for name, one in progress.counts.items() if name in grants.namespaces}

    def _missing(
        self, observed: QuotaRevision, grants: Grants, noted: Mapping[str, Count]
    ) -> list[str]:
        """Return the namespaces that are not counted, as far as is known; the last ones last."""
        done = {name for name, count in noted.items() if self._stands(name, count)}
        sharing = self._usage_cache.sharing_namespaces(observed.name, except_for=done)
        return [*(grants.namespaces.keys() - done), *sharing]

    def _is_missing(self, namespace: str, observed: QuotaRevision, grants: Grants) -> bool:
        """Return whether `_missing` would return a namespace among others."""
        progress = self._of(observed.name)
        count = progress.counts.get(namespace) if progress.observed == observed else None
        is_named = namespace in grants.namespaces
        if is_named and count is not None:
            return not self._stands(namespace, count)
        return is_named or self._usage_cache.shares(namespace, observed.name)

    def _stands(self, namespace: str, count: Count) -> bool:
        """Return whether a count is of what the namespace is now, and not from before the guard."""
        guard = self._usage_cache.managed.guard()
        is_after = guard is None or guard.has_marked(count.guard_uid)
        return is_after and self._usage_cache.namespaces.get(namespace) is count.state

    def _lost(
        self, progress: _Progress, version: SharedQuotaVersion, noted: Mapping[str, Count]
    ) -> list[str]:
        """Return which of the counted namespaces have lost their ledgers since; they count anew.

        Raises:
            ApiError: The ledgers cannot be listed.
        """
        began = self._timings.clock()
        try:
            uids = self._ledgers.uids(newest=version.resource_version)
        finally:
            ended = self._timings.clock()
            progress.list_after = ended + max(_LIST_SECONDS, rest_seconds(ended - began))
        lost = [name for name, count in noted.items() if uids.get(name, "") != count.ledger_uid]
        progress.counts = _without(progress.counts, lost)
        for namespace in lost:
            self._ledgers.forget(namespace)  # the watch that would have shown it may be silent
            self._usage_cache.requeue_after(namespace, SHARED_RETRY_SECONDS)
        return lost

    def _with_condition(self, grants: Grants, missing: list[str]) -> Grants:
        wanted = _ALL_COUNTED
        if missing:
            named = ", ".join(sorted({*missing})[:8])
            wanted = Condition(
                _COUNTED,
                "False",
                "NamespacesJoining",
                f"nothing is admitted until these namespaces are counted: {named}",
            )
        now = time_text(self._timings.now())
        return replace(grants, conditions=merge_conditions(grants.conditions, [wanted], now))


def _without(counts: Mapping[str, Count], namespaces: Collection[str]) -> Mapping[str, Count]:
    return {name: one for name, one in counts.items() if name not in namespaces}
