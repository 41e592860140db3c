"""The controller's parts in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from webhook.admission.rules import Rules
from webhook.cluster.api import ClusterApi
from webhook.cluster.informer import Informer, Timing
from webhook.config import Configuration
from webhook.controllers.tracked import TrackerTiming
from webhook.controllers.tracker import Tracker
from webhook.quota.objects import Pod
from webhook.state.ledgers import LedgerStore
from webhook.state.view import NamespaceCache, QuotaCache
from webhook.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """How the controller is built.

    Attributes:
        settle_seconds: Between two writes of one ledger by the tracker.
    """

    settle_seconds: float = 0.1


@dataclass(frozen=True, slots=True)
class Current:
    """The configuration as it is now, and what the doors make of it."""

    configuration: Callable[[], Configuration]
    rules: Callable[[], Rules]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What doors and controller of one process share; its informers are started by the engine."""

    api: ClusterApi
    ledgers: LedgerStore
    quotas: QuotaCache
    namespaces: NamespaceCache


class Control:
    """Counts pods and writes ledgers."""

    def __init__(
        self,
        known: Known,
        current: Current,
        metrics: Metrics,
        options: ControlOptions,
        informer: Timing,
    ) -> None:
        self._metrics = metrics
        timeouts = current.configuration().timeouts
        self.tracker: Final = Tracker(
            known.api,
            known.ledgers,
            known.quotas,
            known.namespaces,
            lambda: current.rules().deferred_keys,
            exempt=lambda: current.rules().exempt_namespaces,
            timing=TrackerTiming(
                settle_seconds=options.settle_seconds,
                expire_seconds=float(timeouts.expire_reservation_seconds),
                informer=informer,
            ),
        )

    @property
    def informers(self) -> dict[str, Informer[Pod]]:
        """The caches that are the controller's own, by what they hold."""
        return {"assigned pods": self.tracker.pods}

    def start(self) -> None:
        """Begin to count."""
        self.tracker.start()

    def stop(self) -> None:
        """Stop writing."""
        self.tracker.stop()

    def recount(self) -> None:
        """Count everything again, because other resources are deferred now."""
        self.tracker.recount()

    def not_ready(self) -> list[str]:
        """Say what keeps the ledgers from being true; nothing when they are."""
        return self.tracker.not_ready()
