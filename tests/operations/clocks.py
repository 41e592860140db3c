"""API servers that tell the time, as a real one does in what it would have written."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from tests.operations.scenes import Object
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import NAMESPACES, Revision
from webhook.kube.kinds import Kind


class TellingTime(FakeClient):
    """Says of a dry run on a Namespace when which annotation would have been written."""

    def __init__(self, cluster: FakeCluster, now: datetime) -> None:
        super().__init__(cluster)
        self.now = now

    def patch(self, kind: Kind, name: str, patch: Any, **options: Any) -> Revision:
        done = super().patch(kind, name, patch, **options)
        if kind != NAMESPACES or not options.get("dry_run"):
            return done
        raw = cast("dict[str, Any]", dict(done.object))
        others = an_entry("2030-01-01T00:00:00Z", "f:labels", "f:deferredquota.io/mode")
        written = patch["metadata"].get("annotations", {})
        ours = [an_entry(f"{self.now:%Y-%m-%dT%H:%M:%SZ}", "f:annotations", f"f:{key}")
                for key in written]  # fmt: skip
        raw["metadata"] = {**raw["metadata"], "managedFields": [others, *ours]}
        return Revision(
            key=done.key,
            uid=done.uid,
            resource_version=done.resource_version,
            data=encode_json(raw),
        )


def an_entry(time: str, part: str, name: str) -> Object:
    """Say when a label or an annotation was written."""
    return {
        "manager": "somebody",
        "operation": "Update",
        "apiVersion": "v1",
        "time": time,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {part: {".": {}, name: {}}}},
    }
