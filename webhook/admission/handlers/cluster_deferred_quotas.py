"""ClusterDeferredQuota objects that are created or changed.

As at the handler of ResourceQuotas, an update that leaves the spec alone passes. The status has no
handler: only the product's own accounts have the right to write it, and what others write is
counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed
from webhook.config import QuotaUpdate
from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import ApiError
from webhook.policy import frozen_by
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.charging.deferral import shared_keys
from webhook.quota.objects.names import is_standard_quota_name
from webhook.quota.objects.quota_validation import changed_fields
from webhook.quota.shared.cluster_quota_validation import (
    SELECTING_FIELDS,
    cluster_quota_errors,
    cluster_quota_update_errors,
    cluster_quota_warnings,
)
from webhook.state.webhook_selectors import WebhookSelector
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

_NAMED: Final = 5
"""How many namespaces are named."""
_MOST_LIMITS: Final = 64
"""How many limits the definition allows: only a review that no API server sends has more."""
_MOST_COMPARED: Final = 2**20
"""Requirements times namespaces that are compared for a warning: 200 with 5,000."""
_LIMIT_OF: Final = "spec.hard["
_CLOSE: Final = 0.75
"""How much a name has to be like another to be taken for a slip: `gpu` is no slip of `cpu`."""


def create(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Refuse what cannot be evaluated, or is not for a quota of several namespaces."""
    wanted, keys = request.object or {}, context.policy.deferred_keys
    errors = cluster_quota_errors(wanted, keys)
    if errors:
        return responses.invalid(_with_hints(errors, keys))
    return Allowed(decision="valid", warnings=tuple(_warnings(context, wanted, keys)))


def update(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Apply the same rules to a change; a limit below what is taken is legal and worth a word."""
    new, old = request.object or {}, request.old_object or {}
    if not changed_fields(new, old):
        return Allowed(decision="valid")
    keys = context.policy.deferred_keys
    allowed = context.configuration.quota_update
    if request.username in context.policy.own_users:
        allowed = QuotaUpdate.ALLOW  # of an elastic quota, whose owner has changed it
    frozen = frozen_by(allowed, SELECTING_FIELDS)
    errors = cluster_quota_update_errors(new, old, keys, frozen=frozen)
    if errors:
        return responses.invalid(_with_hints(errors, keys))
    warnings = (*_warnings(context, new, keys), *_below_usage(new, old))
    return Allowed(decision="valid", warnings=warnings)


def _with_hints(errors: Sequence[FieldError], keys: Set[str]) -> Iterator[FieldError]:
    for index, error in enumerate(errors):
        yield _with_hint(error, keys) if index < _MOST_LIMITS else error


def _with_hint(error: FieldError, keys: Set[str]) -> FieldError:
    """Return which deferred resource may have been meant where a limit is of something else."""
    key = error.field.removeprefix(_LIMIT_OF).removesuffix("]")
    if _LIMIT_OF + key + "]" != error.field or key in keys or is_standard_quota_name(key):
        return error
    meant = _meant_by(key, keys)
    return replace(error, detail=f"is not deferred, {meant}") if meant else error


def _meant_by(key: str, keys: Set[str]) -> str:
    """Return the question whether another resource was meant; empty if none is like it."""
    close = get_close_matches(key.lower(), sorted(keys), n=1, cutoff=_CLOSE)
    return f'did you mean "{close[0]}"?' if close else ""


def _warnings(
    context: HandlerContext, wanted: Mapping[str, object], keys: Set[str]
) -> Iterator[str]:
    yield from cluster_quota_warnings(wanted, keys)
    shared = sorted(shared_keys(ResourceReader(wanted).child("spec").resource_list("hard")))
    for key in shared[:_MOST_LIMITS]:
        if key not in keys and (meant := _meant_by(key, keys)):  # it may well be one of its own
            yield f"{_LIMIT_OF}{key}]: {meant}"
    selector = WebhookSelector.read(ResourceReader(wanted).child("spec").child("namespaceSelector"))
    try:
        known = context.namespaces("")
    except (ApiError, InvalidFieldError):
        return  # a quota may be written although it is not known which namespaces it is for
    if len(selector.terms) * len(known) > _MOST_COMPARED:
        return
    exempt = context.policy.exempt_namespaces
    selected = sorted(name for name, labels in known.items() if selector.matches(labels))
    outside = [
        name
        for name in selected
        if name not in exempt and known[name].get(MODE_LABEL) != DEFERRED_MODE
    ]
    if not selected:
        yield "spec.namespaceSelector: no namespace matches now"
    for name in outside[:_NAMED]:  # one each: a warning may be 120 characters long
        yield f"namespace {name} matches and has not opted in: it is not charged"
    if len(outside) > _NAMED:
        yield f"{len(outside) - _NAMED} more namespaces match and have not opted in"


def _below_usage(new: Mapping[str, object], old: Mapping[str, object]) -> Iterable[str]:
    """Name the limits below what all namespaces hold, as far as the old status says it."""
    try:
        used = ResourceReader(old).child("status").resource_list("used")
    except InvalidFieldError:
        return ()
    hard = ResourceReader(new).child("spec").resource_list("hard")
    return [
        f"{name}: {used[name]} is taken, above the limit {limit}; no pod is evicted"
        for name, limit in sorted(hard.items())
        if used.get(name, ZERO) > limit
    ]
