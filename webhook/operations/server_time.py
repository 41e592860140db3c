"""Time by the API server's clock, which decides when a pod stops being charged.

The clock of the machine that a command runs on may be wrong, and one that is fast would count too
little. So the API server is asked, in a way that every user who may opt namespaces in and out has a
right to: a dry run of an annotation on the Namespace, whose answer says when its fields would have
been written.
"""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence, timestamp
from webhook.kube.api import NAMESPACES, ApiError, ClusterApi, Object

_PROBE: Final = "deferredquota.io/clock"
"""An annotation that is never stored."""


def server_time(api: ClusterApi, namespace: str) -> datetime | None:
    """Return a moment that is just over by the API server's clock; None if it gives none.

    It is never ahead of that clock: the second that has begun.
    """
    # an unlikely value: one that was there already would change nothing, and say when it was set
    patch = {"metadata": {"annotations": {_PROBE: secrets.token_hex(8)}}}
    try:
        found = api.patch(NAMESPACES, namespace, patch, dry_run=True).object
        return _written_at(found)
    except (ApiError, InvalidFieldError):
        return None


def _written_at(namespace: Object) -> datetime | None:
    """Return when the annotation was set, as `metadata.managedFields` says."""
    metadata = mapping(namespace.get("metadata"), "metadata")
    path = "metadata.managedFields"
    for item in sequence(metadata.get("managedFields"), path):
        entry = mapping(item, path)
        fields = mapping(entry.get("fieldsV1"), f"{path}.fieldsV1")
        of_metadata = mapping(fields.get("f:metadata"), f"{path}.fieldsV1.f:metadata")
        if f"f:{_PROBE}" in mapping(of_metadata.get("f:annotations"), f"{path}.f:annotations"):
            return timestamp(entry.get("time"), f"{path}.time")
    return None
