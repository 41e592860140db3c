"""Steps and questions of the tests of pod queues."""

from __future__ import annotations

from typing import cast

from tests.controllers.controller_harness import (
    NAMESPACE,
    ControllerHarness,
)
from webhook.kube.api import PODS, ListOptions
from webhook.quota.queue.queued_pods import PendingReason
from webhook.state.well_known import SCHEDULING_GATE

Object = dict[str, object]


def gated(
    harness: ControllerHarness, name: str, cpu: str = "1", *others: str, **fields: object
) -> None:
    """Store a pod that waits behind our gate, and perhaps behind gates of others."""
    gates = [{"name": gate} for gate in (*others, SCHEDULING_GATE)]
    harness.pod(name, cpu, schedulingGates=gates, **fields)  # type: ignore[arg-type]


def gates(harness: ControllerHarness, name: str) -> list[str]:
    spec = cast("Object", harness.api.get(PODS, name, namespace=NAMESPACE)["spec"])
    return [str(one["name"]) for one in cast("list[Object]", spec.get("schedulingGates") or [])]


def released(harness: ControllerHarness) -> list[str]:
    """Names of the pods that were gated and are not any more, in the order of their names."""
    found = harness.api.list(PODS, ListOptions(namespace=NAMESPACE)).items
    named = {str(cast("Object", one["metadata"])["name"]) for one in found}
    return sorted(name for name in named if not gates(harness, name))


def condition(
    harness: ControllerHarness, name: str, reason: str = "Unschedulable", **status: object
) -> None:
    """Let the scheduler say that it has tried a pod in vain."""
    said = {"type": "PodScheduled", "status": "False", "reason": reason}
    patch = {"status": {"conditions": [said], **status}}
    harness.api.patch(PODS, name, patch, namespace=NAMESPACE, subresource="status")


def why(harness: ControllerHarness) -> dict[str, PendingReason]:
    """Why pods wait, as it was told last, by name."""
    _, held, _ = harness.queue_updates[-1]
    return {uid.removeprefix("uid-"): one.reason for uid, one in held.items()}
