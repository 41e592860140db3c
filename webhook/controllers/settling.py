"""Write into one ledger what follows from the count of its namespace.

What is there comes from `ledger_reader`, what is written goes through `ledger_writer`. In between
a namespace has its turn at the quotas that it shares, and its line of waiting pods is passed.

A namespace that opts out leaves a ledger in which nothing is counted: what happens there from then
on is not seen.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.controllers.counts import Counts
from webhook.controllers.ledger_reader import LedgerReader
from webhook.controllers.ledger_writer import LedgerWriter
from webhook.controllers.lines import Lines
from webhook.controllers.share_turn import Turn, turn_of
from webhook.controllers.shares import Shares
from webhook.controllers.tracked import Tracked, TrackerTiming
from webhook.controllers.unguarded import UnguardedBinds
from webhook.controllers.voice import Voice
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import Ledger
from webhook.quota.line import Passed
from webhook.quota.settlement import Expiry
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
        are_followed: Tells whether a watch of the ledgers stands.
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
        self._counts = counts
        self._lines = lines
        self._shares = shares
        self._timing = timing
        self._leads = leads
        self._confirms = confirms
        self._voice = voice
        self._reader = LedgerReader(ledgers, counts, timing, are_followed=are_followed, voice=voice)
        self._writer = LedgerWriter(ledgers, counts, timing, leads=leads, voice=voice)
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
        if tracked.is_leaving and len(tracked.count.waiting) and self._is_back(namespace):
            return RETRY_SECONDS
        if tracked.is_leaving and self._holds_nothing(namespace):
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
        version = self._reader.known(namespace, tracked, newer_than)
        is_fetched = version is None
        if version is None:
            version = self._reader.fetch(namespace, tracked)
        if tracked.unreadable_pods and not tracked.is_leaving:
            # what such a pod takes is not known, and usage is never counted too low
            self._writer.say_uncounted(namespace, tracked, version, term)
            raise InvalidFieldError("", next(iter(tracked.unreadable_pods.values())))
        if version is None or version.ledger is None:
            wait = self._reader.wait_for_lost(namespace, tracked, version)
            if not tracked.count.quotas.quotas and version is None:
                self._let_go(namespace, tracked, term)
                return None
            if wait:
                return min(wait, _LOOK_FOR_LOST_SECONDS)  # it may come back by itself
            version = version or self._writer.create(namespace, term)
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
        ledger = self._writer.with_conditions(
            namespace, tracked, granted, is_new=version.ledger is None
        )
        written: LedgerVersion | None = None
        if version.ledger is None or not _says_enough(version.ledger, ledger, wanted):
            written = self._unguarded.written(
                namespace,
                tracked,
                version,
                ledger,
                partial(self._writer.write, namespace, tracked, version, ledger, term),
                is_edited=bool(edited),
            )
            if written is None:
                raise _LostRaceError(version.resource_version)
            self._writer.tell_edited(namespace, version.uid, edited)
            given_up = expired.keys() - ledger.reservations.keys()
            self._lines.note_given_up(namespace, tracked, given_up)
            version = written
        else:
            self._voice.settled("unchanged")
        # of a ledger that was neither read nor written over, a newer one may be on its way here,
        # with a reservation of a pod that is gone
        is_newest = is_fetched or version is written
        self._writer.note(namespace, tracked, version, ledger, is_newest=is_newest)
        turn.lower()
        turn.finish(ledger)
        self._note_passed(namespace, tracked, passed, term)
        return None

    def _is_back(self, namespace: str) -> bool:
        """Tell whether a namespace that is left has opted in by now.

        Gates go for good, so what a cache shows does not suffice: its watch may be silent.
        """
        return self._shares.membership.is_opted_in(namespace)

    def _holds_nothing(self, namespace: str) -> bool:
        """Tell whether no ledger counts anything in a namespace, and no shared quota names it.

        What it holds of those is given back when it is settled.
        """
        return self._reader.is_without(namespace) and not self._shares.naming(namespace)

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


def _says_enough(present: Ledger, following: Ledger, wanted: int) -> bool:
    version = present.pods_resource_version
    return version >= wanted and replace(following, pods_resource_version=version) == present
