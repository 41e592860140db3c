"""Updates of pods: a deadline that comes or goes, and the resize of older API servers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    AdmissionHarness,
    Reply,
    a_review,
    eventually,
    want_no_gates,
)
from tests.builders import a_quota, an_expression
from webhook.admission.review import Phase
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import PODS
from webhook.state.well_known import SCHEDULING_GATE

Object = dict[str, object]


@pytest.fixture
def scoped(open_harness: OpenHarness) -> AdmissionHarness:
    """2 cpu for pods with a deadline, 4 for those without."""
    return open_harness(
        a_quota("short", uid="s", hard={"requests.cpu": "2"}, scopes=["Terminating"]),
        a_quota("long", uid="l", hard={"requests.cpu": "4"}, scopes=["NotTerminating"]),
    )


def a_stored(
    harness: AdmissionHarness, cpu: str = "1", name: str = "web-1", **fields: object
) -> Object:
    fields = {"node": "node-1", "requests": {"cpu": cpu}, **fields}
    pod = harness.pod(name=name, uid=f"uid-{name}", **fields)
    harness.wait_until_settled()
    return pod


def with_deadline(pod: Object, seconds: object) -> Object:
    return {**pod, "spec": {**cast("Object", pod["spec"]), "activeDeadlineSeconds": seconds}}


def flip(
    harness: AdmissionHarness, old: Object, seconds: object, *, dry_run: bool = False
) -> Reply:
    return harness.change_pod(old, with_deadline(old, seconds), dry_run=dry_run)


def flip_in_fact(harness: AdmissionHarness, old: Object, seconds: object) -> Reply:
    reply = flip(harness, old, seconds)
    if reply.allowed:
        harness.api.update(PODS, with_deadline(old, seconds))
    return reply


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_deadline_moves_all_of_an_assigned_pod_into_its_quota(
    scoped: AdmissionHarness, seconds: int
) -> None:
    old = a_stored(scoped)
    reply = flip(scoped, old, seconds)
    assert (reply.allowed, reply.decision, reply.audit["quota"]) == (True, "reserved", "short")
    assert scoped.reserved("short") == {"requests.cpu": "1"}
    assert scoped.reservations()["web-1"]["door"] == "Update"


def test_a_deadline_that_its_quota_has_no_room_for_is_refused(scoped: AdmissionHarness) -> None:
    a_stored(scoped, "1500m", "other", activeDeadlineSeconds=9)
    reply = flip(scoped, a_stored(scoped), 60)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "exceeded quota: short, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "pods")
    assert scoped.reservations() == {}


def test_a_deadline_that_goes_moves_the_pod_back(scoped: AdmissionHarness) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=60)
    assert flip_in_fact(scoped, old, None).allowed
    scoped.wait_until_settled()
    assert scoped.used("short") == {"requests.cpu": "0"}
    assert scoped.used("long") == {"requests.cpu": "2"}
    assert scoped.reservations() == {}


def test_what_a_pod_leaves_is_given_back_only_once_that_is_seen(scoped: AdmissionHarness) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=60)
    scoped.pod(name="next", uid="uid-next", requests={"cpu": "1"}, activeDeadlineSeconds=60)
    scoped.catch_up()
    assert flip(scoped, old, None).allowed
    assert scoped.bind("next", uid="uid-next").code == 403
    scoped.api.update(PODS, with_deadline(old, None))
    scoped.wait_until_settled()
    assert scoped.bind("next", uid="uid-next").allowed


@pytest.mark.parametrize(
    ("before", "after"), [(None, -1), (60, 30), (0, 60), (None, None)], ids=str
)
def test_a_deadline_that_moves_the_pod_nowhere_is_not_charged(
    scoped: AdmissionHarness, before: int | None, after: int | None
) -> None:
    old = a_stored(scoped, "2", activeDeadlineSeconds=before)
    version = scoped.ledger_version()
    reply = flip(scoped, old, after)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-charged"})
    assert scoped.ledger_version() == version


def test_an_unscoped_quota_does_not_charge_a_deadline(harness: AdmissionHarness) -> None:
    assert flip(harness, a_stored(harness, "2"), 60).allowed
    assert harness.reserved() == {}
    assert harness.used() == {"requests.cpu": "2"}


def test_a_deadline_is_remembered_for_a_quota_that_comes_while_it_is_on_its_way(
    harness: AdmissionHarness,
) -> None:
    assert flip(harness, a_stored(harness, "2"), 60).allowed
    harness.create(a_quota("short", scopes=["Terminating"]))
    harness.wait_until_settled()
    assert harness.reserved("short") == {"requests.cpu": "2"}


def test_a_pod_that_waits_may_get_any_deadline_and_is_charged_at_its_bind(
    scoped: AdmissionHarness,
) -> None:
    want_no_gates(scoped)
    old = a_stored(scoped, "3", node="")
    assert flip_in_fact(scoped, old, 60).allowed
    assert scoped.reserved("short") == {}
    scoped.catch_up()
    reply = scoped.bind("web-1", uid="uid-web-1")
    assert str(reply.message).startswith("exceeded quota: short, requested: requests.cpu=3")


def test_an_ungated_pod_is_reserved_for_what_its_deadline_makes_it_take(
    scoped: AdmissionHarness,
) -> None:
    reply = flip(scoped, a_stored(scoped, "3", node=""), 60)
    assert str(reply.message).startswith("exceeded quota: short, requested: requests.cpu=3")
    assert flip(scoped, a_stored(scoped, "2", name="web-2", node=""), 60).allowed
    assert scoped.reserved("short") == {"requests.cpu": "2"}
    assert scoped.reservations()["web-2"]["door"] == "Release"


LET_GO: dict[str, Any] = {"priority": 1000, "node": ""}
"""A pod without our gate for which others may be evicted."""


@pytest.mark.parametrize("gates", [[], [{"name": "example.com/own"}]], ids=["no gate", "its own"])
def test_a_deadline_has_no_pod_that_may_preempt_enter_a_quota_past_its_queue(
    scoped: AdmissionHarness, gates: list[Object]
) -> None:
    """How many such pods have no node is bounded where they are released, and nowhere later."""
    reply = flip(scoped, a_stored(scoped, "1", **LET_GO, schedulingGates=gates), 60)
    assert (reply.code, reply.reason, scoped.reservations()) == (403, "Forbidden", {})
    assert reply.message == (
        "spec.activeDeadlineSeconds: may not have the pod take more of quota short now: it is let"
        " go to its scheduler, and others may be evicted for it before its bind is decided; create"
        " it anew like this, so that it waits its turn, or change it once it has a node"
    )
    assert [(reason, field) for reason, field, _ in reply.causes] == [
        ("FieldValueForbidden", "spec.activeDeadlineSeconds")
    ]


OTHERS: dict[str, dict[str, Any]] = {
    "it never preempts": {**LET_GO, "preemptionPolicy": "Never"},
    "it is of no priority": {**LET_GO, "priority": 0},
    "it has a node": {**LET_GO, "node": "node-1"},
    "it is behind our gate": {**LET_GO, "cpu": "9", "schedulingGates": [{"name": SCHEDULING_GATE}]},
    "it takes nothing of the quota": {**LET_GO, "requests": {"cpu": "0", "memory": "1Gi"}},
}


@pytest.mark.parametrize("fields", OTHERS.values(), ids=OTHERS.keys())
def test_others_may_get_a_deadline(scoped: AdmissionHarness, fields: dict[str, Any]) -> None:
    old = a_stored(scoped, **fields)
    assert flip(scoped, old, 60).allowed


def test_where_no_gates_are_wanted_one_that_may_preempt_may_get_a_deadline(
    scoped: AdmissionHarness,
) -> None:
    want_no_gates(scoped)
    assert flip(scoped, a_stored(scoped, **LET_GO), 60).allowed


def test_one_that_may_preempt_may_leave_a_quota_by_its_deadline(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("long", scopes=["NotTerminating"]))
    assert flip(harness, a_stored(harness, **LET_GO), 60).allowed


@pytest.mark.parametrize("scope", ["Terminating", "NotTerminating"])
def test_one_whose_gate_is_about_to_go_enters_no_quota_either(
    open_harness: OpenHarness, scope: str
) -> None:
    """Where no quota selects it nothing is reserved for it, and its gate goes at once."""
    harness = open_harness(
        a_quota("short", uid="s", scopes=["Terminating"]),
        a_quota("other", uid="o", scopes=[scope]),
        settings={"gating": "always"},
    )
    gate = [{"name": SCHEDULING_GATE}]
    fields = {**LET_GO, "requests": {"cpu": "1"}, "schedulingGates": gate}
    old = harness.pod(name="web-1", uid="uid-web-1", **fields)
    if scope == "NotTerminating":
        eventually(lambda: harness.reserved("other") == {"requests.cpu": "1"}, "it is reserved for")
        harness.catch_up()
    assert str(flip(harness, old, 60).message).startswith("spec.activeDeadlineSeconds: may not")


@pytest.fixture
def obliging(open_harness: OpenHarness) -> AdmissionHarness:
    """A quota that obliges pods with a deadline to name memory."""
    return open_harness(
        a_quota("short", uid="s", hard={"requests.memory": "1Gi"}, scopes=["Terminating"]),
        a_quota("long", uid="l", hard={"requests.cpu": "4"}, scopes=["NotTerminating"]),
    )


def test_a_deadline_moves_no_pod_to_where_its_bind_is_refused_for_good(
    obliging: AdmissionHarness,
) -> None:
    """A scheduler has it, and would evict others for it again and again."""
    words = "failed quota: short: must specify requests.memory for: main"
    old = a_stored(obliging, "1", node="")
    assert (flip(obliging, old, 60).message, obliging.reserved("long")) == (words, {})
    named = a_stored(obliging, name="web-2", node="", requests={"cpu": "1", "memory": "1Mi"})
    assert flip(obliging, named, 60).allowed
    assigned = a_stored(obliging, "1", name="web-3")  # as by the API server
    assert (flip(obliging, assigned, 60).code, flip(obliging, assigned, 60).message) == (403, words)


def test_nor_one_whose_gate_may_be_going_just_now(obliging: AdmissionHarness) -> None:
    gated = a_stored(obliging, "1", node="", schedulingGates=[{"name": SCHEDULING_GATE}])
    assert str(flip(obliging, gated, 60).message).startswith("failed quota: short: must specify")


def test_where_no_gates_are_wanted_a_pod_may_get_a_deadline_by_which_it_has_to_name_more(
    obliging: AdmissionHarness,
) -> None:
    want_no_gates(obliging)
    assert flip(obliging, a_stored(obliging, "1", node=""), 60).allowed


def test_a_pod_that_has_to_name_more_already_may_get_another_deadline(
    obliging: AdmissionHarness,
) -> None:
    """It waits behind its gate for good, or is from before its quota."""
    obliging.create(a_quota("all", hard={"limits.cpu": "4"}))
    obliging.wait_until_settled()
    old = a_stored(obliging, node="", requests={"cpu": "1", "memory": "1Mi"})
    assert flip(obliging, old, 60).allowed


def test_a_deadline_moves_no_pod_to_where_no_quota_covers_it(
    open_harness: OpenHarness,
) -> None:
    rule = {"resource": "pods", "matchScopes": [an_expression("Terminating")]}
    harness = open_harness(
        a_quota("long", hard={"requests.cpu": "4"}, scopes=["NotTerminating"]),
        settings={"limitedResources": [rule]},
    )
    reply = flip(harness, a_stored(harness, "1", node=""), 60)
    assert str(reply.message).startswith("insufficient quota to match these scopes")
    assert flip(harness, a_stored(harness, "1", name="web-2", node=""), None).allowed


def test_a_bind_that_overtakes_a_deadline_is_charged_in_both_quotas(
    scoped: AdmissionHarness,
) -> None:
    old = a_stored(scoped, "1", node="")
    assert flip(scoped, old, 60).allowed
    assert scoped.bind("web-1", uid="uid-web-1").allowed
    assert scoped.reserved("short") == {"requests.cpu": "1"}
    assert scoped.reserved("long") == {"requests.cpu": "1"}


CHANGES: dict[str, Object] = {
    "labels": {"metadata": {"labels": {"a": "b"}}},
    "image": {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/app:2",
                    "resources": {"requests": {"cpu": "9"}},
                }
            ]
        }
    },
    "a gate that goes": {"spec": {"schedulingGates": []}},
    "status": {"status": {"phase": "Running"}},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_other_changes_are_not_charged_whatever_the_ledger_says(
    open_harness: OpenHarness, change: Object
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "0"}), with_controller=False)
    old = harness.pod(node="node-1", requests={"cpu": "9"})
    new = {
        **old,
        **{
            part: {**cast("Object", old[part]), **cast("Object", fields)}
            for part, fields in change.items()
        },
    }
    assert harness.change_pod(old, new).decision == "not-charged"


def test_a_finished_pod_may_get_a_deadline(scoped: AdmissionHarness) -> None:
    old = a_stored(scoped, "3", status={"phase": "Failed"})
    assert flip(scoped, old, 60).decision == "nothing-charged"


FRACTION = "a number with a fraction or an exponent"
DEADLINE = "spec.activeDeadlineSeconds"
WRONG = {
    "text": ("object", '"60"', DEADLINE, "a string"),
    "a fraction": ("object", "1.5", DEADLINE, FRACTION),
    "an exponent": ("object", "6e1", DEADLINE, FRACTION),
    "text before": ("oldObject", '"60"', f"oldObject.{DEADLINE}", "a string"),
}


@pytest.mark.parametrize(("where", "text", "field", "found"), WRONG.values(), ids=WRONG.keys())
def test_a_deadline_of_the_wrong_type_is_refused_with_its_path(
    harness: AdmissionHarness, where: str, text: str, field: str, found: str
) -> None:
    old = a_stored(harness)
    review = a_review("UPDATE", "pods", old, old=old)
    cast("Object", review["request"])[where] = with_deadline(old, "DEADLINE")
    written = encode_json(review).replace(b'"DEADLINE"', text.encode())
    reply = harness.post_text(written, Phase.VALIDATING)
    assert (reply.code, reply.message) == (422, f"{field}: must be an integer, not {found}")


@pytest.mark.parametrize("absent", ["object", "oldObject"])
def test_a_review_without_one_of_its_objects_is_a_bad_request(
    harness: AdmissionHarness, absent: str
) -> None:
    old = a_stored(harness)
    review = a_review("UPDATE", "pods", old, old=old)
    cast("Object", review["request"])[absent] = None
    reply = harness.validate(review)
    assert (reply.code, reply.message) == (
        400,
        f"request.{absent}: must be present for UPDATE of pods",
    )


def with_cpu(pod: Object, cpu: str) -> Object:
    (container,) = cast("list[Object]", cast("Object", pod["spec"])["containers"])
    larger = {**container, "resources": {"requests": {"cpu": cpu}}}
    return {**pod, "spec": {**cast("Object", pod["spec"]), "containers": [larger]}}


def test_a_resize_by_an_update_is_charged(harness: AdmissionHarness) -> None:
    """As up to 1.31 with the feature gate InPlacePodVerticalScaling."""
    old = a_stored(harness)
    refused = harness.change_pod(old, with_cpu(old, "3"))
    assert (refused.code, refused.message) == (
        403,
        (
            "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1,"
            " limited: requests.cpu=2"
        ),
    )
    assert harness.change_pod(old, with_cpu(old, "2")).allowed
    assert harness.reserved() == {"requests.cpu": "1"}
    assert harness.reservations()["web-1"]["door"] == "Resize"


def test_a_pod_that_cannot_be_granted_its_resize_may_be_labelled(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "1"}))
    condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    granted = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    status = {"conditions": [condition], "containerStatuses": [granted]}
    old = a_stored(harness, "9", status=status)
    labelled = {**old, "metadata": {**cast("Object", old["metadata"]), "labels": {"a": "b"}}}
    assert harness.change_pod(old, labelled).decision == "not-charged"
