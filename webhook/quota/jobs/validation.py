"""Rules of the API server for a Job, whatever it was before.

Covered are the rules for what an update of a Job may change: numbers and policies of the spec,
labels and annotations, `resources` of containers and of the pod, node selector, node affinity,
tolerations, scheduling gates, and that the selector still selects the template. Images, volumes,
pod affinity and the like cannot change and were checked when the Job was created; what else is
wrong with a new value of them is left to the API server, which refuses it as a change at any rate.
So are annotations that mean something to a kubelet or a controller (mirror pods, seccomp, AppArmor,
the cost of deletion), owners and finalizers.

Source: kubernetes v1.36, pkg/apis/batch/validation/validation.go ValidateJobSpec and
pkg/apis/core/validation/validation.go ValidatePodTemplateSpec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, TypeAlias

from webhook.jsonfields.fields import (
    MOST_NATIVE_ERRORS,
    FieldError,
    mapping,
    sequence,
    string_map,
    text,
)
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import exceeding
from webhook.quota.charging.pod_requests import container_limits, container_requests
from webhook.quota.jobs.metadata_rules import invalid, label_errors, metadata_errors
from webhook.quota.jobs.operators import (
    label_selector_errors,
    node_affinity_errors,
    requires_values_of_no_label,
)
from webhook.quota.jobs.resource_rules import (
    Requirements,
    has_torn_pages,
    negative_amounts,
    pod_name_errors,
    read_requirements,
    requirement_errors,
)
from webhook.quota.jobs.scheduling_rules import (
    compares,
    gate_errors,
    not_supported,
    toleration_errors,
)
from webhook.quota.objects.label_selectors import read_label_selector
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import is_hugepages

_Members: TypeAlias = Mapping[str, object]

INDEXED: Final = "Indexed"
"""Completion mode in which every pod has a number."""
_MODES: Final = ("NonIndexed", INDEXED)
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_NO_COUNT: Final = -(2**63) - 1
_MOST_INDEXED: Final = 100_000
_MOST_OF_MANY: Final = 10_000
_INDEX: Final = re.compile("[0-9]+")
_INDEX_DIGITS: Final = 10
_AT_MOST: Final = "must be less than or equal to"
_NEEDS_INDEXED: Final = "requires indexed completion mode"

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


@dataclass(frozen=True, slots=True)
class Allowed:
    """Faults of a pod that pass, because the stored one has them already."""

    torn_pages: bool = False
    """Fractions of huge pages."""
    values: bool = False
    """Required nodes whose labels have a value that no label can have."""
    comparisons: bool = False
    """Tolerations that compare numbers."""


NOTHING: Final = Allowed()


def allowed_of(pod: _Members, field: str) -> Allowed:
    """Return what passes because a stored pod's spec has it."""
    root = ResourceReader(pod, field)
    every = (*_requirements(root), _overhead(root))
    return Allowed(
        any(has_torn_pages(each) for one in every for each in (one.limits, one.requests)),
        requires_values_of_no_label(root),
        compares(root),
    )


def job_errors(spec: _Members, *, selects: bool, allowed: Allowed = NOTHING) -> list[FieldError]:
    """Return what is wrong with the spec of a Job, in the API server's order.

    Of the template no more than 1,000 errors, nor of the numbers: there can be as many as bytes.

    Args:
        spec: The Job's `spec`.
        selects: Whether the Job has to have a selector.
        allowed: What passes.

    Raises:
        InvalidFieldError: A field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    template = mapping(spec.get("template"), _TEMPLATE)
    pod = mapping(template.get("spec"), f"{_TEMPLATE}.spec")
    metadata = FieldReader(template, _TEMPLATE).child("metadata")
    of_template = chain(
        metadata_errors(metadata, _TEMPLATE), pod_errors(pod, f"{_TEMPLATE}.spec", allowed=allowed)
    )
    root = FieldReader(spec, "spec")
    return [
        *islice(_count_errors(root), MOST_NATIVE_ERRORS),
        *islice(of_template, MOST_NATIVE_ERRORS),
        *_restart_errors(root, text(pod.get("restartPolicy"), f"{_TEMPLATE}.spec.restartPolicy")),
        *_selector_errors(spec, template, required=selects),
    ]


def _count_errors(spec: FieldReader) -> Iterator[FieldError]:
    for name in _COUNTS:
        count = spec.integer(name)
        if count is not None and count < 0:
            yield _invalid(spec.path(name), "must be greater than or equal to 0", str(count))
    if spec.has("maxFailedIndexes") and not spec.has("backoffLimitPerIndex"):
        yield _missing("backoffLimitPerIndex", "when maxFailedIndexes is specified")
    mode = spec.text("completionMode") if spec.has("completionMode") else _MODES[0]
    if mode == INDEXED:
        yield from _indexed_errors(spec)
    elif mode not in _MODES:
        yield not_supported("spec.completionMode", mode, _MODES)
    else:
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            yield from _above(spec, name, _NO_COUNT, _NEEDS_INDEXED)
    if spec.has("successPolicy"):
        yield from _success_errors(spec, is_indexed=mode == INDEXED)
    replacement = spec.text("podReplacementPolicy")
    supported = _REPLACEMENTS[:1] if spec.has("podFailurePolicy") else _REPLACEMENTS
    if spec.has("podReplacementPolicy") and replacement not in supported:
        yield not_supported("spec.podReplacementPolicy", replacement, supported)


def _indexed_errors(spec: FieldReader) -> Iterator[FieldError]:
    completions = spec.integer("completions")
    if completions is None:
        yield _missing("completions", f"when completion mode is {INDEXED}")
    detail = f"{_AT_MOST} {_MOST_INDEXED}"
    yield from _above(
        spec, "parallelism", _MOST_INDEXED, f"{detail} when completion mode is {INDEXED}"
    )
    if completions is not None:
        yield from _above(spec, "maxFailedIndexes", completions, f"{_AT_MOST} completions")
    yield from _above(spec, "maxFailedIndexes", _MOST_INDEXED, detail)
    if (completions or 0) <= _MOST_INDEXED or not spec.has("backoffLimitPerIndex"):
        return
    if not spec.has("maxFailedIndexes"):
        missing = f"must be specified when completions is above {_MOST_INDEXED}"
        yield _missing("maxFailedIndexes", missing)
    detail = (
        f"{_AT_MOST} {_MOST_OF_MANY} when completions are above {_MOST_INDEXED}"
        " and used with backoff limit per index"
    )
    for name in ("parallelism", "maxFailedIndexes"):
        yield from _above(spec, name, _MOST_OF_MANY, detail)


def _success_errors(spec: FieldReader, *, is_indexed: bool) -> Iterator[FieldError]:
    """Yield where completions are too few for the policy, which cannot change itself."""
    completions = spec.integer("completions")
    if not is_indexed:
        yield _invalid("spec.successPolicy", _NEEDS_INDEXED)
    elif completions is not None:
        for rule in spec.child("successPolicy").children("rules"):
            indexes = rule.text("succeededIndexes")
            counts = [(completions, "specified completions")]
            for index in _INDEX.findall(indexes):
                digits = index.lstrip("0")
                if len(digits) > _INDEX_DIGITS or int(digits or "0") >= completions:
                    detail = f'error parsing succeededIndexes: too large index: "{index}"'
                    yield invalid(rule.path("succeededIndexes"), detail, indexes)
                    counts.append((0, "indexes in the specified succeededIndexes field"))
                    break
            for most, of in counts:
                detail = f"{_AT_MOST} {most} (the number of {of})"
                yield from _above(rule, "succeededCount", most, detail)


def _above(spec: FieldReader, name: str, most: int, detail: str) -> Iterator[FieldError]:
    count = spec.integer(name)
    if count is not None and count > most:
        yield _invalid(spec.path(name), detail, str(count))


def _restart_errors(spec: FieldReader, restart: str) -> Iterator[FieldError]:
    field = f"{_TEMPLATE}.spec.restartPolicy"
    if restart == "Always":
        yield FieldError("FieldValueRequired", field, 'valid values: "OnFailure", "Never"')
    elif restart == "OnFailure" and spec.has("podFailurePolicy"):
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield _invalid(field, detail, f'"{restart}"')


def pod_errors(pod: _Members, field: str, *, allowed: Allowed = NOTHING) -> Iterator[FieldError]:
    """Yield what is wrong with the resources and the scheduling of a pod's spec at a path."""
    root = ResourceReader(pod, field)
    claims = frozenset(filter(None, (one.text("name") for one in root.children("resourceClaims"))))
    for resources in _requirements(root):
        yield from requirement_errors(
            resources, claim_names=claims, allow_torn_pages=allowed.torn_pages
        )
    if root.has("resources"):
        resources = read_requirements(root)
        yield from _pod_level_errors(resources, claims, allow_torn_pages=allowed.torn_pages)
        yield from _consistency_errors(resources, Pod.from_object({"spec": pod}, field=_TEMPLATE))
    yield from label_errors(root.string_map("nodeSelector"), f"{field}.nodeSelector")
    yield from node_affinity_errors(root, allow_values=allowed.values)
    yield from gate_errors(root)
    yield from toleration_errors(root, comparisons=allowed.comparisons)
    yield from requirement_errors(_overhead(root), allow_torn_pages=allowed.torn_pages)
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


def _missing(name: str, detail: str) -> FieldError:
    return FieldError("FieldValueRequired", f"spec.{name}", detail)


def _invalid(field: str, detail: str, value: str = "") -> FieldError:
    return FieldError("FieldValueInvalid", field, detail, value)
