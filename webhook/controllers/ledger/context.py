"""Collaborators that everything shares that reads, counts or writes ledgers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.state.ledger_store import LedgerStore


class LedgerFeed(Protocol):
    """A watch of all ledgers."""

    @property
    def is_following(self) -> bool:
        """Whether the watch stands.

        What it showed last is then as good as what could be read: a write over an older version
        fails, and the watch shows the next one.
        """


class NoLedgerFeed:
    """Absence of a watch: ledgers are read whenever they are needed."""

    is_following: Final = False


NO_FEED: Final = NoLedgerFeed()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContext:
    """Collaborators of one ledger controller."""

    ledgers: LedgerStore
    usage_cache: UsageCache
    leadership: Leadership
    timings: ControllerTimings
    recorder: LedgerRecorder
    is_emergency_open: Callable[[], bool]
    """Asks the API server: `emergency close` deletes ledgers to have them counted anew."""
    feed: LedgerFeed = NO_FEED
