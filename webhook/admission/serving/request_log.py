"""Metrics and log line of a request."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from webhook.admission.handlers.dispatch import handler_name
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed
from webhook.admission.serving.request_body import RejectedRequestError
from webhook.telemetry.logs import shortened
from webhook.telemetry.metrics import HANDLERS, OPERATIONS, OTHER, AdmissionMetrics, bounded
from webhook.telemetry.trace import current_trace, exemplar

LogFields: TypeAlias = Mapping[str, object]

log = logging.getLogger(__name__)


def outcome_of(answer: AdmissionResponse) -> str:
    """Sort an answer: allowed, patched, denied, undecided (try again) or error."""
    if isinstance(answer, Allowed):
        return "patched" if answer.patch else "allowed"
    return {429: "undecided", 500: "error"}.get(answer.code, "denied")


class RequestRecorder:
    """Counts requests, and writes the one line of each.

    Args:
        log_allowed_every: Returns of how many allowed decisions one is logged now; 0 for none.
    """

    def __init__(
        self, metrics: AdmissionMetrics, log_allowed_every: Callable[[], int] = lambda: 1
    ) -> None:
        self._metrics = metrics
        self._log_allowed_every = log_allowed_every
        self._allowed = itertools.count(1)

    def rejected(self, refused: RejectedRequestError, client: str) -> None:
        """Record what could not be read, and which address sent it."""
        self._metrics.malformed.labels(refused.reason).inc()
        facts = {"reason": refused.reason, "detail": refused.detail, "client": client}
        log.info("refused", extra=facts | _trace_field())

    def expired(self, request: AdmissionRequest) -> None:
        """Record what was not looked at, because no client waits for the answer any more."""
        self._metrics.turned_away.labels("too_late").inc()
        facts = {"reason": "too_late", "uid": request.uid}
        log.warning("turned away", extra=facts | _trace_field())

    def failed(
        self, request: AdmissionRequest, handler: str, fault: Exception, seconds: float
    ) -> None:
        """Record a fault of this program."""
        facts = {"uid": request.uid, "key": shortened(request.key)}
        log.error("review failed", extra=facts | _trace_field(), exc_info=fault)
        self._count(request, handler, "error", seconds)

    def decided(self, request: AdmissionRequest, answer: AdmissionResponse, seconds: float) -> None:
        """Record a decision."""
        handler = answer.handler or handler_name(request) or OTHER
        self._count(request, handler, outcome_of(answer), seconds)
        if not log.isEnabledFor(logging.INFO):
            return
        sample = self._log_allowed_every() if isinstance(answer, Allowed) else 1
        if sample and (sample == 1 or next(self._allowed) % sample == 0):
            facts = _log_fields(request, answer, handler, seconds)
            log.info("decided", extra={**facts, "one_of": sample} if sample > 1 else facts)

    def _count(self, request: AdmissionRequest, handler: str, outcome: str, seconds: float) -> None:
        known, phase = bounded(handler, HANDLERS), request.phase.value
        operation = bounded(request.operation, OPERATIONS)
        dry_run = "true" if request.dry_run else "false"
        self._metrics.requests.labels(known, phase, operation, outcome, dry_run).inc()
        duration = self._metrics.seconds.labels(known, phase, outcome, dry_run)
        duration.observe(seconds, exemplar())


def _log_fields(
    request: AdmissionRequest, answer: AdmissionResponse, handler: str, seconds: float
) -> LogFields:
    """Return the facts of a decision; `audit` holds the quota and the numbers."""
    facts: dict[str, object] = {
        "uid": request.uid,
        "key": shortened(request.key),
        "handler": handler,
        "phase": request.phase.value,
        "operation": request.operation,
        "resource": request.path,
        "user": shortened(request.username),
        "dry_run": request.dry_run,
        "outcome": outcome_of(answer),
        "decision": answer.decision,
        "audit": {key: shortened(text) for key, text in answer.audit.items()},
        "duration_ms": round(seconds * 1000, 3),
        **_trace_field(),
    }
    if not isinstance(answer, Allowed):
        facts |= {"code": answer.code, "detail": shortened(answer.message)}
    return facts


def _trace_field() -> dict[str, str]:
    trace = current_trace()
    return {} if trace is None else {"trace_id": trace.id}
