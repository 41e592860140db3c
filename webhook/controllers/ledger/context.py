"""Collaborators that everything shares that reads, counts or writes ledgers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.controllers.mask.webhook_registration import Guard, RegistrationState
from webhook.controllers.runtime.leadership import Leadership
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.informer import Informer
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerContext:
    """Collaborators of one ledger controller."""

    ledgers: LedgerStore
    usage_cache: UsageCache
    leadership: Leadership
    timings: ControllerTimings
    recorder: LedgerRecorder
    registration: Callable[[], RegistrationState | None]
    """Asks the API server for the guard: `emergency close` deletes ledgers to have them counted
    anew, and lets no bind pass unasked from then on. None while it does not answer."""
    guard: Callable[[], Guard | None]
    """Returns the registration by which ledgers are marked, see `GuardAdoption`."""
    ledger_informer: Informer[LazyLedger] | None = None
    """The watch of all ledgers; None where they are read whenever they are needed.

    What it showed last, while it stands, is as good as what could be read: a write over an older
    version fails, and the watch shows the next one.
    """
