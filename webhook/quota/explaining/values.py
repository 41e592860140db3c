"""The answer: causes, consumers, and actions that unblock, in words and as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList


class CauseKind(StrEnum):
    """Kind of cause."""

    TERMINATING = "terminating"
    JOB_SUSPENDED = "job-suspended"
    OTHER_GATE = "other-gate"
    MUST_SPECIFY = "rule-must-specify"
    PRIORITY_CLASS = "rule-priority-class"
    NEVER_FITS = "never-fits"
    BEHIND = "behind"
    OWNERS_FIRST = "owners-first"
    """It would borrow of an elastic pool what pods elsewhere are guaranteed and wait for."""
    PREEMPTORS_UNBOUND = "preemptors-unbound"
    """Released pods that may preempt, as it may, have no node."""
    QUOTA = "quota"
    CLUSTER_QUOTA = "cluster-quota"
    LEDGER_NOT_READY = "ledger-not-ready"
    WEBHOOK_DOWN = "webhook-down"
    SCHEDULER_ABSENT = "scheduler-absent"
    VOLUME_UNBOUND = "volume-unbound"
    TAINT = "taint"
    NODE_SELECTOR = "node-selector"
    NODE_AFFINITY = "node-affinity"
    POD_AFFINITY = "pod-affinity"
    TOPOLOGY_SPREAD = "topology-spread"
    PORTS = "ports"
    POD_COUNT = "pod-count"
    NODE_CAPACITY = "node-capacity"
    NOT_OURS = "not-ours"
    ALREADY_RUNNING = "already-running"


class Action(StrEnum):
    """Action that would unblock a pod."""

    FREE_QUOTA = "free-quota"
    RAISE_QUOTA = "raise-quota"
    ADD_QUOTA = "add-quota"
    SHRINK_POD = "shrink-pod"
    SET_RESOURCES = "set-resources"
    CHANGE_CLASS = "change-class"
    WAIT = "wait"
    START_CONTROLLER = "start-controller"
    START_WEBHOOK = "start-webhook"
    START_SCHEDULER = "start-scheduler"
    CHANGE_SCHEDULER = "change-scheduler"
    REMOVE_GATE = "remove-gate"
    RESUME_JOB = "resume-job"
    ADD_NODE = "add-node"
    FREE_NODE = "free-node"
    UNCORDON = "uncordon"
    LABEL_NODE = "label-node"
    ADD_TOLERATION = "add-toleration"
    CHANGE_SELECTOR = "change-selector"
    CHANGE_AFFINITY = "change-affinity"
    CHANGE_PORTS = "change-ports"
    PROVIDE_VOLUME = "provide-volume"
    DELETE_POD = "delete-pod"
    REMOVE_FINALIZER = "remove-finalizer"
    NOT_OURS = "not-ours"


class ConsumerState(StrEnum):
    """State of a pod, or of another namespace, that takes of a quota."""

    RUNNING = "running"
    STARTING = "starting"
    """It has a node and does not run there yet."""
    TERMINATING = "terminating"
    RESERVED = "reserved"
    """Quota is reserved for it, and it has no node."""
    NODE_GONE = "node-gone"
    NAMESPACE = "namespace"
    """Another namespace: what it holds of a quota that several share."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource that a quota is short of."""

    resource: str
    requested: Quantity
    used: Quantity
    """By others, reservations included."""
    reserved: Quantity
    """The part of `used` that is reserved and not counted yet."""
    hard: Quantity

    @property
    def missing(self) -> Quantity:
        """The amount that has to become free."""
        return self.requested + self.used - self.hard


@dataclass(frozen=True, slots=True)
class PendingCause:
    """One cause that holds now."""

    kind: CauseKind
    text: str
    quota: str = ""
    shortages: tuple[Shortage, ...] = ()
    holder: str = ""
    """Name of the pod that it waits behind."""
    place: int = 0
    """Position in the queue from 1; 0 without one."""


@dataclass(frozen=True, slots=True)
class Consumer:
    """A pod or a namespace that takes of a quota that is short."""

    namespace: str
    pod: str
    """Empty for a whole namespace."""
    amounts: ResourceList
    state: ConsumerState


@dataclass(frozen=True, slots=True)
class Unblock:
    """One thing that would remove a cause."""

    action: Action
    text: str
    quota: str = ""
    resource: str = ""
    amount: Quantity | None = None


@dataclass(frozen=True, slots=True)
class NodeScore:
    """A node that fits, and how well."""

    name: str
    score: int


@dataclass(frozen=True, slots=True)
class NodeSummary:
    """The nodes as the scheduler would judge them now."""

    total: int
    fit: int
    reasons: Mapping[CauseKind, int]
    """Cause → number of nodes that it rejects."""
    best: tuple[NodeScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The answer about one pod or workload."""

    kind: str
    namespace: str
    name: str
    text: str
    as_of: datetime | None = None
    """The moment that the facts are of; None where it is not known."""
    pod: str = ""
    """The pod that the answer is about, of a workload."""
    uid: str = ""
    """Of that pod."""
    causes: tuple[PendingCause, ...] = ()
    """All that hold, first what has to change first."""
    consumers: tuple[Consumer, ...] = ()
    nodes: NodeSummary | None = None
    """None where the nodes are not known."""
    unblock: tuple[Unblock, ...] = ()
    unknown: tuple[str, ...] = ()
    """Facts that could not be read."""
    notes: tuple[str, ...] = ()
    """Evidence beside the causes."""

    @property
    def cause(self) -> CauseKind | None:
        """The kind of the first cause; None where nothing keeps it."""
        return self.causes[0].kind if self.causes else None


def sentence(subject: str, causes: Sequence[PendingCause], otherwise: str = "") -> str:
    """Return the answer in one sentence; `otherwise` is that of a subject without causes."""
    if not causes:
        return f"{subject}: {otherwise or 'nothing keeps it'}"
    more = [one.kind for one in causes[1:] if one.kind is not causes[0].kind]
    rest = f" (also: {', '.join(dict.fromkeys(more))})" if more else ""
    return f"{subject}: {causes[0].text}{rest}"
