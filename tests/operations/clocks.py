"""API servers that tell the time, as a real one does in what it would have written."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from tests.operations.scenes import Object
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.fakecluster.storage import FakeCluster
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import NAMESPACES, Revision


def telling_time(cluster: FakeCluster, now: datetime) -> ReactiveClient:
    """Return a client whose dry runs on a Namespace show when annotations would be written."""

    def with_times(call: Call, proceed: Proceed) -> Revision:
        done: Revision = proceed()
        if not call.dry_run:
            return done
        raw = cast("dict[str, Any]", dict(done.object))
        others = an_entry("2030-01-01T00:00:00Z", "f:labels", "f:deferredquota.io/mode")
        written = call.body["metadata"].get("annotations", {})
        time = f"{now:%Y-%m-%dT%H:%M:%SZ}"
        ours = [an_entry(time, "f:annotations", f"f:{key}") for key in written]
        raw["metadata"] = {**raw["metadata"], "managedFields": [others, *ours]}
        return replace(done, data=encode_json(raw))

    client = ReactiveClient(cluster)
    client.on("patch", NAMESPACES, with_times)
    return client


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
