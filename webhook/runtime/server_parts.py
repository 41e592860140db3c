"""Parts of the admission server, made of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from webhook.admission.serving.server_settings import ServerParts
from webhook.runtime.engine import Engine
from webhook.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


def server_parts(
    engine: Engine, metrics: Metrics, listeners: Mapping[str, WSGIApplication] | None = None
) -> ServerParts:
    """Return what a server runs: the handlers of an engine, and further applications by name."""
    return ServerParts(
        review_handler=engine.decide,
        readiness=engine.readiness_problems,
        warnings=engine.warnings,
        start=engine.start,
        stop=engine.stop,
        log_allowed_every=lambda: engine.configuration.limits.log_allowed_every,
        extra_wsgi=listeners or {},
        metrics=metrics,
    )
