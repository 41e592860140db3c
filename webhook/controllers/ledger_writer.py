"""Write the ledger of a namespace by compare-and-swap, under a leadership, with its conditions.

It is written only under the leadership in which it was counted. What a former leader has sent
already comes too late when anybody has written since; when nobody has, it still says what is true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.controllers.conditions import (
    Trouble,
    conditions_after_opt_out,
    conditions_of,
    rebuilt,
    with_conditions,
)
from webhook.controllers.counts import Counts
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.tracked import Tracked, TrackerTiming, Written
from webhook.controllers.voice import Voice
from webhook.quota.ledger import Condition, Ledger
from webhook.state.ledgers import LedgerStore, LedgerVersion
from webhook.state.times import time_text

_log = logging.getLogger(__name__)


class LedgerWriter:
    """Writes ledgers. Safe to use from several threads for different namespaces.

    Args:
        ledgers: Where ledgers are written.
        counts: What was counted, and what could not be.
        timing: The clocks.
        leads: Tells whether a leadership is still this process' own.
        voice: Where it is told what was written and found.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        counts: Counts,
        timing: TrackerTiming,
        *,
        leads: Callable[[int], bool],
        voice: Voice,
    ) -> None:
        self._ledgers = ledgers
        self._counts = counts
        self._timing = timing
        self._leads = leads
        self._voice = voice

    def create(self, namespace: str, term: int) -> LedgerVersion | None:
        """Create an empty ledger, or read the one that somebody else created.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
            InvalidFieldError: The other one cannot be read.
        """
        if not self._leads(term):
            raise NotLeadingError
        return self._ledgers.create(namespace)

    def write(
        self,
        namespace: str,
        tracked: Tracked,
        version: LedgerVersion,
        following: Ledger,
        term: int,
    ) -> LedgerVersion | None:
        """Write by compare-and-swap; None when somebody else was first.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it, or nobody knows whether it did.
        """
        if not self._leads(term):
            raise NotLeadingError
        try:
            written = self._ledgers.write(namespace, version, following)
        except (ConflictError, NotFoundError):
            return None
        except ApiError:
            tracked.written = None  # nobody knows what it says now
            if tracked.lost_since is not None:
                # it may be there, let requests in, and be lost once more before the next look
                tracked.lost_since = self._timing.clock()
            raise
        self._voice.settled("written")
        return written

    def note(
        self,
        namespace: str,
        tracked: Tracked,
        version: LedgerVersion,
        following: Ledger,
        *,
        is_newest: bool,
    ) -> None:
        """Take down what a ledger says now.

        Args:
            namespace: The namespace.
            tracked: The same.
            version: The ledger as it was written, or as it stays.
            following: What it says.
            is_newest: Whether there was no newer one when that was found out.
        """
        tracked.watch.look(following, version.uid)
        with self._counts.lock:
            if is_newest:
                tracked.count.forget_gone(following.reservations)
            self._counts.had_ledger.add(namespace)
            tracked.lost_since = None
            tracked.is_back = False
            tracked.written = Written(version.uid, version.resource_version, following.accounts)

    def with_conditions(
        self, namespace: str, tracked: Tracked, following: Ledger, *, is_new: bool
    ) -> Ledger:
        """Return a ledger that says what could not be counted, and whether another was lost."""
        wanted = self._conditions(namespace, tracked)
        if is_new and tracked.lost_since is not None:
            wanted += (rebuilt("there was no ledger any more; this one was counted from the pods"),)
        return replace(
            following, conditions=with_conditions(following.conditions, wanted, self._now())
        )

    def say_uncounted(
        self, namespace: str, tracked: Tracked, version: LedgerVersion | None, term: int
    ) -> None:
        """Say on a ledger that stays as it is why it is not counted any further.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
        """
        wanted = self._conditions(namespace, tracked)
        _log.error(
            "usage cannot be counted", extra={"namespace": namespace, "why": wanted[0].message}
        )
        uid = "" if version is None else version.uid
        self._voice.warn(namespace, uid, "PodsUnreadable", wanted[0].message)
        if version is None or version.ledger is None:
            return
        conditions = with_conditions(version.ledger.conditions, wanted, self._now())
        if conditions != version.ledger.conditions:
            kept = replace(version.ledger, conditions=conditions)
            self.write(namespace, tracked, version, kept, term)

    def tell_edited(self, namespace: str, uid: str, edited: list[str]) -> None:
        """Tell of quotas that somebody had edited in the ledger that was written over, if any."""
        if not edited:
            return
        _log.error("the ledger was edited", extra={"namespace": namespace, "quotas": edited})
        self._voice.repaired("edited")
        self._voice.warn(
            namespace,
            uid,
            "LedgerRepaired",
            f"somebody else had changed what is counted for quota {', '.join(edited)}; "
            "it was counted again",
        )

    def _conditions(self, namespace: str, tracked: Tracked) -> tuple[Condition, ...]:
        with self._counts.lock:
            pods, unmatchable = dict(tracked.unreadable_pods), tracked.count.unmatchable
            uncountable = tracked.count.uncountable
        if tracked.is_leaving:
            return conditions_after_opt_out()
        quotas = self._counts.opted.quotas_of(namespace).unreadable
        return conditions_of(Trouble(pods, quotas, unmatchable, uncountable))

    def _now(self) -> str:
        return time_text(self._timing.now())
