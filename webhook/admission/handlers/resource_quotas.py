"""ResourceQuota objects that are created or changed, and the mask of their status.

Unknown priority classes, several quotas for the same pods, and deletions are allowed. So is every
update that leaves the spec alone, whatever the quota is like: metadata has to stay writable,
finalizers above all.

When a status is written, the deferred resources are removed from it: the API server's own quota
check reads its limits from `status.hard`, and does not enforce at creation what is not there; these
handlers do at the bind. The mask may never fail a request: every pod creation writes this status,
and an unmasked status only makes the API server as strict as without deferral.
"""

from __future__ import annotations

from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.patch_builder import PatchTargetError, remove_keys
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed
from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.policy import frozen_by
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.charging.deferral import EXCLUDE_ANNOTATION
from webhook.quota.ledger.ledger import Account
from webhook.quota.objects.compact import compact_quota
from webhook.quota.objects.model import ResourceQuota
from webhook.quota.objects.quota_bounds import MOST_QUOTAS, too_many_text
from webhook.quota.objects.quota_validation import (
    SCOPE_FIELDS,
    changed_fields,
    quota_errors,
    quota_update_errors,
)

_STOPS: Final = "nothing is bound in this namespace: "
NOT_MASKED = Allowed(decision="not-masked")


def create(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Refuse a quota that would break every pod creation, or be stored as another one."""
    errors = quota_errors(request.object or {})
    if errors:
        return responses.invalid(errors)
    count = len(context.view.quotas(request.namespace).all_quotas) + 1
    warnings = (f"{_STOPS}{too_many_text()}",) if count > MOST_QUOTAS else ()
    try:
        compact_quota(request.object or {})
    except InvalidFieldError as err:
        warnings = (f"{_STOPS}{err}",)
    return Allowed(decision="valid", warnings=warnings)


def update(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Apply the same rules to a change; a limit below what is taken is legal and worth a word."""
    new, old = request.object or {}, request.old_object or {}
    if not changed_fields(new, old):
        return Allowed(decision="valid")
    frozen = frozen_by(context.configuration.quota_update, SCOPE_FIELDS)
    errors = quota_update_errors(new, old, frozen=frozen)
    if errors:
        return responses.invalid(errors)
    known = context.view.ledger(request.namespace)
    if known is None or known.ledger is None:
        return Allowed(decision="valid")
    account = known.ledger.accounts.get(request.name)
    # as stored: amounts in the status that are too large to be counted must not prevent a change
    warnings = _below_usage(ResourceQuota.from_stored(new), account) if account else ()
    return Allowed(decision="valid", warnings=warnings)


def update_status(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Remove the deferred resources from a status that is written."""
    policy = context.policy
    if request.namespace in policy.unmasked_namespaces:
        return NOT_MASKED  # still guarded, until the API server enforces the quotas again
    raw = request.object or {}
    keys = sorted(policy.deferred_keys - policy.unmasked_keys)
    try:
        metadata = mapping(raw.get("metadata"), "metadata")
        annotations = mapping(metadata.get("annotations"), "metadata.annotations")
        if annotations.get(EXCLUDE_ANNOTATION) == "true":
            return NOT_MASKED
        patch = (
            *remove_keys(raw, ("status", "hard"), keys),
            *remove_keys(raw, ("status", "used"), keys),
        )
    except (InvalidFieldError, PatchTargetError):
        return NOT_MASKED
    return Allowed(decision="masked", patch=patch) if patch else NOT_MASKED


def _below_usage(quota: ResourceQuota, account: Account) -> tuple[str, ...]:
    taken = {
        name: account.used.get(name, ZERO) + account.reserved.get(name, ZERO)
        for name in quota.hard
        if name in account.used or name in account.reserved
    }
    return tuple(
        f"{name}: {amount} is taken, above the limit {quota.hard[name]}; no pod is evicted"
        for name, amount in sorted(taken.items())
        if amount > quota.hard[name]
    )
