"""Read pods to keep very many of them: only what they are charged by, equal parts shared.

Of a pod that waits for a node, what its place in the line depends on is kept as well.

Pods of one template differ in name, node and a few times, and agree in all that they are charged
for. That part is read once for all of them, which saves more time than memory.

Caches hold the pods of every namespace, and the creators of pods decide how large they are: a
pod of 1.5 MiB must not take much more room here than any other. So labels are dropped and
annotations, but for two of them; gates and containers beyond some number are kept as summaries that
are judged like all of them; of very many resources only those that Kubernetes itself defines are
kept (`pods.charged_to`); a large template is not remembered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeVar

from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList, mask
from webhook.quota.charging.deferral import EXCLUDE_ANNOTATION
from webhook.quota.charging.pod_usage import (
    init_containers_in_force,
    is_terminal,
    usage_of,
)
from webhook.quota.objects.model import (
    MIRROR_ANNOTATION,
    Container,
    ContainerStatus,
    Pod,
    PodResources,
    PodStatusResources,
    ResourceQuota,
    is_bind_refused,
    is_in_group,
    is_nominated,
    is_reported_unreserved,
    is_unplaced,
    node_name_of,
)
from webhook.quota.objects.names import (
    MAX_LABEL_BYTES,
    MAX_NAME_BYTES,
    UNGATED_ANNOTATION,
    is_hugepages,
)
from webhook.quota.objects.pod_templates import template_key
from webhook.quota.objects.quota_bounds import within_bounds

_OUR_PREFIX: Final = "deferredquota.io/"
_TEMPLATES: Final = 512
_SPEC_FIELDS: Final = (
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "activeDeadlineSeconds",
    "overhead",
    "resources",
    "schedulingGates",
    "affinity",
)
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy")
_STATUS_FIELDS: Final = ("phase", "qosClass")
_TOKEN_LENGTH: Final = 64
MAX_KEPT_GATES: Final = 8
"""A pod with more gates keeps ours first, and so many of the others, which say why it waits."""
_CONTAINERS: Final = 32
"""A pod with more of them keeps summaries."""
_AMOUNTS: Final = 96
"""A pod whose containers state more of them keeps summaries."""
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_STATED: Final = ("cpu", "memory")
_LONGEST_NAME: Final = MAX_NAME_BYTES + 1 + MAX_LABEL_BYTES
"""That of a resource, with its prefix."""
_POD_BYTES: Final = 1000
_NAME_BYTES: Final = 200
"""What stands beside a name takes: a container, the amount of a resource."""
_Reported = TypeVar("_Reported", ContainerStatus, PodStatusResources)
_Asking = TypeVar("_Asking", Container, PodResources, ContainerStatus, PodStatusResources)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_NO_STATUSES: Final[Mapping[str, ContainerStatus]] = MappingProxyType({})
_MIRROR: Final[Mapping[str, str]] = MappingProxyType({MIRROR_ANNOTATION: ""})


def compact_pod(raw: Mapping[str, object]) -> Pod:
    """Read a pod as `Pod.from_stored` does, to be kept.

    Labels and annotations are left out, of a pod with a node also the prefix of a generated name
    and the time of creation; that it is a mirror pod is not, nor that it was let through. What it
    is charged, and which scopes select it, is the same.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity for the API server either.
    """
    key = _template_key(raw)
    try:
        shared = None if key is None else _template(key)
    except InvalidFieldError:
        shared = None  # the whole object says where the field is
    return without_unused(Pod.from_stored(raw)) if shared is None else _like(shared, raw)


def without_unused(
    pod: Pod,
    *,
    labels: Mapping[str, str] = _NOTHING,
    annotations: Mapping[str, str] = _NOTHING,
) -> Pod:
    """Return a pod that was read as a whole with no more than what is kept of one.

    Args:
        labels: Those that are kept.
        annotations: Those that are kept beside the usual ones.
    """
    if pod.has_many_names:
        pod = _with_compute_only(pod)
    usage = None if is_terminal(pod) else usage_of(pod, now=None)
    kept = replace(
        pod,
        generate_name="" if pod.is_assigned else pod.generate_name,
        created=None if pod.is_assigned else pod.created,
        labels=labels,
        annotations={
            **annotations,
            **_annotations_of(pod.annotations, is_assigned=pod.is_assigned),
        }
        or _NOTHING,
        scheduling_gates=_gates_of(pod.scheduling_gates),
    )
    # of a pod with news about a resize the sum has to be worked out again, container by container
    has_resized = pod.resize_infeasible or pod.resize_verdict_outdated
    is_larger_in_force = init_containers_in_force(pod) is not pod.init_containers
    has_news = pod.reported is not None or has_resized or is_larger_in_force
    if not has_news and _is_large((*pod.containers, *pod.init_containers)):
        kept = replace(
            kept,
            containers=_summaries(pod.containers),
            init_containers=_summaries(pod.init_containers),
            statuses=_NO_STATUSES,  # they are in the usage
            summarized_usage=usage,
        )
    if usage is not None:
        object.__setattr__(kept, "_usage", usage)
    return kept


def new_pod_size(pod: Pod) -> int | None:
    """Return roughly how many bytes a new pod takes; it has no status.

    None where one of its names is longer than the API server stores: no pod is validated before it
    comes to a webhook, nor is the review of another client than the API server.

    Args:
        pod: The pod as `without_unused` returns it.
    """
    lengths = list(map(len, _names(pod)))
    if max(lengths) > _LONGEST_NAME:
        return None
    return _POD_BYTES + sum(lengths) + _NAME_BYTES * len(lengths)


def _names(pod: Pod) -> Iterator[str]:
    yield from (pod.namespace, pod.name, pod.generate_name, pod.uid, pod.resource_version)
    yield from (pod.phase, pod.priority_class_name, *pod.scheduling_gates, *pod.overhead)
    yield from (*pod.labels, *pod.annotations)
    for one in (*pod.containers, *pod.init_containers):
        yield from (one.name, *one.requests, *one.limits)
    if pod.resources is not None:
        yield from (*pod.resources.requests, *pod.resources.limits)


def compact_quota(raw: Mapping[str, object]) -> ResourceQuota:
    """Read a quota as `ResourceQuota.from_stored` does, to be kept.

    Of its annotations only ours are kept, and of very many limits those that pods are charged for.

    Raises:
        InvalidFieldError: A field that is read has the wrong type, or it is beyond the bounds of
            `within_bounds`.
        InvalidQuantityError: An amount is not a quantity for the API server either.
    """
    quota = ResourceQuota.from_stored(raw)
    kept = within_bounds(quota)
    ours = quota.annotations.get(EXCLUDE_ANNOTATION)
    annotations = _NOTHING if ours != "true" else {EXCLUDE_ANNOTATION: ours}
    if kept is quota:
        return replace(quota, annotations=annotations)
    return kept.with_limits(
        kept.hard,
        status_hard=kept.status_hard,
        status_used=kept.status_used,
        annotations=annotations,
    )


def _template_key(raw: Mapping[str, object]) -> bytes | None:
    """Return all of a pod that others may share, as JSON; None if it stands for itself."""
    status = raw.get("status")
    if type(status) is not dict or _has_resize_news(status):
        return None
    return template_key(raw, _SPEC_FIELDS, _CONTAINER_FIELDS, _STATUS_FIELDS)


def _has_resize_news(status: dict[str, object]) -> bool:
    """Return whether a condition may be about a resize: that is read beside the metadata."""
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
    return without_unused(Pod.from_stored(raw))


def _like(shared: Pod, raw: Mapping[str, object]) -> Pod:
    """Return the pod that `raw` is, with the parts of its template."""
    node = ResourceReader(raw)
    meta, spec, status = node.child("metadata"), node.child("spec"), node.child("status")
    node_name = node_name_of(spec)
    pod = Pod(
        namespace=sys.intern(meta.text("namespace")),
        name=meta.text("name"),
        generate_name="" if node_name else sys.intern(meta.text("generateName")),
        uid=meta.text("uid"),
        resource_version=meta.text("resourceVersion"),
        created=None if node_name else meta.timestamp("creationTimestamp"),
        labels=_NOTHING,
        annotations=_annotations_of(meta.string_map("annotations"), is_assigned=node_name != ""),
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
        reported=shared.reported,
        never_preempts=shared.never_preempts,
        in_group=is_in_group(spec),
        has_many_names=shared.has_many_names,
        is_unplaced=is_unplaced(spec, status),
        is_nominated=is_nominated(spec, status),
        is_bind_refused=is_bind_refused(spec, status),
        is_reported_unreserved=is_reported_unreserved(status),
        summarized_usage=shared.summarized_usage,
    )
    object.__setattr__(pod, "_usage", shared._usage)  # noqa: SLF001 - of the very same parts
    return pod


def _annotations_of(annotations: Mapping[str, str], *, is_assigned: bool) -> Mapping[str, str]:
    """Return those that something is decided by; a pod with a node was seen long before."""
    token = "" if is_assigned else annotations.get(UNGATED_ANNOTATION, "")
    is_mirror = MIRROR_ANNOTATION in annotations
    if not token or len(token) > _TOKEN_LENGTH:
        return _MIRROR if is_mirror else _NOTHING
    return {**(_MIRROR if is_mirror else _NOTHING), UNGATED_ANNOTATION: token}


def _gates_of(gates: tuple[str, ...]) -> tuple[str, ...]:
    """Return our gate, if it is among them, and some of the others; all where there are few."""
    if len(gates) <= MAX_KEPT_GATES:
        return gates
    ours = [name for name in gates if name.startswith(_OUR_PREFIX)][:MAX_KEPT_GATES]
    return (*ours, *[name for name in gates if name not in ours][:MAX_KEPT_GATES])


def _is_large(containers: Sequence[Container]) -> bool:
    amounts = sum([len(one.requests) + len(one.limits) for one in containers])
    return len(containers) > _CONTAINERS or amounts > _AMOUNTS


def _with_compute_only(pod: Pod) -> Pod:
    """Return the pod without resources of vendors and huge pages: there can be any number."""
    whole, reported = pod.resources, pod.reported
    return replace(
        pod,
        containers=tuple(map(_compute_of, pod.containers)),
        init_containers=tuple(map(_compute_of, pod.init_containers)),
        overhead=mask(pod.overhead, _COMPUTE),
        resources=None if whole is None else _compute_of(whole, *_first_names(whole)),
        statuses={name: _compute_reported(one) for name, one in pod.statuses.items()},
        reported=None if reported is None else _compute_reported(reported),
    )


def _compute_of(one: _Asking, *others: str) -> _Asking:
    names = (*_COMPUTE, *others)
    return replace(one, requests=mask(one.requests, names), limits=mask(one.limits, names))


def _first_names(whole: PodResources) -> tuple[str, ...]:
    """Return one size of huge pages of each list: a pod as a whole may state nothing else."""
    lists = (whole.requests, whole.limits)
    return tuple([name for amounts in lists for name in [*filter(is_hugepages, amounts)][:1]])


def _compute_reported(one: _Reported) -> _Reported:
    return replace(_compute_of(one), allocated=mask(one.allocated, _COMPUTE))


def _summaries(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """Return one container for all that state the same of cpu and memory, whatever the amounts.

    The QoS class and what a container has to specify depend on what is stated, on what is above
    zero, and on the sums; the charge of the pod is worked out before.
    """
    groups: dict[tuple[object, ...], list[Container]] = {}
    for one in containers:
        key = (_stated(one.requests), _stated(one.limits))
        groups.setdefault(key, []).append(one)
    return tuple([_summary(members) for members in groups.values()])


def _stated(amounts: ResourceList) -> tuple[int | None, ...]:
    return tuple(
        [None if (amount := amounts.get(name)) is None else amount.sign for name in _STATED]
    )


def _summary(members: list[Container]) -> Container:
    first = members[0]
    others = f" and {len(members) - 1} more" if len(members) > 1 else ""
    return Container(
        f"{first.name}{others}",
        _total([one.requests for one in members]),
        _total([one.limits for one in members]),
        first.restartable,
    )


def _total(lists: list[ResourceList]) -> dict[str, Quantity]:
    """Sum what all of these state, or none does."""
    return {
        name: sum((amounts[name] for amounts in lists), ZERO)
        for name in _STATED
        if name in lists[0]
    }
