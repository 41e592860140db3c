"""Adopt a registration of the guard: the one up to which all ledgers are counted from now on.

A registration that was deleted and comes back is another one, and binds were not asked about in
between. A handler decides by no ledger that names another (`ledger.check_observed`); the leader
counts each one anew, from pods as they were when it saw the registration first, or later. Quotas
of several namespaces are marked incomplete before the first ledger names it: what was bound unasked
in other namespaces is in no grant yet.
"""

from __future__ import annotations

import logging
import time

from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.mask.webhook_registration import UNREAD_GUARD, Guard
from webhook.controllers.shared.leaving import WAIT_SECONDS
from webhook.controllers.shared.shared_context import SharedQuotaContext
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import UnavailableError
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.state.ledger_store import LedgerStore

_log = logging.getLogger(__name__)


class GuardAdoption:
    """The registration by which a leader marks ledgers; `adopt` is for one thread.

    Args:
        ledgers: The ledgers, as they are known.
    """

    def __init__(
        self, usage_cache: UsageCache, ledgers: LedgerStore, shared: SharedQuotaContext
    ) -> None:
        self._usage_cache = usage_cache
        self._ledgers = ledgers
        self._shared = shared
        self._guard: Guard | None = UNREAD_GUARD

    def current(self) -> Guard | None:
        """Return what was adopted: ledgers keep their marks before, and have none with None."""
        return self._guard

    def reset(self) -> None:
        """Adopt anew: a leadership begins."""
        self._guard = UNREAD_GUARD

    def adopt(self, epoch: int) -> None:
        """Adopt the registration that was seen last, if it is another; have ledgers counted anew.

        Raises:
            NotLeadingError: The leadership is over.
            ApiError: A quota of several namespaces cannot be marked incomplete.
        """
        guard = self._usage_cache.managed.guard()
        if guard == self._guard:
            return
        marks = self._marks() if guard is not None else {}
        if guard is not None and any(map(guard.is_new_to, marks.values())):
            _log.warning("the guard was registered anew; all is counted anew")
            counted = {namespace for namespace, mark in marks.items() if mark == guard.uid}
            self._mark_incomplete(counted, epoch)
        self._guard = guard
        for namespace, mark in marks.items():
            if guard is not None and not guard.has_marked(mark):
                self._usage_cache.requeue_after(namespace, 0.0)

    def _marks(self) -> dict[str, str]:
        """Return the marks of all ledgers that are known to count, by their namespaces."""
        with self._usage_cache.lock:
            namespaces = list(self._usage_cache.namespaces)
        known = {namespace: self._ledgers.known(namespace) for namespace in namespaces}
        return {
            namespace: version.ledger.guard_uid
            for namespace, version in known.items()
            if version is not None and version.ledger is not None
        }

    def _mark_incomplete(self, counted: set[str], epoch: int) -> None:
        """Mark the quotas incomplete that name other namespaces than those."""
        for quota in self._usage_cache.managed.shared_specs():
            name, until = ledger_name(quota.name), time.monotonic() + WAIT_SECONDS
            with self._shared.store.locked([name], until=until) as is_held:
                if not is_held:
                    raise UnavailableError(f"quota {name} is being written")
                try:
                    version = self._shared.store.fetch(name)
                except InvalidFieldError:
                    continue  # handlers cannot read it either
                if version is None or version.shared is None or version.grants.observed is None:
                    continue
                if not version.grants.namespaces.keys() <= counted:
                    self._shared.completeness.mark_incomplete(version, epoch)
