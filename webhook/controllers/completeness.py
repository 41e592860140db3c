"""Whether all who share a quota have been counted: said of the quota, and taken back.

Complete is said of one spec, by ledgers that have counted it, and doors admit by it. So it is taken
back before a ledger begins to count another spec, or one that it had stopped to count: what is
granted from then on is not what doors may rely on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set
from dataclasses import replace
from datetime import datetime
from typing import Final

from webhook.controllers.conditions import with_conditions
from webhook.controllers.counts import Counts
from webhook.quota.escrow import Shared
from webhook.quota.grants import Grants, completed, uncompleted
from webhook.quota.ledger import Condition, Observed
from webhook.state.shared_quotas import SharedVersion
from webhook.state.times import time_text

_log = logging.getLogger(__name__)

AGAIN_SECONDS: Final = 0.2
"""Until a namespace is looked at again that could not be settled, or has to be counted."""
_COUNTED: Final = "Counted"


class Completeness:
    """Knows who has been counted, in one leadership; whoever calls holds the quota.

    Args:
        counts: Who takes part.
        write: Writes a quota, see `Shares.write`.
        now: The time of day, for people.
    """

    def __init__(
        self,
        counts: Counts,
        write: Callable[[SharedVersion, Grants, int], SharedVersion],
        now: Callable[[], datetime],
    ) -> None:
        self._counts = counts
        self._write = write
        self._now = now
        self._counted: dict[str, tuple[Observed, Set[str]]] = {}
        """Quota → what it is now, and which namespaces have counted and been granted that."""

    def begin_term(self) -> None:
        """Forget what an earlier leadership has seen."""
        self._counted.clear()

    def note(
        self, namespace: str, observed: Observed, version: SharedVersion, term: int
    ) -> SharedVersion:
        """Note that a namespace is counted and granted; `say` so of the quota once all are."""
        self._counted[observed.name] = (observed, self._who_counted(observed) | {namespace})
        return self.say(observed, version, term)

    def say(self, observed: Observed, version: SharedVersion, term: int) -> SharedVersion:
        """Say whether all are named and counted that take part, if that is not said yet.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Somebody else wrote first.
            ApiError: The API server does not do it.
        """
        shared = version.shared
        if shared is None or shared.grants.observed == observed:
            return version
        missing, grants = self._missing(observed, shared), shared.grants
        if missing:
            if any(one.type == _COUNTED and one.status == "False" for one in grants.conditions):
                return version
            said = replace(grants, serial=grants.serial + 1)
        else:
            _log.info("shared quota counted", extra={"quota": observed.name})
            said = completed(grants, observed)
        return self._write(version, self._with_condition(said, missing), term)

    def take_back(self, version: SharedVersion, term: int) -> SharedVersion:
        """Say of a quota that not all are counted; they are looked at again.

        Raises:
            NotLeadingError: The leadership is over.
            ConflictError: Somebody else wrote first.
            ApiError: The API server does not do it.
        """
        self._counted.pop(version.name, None)
        written = self._write(version, uncompleted(version.grants), term)
        for namespace in self._counts.sharing(version.name):
            self._counts.look_again(namespace, AGAIN_SECONDS)
        return written

    def _who_counted(self, observed: Observed) -> Set[str]:
        known, namespaces = self._counted.get(observed.name, (observed, frozenset()))
        return namespaces if known == observed else frozenset()

    def _missing(self, observed: Observed, shared: Shared) -> list[str]:
        named = shared.grants.namespaces.keys()
        counted = self._who_counted(observed)
        return sorted({*self._counts.sharing(observed.name), *named} - (counted & named))

    def _with_condition(self, grants: Grants, missing: list[str]) -> Grants:
        wanted = Condition(_COUNTED, "True", "AllCounted")
        if missing:
            wanted = Condition(
                _COUNTED,
                "False",
                "NamespacesJoining",
                f"nothing is admitted until these namespaces are counted: {', '.join(missing[:8])}",
            )
        now = time_text(self._now())
        return replace(grants, conditions=with_conditions(grants.conditions, [wanted], now))
