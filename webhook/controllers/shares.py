"""The quotas that namespaces share, as one leader after another reads and writes them.

What is done with them while a namespace is settled is in `share_turn`, what besides in
`share_keeper`. The order of reads and writes, and why nothing can be given twice, is in
`webhook.quota.escrow`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.controllers.completeness import Completeness
from webhook.controllers.counts import Counts
from webhook.controllers.membership import Membership
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.tracked import TrackerTiming
from webhook.quota.cluster_quotas import ledger_name
from webhook.quota.grants import Grants
from webhook.state.shared_quotas import SharedQuotaStore, SharedVersion

EXCESS_SECONDS: Final = 1.0
"""For how long a quota may say more than a ledger: a door has raised it and writes the ledger."""


class Shares:
    """The shared quotas of all namespaces. Safe to use from several threads.

    Args:
        store: Where they are read and written.
        counts: What is counted.
        timing: When to act.
        leads: Tells whether a leadership is still this process' own.
        membership: Asked who shares a quota now.
    """

    def __init__(
        self,
        store: SharedQuotaStore,
        counts: Counts,
        timing: TrackerTiming,
        *,
        leads: Callable[[int], bool],
        membership: Membership,
    ) -> None:
        self.store: Final = store
        self.counts: Final = counts
        self.membership: Final = membership
        self.clock: Final = timing.clock
        self.completeness: Final = Completeness(counts, self.write, timing.now)
        self._leads = leads

    def naming(self, namespace: str) -> list[str]:
        """Return the quotas that name a namespace, as far as is known."""
        specs = self.counts.opted.shared_specs()
        known = [self.store.known(ledger_name(one.name)) for one in specs]
        return [one.name for one in known if one is not None and namespace in one.grants.namespaces]

    def write(self, version: SharedVersion, grants: Grants, term: int) -> SharedVersion:
        """Write by compare-and-swap, under a leadership.

        Raises:
            NotLeadingError: It is over.
            ConflictError: Somebody else wrote first.
            ApiError: The API server does not do it.
        """
        if not self._leads(term):
            raise NotLeadingError
        return self.store.write(version, grants)
