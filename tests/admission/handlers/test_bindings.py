"""Binds: a pod gets its node only while its quotas have room for all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    NAMESPACE,
    WAITING,
    AdmissionHarness,
    Reply,
    a_bind_review,
    a_review,
    eventually,
    is_undecided,
    want_no_gates,
)
from tests.builders import a_binding, a_container, a_pod, a_quota, an_expression
from tests.reactions import preceded_by, unreachable
from webhook.kube.api import PODS, QUOTA_LEDGERS, ConflictError
from webhook.telemetry.trace import Trace, current_trace, read_trace, under

LEGACY = pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])


def waiting(
    harness: AdmissionHarness, name: str = "web-1", cpu: str = "1", **fields: object
) -> str:
    """Store a pod that waits, let the engine see it, and return its uid."""
    uid = f"uid-{name}"
    harness.pod(name=name, uid=uid, requests={"cpu": cpu}, **fields)
    harness.catch_up()
    return uid


def is_exceeded(reply: Reply) -> bool:
    return reply.code == 403 and str(reply.message).startswith("exceeded quota: ")


@LEGACY
def test_a_name_that_no_pod_can_have_is_not_looked_up(
    harness: AdmissionHarness, legacy: bool
) -> None:
    harness.client.on("get", PODS, unreachable)
    for name in ("x" * 1_000_000, "Web_1", "a b"):
        reply = harness.bind(name, uid="uid-web", legacy=legacy)
        assert reply.code == 404
        assert str(reply.message).startswith(f'pods "{name[:1024]}')
    reply = harness.bind("", uid="uid-web", legacy=legacy)
    assert (reply.code, reply.message) == (400, "Name parameter required.")


# -- charging ------------------------------------------------------------------------------


def test_the_write_of_a_reservation_belongs_to_the_trace_of_its_bind(
    harness: AdmissionHarness,
) -> None:
    """The transport sends the `traceparent` on of what a thread works for."""
    uid = waiting(harness)
    trace = read_trace(f"00-{'4b' * 16}-{'7a' * 8}-01")
    traces: list[Trace | None] = []
    note = preceded_by(lambda _: traces.append(current_trace()))
    with harness.client.on("update", QUOTA_LEDGERS, note), under(trace):
        assert harness.bind("web-1", uid=uid).allowed
    assert [each for each in traces if each is not None] == [trace]


@LEGACY
def test_a_pod_that_fits_is_reserved_before_the_answer(
    harness: AdmissionHarness, legacy: bool
) -> None:
    uid = waiting(harness)
    reply = harness.bind("web-1", uid=uid, legacy=legacy)
    assert reply.allowed
    assert reply.audit == {
        "decision": "reserved",
        "quota": "p1",
        "requested": "cpu=1,requests.cpu=1",
        "ledger": harness.ledger_version(),
    }
    assert harness.reservations()["web-1"] == {
        "uid": uid,
        "pod": "web-1",
        "door": "Bind",
        "usage": {"cpu": "1", "requests.cpu": "1"},
        "quotas": ["p1"],
        "serial": 1,
    }


@LEGACY
def test_a_pod_that_does_not_fit_is_refused_in_the_words_of_the_api_server(
    harness: AdmissionHarness, legacy: bool
) -> None:
    harness.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "1500m"})
    harness.wait_until_settled()
    uid = waiting(harness)
    before = harness.ledger_version()
    reply = harness.bind("web-1", uid=uid, legacy=legacy)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )
    assert reply.details == {
        "name": "web-1",
        "kind": "bindings" if legacy else "pods",
        "causes": [
            {
                "reason": "QuotaExceeded",
                "field": "p1/requests.cpu",
                "message": "requested=1,used=1500m,limited=2",
            }
        ],
    }
    assert reply.audit == {
        "decision": "denied",
        "quota": "p1",
        "requested": "requests.cpu=1",
        "used": "requests.cpu=1500m",
        "limited": "requests.cpu=2",
    }
    assert reply.warnings == []
    assert harness.ledger_version() == before


def test_only_exceeded_resources_are_named_sorted_bytewise(open_harness: OpenHarness) -> None:
    hard = {"requests.cpu": "1", "limits.cpu": "1", "requests.memory": "9Gi", "pods": "0"}
    harness = open_harness(a_quota("p1", hard=hard))
    amounts = {"cpu": "2", "memory": "1Gi"}
    harness.pod(requests=amounts, limits=amounts)
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1")
    assert reply.message == (
        "exceeded quota: p1, requested: limits.cpu=2,requests.cpu=2,"
        " used: limits.cpu=0,requests.cpu=0, limited: limits.cpu=1,requests.cpu=1"
    )
    assert [field for _, field, _ in reply.causes] == ["p1/limits.cpu", "p1/requests.cpu"]


def test_quotas_are_asked_in_the_order_of_their_names_and_charged_all_or_none(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(
        a_quota("zz", uid="z", hard={"requests.cpu": "0"}),
        a_quota("aa", uid="a", hard={"requests.cpu": "9"}),
        a_quota("mm", uid="m", hard={"requests.cpu": "0"}),
    )
    reply = harness.bind("web-1", uid=waiting(harness))
    assert str(reply.message).startswith("exceeded quota: mm, ")
    assert harness.reservations() == {}


def test_exactly_as_much_as_is_left_fits(harness: AdmissionHarness) -> None:
    waiting(harness, cpu="2")
    assert harness.bind_in_fact("web-1").allowed
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "2"}
    assert is_exceeded(harness.bind("web-2", uid=waiting(harness, "web-2", "1m")))


def test_what_is_promised_counts_before_it_is_used(harness: AdmissionHarness) -> None:
    first, second = waiting(harness, "web-1", "1500m"), waiting(harness, "web-2")
    assert harness.bind("web-1", uid=first).allowed
    reply = harness.bind("web-2", uid=second)
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )


def test_a_repeated_bind_is_charged_once(harness: AdmissionHarness) -> None:
    uid = waiting(harness, cpu="2")
    for _ in range(3):
        assert harness.bind("web-1", uid=uid).decision == "reserved"
    assert harness.reserved() == {"requests.cpu": "2"}
    assert harness.reservations()["web-1"]["serial"] == 3


def test_a_bind_that_storage_carried_out_moves_from_reserved_to_used(
    harness: AdmissionHarness,
) -> None:
    waiting(harness)
    assert harness.bind_in_fact("web-1").allowed
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.reservations() == {}


def test_init_containers_overhead_and_text_count_as_the_platform_counts_them(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "1"}))
    harness.pod(
        a_container(requests={"cpu": "1.000"}),
        init=[a_container("setup", requests={"cpu": "3"})],
        overhead={"cpu": "250m"},
    )
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1")
    assert "requested: requests.cpu=3250m, used: requests.cpu=0" in str(reply.message)


def test_a_pod_that_asks_for_nothing_fits_a_quota_that_is_over_its_limit(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "0"}))
    harness.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "1"})
    harness.wait_until_settled()
    assert harness.bind("web-1", uid=waiting(harness, cpu="0")).allowed
    assert harness.reserved() == {}
    harness.pod(name="bare", uid="uid-bare", requests={"memory": "1Gi"})
    harness.catch_up()
    assert harness.bind("bare", uid="uid-bare").code == 403  # it has to say what cpu it needs


def test_a_pod_that_says_nothing_of_compute_is_not_charged(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), settings={"mustSpecify": "off"})
    harness.pod()
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1")
    assert (reply.allowed, reply.audit) == (True, {"decision": "nothing-charged"})
    assert harness.reservations() == {}


def test_without_deferred_quotas_a_bind_is_not_charged_and_needs_no_ledger(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("counts", hard={"pods": "0", "requests.storage": "0"}))
    reply = harness.bind("web-1", uid=waiting(harness, cpu="99"))
    assert (reply.allowed, reply.decision) == (True, "nothing-charged")
    assert harness.ledger() is None


def test_native_resources_of_a_mixed_quota_are_left_to_the_api_server(
    open_harness: OpenHarness,
) -> None:
    hard = {
        "requests.cpu": "2",
        "pods": "0",
        "requests.ephemeral-storage": "0",
        "requests.nvidia.com/gpu": "0",
        "count/pods": "0",
    }
    harness = open_harness(a_quota("p1", hard=hard))
    amounts = {"cpu": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}
    harness.pod(requests=amounts, limits={"nvidia.com/gpu": "1"})
    harness.catch_up()
    assert harness.bind("web-1", uid="pod-uid-1").decision == "reserved"


def test_an_extended_resource_can_be_deferred_too(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("p1", hard={"requests.nvidia.com/gpu": "1"}),
        settings={"deferredResources": ["requests.nvidia.com/gpu"]},
    )
    harness.pod(requests={"nvidia.com/gpu": "2"}, limits={"nvidia.com/gpu": "2"})
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.nvidia.com/gpu=2,"
        " used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1"
    )


def test_the_old_spelling_of_a_key_is_the_same_resource_and_its_own_limit(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1", hard={"cpu": "1"}))
    reply = harness.bind("web-1", uid=waiting(harness, cpu="2"))
    assert reply.message == "exceeded quota: p1, requested: cpu=2, used: cpu=0, limited: cpu=1"


# -- which pod -----------------------------------------------------------------------------


@LEGACY
def test_a_pod_that_is_not_there_is_refused_as_storage_does(
    harness: AdmissionHarness, legacy: bool
) -> None:
    reply = harness.bind("gone", uid="uid-gone", legacy=legacy)
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert reply.message == 'pods "gone" not found'
    assert reply.details["name"] == "gone"


@LEGACY
def test_a_gated_pod_is_refused_as_storage_does(harness: AdmissionHarness, legacy: bool) -> None:
    uid = waiting(harness, schedulingGates=[{"name": "example.com/hold"}])
    reply = harness.bind("web-1", uid=uid, legacy=legacy)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == "pod web-1 has non-empty .spec.schedulingGates"
    assert harness.reservations() == {}


def assigned(harness: AdmissionHarness) -> str:
    harness.pod(name="web-1", uid="uid-web-1", node="node-9", requests={"cpu": "5"})
    return "uid-web-1"


def deleting(harness: AdmissionHarness) -> str:
    metadata = {"finalizers": ["example.com/hold"]}
    harness.pod(name="web-1", uid="uid-web-1", requests={"cpu": "5"}, metadata=metadata)
    harness.api.delete(PODS, "web-1", namespace=NAMESPACE)
    return "uid-web-1"


def of_another_uid(harness: AdmissionHarness) -> str:
    harness.pod(name="web-1", uid="uid-web-1", requests={"cpu": "5"})
    return "uid-of-another"


IRREVERSIBLE = {"assigned": assigned, "deleting": deleting, "of another uid": of_another_uid}


@LEGACY
@pytest.mark.parametrize("make", IRREVERSIBLE.values(), ids=IRREVERSIBLE.keys())
def test_a_pod_that_storage_will_refuse_for_ever_passes_uncharged(
    harness: AdmissionHarness, make: object, legacy: bool
) -> None:
    uid = cast("str", make(harness))  # type: ignore[operator]
    harness.wait_until_settled()
    reply = harness.bind("web-1", uid=uid, legacy=legacy)
    assert (reply.allowed, reply.audit) == (True, {"decision": "passthrough"})
    assert harness.reservations() == {}
    with pytest.raises(ConflictError):
        harness.api.bind(a_binding("web-1", uid=uid))


def no_pod(_desk: AdmissionHarness) -> None:
    """Nothing is stored."""


@LEGACY
@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
@pytest.mark.parametrize("make", [no_pod, waiting, assigned])
def test_a_binding_that_names_no_uid_is_refused_whatever_pod_there_is(
    harness: AdmissionHarness,
    make: Callable[[AdmissionHarness], object],
    dry_run: bool,
    legacy: bool,
) -> None:
    make(harness)
    reply = harness.bind("web-1", legacy=legacy, dry_run=dry_run)
    assert (reply.code, reply.reason) == (409, "Conflict")
    detail = (
        "must name the uid of pod web-1, so that no other pod of that name is bound;"
        " the mutating webhook that adds it was not asked"
    )
    assert reply.message == f"metadata.uid: {detail}"
    assert reply.causes == [("FieldValueRequired", "metadata.uid", detail)]
    assert reply.audit == {"decision": "denied", "reason": reply.message}
    assert harness.reservations() == {}


# -- cache and truth -----------------------------------------------------------------------


def test_a_waiting_pod_in_the_cache_costs_no_question(harness: AdmissionHarness) -> None:
    uid = waiting(harness)
    harness.wait_until_settled()
    harness.client.calls.clear()
    assert harness.bind("web-1", uid=uid).allowed
    assert harness.client.calls_of("get", PODS) == []


def test_a_pod_that_the_cache_has_not_seen_yet_is_looked_up(harness: AdmissionHarness) -> None:
    harness.client.pause(PODS, WAITING)
    harness.pod(name="new", uid="uid-new", requests={"cpu": "2"})
    assert harness.bind("new", uid="uid-new").decision == "reserved"
    assert harness.reserved() == {"requests.cpu": "2"}


def test_a_pod_that_was_made_again_under_its_name_is_charged_as_it_is_now(
    harness: AdmissionHarness,
) -> None:
    waiting(harness, cpu="1")
    harness.client.pause(PODS, WAITING)
    harness.api.delete(PODS, "web-1", namespace=NAMESPACE)
    harness.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    assert harness.bind("web-1", uid="uid-again").decision == "reserved"
    assert harness.reservations()["web-1"]["uid"] == "uid-again"
    assert harness.reserved() == {"requests.cpu": "2"}


def test_a_binding_of_the_former_pod_of_that_name_is_not_charged_for_the_new_one(
    harness: AdmissionHarness,
) -> None:
    old = waiting(harness, cpu="1")
    harness.api.delete(PODS, "web-1", namespace=NAMESPACE)
    waiting(harness, "other")
    harness.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    harness.catch_up()
    assert harness.bind("web-1", uid=old).decision == "passthrough"
    assert harness.reservations() == {}


def test_a_pod_that_was_gated_when_it_was_seen_may_be_free_now(harness: AdmissionHarness) -> None:
    uid = waiting(harness, schedulingGates=[{"name": "example.com/hold"}])
    harness.client.pause(PODS, WAITING)
    harness.api.patch(PODS, "web-1", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    assert harness.bind("web-1", uid=uid).decision == "reserved"


def test_a_pod_that_was_assigned_since_it_was_seen_stays_charged_once(
    harness: AdmissionHarness,
) -> None:
    uid = waiting(harness, cpu="2")
    harness.client.pause(PODS, WAITING)
    harness.api.bind(a_binding("web-1", uid=uid))
    reply = harness.bind("web-1", uid=uid)
    # reserved, refused as counted already, or passed on: never more than there is
    assert reply.allowed or is_exceeded(reply)
    harness.client.resume()
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "2"}
    assert harness.reservations() == {}


@pytest.mark.parametrize(("phase", "uid"), [("mutate", ""), ("validate", "uid-unseen")])
def test_a_pod_that_cannot_be_looked_up_is_undecided(
    harness: AdmissionHarness, phase: str, uid: str
) -> None:
    harness.client.on("get", PODS, unreachable)
    review = a_bind_review("unseen", uid=uid)
    reply = harness.mutate(review) if phase == "mutate" else harness.validate(review)
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert reply.message == "the API server does not answer: no route to the pods"
    assert reply.details["retryAfterSeconds"] == 1


def test_a_resize_before_the_bind_is_charged_though_the_cache_has_not_seen_it(
    harness: AdmissionHarness,
) -> None:
    want_no_gates(harness)
    uid = waiting(harness, cpu="1")
    harness.wait_until_settled()
    old = harness.stored(PODS, "web-1")
    new = a_pod(name="web-1", uid=uid, requests={"cpu": "3"})
    cast("dict[str, object]", new["metadata"])["resourceVersion"] = cast(
        "dict[str, object]", old["metadata"]
    )["resourceVersion"]
    assert harness.change_pod(old, new, subresource="resize").allowed
    harness.client.pause(PODS, WAITING)
    harness.api.update(PODS, new, subresource="resize")
    reply = harness.bind("web-1", uid=uid)
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0,"
        " limited: requests.cpu=2"
    )


# -- what the Binding says -----------------------------------------------------------------


def pinned(harness: AdmissionHarness, review: dict[str, object]) -> tuple[Reply, dict[str, object]]:
    reply = harness.mutate(review)
    assert reply.allowed
    return reply, cast("dict[str, object]", reply.object["metadata"])


@LEGACY
def test_a_binding_without_uid_is_pinned_to_the_pod_and_adds_nothing_else_to_it(
    harness: AdmissionHarness, legacy: bool
) -> None:
    """Storage merges annotations of a Binding into the pod however large they become.

    Beyond 262,144 bytes it refuses every later change of the pod.
    """
    uid = waiting(harness)
    reply, metadata = pinned(harness, a_bind_review("web-1", legacy=legacy))
    assert reply.decision == "pinned"
    assert metadata == {"name": "web-1", "namespace": NAMESPACE, "uid": uid}
    assert reply.object["target"] == {"kind": "Node", "name": "node-1"}


def test_a_uid_that_is_there_is_left_alone_and_no_pod_is_looked_up(
    harness: AdmissionHarness,
) -> None:
    harness.client.on("get", PODS, unreachable)
    reply, metadata = pinned(harness, a_bind_review("web-1", uid="as-sent"))
    assert metadata["uid"] == "as-sent"
    assert reply.patch == []


def test_annotations_and_labels_of_others_stay(harness: AdmissionHarness) -> None:
    uid = waiting(harness)
    review = a_bind_review("web-1", annotations={"example.com/why": "because"})
    reply, metadata = pinned(harness, review)
    assert (metadata["uid"], metadata["annotations"]) == (uid, {"example.com/why": "because"})
    assert [operation["path"] for operation in reply.patch] == ["/metadata/uid"]


@LEGACY
def test_pinning_a_pinned_binding_changes_nothing(harness: AdmissionHarness, legacy: bool) -> None:
    waiting(harness)
    review = a_bind_review("web-1", legacy=legacy)
    reply, _ = pinned(harness, review)
    cast("dict[str, object]", review["request"])["object"] = reply.object
    again, _ = pinned(harness, review)
    assert again.patch == []


@LEGACY
@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_a_binding_without_uid_of_a_pod_that_is_not_there_is_refused_as_storage_does(
    harness: AdmissionHarness, dry_run: bool, legacy: bool
) -> None:
    reply = harness.mutate(a_bind_review("gone", legacy=legacy, dry_run=dry_run))
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert reply.message == 'pods "gone" not found'
    harness.client.pause(PODS, WAITING)
    harness.pod(name="gone", uid="uid-late", requests={"cpu": "1"})
    _, metadata = pinned(harness, a_bind_review("gone", legacy=legacy, dry_run=dry_run))
    assert metadata["uid"] == "uid-late"


def test_metadata_that_is_null_is_filled(harness: AdmissionHarness) -> None:
    uid = waiting(harness)
    binding = {**a_binding("web-1"), "metadata": None}
    review = a_review("CREATE", "pods", binding, subresource="binding", name="web-1")
    _, metadata = pinned(harness, review)
    assert metadata["uid"] == uid


def test_pinning_writes_nothing(harness: AdmissionHarness) -> None:
    waiting(harness)
    harness.wait_until_settled()
    before = harness.version_at_rest()
    pinned(harness, a_bind_review("web-1"))
    pinned(harness, a_bind_review("web-1", dry_run=True))
    assert harness.cluster.resource_version == before


def test_a_pin_that_was_overtaken_makes_storage_refuse(harness: AdmissionHarness) -> None:
    waiting(harness)
    reply, _ = pinned(harness, a_bind_review("web-1"))
    harness.api.delete(PODS, "web-1", namespace=NAMESPACE)
    harness.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    with pytest.raises(ConflictError, match="Precondition failed: UID"):
        harness.api.bind(reply.object)


WRONG = {
    "metadata": ({"metadata": []}, "metadata", "must be an object, not a list"),
    "name": ({"metadata": {"name": 7}}, "metadata.name", "must be a string, not a number"),
    "uid": (
        {"metadata": {"name": "web-1", "uid": True}},
        "metadata.uid",
        "must be a string, not a boolean",
    ),
}


@LEGACY
@pytest.mark.parametrize(("change", "field", "detail"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_field_of_the_wrong_type_is_refused_with_its_path(
    harness: AdmissionHarness,
    change: dict[str, object],
    field: str,
    detail: str,
    legacy: bool,
    phase: str,
) -> None:
    resource, subresource = ("bindings", "") if legacy else ("pods", "binding")
    review = a_review(
        "CREATE", resource, {**a_binding(), **change}, subresource=subresource, name="web-1"
    )
    reply = harness.mutate(review) if phase == "mutate" else harness.validate(review)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.message == f"{field}: {detail}"
    assert reply.causes == [("FieldValueInvalid", field, detail)]
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "Binding")


@pytest.mark.parametrize("annotations", [7, "text", ["a"]], ids=["number", "string", "list"])
def test_annotations_of_the_wrong_type_are_refused_with_their_path(
    harness: AdmissionHarness, annotations: object
) -> None:
    binding = {**a_binding(), "metadata": {"name": "web-1", "annotations": annotations}}
    review = a_review("CREATE", "pods", binding, subresource="binding")
    reply = harness.mutate(review)
    assert reply.code == 422
    assert str(reply.message).startswith("metadata.annotations: must be an object")


def test_a_stored_pod_that_cannot_be_read_is_refused_with_the_path(
    harness: AdmissionHarness,
) -> None:
    harness.client.pause(PODS)
    harness.client.pause(PODS, WAITING)
    harness.cluster.load([(PODS, a_pod(name="odd", uid="uid-odd", requests={"cpu": "two"}))])
    reply = harness.bind("odd", uid="uid-odd")
    assert reply.code == 422
    assert "spec.containers[0].resources.requests.cpu" in str(reply.message)


# -- a class of the pod's own invention ----------------------------------------------------


@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_a_qos_class_that_was_forged_unseen_is_refused_at_the_bind(
    open_harness: OpenHarness, dry_run: bool
) -> None:
    """Its quota would not be about it, and it would run uncharged."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "2"}, scopes=["NotBestEffort"]))
    harness.pod(requests={"cpu": "5"}, status={"phase": "Pending", "qosClass": "BestEffort"})
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1", dry_run=dry_run)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    words = "status.qosClass: BestEffort is not what the pod's resources make it: Burstable"
    assert reply.message == words


# -- containers that do not say what they need ---------------------------------------------


@pytest.mark.parametrize(
    ("setting", "is_refused"), [("create", True), ("bind", True), ("off", False)]
)
def test_containers_must_specify_at_the_bind_unless_that_is_off(
    open_harness: OpenHarness, setting: str, is_refused: bool
) -> None:
    harness = open_harness(
        a_quota("p1", hard={"requests.cpu": "2", "limits.memory": "1Gi", "pods": "5"}),
        settings={"mustSpecify": setting},
    )
    harness.pod(
        a_container("b", requests={"cpu": "1"}),
        a_container("a", limits={"memory": "1Mi"}),
    )
    harness.catch_up()
    reply = harness.bind("web-1", uid="pod-uid-1")
    if not is_refused:
        assert reply.decision == "reserved"
        return
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "failed quota: p1: must specify limits.memory for: b; requests.cpu for: a"
    )
    assert reply.causes == [
        ("MustSpecify", "p1/limits.memory", "must specify limits.memory for: b"),
        ("MustSpecify", "p1/requests.cpu", "must specify requests.cpu for: a"),
    ]
    assert reply.audit == {"decision": "denied", "reason": reply.message}


# -- scopes --------------------------------------------------------------------------------

SCOPED = {
    "PriorityClass In": (
        {"expressions": [an_expression("PriorityClass", "In", "gold")]},
        {"priorityClassName": "gold"},
        {"priorityClassName": "silver"},
    ),
    "PriorityClass NotIn": (
        {"expressions": [an_expression("PriorityClass", "NotIn", "gold")]},
        {},
        {"priorityClassName": "gold"},
    ),
    "Terminating": ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 0}, {}),
    "NotTerminating": ({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 60}),
    "NotBestEffort": ({"scopes": ["NotBestEffort"]}, {}, {"resources": {}}),
}


@pytest.mark.parametrize(("quota", "inside", "outside"), SCOPED.values(), ids=SCOPED.keys())
def test_a_scoped_quota_judges_the_pods_it_is_about(
    open_harness: OpenHarness,
    quota: dict[str, object],
    inside: dict[str, object],
    outside: dict[str, object],
) -> None:
    harness = open_harness(a_quota("p1", **quota))  # type: ignore[arg-type]
    # an empty `resources` of the pod makes it BestEffort whatever its containers ask
    assert is_exceeded(harness.bind("in", uid=waiting(harness, "in", "3", **inside)))
    assert harness.bind("out", uid=waiting(harness, "out", "3", **outside)).allowed
    assert set(harness.reservations()) == {"out"}
    assert harness.reserved() == {}


def test_best_effort_quotas_limit_no_compute_and_charge_nothing(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"pods": "0"}, scopes=["BestEffort"]))
    assert harness.bind("web-1", uid=waiting(harness)).decision == "nothing-charged"


def test_a_pod_of_no_quota_is_remembered_for_a_quota_that_comes(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("gold", expressions=[an_expression("PriorityClass", "In", "gold")])
    )
    uid = waiting(harness, cpu="2")
    assert harness.bind("web-1", uid=uid).audit["quota"] == ""
    harness.create(a_quota("late", hard={"requests.cpu": "2"}))
    harness.wait_until_settled()
    assert harness.reserved("late") == {"requests.cpu": "2"}
    assert is_exceeded(harness.bind("web-2", uid=waiting(harness, "web-2")))


# -- not ours, or not to be decided: more in test_every_charging_request --------------------


@pytest.mark.parametrize("mode", ["", "shadow", "Deferred"])
def test_where_no_namespace_has_opted_in_no_binding_is_pinned(
    open_harness: OpenHarness, mode: str
) -> None:
    assert open_harness(a_quota("p1"), mode=mode).mutate(a_bind_review("web-1")).patch == []


def test_a_binding_for_which_no_time_is_left_is_not_pinned(harness: AdmissionHarness) -> None:
    reply = harness.mutate(a_bind_review("web-1", uid=waiting(harness)), seconds=-1)
    assert is_undecided(reply, "the request's time ran out before it was decided")


def test_a_quota_that_was_not_counted_yet_holds_binds_up(harness: AdmissionHarness) -> None:
    uid = waiting(harness)
    harness.wait_until_settled()
    control = harness.engine.controller
    assert control is not None
    control.stop()
    harness.create(a_quota("new", hard={"requests.cpu": "9"}))
    eventually(
        lambda: len(harness.engine.informers["resourcequotas"]) == 2,
        "the handlers have seen the quota",
    )
    assert is_undecided(harness.bind("web-1", uid=uid), "usage is being counted for quota: new")
    assert is_undecided(
        harness.bind("web-1", uid=uid, dry_run=True), "usage is being counted for quota: new"
    )


def test_a_ledger_that_cannot_be_reached_is_no_permission(harness: AdmissionHarness) -> None:
    uid = waiting(harness, cpu="3")
    harness.client.on("get", QUOTA_LEDGERS, unreachable)
    reply = harness.bind("web-1", uid=uid)
    assert is_undecided(reply, "the quota ledger cannot be reached: no route to the quotaledgers")


def test_a_ledger_that_says_nonsense_holds_binds_up_and_names_the_field(
    open_harness: OpenHarness,
) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    harness.create(
        {
            "apiVersion": QUOTA_LEDGERS.api_version,
            "kind": QUOTA_LEDGERS.kind,
            "metadata": {"name": "ledger", "namespace": NAMESPACE},
        }
    )
    patch = {
        "status": {
            "podsResourceVersion": "1",
            "quotas": [{"name": "p1", "hard": {"cpu": "1"}, "used": {"cpu": []}}],
            "reservations": "",
        }
    }
    harness.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    reply = harness.bind("web-1", uid=waiting(harness))
    assert reply.code == 429
    assert str(reply.message).startswith(
        "the quota ledger cannot be read: status.quotas[0].used.cpu: "
    )


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_review_without_its_object_is_a_bad_request(
    harness: AdmissionHarness, phase: str
) -> None:
    review = a_review("CREATE", "pods", None, subresource="binding", name="web-1")
    reply = harness.mutate(review) if phase == "mutate" else harness.validate(review)
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == "request.object: must be present for CREATE of pods/binding"


def test_a_full_ledger_takes_no_new_pod(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), settings={"limits": {"reservationsPerNamespace": 1}})
    first, second = waiting(harness, "web-1", "100m"), waiting(harness, "web-2", "100m")
    assert harness.bind("web-1", uid=first).allowed
    reply = harness.bind("web-2", uid=second)
    assert is_undecided(reply, "the quota ledger holds as many reservations as it can")
    assert harness.bind("web-1", uid=first).allowed


# -- marks that a Binding writes on the pod ------------------------------------------------

UNGATED = "deferredquota.io/ungated"
GUARDED = "deferredquota.io/guarded"
CONTROLLER = "system:serviceaccount:deferred-quota-system:deferred-quota-controller"


def bound_with(
    harness: AdmissionHarness, metadata: dict[str, dict[str, str]], *, user: str = "alice"
) -> Reply:
    """Ask to bind the pod with labels or annotations in the Binding."""
    binding = a_binding("web-1", namespace=NAMESPACE, uid="uid-web-1")
    cast("dict[str, object]", binding["metadata"]).update(metadata)
    return harness.validate(a_review("CREATE", "pods", binding, subresource="binding", user=user))


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("labels", "deferredquota.io/unevaluated"),
        ("labels", "nos.nebuly.com/capacity"),
        ("annotations", UNGATED),
        ("annotations", "deferredquota.io/requeued"),
    ],
)
def test_a_binding_writes_no_mark_on_the_pod(
    harness: AdmissionHarness, part: str, name: str
) -> None:
    waiting(harness)
    reply = bound_with(harness, {part: {"example.com/mine": "x", name: "x"}})
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert str(reply.message).startswith(f"metadata.{part}[{name}]: may only be written by")
    assert harness.reserved() == {}
    assert bound_with(harness, {part: {"example.com/mine": "x"}}).allowed


def test_a_binding_that_repeats_what_the_pod_has_is_a_bind(harness: AdmissionHarness) -> None:
    marks = {UNGATED: "0011223344556677"}
    labels = {"deferredquota.io/unevaluated": "true"}
    waiting(harness, metadata={"annotations": marks, "labels": labels})
    repeated = {"annotations": {**marks, GUARDED: "17"}, "labels": labels}
    assert bound_with(harness, repeated).allowed
    other = bound_with(harness, {"annotations": {UNGATED: "8899aabbccddeeff"}})
    assert (other.code, other.reason) == (403, "Forbidden")


def test_our_own_processes_may_write_marks_by_a_binding_too(harness: AdmissionHarness) -> None:
    waiting(harness)
    assert bound_with(harness, {"annotations": {UNGATED: "x"}}, user=CONTROLLER).allowed
