"""The status of a ResourceQuota, from which the deferred resources are hidden.

The API server's own quota check reads its limits from `status.hard`. What is not there it does not
enforce at creation, and the bind is where these doors do. Nothing here may ever fail a request:
writes of this status stand in the way of every pod creation, and a status that is not masked only
makes the platform as strict as it always was.
"""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.doors.context import DoorContext
from webhook.admission.patches import PatchTargetError, remove_keys
from webhook.admission.review import AdmissionRequest, Allowed, Answer
from webhook.quota.deferral import EXCLUDE_ANNOTATION
from webhook.quota.fields import InvalidFieldError, mapping

NOT_MASKED = Allowed(decision="not-masked")


def update(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Remove the deferred resources from what is written."""
    rules = context.current_rules()
    if request.namespace in rules.unmasked_namespaces:
        return NOT_MASKED  # guarded for as long as the API server does not enforce again
    raw = request.object or {}
    keys = sorted(rules.deferred_keys)
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
