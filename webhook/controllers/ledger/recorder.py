"""Events and metrics about ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.controllers.ledger.drift import Drift
from webhook.controllers.runtime.events import NO_EVENTS, EventSink, ObjectReference
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, PODS, QUOTA_LEDGERS
from webhook.state.ledger_store import LEDGER_NAME
from webhook.telemetry.metrics import Metrics

_MAX_UNGUARDED_EVENTS: Final = 5
"""Pods that one look at a ledger has an event written on; the others are in the metric."""


@dataclass(frozen=True, slots=True)
class LedgerRecorder:
    """Recorder of events and metrics about ledgers."""

    events: EventSink = NO_EVENTS
    metrics: Metrics = field(default_factory=Metrics)

    def reconciled(self, result: str) -> None:
        """Count a look at a ledger."""
        self.metrics.controller.settlements.labels(result).inc()

    def lagged(self, seconds: float) -> None:
        """Measure how long a change took to get into the ledger."""
        self.metrics.controller.lag_seconds.observe(seconds)

    def repaired(self, reason: str) -> None:
        """Count a ledger that was put right."""
        self.metrics.controller.repairs.labels(reason).inc()

    def drift_checked(self, result: str) -> None:
        """Count a comparison of a count with a fresh list."""
        self.metrics.controller.recounts.labels(result).inc()

    def drifted(self, namespace: str, uid: str, drift: Drift) -> None:
        """Report a count that was wrong."""
        self.metrics.controller.drift.labels("missed").inc(len(drift.missed))
        self.metrics.controller.drift.labels("ghost").inc(len(drift.ghosts))
        self.metrics.controller.drift.labels("sum").inc(int(drift.is_sum_wrong))
        self.warn(namespace, uid, "CountRepaired", f"a fresh list of the pods differed: {drift}")

    def unguarded(self, namespace: str, pods: Sequence[tuple[str, str]]) -> None:
        """Report pods, by name and uid, that got their nodes without a reservation."""
        self.metrics.controller.unguarded.inc(len(pods))
        for name, uid in pods[:_MAX_UNGUARDED_EVENTS]:
            message = (
                f"pod {name} got its node past the quota: nothing was reserved for it; it is"
                " counted all the same. Probably the webhook did not answer, is not registered for"
                " binds or exempts the namespace; deferred-quota doctor may know"
            )
            self.events.warning(
                ObjectReference(PODS, name, namespace, uid), "UnguardedBind", message
            )

    def warn(self, namespace: str, uid: str, reason: str, message: str) -> None:
        """Report something on the ledger of a namespace."""
        self.events.warning(
            ObjectReference(QUOTA_LEDGERS, LEDGER_NAME, namespace, uid), reason, message
        )

    def warn_shared_quota(self, name: str, uid: str, reason: str, message: str) -> None:
        """Report something on a quota that namespaces share."""
        regarding = ObjectReference(CLUSTER_DEFERRED_QUOTAS, name, uid=uid)
        self.events.warning(regarding, reason, message)
