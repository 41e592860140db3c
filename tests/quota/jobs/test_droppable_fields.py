"""What an API server may drop of an update is left for it to judge."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object
from tests.quota.jobs.job_strategies import CHANGES, GATES, STATUSES, changed, random_update
from tests.quota.jobs.job_updates import (
    DROPPABLE,
    FIRST,
    IMAGE,
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    at,
    change_list,
    drop,
    immutable,
    put,
    updated,
)
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.jobs import job_update_errors
from webhook.quota.jobs.droppable_fields import without_droppable

RUNNING = updated(
    a_stored_job(startTime=STARTED, active=1),
    put("spec.suspend", False),
    put(f"{FIRST}.securityContext", {"procMount": "Default"}),
    put(f"{FIRST}.volumeMounts", [{"name": "scratch", "mountPath": "/scratch"}]),
    put(f"{SPEC}.volumes", [{"name": "scratch", "emptyDir": {}}]),
    put(f"{SPEC}.topologySpreadConstraints", [{"maxSkew": 1, "topologyKey": "zone"}]),
    put(f"{SPEC}.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", [{}]),
)
WITHOUT_CLAIMS = updated(RUNNING, drop(f"{SPEC}.resourceClaims"))


@pytest.mark.parametrize("change", DROPPABLE.values(), ids=DROPPABLE.keys())
def test_what_may_be_dropped_is_left_to_the_api_server(change: Change) -> None:
    new = updated(WITHOUT_CLAIMS, change)
    before = updated(new)

    assert job_update_errors(WITHOUT_CLAIMS, new), "it is a change, if it is not dropped"
    assert job_update_errors(WITHOUT_CLAIMS, without_droppable(WITHOUT_CLAIMS, new)) == []
    assert new == before


def deep(levels: int) -> Object:
    value: Object = {}
    for _ in range(levels):
        value = {"f:a": value}
    return value


@pytest.mark.parametrize(
    ("place", "name"), [(f"{TEMPLATE}.metadata", "managedFields"), (SPEC, "schedulingGates")]
)
def test_what_nests_deep_is_no_fault(place: str, name: str) -> None:
    old = updated(RUNNING, put(f"{place}.labels", {}))
    new = updated(old, put(f"{FIRST}.image", "other"))
    for job in (old, new):
        at(job, place)[name] = [{"fieldsV1": deep(10_000)}]
    left = without_droppable(old, new)
    assert at(left, FIRST)["image"] == "other"
    with pytest.raises(InvalidFieldError, match=r"^old\."):
        job_update_errors(old, left)


CERTAIN: Mapping[str, Change] = {
    "an image": put(f"{FIRST}.image", "registry.example/app:2"),
    "a command": put(f"{FIRST}.command", ["run"]),
    "a probe": put(f"{FIRST}.livenessProbe", {"exec": {"command": ["ok"]}}),
    "a lifecycle with more than what may be dropped": put(
        f"{FIRST}.lifecycle", {"stopSignal": "SIGUSR1", "preStop": {"exec": {"command": ["a"]}}}
    ),
    "an empty lifecycle": put(f"{FIRST}.lifecycle", {}),
    "a container more": change_list(f"{SPEC}.containers", lambda items: items.append({})),
    "a volume more": change_list(f"{SPEC}.volumes", lambda items: items.append({"name": "a"})),
    "a field that goes": drop(f"{SPEC}.securityContext"),
    "what /proc is goes": drop(f"{FIRST}.securityContext.procMount"),
    "a priority class": put(f"{SPEC}.priorityClassName", "high"),
    "an amount": put(f"{FIRST}.resources.requests.cpu", "600m"),
    "claims of a container, where the pod has some": put(
        f"{FIRST}.resources.claims", [{"name": "c1"}]
    ),
    "an annotation": put("spec.template.metadata.annotations", {"fromTheFuture": "a"}),
    "a selected node": put(f"{SPEC}.nodeSelector.fromTheFuture", "a"),
}


@pytest.mark.parametrize("change", CERTAIN.values(), ids=CERTAIN.keys())
def test_what_no_api_server_drops_is_refused_all_the_same(change: Change) -> None:
    new = without_droppable(RUNNING, updated(RUNNING, change))

    assert job_update_errors(RUNNING, new) == [immutable(TEMPLATE)]


USED: Mapping[str, Change] = {
    "resources of the pod": put(f"{SPEC}.resources", {"requests": {"cpu": "9"}}),
    "a policy of success": put("spec.successPolicy", {"rules": [{"succeededCount": 2}]}),
}


@pytest.mark.parametrize("name", USED)
def test_what_the_stored_job_uses_is_not_dropped(name: str) -> None:
    old = updated(RUNNING, DROPPABLE[name])
    new = updated(old, USED[name])

    assert job_update_errors(old, without_droppable(old, new)) == job_update_errors(old, new) != []


def test_an_image_is_not_dropped_where_one_is_stored() -> None:
    old = updated(RUNNING, change_list(f"{SPEC}.volumes", lambda volumes: volumes.append(IMAGE)))
    other = {**IMAGE, "name": "other"}
    new = updated(old, change_list(f"{SPEC}.volumes", lambda volumes: volumes.append(other)))

    assert job_update_errors(old, without_droppable(old, new)) == [immutable(TEMPLATE)]


@given(
    seed=st.integers(0, 2**32),
    is_on=st.sets(st.sampled_from(sorted(DROPPABLE))),
    wanted=st.sets(st.sampled_from(sorted(DROPPABLE)), max_size=3),
    gates=st.sampled_from(GATES),
)
def test_nothing_is_refused_that_an_api_server_takes_after_it_dropped_something(
    seed: int, is_on: set[str], wanted: set[str], gates: frozenset[str]
) -> None:
    chance = random.Random(seed)  # noqa: S311
    status = chance.choice(STATUSES)
    old = updated(WITHOUT_CLAIMS, put("status", status), put("spec.suspend", seed % 5 > 0))
    new = changed(old, chance.sample(CHANGES, chance.choice([0, 1, 2])))
    dropped = changed(new, [DROPPABLE[name] for name in sorted(wanted & is_on)])
    asked = changed(new, [DROPPABLE[name] for name in sorted(wanted)])

    if not job_update_errors(old, dropped, gates):
        assert job_update_errors(old, without_droppable(old, asked), gates) == []


@given(st.integers(0, 2**32), st.sampled_from(GATES))
def test_of_what_is_there_already_nothing_is_left_out(seed: int, gates: frozenset[str]) -> None:
    old, new = random_update(random.Random(seed))  # noqa: S311

    assert without_droppable(new, new) == new
    if not job_update_errors(old, new, gates):
        assert job_update_errors(old, without_droppable(old, new), gates) == []


ODD: list[Object] = [
    {},
    {"spec": None},
    {"spec": []},
    {"spec": {"template": 7}},
    {"spec": {"template": {"spec": []}}},
    {"spec": {"template": {"spec": {"volumes": 1, "containers": [1, {"volumeMounts": 2}]}}}},
    {"spec": {"template": {"spec": {"volumes": [IMAGE, 1], "containers": [1, {}]}}}},
]


@pytest.mark.parametrize("old", ODD)
@pytest.mark.parametrize("new", ODD)
def test_what_cannot_be_read_is_left_to_its_reader(old: Object, new: Object) -> None:
    assert without_droppable(old, new) is not None
