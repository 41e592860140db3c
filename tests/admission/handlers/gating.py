"""New pods before the gating handler."""

from __future__ import annotations

from typing import Any, cast

from tests.admission.handlers.harness import AdmissionHarness, Reply, a_review
from tests.builders import a_pod
from webhook.state.well_known import SCHEDULING_GATE

OURS = {"name": SCHEDULING_GATE}
FOREIGN = {"name": "example.com/hold"}


def asked(
    harness: AdmissionHarness, *, dry_run: bool = False, seconds: float = 10, **fields: Any
) -> Reply:
    """Ask the mutating webhook about a pod of 1 cpu as it comes: without uid, perhaps a name."""
    pod = a_pod(**{"requests": {"cpu": "1"}, **fields})
    metadata = cast("dict[str, object]", pod["metadata"])
    metadata.pop("uid")
    reply = harness.mutate(a_review("CREATE", "pods", pod, dry_run=dry_run), seconds=seconds)
    assert reply.allowed, "a gate is no reason to refuse"
    return reply


def gates_of(reply: Reply) -> Any:
    return cast("Any", reply.object["spec"]).get("schedulingGates")
