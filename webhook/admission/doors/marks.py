"""Our marks on a pod: its scheduling gate, and the labels and annotations that we write.

Only the product writes them, and people who may break the glass. A gate that somebody else takes
off puts a pod before the scheduler that nothing is reserved for: its bind is charged and refused
all the same, but it has jumped the line. An annotation that somebody else writes tells of a guard
that the pod never passed.

A manifest that was copied from a running pod carries them too. From a pod without a node they are
taken away, which harms nobody: it gets its own in time. Labels stay on a pod that belongs to a
controller, because the selector of that controller may name them, and it would go on making pods
for ever; they are written anew in time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final

from webhook.admission.patches import PatchOperation, remove_keys
from webhook.admission.review import AdmissionRequest, Denied, Object
from webhook.config import Configuration
from webhook.quota.fields import key as key_path
from webhook.quota.objects import Pod
from webhook.quota.reading import Node
from webhook.quota.refusals import Cause
from webhook.state.names import (
    CAPACITY_LABEL,
    GATE,
    LET_THROUGH_ANNOTATION,
    MARK_PREFIX,
    UNJUDGED_LABEL,
)

GATES_FIELD: Final = "spec.schedulingGates"
_LABELS: Final = "metadata.labels"
_ANNOTATIONS: Final = "metadata.annotations"
GATE_DOOR_MARKS: Final = frozenset({UNJUDGED_LABEL, LET_THROUGH_ANNOTATION})
"""What the gate door writes on new pods, and vouches for."""
_MOST: Final = 5
"""Fields that a message names; people can write any number."""


def may_write(request: AdmissionRequest, configuration: Configuration, own_users: Set[str]) -> bool:
    """Say whether a request is our own, or of somebody who may break the glass."""
    if request.username in own_users or request.username in configuration.trusted_users:
        return True
    return not configuration.break_glass_groups.isdisjoint(request.groups)


def changed(old: Pod, new: Pod) -> list[str]:
    """Return the paths of our marks that an update adds, changes or removes.

    That our gate is added is not among them: the API server lets gates only go. Nor is that the
    label of an unjudged pod goes: it says nothing any more, and a manifest without it may replace
    the pod.
    """
    removed = [GATES_FIELD] if GATE in old.scheduling_gates and not is_gated(new) else []
    labels = _differing(old.labels, new.labels)
    if UNJUDGED_LABEL not in new.labels:
        labels = [one for one in labels if one != UNJUDGED_LABEL]
    annotations = _differing(old.annotations, new.annotations)
    return [*removed, *_paths(labels, annotations)]


def written(pod: Pod) -> list[str]:
    """Return the paths of the labels and annotations of a pod that are ours to write."""
    return _paths(_ours(pod.labels), _ours(pod.annotations))


def is_gated(pod: Pod) -> bool:
    """Say whether a pod has our gate."""
    return GATE in pod.scheduling_gates


def taken_away(
    raw: Object, pod: Pod, *, kept: Collection[str] = ()
) -> tuple[list[str], tuple[PatchOperation, ...]]:
    """Return the paths of the marks that a new pod without a node may not keep, and the patch.

    Nothing is told of what the gate door itself wrote when it was asked about the pod before.

    Args:
        raw: The pod.
        pod: The same, read.
        kept: Those of `GATE_DOOR_MARKS` that are true.

    Raises:
        InvalidFieldError: The owners of the pod cannot be read.
        PatchTargetError: The pod has something else where labels or annotations have to be.
    """
    annotations = [one for one in _ours(pod.annotations) if one not in kept]
    of_nobody = [] if _has_controller(raw) else _ours(pod.labels)
    labels = [one for one in of_nobody if one not in kept]
    told = [[one for one in keys if one not in GATE_DOOR_MARKS] for keys in (labels, annotations)]
    return _paths(*told), (
        *remove_keys(raw, ("metadata", "labels"), labels),
        *remove_keys(raw, ("metadata", "annotations"), annotations),
    )


def untrue_taken_away(raw: Object, *, kept: Collection[str] = ()) -> tuple[PatchOperation, ...]:
    """Return the patch for what even those may not write who may write marks.

    Args:
        raw: The pod.
        kept: Those of `GATE_DOOR_MARKS` that are true.

    Raises:
        PatchTargetError: The pod has something else where annotations have to be.
    """
    annotations = [] if LET_THROUGH_ANNOTATION in kept else [LET_THROUGH_ANNOTATION]
    return remove_keys(raw, ("metadata", "annotations"), annotations)


def refused_update(
    fields: list[str], request: AdmissionRequest, configuration: Configuration
) -> Denied:
    """Refuse an update that touches our marks."""
    who = _who(configuration)
    gate = (
        f"{GATE} may only be removed by {who}; it goes by itself when quota is reserved for the"
        " pod: make room in the quota, or take the namespace out of deferred quota:"
        f" deferred-quota disable {request.namespace}"
    )
    mark = f"may only be added, changed or removed by {who}: leave it as it is"
    return _forbidden({field: gate if field == GATES_FIELD else mark for field in fields})


def refused_creation(fields: list[str], configuration: Configuration) -> Denied:
    """Refuse a pod that is created with a node and with our marks."""
    mark = f"may only be written by {_who(configuration)}: remove it from the manifest"
    return _forbidden(dict.fromkeys(fields, mark))


def _forbidden(details: Mapping[str, str]) -> Denied:
    causes = tuple(
        Cause("FieldValueForbidden", field, detail)
        for field, detail in list(details.items())[:_MOST]
    )
    more = f"; and {len(details) - _MOST} more" if len(details) > _MOST else ""
    text = "; ".join(f"{cause.field}: {cause.message}" for cause in causes) + more
    return Denied(code=403, reason="Forbidden", message=text, causes=causes, audit={"reason": text})


def _who(configuration: Configuration) -> str:
    groups = sorted(configuration.break_glass_groups)
    return "deferred-quota" + (f" or the group {', '.join(groups)}" if groups else "")


def _has_controller(raw: Object) -> bool:
    owners = Node(raw).child("metadata").children("ownerReferences")
    return any(owner.boolean("controller") for owner in owners)


def _ours(keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if key.startswith(MARK_PREFIX) or key == CAPACITY_LABEL)


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [key for key in _ours({*old, *new}) if old.get(key) != new.get(key)]


def _paths(labels: Iterable[str], annotations: Iterable[str]) -> list[str]:
    return [
        *(key_path(_LABELS, key) for key in labels),
        *(key_path(_ANNOTATIONS, key) for key in annotations),
    ]
