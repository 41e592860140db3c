"""Mark shared quotas complete once all participants are counted, and incomplete again.

Complete means one spec of the quota, counted by all ledgers, and without one where none can be made
(`ledgerless`); handlers admit by it. So the mark is removed before a ledger begins to count another
spec, or one that it had stopped to count: handlers may not rely on what is granted from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from webhook.controllers.ledger.ledger_conditions import merge_conditions
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.kube.metadata import time_text
from webhook.quota.ledger.ledger import Condition, QuotaRevision
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.escrow import Shared
from webhook.quota.shared.grants import (
    Grants,
    is_derived_edited,
    mark_complete,
    mark_incomplete,
)
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

SHARED_RETRY_SECONDS: Final = 0.2
"""Until a namespace is looked at again that could not be reconciled, or has to be counted."""
_COUNTED: Final = "Counted"
_ALL_COUNTED: Final = Condition(_COUNTED, "True", "AllCounted")


class Completeness:
    """Participants that have been counted in one leadership; the caller holds the quota's lock.

    Args:
        usage_cache: The participants.
        write: Writes a quota, see `SharedQuotaContext.write`.
        now: The time of day, for people.
    """

    def __init__(
        self,
        usage_cache: UsageCache,
        write: Callable[[SharedQuotaVersion, Grants, int], SharedQuotaVersion],
        now: Callable[[], datetime],
    ) -> None:
        self._usage_cache = usage_cache
        self._write = write
        self._now = now
        self._counted: dict[str, tuple[QuotaRevision, Mapping[str, int]]] = {}
        """Quota → what it is now, and which namespaces have counted and been granted that; each
        with how often its ledger had been lost. One that was lost since is not counted any more:
        in an emergency pods may be bound meanwhile that are in no grant."""

    def reset(self) -> None:
        """Forget what an earlier leadership has seen."""
        self._counted.clear()

    def noted_quotas(self) -> tuple[str, ...]:
        """Return the quotas of which something is noted, by their names in ledgers."""
        return tuple(self._counted)

    def forget(self, name: str) -> None:
        """Forget a quota that is gone."""
        self._counted.pop(name, None)

    def record_counted(
        self, namespace: str, observed: QuotaRevision, version: SharedQuotaVersion, epoch: int
    ) -> SharedQuotaVersion:
        """Note that a namespace is counted and granted; mark the quota complete once all are."""
        counted = {**self._noted(observed), **self._usage_cache.losses([namespace])}
        self._counted[observed.name] = (observed, counted)
        return self.mark_complete(observed, version, epoch)

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
        missing, grants = self._missing(observed, shared), shared.grants
        if missing:
            if any(one.type == _COUNTED and one.status == "False" for one in grants.conditions):
                return version
            marked = replace(grants, sequence=grants.sequence + 1)
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
            conditions = merge_conditions(conditions, [_ALL_COUNTED], time_text(self._now()))
        if conditions == grants.conditions and not is_derived_edited(grants, quota.quota.hard):
            return grants
        return replace(grants, conditions=conditions, sequence=grants.sequence + 1)

    def mark_incomplete(self, version: SharedQuotaVersion, epoch: int) -> SharedQuotaVersion:
        """Note that not all namespaces of a quota are counted; they are looked at again.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Another client wrote first.
            ApiError: The API server does not do it.
        """
        self._counted.pop(version.name, None)
        written = self._write(version, mark_incomplete(version.grants), epoch)
        for namespace in self._usage_cache.sharing_namespaces(version.name):
            self._usage_cache.requeue_after(namespace, SHARED_RETRY_SECONDS)
        return written

    def _noted(self, observed: QuotaRevision) -> Mapping[str, int]:
        known, namespaces = self._counted.get(observed.name, (observed, {}))
        return namespaces if known == observed else {}

    def _missing(self, observed: QuotaRevision, shared: Shared) -> list[str]:
        named = shared.grants.namespaces.keys()
        noted = self._noted(observed)
        present = self._usage_cache.losses(noted.keys() & named)
        done = {one for one, losses in present.items() if losses == noted[one]}
        missing = self._usage_cache.sharing_namespaces(observed.name, except_for=done)
        return sorted({*missing, *(named - done)})

    def _with_condition(self, grants: Grants, missing: list[str]) -> Grants:
        wanted = _ALL_COUNTED
        if missing:
            wanted = Condition(
                _COUNTED,
                "False",
                "NamespacesJoining",
                f"nothing is admitted until these namespaces are counted: {', '.join(missing[:8])}",
            )
        now = time_text(self._now())
        return replace(grants, conditions=merge_conditions(grants.conditions, [wanted], now))
