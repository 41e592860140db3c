"""ElasticQuota and CompositeElasticQuota objects, created or changed in opted-in namespaces.

A namespace has one elastic quota: a second one is refused with the name of the first. Where that
cannot be looked up it is let pass; the controller counts the older one then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import (
    MAX_WARNINGS,
    AdmissionRequest,
    AdmissionResponse,
    Allowed,
)
from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.elastic.derived_quotas import uncharged_resources
from webhook.quota.elastic.elastic_quotas import (
    ElasticQuota,
    elastic_quota_errors,
    read_elastic_quota,
    taken_errors,
    unknown_resource_text,
    unknown_resources,
)
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

_NAMED: Final = 5
"""How many namespaces are named."""


def create(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Refuse what makes no sense, and a second quota of a namespace."""
    return _judged(context, request)


def update(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Apply the same rules to a change; one of labels and annotations passes."""
    new, old = request.object or {}, request.old_object or {}
    is_same = new.get("spec") == old.get("spec") and _labels(new) == _labels(old)
    return Allowed(decision="valid") if is_same else _judged(context, request)


def _labels(raw: Mapping[str, object]) -> object:
    metadata = raw.get("metadata")
    return metadata.get("labels") if isinstance(metadata, Mapping) else None


def _judged(context: HandlerContext, request: AdmissionRequest) -> AdmissionResponse:
    raw = {**(request.object or {}), "kind": request.kind.kind}
    errors = elastic_quota_errors(raw)
    if errors:
        return responses.invalid(errors)
    quota = read_elastic_quota(raw)
    errors = [*_taken(context, request, quota)]
    if errors:
        return responses.invalid(errors)
    return Allowed(decision="valid", warnings=tuple(_warnings(context, request, quota)))


def _taken(
    context: HandlerContext, request: AdmissionRequest, quota: ElasticQuota
) -> Iterator[FieldError]:
    """Yield an error for each namespace that has another elastic quota."""
    try:
        every = context.elastic_quotas(request.namespace)
    except ApiError:
        return
    yield from taken_errors(quota, every)


def _warnings(
    context: HandlerContext, request: AdmissionRequest, quota: ElasticQuota
) -> Iterator[str]:
    unknown = dict.fromkeys(unknown_resources(quota))
    for name in islice(unknown, MAX_WARNINGS):
        yield unknown_resource_text(name)
    uncharged = (name for name in uncharged_resources(quota) if name not in unknown)
    for name in islice(uncharged, MAX_WARNINGS):
        yield f"{name}: no bind is charged for it"
    try:
        known = context.namespaces(request.namespace)
    except (ApiError, InvalidFieldError):
        return
    outside = [
        name for name in quota.namespaces if known.get(name, {}).get(MODE_LABEL) != DEFERRED_MODE
    ]
    for name in outside[:_NAMED]:
        why = "has not opted in" if name in known else "does not exist"
        yield f"namespace {name} {why}: it is not charged"
