"""Namespaces in shadow mode: every answer is yes, and nobody can tell."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Object,
    a_bind_review,
    a_review,
    admission_harness,
    eventually,
    opt_in,
)
from tests.builders import a_pod, a_quota
from tests.reactions import unreachable
from webhook.admission.handlers.shadow_pods import workload_of
from webhook.admission.review import Phase
from webhook.kube.api import NAMESPACES, PODS, QUOTA_LEDGERS, RESOURCE_QUOTAS, Kind
from webhook.quota.objects.model import Pod
from webhook.quota.shadow.record_codec import shadow_from_status

HARD = {"requests.cpu": "2"}
FULL = a_quota("p1", hard=HARD, used={"requests.cpu": "2"})


def a_creation(name: str = "web", cpu: str = "1", **fields: Any) -> Object:
    return a_review(
        "CREATE", "pods", a_pod(name=name, uid=f"u-{name}", requests={"cpu": cpu}), **fields
    )


REVIEWS: dict[str, Object] = {
    "a pod that quota refuses": a_creation(),
    "a pod that never fits": a_creation(cpu="9"),
    "a dry run": a_creation(dry_run=True),
    "no object": a_review("CREATE", "pods", None, name="web"),
    "a pod that cannot be read": a_review(
        "CREATE", "pods", {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": 7}}
    ),
    "no spec": a_review("CREATE", "pods", {"kind": "Pod", "metadata": {"name": "x"}}),
    "a forged QoS class": a_review(
        "CREATE", "pods", a_pod(requests={"cpu": "1"}, status={"qosClass": "BestEffort"})
    ),
    "a bind of nobody": a_bind_review("nobody"),
    "an update": a_review("UPDATE", "pods", a_pod(), old=a_pod()),
    "an unknown resource": a_review("CREATE", "widgets", {"kind": "Widget"}, group="example.com"),
    "an exempt namespace": a_creation(namespace="kube-system"),
}


LONG = "x" * 400
NAMED: dict[str, dict[str, Any]] = {
    "its name": {"name": LONG},
    "its uid": {"uid": LONG},
    "the prefix of its name": {"metadata": {"generateName": LONG}},
    "its class": {"priorityClassName": LONG},
    "a container": {"containers": [{"name": LONG}]},
}


@pytest.mark.parametrize("fields", NAMED.values(), ids=NAMED)
def test_a_pod_with_a_name_that_no_api_server_stores_is_not_watched(fields: dict[str, Any]) -> None:
    with admission_harness(FULL, mode="shadow") as harness:
        usual: dict[str, Any] = {"name": "web", "uid": "u-web", "requests": {"cpu": "1"}}
        for named, decision in (({}, "watched"), (fields, "not-watched")):
            pod = a_pod(**{**usual, **named})
            reply = harness.post(a_review("CREATE", "pods", pod), Phase.SHADOW)
            assert (reply.allowed, reply.audit["decision"]) == (True, decision)


@pytest.mark.parametrize("namespace", ["a/b", "a b", "%2f", "A", "x" * 64])
def test_a_namespace_that_there_cannot_be_is_not_watched(namespace: str) -> None:
    """Its record could never be written, and would be tried again and again."""
    with admission_harness(FULL, mode="shadow") as harness:
        pod = a_pod(name="web", namespace=namespace, uid="u-web", requests={"cpu": "1"})
        reply = harness.post(a_review("CREATE", "pods", pod, namespace=namespace), Phase.SHADOW)
        assert (reply.allowed, reply.audit["decision"]) == (True, "not-watched")


@pytest.mark.parametrize("review", REVIEWS.values(), ids=REVIEWS.keys())
@pytest.mark.parametrize("mode", ["shadow", "deferred", ""])
def test_the_answer_is_yes_and_nothing_else(review: Object, mode: str) -> None:
    """Whatever the label says by now: the API server was told that it is shadow."""
    with admission_harness(FULL, mode=mode) as harness:
        reply = harness.post(review, Phase.SHADOW)
        assert reply.allowed
        assert (reply.patch, reply.warnings) == ([], [])
        assert reply.audit["decision"] in {"watched", "not-watched"}


@pytest.mark.parametrize("broken", [PODS, RESOURCE_QUOTAS, NAMESPACES, QUOTA_LEDGERS], ids=str)
def test_an_api_server_that_does_not_answer_changes_nothing(broken: Kind) -> None:
    with admission_harness(FULL, mode="shadow") as harness:
        harness.client.on("*", broken, unreachable)
        reply = harness.post(a_creation(), Phase.SHADOW)
        assert reply.allowed
        assert reply.warnings == []


def test_a_request_whose_time_is_over_is_let_through() -> None:
    with admission_harness(FULL, mode="shadow") as harness:
        assert harness.post(a_creation(), Phase.SHADOW, seconds=-1).allowed


def test_the_other_handlers_leave_the_namespace_alone() -> None:
    with admission_harness(FULL, mode="shadow") as harness:
        pod = harness.pod(name="web", uid="u-web", requests={"cpu": "9"})
        assert harness.mutate(a_review("CREATE", "pods", pod)).patch == []
        assert harness.validate(a_review("CREATE", "pods", pod)).decision == "not-opted-in"
        assert harness.bind("web", uid="u-web").decision == "not-opted-in"
        assert harness.mutate(a_bind_review("web")).patch == []
        status = a_quota("p1", hard=HARD, used={"requests.cpu": "2"})
        masking = a_review("UPDATE", "resourcequotas", status, old=status, subresource="status")
        assert harness.mutate(masking).patch == []


def record_of(harness: AdmissionHarness) -> Any:
    ledger = harness.ledger()
    return None if ledger is None else shadow_from_status(ledger.get("shadow"))


def test_what_is_refused_is_in_the_record_when_the_process_ends() -> None:
    with admission_harness(FULL, mode="shadow") as harness:
        eventually(lambda: record_of(harness) is not None, "a record has begun")
        harness.post(a_creation("web"), Phase.SHADOW)
        harness.post(a_creation("huge", "3"), Phase.SHADOW)
        harness.post(a_creation("dry", dry_run=True), Phase.SHADOW)
        harness.post(a_creation("there"), Phase.SHADOW)
        harness.pod(name="there", uid="u-there", requests={"cpu": "1"})
        harness.catch_up()
    counts = record_of(harness).counts
    assert {name: number for name, number in counts.items() if name != "created" and number} == {
        "attempts": 3, "stored": 1, "refused": 2, "wouldRun": 1, "neverFits": 1,
    }  # fmt: skip


def test_a_rule_of_deferral_is_asked(tmp_path: Any) -> None:
    rule = {"resource": "pods", "matchContains": ["requests.memory"]}
    free = a_quota("p1", hard=HARD, used={"requests.cpu": "0"})
    with admission_harness(
        free, mode="shadow", directory=tmp_path, settings={"limitedResources": [rule]}
    ) as harness:
        eventually(lambda: record_of(harness) is not None, "a record has begun")
        made = a_pod(name="web", uid="u-web", node="n", requests={"cpu": "1", "memory": "1"})
        harness.post(a_review("CREATE", "pods", made), Phase.SHADOW)
        harness.cluster.load([(PODS, made)])
        harness.catch_up()
    assert record_of(harness).counts["newlyRefused"] == 1


# -- from shadow mode to deferring -------------------------------------------------------------


def test_what_was_counted_in_shadow_mode_decides_nothing() -> None:
    """A record is there, with usage and all; nobody has counted since the namespace opted in."""
    with admission_harness(FULL, mode="shadow") as counting:
        eventually(lambda: record_of(counting) is not None, "a record has begun")
        counting.pod(name="web", uid="u-web", requests={"cpu": "1"})
        counting.catch_up()
        ledger = counting.stored(QUOTA_LEDGERS, "ledger")
    with admission_harness(FULL, mode="deferred", with_controller=False) as harness:
        harness.api.create(QUOTA_LEDGERS, {"metadata": {"name": "ledger", "namespace": NAMESPACE}})
        harness.api.patch(
            QUOTA_LEDGERS,
            "ledger",
            {"status": ledger["status"]},
            namespace=NAMESPACE,
            subresource="status",
        )
        harness.pod(name="web", uid="u-web", requests={"cpu": "1"})
        harness.catch_up()
        for is_dry in (False, True):
            reply = harness.bind("web", uid="u-web", dry_run=is_dry)
            assert (reply.code, reply.decision) == (429, "undecided")
        assert "quotas" not in cast("Object", harness.ledger())


def test_a_left_ledger_with_a_record_is_from_before_the_opt_in() -> None:
    """It deferred, was watched, and defers again: what the first time counted is not believed."""
    with admission_harness(a_quota("p1", hard=HARD, used={})) as harness:
        harness.pod(name="first", uid="u-first", requests={"cpu": "1"})
        harness.wait_until_settled()
        watch = {"metadata": {"labels": {"deferredquota.io/mode": "shadow"}}}
        harness.api.patch(NAMESPACES, NAMESPACE, watch)
        eventually(lambda: record_of(harness) is not None, "a record has begun")
        assert cast("Object", harness.ledger())["quotas"] == []
        version = int(harness.ledger_version())
        harness.pod(name="big", uid="u-big", requests={"cpu": "2"})
        harness.api.bind(cast("Any", a_bind_review("big")["request"])["object"])  # unasked
        opt_in(harness.api, NAMESPACE)
        harness.wait_until_settled()
        ledger = cast("Object", harness.ledger())
        assert "shadow" not in ledger
        assert int(str(ledger["podsResourceVersion"])) > version
        assert int(str(ledger["podsBarrier"])) > version
        refused = harness.bind("first", uid="u-first")
        assert "exceeded quota: p1" in str(refused.message)


def test_the_way_back_and_forth_never_lets_too_much_through() -> None:
    with admission_harness(a_quota("p1", hard=HARD, used={})) as harness:
        opted = {"metadata": {"labels": {"deferredquota.io/mode": "deferred"}}}
        watched = {"metadata": {"labels": {"deferredquota.io/mode": "shadow"}}}
        for number in range(6):
            harness.pod(name=f"web-{number}", uid=f"u-{number}", requests={"cpu": "1"})
        bound = 0
        for number in range(6):
            harness.api.patch(NAMESPACES, NAMESPACE, watched)
            if number % 2:
                time.sleep(0.02)  # as likely to be seen as not
            harness.api.patch(NAMESPACES, NAMESPACE, opted)
            give_up = time.monotonic() + 5
            while (reply := harness.bind(f"web-{number}", uid=f"u-{number}")).code == 429:
                assert time.monotonic() < give_up
            if reply.allowed:
                harness.api.bind(cast("Any", a_bind_review(f"web-{number}")["request"])["object"])
                bound += 1
        assert bound == 2


# -- who wants a pod ---------------------------------------------------------------------------

OWNER = {"kind": "ReplicaSet", "name": "web-5d7", "controller": True}
WORKLOADS: dict[str, tuple[Object, str]] = {
    "by hand": ({"name": "web"}, "Pod/web"),
    "a generated name": ({"name": "web-x", "generateName": "web-"}, "Pod/web-*"),
    "of a controller": (
        {"name": "web-x", "generateName": "web-", "ownerReferences": [OWNER]},
        "ReplicaSet/web-5d7",
    ),
    "of an owner that is no controller": (
        {"name": "w-x", "generateName": "w-", "ownerReferences": [{**OWNER, "controller": False}]},
        "Pod/w-*",
    ),
    "of a StatefulSet": (
        {"name": "db-0", "ownerReferences": [{**OWNER, "kind": "StatefulSet"}]},
        "Pod/db-0",
    ),
}


@pytest.mark.parametrize(("metadata", "expected"), WORKLOADS.values(), ids=WORKLOADS.keys())
def test_a_workload_is_the_owner_of_the_pod(metadata: Object, expected: str) -> None:
    raw = a_pod(metadata=metadata)
    assert workload_of(raw, Pod.from_object(raw)) == expected
