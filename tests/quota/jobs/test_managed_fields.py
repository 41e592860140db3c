"""Field managers that resized a Job and that resume it."""

from __future__ import annotations

import pytest

from tests.builders import Object, a_job
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.jobs.managed_fields import TwoManagers, two_managers

BORN, LATER, LAST = (f"2026-01-05T{hour}:00:00Z" for hour in ("08", "09", "10"))
SUSPEND: Object = {"f:suspend": {}}


def sizes(kind: str = "f:containers") -> Object:
    return {"f:template": {"f:spec": {kind: {'k:{"name":"main"}': {"f:resources": {}}}}}}


def entry(manager: str, time: str, spec: Object, subresource: str = "") -> Object:
    fields = {"f:spec": spec}
    return {"manager": manager, "time": time, "fieldsV1": fields, "subresource": subresource}


def managed(*entries: Object) -> Object:
    job = a_job()
    return {**job, "metadata": {"creationTimestamp": BORN, "managedFields": list(entries)}}


CASES: dict[str, tuple[list[Object], TwoManagers | None]] = {
    "nothing is known": ([], None),
    "two": (
        [entry("hand", LATER, sizes()), entry("queue", LAST, SUSPEND)],
        TwoManagers("hand", "queue"),
    ),
    "init containers": (
        [entry("hand", LATER, sizes("f:initContainers")), entry("queue", LAST, SUSPEND)],
        TwoManagers("hand", "queue"),
    ),
    "the last of several": (
        [entry("a", LAST, sizes()), entry("b", LATER, sizes()), entry("queue", LAST, SUSPEND)],
        TwoManagers("a", "queue"),
    ),
    "one did both": ([entry("queue", LAST, {**sizes(), **SUSPEND})], None),
    "one person, with kubectl set and kubectl patch": (
        [entry("kubectl-set", LATER, sizes()), entry("kubectl-patch", LAST, SUSPEND)],
        None,
    ),
    "one person, with kubectl apply --server-side": (
        [entry("kubectl", LATER, sizes()), entry("kubectl-edit", LAST, SUSPEND)],
        None,
    ),
    "one person, with our command and kubectl": (
        [entry("deferred-quota", LATER, sizes()), entry("kubectl-patch", LAST, SUSPEND)],
        None,
    ),
    "a person and a controller": (
        [entry("kubectl-set", LATER, sizes()), entry("kubectlike", LAST, SUSPEND)],
        TwoManagers("kubectl-set", "kubectlike"),
    ),
    "a controller between a person's two commands": (
        [
            entry("kubectl-set", LATER, sizes()),
            entry("tuner", LAST, sizes()),
            entry("kubectl-patch", LAST, SUSPEND),
        ],
        TwoManagers("tuner", "kubectl-patch"),
    ),
    "resources as they were created": (
        [entry("kubectl", BORN, sizes()), entry("queue", LAST, SUSPEND)],
        None,
    ),
    "another part of the object": (
        [entry("hand", LATER, {"f:parallelism": {}}), entry("queue", LAST, SUSPEND)],
        None,
    ),
    "the status": (
        [entry("hand", LATER, sizes(), "status"), entry("queue", LAST, SUSPEND)],
        None,
    ),
    "nobody resumed": ([entry("hand", LATER, sizes())], None),
}


@pytest.mark.parametrize(("entries", "expected"), CASES.values(), ids=CASES.keys())
def test_two_managers_are_found(entries: list[Object], expected: TwoManagers | None) -> None:
    assert two_managers(managed(*entries)) == expected


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        ({"managedFields": {}}, "metadata.managedFields"),
        ({"managedFields": [{"time": "now"}]}, "metadata.managedFields[0].time"),
        ({"creationTimestamp": 7}, "metadata.creationTimestamp"),
    ],
)
def test_what_cannot_be_read_is_named(damage: Object, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        two_managers({"metadata": damage})
    assert caught.value.field == field
