"""The facts that an explanation is made of: a pod, its namespace, and the parts of the product."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.elastic.owners_first import PoolShare
from webhook.quota.ledger.ledger import Ledger
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import (
    observed_condition,
)
from webhook.quota.queue.queued_pods import QueueCriteria, WaitHistory

_DEFAULT_SCHEDULER = "default-scheduler"
_SCHEDULED = "PodScheduled"
_UNTRIED_REASONS = frozenset({"", "SchedulingGated"})
"""Reasons of `PodScheduled=False` without an attempt: the API server writes the second."""


class Health(Enum):
    """Whether a part of the product works, as far as it is known."""

    UP = "up"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Part:
    """The controller or the webhook."""

    health: Health = Health.UNKNOWN
    detail: str = ""
    """Why it is down, or why that is not known."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod, and what of it no quota looks at."""

    pod: Pod
    scheduler: str = _DEFAULT_SCHEDULER
    attempt: str = ""
    """Words of the scheduler's last attempt; empty where none has tried the pod."""
    finalizers: tuple[str, ...] = ()
    trouble: str = ""
    """Why its containers do not run, or why its node failed it."""
    is_ready: bool = False
    open_since: datetime | None = None
    """Since when no gate keeps it from the scheduler, as far as it shows."""
    unplaced_since: datetime | None = None
    """Since when no node takes it."""
    waiting_since: datetime | None = None
    """Since when its condition says that it waits for quota."""
    place: int = 0
    """The place that its condition gives; good only to tell apart pods of one second."""

    @property
    def arrival(self) -> int:
        """Return what orders pods of one second.

        The leader knows the order in which it first saw them, and wrote it into the places; a pod's
        version changes with its condition.
        """
        version = self.pod.resource_version
        return self.place or 2**62 + (int(version) if version.isdecimal() else 0)


@dataclass(frozen=True, slots=True)
class NamespaceFacts:
    """A namespace at one moment."""

    name: str
    is_deferred: bool = False
    """Whether its quotas are charged at the bind."""
    room_seconds: float = 0.0
    """For how long a pod without a gate and a node has a place in the queue: none unless gating is
    `auto`."""
    gate: str = ""
    criteria: QueueCriteria | None = None
    """What its pods are judged by; None where it is not deferred."""
    ledger: Ledger | None = None
    """The ledger by which binds are decided; None where none is counted for the quotas as they are.

    Without a leader `used` is counted again from the pods.
    """
    stored: Ledger | None = None
    """The ledger as it is stored, where `ledger` is counted again."""
    uncounted: str = ""
    """Why there is no such ledger."""
    pods: tuple[PodFacts, ...] = ()
    holdings: Mapping[str, Mapping[str, ResourceList]] = field(default_factory=dict)
    """Shared quota → namespace → what it holds, of other namespaces."""
    shares: Mapping[str, PoolShare] = field(default_factory=dict)
    """What its elastic quota has of pools, and which owners elsewhere wait for them."""
    node_names: frozenset[str] | None = None
    """The nodes that exist; None where they may not be listed."""
    controller: Part = Part()
    webhook: Part = Part()
    max_reservations: int = 4000
    now: datetime | None = None
    left_out: tuple[str, ...] = ()
    """What may keep a pod and is not in the snapshot, which may only lack the kind."""
    unknown: tuple[str, ...] = ()

    def keeps_room_for(self, one: PodFacts) -> bool:
        """Return whether a pod without a gate and a node has a place in the queue."""
        if not self.room_seconds:
            return False
        # a condition that the gate had set keeps its time when the scheduler sets it
        since = max(filter(None, (one.open_since, one.unplaced_since)), default=None)
        if self.now is None or since is None:
            return True
        return (self.now - since).total_seconds() < self.room_seconds

    def history(self) -> Mapping[str, WaitHistory]:
        """Return for how long pods have waited; how many have passed them only the leader knows."""
        if self.now is None:
            return {}
        return {
            one.pod.uid: WaitHistory(seconds=max(0.0, (self.now - since).total_seconds()))
            for one in self.pods
            if (since := one.waiting_since) is not None
        }


def pod_facts(raw: Mapping[str, object]) -> PodFacts:
    """Read a pod.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
    """
    root = FieldReader(raw)
    meta, spec, status = root.child("metadata"), root.child("spec"), root.child("status")
    conditions = {one.text("type"): one for one in status.children("conditions")}
    pod = Pod.from_stored(raw)
    ours = observed_condition(raw)
    condition = ours.condition
    is_waiting = condition is not None and condition.status == "False"
    since = _since(conditions, QUOTA_RESERVED)
    return PodFacts(
        pod,
        scheduler=spec.text("schedulerName") or _DEFAULT_SCHEDULER,
        attempt=_attempt(conditions.get(_SCHEDULED)),
        finalizers=meta.strings("finalizers"),
        trouble=_trouble(status),
        is_ready=_is_true(conditions.get("Ready")),
        open_since=None if pod.is_gated else (None if is_waiting else since) or pod.created,
        unplaced_since=_since(conditions, _SCHEDULED) if pod.is_unplaced else None,
        waiting_since=since if is_waiting else None,
        place=condition.place if condition is not None and is_waiting else 0,
    )


def _attempt(scheduled: FieldReader | None) -> str:
    if scheduled is None or scheduled.text("status") != "False":
        return ""
    reason, message = scheduled.text("reason"), scheduled.text("message")
    return "" if reason in _UNTRIED_REASONS else f"{reason}: {message}"


def _since(conditions: Mapping[str, FieldReader], name: str) -> datetime | None:
    found = conditions.get(name)
    return None if found is None else found.timestamp("lastTransitionTime")


def _is_true(condition: FieldReader | None) -> bool:
    return condition is not None and condition.text("status") == "True"


def _trouble(status: FieldReader) -> str:
    own = ": ".join(filter(None, (status.text("reason"), status.text("message"))))
    lists = ("initContainerStatuses", "containerStatuses")
    containers = [one for name in lists for one in status.children(name)]
    return "; ".join(filter(None, (own, *_waiting(containers))))


def _waiting(containers: Iterable[FieldReader]) -> Iterable[str]:
    for one in containers:
        waiting = one.child("state").child("waiting")
        words = ": ".join(filter(None, (waiting.text("reason"), waiting.text("message"))))
        if words and words != "PodInitializing":
            yield f"container {one.text('name')}: {words}"
