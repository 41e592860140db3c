"""Rules of the API server for a Job, whatever it was before.

Covered are the rules for what an update of a Job may change: numbers of the spec, `resources`
of containers and of the pod, operators of node affinity, and that the selector still selects the
template. Names, images,
volumes and the like cannot change and were checked when the Job was created.

Source: kubernetes v1.36, pkg/apis/batch/validation/validation.go ValidateJobSpec and
pkg/apis/core/validation/validation.go ValidatePodTemplateSpec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, TypeAlias

from webhook.jsonfields.fields import (
    MOST_NATIVE_ERRORS,
    FieldError,
    mapping,
    sequence,
    string_map,
)
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import exceeding
from webhook.quota.charging.pod_requests import container_limits, container_requests
from webhook.quota.jobs.operators import label_selector_errors, node_affinity_errors
from webhook.quota.jobs.resource_rules import (
    Requirements,
    has_torn_pages,
    negative_amounts,
    pod_name_errors,
    read_requirements,
    requirement_errors,
)
from webhook.quota.objects.label_selectors import read_label_selector
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import is_hugepages

_Members: TypeAlias = Mapping[str, object]

INDEXED: Final = "Indexed"
"""Completion mode in which every pod has a number."""

_TEMPLATE: Final = "spec.template"
_COUNTS: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def job_errors(spec: _Members, *, selects: bool, allow_torn_pages: bool) -> list[FieldError]:
    """Return what is wrong with the spec of a Job, in the API server's order.

    Of the pod no more than 1,000 errors: it can have as many as it has bytes.

    Args:
        spec: The Job's `spec`.
        selects: Whether the Job has to have a selector.
        allow_torn_pages: See `requirement_errors`.

    Raises:
        InvalidFieldError: A field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    template = mapping(spec.get("template"), _TEMPLATE)
    pod = mapping(template.get("spec"), f"{_TEMPLATE}.spec")
    of_pod = pod_errors(pod, f"{_TEMPLATE}.spec", allow_torn_pages=allow_torn_pages)
    return [
        *_count_errors(FieldReader(spec, "spec")),
        *islice(of_pod, MOST_NATIVE_ERRORS),
        *_selector_errors(spec, template, required=selects),
    ]


def uses_torn_pages(pod: _Members, field: str) -> bool:
    """Return whether a container or the overhead has a fraction of a huge page."""
    root = ResourceReader(pod, field)
    every = (*_requirements(root), _overhead(root))
    return any(has_torn_pages(each) for one in every for each in (one.limits, one.requests))


def _count_errors(spec: FieldReader) -> Iterator[FieldError]:
    for name in _COUNTS:
        count = spec.integer(name)
        if count is not None and count < 0:
            yield _invalid(spec.path(name), "must be greater than or equal to 0", str(count))
    if spec.text("completionMode") == INDEXED and not spec.has("completions"):
        detail = f"when completion mode is {INDEXED}"
        yield FieldError("FieldValueRequired", "spec.completions", detail)


def pod_errors(pod: _Members, field: str, *, allow_torn_pages: bool) -> Iterator[FieldError]:
    """Yield what is wrong with the resources and the node affinity of a pod's spec at a path."""
    root = ResourceReader(pod, field)
    claims = frozenset(filter(None, (one.text("name") for one in root.children("resourceClaims"))))
    for resources in _requirements(root):
        yield from requirement_errors(
            resources, claim_names=claims, allow_torn_pages=allow_torn_pages
        )
    if root.has("resources"):
        resources = read_requirements(root)
        yield from _pod_level_errors(resources, claims, allow_torn_pages=allow_torn_pages)
        yield from _consistency_errors(resources, Pod.from_object({"spec": pod}, field=_TEMPLATE))
    yield from node_affinity_errors(pod, field)
    yield from requirement_errors(_overhead(root), allow_torn_pages=allow_torn_pages)
    if sequence(pod.get("ephemeralContainers"), f"{field}.ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        yield FieldError("FieldValueForbidden", f"{field}.ephemeralContainers", detail)


def negative_errors(pod: _Members, field: str) -> Iterator[FieldError]:
    """Yield which amounts of a pod's spec at a path are below zero; errors as in `pod_errors`."""
    root = ResourceReader(pod, field)
    for resources in (*_requirements(root), read_requirements(root), _overhead(root)):
        yield from negative_amounts(resources)


def _pod_level_errors(
    resources: Requirements, claims: frozenset[str], *, allow_torn_pages: bool
) -> Iterator[FieldError]:
    if resources.claims is not None:
        detail = "claims may not be set for Resources at pod-level"
        yield FieldError("FieldValueForbidden", f"{resources.field}.claims", detail)
    yield from requirement_errors(
        resources,
        claim_names=claims,
        allow_torn_pages=allow_torn_pages,
        name_errors=pod_name_errors,
    )


def _consistency_errors(resources: Requirements, pod: Pod) -> Iterator[FieldError]:
    """Yield where containers ask for more than the pod as a whole.

    Source: kubernetes v1.36, pkg/apis/core/validation/validation.go
    validatePodResourceConsistency, which builds the odd path of the last rule.
    """
    requests, limits = container_requests(pod), container_limits(pod)
    for name in exceeding(requests, resources.requests):
        detail = (
            f"must be greater than or equal to aggregate container requests of {requests[name]}"
        )
        field = f"{resources.field}.requests[{name}]"
        yield _invalid(field, detail, f'"{resources.requests[name]}"')
    for name in filter(is_hugepages, exceeding(limits, resources.limits)):
        detail = f"must be greater than or equal to aggregate container limits of {limits[name]}"
        field = f"{resources.field}.limits[{name}]"
        yield _invalid(field, detail, f'"{resources.limits[name]}"')
    for index, container in enumerate(pod.containers):
        for name in exceeding(container.limits, resources.limits):
            detail = f"must be less than or equal to pod limits of {resources.limits[name]}"
            field = f"{resources.field}.containers[{index}][{name}].limits"
            yield _invalid(field, detail, f'"{container.limits[name]}"')


def _selector_errors(spec: _Members, template: _Members, *, required: bool) -> Iterator[FieldError]:
    selector = read_label_selector(spec.get("selector"), "spec.selector")
    if selector is None and not required:
        return
    path = f"{_TEMPLATE}.metadata"
    metadata = mapping(template.get("metadata"), path)
    labels = string_map(metadata.get("labels"), f"{path}.labels")
    if selector is None:
        yield FieldError("FieldValueRequired", "spec.selector", "")
    yield from label_selector_errors(spec.get("selector"), "spec.selector")
    if selector is None or (selector.is_valid and not selector.matches(labels)):
        yield _invalid(f"{path}.labels", "`selector` does not match template `labels`")


def _requirements(pod: ResourceReader) -> Iterator[Requirements]:
    for name in ("containers", "initContainers"):
        yield from map(read_requirements, pod.children(name))


def _overhead(pod: ResourceReader) -> Requirements:
    return Requirements(pod.path("overhead"), {}, pod.resource_list("overhead"))


def _invalid(field: str, detail: str, value: str = "") -> FieldError:
    return FieldError("FieldValueInvalid", field, detail, value)
