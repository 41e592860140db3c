"""Read the ledger of a namespace that is about to be reconciled.

A ledger that is gone took its reservations with it. Until no request that was admitted by it can
be on its way any more, none is made, so that nothing is admitted either. One that was made
unreadable is lost too, and replaced in the same way; one that a newer release wrote is not.

In an emergency binds pass unasked: then that time begins once they are asked about again.
"""

from __future__ import annotations

import logging
import math
from typing import Final

from webhook.controllers.ledger.context import LedgerContext
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.namespace_usage import MAX_DELETED_PODS
from webhook.controllers.mask.webhook_registration import ASSUMED_REGISTERED
from webhook.jsonfields.fields import InvalidFieldError, NewerFormatError
from webhook.quota.ledger.apply_usage import seconds_until_new
from webhook.state.ledger_store import LedgerVersion

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
"""Between two looks at the guard, for all ledgers that are gone."""


class LedgerReader:
    """Finds ledgers. Safe to use from several threads for different namespaces."""

    def __init__(self, context: LedgerContext) -> None:
        self._ledgers = context.ledgers
        self._usage_cache = context.usage_cache
        self._timings = context.timings
        self._informer = context.ledger_informer
        self._recorder = context.recorder
        self._registration = context.registration
        self._guard = ASSUMED_REGISTERED
        self._guard_seen = -math.inf
        """When it was read."""
        self._unguarded_until = -math.inf
        """When it was first seen to be asked again, after an emergency."""
        self._newer: set[str] = set()

    def cached(
        self, namespace: str, state: NamespaceState, newer_than: int
    ) -> LedgerVersion | None:
        """Return what the watch of ledgers showed last, if that will do: something has changed.

        A look for its own sake has to see what is there, and so has one that follows a lost race:
        where handlers write all the time, what a watch shows is seldom the newest. Deleted pods
        are forgotten by the newest alone.
        """
        is_following = self._informer is not None and self._informer.is_following
        if state.reconciling_since is None or state.deferrals or not is_following:
            return None
        if state.usage.deleted_count >= MAX_DELETED_PODS:
            return None
        version = self._ledgers.known(namespace)
        is_newer = version is not None and version.resource_version > newer_than
        return version if is_newer else None

    def fetch(self, namespace: str, state: NamespaceState) -> LedgerVersion | None:
        """Read the ledger; one that was made unreadable is lost, and will be replaced.

        Raises:
            ApiError: The API server does not answer.
            NewerFormatError: A newer release wrote it: it is left alone.
        """
        try:
            version = self._ledgers.fetch(namespace)
            self._newer.discard(namespace)
        except NewerFormatError as err:
            if namespace not in self._newer:
                self._newer.add(namespace)
                self._recorder.warn(
                    namespace, "", "LedgerOfNewerRelease", f"the ledger is left as it is: {err}"
                )
            raise
        except InvalidFieldError as err:
            _log.error(
                "the ledger cannot be read", extra={"namespace": namespace, "error": str(err)}
            )
            if state.lost_since is None:
                self._recorder.repaired("unreadable")
                self._recorder.warn(
                    namespace, "", "LedgerUnreadable", f"the ledger is replaced: {err}"
                )
            with self._usage_cache.lock:
                self._usage_cache.note_ledger(namespace)
            state.has_reconciled = True  # the handlers say that they cannot decide
            return self._ledgers.fetch_blank(namespace)
        else:
            return version

    def has_no_ledger(self, namespace: str) -> bool:
        """Return whether no ledger counts anything in a namespace, as the API server says now.

        Raises:
            ApiError: It does not answer.
        """
        known = self._ledgers.known(namespace)
        if known is not None and known.ledger is not None:
            return False
        try:
            version = self._ledgers.fetch(namespace)
        except InvalidFieldError:
            return False  # it is reconciled like any that cannot be read
        return version is None or version.ledger is None

    def lost_ledger_delay(
        self, namespace: str, state: NamespaceState, version: LedgerVersion | None
    ) -> float:
        """Return how long there may be no ledger, because the former one was lost; 0 for none."""
        if state.lost_since is None and namespace not in self._usage_cache.had_ledger:
            return 0.0
        self._look_at_guard()
        # an emergency can last for days, and this process does all else meanwhile
        state.has_reconciled |= self._guard.is_opened
        now = self._timings.clock()
        if state.lost_since is None:
            state.lose_ledger(now)
            if version is None and state.last_write is not None:
                if self._usage_cache.managed.namespaces.is_terminating(namespace):
                    _log.info("the ledger went with its namespace", extra={"namespace": namespace})
                    return self._seconds_until_new(state, now)
                if self._guard.emergency_since:
                    _log.info(
                        "the ledger is gone in the emergency; it is counted anew",
                        extra={"namespace": namespace},
                    )
                    return self._seconds_until_new(state, now)
                _log.error(
                    "the ledger is gone; it stays away until its reservations are over",
                    extra={"namespace": namespace},
                )
                self._recorder.repaired("lost")
                self._recorder.warn(
                    namespace,
                    state.last_write.uid,
                    "LedgerLost",
                    "the ledger was deleted or emptied; nothing is admitted until what was "
                    f"reserved in it is over, {self._timings.expire_seconds:g} s at most",
                )
        return self._seconds_until_new(state, now)

    def _look_at_guard(self) -> None:
        if self._timings.clock() < self._guard_seen + _LOOK_SECONDS:
            return
        found = self._registration()
        # its answer may have taken long, and the guard have come back meanwhile
        now = self._guard_seen = self._timings.clock()
        if found is None:
            return
        self._guard = found
        if found.is_opened:
            self._unguarded_until = math.inf
        elif self._unguarded_until == math.inf:
            self._unguarded_until = now

    def _seconds_until_new(self, state: NamespaceState, now: float) -> float:
        since = state.lost_since
        return seconds_until_new(
            lost_since=None if since is None else max(since, self._unguarded_until),
            now=now,
            expire_seconds=self._timings.expire_seconds,
        )
