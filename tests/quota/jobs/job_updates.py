"""A stored Job and changes of it, for tests of Job updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import TypeAlias, cast

from tests.builders import Object, a_container, a_job, a_sidecar
from webhook.jsonfields.fields import FieldError

Change: TypeAlias = Callable[[Object], None]

STARTED = "2026-06-01T12:00:00Z"
TEMPLATE = "spec.template"
SPEC = "spec.template.spec"
MAIN = f"{SPEC}.containers[0].resources"
SETUP = f"{SPEC}.initContainers[0].resources"


def a_stored_job(**status: object) -> Object:
    """A suspended Job with every part of a template that the rules speak of."""
    return a_job(
        a_container(
            requests={"cpu": "500m", "memory": "1Gi"},
            limits={"cpu": "1", "memory": "1Gi"},
            env=[{"name": "MODE", "value": "fast"}],
        ),
        a_container("side", requests={"cpu": "100m"}),
        status=status,
        labels={"app": "train"},
        template_spec={
            "initContainers": [
                a_container("setup", requests={"cpu": "100m"}, limits={"cpu": "200m"}),
                a_sidecar("proxy", requests={"cpu": "50m"}),
            ],
            "nodeSelector": {"zone": "a"},
            "resourceClaims": [
                {"name": "c1", "resourceClaimName": "one"},
                {"name": "c2", "resourceClaimName": "two"},
            ],
            "schedulerName": "default-scheduler",
            "securityContext": {},
        },
        selector={"matchLabels": {"app": "train"}},
        parallelism=2,
        completions=4,
        completionMode="NonIndexed",
    )


def updated(job: Object, *changes: Change) -> Object:
    """A copy of the Job with the changes made."""
    copy = deepcopy(job)
    for change in changes:
        change(copy)
    return copy


def at(job: object, path: str) -> Object:
    """The object at a path such as `spec.template.spec.containers.0`; the whole at none."""
    here = job
    for step in filter(None, path.split(".")):
        here = here[int(step)] if isinstance(here, list) else cast("Object", here)[step]
    return cast("Object", here)


def put(path: str, value: object) -> Change:
    """Set a field, making the objects on its way."""

    def change(job: Object) -> None:
        *way, last = path.split(".")
        here: object = job
        for step in way:
            if isinstance(here, list):
                here = here[int(step)]
            else:
                here = cast("Object", here).setdefault(step, {})
        cast("Object", here)[last] = deepcopy(value)

    return change


def drop(path: str) -> Change:
    """Remove a field."""
    way, _, last = path.rpartition(".")

    def change(job: Object) -> None:
        del at(job, way)[last]

    return change


def change_list(path: str, edit: Callable[[list[object]], object]) -> Change:
    """Change a list in place."""

    def change(job: Object) -> None:
        edit(cast("list[object]", at(job, path)))

    return change


def resources_of(
    container: str, *, requests: Mapping[str, str], limits: Mapping[str, str] | None = None
) -> Change:
    """Set the resources of a container, named as in `containers.0`."""
    return put(
        f"{SPEC}.{container}.resources", {"requests": dict(requests), "limits": dict(limits or {})}
    )


def every(*changes: Change) -> Change:
    """One change out of several."""

    def change(job: Object) -> None:
        for each in changes:
            each(job)

    return change


def immutable(field: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, "field is immutable")


def invalid(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, detail)


def twice(errors: Iterable[FieldError]) -> list[FieldError]:
    """The list, then the list again: the API server validates a new Job two times."""
    once = list(errors)
    return once + once


FIRST = f"{SPEC}.containers.0"
"""Path of the first container, as `put` takes it."""


IMAGE = {"name": "model", "image": {"reference": "registry.example/model:1"}}


MOUNT = {"name": "model", "mountPath": "/model"}


def first_of(path: str, name: str, value: object) -> Change:
    """Set a field of the first object of a list, which has to be there."""
    return change_list(path, lambda items: cast("Object", items[0]).update({name: value}))


DROPPABLE: Mapping[str, Change] = {
    "resources of the pod": put(f"{SPEC}.resources", {"requests": {"cpu": "2"}}),
    "resources of the pod that are at fault": put(f"{SPEC}.resources", {"requests": {"x": "2"}}),
    "resource claims": every(
        put(f"{SPEC}.resourceClaims", [{"name": "c"}]), put(f"{FIRST}.resources.claims", [{}])
    ),
    "host users": put(f"{SPEC}.hostUsers", False),
    "a host name": put(f"{SPEC}.hostnameOverride", "a"),
    "a scheduling group": put(f"{SPEC}.schedulingGroup", {"podGroupName": "a"}),
    "a policy of groups": put(f"{SPEC}.securityContext.supplementalGroupsPolicy", "Strict"),
    "resize policies": put(f"{FIRST}.resizePolicy", [{"resourceName": "cpu"}]),
    "a restart policy of a container": put(f"{FIRST}.restartPolicy", "Never"),
    "a sidecar": first_of(f"{SPEC}.initContainers", "restartPolicy", "Always"),
    "a stop signal, alone in a lifecycle": put(f"{FIRST}.lifecycle", {"stopSignal": "SIGUSR1"}),
    "a sleep, alone in a lifecycle": put(f"{FIRST}.lifecycle.preStop", {"sleep": {"seconds": 1}}),
    "mounts": first_of(f"{FIRST}.volumeMounts", "recursiveReadOnly", "Enabled"),
    "what /proc is": put(f"{FIRST}.securityContext.procMount", "Unmasked"),
    "policies of a spread": first_of(
        f"{SPEC}.topologySpreadConstraints", "nodeTaintsPolicy", "Honor"
    ),
    "keys of an affinity": first_of(
        f"{SPEC}.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        "matchLabelKeys",
        ["a"],
    ),
    "an image for a volume, and its mount": every(
        change_list(f"{SPEC}.volumes", lambda volumes: volumes.append(IMAGE)),
        change_list(f"{FIRST}.volumeMounts", lambda mounts: mounts.append(MOUNT)),
    ),
    "a field of a newer release": put(f"{SPEC}.fromTheFuture", {"a": 1}),
    "a field of a container of a newer release": put(f"{FIRST}.fromTheFuture", True),
    "a policy of success": put("spec.successPolicy", {"rules": [{"succeededCount": 1}]}),
    "a backoff by index": every(
        put("spec.backoffLimitPerIndex", 1), put("spec.maxFailedIndexes", -1)
    ),
    "a manager": put("spec.managedBy", "example.com/queue"),
}
