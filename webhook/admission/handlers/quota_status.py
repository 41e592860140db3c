"""The status of a ResourceQuota, from which the deferred resources are hidden.

The API server's own quota check reads its limits from `status.hard`. What is not there it does not
enforce at creation, and the bind is where these handlers do. Nothing here may ever fail a request:
writes of this status stand in the way of every pod creation, and a status that is not masked only
makes the platform as strict as it always was.
"""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.patch_builder import PatchTargetError, remove_keys
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed
from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.quota.charging.deferral import EXCLUDE_ANNOTATION

NOT_MASKED = Allowed(decision="not-masked")


def update(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Remove the deferred resources from what is written."""
    policy = context.policy
    if request.namespace in policy.unmasked_namespaces:
        return NOT_MASKED  # guarded for as long as the API server does not enforce again
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
