"""Binds: a pod gets its node only while its quotas have room for all of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.admission.doors.conftest import OpenDesk
from tests.admission.doors.desk import (
    NAMESPACE,
    WAITING,
    Desk,
    Reply,
    a_bind_review,
    a_review,
    eventually,
)
from tests.builders import a_binding, a_container, a_pod, a_quota, an_expression
from webhook.cluster.api import PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, ConflictError

LEGACY = pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])


def uid_of(obj: dict[str, object]) -> str:
    return str(cast("dict[str, object]", obj["metadata"])["uid"])


def waiting(desk: Desk, name: str = "web-1", cpu: str = "1", **fields: object) -> str:
    """Store a pod that waits, let the engine see it, and return its uid."""
    uid = f"uid-{name}"
    desk.pod(name=name, uid=uid, requests={"cpu": cpu}, **fields)
    desk.catch_up()
    return uid


def is_exceeded(reply: Reply) -> bool:
    return reply.code == 403 and str(reply.message).startswith("exceeded quota: ")


@LEGACY
def test_a_name_that_no_pod_can_have_is_asked_of_nobody(desk: Desk, legacy: bool) -> None:
    desk.line.broken.add(("get", "pods"))
    for name in ("x" * 1_000_000, "Web_1", "a b"):
        reply = desk.bind(name, uid="uid-web", legacy=legacy)
        assert (reply.code, reply.message) == (404, f'pods "{name}" not found')
    reply = desk.bind("", uid="uid-web", legacy=legacy)
    assert (reply.code, reply.message) == (400, "Name parameter required.")


# -- charging ------------------------------------------------------------------------------


@LEGACY
def test_a_pod_that_fits_is_reserved_before_the_answer(desk: Desk, legacy: bool) -> None:
    uid = waiting(desk)
    reply = desk.bind("web-1", uid=uid, legacy=legacy)
    assert reply.allowed
    assert reply.audit == {
        "decision": "reserved",
        "quota": "p1",
        "requested": "cpu=1,requests.cpu=1",
        "ledger": desk.ledger_version(),
    }
    assert desk.reservations()["web-1"] == {
        "uid": uid,
        "pod": "web-1",
        "door": "Bind",
        "usage": {"cpu": "1", "requests.cpu": "1"},
        "quotas": ["p1"],
        "serial": 1,
    }


@LEGACY
def test_a_pod_that_does_not_fit_is_refused_in_the_words_of_the_api_server(
    desk: Desk, legacy: bool
) -> None:
    desk.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "1500m"})
    desk.settle()
    uid = waiting(desk)
    before = desk.ledger_version()
    reply = desk.bind("web-1", uid=uid, legacy=legacy)
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
    assert desk.ledger_version() == before


def test_only_exceeded_resources_are_named_sorted_bytewise(open_desk: OpenDesk) -> None:
    hard = {"requests.cpu": "1", "limits.cpu": "1", "requests.memory": "9Gi", "pods": "0"}
    desk = open_desk(a_quota("p1", hard=hard))
    amounts = {"cpu": "2", "memory": "1Gi"}
    desk.pod(requests=amounts, limits=amounts)
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1")
    assert reply.message == (
        "exceeded quota: p1, requested: limits.cpu=2,requests.cpu=2,"
        " used: limits.cpu=0,requests.cpu=0, limited: limits.cpu=1,requests.cpu=1"
    )
    assert [field for _, field, _ in reply.causes] == ["p1/limits.cpu", "p1/requests.cpu"]


def test_quotas_are_asked_in_the_order_of_their_names_and_charged_all_or_none(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(
        a_quota("zz", uid="z", hard={"requests.cpu": "0"}),
        a_quota("aa", uid="a", hard={"requests.cpu": "9"}),
        a_quota("mm", uid="m", hard={"requests.cpu": "0"}),
    )
    reply = desk.bind("web-1", uid=waiting(desk))
    assert str(reply.message).startswith("exceeded quota: mm, ")
    assert desk.reservations() == {}


def test_exactly_as_much_as_is_left_fits(desk: Desk) -> None:
    waiting(desk, cpu="2")
    assert desk.bind_in_fact("web-1").allowed
    desk.settle()
    assert desk.used() == {"requests.cpu": "2"}
    assert is_exceeded(desk.bind("web-2", uid=waiting(desk, "web-2", "1m")))


def test_what_is_promised_counts_before_it_is_used(desk: Desk) -> None:
    first, second = waiting(desk, "web-1", "1500m"), waiting(desk, "web-2")
    assert desk.bind("web-1", uid=first).allowed
    reply = desk.bind("web-2", uid=second)
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=1500m,"
        " limited: requests.cpu=2"
    )


def test_a_repeated_bind_is_charged_once(desk: Desk) -> None:
    uid = waiting(desk, cpu="2")
    for _ in range(3):
        assert desk.bind("web-1", uid=uid).decision == "reserved"
    assert desk.reserved() == {"requests.cpu": "2"}
    assert desk.reservations()["web-1"]["serial"] == 3


def test_a_bind_that_storage_carried_out_moves_from_reserved_to_used(desk: Desk) -> None:
    waiting(desk)
    assert desk.bind_in_fact("web-1").allowed
    desk.settle()
    assert desk.used() == {"requests.cpu": "1"}
    assert desk.reservations() == {}


def test_init_containers_overhead_and_text_count_as_the_platform_counts_them(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "1"}))
    desk.pod(
        a_container(requests={"cpu": "1.000"}),
        init=[a_container("setup", requests={"cpu": "3"})],
        overhead={"cpu": "250m"},
    )
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1")
    assert "requested: requests.cpu=3250m, used: requests.cpu=0" in str(reply.message)


def test_a_pod_that_asks_for_nothing_fits_a_quota_that_is_over_its_limit(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "0"}))
    desk.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "1"})
    desk.settle()
    assert desk.bind("web-1", uid=waiting(desk, cpu="0")).allowed
    assert desk.reserved() == {}
    desk.pod(name="bare", uid="uid-bare", requests={"memory": "1Gi"})
    desk.catch_up()
    assert desk.bind("bare", uid="uid-bare").code == 403  # it has to say what cpu it needs


def test_a_pod_that_says_nothing_of_compute_is_not_charged(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1"), settings={"mustSpecify": "off"})
    desk.pod()
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1")
    assert (reply.allowed, reply.audit) == (True, {"decision": "nothing-charged"})
    assert desk.reservations() == {}


def test_without_deferred_quotas_a_bind_is_not_charged_and_needs_no_ledger(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("counts", hard={"pods": "0", "requests.storage": "0"}))
    reply = desk.bind("web-1", uid=waiting(desk, cpu="99"))
    assert (reply.allowed, reply.decision) == (True, "nothing-charged")
    assert desk.ledger() is None


def test_native_resources_of_a_mixed_quota_are_left_to_the_api_server(open_desk: OpenDesk) -> None:
    hard = {
        "requests.cpu": "2",
        "pods": "0",
        "requests.ephemeral-storage": "0",
        "requests.nvidia.com/gpu": "0",
        "count/pods": "0",
    }
    desk = open_desk(a_quota("p1", hard=hard))
    amounts = {"cpu": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1"}
    desk.pod(requests=amounts, limits={"nvidia.com/gpu": "1"})
    desk.catch_up()
    assert desk.bind("web-1", uid="pod-uid-1").decision == "reserved"


def test_an_extended_resource_can_be_deferred_too(open_desk: OpenDesk) -> None:
    desk = open_desk(
        a_quota("p1", hard={"requests.nvidia.com/gpu": "1"}),
        settings={"deferredResources": ["requests.nvidia.com/gpu"]},
    )
    desk.pod(requests={"nvidia.com/gpu": "2"}, limits={"nvidia.com/gpu": "2"})
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.nvidia.com/gpu=2,"
        " used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1"
    )


def test_the_old_spelling_of_a_key_is_the_same_resource_and_its_own_limit(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("p1", hard={"cpu": "1"}))
    reply = desk.bind("web-1", uid=waiting(desk, cpu="2"))
    assert reply.message == "exceeded quota: p1, requested: cpu=2, used: cpu=0, limited: cpu=1"


# -- which pod -----------------------------------------------------------------------------


@LEGACY
def test_a_pod_that_is_not_there_is_refused_as_storage_does(desk: Desk, legacy: bool) -> None:
    reply = desk.bind("gone", uid="uid-gone", legacy=legacy)
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert reply.message == 'pods "gone" not found'
    assert reply.details["name"] == "gone"


@LEGACY
def test_a_gated_pod_is_refused_as_storage_does(desk: Desk, legacy: bool) -> None:
    uid = waiting(desk, schedulingGates=[{"name": "example.com/hold"}])
    reply = desk.bind("web-1", uid=uid, legacy=legacy)
    assert (reply.code, reply.reason) == (409, "Conflict")
    assert reply.message == "pod web-1 has non-empty .spec.schedulingGates"
    assert desk.reservations() == {}


def assigned(desk: Desk) -> str:
    desk.pod(name="web-1", uid="uid-web-1", node="node-9", requests={"cpu": "5"})
    return "uid-web-1"


def deleting(desk: Desk) -> str:
    metadata = {"finalizers": ["example.com/hold"]}
    desk.pod(name="web-1", uid="uid-web-1", requests={"cpu": "5"}, metadata=metadata)
    desk.api.delete(PODS, "web-1", namespace=NAMESPACE)
    return "uid-web-1"


def of_another_uid(desk: Desk) -> str:
    desk.pod(name="web-1", uid="uid-web-1", requests={"cpu": "5"})
    return "uid-of-another"


IRREVERSIBLE = {"assigned": assigned, "deleting": deleting, "of another uid": of_another_uid}


@LEGACY
@pytest.mark.parametrize("make", IRREVERSIBLE.values(), ids=IRREVERSIBLE.keys())
def test_a_pod_that_storage_will_refuse_for_ever_passes_uncharged(
    desk: Desk, make: object, legacy: bool
) -> None:
    uid = cast("str", make(desk))  # type: ignore[operator]
    desk.settle()
    before = desk.ledger_version()
    reply = desk.bind("web-1", uid=uid, legacy=legacy)
    assert (reply.allowed, reply.audit) == (True, {"decision": "passthrough"})
    assert desk.ledger_version() == before
    with pytest.raises(ConflictError):
        desk.api.bind(a_binding("web-1", uid=uid))


def no_pod(_desk: Desk) -> None:
    """Nothing is stored."""


@LEGACY
@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
@pytest.mark.parametrize("make", [no_pod, waiting, assigned])
def test_a_binding_that_names_no_uid_is_refused_whatever_pod_there_is(
    desk: Desk, make: Callable[[Desk], object], dry_run: bool, legacy: bool
) -> None:
    make(desk)
    reply = desk.bind("web-1", legacy=legacy, dry_run=dry_run)
    assert (reply.code, reply.reason) == (409, "Conflict")
    detail = (
        "must name the uid of pod web-1, so that no other pod of that name is bound;"
        " the mutating webhook that adds it was not asked"
    )
    assert reply.message == f"metadata.uid: {detail}"
    assert reply.causes == [("FieldValueRequired", "metadata.uid", detail)]
    assert reply.audit == {"decision": "denied", "reason": reply.message}
    assert desk.reservations() == {}


# -- cache and truth -----------------------------------------------------------------------


def test_a_waiting_pod_in_the_cache_costs_no_question(desk: Desk) -> None:
    uid = waiting(desk)
    desk.settle()
    desk.line.calls.clear()
    assert desk.bind("web-1", uid=uid).allowed
    assert [call for call in desk.line.calls if call[1] == "pods"] == []


def test_a_pod_that_the_cache_has_not_seen_yet_is_looked_up(desk: Desk) -> None:
    desk.line.hold(PODS, WAITING)
    desk.pod(name="new", uid="uid-new", requests={"cpu": "2"})
    assert desk.bind("new", uid="uid-new").decision == "reserved"
    assert desk.reserved() == {"requests.cpu": "2"}


def test_a_pod_that_was_made_again_under_its_name_is_charged_as_it_is_now(desk: Desk) -> None:
    waiting(desk, cpu="1")
    desk.line.hold(PODS, WAITING)
    desk.api.delete(PODS, "web-1", namespace=NAMESPACE)
    desk.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    assert desk.bind("web-1", uid="uid-again").decision == "reserved"
    assert desk.reservations()["web-1"]["uid"] == "uid-again"
    assert desk.reserved() == {"requests.cpu": "2"}


def test_a_binding_of_the_former_pod_of_that_name_is_not_charged_for_the_new_one(
    desk: Desk,
) -> None:
    old = waiting(desk, cpu="1")
    desk.api.delete(PODS, "web-1", namespace=NAMESPACE)
    waiting(desk, "other")
    desk.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    desk.catch_up()
    assert desk.bind("web-1", uid=old).decision == "passthrough"
    assert desk.reservations() == {}


def test_a_pod_that_was_gated_when_it_was_seen_may_be_free_now(desk: Desk) -> None:
    uid = waiting(desk, schedulingGates=[{"name": "example.com/hold"}])
    desk.line.hold(PODS, WAITING)
    desk.api.patch(PODS, "web-1", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    assert desk.bind("web-1", uid=uid).decision == "reserved"


def test_a_pod_that_was_assigned_since_it_was_seen_stays_charged_once(desk: Desk) -> None:
    uid = waiting(desk, cpu="2")
    desk.line.hold(PODS, WAITING)
    desk.api.bind(a_binding("web-1", uid=uid))
    reply = desk.bind("web-1", uid=uid)
    # reserved, refused as counted already, or passed on: never more than there is
    assert reply.allowed or is_exceeded(reply)
    desk.line.resume()
    desk.settle()
    assert desk.used() == {"requests.cpu": "2"}
    assert desk.reservations() == {}


@pytest.mark.parametrize(("phase", "uid"), [("mutate", ""), ("validate", "uid-unseen")])
def test_a_pod_that_cannot_be_looked_up_is_undecided(desk: Desk, phase: str, uid: str) -> None:
    desk.line.broken.add(("get", "pods"))
    review = a_bind_review("unseen", uid=uid)
    reply = desk.mutate(review) if phase == "mutate" else desk.validate(review)
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert reply.message == "the API server does not answer: no route to the pods"
    assert reply.details["retryAfterSeconds"] == 1


def test_a_resize_before_the_bind_is_charged_though_the_cache_has_not_seen_it(desk: Desk) -> None:
    uid = waiting(desk, cpu="1")
    desk.settle()
    old = desk.stored(PODS, "web-1")
    new = a_pod(name="web-1", uid=uid, requests={"cpu": "3"})
    cast("dict[str, object]", new["metadata"])["resourceVersion"] = cast(
        "dict[str, object]", old["metadata"]
    )["resourceVersion"]
    assert desk.change_pod(old, new, subresource="resize").allowed
    desk.line.hold(PODS, WAITING)
    desk.api.update(PODS, new, subresource="resize")
    reply = desk.bind("web-1", uid=uid)
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0,"
        " limited: requests.cpu=2"
    )


# -- what the Binding says -----------------------------------------------------------------


def stamped(desk: Desk, review: dict[str, object]) -> tuple[Reply, dict[str, object]]:
    reply = desk.mutate(review)
    assert reply.allowed
    return reply, cast("dict[str, object]", reply.object["metadata"])


@LEGACY
def test_a_binding_without_uid_is_pinned_to_the_pod(desk: Desk, legacy: bool) -> None:
    uid = waiting(desk)
    desk.settle()
    reply, metadata = stamped(desk, a_bind_review("web-1", legacy=legacy))
    assert reply.decision == "stamped"
    assert metadata == {
        "name": "web-1",
        "namespace": NAMESPACE,
        "uid": uid,
        "annotations": {"deferredquota.io/guarded": desk.ledger_version()},
    }
    assert reply.object["target"] == {"kind": "Node", "name": "node-1"}


def test_a_uid_that_is_there_is_left_alone_and_no_pod_is_looked_up(desk: Desk) -> None:
    desk.line.broken.add(("get", "pods"))
    reply, metadata = stamped(desk, a_bind_review("web-1", uid="as-sent"))
    assert metadata["uid"] == "as-sent"
    assert [operation["path"] for operation in reply.patch] == ["/metadata/annotations"]


def test_annotations_and_labels_of_others_stay(desk: Desk) -> None:
    review = a_bind_review("web-1", uid="u", annotations={"example.com/why": "because"})
    reply, metadata = stamped(desk, review)
    assert metadata["annotations"] == {
        "example.com/why": "because",
        "deferredquota.io/guarded": desk.ledger_version(),
    }
    assert [operation["path"] for operation in reply.patch] == [
        "/metadata/annotations/deferredquota.io~1guarded"
    ]


@LEGACY
def test_stamping_a_stamped_binding_changes_nothing(desk: Desk, legacy: bool) -> None:
    waiting(desk)
    review = a_bind_review("web-1", legacy=legacy)
    reply, _ = stamped(desk, review)
    cast("dict[str, object]", review["request"])["object"] = reply.object
    again, _ = stamped(desk, review)
    assert again.patch == []


def test_a_stamp_that_somebody_wrote_beforehand_is_replaced(desk: Desk) -> None:
    review = a_bind_review("web-1", uid="u", annotations={"deferredquota.io/guarded": "forged"})
    _, metadata = stamped(desk, review)
    assert metadata["annotations"] == {"deferredquota.io/guarded": desk.ledger_version()}


def test_without_a_ledger_the_stamp_is_zero(open_desk: OpenDesk) -> None:
    desk = open_desk()
    _, metadata = stamped(desk, a_bind_review("web-1", uid="u"))
    assert metadata["annotations"] == {"deferredquota.io/guarded": "0"}


@LEGACY
@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_a_binding_without_uid_of_a_pod_that_is_not_there_is_refused_as_storage_does(
    desk: Desk, dry_run: bool, legacy: bool
) -> None:
    reply = desk.mutate(a_bind_review("gone", legacy=legacy, dry_run=dry_run))
    assert (reply.code, reply.reason) == (404, "NotFound")
    assert reply.message == 'pods "gone" not found'
    desk.line.hold(PODS, WAITING)
    desk.pod(name="gone", uid="uid-late", requests={"cpu": "1"})
    _, metadata = stamped(desk, a_bind_review("gone", legacy=legacy, dry_run=dry_run))
    assert metadata["uid"] == "uid-late"


def test_metadata_that_is_null_is_filled(desk: Desk) -> None:
    uid = waiting(desk)
    binding = {**a_binding("web-1"), "metadata": None}
    review = a_review("CREATE", "pods", binding, subresource="binding", name="web-1")
    _, metadata = stamped(desk, review)
    assert metadata["uid"] == uid


def test_stamping_writes_nothing(desk: Desk) -> None:
    waiting(desk)
    desk.settle()
    before = desk.cluster.resource_version
    stamped(desk, a_bind_review("web-1"))
    stamped(desk, a_bind_review("web-1", dry_run=True))
    assert desk.cluster.resource_version == before


def test_a_pin_that_was_overtaken_makes_storage_refuse(desk: Desk) -> None:
    waiting(desk)
    reply, _ = stamped(desk, a_bind_review("web-1"))
    desk.api.delete(PODS, "web-1", namespace=NAMESPACE)
    desk.pod(name="web-1", uid="uid-again", requests={"cpu": "2"})
    with pytest.raises(ConflictError, match="Precondition failed: UID"):
        desk.api.bind(reply.object)


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
    desk: Desk, change: dict[str, object], field: str, detail: str, legacy: bool, phase: str
) -> None:
    resource, subresource = ("bindings", "") if legacy else ("pods", "binding")
    review = a_review(
        "CREATE", resource, {**a_binding(), **change}, subresource=subresource, name="web-1"
    )
    reply = desk.mutate(review) if phase == "mutate" else desk.validate(review)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert reply.message == f"{field}: {detail}"
    assert reply.causes == [("FieldValueInvalid", field, detail)]
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "Binding")


@pytest.mark.parametrize("annotations", [7, "text", ["a"]], ids=["number", "string", "list"])
def test_annotations_of_the_wrong_type_are_refused_with_their_path(
    desk: Desk, annotations: object
) -> None:
    binding = {**a_binding(), "metadata": {"name": "web-1", "annotations": annotations}}
    review = a_review("CREATE", "pods", binding, subresource="binding")
    reply = desk.mutate(review)
    assert reply.code == 422
    assert str(reply.message).startswith("metadata.annotations: must be an object")


def test_a_stored_pod_that_cannot_be_read_is_refused_with_the_path(desk: Desk) -> None:
    desk.line.hold(PODS)
    desk.line.hold(PODS, WAITING)
    desk.cluster.load([(PODS, a_pod(name="odd", uid="uid-odd", requests={"cpu": "two"}))])
    reply = desk.bind("odd", uid="uid-odd")
    assert reply.code == 422
    assert "spec.containers[0].resources.requests.cpu" in str(reply.message)


# -- dry run -------------------------------------------------------------------------------


@LEGACY
@pytest.mark.parametrize(("cpu", "fits"), [("2", True), ("3", False)], ids=["fits", "does not"])
def test_a_dry_run_tells_the_truth_and_writes_nothing(
    desk: Desk, cpu: str, fits: bool, legacy: bool
) -> None:
    uid = waiting(desk, cpu=cpu)
    desk.settle()
    before = desk.cluster.resource_version
    reply = desk.bind("web-1", uid=uid, legacy=legacy, dry_run=True)
    assert reply.allowed == fits
    assert fits or is_exceeded(reply)
    assert reply.decision == ("would-reserve" if fits else "denied")
    assert desk.cluster.resource_version == before


# -- a class of the pod's own invention ----------------------------------------------------


@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_a_qos_class_that_was_forged_while_nobody_looked_is_refused_at_the_bind(
    open_desk: OpenDesk, dry_run: bool
) -> None:
    """Its quota would not be about it, and it would run uncharged."""
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "2"}, scopes=["NotBestEffort"]))
    desk.pod(requests={"cpu": "5"}, status={"phase": "Pending", "qosClass": "BestEffort"})
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1", dry_run=dry_run)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    words = "status.qosClass: BestEffort is not what the pod's resources make it: Burstable"
    assert reply.message == words


# -- containers that do not say what they need ---------------------------------------------


@pytest.mark.parametrize(
    ("setting", "is_refused"), [("create", True), ("bind", True), ("off", False)]
)
def test_containers_must_specify_at_the_bind_unless_that_is_off(
    open_desk: OpenDesk, setting: str, is_refused: bool
) -> None:
    desk = open_desk(
        a_quota("p1", hard={"requests.cpu": "2", "limits.memory": "1Gi", "pods": "5"}),
        settings={"mustSpecify": setting},
    )
    desk.pod(
        a_container("b", requests={"cpu": "1"}),
        a_container("a", limits={"memory": "1Mi"}),
    )
    desk.catch_up()
    reply = desk.bind("web-1", uid="pod-uid-1")
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
    open_desk: OpenDesk,
    quota: dict[str, object],
    inside: dict[str, object],
    outside: dict[str, object],
) -> None:
    desk = open_desk(a_quota("p1", **quota))  # type: ignore[arg-type]
    # an empty `resources` of the pod makes it BestEffort whatever its containers ask
    assert is_exceeded(desk.bind("in", uid=waiting(desk, "in", "3", **inside)))
    assert desk.bind("out", uid=waiting(desk, "out", "3", **outside)).allowed
    assert set(desk.reservations()) == {"out"}
    assert desk.reserved() == {}


def test_best_effort_quotas_limit_no_compute_and_charge_nothing(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1", hard={"pods": "0"}, scopes=["BestEffort"]))
    assert desk.bind("web-1", uid=waiting(desk)).decision == "nothing-charged"


def test_a_pod_of_no_quota_is_remembered_for_a_quota_that_comes(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("gold", expressions=[an_expression("PriorityClass", "In", "gold")]))
    uid = waiting(desk, cpu="2")
    assert desk.bind("web-1", uid=uid).audit["quota"] == ""
    desk.create(a_quota("late", hard={"requests.cpu": "2"}))
    desk.settle()
    assert desk.reserved("late") == {"requests.cpu": "2"}
    assert is_exceeded(desk.bind("web-2", uid=waiting(desk, "web-2")))


# -- what is not ours ----------------------------------------------------------------------


def test_an_excluded_quota_is_left_to_the_api_server(open_desk: OpenDesk) -> None:
    excluded = {"annotations": {"deferredquota.io/exclude": "true"}}
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "0"}, metadata=excluded))
    assert desk.bind("web-1", uid=waiting(desk)).decision == "nothing-charged"


@pytest.mark.parametrize("mode", ["", "shadow", "Deferred"])
def test_a_namespace_that_has_not_opted_in_is_not_touched(open_desk: OpenDesk, mode: str) -> None:
    desk = open_desk(a_quota("p1", hard={"requests.cpu": "0"}), mode=mode)
    uid = waiting(desk)
    reply = desk.bind("web-1", uid=uid)
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-opted-in"})
    assert desk.mutate(a_bind_review("web-1")).patch == []
    assert desk.ledger() is None


def test_an_exempt_namespace_is_not_touched_whatever_its_label_says(open_desk: OpenDesk) -> None:
    desk = open_desk(
        a_quota("p1", hard={"requests.cpu": "0"}), settings={"exemptNamespaces": [NAMESPACE]}
    )
    reply = desk.bind("web-1", uid=waiting(desk))
    assert (reply.allowed, reply.audit) == (True, {"decision": "exempt"})


# -- when nothing can be decided -----------------------------------------------------------


def is_undecided(reply: Reply, message: str) -> bool:
    return (
        (reply.code, reply.reason) == (429, "TooManyRequests")
        and reply.message == message
        and reply.details["retryAfterSeconds"] == 1
        and reply.audit == {"decision": "undecided", "reason": message}
    )


@pytest.mark.parametrize("dry_run", [False, True], ids=["in fact", "dry run"])
def test_without_a_ledger_nothing_is_decided(open_desk: OpenDesk, dry_run: bool) -> None:
    desk = open_desk(a_quota("p1"), with_tracker=False)
    uid = waiting(desk)
    reply = desk.bind("web-1", uid=uid, dry_run=dry_run)
    assert is_undecided(reply, "the quota ledger of this namespace is not there yet")


def test_a_quota_that_cannot_be_read_holds_binds_up_and_is_named(desk: Desk) -> None:
    uid = waiting(desk)
    desk.create(a_quota("broken", hard={"requests.cpu": "many"}))
    desk.catch_up()
    reply = desk.bind("web-1", uid=uid)
    assert reply.code == 429
    assert str(reply.message).startswith(
        "quota broken cannot be read: spec.hard[requests.cpu]: 'many' is not a quantity"
    )
    desk.api.delete(RESOURCE_QUOTAS, "broken", namespace=NAMESPACE)
    desk.catch_up()
    assert desk.bind("web-1", uid=uid).allowed


def test_a_quota_whose_scopes_cannot_be_evaluated_holds_binds_up_and_is_named(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(
        a_quota("p1"),
        a_quota("odd", uid="o", expressions=[an_expression("PriorityClass", "In", "bad value!")]),
    )
    reply = desk.bind("web-1", uid=waiting(desk))
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert str(reply.message).startswith(
        "error matching scopes of quota odd, err: error on matching scope"
        " {PriorityClass In [bad value!]}: failed to parse and convert selector: "
    )


def test_a_quota_that_was_not_counted_yet_holds_binds_up(desk: Desk) -> None:
    uid = waiting(desk)
    desk.settle()
    control = desk.engine.control
    assert control is not None
    control.stop()
    desk.create(a_quota("new", hard={"requests.cpu": "9"}))
    eventually(
        lambda: len(desk.engine.informers["resourcequotas"]) == 2, "the doors know the quota"
    )
    assert is_undecided(desk.bind("web-1", uid=uid), "usage is being counted for quota: new")
    assert is_undecided(
        desk.bind("web-1", uid=uid, dry_run=True), "usage is being counted for quota: new"
    )


def test_a_request_that_is_out_of_time_is_told_so(desk: Desk) -> None:
    uid = waiting(desk)
    for reply in (
        desk.validate(a_bind_review("web-1", uid=uid), seconds=0),
        desk.mutate(a_bind_review("web-1", uid=uid), seconds=-1),
    ):
        assert is_undecided(reply, "the request's time ran out before it was decided")
    assert desk.reservations() == {}


def test_a_ledger_that_cannot_be_reached_is_no_permission(desk: Desk) -> None:
    uid = waiting(desk, cpu="3")
    desk.line.broken.add(("get", "quotaledgers"))
    reply = desk.bind("web-1", uid=uid)
    assert is_undecided(reply, "the quota ledger cannot be reached: no route to the quotaledgers")


def test_a_ledger_that_says_nonsense_holds_binds_up_and_names_the_field(
    open_desk: OpenDesk,
) -> None:
    desk = open_desk(a_quota("p1"), with_tracker=False)
    desk.create(
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
    desk.api.patch(QUOTA_LEDGERS, "ledger", patch, namespace=NAMESPACE, subresource="status")
    reply = desk.bind("web-1", uid=waiting(desk))
    assert reply.code == 429
    assert str(reply.message).startswith(
        "the quota ledger cannot be read: status.quotas[0].used.cpu: "
    )


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_a_review_without_its_object_is_a_bad_request(desk: Desk, phase: str) -> None:
    review = a_review("CREATE", "pods", None, subresource="binding", name="web-1")
    reply = desk.mutate(review) if phase == "mutate" else desk.validate(review)
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == "request.object: must be present for CREATE of pods/binding"


def test_a_full_ledger_takes_no_new_pod(open_desk: OpenDesk) -> None:
    desk = open_desk(a_quota("p1"), settings={"limits": {"reservationsPerNamespace": 1}})
    first, second = waiting(desk, "web-1", "100m"), waiting(desk, "web-2", "100m")
    assert desk.bind("web-1", uid=first).allowed
    reply = desk.bind("web-2", uid=second)
    assert is_undecided(reply, "the quota ledger holds as many reservations as it can")
    assert desk.bind("web-1", uid=first).allowed
