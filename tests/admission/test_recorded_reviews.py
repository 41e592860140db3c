"""Every review that a real API server sent is answered as it should be, and validly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest

from tests.admission.handlers.harness import AdmissionHarness, Reply, a_namespace, new_cluster
from tests.admission.recorded import NAMESPACE, PODS_CREATED, REFUSED, Object, kinds, sent, stored
from tests.admission.reviews import phase_of, recorded, recorded_names
from tests.reactions import ReactiveClient
from webhook.kube.api import NAMESPACES
from webhook.runtime import Engine
from webhook.telemetry.metrics import Metrics


@pytest.fixture(scope="module")
def harness() -> Iterator[AdmissionHarness]:
    cluster = new_cluster()
    namespace = a_namespace(NAMESPACE, gating="always")
    cluster.load([(NAMESPACES, namespace), *stored()])
    line = ReactiveClient(cluster)
    engine = Engine(line, Metrics())
    engine.start()
    try:
        assert engine.wait_until_ready(10) == []
        yield AdmissionHarness(cluster, line, engine)
    finally:
        engine.stop()


def answered(harness: AdmissionHarness, name: str) -> Reply:
    return harness.post_text(recorded(name), phase_of(name))


def test_all_recorded_reviews_are_there() -> None:
    assert len(recorded_names()) == 82


@pytest.mark.parametrize("name", recorded_names())
def test_a_recorded_review_is_answered_validly(harness: AdmissionHarness, name: str) -> None:
    answered(harness, name)  # an answer that an API server would not take fails in there


@pytest.mark.parametrize(("name", "decision"), kinds(), ids=[name for name, _ in kinds()])
def test_each_kind_of_handler_decides_as_it_should(
    harness: AdmissionHarness, name: str, decision: str
) -> None:
    reply = answered(harness, name)
    assert reply.allowed
    assert reply.decision == decision


GATED = {
    "assigned": "not-gated",
    "assigned.2": "not-gated",
    "dry.dryrun": "not-gated",
    "gated": "not-gated",
    "gen": "gated",
    "podlevel": "not-gated",
    "sched2": "gated",
    "scheduled": "gated",
    "sus": "gated",
    "unassigned": "gated",
}


@pytest.mark.parametrize(("name", "decision"), GATED.items(), ids=GATED.keys())
def test_a_new_pod_without_a_node_is_gated_once(
    harness: AdmissionHarness, name: str, decision: str
) -> None:
    reply = answered(harness, f"mutate.create.pods.{name}")
    assert (reply.allowed, reply.decision) == (True, decision)
    assert any(str(one["path"]).startswith("/spec") for one in reply.patch) == (decision == "gated")


def test_a_request_that_takes_our_gate_off_is_looked_at(harness: AdmissionHarness) -> None:
    """An administrator did it; others are refused."""
    assert answered(harness, "validate.update.pods.gated").decision == "marked"
    review = json.loads(recorded("validate.update.pods.gated"))
    review["request"]["userInfo"]["groups"] = ["system:authenticated"]
    assert harness.validate(review).code == 403
    assert answered(harness, "validate.update.pods.sus-pod").decision == "not-charged"


@pytest.mark.parametrize(("name", "decision"), PODS_CREATED.items(), ids=PODS_CREATED.keys())
def test_a_new_pod_is_charged_if_it_has_a_node(
    harness: AdmissionHarness, name: str, decision: str
) -> None:
    reply = answered(harness, f"validate.create.pods.{name}")
    assert (reply.allowed, reply.decision) == (True, decision)


def test_a_bind_by_a_person_is_pinned_and_one_by_the_scheduler_keeps_its_uid(
    harness: AdmissionHarness,
) -> None:
    person = answered(harness, "mutate.create.pods-binding.unassigned").object
    scheduler = answered(harness, "mutate.create.pods-binding.scheduled").object
    pod = sent("validate.create.pods.unassigned")["object"]
    uid = cast("Object", cast("Object", pod)["metadata"])["uid"]
    assert cast("Object", person["metadata"])["uid"] == uid
    assert cast("Object", scheduler["metadata"])["labels"] == {"topology.kubernetes.io/zone": "z1"}


@pytest.mark.parametrize(
    ("name", "pod"), [("bindings.gated", "gated"), ("pods-binding.unassigned", "unassigned")]
)
def test_a_bind_by_a_person_that_was_not_pinned_says_so(
    harness: AdmissionHarness, name: str, pod: str
) -> None:
    reply = answered(harness, f"validate.create.{name}")
    assert reply.code == 409
    assert str(reply.message).startswith(f"metadata.uid: must name the uid of pod {pod}, ")


PINNED = {
    "bindings.gated": (409, "pod gated has non-empty .spec.schedulingGates"),
    "pods-binding.unassigned": (None, None),
}


@pytest.mark.parametrize(("name", "answer"), PINNED.items(), ids=PINNED.keys())
def test_a_bind_by_a_person_is_decided_once_it_is_pinned(
    harness: AdmissionHarness, name: str, answer: tuple[object, object]
) -> None:
    pinned = answered(harness, f"mutate.create.{name}").object
    review = json.loads(recorded(f"validate.create.{name}"))
    review["request"]["object"] = pinned
    reply = harness.validate(review)
    assert (reply.code, reply.message) == answer
    assert reply.decision == ("denied" if answer[0] else "reserved")


def test_a_status_is_masked_down_to_what_is_native(harness: AdmissionHarness) -> None:
    status = answered(harness, "mutate.update.resourcequotas-status.compute").object["status"]
    assert status == {"hard": {"pods": "50"}, "used": {"pods": "0"}}


def test_a_resize_is_charged_with_its_growth(harness: AdmissionHarness) -> None:
    assert answered(harness, "validate.update.pods-resize.unassigned").audit["requested"] == (
        "cpu=800m,limits.cpu=1,limits.memory=512Mi,memory=256Mi,requests.cpu=800m,"
        "requests.memory=256Mi"
    )


@pytest.mark.parametrize("name", sorted(one for one in REFUSED if ".jobs." in one))
def test_a_job_that_the_api_server_refused_is_refused_with_a_reason(
    harness: AdmissionHarness, name: str
) -> None:
    reply = answered(harness, name)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert str(reply.message).startswith("spec.template")
    assert "field is immutable: " in str(reply.message)
