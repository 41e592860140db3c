"""Resizes in place: what a pod grows by is charged, what it shrinks by comes back once seen."""

from __future__ import annotations

from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    WAITING,
    AdmissionHarness,
    Object,
    Reply,
    a_review,
    resized,
    want_no_gates,
)
from tests.builders import a_container, a_container_status, a_quota, an_expression
from tests.reactions import unreachable
from webhook.kube.api import PODS, RESOURCE_QUOTAS


def running(
    harness: AdmissionHarness, cpu: str = "1", name: str = "web-1", **fields: object
) -> Object:
    """Store a pod on a node and let the engine count it."""
    fields = {"requests": {"cpu": cpu}, "node": "node-1", **fields}
    pod = harness.pod(name=name, uid=f"uid-{name}", **fields)
    harness.wait_until_settled()
    return pod


def resize(harness: AdmissionHarness, old: Object, cpu: str, *, dry_run: bool = False) -> Reply:
    new = resized(old, requests={"cpu": cpu})
    return harness.change_pod(old, new, subresource="resize", dry_run=dry_run)


def resize_in_fact(harness: AdmissionHarness, old: Object, cpu: str) -> Reply:
    reply = resize(harness, old, cpu)
    if reply.allowed:
        harness.api.update(PODS, resized(old, requests={"cpu": cpu}), subresource="resize")
    return reply


def test_growth_is_reserved_beside_what_is_used(harness: AdmissionHarness) -> None:
    old = running(harness, "500m")
    reply = resize(harness, old, "1500m")
    assert reply.allowed
    assert reply.audit == {
        "decision": "reserved",
        "quota": "p1",
        "requested": "cpu=1500m,requests.cpu=1500m",
        "ledger": harness.ledger_version(),
    }
    assert harness.used() == {"requests.cpu": "500m"}
    assert harness.reserved() == {"requests.cpu": "1"}
    version = cast("Object", old["metadata"])["resourceVersion"]
    held = harness.reservations()["web-1"]
    assert (held["door"], held["after"]) == ("Resize", version)


def test_growth_beyond_the_quota_is_refused_by_the_growth(harness: AdmissionHarness) -> None:
    running(harness, "500m", "other")
    reply = resize(harness, running(harness, "1"), "3")
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )
    assert reply.causes == [
        ("QuotaExceeded", "p1/requests.cpu", "requested=2,used=1500m,limited=2")
    ]
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "pods")
    assert harness.reservations() == {}


def test_growth_up_to_the_limit_fits(harness: AdmissionHarness) -> None:
    assert resize_in_fact(harness, running(harness, "1"), "2").allowed
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "2"}
    assert harness.reservations() == {}


def test_a_repeated_resize_is_charged_once(harness: AdmissionHarness) -> None:
    old = running(harness, "1")
    assert resize(harness, old, "1500m").allowed
    assert resize(harness, old, "1500m").allowed
    assert harness.reserved() == {"requests.cpu": "500m"}
    assert resize(harness, old, "2").allowed
    assert harness.reserved() == {"requests.cpu": "1"}
    assert resize(harness, old, "2001m").code == 403


def test_a_resize_that_storage_has_not_taken_blocks_only_its_growth(
    harness: AdmissionHarness,
) -> None:
    assert resize(harness, running(harness, "1"), "1500m").allowed
    harness.pod(name="web-2", uid="uid-2", requests={"cpu": "500m"})
    harness.pod(name="web-3", uid="uid-3", requests={"cpu": "1m"})
    harness.catch_up()
    assert harness.bind("web-2", uid="uid-2").allowed
    assert harness.bind("web-3", uid="uid-3").code == 403


def test_shrinking_is_free_and_comes_back_once_it_is_seen(harness: AdmissionHarness) -> None:
    old = running(harness, "2")
    before = harness.ledger_version()
    reply = resize(harness, old, "1")
    assert (reply.allowed, reply.audit) == (True, {"decision": "nothing-charged"})
    assert harness.ledger_version() == before
    harness.api.update(PODS, resized(old, requests={"cpu": "1"}), subresource="resize")
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "1"}


def test_shrinking_is_free_while_the_quota_is_over_its_limit(harness: AdmissionHarness) -> None:
    old = running(harness, "2")
    patch = {"spec": {"hard": {"requests.cpu": "1"}}}
    harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    harness.wait_until_settled()
    assert resize(harness, old, "1500m").allowed
    assert resize(harness, old, "2001m").code == 403


def test_only_what_grows_is_compared(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "3", "requests.memory": "1Gi"}))
    amounts = {"cpu": "1", "memory": "5Gi"}
    old = harness.pod(node="node-1", requests=amounts)
    harness.wait_until_settled()
    larger = resized(old, requests={"cpu": "2", "memory": "6Gi"})
    reply = harness.change_pod(old, larger, subresource="resize")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.memory=1Gi, used: requests.memory=5Gi,"
        " limited: requests.memory=1Gi"
    )
    smaller = resized(old, requests={"cpu": "2", "memory": "4Gi"})
    assert harness.change_pod(old, smaller, subresource="resize").allowed
    assert harness.reserved() == {"requests.cpu": "1"}


def test_a_pod_that_waits_may_grow_beyond_the_quota_and_is_charged_at_its_bind(
    harness: AdmissionHarness,
) -> None:
    want_no_gates(harness)
    old = running(harness, "1", node="")
    assert resize_in_fact(harness, old, "3").allowed
    assert harness.reserved() == {}
    harness.catch_up()
    reply = harness.bind("web-1", uid="uid-web-1")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0,"
        " limited: requests.cpu=2"
    )


def test_a_pod_that_waits_is_bound_at_the_size_it_may_get(harness: AdmissionHarness) -> None:
    old = running(harness, "1", node="")
    assert resize(harness, old, "2").allowed
    # whether the resize or the bind reaches storage first, both fit
    assert harness.bind("web-1", uid="uid-web-1").allowed
    assert harness.reserved() == {"requests.cpu": "2"}


def test_a_resize_that_overtakes_the_bind_of_its_pod_is_charged(harness: AdmissionHarness) -> None:
    running(harness, "1", node="")
    assert harness.bind_in_fact("web-1").allowed
    old = harness.stored(PODS, "web-1")
    assert resize(harness, old, "2").allowed
    assert resize(harness, old, "3").code == 403


def test_one_that_may_preempt_grows_no_more_once_its_gate_is_gone(
    open_harness: OpenHarness,
) -> None:
    """How much such pods take without a node is bounded where they are released, not later."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "4"}))
    old = running(harness, "1", node="", priority=1000)
    reply = resize(harness, old, "2")
    assert (reply.code, harness.reservations()) == (403, {})
    assert str(reply.message).startswith(
        "spec.containers[*].resources: may not have the pod take more of quota p1 now: "
    )
    smaller = {"cpu": "500m", "memory": "1Gi"}  # of memory nothing is limited
    assert harness.change_pod(old, resized(old, requests=smaller), subresource="resize").allowed
    polite = running(harness, "1", "web-2", node="", priority=1000, preemptionPolicy="Never")
    assert resize(harness, polite, "2").allowed


def test_sidecars_and_what_the_node_reports_count(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "4"}))
    sidecar = a_container("proxy", requests={"cpu": "1"}, restartPolicy="Always")
    reported = [a_container_status(requests={"cpu": "2"}, allocated={"cpu": "2"})]
    old = harness.pod(
        a_container(requests={"cpu": "1"}),
        init=[sidecar],
        node="node-1",
        status={"phase": "Running", "containerStatuses": reported},
    )
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "3"}  # it still has the 2 cpu that it gives up
    new = resized(
        old,
        requests={"cpu": "2"},
        init=[a_container("proxy", requests={"cpu": "3"}, restartPolicy="Always")],
    )
    reply = harness.change_pod(old, new, subresource="resize")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=3,"
        " limited: requests.cpu=4"
    )


def test_a_resize_after_one_that_the_node_could_not_grant_is_charged(
    harness: AdmissionHarness,
) -> None:
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    reported = [a_container_status(requests={"cpu": "1"}, allocated={"cpu": "1"})]
    status = {"phase": "Running", "containerStatuses": reported, "conditions": [infeasible]}
    old = running(harness, "400", status=status)
    assert harness.used() == {"requests.cpu": "1"}
    assert resize(harness, old, "500").code == 403
    assert resize(harness, old, "2").decision == "reserved"


def test_a_finished_pod_is_not_charged(harness: AdmissionHarness) -> None:
    old = running(harness, "1", status={"phase": "Succeeded"})
    assert resize(harness, old, "9").decision == "nothing-charged"


SCOPES = {
    "class": (
        {"expressions": [an_expression("PriorityClass", "In", "gold")]},
        {"priorityClassName": "gold"},
    ),
    "Terminating": ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 9}),
    "NotTerminating": ({"scopes": ["NotTerminating"]}, {}),
    "NotBestEffort": ({"scopes": ["NotBestEffort"]}, {}),
}


@pytest.mark.parametrize(("quota", "spec"), SCOPES.values(), ids=SCOPES.keys())
def test_a_scoped_quota_judges_the_pods_it_is_about(
    open_harness: OpenHarness, quota: Object, spec: Object
) -> None:
    others: dict[str, object]
    others = {"activeDeadlineSeconds": 9} if quota.get("scopes") == ["NotTerminating"] else {}
    others |= {"resources": {}} if quota.get("scopes") == ["NotBestEffort"] else {}
    harness = open_harness(a_quota("p1", **quota))  # type: ignore[arg-type]
    inside = running(harness, "1", "inside", **spec)
    outside = running(harness, "1", "outside", **others)
    assert resize(harness, inside, "2").allowed
    assert resize(harness, inside, "3").code == 403
    assert resize(harness, outside, "9").allowed


def test_the_quotas_are_asked_in_the_order_of_their_names(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("bb", uid="b", hard={"requests.cpu": "1"}),
        a_quota("aa", uid="a", hard={"requests.cpu": "1"}),
    )
    reply = resize(harness, running(harness, "1"), "2")
    assert str(reply.message).startswith("exceeded quota: aa, ")


def test_a_pod_may_shrink_without_a_ledger(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    assert resize(harness, harness.pod(node="n", requests={"cpu": "1"}), "500m").allowed


def test_the_pods_come_with_the_request_so_no_cache_can_be_too_old(
    harness: AdmissionHarness,
) -> None:
    harness.client.pause(PODS, WAITING)
    harness.client.on("get", PODS, unreachable)
    old = harness.pod(node="node-1", requests={"cpu": "1"})
    assert resize(harness, old, "2").allowed


WRONG = {
    ("object", "spec"): ("spec", "must be an object, not a list"),
    ("oldObject", "spec"): ("oldObject.spec", "must be an object, not a list"),
    ("oldObject", "metadata"): ("oldObject.metadata", "must be an object, not a list"),
}


@pytest.mark.parametrize(("where", "error"), WRONG.items(), ids=".".join)
def test_a_field_of_the_wrong_type_is_refused_with_its_path(
    harness: AdmissionHarness, where: tuple[str, str], error: tuple[str, str]
) -> None:
    old = running(harness)
    sent = {"object": resized(old, requests={"cpu": "2"}), "oldObject": old}
    sent[where[0]] = {**sent[where[0]], where[1]: []}
    review = a_review(
        "UPDATE", "pods", sent["object"], old=sent["oldObject"], subresource="resize", name="web-1"
    )
    reply = harness.validate(review)
    assert (reply.code, reply.message) == (422, f"{error[0]}: {error[1]}")
    assert reply.causes == [("FieldValueInvalid", *error)]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"uid": None}, "oldObject.metadata.uid: must be given"),
        (
            {"uid": "u" * 129},
            "oldObject.metadata.uid: must be at most 128 printable characters",
        ),
        ({"name": "x" * 254}, "oldObject.metadata.name: must be no more than 253 characters"),
        (
            {"resourceVersion": None},
            "oldObject.metadata.resourceVersion: must be a resource version",
        ),
        (
            {"resourceVersion": "12a"},
            "oldObject.metadata.resourceVersion: must be a resource version",
        ),
        (
            {"resourceVersion": "9" * 5000},
            "oldObject.metadata.resourceVersion: must be a resource version",
        ),
    ],
    ids=["no uid", "long uid", "long name", "no version", "no number", "too long"],
)
def test_an_old_pod_that_storage_cannot_hold_is_refused_and_spoils_nothing(
    harness: AdmissionHarness, metadata: Object, message: str
) -> None:
    old = running(harness)
    odd = {**old, "metadata": {**cast("Object", old["metadata"]), **metadata}}
    reply = harness.change_pod(odd, resized(odd, requests={"cpu": "2"}), subresource="resize")
    assert (reply.code, reply.message) == (422, message)
    assert resize(harness, old, "2").allowed


@pytest.mark.parametrize("absent", ["object", "oldObject"])
def test_a_review_without_one_of_its_objects_is_a_bad_request(
    harness: AdmissionHarness, absent: str
) -> None:
    old = running(harness)
    review = a_review("UPDATE", "pods", old, old=old, subresource="resize")
    cast("Object", review["request"])[absent] = None
    reply = harness.validate(review)
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == f"request.{absent}: must be present for UPDATE of pods/resize"


def test_the_mutating_webhook_leaves_resizes_alone(harness: AdmissionHarness) -> None:
    old = running(harness)
    review = a_review("UPDATE", "pods", old, old=old, subresource="resize")
    assert (harness.mutate(review).allowed, harness.mutate(review).patch) == (True, [])
