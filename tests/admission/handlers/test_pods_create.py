"""Pods that are created: without a node only what does not depend on usage, with one all of it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.admission.handlers.conftest import OpenHarness
from tests.admission.handlers.harness import (
    AdmissionHarness,
    Reply,
    a_review,
    eventually,
)
from tests.builders import a_container, a_pod, a_quota, an_expression
from tests.reactions import unreachable
from webhook.admission.review import Phase
from webhook.kube.api import NAMESPACES

KUBELET = "system:node:node-1"
MIRROR = {"annotations": {"kubernetes.io/config.mirror": "abc"}}
PRIORITY: dict[str, object] = {"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}


def pinned(harness: AdmissionHarness, cpu: str = "1", **fields: object) -> Reply:
    """Ask to create a pod that has its node from the start."""
    return harness.create_pod(**{"node": "node-1", "requests": {"cpu": cpu}, **fields})  # type: ignore[arg-type]


# -- with a node ---------------------------------------------------------------------------


def test_a_pod_with_a_node_is_reserved_before_the_answer(harness: AdmissionHarness) -> None:
    reply = pinned(harness)
    assert reply.allowed
    assert reply.audit == {
        "decision": "reserved",
        "quota": "p1",
        "requested": "cpu=1,requests.cpu=1",
        "ledger": harness.ledger_version(),
    }
    assert harness.reservations()["web-1"]["door"] == "Create"
    assert harness.reserved() == {"requests.cpu": "1"}


def test_a_pod_with_a_node_that_does_not_fit_is_refused(harness: AdmissionHarness) -> None:
    reply = pinned(harness, "3")
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0,"
        " limited: requests.cpu=2"
    )
    assert reply.causes == [("QuotaExceeded", "p1/requests.cpu", "requested=3,used=0,limited=2")]
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "pods")
    assert harness.reservations() == {}


def test_a_pod_with_a_node_that_storage_took_moves_from_reserved_to_used(
    harness: AdmissionHarness,
) -> None:
    assert pinned(harness).allowed
    harness.pod(node="node-1", requests={"cpu": "1"})
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "1"}
    assert harness.reservations() == {}


def test_a_repeated_create_is_charged_once_and_another_uid_again(harness: AdmissionHarness) -> None:
    assert pinned(harness, uid="first").allowed
    assert pinned(harness, uid="first").allowed
    assert pinned(harness, uid="second").allowed
    assert harness.reserved() == {"requests.cpu": "2"}
    assert pinned(harness, uid="third").code == 403


FORGED_STATES: dict[str, dict[str, Any]] = {
    "an end": {"status": {"phase": "Succeeded"}},
    "a node's word on it": {
        "status": {
            "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
            "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        }
    },
    "a deletion": {
        "metadata": {
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 0,
        }
    },
}


@pytest.mark.parametrize("forged", FORGED_STATES.values(), ids=FORGED_STATES)
def test_the_state_that_a_client_writes_into_a_new_pod_is_not_read(
    harness: AdmissionHarness, forged: dict[str, Any]
) -> None:
    reply = pinned(harness, "9", **forged)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert "exceeded quota: p1, requested: requests.cpu=9" in str(reply.message)


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "with a node"])
def test_a_uid_is_needed_where_a_pod_is_charged(harness: AdmissionHarness, node: str) -> None:
    reply = harness.create_pod(uid="", node=node, requests={"cpu": "1"})
    if not node:
        assert reply.allowed
        return
    assert (reply.code, reply.message) == (422, "metadata.uid: must be given")
    assert pinned(harness).allowed  # and nothing has become unreadable


# -- without a node ------------------------------------------------------------------------


def test_a_pod_that_waits_is_not_compared_with_what_is_used(harness: AdmissionHarness) -> None:
    harness.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "2"})
    harness.wait_until_settled()
    before = harness.version_at_rest()
    reply = harness.create_pod(requests={"cpu": "2"})
    assert (reply.allowed, reply.audit) == (True, {"decision": "not-assigned"})
    assert reply.warnings == []
    assert harness.cluster.resource_version == before


def test_an_empty_node_name_is_none(harness: AdmissionHarness) -> None:
    assert harness.create_pod(requests={"cpu": "5"}, nodeName="").decision == "not-assigned"


def test_a_pod_that_waits_needs_no_ledger(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1"), with_controller=False)
    assert harness.create_pod(requests={"cpu": "2"}).allowed


def test_a_pod_that_can_never_fit_is_warned_of(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("small", uid="s", hard={"requests.cpu": "1", "limits.cpu": "9"}),
        a_quota("large", uid="l", hard={"requests.cpu": "9"}),
        a_quota("other", uid="o", hard={"requests.cpu": "0"}, scopes=["Terminating"]),
    )
    reply = harness.create_pod(requests={"cpu": "5"}, limits={"cpu": "5"})
    assert reply.allowed
    assert reply.warnings == [
        "can never fit quota small: requested requests.cpu=5, limited requests.cpu=1"
    ]


def test_a_gated_pod_waits_like_any_other(harness: AdmissionHarness) -> None:
    gates = [{"name": "example.com/hold"}]
    assert harness.create_pod(requests={"cpu": "1"}, schedulingGates=gates).allowed


# -- containers that do not say what they need ---------------------------------------------


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "with a node"])
@pytest.mark.parametrize(
    ("setting", "refused"),
    [("create", ("", "node-1")), ("bind", ("node-1",)), ("off", ())],
    ids=["create", "bind", "off"],
)
def test_containers_must_specify_what_a_quota_limits(
    open_harness: OpenHarness, setting: str, refused: tuple[str, ...], node: str
) -> None:
    hard = {"requests.cpu": "2", "limits.memory": "1Gi", "requests.ephemeral-storage": "1"}
    harness = open_harness(a_quota("p1", hard=hard), settings={"mustSpecify": setting})
    reply = harness.create_pod(
        a_container("b", requests={"cpu": "1"}),
        init=[a_container("a", limits={"memory": "1Mi"})],
        node=node,
    )
    if node not in refused:
        assert reply.allowed
        return
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        "failed quota: p1: must specify limits.memory for: b; requests.cpu for: a"
    )
    assert [reason for reason, _, _ in reply.causes] == ["MustSpecify", "MustSpecify"]


def test_the_first_quota_by_name_says_what_is_missing(open_harness: OpenHarness) -> None:
    harness = open_harness(
        a_quota("zz", uid="z", hard={"limits.cpu": "2"}),
        a_quota("mm", uid="m", hard={"pods": "2", "requests.memory": "1"}),
        a_quota("aa", uid="a", hard={"requests.cpu": "2"}, scopes=["Terminating"]),
    )
    reply = harness.create_pod(requests={"cpu": "1"})
    assert reply.message == "failed quota: mm: must specify requests.memory for: main"


def test_what_a_pod_says_as_a_whole_excuses_its_containers(harness: AdmissionHarness) -> None:
    assert harness.create_pod(resources={"requests": {"memory": "1Gi"}}).allowed


def test_keys_that_stay_with_the_api_server_oblige_no_pod_here(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"pods": "1", "requests.storage": "1"}))
    assert harness.create_pod().allowed


# -- a forged class ------------------------------------------------------------------------

FORGED = {
    "BestEffort of a pod that asks for cpu": ("BestEffort", {"cpu": "5"}, "Burstable"),
    "Guaranteed of one that asks for nothing": ("Guaranteed", {}, "BestEffort"),
    "a class that does not exist": ("Platinum", {"cpu": "5"}, "Burstable"),
}


@pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "with a node"])
@pytest.mark.parametrize(("claimed", "requests", "truly"), FORGED.values(), ids=FORGED.keys())
def test_a_qos_class_that_the_client_wrote_is_refused(
    open_harness: OpenHarness, claimed: str, requests: dict[str, str], truly: str, node: str
) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "2"}, scopes=["NotBestEffort"]))
    reply = harness.create_pod(requests=requests, status={"qosClass": claimed}, node=node)
    assert (reply.code, reply.reason) == (403, "Forbidden")
    assert reply.message == (
        f"status.qosClass: {claimed} is not what the pod's resources make it: {truly}"
    )


QOS = {
    "BestEffort": {},
    "Burstable": {"requests": {"cpu": "1"}},
    "Guaranteed": {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    },
}


@pytest.mark.parametrize(("qos", "resources"), QOS.items(), ids=QOS.keys())
def test_the_class_that_the_api_server_computes_is_taken(
    open_harness: OpenHarness, qos: str, resources: dict[str, Any]
) -> None:
    harness = open_harness()
    assert harness.create_pod(status={"qosClass": qos}, **resources).allowed
    assert harness.create_pod(status={"qosClass": ""}, **resources).allowed


# -- mirror pods ---------------------------------------------------------------------------


NEGATIVE: dict[str, dict[str, Any]] = {
    "a container": {"requests": {"cpu": "-1"}},
    "a pod as a whole": {"requests": {"cpu": "1"}, "resources": {"requests": {"cpu": "-5"}}},
    "overhead": {"requests": {"cpu": "1"}, "overhead": {"cpu": "-5"}},
}


@pytest.mark.parametrize("amounts", NEGATIVE.values(), ids=NEGATIVE.keys())
def test_an_amount_below_nothing_is_charged_as_nothing(
    harness: AdmissionHarness, amounts: dict[str, Any]
) -> None:
    """No API server asks for such a pod; a ledger that had it could not be read."""
    assert harness.create_pod(node="node-1", **amounts).allowed
    usage = cast("dict[str, str]", harness.reservations()["web-1"]["usage"])
    assert usage["requests.cpu"] == "0"
    assert pinned(harness, "2", name="a", uid="a").allowed
    reply = pinned(harness, "1", name="b", uid="b")
    assert str(reply.message).startswith("exceeded quota: p1, requested: requests.cpu=1, used: req")
    assert harness.reserved() == {"requests.cpu": "2"}


@pytest.mark.parametrize("setting", ["charge", "enforce"])
def test_a_mirror_pod_over_quota_is_charged_or_refused(
    open_harness: OpenHarness, setting: str
) -> None:
    harness = open_harness(a_quota("p1"), settings={"mirrorPods": setting})
    reply = pinned(harness, "3", metadata=MIRROR, user=KUBELET)
    if setting == "enforce":
        assert reply.code == 403
        assert str(reply.message).startswith("exceeded quota: p1")
        return
    assert (reply.allowed, reply.decision) == (True, "reserved")
    assert harness.reserved() == {"requests.cpu": "2"}  # all there is
    assert pinned(harness, "1m", uid="other").code == 403  # it runs, so it counts
    harness.pod(node="node-1", requests={"cpu": "3"}, metadata=MIRROR)
    harness.wait_until_settled()
    assert harness.used() == {"requests.cpu": "3"}


def test_reviews_that_only_say_that_a_kubelet_asks_reserve_no_more_than_there_is(
    harness: AdmissionHarness,
) -> None:
    for number in range(50):
        forged = {"name": f"web-{number}", "uid": f"uid-{number}"}
        assert pinned(harness, "100", metadata=MIRROR, user=KUBELET, **forged).allowed
    harness.wait_until_settled()
    assert harness.reserved() == {"requests.cpu": "2"}
    assert pinned(harness, "1m").code == 403


def test_what_a_mirror_pod_lacks_is_kept_for_it_when_another_pod_ends(
    harness: AdmissionHarness,
) -> None:
    harness.pod(name="runs", uid="uid-runs", node="node-1", requests={"cpu": "1500m"})
    harness.wait_until_settled()
    assert pinned(harness, "2", metadata=MIRROR, user=KUBELET).allowed
    assert harness.reserved() == {"requests.cpu": "500m"}
    harness.finish("runs")
    harness.wait_until_settled()
    assert harness.reserved() == {"requests.cpu": "2"}
    assert pinned(harness, "1m", uid="other").code == 403


def test_a_mirror_pod_is_held_to_a_quota_that_namespaces_share(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "9"}))
    harness.create(
        {
            "apiVersion": "deferredquota.io/v1alpha1",
            "kind": "ClusterDeferredQuota",
            "metadata": {"name": "all"},
            "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": "2"}},
        }
    )
    asked: dict[str, Any] = {"metadata": MIRROR, "user": KUBELET, "dry_run": True}
    eventually(lambda: "cdq/all" in str(harness.ledger()), "the ledger counts it")
    eventually(lambda: pinned(harness, "2", **asked).allowed, "all namespaces are counted")
    reply = pinned(harness, "3", **asked)
    assert str(reply.message).startswith("exceeded quota: cdq/all, requested: requests.cpu=3")


LONG = "x" * 1_000_000
BAD_IDENTITIES = {
    "a uid of a megabyte": ({"uid": LONG}, "metadata.uid: must be at most 128 printable"),
    "a uid of two lines": ({"uid": "a\nb"}, "metadata.uid: must be at most 128 printable"),
    "a uid with a space": ({"uid": "a b"}, "metadata.uid: must be at most 128 printable"),
    "a name of a megabyte": ({"name": LONG}, "metadata.name: must be no more than 253 characters"),
    "a name that is none": ({"name": "a,b=c"}, "metadata.name: a lowercase RFC 1123 subdomain"),
    "no name": ({"name": ""}, "metadata.name: a lowercase RFC 1123 subdomain"),
}


@pytest.mark.parametrize(
    ("identity", "message"), BAD_IDENTITIES.values(), ids=BAD_IDENTITIES.keys()
)
def test_a_pod_that_no_api_server_stores_is_not_taken_into_a_ledger(
    harness: AdmissionHarness, identity: dict[str, Any], message: str
) -> None:
    harness.wait_until_settled()
    before = harness.ledger_version()
    reply = pinned(harness, **identity)
    assert (reply.code, reply.reason) == (422, "Invalid")
    assert str(reply.message).startswith(message)
    assert harness.ledger_version() == before


@pytest.mark.parametrize("setting", ["charge", "enforce"])
def test_a_mirror_pod_has_to_specify_only_where_it_is_enforced(
    open_harness: OpenHarness, setting: str
) -> None:
    harness = open_harness(
        a_quota("p1"),
        settings={"mirrorPods": setting, "requireQuotaForPriority": [PRIORITY]},
    )
    cases: list[dict[str, Any]] = [{"requests": {}}, {"priorityClassName": "gold"}]
    for fields in cases:
        reply = pinned(harness, **{"metadata": MIRROR, "user": KUBELET, **fields})
        assert reply.allowed == (setting == "charge")


def test_a_pod_that_only_claims_to_be_a_mirror_is_refused_like_any_other(
    harness: AdmissionHarness,
) -> None:
    assert pinned(harness, "3", metadata=MIRROR, user="mallory").code == 403


def test_a_mirror_pod_in_a_dry_run_is_admitted_and_written_nowhere(
    harness: AdmissionHarness,
) -> None:
    harness.wait_until_settled()
    before = harness.version_at_rest()
    assert (
        pinned(harness, "3", metadata=MIRROR, user=KUBELET, dry_run=True).decision
        == "would-reserve"
    )
    assert harness.cluster.resource_version == before


NODES = pytest.mark.parametrize("node", ["", "node-1"], ids=["waiting", "with a node"])


# -- scopes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quota", "inside", "outside"),
    [
        ({"expressions": [PRIORITY]}, {"priorityClassName": "gold"}, {}),
        (
            {"expressions": [an_expression("PriorityClass", "DoesNotExist")]},
            {},
            {"priorityClassName": "gold"},
        ),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, {}),
        ({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 5}),
        ({"scopes": ["NotBestEffort"]}, {}, {"resources": {}}),
        ({"scopes": ["BestEffort"], "hard": {"pods": "0"}}, None, {}),
    ],
    ids=["class", "no class", "Terminating", "NotTerminating", "NotBestEffort", "BestEffort"],
)
def test_a_scoped_quota_judges_the_pods_it_is_about(
    open_harness: OpenHarness,
    quota: dict[str, object],
    inside: dict[str, object] | None,
    outside: dict[str, object],
) -> None:
    harness = open_harness(a_quota("p1", **quota))  # type: ignore[arg-type]
    if inside is not None:
        assert pinned(harness, "3", **inside).code == 403
    assert pinned(harness, "3", uid="outside", **outside).allowed


# -- what is not ours, and what cannot be decided ------------------------------------------


def test_an_unknown_namespace_is_asked_for_and_not_touched(
    harness: AdmissionHarness,
) -> None:
    pod = a_pod(namespace="elsewhere", node="node-1", requests={"cpu": "9"})
    review = a_review("CREATE", "pods", pod, namespace="elsewhere")
    assert harness.validate(review).decision == "not-opted-in"
    assert [call.name for call in harness.client.calls_of("get", NAMESPACES)] == ["elsewhere"]


@pytest.mark.parametrize("phase", [Phase.MUTATING, Phase.VALIDATING])
def test_a_namespace_that_cannot_be_asked_for_is_undecided(
    harness: AdmissionHarness, phase: Phase
) -> None:
    harness.client.on("get", NAMESPACES, unreachable)
    resource, subresource = ("pods", "") if phase is Phase.VALIDATING else ("pods", "binding")
    pod = a_pod(namespace="elsewhere", node="node-1", requests={"cpu": "9"})
    review = a_review("CREATE", resource, pod, subresource=subresource, namespace="elsewhere")
    reply = harness.post(review, phase)
    assert (reply.code, reply.reason) == (429, "TooManyRequests")
    assert reply.message == "the API server does not answer: no route to the namespaces"


@NODES
def test_a_quota_that_defers_nothing_holds_up_no_pod_here(
    open_harness: OpenHarness, node: str
) -> None:
    bad = [an_expression("PriorityClass", "In", "bad value!")]
    harness = open_harness(
        a_quota("p1"), a_quota("odd", uid="o", hard={"pods": "1"}, expressions=bad)
    )
    assert harness.create_pod(requests={"cpu": "1"}, node=node).allowed


# -- fields that cannot be read ------------------------------------------------------------


def _put(pod: dict[str, object], path: str, value: object) -> dict[str, object]:
    """Set a value at a path such as `spec.containers.0.name`."""
    *parents, last = path.split(".")
    here: object = pod
    for token in parents:
        if isinstance(here, list):
            here = here[int(token)]
        else:
            assert isinstance(here, dict)
            here = here.setdefault(token, {})
    if isinstance(here, list):
        here[int(last)] = value
    else:
        cast("dict[str, object]", here)[last] = value
    return pod


def _field(path: str) -> str:
    tokens = path.split(".")
    return "".join(f"[{one}]" if one.isdecimal() else f".{one}" for one in tokens).lstrip(".")


WRONG_TYPES = {
    "metadata": 7,
    "metadata.name": 7,
    "metadata.uid": True,
    "metadata.labels": [],
    "metadata.labels.app": 7,
    "metadata.annotations": "no",
    "spec": [],
    "spec.nodeName": 7,
    "spec.priority": "high",
    "spec.priorityClassName": False,
    "spec.activeDeadlineSeconds": "10",
    "spec.overhead": 7,
    "spec.overhead.cpu": "one",
    "spec.resources": 7,
    "spec.resources.requests.cpu": [],
    "spec.schedulingGates": {},
    "spec.schedulingGates.0.name": 7,
    "spec.containers": {},
    "spec.containers.0": "main",
    "spec.containers.0.name": 7,
    "spec.containers.0.resources": [],
    "spec.containers.0.resources.requests": [],
    "spec.containers.0.resources.requests.cpu": "1 core",
    "spec.containers.0.resources.limits.memory": True,
    "spec.initContainers": 7,
    "spec.affinity": [],
    "status": 7,
    "status.qosClass": 7,
}


@NODES
@pytest.mark.parametrize(("path", "value"), WRONG_TYPES.items(), ids=WRONG_TYPES.keys())
def test_a_field_of_the_wrong_type_is_refused_with_its_path(
    harness: AdmissionHarness, path: str, value: object, node: str
) -> None:
    gates = [{"name": "example.com/hold"}]
    pod = a_pod(requests={"cpu": "1"}, node=node, schedulingGates=gates)
    reply = harness.validate(a_review("CREATE", "pods", _put(pod, path, value), name="web-1"))
    assert (reply.code, reply.reason) == (422, "Invalid")
    (cause,) = reply.causes
    assert cause[:2] == ("FieldValueInvalid", _field(path))
    assert reply.message == f"{_field(path)}: {cause[2]}"
    assert (reply.details["name"], reply.details["kind"]) == ("web-1", "Pod")


HOSTILE = ["1e999999999", "1e-999999999", "9" * 20000, "1" * 40 + "Ki", "0x10", "NaN", " 1 2 "]


@pytest.mark.parametrize("amount", HOSTILE, ids=lambda text: text[:12])
def test_a_hostile_amount_is_answered_and_never_crashes(
    harness: AdmissionHarness, amount: str
) -> None:
    reply = pinned(harness, amount, status={"qosClass": ""})
    assert reply.code == (403 if amount.startswith("1111") else 422)
    assert pinned(harness).allowed


def test_numbers_with_fractions_are_exact(open_harness: OpenHarness) -> None:
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "300m"}))
    tenth = a_container(requests={"cpu": "0.1"})
    review = a_review("CREATE", "pods", a_pod(tenth, tenth, tenth, node="node-1"))
    assert harness.validate(review).allowed
    assert harness.reserved() == {"requests.cpu": "300m"}


def test_a_review_without_its_object_is_a_bad_request(harness: AdmissionHarness) -> None:
    reply = harness.validate(a_review("CREATE", "pods", None, name="web-1"))
    assert (reply.code, reply.reason) == (400, "BadRequest")
    assert reply.message == "request.object: must be present for CREATE of pods"


def test_a_pod_whose_name_is_taken_reserves_nothing(open_harness: OpenHarness) -> None:
    """Storage would answer the same, after its reservation has kept quota from others."""
    harness = open_harness(a_quota("p1", hard={"requests.cpu": "2"}))
    harness.pod(name="web", uid="uid-first", node="node-1", requests={"cpu": "1"})
    harness.wait_until_settled()
    reply = harness.create_pod(name="web", uid="uid-second", node="node-1", requests={"cpu": "1"})
    assert (reply.code, reply.reason) == (409, "AlreadyExists")
    assert reply.message == 'pods "web" already exists'
    assert harness.create_pod(name="other", node="node-1", requests={"cpu": "1"}).allowed
