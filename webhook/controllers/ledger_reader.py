"""Which ledger a namespace has, for whoever is about to settle it.

A ledger that is gone took its reservations with it. Until no request that was admitted by it can
be on its way any more, none is made, so that nothing is admitted either. One that somebody made
unreadable is lost too, and replaced in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from webhook.controllers.counts import Counts
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.voice import Voice
from webhook.quota.fields import InvalidFieldError
from webhook.quota.settlement import seconds_until_new
from webhook.state.ledgers import LedgerStore, LedgerVersion

_log = logging.getLogger(__name__)


class LedgerReader:
    """Finds ledgers. Safe to use from several threads for different namespaces.

    Args:
        ledgers: Where ledgers are read.
        counts: Knows in which namespaces a ledger was seen.
        timing: For how long a lost ledger stays away.
        are_followed: Tells whether a watch of the ledgers stands: what it showed last is then as
            good as what could be read, for whoever writes over it finds out, and it shows the next.
        voice: Where it is told what was found.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        counts: Counts,
        timing: TrackerTiming,
        *,
        are_followed: Callable[[], bool],
        voice: Voice,
    ) -> None:
        self._ledgers = ledgers
        self._counts = counts
        self._timing = timing
        self._are_followed = are_followed
        self._voice = voice

    def known(self, namespace: str, tracked: Tracked, newer_than: int) -> LedgerVersion | None:
        """Return what the watch of ledgers showed last, if that will do: something has changed.

        A look for its own sake has to see what is there.
        """
        if tracked.taken_since is None or not self._are_followed():
            return None
        version = self._ledgers.known(namespace)
        is_newer = version is not None and version.resource_version > newer_than
        return version if is_newer else None

    def fetch(self, namespace: str, tracked: Tracked) -> LedgerVersion | None:
        """Read the ledger; one that somebody made unreadable is lost, and will be replaced.

        Raises:
            ApiError: The API server does not answer.
        """
        try:
            return self._ledgers.fetch(namespace)
        except InvalidFieldError as err:
            _log.error(
                "the ledger cannot be read", extra={"namespace": namespace, "error": str(err)}
            )
            if tracked.lost_since is None:
                self._voice.repaired("unreadable")
                self._voice.warn(
                    namespace, "", "LedgerUnreadable", f"the ledger is replaced: {err}"
                )
            with self._counts.lock:
                self._counts.had_ledger.add(namespace)
            tracked.is_settled = True  # the doors say that they cannot decide
            return self._ledgers.fetch_blank(namespace)

    def is_without(self, namespace: str) -> bool:
        """Tell whether no ledger counts anything in a namespace, as the API server says now.

        Raises:
            ApiError: It does not answer.
        """
        known = self._ledgers.known(namespace)
        if known is not None and known.ledger is not None:
            return False
        try:
            version = self._ledgers.fetch(namespace)
        except InvalidFieldError:
            return False  # it is settled like any that cannot be read
        return version is None or version.ledger is None

    def wait_for_lost(
        self, namespace: str, tracked: Tracked, version: LedgerVersion | None
    ) -> float:
        """Return how long there may be no ledger, because the former one was lost; 0 for none."""
        now = self._timing.clock()
        if tracked.lost_since is None and namespace in self._counts.had_ledger:
            tracked.lost_since = now
            if version is None and tracked.written is not None:
                if self._counts.opted.namespaces.is_terminating(namespace):
                    _log.info("the ledger went with its namespace", extra={"namespace": namespace})
                    return self._seconds_until_new(tracked, now)
                _log.error(
                    "the ledger is gone; it stays away until its reservations are over",
                    extra={"namespace": namespace},
                )
                self._voice.repaired("lost")
                self._voice.warn(
                    namespace,
                    tracked.written.uid,
                    "LedgerLost",
                    "the ledger was deleted or emptied; nothing is admitted until what was "
                    f"reserved in it is over, {self._timing.expire_seconds:g} s at most",
                )
        return self._seconds_until_new(tracked, now)

    def _seconds_until_new(self, tracked: Tracked, now: float) -> float:
        return seconds_until_new(
            lost_since=tracked.lost_since, now=now, expire_seconds=self._timing.expire_seconds
        )
