"""Refusals of updates of Jobs: each field, its values, the reason, the way out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given

from tests.builders import Object
from tests.quota.jobs.job_strategies import job_updates
from tests.quota.jobs.job_updates import (
    SPEC,
    STARTED,
    TEMPLATE,
    Change,
    a_stored_job,
    change_list,
    put,
    resources_of,
    updated,
)
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import ALL_GATES, JobGate, job_update_errors
from webhook.quota.jobs.explain import MOST_CHANGES, explain

SUSPENDED = [{"type": "Suspended", "status": "True"}]
REQUEST = f"{SPEC}.containers[0].resources.requests.cpu"
GROW = put(f"{SPEC}.containers.0.resources.requests.cpu", "750m")
MOVE = put(f"{SPEC}.nodeSelector.zone", "b")
GROWN = "field is immutable: from 500m to 750m: "
PATCH = 'kubectl patch job train -n team-a --type=merge -p \'{"spec":{"suspend":true}}\''
ONLY_RESOURCES = frozenset({JobGate.MUTABLE_RESOURCES})
ONLY_SCHEDULING = frozenset({JobGate.MUTABLE_SCHEDULING})
NEVER = (
    "of a Job's template only the resources of containers and the scheduling directives can change,"
    " while the Job is suspended; create a new Job"
)


def told(old: Object, new: Object, gates: Iterable[str] = ALL_GATES) -> list[FieldError]:
    on = frozenset(gates)
    errors = job_update_errors(old, new, on)
    return explain(errors, old, new, on, name="train", namespace="team-a")


def a_job_in(*, suspend: bool = True, **status: object) -> Object:
    return updated(a_stored_job(**status), put("spec.suspend", suspend))


REASONS: Mapping[str, tuple[Object, str]] = {
    "it runs": (
        a_job_in(suspend=False, active=2),
        f"the Job is not suspended; suspend it first and wait until its pods are gone: {PATCH}",
    ),
    "one pod is active": (
        a_job_in(active=1, conditions=SUSPENDED),
        "pods of it still run; wait until 1 active pod is gone: kubectl get job train -n team-a -w",
    ),
    "pods are active": (
        a_job_in(active=2, conditions=SUSPENDED, startTime=STARTED),
        (
            "pods of it still run; wait until 2 active pods are gone:"
            " kubectl get job train -n team-a -w"
        ),
    ),
    "not confirmed": (
        a_job_in(startTime=STARTED),
        (
            "the Job ran, and the Job controller has not confirmed its suspension yet;"
            " try again in a moment: kubectl wait job train -n team-a --for=condition=Suspended"
        ),
    ),
    "finished": (
        a_job_in(startTime=STARTED, conditions=[{"type": "Complete", "status": "True"}]),
        "the Job is finished; create a new one",
    ),
}


@pytest.mark.parametrize(("old", "reason"), REASONS.values(), ids=REASONS.keys())
def test_the_answer_about_a_closed_job_says_why_and_what_to_do(old: Object, reason: str) -> None:
    assert told(old, updated(old, GROW)) == [
        FieldError("FieldValueInvalid", REQUEST, GROWN + reason)
    ]
    (moved,) = told(old, updated(old, MOVE))
    assert moved.detail == f'field is immutable: from "a" to "b": {reason}'


def test_suspending_in_the_same_request_is_too_late() -> None:
    old = a_job_in(suspend=False)
    (error,) = told(old, updated(old, GROW, put("spec.suspend", True)))
    assert "the Job is not suspended before this request; suspend it first" in error.detail


def test_a_reason_that_several_changes_share_is_reported_once() -> None:
    old = a_job_in(suspend=False)
    change = resources_of("containers.0", requests={"cpu": "1"}, limits={"cpu": "2"})
    assert [
        (e.field.rpartition("resources.")[2], e.detail[:42])
        for e in told(old, updated(old, change))
    ] == [
        ("limits.cpu", "field is immutable: from 1 to 2: the Job i"),
        ("limits.memory", "field is immutable: from 1Gi to none"),
        ("requests.cpu", "field is immutable: from 500m to 1"),
        ("requests.memory", "field is immutable: from 1Gi to none"),
    ]


FIXED: Mapping[str, tuple[Change, str, str, str]] = {
    "image": (
        put(f"{SPEC}.containers.0.image", "registry.example/app:2"),
        f"{SPEC}.containers[0].image",
        'from "registry.example/app:1" to "registry.example/app:2"',
        NEVER,
    ),
    "command": (
        put(f"{SPEC}.containers.0.command", ["run", "--token=x"]),
        f"{SPEC}.containers[0].command",
        "another value",
        NEVER,
    ),
    "env": (
        put(f"{SPEC}.containers.0.env.0.value", "secret"),
        f"{SPEC}.containers[0].env[0].value",
        "another value",
        NEVER,
    ),
    "a container more": (
        change_list(f"{SPEC}.containers", lambda items: items.append({"name": "more"})),
        f"{SPEC}.containers",
        'from ["main", "side"] to ["main", "side", "more"]',
        NEVER,
    ),
    "resources of the pod": (
        put(f"{SPEC}.resources", {"requests": {"cpu": "2"}}),
        f"{SPEC}.resources.requests.cpu",
        "from none to 2",
        "resources of the pod as a whole never change, only those of its containers",
    ),
    "resource claims": (
        put(f"{SPEC}.resourceClaims", [{"name": "c1", "resourceClaimName": "one"}]),
        f"{SPEC}.resourceClaims",
        'from ["c1", "c2"] to ["c1"]',
        "claims of the pod never change; create a new Job",
    ),
    "pod affinity": (
        put(f"{SPEC}.affinity", {"podAntiAffinity": {}}),
        f"{SPEC}.affinity.podAntiAffinity",
        "from none to {}",
        "of the affinity only nodeAffinity can change; create a new Job",
    ),
}


@pytest.mark.parametrize("suspend", [True, False])
@pytest.mark.parametrize(("change", "field", "values", "reason"), FIXED.values(), ids=FIXED.keys())
def test_for_what_never_changes_no_suspension_is_advised(
    change: Change, field: str, values: str, reason: str, suspend: bool
) -> None:
    old = a_job_in(suspend=suspend)
    (error,) = [e for e in told(old, updated(old, change)) if e.field == field]
    assert error.detail == f"field is immutable: {values}: {reason}"


def test_a_gate_that_is_off_is_named() -> None:
    old = a_job_in(conditions=SUSPENDED)
    (error,) = told(old, updated(old, GROW), ONLY_SCHEDULING)
    assert (
        "1.35 with the feature gate MutablePodResourcesForSuspendedJobs; here it is off"
        in error.detail
    )
    ran = a_job_in(conditions=SUSPENDED, startTime=STARTED)
    (error,) = told(ran, updated(ran, MOVE), ONLY_RESOURCES)
    assert "scheduling directives can change only before a Job first runs" in error.detail
    assert (
        "the feature gate MutableSchedulingDirectivesForSuspendedJobs; here it is off"
        in error.detail
    )


def test_what_is_legal_has_no_errors() -> None:
    old = a_job_in()
    errors = told(old, updated(old, GROW, MOVE, put(f"{SPEC}.containers.0.image", "x:2")))
    assert [error.field for error in errors] == [f"{SPEC}.containers[0].image"]


FAULTS: Mapping[str, tuple[Change, str, str]] = {
    "request above limit": (
        put(f"{SPEC}.containers.0.resources.requests.cpu", "2"),
        f"{SPEC}.containers[0].resources.requests",
        (
            "must be less than or equal to cpu limit of 1: it is 2 and was 500m;"
            " lower the request or raise the limit"
        ),
    ),
    "limit below request": (
        put(f"{SPEC}.containers.0.resources.limits.cpu", "100m"),
        f"{SPEC}.containers[0].resources.requests",
        (
            "must be less than or equal to cpu limit of 100m: it is 500m;"
            " lower the request or raise the limit"
        ),
    ),
    "extended resource": (
        resources_of(
            "containers.0", requests={"nvidia.com/gpu": "1"}, limits={"nvidia.com/gpu": "2"}
        ),
        f"{SPEC}.containers[0].resources.requests",
        "must be equal to nvidia.com/gpu limit of 2: it is 1; lower the request or raise the limit",
    ),
    "negative": (
        put(f"{SPEC}.containers.0.resources.requests.cpu", "-1"),
        f"{SPEC}.containers[0].resources.requests[cpu]",
        "must be greater than or equal to 0: it is -1 and was 500m",
    ),
    "completions": (
        put("spec.completions", 9),
        "spec.completions",
        "field is immutable: from 4 to 9: create a new Job",
    ),
    "selector": (
        put("spec.selector.matchLabels.app", None),
        "spec.selector",
        (
            'field is immutable: from {"matchLabels": {"app": "train"}}'
            ' to {"matchLabels": {"app": ""}}: create a new Job'
        ),
    ),
}


@pytest.mark.parametrize(("change", "field", "detail"), FAULTS.values(), ids=FAULTS.keys())
def test_faults_name_what_was_and_what_would_be(change: Change, field: str, detail: str) -> None:
    old = a_job_in()
    assert (field, detail) in [(e.field, e.detail) for e in told(old, updated(old, change))]


def test_long_lists_of_changes_are_cut() -> None:
    old = a_job_in(suspend=False)
    change = put(f"{SPEC}.nodeSelector", {f"key-{n}": "x" for n in range(MOST_CHANGES + 4)})
    errors = told(old, updated(old, change))
    assert len(errors) == MOST_CHANGES + 1
    assert (errors[-1].field, errors[-1].detail) == (
        TEMPLATE,
        "field is immutable: and 5 more changes",
    )


@given(job_updates())
def test_a_legal_update_has_no_error_and_every_other_has_one(
    update: tuple[Object, Object, frozenset[str]],
) -> None:
    old, new, gates = update
    errors = job_update_errors(old, new, gates)
    words = explain(errors, old, new, gates)
    assert bool(words) == bool(errors)
    assert all(error.field and (error.detail or error.message) for error in words)
    assert all(len(error.detail) < 500 for error in words)
