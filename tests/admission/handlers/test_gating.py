"""New pods without a node wait behind our gate if a quota concerns them, and are never refused."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.gating import FOREIGN, OURS, asked, gates_of
from tests.admission.handlers.harness import (
    NAMESPACE,
    AdmissionHarness,
    Reply,
    a_namespace,
    a_review,
    eventually,
    new_cluster,
)
from tests.builders import a_pod, a_quota, an_expression
from tests.reactions import ReactiveClient, unreachable
from webhook.admission.handlers import gating
from webhook.admission.patch_builder import append, set_keys
from webhook.admission.review import Allowed, Phase, decode_review
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS
from webhook.runtime import Engine, EngineOptions
from webhook.state.well_known import GUARDED_ANNOTATION, UNEVALUATED, UNEVALUATED_LABEL
from webhook.telemetry.metrics import Metrics

IS_UNJUDGED = {UNEVALUATED_LABEL: UNEVALUATED}


LISTS: dict[str, tuple[dict[str, Any], list[dict[str, str]], str]] = {
    "no field": ({}, [OURS], "gated"),
    "null": ({"schedulingGates": None}, [OURS], "gated"),
    "an empty list": ({"schedulingGates": []}, [OURS], "gated"),
    "somebody else's": ({"schedulingGates": [FOREIGN]}, [FOREIGN, OURS], "gated"),
    "ours": ({"schedulingGates": [OURS]}, [OURS], "not-gated"),
    "both": ({"schedulingGates": [OURS, FOREIGN]}, [OURS, FOREIGN], "not-gated"),
}


@pytest.mark.parametrize(("spec", "expected", "decision"), LISTS.values(), ids=LISTS)
def test_a_pod_gets_our_gate_once_and_keeps_those_of_others(
    harness: AdmissionHarness, spec: dict[str, Any], expected: list[dict[str, str]], decision: str
) -> None:
    reply = asked(harness, **spec)
    assert (gates_of(reply), reply.decision) == (expected, decision)
    assert reply.warnings == []


def test_the_rest_of_the_pod_stays_as_it_is(harness: AdmissionHarness) -> None:
    reply = asked(harness, metadata={"labels": {"app": "web"}})
    assert [(one["op"], one["path"], one["value"]) for one in reply.patch] == [
        ("add", "/spec/schedulingGates", [OURS]),
    ]


def test_asked_again_about_its_own_work_it_changes_nothing(harness: AdmissionHarness) -> None:
    once = asked(harness, metadata={"annotations": {GUARDED_ANNOTATION: "7"}})
    again = harness.mutate(a_review("CREATE", "pods", once.object))
    assert (again.patch, again.warnings) == ([], [])


def test_a_pod_without_a_name_yet_is_gated(harness: AdmissionHarness) -> None:
    metadata = {"name": "", "generateName": "web-"}
    assert gates_of(asked(harness, metadata=metadata)) == [OURS]


def test_a_dry_run_shows_the_gate(harness: AdmissionHarness) -> None:
    assert gates_of(asked(harness, dry_run=True)) == [OURS]


def test_a_pod_with_a_node_is_left_alone(harness: AdmissionHarness) -> None:
    """The API server refuses a pod that has both."""
    reply = asked(harness, node="node-1", metadata={"annotations": {GUARDED_ANNOTATION: "7"}})
    assert (reply.patch, reply.decision) == ([], "not-gated")


GOLD = an_expression("PriorityClass", "In", "gold")
QUOTAS: dict[str, tuple[list[dict[str, object]], dict[str, Any], bool]] = {
    "no quota": ([], {}, False),
    "no deferred keys": ([a_quota("q", hard={"pods": "9"})], {}, False),
    "another resource, of which it takes none": (
        [a_quota("q", hard={"requests.memory": "1Gi"})],
        {"requests": {"cpu": "1", "memory": "0"}},
        False,
    ),
    "a limit, of nothing": (
        [a_quota("q", hard={"limits.cpu": "1"})],
        {"requests": {}, "limits": {"cpu": "0"}},
        False,
    ),
    "another resource, which it has to name": (
        [a_quota("q", hard={"requests.memory": "1Gi"})],
        {},
        True,
    ),
    "a limit that it has not": ([a_quota("q", hard={"limits.cpu": "1"})], {}, True),
    "a request of nothing": ([a_quota("q")], {"requests": {"cpu": "0"}}, False),
    "no request": ([a_quota("q")], {"requests": {"memory": "1Gi"}}, True),
    "nothing, and a gate of others": (
        [a_quota("q")],
        {"requests": {"cpu": "0"}, "schedulingGates": [FOREIGN]},
        False,
    ),
    "left to the API server": (
        [a_quota("q", metadata={"annotations": {"deferredquota.io/exclude": "true"}})],
        {},
        False,
    ),
    "a class that is another": ([a_quota("q", expressions=[GOLD])], {}, False),
    "its class": ([a_quota("q", expressions=[GOLD])], {"priorityClassName": "gold"}, True),
    "for pods with a deadline": ([a_quota("q", scopes=["Terminating"])], {}, False),
    "one of two": (
        [a_quota("a", uid="a", scopes=["Terminating"]), a_quota("b", uid="b")],
        {},
        True,
    ),
    "more than there will ever be": ([a_quota("q")], {"requests": {"cpu": "9"}}, True),
    "overhead only": ([a_quota("q")], {"requests": {}, "overhead": {"cpu": "1m"}}, True),
}


@pytest.mark.parametrize(("quotas", "fields", "is_gated"), QUOTAS.values(), ids=QUOTAS)
def test_a_pod_is_gated_if_it_takes_some_of_what_a_quota_defers(
    open_harness: OpenHarness,
    quotas: list[dict[str, object]],
    fields: dict[str, Any],
    is_gated: bool,
) -> None:
    reply = asked(open_harness(*quotas, with_controller=False), **fields)
    assert (OURS in (gates_of(reply) or [])) is is_gated


MUST_NAME: dict[str, tuple[str, bool]] = {
    "at the creation": ("create", True),
    "at the bind": ("bind", True),
    "never": ("off", False),
}


@pytest.mark.parametrize(("when", "is_gated"), MUST_NAME.values(), ids=MUST_NAME)
@pytest.mark.parametrize("gating", ["always", "auto"])
def test_one_that_its_bind_refuses_for_what_it_does_not_name_is_gated(
    open_harness: OpenHarness, gating: str, when: str, is_gated: bool
) -> None:
    quota = a_quota("q", hard={"requests.memory": "1Gi"})
    harness = open_harness(quota, settings={"mustSpecify": when, "gating": gating})
    harness.wait_until_settled()
    reply = asked(harness)
    assert gates_of(reply) == ([OURS] if is_gated else None)
    assert is_judged(reply) is (when != "create")


@pytest.mark.parametrize("gating", ["always", "auto"])
def test_one_that_its_bind_refuses_for_want_of_a_quota_is_gated(
    open_harness: OpenHarness, gating: str
) -> None:
    needed = [{"resource": "pods", "matchContains": ["requests.cpu"]}]
    harness = open_harness(settings={"limitedResources": needed, "gating": gating})
    reply = asked(harness)
    assert (gates_of(reply), is_judged(reply)) == ([OURS], True)
    assert gates_of(asked(harness, requests={"memory": "1Gi"})) is None


FORGED_STATES: dict[str, dict[str, Any]] = {
    "an end": {"status": {"phase": "Failed"}},
    "a node that refuses what it asks for": {
        "status": {
            "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "0"}}}],
        }
    },
    "an amount that is none": {
        "status": {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "x"}}]}
    },
    "a deletion": {
        "metadata": {
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
        }
    },
    "another class of service": {"status": {"qosClass": "BestEffort"}},
}


@pytest.mark.parametrize("forged", FORGED_STATES.values(), ids=FORGED_STATES)
@pytest.mark.parametrize("gating", ["always", "auto"])
def test_the_state_that_a_client_writes_into_a_new_pod_is_not_read(
    open_harness: OpenHarness, gating: str, forged: dict[str, Any]
) -> None:
    quota = a_quota("q", scopes=["NotBestEffort"])
    harness = open_harness(quota, settings={"gating": gating})
    harness.wait_until_settled()
    reply = asked(harness, **{"requests": {"cpu": "9"}, **forged})
    assert gates_of(reply) == [OURS]
    is_forged_class = "qosClass" in forged.get("status", {})
    assert is_judged(reply) is not is_forged_class


def test_amounts_for_the_pod_as_a_whole_that_may_be_dropped_hide_nothing(
    open_harness: OpenHarness,
) -> None:
    """Where the API server is without the feature, what the containers ask for is what counts."""
    harness = open_harness(a_quota("q"))
    whole = {"requests": {"cpu": "0"}}
    assert gates_of(asked(harness, requests={"cpu": "9"}, resources=whole)) == [OURS]
    assert gates_of(asked(harness, requests={"cpu": "0"}, resources=whole)) is None


WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "a limit becomes the request": ("requests.cpu", {"limits": {"cpu": "9"}}),
    "a request becomes the limit": ("limits.cpu", {"requests": {"cpu": "9"}}),
}


@pytest.mark.parametrize(("key", "whole"), WHOLE.values(), ids=WHOLE.keys())
def test_what_is_filled_in_of_the_pod_as_a_whole_after_it_was_asked_about_counts(
    open_harness: OpenHarness, key: str, whole: dict[str, Any]
) -> None:
    """From Kubernetes 1.37 on; a limit only if all containers have one."""
    harness = open_harness(a_quota("q", hard={key: "2"}))
    amounts = {"cpu": "0"} if key == "limits.cpu" else {}
    reply = asked(harness, resources=whole, requests=amounts, limits=amounts)
    assert gates_of(reply) == [OURS]
    assert reply.warnings, "it can never be bound"


def test_empty_resources_of_the_pod_as_a_whole_hide_no_class(open_harness: OpenHarness) -> None:
    """From Kubernetes 1.37 on the containers decide it."""
    harness = open_harness(a_quota("q", scopes=["NotBestEffort"]))
    assert gates_of(asked(harness, requests={"cpu": "9"}, resources={})) == [OURS]


def test_an_extended_resource_that_is_deferred_counts(open_harness: OpenHarness) -> None:
    gpu = "requests.nvidia.com/gpu"
    harness = open_harness(a_quota("q", hard={gpu: "1"}), settings={"deferredResources": [gpu]})
    amounts = {"nvidia.com/gpu": "1"}
    assert gates_of(asked(harness, requests=amounts, limits=amounts)) == [OURS]
    assert gates_of(asked(harness)) is None


# -- in doubt ------------------------------------------------------------------------------


def test_a_quota_that_cannot_be_read_gates(open_harness: OpenHarness) -> None:
    odd = a_quota("odd")
    odd["spec"] = {"hard": {"requests.cpu": "2x"}}
    assert gates_of(asked(open_harness(odd, with_controller=False))) == [OURS]


def test_a_quota_whose_scopes_cannot_be_evaluated_gates(open_harness: OpenHarness) -> None:
    odd = an_expression("PriorityClass", "In", "bad value!")
    assert gates_of(asked(open_harness(a_quota("odd", expressions=[odd])))) == [OURS]


def test_quotas_that_were_never_listed_gate() -> None:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    client = ReactiveClient(cluster)
    client.on("list", RESOURCE_QUOTAS, unreachable)
    engine = Engine(client, Metrics(), EngineOptions(controller=None))
    engine.start()
    try:
        problem = "resourcequotas cannot be listed: no route to the resourcequotas"
        eventually(lambda: problem in engine.readiness_problems(), "the reason is reported")
        assert gates_of(asked(AdmissionHarness(cluster, client, engine))) == [OURS]
    finally:
        engine.stop()


def test_a_namespace_that_cannot_be_asked_about_gates(open_harness: OpenHarness) -> None:
    harness = open_harness(mode="", with_controller=False)
    harness.client.on("get", NAMESPACES, unreachable)
    assert gates_of(asked(harness)) == [OURS]
    assert gates_of(asked(harness, node="node-1")) is None


def test_a_request_that_comes_too_late_gates(open_harness: OpenHarness) -> None:
    harness = open_harness(with_controller=False)
    assert gates_of(asked(harness, seconds=-1)) == [OURS]


def test_a_namespace_that_has_not_opted_in_has_no_gates(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), mode="")
    assert gates_of(asked(harness)) is None


def test_an_exempt_namespace_has_no_gates(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), settings={"exemptNamespaces": [NAMESPACE]})
    assert gates_of(asked(harness)) is None


ODD: dict[str, dict[str, Any]] = {
    "a text": {"spec": "none"},
    "a text for gates": {"spec": {"schedulingGates": "none"}},
}


@pytest.mark.parametrize("pod", ODD.values(), ids=ODD)
def test_what_cannot_be_read_is_left_for_the_other_handler_to_refuse(
    harness: AdmissionHarness, pod: Any
) -> None:
    reply = harness.mutate(a_review("CREATE", "pods", pod, name="odd"))
    assert (reply.allowed, reply.object["spec"], is_judged(reply)) == (True, pod["spec"], False)
    assert harness.validate(a_review("CREATE", "pods", reply.object, name="odd")).code == 422


@pytest.mark.parametrize("pod", [None, {"metadata": {"annotations": []}}])
def test_what_no_api_server_stores_is_left_alone(harness: AdmissionHarness, pod: Any) -> None:
    reply = harness.mutate(a_review("CREATE", "pods", pod, name="odd"))
    assert (reply.allowed, reply.patch) == (True, [])


# -- a label asks the handler for new pods, which may refuse ------------------------------------


def labels_of(reply: Reply) -> Any:
    return cast("Any", reply.object["metadata"]).get("labels") or {}


def is_judged(reply: Reply) -> bool:
    return cast("bool", labels_of(reply).get(UNEVALUATED_LABEL) != UNEVALUATED)


@pytest.mark.parametrize("requests", [{"cpu": "1"}, {"cpu": "0"}], ids=["gated", "not gated"])
def test_a_pod_that_no_rule_refuses_is_not_asked_about_again(
    harness: AdmissionHarness, requests: dict[str, str]
) -> None:
    reply = asked(harness, requests=requests)
    assert (is_judged(reply), bool(gates_of(reply))) == (True, requests["cpu"] == "1")
    assert harness.validate(a_review("CREATE", "pods", reply.object)).warnings == []


TOLD: dict[str, dict[str, Any]] = {
    "one that can never run": {"requests": {"cpu": "999"}},
    "one that others hold": {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}},
}


@pytest.mark.parametrize("fields", TOLD.values(), ids=TOLD)
def test_what_the_other_handler_would_say_is_said(
    harness: AdmissionHarness, fields: dict[str, Any]
) -> None:
    reply = asked(harness, **fields)
    validated = harness.validate(a_review("CREATE", "pods", reply.object))
    assert (is_judged(reply), reply.warnings) == (True, validated.warnings)
    assert len(reply.warnings) == 1


def needing_a_quota(open_harness: OpenHarness) -> AdmissionHarness:
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}
    return open_harness(a_quota("p1"), settings={"requireQuotaForPriority": [rule]})


REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True}
WRITTEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "the label": {"labels": IS_UNJUDGED},
    "another value": {"labels": {UNEVALUATED_LABEL: "no"}},
    "another value, of a controller": {
        "labels": {UNEVALUATED_LABEL: "no"},
        "ownerReferences": [REPLICA_SET],
    },
}


@pytest.mark.parametrize("metadata", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("requests", [{"cpu": "1"}, {"memory": "1Gi"}], ids=["cpu", "memory"])
def test_what_the_other_handler_refuses_is_gated_and_left_to_it(
    open_harness: OpenHarness, metadata: dict[str, Any], requests: dict[str, str]
) -> None:
    harness = needing_a_quota(open_harness)
    reply = asked(harness, priorityClassName="gold", metadata=metadata, requests=requests)
    assert (bool(gates_of(reply)), is_judged(reply)) == (True, False)
    assert reply.warnings == []
    assert harness.validate(a_review("CREATE", "pods", reply.object)).code == 403


@pytest.mark.parametrize("labels", [{}, IS_UNJUDGED])
def test_in_doubt_the_other_handler_is_asked(
    harness: AdmissionHarness, labels: dict[str, str]
) -> None:
    assert not is_judged(asked(harness, metadata={"labels": labels}, seconds=-1))
    odd = a_pod(metadata={"labels": labels, "annotations": {"a": 1}})
    reply = harness.mutate(a_review("CREATE", "pods", odd))
    assert (reply.allowed, is_judged(reply)) == (True, False)


def test_a_label_of_another_client_goes_or_does_no_harm(harness: AdmissionHarness) -> None:
    """A controller that selects its pods by it would make pods for ever without it."""
    assert labels_of(asked(harness, metadata={"labels": {"app": "web", **IS_UNJUDGED}})) == {
        "app": "web"
    }
    owned = asked(harness, metadata={"labels": IS_UNJUDGED, "ownerReferences": [REPLICA_SET]})
    assert labels_of(owned) == IS_UNJUDGED
    assert harness.validate(a_review("CREATE", "pods", owned.object)).allowed


def test_asked_again_when_others_have_made_it_worse_or_better_it_says_so(
    open_harness: OpenHarness,
) -> None:
    harness = needing_a_quota(open_harness)
    pod = asked(harness).object
    cast("Any", pod["spec"])["priorityClassName"] = "gold"
    worse = harness.mutate(a_review("CREATE", "pods", pod))
    assert (is_judged(worse), worse.warnings) == (False, [])
    pod = worse.object
    cast("Any", pod["spec"])["priorityClassName"] = ""
    better = harness.mutate(a_review("CREATE", "pods", pod))
    assert (is_judged(better), better.warnings) == (True, [])


# -- marks that a manifest brings ----------------------------------------------------------

COPIED = {
    "annotations": {GUARDED_ANNOTATION: "7", "example.com/a": "b"},
    "labels": {"nos.nebuly.com/capacity": "in-quota", "deferredquota.io/x": "y", "app": "web"},
}


def test_the_marks_of_a_copied_manifest_are_taken_away_and_reported(
    harness: AdmissionHarness,
) -> None:
    reply = asked(harness, metadata=COPIED)
    metadata = cast("Any", reply.object["metadata"])
    assert metadata["annotations"] == {"example.com/a": "b"}
    assert metadata["labels"] == {"app": "web"}
    assert gates_of(reply) == [OURS]
    assert reply.warnings == [
        f"{field}: taken away, deferred-quota writes it itself"
        for field in (
            "metadata.labels[deferredquota.io/x]",
            "metadata.labels[nos.nebuly.com/capacity]",
            "metadata.annotations[deferredquota.io/guarded]",
        )
    ]


def test_they_are_taken_away_where_no_quota_is(open_harness: OpenHarness) -> None:
    reply = asked(open_harness(), metadata=COPIED)
    assert GUARDED_ANNOTATION not in cast("Any", reply.object["metadata"])["annotations"]
    assert reply.decision == "not-gated"


def test_labels_that_a_controller_may_select_by_stay(harness: AdmissionHarness) -> None:
    metadata = {**COPIED, "ownerReferences": [REPLICA_SET]}
    found = cast("Any", asked(harness, metadata=metadata).object["metadata"])
    assert found["labels"] == COPIED["labels"]
    assert found["annotations"] == {"example.com/a": "b"}


@given(
    has_gates=st.sampled_from([None, [], [OURS], [FOREIGN], [FOREIGN, OURS]]),
    annotations=st.none()
    | st.dictionaries(st.sampled_from(["deferredquota.io/a", "b"]), st.text()),
    labels=st.none()
    | st.dictionaries(st.sampled_from(["nos.nebuly.com/capacity", "b"]), st.text()),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_comes_the_answer_to_the_answer_is_nothing(
    harness: AdmissionHarness, has_gates: Any, annotations: Any, labels: Any
) -> None:
    metadata = {"annotations": annotations, "labels": labels}
    once = asked(harness, metadata=metadata, schedulingGates=has_gates)
    assert gates_of(once).count(OURS) == 1
    assert [one for one in gates_of(once) if one != OURS] == [
        one for one in has_gates or [] if one != OURS
    ]
    assert harness.mutate(a_review("CREATE", "pods", once.object)).patch == []


def test_in_doubt_the_answer_is_the_same_patch() -> None:
    pod = a_pod()
    request = decode_review(encode_json(a_review("CREATE", "pods", pod)), Phase.MUTATING)
    label = set_keys(pod, ("metadata", "labels"), IS_UNJUDGED)
    patch = (*label, *append(pod, ("spec", "schedulingGates"), OURS))
    assert gating.gate_by_default(request) == Allowed(decision="gated", patch=patch)


UNREADABLE = "1e-301"
"""An amount with a longer exponent than is read; the API server rounds it up."""


@pytest.mark.parametrize(
    ("fields", "is_gated"),
    [
        ({}, True),
        ({"schedulingGates": [FOREIGN]}, True),
        ({"schedulingGates": [OURS]}, False),
        ({"schedulingGates": "none"}, False),
        ({"nodeName": "node-1"}, False),
    ],
)
def test_a_pod_that_cannot_be_read_is_gated_all_the_same(
    harness: AdmissionHarness, fields: dict[str, object], is_gated: bool
) -> None:
    pod = a_pod(requests={"cpu": UNREADABLE})
    pod["spec"].update(fields)  # type: ignore[attr-defined]
    reply = harness.mutate(a_review("CREATE", "pods", pod))
    assert reply.decision == ("gated" if is_gated else "not-gated")
    gates = fields.get("schedulingGates") or []
    assert not is_gated or gates_of(reply) == [*gates, OURS]  # type: ignore[misc]
    assert harness.validate(a_review("CREATE", "pods", reply.object)).code == 422


def test_a_first_quota_takes_effect_at_once(open_harness: OpenHarness) -> None:
    harness = open_harness(with_controller=False)
    assert gates_of(asked(harness)) is None
    harness.api.create(RESOURCE_QUOTAS, a_quota("p1"))
    harness.catch_up()
    assert gates_of(asked(harness)) == [OURS]
    harness.api.patch(
        NAMESPACES, NAMESPACE, {"metadata": {"labels": {"deferredquota.io/mode": None}}}
    )
    harness.catch_up()
    assert gates_of(asked(harness)) is None


@pytest.mark.parametrize(("label", "is_gated"), [("none", False), ("gate", True), ("odd", True)])
def test_the_former_label_is_read_where_the_new_one_is_absent(
    open_harness: OpenHarness, label: str, is_gated: bool
) -> None:
    """The registration does not know it, so the handler is asked about such namespaces."""
    harness = open_harness(a_quota("p1"))
    labels = {"metadata": {"labels": {"deferredquota.io/pacing": label}}}
    harness.api.patch(NAMESPACES, NAMESPACE, labels)
    harness.catch_up()
    harness.wait_until_settled()
    assert gates_of(asked(harness)) == ([OURS] if is_gated else None)
