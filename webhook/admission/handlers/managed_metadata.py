"""Metadata of pods that users may not write: our scheduling gate, labels and annotations.

Only the product, `trustedUsers` and `breakGlassGroups` write them. If another user removes the
gate, a pod for which nothing is reserved goes to the scheduler: its bind is charged or denied all
the same, but it has jumped the queue. An annotation that a user writes would claim a check that the
pod never passed.

A manifest that was copied from a running pod contains them as well. They are removed from a new pod
without a node, which does no harm, because the pod gets its own in time. Labels stay on a pod that
belongs to a controller: the selector of that controller may name them, and without them it would
create pods for ever. They are corrected in time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from webhook.admission.handlers import responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.patch_builder import PatchOperation, remove_keys
from webhook.admission.review import AdmissionRequest, Denied, Object
from webhook.config import Configuration
from webhook.jsonfields.fields import key as key_path
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.denials import Cause
from webhook.quota.objects.model import MIRROR_ANNOTATION, Pod
from webhook.state.well_known import (
    CAPACITY_LABEL,
    GUARDED_ANNOTATION,
    MANAGED_PREFIX,
    SCHEDULING_GATE,
    UNEVALUATED_LABEL,
    UNGATED_ANNOTATION,
)

NODES_GROUP: Final = "system:nodes"
"""The group of kubelets."""
GATES_FIELD: Final = "spec.schedulingGates"
_LABELS: Final = "metadata.labels"
_ANNOTATIONS: Final = "metadata.annotations"
_MIRROR_FIELD: Final = key_path(_ANNOTATIONS, MIRROR_ANNOTATION)
GATING_METADATA: Final = frozenset({UNEVALUATED_LABEL, UNGATED_ANNOTATION})
"""What the gating handler writes on new pods, and vouches for."""
_REMOVABLE: Final = frozenset({*GATING_METADATA, CAPACITY_LABEL})
"""Marks that may go: of a pod that has been made those of the gating handler say nothing more.

A pod without its annotation before the cache has shown it counts twice for some seconds
(`InFlightPods`), which lets fewer through. By the capacity nothing is decided; its controller
writes it again.
"""
_MAX_TOLD: Final = 64
"""Labels, and annotations, about which there is a warning; an answer shows fewer."""
_MAX_FIELDS: Final = 5
"""Fields that a message names; people can write any number."""


def may_modify(context: HandlerContext, request: AdmissionRequest) -> bool:
    """Return whether a request is our own, or of a user in a break-glass group."""
    user, configuration = request.username, context.configuration
    if user in context.policy.own_users or user in configuration.trusted_users:
        return True
    return not configuration.break_glass_groups.isdisjoint(request.groups)


def changed_keys(old: Pod, new: Pod) -> list[str]:
    """Return the paths of our marks that an update adds, changes or removes.

    That our gate is added is not among them: the API server lets gates only go. Nor is that a mark
    of `_REMOVABLE` goes: a manifest without it may replace the pod.
    """
    removed = [GATES_FIELD] if SCHEDULING_GATE in old.scheduling_gates and not is_gated(new) else []
    return [
        *removed,
        *_paths(_differing(old.labels, new.labels), _differing(old.annotations, new.annotations)),
    ]


def added_by_binding(
    labels: Mapping[str, str], annotations: Mapping[str, str], pod: Pod
) -> list[str]:
    """Return the paths of our marks that a Binding would write on a pod that lacks them.

    Storage writes the labels and annotations of a Binding on the pod. Some schedulers copy the
    pod's own into it, which says nothing new. That the guard was asked is true of every Binding
    that gets this far.
    """
    new_labels = [key for key in _ours(labels) if pod.labels.get(key) != labels[key]]
    new_annotations = [
        key
        for key in _not_for_users(annotations)
        if key != GUARDED_ANNOTATION and pod.annotations.get(key) != annotations[key]
    ]
    return _paths(new_labels, new_annotations)


def forbidden(pod: Pod, request: AdmissionRequest) -> list[str]:
    """Return the paths of the labels and annotations of a new pod that users may not write."""
    is_kubelet = NODES_GROUP in request.groups
    annotations = (_ours if is_kubelet else _not_for_users)(pod.annotations)
    return _paths(_ours(pod.labels), annotations)


def is_gated(pod: Pod) -> bool:
    """Return whether a pod has our gate."""
    return SCHEDULING_GATE in pod.scheduling_gates


def strip(
    raw: Object, pod: Pod, *, kept: Collection[str] = ()
) -> tuple[list[str], tuple[PatchOperation, ...]]:
    """Return paths of the marks that a new pod without a node may not keep, and the patch.

    There is no warning about what the gating handler itself wrote when it was asked about the pod
    before, and of very many marks about the first.

    Args:
        pod: The same, read.
        kept: Those of `GATING_METADATA` that are true.

    Raises:
        InvalidFieldError: The owners of the pod cannot be read.
        PatchTargetError: The pod has something else where labels or annotations have to be.
    """
    annotations = [one for one in _ours(pod.annotations) if one not in kept]
    uncontrolled = [] if _has_controller(raw) else _ours(pod.labels)
    labels = [one for one in uncontrolled if one not in kept]
    told = [
        [one for one in keys if one not in GATING_METADATA][:_MAX_TOLD]
        for keys in (labels, annotations)
    ]
    return _paths(*told), (
        *remove_keys(raw, ("metadata", "labels"), labels),
        *remove_keys(raw, ("metadata", "annotations"), annotations),
    )


def strip_forged(raw: Object, *, kept: Collection[str] = ()) -> tuple[PatchOperation, ...]:
    """Return the patch for marks that no user may write.

    Args:
        kept: Those of `GATING_METADATA` that are true.

    Raises:
        PatchTargetError: The pod has something else where annotations have to be.
    """
    annotations = [] if UNGATED_ANNOTATION in kept else [UNGATED_ANNOTATION]
    return remove_keys(raw, ("metadata", "annotations"), annotations)


def deny_update(
    fields: list[str], request: AdmissionRequest, configuration: Configuration
) -> Denied:
    """Refuse an update that touches our marks."""
    who = _permitted(configuration)
    gate = (
        f"{SCHEDULING_GATE} may only be removed by {who}; it goes by itself when quota is reserved"
        " for the pod: make room in the quota, or take the namespace out of deferred quota:"
        f" deferred-quota disable {request.namespace}"
    )
    mark = f"may only be added, changed or removed by {who}: leave it as it is"
    return _forbidden({field: gate if field == GATES_FIELD else mark for field in fields})


def deny_creation(fields: list[str], configuration: Configuration) -> Denied:
    """Refuse a pod that is created with a node and with our marks."""
    who = _permitted(configuration)
    mark = "may only be written by {}: remove it from the manifest"
    by = {_MIRROR_FIELD: f"the group {NODES_GROUP}"}
    return _forbidden({field: mark.format(by.get(field, who)) for field in fields})


def _forbidden(details: Mapping[str, str]) -> Denied:
    causes = tuple(
        Cause("FieldValueForbidden", field, detail)
        for field, detail in list(details.items())[:_MAX_FIELDS]
    )
    more = f"; and {len(details) - _MAX_FIELDS} more" if len(details) > _MAX_FIELDS else ""
    text = "; ".join(f"{cause.field}: {cause.message}" for cause in causes) + more
    return responses.refused(403, "Forbidden", text, causes=causes)


def _permitted(configuration: Configuration) -> str:
    groups = sorted(configuration.break_glass_groups)
    return "deferred-quota" + (f" or the group {', '.join(groups)}" if groups else "")


def _has_controller(raw: Object) -> bool:
    owners = FieldReader(raw).child("metadata").children("ownerReferences")
    return any(owner.boolean("controller") for owner in owners)


def _ours(keys: Iterable[str]) -> list[str]:
    return sorted(key for key in keys if key.startswith(MANAGED_PREFIX) or key == CAPACITY_LABEL)


def _not_for_users(annotations: Iterable[str]) -> list[str]:
    mirror = [MIRROR_ANNOTATION] if MIRROR_ANNOTATION in annotations else []
    return [*_ours(annotations), *mirror]


def _differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    return [
        key
        for key in _ours({*old, *new})
        if old.get(key) != new.get(key) and (key in new or key not in _REMOVABLE)
    ]


def _paths(labels: Iterable[str], annotations: Iterable[str]) -> list[str]:
    return [
        *(key_path(_LABELS, key) for key in labels),
        *(key_path(_ANNOTATIONS, key) for key in annotations),
    ]
