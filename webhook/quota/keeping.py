"""Read pods to keep very many of them: only what they are charged by, equal parts shared.

Of a pod that waits for a node, what its place in the line depends on is kept as well.

Pods of one template differ in name, node and a few times, and agree in all that they are charged
for. That part is read once for all of them, which saves more time than memory.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from webhook.encoding import InvalidJsonError, decode_json, encode_json
from webhook.quota.fields import InvalidFieldError
from webhook.quota.objects import MIRROR_ANNOTATION, Pod, is_unplaced
from webhook.quota.pods import usage_of
from webhook.quota.reading import Node

_TEMPLATES: Final = 2048
_OF_ITS_OWN: Final = {"conditions": None, "nominatedNodeName": None}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_MIRROR: Final[Mapping[str, str]] = MappingProxyType({MIRROR_ANNOTATION: ""})


def kept_pod(raw: Mapping[str, object]) -> Pod:
    """Read a pod as `Pod.from_object` does, to be kept.

    Labels, annotations and the prefix of a generated name are left out, of a pod with a node also
    the time of creation; that it is a mirror pod is not. What it is charged, and which scopes
    select it, is the same.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    key = _template_key(raw)
    try:
        shared = None if key is None else _template(key)
    except InvalidFieldError:
        shared = None  # the whole object says where the field is
    return _without_words(Pod.from_object(raw)) if shared is None else _like(shared, raw)


def _template_key(raw: Mapping[str, object]) -> bytes | None:
    """Return all of a pod that others may share, as JSON; None if it stands for itself."""
    spec, status = raw.get("spec"), raw.get("status")
    if type(spec) is not dict or type(status) is not dict or _has_resize_news(status):
        return None
    try:
        return encode_json(
            {"spec": {**spec, "nodeName": None}, "status": {**status, **_OF_ITS_OWN}}
        )
    except InvalidJsonError:
        return None


def _has_resize_news(status: dict[str, object]) -> bool:
    """Say whether a condition may be about a resize: that is read beside the metadata."""
    conditions = status.get("conditions")
    if conditions is None:
        return False
    return type(conditions) is not list or any(map(_may_be_about_resize, conditions))


def _may_be_about_resize(condition: object) -> bool:
    if type(condition) is not dict:
        return True
    kind = condition.get("type")
    return type(kind) is not str or kind == "PodResizePending"


@lru_cache(maxsize=_TEMPLATES)
def _template(key: bytes) -> Pod:
    """Read a pod that has no metadata and no node, and what it would be charged."""
    raw = decode_json(key)
    assert isinstance(raw, dict)  # noqa: S101 - only this module makes keys
    pod = Pod.from_object(raw)
    usage_of(pod, now=None)  # which the pod keeps
    return pod


def _like(shared: Pod, raw: Mapping[str, object]) -> Pod:
    """Return the pod that `raw` is, with the parts of its template."""
    node = Node(raw)
    meta, spec = node.child("metadata"), node.child("spec")
    node_name = spec.text("nodeName")
    pod = Pod(
        namespace=sys.intern(meta.text("namespace")),
        name=meta.text("name"),
        generate_name="",
        uid=meta.text("uid"),
        resource_version=meta.text("resourceVersion"),
        created=None if node_name else meta.timestamp("creationTimestamp"),
        labels=_NOTHING,
        annotations=_words(meta.string_map("annotations")),
        deletion_timestamp=meta.timestamp("deletionTimestamp"),
        deletion_grace_period_seconds=meta.integer("deletionGracePeriodSeconds"),
        node_name=sys.intern(node_name),
        priority=shared.priority,
        priority_class_name=shared.priority_class_name,
        active_deadline_seconds=shared.active_deadline_seconds,
        containers=shared.containers,
        init_containers=shared.init_containers,
        overhead=shared.overhead,
        resources=shared.resources,
        scheduling_gates=shared.scheduling_gates,
        cross_namespace_affinity=shared.cross_namespace_affinity,
        phase=shared.phase,
        qos_class=shared.qos_class,
        resize_infeasible=shared.resize_infeasible,
        resize_verdict_outdated=shared.resize_verdict_outdated,
        statuses=shared.statuses,
        is_unplaced=is_unplaced(spec, node.child("status")),
    )
    object.__setattr__(pod, "_usage", shared._usage)  # noqa: SLF001 - of the very same parts
    return pod


def _without_words(pod: Pod) -> Pod:
    return replace(
        pod,
        generate_name="",
        created=None if pod.is_assigned else pod.created,
        labels=_NOTHING,
        annotations=_words(pod.annotations),
    )


def _words(annotations: Mapping[str, str]) -> Mapping[str, str]:
    return _MIRROR if MIRROR_ANNOTATION in annotations else _NOTHING
