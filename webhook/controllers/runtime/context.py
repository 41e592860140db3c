"""Collaborators that every controller of a process gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from webhook.controllers.runtime.events import NO_EVENTS, EventSink
from webhook.controllers.runtime.leadership import always_leader
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import ClusterApi
from webhook.telemetry.metrics import Metrics

_DEFAULT_TIMINGS: Final = ControllerTimings()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """Collaborators of the controllers; without events and metrics nothing is reported."""

    api: ClusterApi
    leader_epoch: Callable[[], int] = always_leader
    """Returns whether this process may write: 0 for no, else a number that is another one in every
    leadership (`Election.epoch`)."""
    timings: ControllerTimings = _DEFAULT_TIMINGS
    events: EventSink = NO_EVENTS
    metrics: Metrics = field(default_factory=Metrics)
