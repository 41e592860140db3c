"""Write into one ledger what follows from the count of its namespace.

A ledger that is gone took its reservations with it. Until no request that was admitted by it can
be on its way any more, none is made, so that nothing is admitted either. A namespace that opts
out leaves a ledger in which nothing is counted: what happens there from then on is not seen.

Everything is written by compare-and-swap, and only under the leadership in which it was counted.
What a former leader has sent already comes too late when anybody has written since; when nobody
has, it still says what is true.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.cluster.api import ApiError, ConflictError, NotFoundError
from webhook.controllers.conditions import (
    Trouble,
    conditions_of,
    rebuilt,
    with_conditions,
)
from webhook.controllers.counts import Counts
from webhook.controllers.lines import Lines
from webhook.controllers.share_turn import Turn, turn_of
from webhook.controllers.shares import Shares
from webhook.controllers.terms import NotLeadingError
from webhook.controllers.times import time_text
from webhook.controllers.tracked import Tracked, TrackerTiming, Written
from webhook.controllers.unguarded import UnguardedBinds
from webhook.controllers.voice import Voice
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Condition, Ledger
from webhook.quota.line import Passed
from webhook.quota.settlement import Expiry, seconds_until_new
from webhook.state.ledgers import LedgerStore, LedgerVersion

_log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
_UNCONFIRMED_SECONDS: Final = 0.5
_LOOK_FOR_LOST_SECONDS: Final = 5.0
_RACES: Final = 8
"""How often a race with the doors is run before others get their turn."""


class _LostRaceError(Exception):
    """Somebody else wrote the ledger between the reading and the writing.

    Attributes:
        resource_version: Which version was read.
    """

    def __init__(self, resource_version: int) -> None:
        super().__init__(f"version {resource_version} is not the newest")
        self.resource_version = resource_version


class Settler:
    """Settles namespaces. Safe to use from several threads for different namespaces.

    Args:
        ledgers: Where ledgers are read and written.
        counts: What was counted.
        lines: Who waits in each namespace; what they decide goes into the same write.
        shares: What each holds of quotas that it shares with others.
        timing: When to act.
        leads: Tells whether a leadership is still this process' own.
        confirms: Compares a count with a list of the pods that is made now.
        are_followed: Tells whether a watch of the ledgers stands: what it showed last is then as
            good as what could be read, for whoever writes over it finds out, and it shows the next.
        voice: Where it is told what was found.
    """

    def __init__(  # noqa: PLR0913 - the parts of one process, wired in one place
        self,
        ledgers: LedgerStore,
        counts: Counts,
        lines: Lines,
        shares: Shares,
        timing: TrackerTiming,
        *,
        leads: Callable[[int], bool],
        confirms: Callable[[str, Tracked], bool],
        are_followed: Callable[[], bool],
        voice: Voice,
    ) -> None:
        self._ledgers = ledgers
        self._counts = counts
        self._lines = lines
        self._shares = shares
        self._timing = timing
        self._leads = leads
        self._confirms = confirms
        self._are_followed = are_followed
        self._voice = voice
        self._unguarded = UnguardedBinds(counts, shares.membership, timing, voice)

    def settle(self, namespace: str, tracked: Tracked, term: int) -> float | None:
        """Write what follows from the count; return when to try again, None when all is said.

        Doors that write all the time win most races, and the ledger grows until this one is won:
        who loses one reads again at once.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
            InvalidFieldError: The pods of the namespace cannot be counted.
        """
        if tracked.is_leaving and self._counts_nothing(namespace):
            self._let_go(namespace, tracked, term)
            return None
        lost = 0
        for _ in range(_RACES):
            try:
                return self._attempt(namespace, tracked, term, newer_than=lost)
            except _LostRaceError as race:
                self._voice.settled("conflict")
                lost = race.resource_version
        return self._timing.settle_seconds

    def _attempt(
        self, namespace: str, tracked: Tracked, term: int, *, newer_than: int
    ) -> float | None:
        """Settle once; return as `settle`.

        Raises:
            _LostRaceError: Somebody else wrote first.
        """
        version = self._known(namespace, tracked, newer_than)
        is_fetched = version is None
        if version is None:
            version = self._fetch(namespace, tracked)
        if tracked.unreadable_pods and not tracked.is_leaving:
            # what such a pod takes is not known, and usage is never counted too low
            self._say_uncounted(namespace, tracked, version, term)
            raise InvalidFieldError("", next(iter(tracked.unreadable_pods.values())))
        if version is None or version.ledger is None:
            wait = self._wait_for_lost(namespace, tracked, version)
            if not tracked.count.quotas.quotas and version is None:
                self._let_go(namespace, tracked, term)
                return None
            if wait:
                return min(wait, _LOOK_FOR_LOST_SECONDS)  # it may come back by itself
            version = version or self._create(namespace, term)
            if version is None or version.ledger is not None:
                return self._timing.settle_seconds
        wanted = 0 if tracked.is_leaving else self._counts.opted.wanted_version(namespace)
        is_behind = self._counts.complete_version(tracked) < wanted
        if (is_behind or self._is_first(tracked, version)) and not self._confirms(
            namespace, tracked
        ):
            _log.info("pods have not all been seen yet", extra={"namespace": namespace})
            return _UNCONFIRMED_SECONDS
        with turn_of(self._shares, namespace, tracked, version.ledger, term) as turn:
            if turn is None:
                return self._timing.settle_seconds
            return self._replace(turn, tracked, version, term, wanted=wanted, is_fetched=is_fetched)

    def _is_first(self, tracked: Tracked, version: LedgerVersion) -> bool:
        """Whether the ledger counts nothing that says how far pods have to have been seen."""
        is_empty = version.ledger is None or not version.ledger.accounts or tracked.is_back
        return is_empty and bool(tracked.count.quotas.quotas)

    # -- what is there -------------------------------------------------------------------------

    def _known(self, namespace: str, tracked: Tracked, newer_than: int) -> LedgerVersion | None:
        """Return what the watch of ledgers showed last, if that will do: something has changed.

        A look for its own sake has to see what is there.
        """
        if tracked.taken_since is None or not self._are_followed():
            return None
        version = self._ledgers.known(namespace)
        is_newer = version is not None and version.resource_version > newer_than
        return version if is_newer else None

    def _fetch(self, namespace: str, tracked: Tracked) -> LedgerVersion | None:
        """Read the ledger; one that somebody made unreadable is lost, and will be replaced."""
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

    def _counts_nothing(self, namespace: str) -> bool:
        """Tell whether no ledger counts anything in a namespace, as the API server says now."""
        known = self._ledgers.known(namespace)
        if known is not None and known.ledger is not None:
            return False
        try:
            version = self._ledgers.fetch(namespace)
        except InvalidFieldError:
            return False  # it is settled like any that cannot be read
        # what it holds of shared quotas is given back when it is settled
        return (version is None or version.ledger is None) and not self._shares.naming(namespace)

    def _wait_for_lost(
        self, namespace: str, tracked: Tracked, version: LedgerVersion | None
    ) -> float:
        """Return how long there may be no ledger, because the former one was lost; 0 for none."""
        now = self._timing.clock()
        if tracked.lost_since is None and namespace in self._counts.had_ledger:
            tracked.lost_since = now
            if version is None and tracked.written is not None:
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
        return seconds_until_new(
            lost_since=tracked.lost_since, now=now, expire_seconds=self._timing.expire_seconds
        )

    # -- writing -------------------------------------------------------------------------------

    def _create(self, namespace: str, term: int) -> LedgerVersion | None:
        if not self._leads(term):
            raise NotLeadingError
        return self._ledgers.create(namespace)

    def _replace(
        self,
        turn: Turn,
        tracked: Tracked,
        version: LedgerVersion,
        term: int,
        *,
        wanted: int,
        is_fetched: bool,
    ) -> float | None:
        """Write what follows from the count and this version; return as `settle`.

        A ledger that says the same is written again where doors wait for a newer count.
        """
        namespace = turn.namespace
        expired: Mapping[str, Expiry] = {}
        edited: list[str] = []
        if version.ledger is None:
            tracked.watch.forget()
        else:
            if tracked.written is not None:
                edited = tracked.written.edited(version.uid, version.ledger)
            tracked.watch.look(version.ledger, version.uid)
            expired = tracked.watch.expired(namespace, version.ledger, tracked.count.seen)
        following = self._counts.following(namespace, tracked, version.ledger, expired)
        if following is None:
            _log.info("the count cannot be written yet", extra={"namespace": namespace})
            self._voice.settled("stale")
            # reservations that nobody has asked about yet may be all that it waits for
            has_more = (tracked.watch.next_due() or math.inf) <= self._timing.clock()
            return self._timing.settle_seconds if has_more else RETRY_SECONDS
        prepared = turn.prepared(following)
        if prepared is None:
            raise _LostRaceError(version.resource_version)
        passed = self._lines.pass_line(tracked, prepared.ledger, prepared.line)
        granted = turn.granted(passed.ledger or prepared.ledger, gives_room=bool(passed.released))
        if granted is None:
            raise _LostRaceError(version.resource_version)
        ledger = self._with_conditions(namespace, tracked, granted, is_new=version.ledger is None)
        written: LedgerVersion | None = None
        if version.ledger is None or not _says_enough(version.ledger, ledger, wanted):
            written = self._unguarded.written(
                namespace,
                tracked,
                version,
                ledger,
                partial(self._write, namespace, tracked, version, ledger, term),
                is_edited=bool(edited),
            )
            if written is None:
                raise _LostRaceError(version.resource_version)
            self._tell_edited(namespace, version.uid, edited)
            version = written
        else:
            self._voice.settled("unchanged")
        # of a ledger that was neither read nor written over, a newer one may be on its way here,
        # with a reservation of a pod that is gone
        is_newest = is_fetched or version is written
        self._note_written(namespace, tracked, version, ledger, is_newest=is_newest)
        turn.lower()
        turn.finish(ledger)
        self._note_passed(namespace, tracked, passed, term)
        return None

    def _write(
        self,
        namespace: str,
        tracked: Tracked,
        version: LedgerVersion,
        following: Ledger,
        term: int,
    ) -> LedgerVersion | None:
        """Write by compare-and-swap; None when somebody else was first."""
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

    def _note_written(
        self,
        namespace: str,
        tracked: Tracked,
        version: LedgerVersion,
        following: Ledger,
        *,
        is_newest: bool,
    ) -> None:
        tracked.watch.look(following, version.uid)
        with self._counts.lock:
            if is_newest:
                tracked.count.forget_gone(following.reservations)
            self._counts.had_ledger.add(namespace)
            tracked.lost_since = None
            tracked.is_back = False
            tracked.written = Written(version.uid, version.resource_version, following.accounts)

    def _let_go(self, namespace: str, tracked: Tracked, term: int) -> None:
        """Take all gates off in a namespace without quotas, and write no ledger into it.

        What else the object says, of shadow mode, stays as it is.
        """
        passed = self._lines.pass_line(tracked, None, self._counts.line(namespace, tracked))
        self._note_passed(namespace, tracked, passed, term)

    def _note_passed(self, namespace: str, tracked: Tracked, passed: Passed, term: int) -> None:
        """Let those go who may: what was decided about them is known to be written."""
        since = self._timing.clock() if tracked.taken_since is None else tracked.taken_since
        self._lines.note(namespace, tracked, passed, since=since, may=lambda: self._leads(term))

    def _tell_edited(self, namespace: str, uid: str, edited: list[str]) -> None:
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

    # -- conditions ----------------------------------------------------------------------------

    def _with_conditions(
        self, namespace: str, tracked: Tracked, following: Ledger, *, is_new: bool
    ) -> Ledger:
        wanted = self._conditions(namespace, tracked)
        if is_new and tracked.lost_since is not None:
            wanted += (rebuilt("there was no ledger any more; this one was counted from the pods"),)
        return replace(
            following, conditions=with_conditions(following.conditions, wanted, self._now())
        )

    def _conditions(self, namespace: str, tracked: Tracked) -> tuple[Condition, ...]:
        with self._counts.lock:
            pods, unmatchable = dict(tracked.unreadable_pods), tracked.count.unmatchable
        if tracked.is_leaving:
            return conditions_of(Trouble({}, (), {}))
        quotas = self._counts.opted.quotas_of(namespace).unreadable
        return conditions_of(Trouble(pods, quotas, unmatchable))

    def _say_uncounted(
        self, namespace: str, tracked: Tracked, version: LedgerVersion | None, term: int
    ) -> None:
        """Say on a ledger that stays as it is why it is not counted any further."""
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
            self._write(namespace, tracked, version, kept, term)

    def _now(self) -> str:
        return time_text(self._timing.now())


def _says_enough(present: Ledger, following: Ledger, wanted: int) -> bool:
    version = present.pods_resource_version
    return version >= wanted and replace(following, pods_resource_version=version) == present
