"""Reviews that an API server sent, and the answers that are expected."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from tests.admission.reviews import recorded, recorded_names
from webhook.kube.api import PODS, RESOURCE_QUOTAS
from webhook.kube.kinds import Kind

Object = dict[str, object]
NAMESPACE = "rec"
ALLOWED: Mapping[str, str] = {
    "mutate.create.bindings": "pinned",
    "mutate.create.jobs": "not-charged",
    "mutate.create.pods-binding": "pinned",
    "mutate.create.pods-eviction": "not-charged",
    "mutate.create.resourcequotas": "not-charged",
    "mutate.delete.jobs": "not-charged",
    "mutate.delete.pods": "not-charged",
    "mutate.delete.resourcequotas": "not-charged",
    "mutate.update.jobs": "not-charged",
    "mutate.update.jobs-status": "not-charged",
    "mutate.update.pods": "not-charged",
    "mutate.update.pods-resize": "not-charged",
    "mutate.update.pods-status": "not-charged",
    "mutate.update.resourcequotas": "not-charged",
    "mutate.update.resourcequotas-status": "masked",
    "validate.create.jobs": "not-charged",
    "validate.create.pods-binding": "reserved",
    "validate.create.pods-eviction": "not-charged",
    "validate.create.resourcequotas": "valid",
    "validate.delete.jobs": "not-charged",
    "validate.delete.pods": "not-charged",
    "validate.delete.resourcequotas": "not-charged",
    "validate.update.jobs": "not-charged",
    "validate.update.jobs-status": "not-charged",
    "validate.update.pods-resize": "reserved",
    "validate.update.pods-status": "not-charged",
    "validate.update.resourcequotas": "valid",
    "validate.update.resourcequotas-status": "not-charged",
}
"""Phase, operation and resource → the decision, unless it is told apart below."""


def sent(name: str) -> Object:
    """The request of a recorded review."""
    return cast("Object", json.loads(recorded(name))["request"])


HELD: Mapping[str, object] = {"schedulingGates": [{"name": "example.com/hold"}]}
"""Instead of our gate, which the engine would take off before anybody asks."""


def held(pod: Object) -> Object:
    spec = cast("Object", pod["spec"])
    return {**pod, "spec": {**spec, **HELD}} if spec.get("schedulingGates") else pod


def stored() -> list[tuple[Kind, Object]]:
    """The pods that wait and the quotas that the reviews mention, as they were stored then."""
    pods = [
        cast("Object", sent(name)["object"])
        for name in recorded_names()
        if name.startswith("validate.create.pods.") and not sent(name).get("dryRun")
    ]
    waiting = [pod for pod in pods if not cast("Object", pod["spec"]).get("nodeName")]
    compute = cast("Object", sent("validate.update.resourcequotas.compute")["oldObject"])
    return [(PODS, held(pod)) for pod in waiting] + [(RESOURCE_QUOTAS, compute)]


REFUSED = {
    # the API server refused these itself, after the mutating webhooks
    "mutate.update.jobs.sus.3",
    "mutate.update.jobs.sus.6",
    # a person named no uid, and the webhooks that were recorded did not add it
    "validate.create.bindings.gated",
    "validate.create.pods-binding.unassigned",
}


def kinds() -> list[tuple[str, str]]:
    return [
        (name, ALLOWED[kind])
        for name in recorded_names()
        if name not in REFUSED and (kind := ".".join(name.split(".")[:3])) in ALLOWED
    ]


PODS_CREATED = {
    "assigned": "reserved",
    "podlevel": "reserved",
    "dry.dryrun": "would-reserve",
    "gated": "not-assigned",
    "gen-pod": "not-assigned",
    "sched2": "not-assigned",
    "scheduled": "not-assigned",
    "sus-pod": "not-assigned",
    "unassigned": "not-assigned",
}
