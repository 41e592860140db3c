"""Shared quotas, as successive leaders read and write them.

Grants of a namespace that is being reconciled are in `grant_transaction`, the rest in `controller`.
The order of reads and writes, and why nothing can be given twice, is in
`webhook.quota.shared.escrow`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.controllers.shared.completeness import Completeness
from webhook.controllers.shared.participation import Participation
from webhook.quota.shared.cluster_quotas import ledger_name
from webhook.quota.shared.escrow import names_former_spec
from webhook.quota.shared.grants import Grants
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaStore, SharedQuotaVersion

EXCESS_SECONDS: Final = 1.0
"""How long a grant may exceed a ledger: a handler has raised it and writes the ledger next."""


class SharedQuotaContext:
    """The shared quotas of all namespaces. Safe to use from several threads.

    Args:
        store: Where they are read and written.
        ledgers: Where ledgers are read and written.
        usage_cache: What is counted.
        leadership: The leadership to write under.
        participation: The participants, as the API server shows them.
    """

    def __init__(
        self,
        store: SharedQuotaStore,
        ledgers: LedgerStore,
        usage_cache: UsageCache,
        timings: ControllerTimings,
        *,
        leadership: Leadership,
        participation: Participation,
    ) -> None:
        self.store: Final = store
        self.ledgers: Final = ledgers
        self.usage_cache: Final = usage_cache
        self.participation: Final = participation
        self.clock: Final = timings.clock
        self.completeness: Final = Completeness(usage_cache, ledgers, self.write, timings)
        self._leadership = leadership
        self._lock = threading.Lock()
        self._waiting: dict[str, set[str]] = {}
        """Quota → the namespaces in which a gated pod waits for it."""

    def reset(self) -> None:
        """Forget what an earlier leadership has seen."""
        self.completeness.reset()
        with self._lock:
            self._waiting.clear()

    def noted_quotas(self) -> set[str]:
        """Return the quotas of which something is noted, by their names in ledgers."""
        with self._lock:
            return {*self._waiting, *self.completeness.noted_quotas()}

    def forget(self, name: str) -> None:
        """Forget a quota that is gone; the caller holds its lock."""
        self.completeness.forget(name)
        with self._lock:
            self._waiting.pop(name, None)

    def note_waiting(self, name: str, namespace: str, *, is_waiting: bool) -> None:
        """Note whether a gated pod of a namespace waits for a quota."""
        with self._lock:
            if is_waiting:
                self._waiting.setdefault(name, set()).add(namespace)
            else:
                self._waiting.get(name, set()).discard(namespace)

    def forget_others(self, names: Collection[str], namespace: str) -> None:
        """Forget that pods of a namespace wait for quotas that it does not share any more."""
        with self._lock:
            for name, waiting in self._waiting.items():
                if name not in names:
                    waiting.discard(namespace)

    def has_waiting(self, name: str) -> bool:
        """Return whether gated pods wait for a quota."""
        with self._lock:
            waiting = tuple(self._waiting.get(name, ()))
        return any(
            one in self.usage_cache.namespaces and not self.usage_cache.is_stuck(one)
            for one in waiting
        )

    def recall(self, holders: Iterable[str]) -> None:
        """Have the namespaces that hold headroom of a quota reconciled: they give it back."""
        for namespace in holders:
            self.usage_cache.requeue_after(namespace, 0.0)

    def quotas_naming(self, namespace: str) -> list[str]:
        """Return the quotas that name a namespace, as far as is known."""
        specs = self.usage_cache.managed.shared_specs()
        known = [self.store.known(ledger_name(one.name)) for one in specs]
        return [one.name for one in known if one is not None and namespace in one.grants.namespaces]

    def write(self, version: SharedQuotaVersion, grants: Grants, epoch: int) -> SharedQuotaVersion:
        """Write by compare-and-swap, under a leadership; no claim for a former spec is left.

        Raises:
            NotLeadingError: It is over.
            ConflictError: Another client wrote first.
            ApiError: The API server does not do it.
        """
        self.require_leadership(epoch)
        shared = version.shared
        if shared is not None and names_former_spec(replace(shared, grants=grants)):
            grants = replace(grants, observed=None)
        return self.store.write(version, grants)

    def require_leadership(self, epoch: int) -> None:
        """Raise NotLeadingError where the leadership to write under is over."""
        self._leadership.require(epoch)
