"""The condition `deferredquota.io/QuotaReserved` of a pod: why it waits for quota, in words.

False with a reason and the numbers while the pod is queued, True once quota is reserved
for it. Here is what it says, how it is found on a pod, and the patch that writes it. The patch
touches no other condition: those of the scheduler and the kubelet are in the same list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from webhook.quota.objects.names import MAX_NAME_BYTES, QUOTA_RESERVED
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus

LONGEST_TEXT: Final = 2000
"""Characters of a message, its position in the queue not counted; more is cut."""

Status: TypeAlias = Literal["True", "False"]
Patch: TypeAlias = Sequence[Mapping[str, object]]

_WITH_PLACE: Final = re.compile(
    r"(?:(?P<text>.*); )?place (?P<place>\d{1,9}) of (?P<total>\d{1,9})", re.ASCII | re.DOTALL
)
_WITH_NODES: Final = re.compile(
    r"(?:(?P<text>.*); )?(?P<nodes>no node fits: .*, as of [-0-9T:Z]{20})", re.ASCII | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class QuotaCondition:
    """Content of the condition."""

    status: Status
    """Whether quota is reserved for the pod."""
    reason: str
    """Why or why not, in one word."""
    text: str
    """The same as a sentence."""
    place: int = 0
    """The pod's position in the queue, from 1; 0 where it has none."""
    total: int = 0
    """How many have a place."""
    nodes: str = field(default="", compare=False)
    """That no node fits the pod either, as of a time; a change of it alone is not written."""

    @property
    def message(self) -> str:
        """The condition's message."""
        place = f"place {self.place} of {self.total}" if self.place else ""
        return "; ".join(part for part in (self.text, self.nodes, place) if part)

    def differs_in_place_only(self, other: QuotaCondition) -> bool:
        """Return whether the other one differs in the position in the queue at most."""
        return self != other and self._without_place == other._without_place

    @property
    def _without_place(self) -> tuple[Status, str, str]:
        return self.status, self.reason, self.text


RESERVED: Final = QuotaCondition(
    "True", "Reserved", "quota is reserved for the pod, as far as it needs any"
)

EXPIRED: Final = QuotaCondition(
    "False",
    "ReservationExpired",
    "no node took the pod in time, and what was reserved for it was given up: when it is bound, the"
    " quota may be taken",
)

UNTRIED_SECONDS: Final = 30.0
"""How long after its release a pod may be without a scheduler's verdict before that is said."""


def untried_by(pod: Mapping[str, object]) -> str:
    """Return the scheduler that a pod names, if no scheduler has tried to place it; else empty.

    The API server takes any text for it: what is longer than a name is cut, and what a terminal
    would obey is not given. The policy of our service accounts takes it in these words only.
    """
    spec, status = pod.get("spec"), pod.get("status")
    listed = status.get("conditions") if isinstance(status, Mapping) else None
    conditions = listed if isinstance(listed, Sequence) else ()
    scheduled = next((one for one in conditions if _text(one, "type") == "PodScheduled"), None)
    is_tried = scheduled is not None and _text(scheduled, "reason") != "SchedulingGated"
    if is_tried or _text(spec, "nodeName") or _text(status, "nominatedNodeName"):
        return ""
    name = _text(spec, "schedulerName") or "default-scheduler"
    if not (name.isascii() and name.isprintable()):
        return "not printable"
    return name if len(name) <= MAX_NAME_BYTES else f"{name[:MAX_NAME_BYTES]}..."


def untried_condition(scheduler: str) -> QuotaCondition:
    """Return that quota is reserved for a pod, and which scheduler has not tried it."""
    text = (
        f"{RESERVED.text}; {UNTRIED_SECONDS:g} s after its gate was removed no scheduler had tried"
        f" it: its spec.schedulerName is {scheduler}"
    )
    return QuotaCondition("True", "Reserved", text)


EVENT_REASONS: Final[Mapping[str, str]] = {
    PendingReason.QUOTA_EXCEEDED: "QuotaExceeded",
    PendingReason.BEHIND: "QuotaExceeded",
    PendingReason.LEDGER_FULL: "QuotaExceeded",
    PendingReason.OWNERS_FIRST: "QuotaExceeded",
    PendingReason.PREEMPTORS_UNBOUND: "QuotaExceeded",
    PendingReason.NEVER_FITS: "QuotaExceeded",
    PendingReason.NOT_COVERED: "NotCovered",
    PendingReason.MUST_SPECIFY: "MustSpecify",
    PendingReason.FORGED_QOS_CLASS: "ForgedQOSClass",
}
"""Reason of a condition → reason of the event that goes with it, where one does."""


def pending_condition(held: PendingStatus, total: int) -> QuotaCondition:
    """Return why a pod waits.

    The numbers are worked out here, from the ledger as it was in the cycle.

    Args:
        held: Why it does.
        total: How many pods have a position in the queue.
    """
    text = held.message
    if len(text) > LONGEST_TEXT:
        text = f"{text[:LONGEST_TEXT]}..."
    return QuotaCondition(
        "False", held.reason.value, text, held.position, total if held.position else 0
    )


@dataclass(frozen=True, slots=True)
class ObservedCondition:
    """The condition as a pod has it."""

    uid: str
    resource_version: str = ""
    condition: QuotaCondition | None = None
    """What the condition says; None where the pod has none."""
    last_transition_time: str = ""
    """When its status last changed; empty if there is none."""
    index: int = 0
    """Its index in the list; that of a further one where the pod has none."""
    parts: int = 2
    """How much is there of `status` and its `conditions`: 0, 1 or 2."""


def observed_condition(pod: Mapping[str, object]) -> ObservedCondition:
    """Find the condition on a pod; what cannot be read as one is not it."""
    metadata, status = pod.get("metadata"), pod.get("status")
    uid = _text(metadata, "uid")
    version = _text(metadata, "resourceVersion")
    if not isinstance(status, Mapping):
        return ObservedCondition(uid, version, parts=0)
    conditions = status.get("conditions")
    if not isinstance(conditions, Sequence):
        return ObservedCondition(uid, version, parts=1)
    for index, one in enumerate(conditions):
        if _text(one, "type") == QUOTA_RESERVED:
            return ObservedCondition(
                uid, version, _said(one), _text(one, "lastTransitionTime"), index
            )
    return ObservedCondition(uid, version, index=len(conditions))


def _said(condition: object) -> QuotaCondition:
    status: Status = "True" if _text(condition, "status") == "True" else "False"
    reason, message = _text(condition, "reason"), _text(condition, "message")
    match = _WITH_PLACE.fullmatch(message)
    place, total = (0, 0) if match is None else (int(match["place"]), int(match["total"]))
    text = message if match is None else match["text"] or ""
    nodes = _WITH_NODES.fullmatch(text)
    if nodes is None:
        return QuotaCondition(status, reason, text, place, total)
    return QuotaCondition(status, reason, nodes["text"] or "", place, total, nodes["nodes"])


def _text(holder: object, name: str) -> str:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, str) else ""


def transition_time(found: ObservedCondition, wanted: QuotaCondition, now: str) -> str:
    """Return the `lastTransitionTime` to write: it changes with the status only."""
    is_same = found.condition is not None and found.condition.status == wanted.status
    return (found.last_transition_time if is_same else "") or now


def condition_patch(found: ObservedCondition, wanted: QuotaCondition | None, now: str) -> Patch:
    """Return the JSON Patch that lets the condition say `wanted`; None takes it away.

    It fails on another pod of the name. It fails too if the condition is elsewhere by then, and,
    where the pod had none, on any other version of the pod: it may have one by then.

    Args:
        found: The condition as the pod has it.
        wanted: What it is to say.
        now: The time of day, as objects have it.
    """
    uid = {"op": "test", "path": "/metadata/uid", "value": found.uid}
    place = f"/status/conditions/{found.index}"
    if found.condition is not None:
        ours = {"op": "test", "path": f"{place}/type", "value": QUOTA_RESERVED}
        if wanted is None:
            return [uid, ours, {"op": "remove", "path": place}]
        return [uid, ours, {"op": "replace", "path": place, "value": _object(found, wanted, now)}]
    if wanted is None:
        return []
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": found.resource_version}
    return [uid, version, _added(found, _object(found, wanted, now))]


def with_condition(
    found: ObservedCondition, wanted: QuotaCondition | None, now: str
) -> ObservedCondition:
    """Return the condition as the pod has it once `operations` are done; its version is unknown."""
    began = "" if wanted is None else transition_time(found, wanted, now)
    return ObservedCondition(found.uid, "", wanted, began, found.index)


def _added(found: ObservedCondition, condition: Mapping[str, object]) -> Mapping[str, object]:
    if found.parts == 0:
        return {"op": "add", "path": "/status", "value": {"conditions": [condition]}}
    if found.parts == 1:
        return {"op": "add", "path": "/status/conditions", "value": [condition]}
    return {"op": "add", "path": "/status/conditions/-", "value": condition}


def _object(found: ObservedCondition, wanted: QuotaCondition, now: str) -> Mapping[str, object]:
    return {
        "type": QUOTA_RESERVED,
        "status": wanted.status,
        "lastTransitionTime": transition_time(found, wanted, now),
        "reason": wanted.reason,
        "message": wanted.message,
    }
