"""The plan of a resize: which containers change, and what speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_container, a_job, a_sidecar
from tests.operations.jobs import wanted
from webhook.jsonfields.encoding import decode_json, encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.patches import apply_patch
from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity
from webhook.quota.jobs.resize_plan import (
    blockers,
    change_errors,
    container_names,
    plan_changes,
    resize_patch,
    stored_job,
    suspend_patch,
    warnings_for,
    with_changes,
)

TITLE = "job team-a/train: "


def a_training_job(**metadata: object) -> Object:
    job = a_job(
        a_container(requests={"cpu": "4", "memory": "1Gi"}, limits={"nvidia.com/gpu": "1"}),
        a_container("side"),
        template_spec={"initContainers": [a_container("setup"), a_sidecar("proxy")]},
        podReplacementPolicy="Failed",
    )
    cast("Object", job["metadata"]).update(resourceVersion="7", **metadata)
    return job


def changed(job: Object, **containers: Mapping[str, str]) -> Object:
    """What the API server makes of the patch."""
    changes = plan_changes(job, {name: wanted(each) for name, each in containers.items()})
    patch = resize_patch(stored_job(job), changes, resumes=True)
    return apply_patch(cast("Object", decode_json(encode_json(job))), patch)


def resources_of(job: Object, part: str = "containers", index: int = 0) -> object:
    template = cast("Object", cast("Object", job["spec"])["template"])
    containers = cast("Object", template["spec"])[part]
    return cast("list[Object]", containers)[index].get("resources")


def test_only_named_resources_of_named_containers_change() -> None:
    job = changed(a_training_job(), main={"cpu": "2"}, proxy={"cpu": "50m"})
    assert resources_of(job) == {
        "requests": {"cpu": "2", "memory": "1Gi"},
        "limits": {"nvidia.com/gpu": "1"},
    }
    assert resources_of(job, index=1) is None
    assert resources_of(job, "initContainers") is None
    assert resources_of(job, "initContainers", 1) == {"requests": {"cpu": "50m"}}
    assert cast("Object", job["spec"])["suspend"] is False


def test_the_plan_says_what_changes_from_what() -> None:
    (change,) = plan_changes(
        a_training_job(),
        {"main": wanted({"cpu": "2", "memory": "1024Mi"}, {"nvidia.com/gpu": "2", "cpu": "2"})},
    )
    assert change.field == "spec.template.spec.containers[0].resources"
    assert [(each.name, each.old, each.new) for each in change.amounts] == [
        ("requests.cpu", Quantity.parse("4"), Quantity.parse("2")),
        ("limits[nvidia.com/gpu]", Quantity.parse("1"), Quantity.parse("2")),
        ("limits.cpu", None, Quantity.parse("2")),
    ]


def test_claims_of_a_container_stay() -> None:
    job = a_job(a_container(resources={"claims": [{"name": "gpu"}]}))
    cast("Object", job["metadata"])["resourceVersion"] = "7"
    after = changed(job, main={"cpu": "1"})
    assert resources_of(after) == {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory"]), st.integers(0, 5000).map(lambda n: f"{n}m"), min_size=1
)


@given(AMOUNTS, AMOUNTS)
def test_a_plan_that_is_carried_out_leaves_nothing_to_change(
    requests: dict[str, str], limits: dict[str, str]
) -> None:
    order = {"main": wanted(requests, limits)}
    job = a_training_job()
    changes = plan_changes(job, order)
    after = with_changes(job, changes)
    assert plan_changes(after, order) == ()
    assert job == a_training_job()
    patch = resize_patch(stored_job(job), changes, resumes=False)
    assert apply_patch(a_training_job(), patch) == after


def test_a_container_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(InvalidFieldError) as found:
        plan_changes(a_training_job(), {"mian": wanted({"cpu": "1"})})
    assert str(found.value) == (
        "spec.template.spec.containers: has no container 'mian', it has main, side, setup, proxy"
    )
    assert container_names(a_training_job()) == ("main", "side")


BROKEN = {
    "no template": ({"template": None}, "spec.template.spec.containers: has no container 'main'"),
    "a template that is a list": ({"template": []}, "spec.template: must be an object, not a list"),
    "containers that are a text": (
        {"template": {"spec": {"containers": "x"}}},
        "spec.template.spec.containers: must be a list, not a string",
    ),
    "resources that are a text": (
        {"template": {"spec": {"containers": [{"name": "main", "resources": "x"}]}}},
        "spec.template.spec.containers[0].resources: must be an object, not a string",
    ),
}


@pytest.mark.parametrize(("spec", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_job_that_cannot_be_read_is_refused_with_the_path(spec: Object, words: str) -> None:
    with pytest.raises(InvalidFieldError) as found:
        plan_changes({"spec": spec}, {"main": wanted({"cpu": "1"})})
    assert str(found.value).startswith(words)


def test_a_stored_amount_that_is_no_quantity_is_refused_with_the_path() -> None:
    job = a_job(a_container(requests={"cpu": "2x"}))
    with pytest.raises(InvalidQuantityError) as found:
        plan_changes(job, {"main": wanted({"cpu": "1"})})
    assert found.value.field == "spec.template.spec.containers[0].resources.requests.cpu"


@pytest.mark.parametrize("status", [{}, {"active": 3, "startTime": "2026-06-01T12:00:00Z"}])
def test_errors_are_those_of_a_suspended_job_whatever_it_does_now(status: Object) -> None:
    job = {**a_training_job(), "status": status}
    job["spec"] = {**cast("Object", job["spec"]), "suspend": not status}
    assert change_errors(job, plan_changes(job, {"main": wanted({"cpu": "8"})})) == ()
    greedy = plan_changes(job, {"main": wanted({"nvidia.com/gpu": "2"})})
    (error,) = change_errors(job, greedy)
    assert str(error) == (
        "spec.template.spec.containers[0].resources.requests: Invalid value:"
        ' "2": must be equal to nvidia.com/gpu limit of 1'
    )


def test_patches_name_uid_and_version() -> None:
    facts = stored_job(a_training_job())
    identity = [
        {"op": "replace", "path": "/metadata/uid", "value": "job-uid-1"},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
    ]
    suspend = {"op": "add", "path": "/spec/suspend", "value": True}
    assert suspend_patch(facts, suspend=True) == [*identity, suspend]
    assert resize_patch(facts, (), resumes=False) == identity


def owned_by(kind: str) -> Object:
    return {"ownerReferences": [{"kind": kind, "name": "up", "uid": "u", "controller": True}]}


def condition(kind: str, status: str = "True") -> Object:
    return {"conditions": [{"type": kind, "status": status}]}


OBSTACLES = {
    "complete": ({}, condition("Complete"), "status.conditions: Complete is True"),
    "failed": ({}, condition("Failed"), "status.conditions: Failed is True"),
    "about to fail": ({}, condition("FailureTarget"), "status.conditions: FailureTarget is True"),
    "being deleted": (
        {"deletionTimestamp": "2026-06-01T12:00:00Z"},
        {},
        "metadata.deletionTimestamp: the Job is being deleted",
    ),
    "of a JobSet": (owned_by("JobSet"), {}, "metadata.ownerReferences: JobSet up made it"),
}


@pytest.mark.parametrize(("metadata", "status", "words"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_some_jobs_cannot_be_resized(metadata: Object, status: Object, words: str) -> None:
    (found,) = blockers(stored_job({**a_training_job(**metadata), "status": status}))
    assert found.startswith(TITLE + words)


@pytest.mark.parametrize("status", [{}, condition("Complete", "False"), condition("Suspended")])
def test_others_can(status: Object) -> None:
    job = {**a_training_job(**owned_by("CronJob")), "status": status}
    assert blockers(stored_job(job)) == ()


CAUTIONS = {
    "of a CronJob": (owned_by("CronJob"), {}, "metadata.ownerReferences: CronJob up made it: only"),
    "of another kind": (owned_by("Workflow"), {}, "metadata.ownerReferences: Workflow up made it,"),
    "in a queue": (
        {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        {},
        "metadata.labels[kueue.x-k8s.io/queue-name]: gpus: Kueue decides when it runs",
    ),
    "run by others": ({}, {"managedBy": "example.com/x"}, "spec.managedBy: example.com/x runs it"),
    "replaced early": (
        {},
        {"podReplacementPolicy": "TerminatingOrFailed", "suspend": False},
        "spec.podReplacementPolicy: is not Failed: new pods start while the old ones still end",
    ),
}


@pytest.mark.parametrize(("metadata", "spec", "words"), CAUTIONS.values(), ids=CAUTIONS.keys())
def test_what_may_come_in_between_is_reported(metadata: Object, spec: Object, words: str) -> None:
    job = a_training_job(**metadata)
    job["spec"] = {**cast("Object", job["spec"]), **spec}
    (found,) = warnings_for(stored_job(job))
    assert found.startswith(TITLE + words)


def test_a_plain_job_needs_no_caution() -> None:
    job = a_training_job()
    own = {**cast("Object", job["spec"]), "managedBy": "kubernetes.io/job-controller"}
    assert warnings_for(stored_job({**job, "spec": own})) == ()
    at_rest = {**own, "podReplacementPolicy": "TerminatingOrFailed"}
    assert warnings_for(stored_job({**job, "spec": at_rest})) == ()
