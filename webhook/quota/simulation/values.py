"""Scenario and events of a simulation. Times are whole milliseconds since its beginning."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from webhook.quota.charging.limited_resources import LimitedResource
from webhook.quota.nodes.model import PlainObject
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.queue.queued_pods import QueuePolicy


class Mode(StrEnum):
    """Moment at which quota is charged."""

    NATIVE = "native"
    """At the creation of the pod, by the API server."""
    DEFERRED = "deferred"
    """At the bind; a bind that does not fit is refused, and the scheduler tries again."""
    GATED = "gated"
    """At the bind; every pod is gated until the queue has reserved for it."""


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pause after a refusal, doubled each time."""

    first: int
    longest: int

    def pause(self, refusals: int) -> int:
        """Return the pause after so many refusals in a row, from 1."""
        return min(self.first << min(refusals - 1, 32), self.longest)


JOB_BACK_OFF = BackOff(1_000, 60_000)
"""Source: kubernetes v1.36, pkg/controller/job/job_controller.go DefaultJobApiBackOff,
MaxJobApiBackOff."""
REPLICA_SET_BACK_OFF = BackOff(5, 1_000_000)
"""Source: kubernetes v1.36, client-go/util/workqueue/default_rate_limiters.go
DefaultTypedControllerRateLimiter, whose bucket is not simulated."""
SCHEDULER_BACK_OFF = BackOff(1_000, 10_000)
"""Source: kubernetes v1.36, pkg/scheduler/apis/config/v1/defaults.go PodInitialBackoffSeconds,
PodMaxBackoffSeconds."""


@dataclass(frozen=True, eq=False, slots=True)
class PodTemplate:
    """Template of pods that are alike."""

    raw: PlainObject
    """One of them as an API object, with its namespace; defaulted."""
    pod: Pod
    """The same, read."""
    back_off: BackOff | None
    """After how long the controller creates a refused pod again; None: never."""


@dataclass(frozen=True, eq=False, slots=True)
class Arrival:
    """A pod that is to be created."""

    at: int
    name: str
    template: PodTemplate
    duration: int
    """For how long it runs once it is bound."""
    group: str = ""
    """What its wait is reported with, such as its workload."""
    patience: int | None = None
    """After how long it is deleted if it has no node by then; None: never."""

    @property
    def key(self) -> str:
        """The pod's "namespace/name"."""
        return f"{self.template.pod.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Input of a simulation."""

    nodes: tuple[PlainObject, ...]
    quotas: tuple[ResourceQuota, ...]
    arrivals: tuple[Arrival, ...]
    """In the order of their times."""
    gate: str
    """The scheduling gate of queued pods."""
    until: int | None = None
    """When it ends; None: when nothing can happen any more."""
    deferred_keys: frozenset[str] = DEFERRED_KEYS
    limited: tuple[LimitedResource, ...] = ()
    """What the API server lets be used only where a quota limits it."""
    policy: QueuePolicy = field(default_factory=QueuePolicy)
    max_reservations: int = 4000
    """How many reservations a namespace may have."""
    gate_release: int = 60_000
    """For how long a reservation is kept for a pod that no node takes."""


class EventKind(StrEnum):
    """Event in the life of a pod."""

    CREATED = "Created"
    GATED = "Gated"
    """Created with the scheduling gate."""
    CREATE_REFUSED = "CreateRefused"
    RELEASED = "Released"
    """Reserved for, and the gate removed."""
    UNSCHEDULABLE = "Unschedulable"
    """No node fits."""
    BIND_REFUSED = "BindRefused"
    BOUND = "Bound"
    EXPIRED = "Expired"
    """Its reservation was given up, because no node took it."""
    ENDED = "Ended"
    WITHDRAWN = "Withdrawn"
    """Deleted before it had a node."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event."""

    at: int
    kind: EventKind
    arrival: Arrival
    detail: str = ""
    """The node, or the refusal in the API server's words."""
