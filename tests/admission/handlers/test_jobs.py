"""Jobs: a template that must not change is refused early, with the field and the way out."""

from __future__ import annotations

import tracemalloc
from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Reply,
    a_review,
    eventually,
)
from tests.builders import a_container, a_job, a_quota
from tests.reactions import ReactiveClient
from webhook.admission.review import MAX_CAUSES, Phase

Object = dict[str, object]

PHASES = pytest.mark.parametrize("phase", [Phase.MUTATING, Phase.VALIDATING])
SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}
TEMPLATE = "spec.template.spec"
REQUESTED = f"{TEMPLATE}.containers[0].resources.requests.cpu"
GROWN = "field is immutable: from 1 to 2"
SUSPEND = (
    "the Job is not suspended; suspend it first and wait until its pods are gone:"
    ' kubectl patch job train -n team-a --type=merge -p \'{"spec":{"suspend":true}}\''
)
ONLY = (
    "of a Job's template only the resources of containers and the scheduling directives can change,"
    " while the Job is suspended; create a new Job"
)


def change(
    harness: AdmissionHarness,
    old: Object,
    new: Object,
    phase: Phase = Phase.MUTATING,
    *,
    dry_run: bool = False,
) -> Reply:
    review = a_review("UPDATE", "jobs", new, old=old, group="batch", dry_run=dry_run)
    return harness.post(review, phase)


def sized(cpu: str, **fields: object) -> Object:
    return a_job(a_container(requests={"cpu": cpu}), **fields)  # type: ignore[arg-type]


@PHASES
def test_a_new_job_is_admitted_its_pods_are_charged_later(
    harness: AdmissionHarness, phase: Phase
) -> None:
    reply = harness.post(a_review("CREATE", "jobs", sized("99"), group="batch"), phase)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})
    assert reply.patch == []


@PHASES
def test_resources_of_a_suspended_job_may_change(harness: AdmissionHarness, phase: Phase) -> None:
    reply = change(harness, sized("1", status=SUSPENDED), sized("2", status=SUSPENDED), phase)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})


@PHASES
def test_changing_and_resuming_at_once_is_legal(harness: AdmissionHarness, phase: Phase) -> None:
    assert change(harness, sized("1"), sized("2", suspend=False), phase).allowed


def test_suspending_and_changing_at_once_is_not(harness: AdmissionHarness) -> None:
    assert change(harness, sized("1", suspend=False), sized("2", suspend=True)).code == 422


STATES = {
    "running": (False, {"active": 2}, SUSPEND),
    "running though once marked as suspended": (False, SUSPENDED, SUSPEND),
    "one pod is left": (
        True,
        {**SUSPENDED, "active": 1},
        "pods of it still run; wait until 1 active pod is gone: kubectl get job train -n team-a -w",
    ),
    "pods are left": (
        True,
        {**SUSPENDED, "active": 3},
        (
            "pods of it still run; wait until 3 active pods are gone:"
            " kubectl get job train -n team-a -w"
        ),
    ),
    "not confirmed": (
        True,
        {"startTime": "2026-01-05T08:00:00Z"},
        (
            "the Job ran, and the Job controller has not confirmed its suspension yet;"
            " try again in a moment: kubectl wait job train -n team-a --for=condition=Suspended"
        ),
    ),
}


@pytest.mark.parametrize(("suspend", "status", "hint"), STATES.values(), ids=STATES.keys())
def test_a_closed_job_is_refused_with_what_to_do(
    harness: AdmissionHarness, suspend: bool, status: Object, hint: str
) -> None:
    old = sized("1", suspend=suspend, status=status)
    reply = change(harness, old, sized("2", suspend=suspend, status=status))
    assert (reply.code, reply.reason) == (422, "Invalid")
    told = f"{GROWN}: {hint}"
    assert reply.message == f"{REQUESTED}: {told}"
    assert reply.causes == [("FieldValueInvalid", REQUESTED, told)]  # where kubectl shows it
    assert reply.details["name"] == "train"
    assert (reply.details["kind"], reply.details["group"]) == ("Job", "batch")
    assert reply.audit == {"decision": "denied", "reason": f"{REQUESTED}: {told}"}


@pytest.mark.parametrize(("suspend", "status", "hint"), STATES.values(), ids=STATES.keys())
def test_what_the_api_server_has_taken_is_not_judged_by_its_rule_again(
    harness: AdmissionHarness, suspend: bool, status: Object, hint: str
) -> None:
    assert hint
    old = sized("1", suspend=suspend, status=status)
    new = sized("2", suspend=suspend, status=status, completions=3)
    reply = change(harness, old, new, Phase.VALIDATING)
    assert (reply.allowed, reply.decision) == (True, "not-charged")


def test_of_a_suspended_job_only_resources_and_directives_may_change(
    harness: AdmissionHarness,
) -> None:
    new = a_job(a_container(requests={"cpu": "1"}, image="registry.example/app:2"))
    reply = change(harness, sized("1"), new)
    assert reply.message == (
        f"{TEMPLATE}.containers[0].image: field is immutable:"
        f' from "registry.example/app:1" to "registry.example/app:2": {ONLY}'
    )


def test_faults_of_the_new_template_are_reported_without_advice_about_suspending(
    harness: AdmissionHarness,
) -> None:
    new = a_job(a_container(requests={"cpu": "2"}, limits={"cpu": "1"}))
    reply = change(harness, sized("1"), new)
    assert reply.message == (
        f"{TEMPLATE}.containers[0].resources.requests:"
        " must be less than or equal to cpu limit of 1: it is 2 and was 1;"
        " lower the request or raise the limit"
    )
    assert len(reply.causes) == 1  # the API server lists it twice


def test_faults_and_what_is_immutable_are_listed_in_order(harness: AdmissionHarness) -> None:
    new = a_job(a_container(requests={"cpu": "2"}, limits={"cpu": "1"}), suspend=False)
    reply = change(harness, sized("1", suspend=False), new)
    assert [field for _, field, _ in reply.causes] == [
        f"{TEMPLATE}.containers[0].resources.requests",
        f"{TEMPLATE}.containers[0].resources.limits.cpu",
        REQUESTED,
    ]
    assert SUSPEND in str(reply.message)


def test_fields_beside_the_template_are_refused_with_their_values(
    harness: AdmissionHarness,
) -> None:
    old = a_job(completions=2, suspend=False)
    reply = change(harness, old, a_job(completions=3, suspend=False))
    assert reply.message == "spec.completions: field is immutable: from 2 to 3: create a new Job"


def test_a_fault_without_words_still_says_what_is_wrong(harness: AdmissionHarness) -> None:
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    one = {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
    two = {**one, "claims": [{"name": "gpu"}, {"name": "gpu"}]}
    old, new = (a_job(a_container(resources=each), template_spec=claims) for each in (one, two))
    reply = change(harness, old, new)
    assert reply.code == 422
    for _, field, message in reply.causes:
        assert field
        assert message


def test_the_errors_of_thousands_of_claims_do_not_each_list_all(
    harness: AdmissionHarness,
) -> None:
    names = [{"name": f"claim-{number}", "resourceClaimName": "x"} for number in range(2000)]
    unknown = [{"name": f"other-{number}"} for number in range(2000)]
    old = a_job(template_spec={"resourceClaims": names[:1]})
    new = a_job(a_container(resources={"claims": unknown}), template_spec={"resourceClaims": names})
    tracemalloc.start()
    try:
        reply = change(harness, old, new)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    detail = "must be one of the names in pod.spec.resourceClaims: 2000 names: it is other-0"
    first = f"{TEMPLATE}.containers[0].resources.claims[0]"
    assert reply.causes[0] == ("FieldValueNotFound", first, detail)
    assert len(reply.causes) == MAX_CAUSES
    assert peak < 20 << 20


GATES = ("MutablePodResourcesForSuspendedJobs", "MutableSchedulingDirectivesForSuspendedJobs")


@pytest.mark.parametrize("off", GATES)
def test_the_gates_of_the_api_server_decide(open_harness: OpenHarness, off: str) -> None:
    harness = open_harness(settings={"jobGates": {off: False}})
    old = sized("1", status=SUSPENDED)
    moved = sized("1", status=SUSPENDED, template_spec={"nodeSelector": {"zone": "a"}})
    may_resize = change(harness, old, sized("2", status=SUSPENDED)).allowed
    assert may_resize == (off != GATES[0])
    started = {**SUSPENDED, "startTime": "2026-01-05T08:00:00Z"}
    old_started = {**old, "status": started}
    assert change(harness, old_started, {**moved, "status": started}).allowed == (off != GATES[1])


def test_gates_that_are_on_after_all_do_not_refuse_what_the_api_server_took(
    open_harness: OpenHarness,
) -> None:
    settings = {"jobGates": dict.fromkeys(GATES, False)}
    old, new = sized("1", status=SUSPENDED), sized("2", status=SUSPENDED)
    harness = open_harness(settings=settings)
    assert change(harness, old, new).code == 422
    assert change(harness, old, new, Phase.VALIDATING).allowed
    # the rules of the cluster hold all the same
    ruled = open_harness(settings={**settings, "jobs": [{"growth": "Deny"}]})
    refused = change(ruled, old, new, Phase.VALIDATING)
    assert refused.message == f"{REQUESTED}: from 1 to 2: cpu of this Job may not grow"


def test_gates_are_those_of_the_api_servers_version_unless_they_are_given(
    open_harness: OpenHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"major": "1", "minor": "34"}
    monkeypatch.setattr(ReactiveClient, "server_version", lambda _: said, raising=False)
    old, new = sized("1", status=SUSPENDED), sized("2", status=SUSPENDED)
    found = open_harness()
    eventually(lambda: change(found, old, new).code == 422, "the version is known")
    assert f"feature gate {GATES[0]}; here it is off or not there" in str(
        change(found, old, new).message
    )
    told = open_harness(settings={"jobGates": dict.fromkeys(GATES, True)})
    assert change(told, old, new).allowed


def test_a_job_whose_spec_does_not_change_is_not_looked_at(harness: AdmissionHarness) -> None:
    job = {**sized("1", suspend=False), "spec": {"template": None}}
    assert change(harness, job, {**job, "metadata": {"name": "train", "finalizers": []}}).allowed


LEFT_TO_THE_API_SERVER = {
    "a field whose gate may be off": {"template_spec": {"hostUsers": False}},
    "resources of the pod": {"template_spec": {"resources": {"requests": {"cpu": "9"}}}},
    "a field of a newer release": {"template_spec": {"fromTheFuture": 1}},
    "a policy whose gate may be off": {"successPolicy": {"rules": [{"succeededCount": 1}]}},
}
OPEN_AND_LEFT: dict[str, Object] = {
    "an operator whose gate may be on": {
        "template_spec": {"tolerations": [{"key": "a", "operator": "Gt", "value": "5"}]}
    },
    "a value of a newer release": {"podReplacementPolicy": "Always"},
}


@pytest.mark.parametrize("fields", OPEN_AND_LEFT.values(), ids=OPEN_AND_LEFT.keys())
def test_values_that_another_release_may_have_are_left_to_it(
    harness: AdmissionHarness, fields: Object
) -> None:
    old = sized("1", podReplacementPolicy="Failed")
    assert change(harness, old, sized("2", **{"podReplacementPolicy": "Failed", **fields})).allowed


@pytest.mark.parametrize(
    "fields", LEFT_TO_THE_API_SERVER.values(), ids=LEFT_TO_THE_API_SERVER.keys()
)
def test_what_the_api_server_may_drop_is_not_refused_before_it_judges(
    harness: AdmissionHarness, fields: Object
) -> None:
    old = sized("1", suspend=False)
    assert change(harness, old, sized("1", suspend=False, **fields)).allowed
    # beside it, what is refused in any case is told alone
    reply = change(harness, old, sized("2", suspend=False, **fields))
    assert [field for _, field, _ in reply.causes] == [REQUESTED]


def test_a_new_job_is_not_read_before_others_have_changed_it(harness: AdmissionHarness) -> None:
    empty = {"metadata": {"name": "train"}, "spec": {"template": {"spec": {"containers": []}}}}
    assert harness.mutate(a_review("CREATE", "jobs", empty, group="batch")).allowed
    assert harness.validate(a_review("CREATE", "jobs", empty, group="batch")).code == 422


def test_a_dry_run_is_answered_alike(harness: AdmissionHarness) -> None:
    old, new = sized("1", suspend=False), sized("2", suspend=False)
    assert change(harness, old, new, dry_run=True).code == 422


def test_no_ledger_is_needed(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    assert change(harness, sized("1"), sized("2")).allowed


def test_namespaces_that_are_not_ours_are_not_touched(open_harness: OpenHarness) -> None:
    old, new = sized("1", suspend=False), sized("2", suspend=False)
    assert change(open_harness(mode=""), old, new).decision == "not-opted-in"
    harness = open_harness(settings={"exemptNamespaces": [NAMESPACE]})
    assert change(harness, old, new).decision == "exempt"


WRONG: dict[str, Object] = {
    "spec": {"spec": 7},
    "suspend": {"spec": {"template": {}, "suspend": "yes"}},
    "template": {"spec": {"template": 7}},
    "amount": {"spec": a_job(a_container(requests={"cpu": "much"}))["spec"]},
    "status": {"status": []},
    "active": {"status": {"active": "2"}},
    "startTime": {"status": {"startTime": "now"}},
    "conditions": {"status": {"conditions": {}}},
}


@PHASES
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_a_stored_job_that_cannot_be_read_is_left_to_the_api_server(
    harness: AdmissionHarness, wrong: Object, phase: Phase
) -> None:
    reply = change(harness, {**sized("1"), **wrong}, sized("2"), phase)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})


@PHASES
@pytest.mark.parametrize(
    ("container", "field"),
    [
        (a_container(requests={"cpu": "much"}), "containers[0].resources.requests.cpu"),
        ({"name": "main", "resources": []}, "containers[0].resources"),
        ("main", "containers[0]"),
    ],
    ids=["amount", "resources", "container"],
)
def test_a_field_of_the_wrong_type_in_the_new_job_is_refused_with_its_path(
    harness: AdmissionHarness, container: Object, field: str, phase: Phase
) -> None:
    reply = change(harness, sized("1"), a_job(container), phase)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert str(reply.message).startswith(f"{TEMPLATE}.{field}: ")


@PHASES
@pytest.mark.parametrize("absent", ["object", "oldObject"])
def test_a_review_without_one_of_its_objects_is_a_bad_request(
    harness: AdmissionHarness, absent: str, phase: Phase
) -> None:
    review = a_review("UPDATE", "jobs", sized("1"), old=sized("1"), group="batch")
    cast("Object", review["request"])[absent] = None
    reply = harness.post(review, phase)
    assert (reply.code, reply.message) == (
        400,
        f"request.{absent}: must be present for UPDATE of jobs",
    )


def test_a_request_that_is_out_of_time_is_undecided(harness: AdmissionHarness) -> None:
    review = a_review("UPDATE", "jobs", sized("1"), old=sized("1"), group="batch")
    assert harness.mutate(review, seconds=0).code == 429
