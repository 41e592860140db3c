"""What the tokens of our service accounts can do besides what they are for, and who writes ledgers.

The tokens are real, and so is what refuses: RBAC, and the policies of the installation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.builders import a_pod
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.jobs.words import GATES_ARE_THERE
from tests.e2e.cluster.objects import Answer, Api, Object
from tests.e2e.cluster.product import SYSTEM, Product, apply_namespace
from tests.e2e.cluster.tenant import NOBODY, NODE
from tests.e2e.cluster.waiting import becomes, eventually
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.operations.names import (
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    LEDGERS_POLICY,
    OWN_NAMESPACE_POLICY,
    SERVICE_ACCOUNTS_POLICY,
)
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import RESERVED, untried_by, untried_condition
from webhook.state.feature_gates import PROBE_JOB
from webhook.state.well_known import LEADER_LEASE, SCHEDULING_GATE

TEAM: Final = "identities-team"
PLAIN: Final = "identities-plain"
PLATFORM: Final = "kube-system"
EVERYWHERE: Final = (TEAM, PLAIN, PLATFORM)
HOLD: Final = "example.com/hold"
POLICIES: Final = (
    CLUSTER_QUOTAS_POLICY,
    DEVICE_CLAIMS_POLICY,
    LEDGERS_POLICY,
    OWN_NAMESPACE_POLICY,
    SERVICE_ACCOUNTS_POLICY,
)
KINDS: Final = "/apis/deferredquota.io/v1alpha1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
OURS: Final = {"type": QUOTA_RESERVED, "status": "False", "reason": "X", "message": "x"}
WOKEN: Final = {"deferredquota.io/requeued": "2026-11-22T05:31:52.114684+00:00"}
HARD: Final = {"requests.cpu": "5", "pods": "50", "services": "5"}


@dataclass(frozen=True)
class World:
    """A namespace that has opted in, one that has not, and the platform's; each has the same.

    Attributes:
        admin: Whoever made it.
        controller: Whoever has the controller's token.
        webhook: Whoever has the webhook's token.
    """

    admin: Api
    controller: Api
    webhook: Api


@pytest.fixture(scope="module")
def world(plane: ControlPlane, _product: Product) -> Iterator[World]:
    admin = Api(plane.rest)
    tokens = (
        Api(plane.service_account_rest(SYSTEM, f"deferred-quota-{program}"))
        for program in ("controller", "webhook")
    )
    made = World(admin, *tokens)
    apply_namespace(admin, TEAM)
    apply_namespace(admin, PLAIN, mode="", gating="")
    placed = a_pod(name="placed", uid="", nodeName=NODE)
    placed["metadata"] = {"name": "placed"}
    for namespace in EVERYWHERE:
        eventually(lambda: _has_account(admin, namespace), "pods can be made")  # noqa: B023
        eventually(lambda: admin.create(objects.pods(namespace), placed).ok, "a pod is placed")  # noqa: B023
    _product.controller.pause()  # its own writes must not be taken for what was tried
    gates = [{"name": HOLD}, {"name": SCHEDULING_GATE}]
    for namespace in EVERYWHERE:
        for name in ("runs", "waits"):
            held: Object = {"schedulingGates": gates} if name == "waits" else {}
            wanted = a_pod(name=name, namespace=namespace, uid="", schedulerName=NOBODY, **held)
            wanted["metadata"] = {"name": name, "annotations": {"example.com/a": "b"}}
            answer = admin.create(objects.pods(namespace), wanted)
            assert answer.ok, str(answer)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": HARD}}
        assert admin.create(objects.quotas(namespace), quota).ok
    for namespace in (PLAIN, PLATFORM):
        becomes(lambda: shown(made, namespace), {*HARD}, "the quota is counted")  # noqa: B023
    becomes(lambda: shown(made, TEAM), {"pods", "services"}, "the quota is masked")
    for namespace in (TEAM, PLAIN):
        ledgers = objects.ledger(namespace).removesuffix("/ledger")
        assert admin.create(ledgers, a_ledger()).code in (201, 409)
    probe = {"metadata": {"labels": {"a": "b"}}}
    path = objects.pods(PLATFORM, "runs")
    eventually(lambda: not made.controller.patch(path, probe, dry_run=True).ok, "it is refused")
    yield made
    _product.controller.resume()
    for namespace in EVERYWHERE:
        admin.delete(objects.quotas(namespace, "q"))
        for name in ("placed", "runs", "waits"):
            admin.delete(objects.pods(namespace, name), grace_seconds=0)
    for namespace in (TEAM, PLAIN):
        admin.delete(f"/api/v1/namespaces/{namespace}")


def _has_account(api: Api, namespace: str) -> bool:
    return api.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default").ok


def shown(world: World, namespace: str) -> set[str]:
    found = world.admin.get(objects.quotas(namespace, "q")).body.get("status", {})
    return set(found.get("used", {}))


def a_ledger() -> Object:
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "QuotaLedger",
        "metadata": {"name": "ledger"},
    }


def is_refused(answer: Answer, policy: str = SERVICE_ACCOUNTS_POLICY) -> None:
    assert answer.code == 403, str(answer)  # what is invalid is taken for a race, and not logged
    assert f"ValidatingAdmissionPolicy '{policy}'" in answer.message, str(answer)
    assert "denied request" in answer.message
    assert "deferred-quota" in answer.message.partition("denied request: ")[2]


# -- the pods ------------------------------------------------------------------------------

SPECS: Final[dict[str, Object]] = {
    "an image": {"containers": [{"name": "main", "image": "evil"}]},
    "a deadline": {"activeDeadlineSeconds": 1},
    "the gate and an image": {
        "containers": [{"name": "main", "image": "evil"}],
        "schedulingGates": [{"name": SCHEDULING_GATE, "$patch": "delete"}],
    },
    "the gate and a selector": {
        "nodeSelector": {"evil": "node"},
        "schedulingGates": [{"name": SCHEDULING_GATE, "$patch": "delete"}],
    },
    "a selector": {"nodeSelector": {"evil": "node"}},
    "the gate of others": {"schedulingGates": [{"name": HOLD, "$patch": "delete"}]},
    "all gates": {"schedulingGates": None},
}
METADATA: Final[dict[str, Object]] = {
    "a label": {"labels": {"app": "evil"}},
    "a label of ours": {"labels": {"deferredquota.io/unevaluated": "true"}},
    "an annotation": {"annotations": {"example.com/evil": "x"}},
    "an annotation that changes": {"annotations": {"example.com/a": "evil"}},
    "an annotation that goes": {"annotations": {"example.com/a": None}},
    "another annotation of ours": {"annotations": {"deferredquota.io/ungated": "x"}},
    "a finalizer": {"finalizers": ["example.com/evil"]},
    "an owner": {
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "gone"}]
    },
}
STATUSES: Final[dict[str, Object]] = {
    "its phase": {"phase": "Failed"},
    "its address": {"podIP": "10.9.9.9", "podIPs": [{"ip": "10.9.9.9"}]},
    "its reason": {"reason": "Evil"},
    "that it is ready": {"conditions": [{"type": "Ready", "status": "True"}]},
    "a condition of ours and others": {
        "conditions": [OURS, {"type": "example.com/evil", "status": "True"}]
    },
    "a condition of ours and the phase": {"conditions": [OURS], "phase": "Succeeded"},
    "its containers": {"containerStatuses": [{"name": "main", "image": "x", "imageID": "x"}]},
}


@pytest.mark.parametrize("namespace", EVERYWHERE)
@pytest.mark.parametrize("what", SPECS)
def test_of_a_pods_spec_nothing_changes_but_our_gate(
    world: World, namespace: str, what: str
) -> None:
    path = objects.pods(namespace, "waits")
    before = world.admin.get(path).body["spec"]
    is_refused(world.controller.patch_strategic(path, {"spec": SPECS[what]}))
    assert world.admin.get(path).body["spec"] == before


@pytest.mark.parametrize("namespace", EVERYWHERE)
def test_a_pod_gets_no_toleration(world: World, namespace: str) -> None:
    path = objects.pods(namespace, "waits")
    added = [{"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}]
    is_refused(world.controller.call("PATCH", path, added, kind="application/json-patch+json"))


@pytest.mark.parametrize("namespace", EVERYWHERE)
@pytest.mark.parametrize("what", METADATA)
@pytest.mark.parametrize("subresource", ["", "status"])
def test_of_a_pods_metadata_nothing_changes(
    world: World, namespace: str, what: str, subresource: str
) -> None:
    if (what, subresource) == ("an owner", "status"):
        return  # the API server keeps the owners itself there
    path = objects.pods(namespace, "runs", subresource)
    is_refused(world.controller.patch(path, {"metadata": METADATA[what]}))


@pytest.mark.parametrize("namespace", EVERYWHERE)
@pytest.mark.parametrize("what", STATUSES)
def test_of_a_pods_status_nothing_changes_but_our_condition(
    world: World, namespace: str, what: str
) -> None:
    path = objects.pods(namespace, "runs", "status")
    is_refused(world.controller.patch_strategic(path, {"status": STATUSES[what]}))


LONG: Final = "x" * 200_000
CONDITIONS: Final[dict[str, list[Object]]] = {
    "a long message": [{**OURS, "message": LONG}],
    "a long reason": [{**OURS, "reason": LONG}],
    "a long status": [{**OURS, "status": LONG}],
    "a status of its own": [{**OURS, "status": "Maybe"}],
    "a status that is never written": [{**OURS, "status": "Unknown"}],
    "that quota is reserved, in other words": [
        {**OURS, "status": "True", "reason": RESERVED.reason, "message": "ask evil.example"}
    ],
    "that quota is reserved, and more": [
        {
            **OURS,
            "status": "True",
            "reason": RESERVED.reason,
            "message": untried_condition("evil").message,
        }
    ],
    "that quota is reserved, for a reason": [
        {**OURS, "status": "True", "message": RESERVED.message}
    ],
    "twice": [OURS, OURS],
}


@pytest.mark.parametrize("what", CONDITIONS)
def test_our_condition_is_written_once_and_is_short(world: World, what: str) -> None:
    path = objects.pods(TEAM, "runs", "status")
    before = world.admin.get(path).body["status"].get("conditions", [])
    others = [one for one in before if one["type"] != QUOTA_RESERVED]
    written = {"status": {"conditions": [*others, *CONDITIONS[what]]}}
    is_refused(world.controller.patch(path, written))
    for usual in (
        {"message": "x" * 2100},
        {"status": "True", "reason": RESERVED.reason, "message": RESERVED.message},
        {"status": "True", "reason": RESERVED.reason, "message": untried_condition(NOBODY).message},
    ):
        assert world.controller.patch(
            path, {"status": {"conditions": [*others, {**OURS, **usual}]}}
        ).ok
    assert world.controller.patch(path, {"status": {"conditions": others}}).ok


@pytest.mark.parametrize(("pod_name", "name"), [("long", "s" * 300), ("odd", "a\x1b[2J")])
def test_an_odd_name_of_a_scheduler_is_said_as_the_controller_says_it(
    world: World, pod_name: str, name: str
) -> None:
    needs = {"cpu": "1m"}
    pod = a_pod(name=pod_name, namespace=TEAM, uid="", requests=needs, schedulerName=name)
    assert world.admin.create(objects.pods(TEAM), {**pod, "metadata": {"name": pod_name}}).ok
    said = {"status": "True", "reason": RESERVED.reason}
    condition = {**OURS, **said, "message": untried_condition(untried_by(pod)).message}
    path = objects.pods(TEAM, pod_name, "status")
    answer = world.controller.patch_strategic(path, {"status": {"conditions": [condition]}})
    assert answer.ok, str(answer)


def test_our_annotation_is_a_time(world: World) -> None:
    for value in (LONG, "now", "2026-11-22T05:31:52.114684+00:00 evil"):
        requeued = {"metadata": {"annotations": {"deferredquota.io/requeued": value}}}
        is_refused(world.controller.patch(objects.pods(TEAM, "waits"), requeued))


def test_of_a_pod_with_its_node_our_annotation_only_goes(world: World) -> None:
    path = objects.pods(TEAM, "placed")
    is_refused(world.controller.patch(path, {"metadata": {"annotations": WOKEN}}))
    assert world.admin.patch(path, {"metadata": {"annotations": WOKEN}}).ok
    gone = {"metadata": {"annotations": {"deferredquota.io/requeued": None}}}
    assert world.controller.patch(path, gone).ok


@pytest.mark.parametrize("namespace", [PLAIN, PLATFORM])
def test_where_no_namespace_has_opted_in_what_is_ours_only_goes(
    world: World, namespace: str
) -> None:
    path, status = objects.pods(namespace, "waits"), objects.pods(namespace, "waits", "status")
    ours = {"status": {"conditions": [OURS]}}
    woken = {"metadata": {"annotations": WOKEN}}
    is_refused(world.controller.patch_strategic(status, ours))
    is_refused(world.controller.patch(path, woken))
    assert world.admin.patch_strategic(status, ours).ok
    assert world.admin.patch(path, woken).ok
    changed = {"conditions": [{**OURS, "message": "another"}]}
    is_refused(world.controller.patch_strategic(status, {"status": changed}))
    gone = {"status": {"conditions": [{"type": QUOTA_RESERVED, "$patch": "delete"}]}}
    assert world.controller.patch_strategic(status, gone).ok
    left = {"metadata": {"annotations": {"deferredquota.io/requeued": None}}}
    assert world.controller.patch(path, left).ok
    ungated = {"spec": {"schedulingGates": [{"name": SCHEDULING_GATE, "$patch": "delete"}]}}
    assert world.controller.patch_strategic(path, ungated, dry_run=True).ok


def test_a_pod_that_was_turned_down_for_quota_may_be_woken_when_its_namespace_has_left(
    world: World,
) -> None:
    said = "0/3 nodes are available: 3 quota exceeded: q, requested: cpu=1, used: cpu=2, limited:"
    seen = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    woken = {"metadata": {"annotations": WOKEN}}
    for namespace in (PLAIN, PLATFORM):
        status = objects.pods(namespace, "runs", "status")
        assert world.admin.patch_strategic(status, {"status": {"conditions": [seen]}}).ok
    assert world.controller.patch(objects.pods(PLAIN, "runs"), woken, dry_run=True).ok
    is_refused(world.controller.patch(objects.pods(PLATFORM, "runs"), woken, dry_run=True))


@pytest.mark.parametrize("namespace", [PLAIN, PLATFORM])
@pytest.mark.parametrize("subresource", ["", "status"])
def test_where_no_namespace_has_opted_in_no_pod_is_written_for_nothing(
    world: World, namespace: str, subresource: str
) -> None:
    """The managed fields of others would go, or become as large as a pod may be."""
    path = objects.pods(namespace, "runs", subresource)
    large = {"manager": "evil", "fieldsV1": {f"f:{LONG}": {}}, "fieldsType": "FieldsV1"}
    written: tuple[Object, ...] = ({}, {**large, "operation": "Update", "apiVersion": "v1"})
    for fields in written:
        is_refused(world.controller.patch(path, {"metadata": {"managedFields": [fields]}}))


def test_where_a_namespace_has_opted_in_what_is_ours_is_written(world: World) -> None:
    path, status = objects.pods(TEAM, "waits"), objects.pods(TEAM, "waits", "status")
    woken = {"metadata": {"annotations": WOKEN}}
    ungated = {"spec": {"schedulingGates": [{"name": SCHEDULING_GATE, "$patch": "delete"}]}}
    for answer in (
        world.controller.patch_strategic(status, {"status": {"conditions": [OURS]}}),
        world.controller.patch(path, woken),
        world.controller.patch_strategic(path, ungated, dry_run=True),
    ):
        assert answer.ok, str(answer)


CAPACITY: Final = "nos.nebuly.com/capacity"


def test_one_label_of_pods_is_written_where_a_namespace_has_opted_in(world: World) -> None:
    label = {CAPACITY: "over-quota"}
    for namespace in EVERYWHERE:
        answer = world.controller.patch(
            objects.pods(namespace, "placed"), {"metadata": {"labels": label}}, dry_run=True
        )
        if namespace == TEAM:
            assert answer.ok, str(answer)
        else:
            is_refused(answer)
    of_none = objects.pods(TEAM, "runs")
    is_refused(world.controller.patch(of_none, {"metadata": {"labels": label}}, dry_run=True))
    path = objects.pods(TEAM, "placed")
    for wrong in ({CAPACITY: "none"}, {**label, "app": "another"}, {"nos.nebuly.com/other": "x"}):
        is_refused(world.controller.patch(path, {"metadata": {"labels": wrong}}, dry_run=True))


def test_that_label_goes_anywhere(world: World) -> None:
    path, mark = objects.pods(PLAIN, "placed"), {"app": "web", CAPACITY: "in-quota"}
    assert world.admin.patch(path, {"metadata": {"labels": mark}}).ok
    gone = {"metadata": {"labels": {CAPACITY: None}}}
    is_refused(world.controller.patch(path, {"metadata": {"labels": {"app": None}}}))
    is_refused(world.controller.patch(path, {"metadata": {"labels": {CAPACITY: "over-quota"}}}))
    assert world.controller.patch(path, gone).ok
    assert world.admin.patch(path, {"metadata": {"labels": {"app": None}}}).ok


# -- the quotas ----------------------------------------------------------------------------

ELASTIC: Final = {"deferredquota.io/elastic": "true"}
CREATED: Final[dict[str, tuple[Object, bool]]] = {
    "a maximum": ({"name": "eq.team.q", "labels": ELASTIC}, True),
    "a maximum of several": ({"name": "ceq.team.q", "labels": ELASTIC}, True),
    "a pool": ({"name": "epool.of-this-test", "labels": ELASTIC}, True),
    "another name": ({"name": "both", "labels": ELASTIC}, False),
    "a name that only contains it": ({"name": "my-eq.team.q", "labels": ELASTIC}, False),
    "no label": ({"name": "eq.team.q"}, False),
    "one label more": ({"name": "eq.team.q", "labels": {**ELASTIC, "a": "b"}}, False),
    "a finalizer": (
        {"name": "eq.team.q", "labels": ELASTIC, "finalizers": ["example.com/stays"]},
        False,
    ),
}


@pytest.mark.parametrize(("metadata", "is_allowed"), CREATED.values(), ids=CREATED)
def test_the_controller_makes_only_what_charges_elastic_quotas(
    world: World, metadata: Object, is_allowed: bool
) -> None:
    path = f"{KINDS}/clusterdeferredquotas"
    wanted = {**a_cluster_quota(selector={"no": "where"}), "metadata": metadata}
    answer = world.controller.create(path, wanted, dry_run=True)
    if is_allowed:
        assert answer.ok, str(answer)
    else:
        is_refused(answer, CLUSTER_QUOTAS_POLICY)
    refused = world.webhook.create(path, wanted, dry_run=True)
    assert (refused.code, "is forbidden: User" in refused.message) == (403, True)


def test_cluster_quotas_of_people_are_not_the_controllers(world: World) -> None:
    path = f"{KINDS}/clusterdeferredquotas"
    made = a_cluster_quota(selector={"no": "where"})
    hard = {"spec": {"hard": {"requests.cpu": "7"}}}
    for name, labels, is_ours in (
        ("x", ELASTIC, False),
        ("eq.x", {}, False),
        ("eq.y", ELASTIC, True),
    ):
        metadata = {"name": name, "labels": labels}
        assert world.admin.create(path, {**made, "metadata": metadata}).ok
        try:
            changed = world.controller.patch(f"{path}/{name}", hard)
            marked = {"metadata": {"annotations": {"a": "b"}}}
            is_refused(world.controller.patch(f"{path}/{name}", marked), CLUSTER_QUOTAS_POLICY)
            deleted = world.controller.delete(f"{path}/{name}")
            if is_ours:
                assert changed.ok
                assert deleted.ok
            else:
                is_refused(changed, CLUSTER_QUOTAS_POLICY)
                is_refused(deleted, CLUSTER_QUOTAS_POLICY)
        finally:
            world.admin.delete(f"{path}/{name}")


QUOTAS: Final[dict[str, Object]] = {
    "the limit of pods": {"hard": {"pods": "9999"}},
    "the use of pods": {"used": {"pods": "0"}},
    "the use of services": {"used": {"services": "5"}},
    "that services count": {"hard": {"services": None}, "used": {"services": None}},
    "a limit beyond the spec": {"hard": {"requests.cpu": "500"}, "used": {"requests.cpu": "0"}},
    "a limit that the spec has not": {"hard": {"memory": "1"}, "used": {"memory": "1"}},
    "a limit without a use": {"hard": {"requests.cpu": "5"}, "used": {"requests.cpu": None}},
}


@pytest.mark.parametrize("namespace", EVERYWHERE)
@pytest.mark.parametrize("what", QUOTAS)
def test_of_a_quotas_status_nothing_changes_but_what_is_deferred(
    world: World, namespace: str, what: str
) -> None:
    path = objects.quotas(namespace, "q", "status")
    before = world.admin.get(path).body["status"]
    answer = world.controller.patch(path, {"status": QUOTAS[what]})
    if (namespace, "limit" in what and what != "the limit of pods") == (TEAM, True):
        assert answer.ok, "the mask takes it out before anything is judged"
    else:
        is_refused(answer)
    assert world.admin.get(path).body["status"] == before


@pytest.mark.parametrize("namespace", EVERYWHERE)
@pytest.mark.parametrize(
    "metadata",
    [
        {"annotations": {"deferredquota.io/exclude": "true"}},
        {"labels": {"a": "b"}},
        {"finalizers": ["example.com/evil"]},
    ],
    ids=str,
)
def test_of_a_quotas_metadata_nothing_changes(
    world: World, namespace: str, metadata: Object
) -> None:
    path = objects.quotas(namespace, "q", "status")
    is_refused(world.controller.patch(path, {"metadata": metadata}))


def test_nothing_is_hidden_where_no_namespace_has_opted_in(world: World) -> None:
    hidden = {"status": {"hard": {"requests.cpu": None}, "used": {"requests.cpu": None}}}
    for namespace in (PLAIN, PLATFORM):
        path = objects.quotas(namespace, "q", "status")
        is_refused(world.controller.patch(path, hidden))
    path = objects.quotas(PLAIN, "q", "status")
    assert world.admin.patch(path, {"status": {"used": {"requests.cpu": "3"}}}).ok
    is_refused(world.controller.patch(path, {"status": {"used": {"requests.cpu": "2"}}}))
    endless = {"status": {"used": {"requests.cpu": "1e999"}}}  # not compared by a policy
    is_refused(world.controller.patch(path, endless))
    higher = {"status": {"used": {"requests.cpu": "1k"}}}
    is_refused(world.controller.patch(objects.quotas(PLATFORM, "q", "status"), higher))


def test_what_was_hidden_is_given_back_where_no_namespace_has_opted_in_any_more(
    world: World,
) -> None:
    hidden = {"status": {"hard": {"requests.cpu": None}, "used": {"requests.cpu": None}}}
    path = objects.quotas(PLAIN, "q", "status")
    assert world.admin.patch(path, hidden).ok
    given = {"status": {"hard": {"requests.cpu": "5"}, "used": {"requests.cpu": "0"}}}
    for answer in (
        world.controller.patch(path, given),
        world.controller.patch(path, {"status": {"used": {"requests.cpu": "1"}}}),
    ):
        assert answer.ok, str(answer)


# -- everything else -----------------------------------------------------------------------


@dataclass(frozen=True)
class Attempt:
    """A request that a role does not allow."""

    method: str
    path: str
    body: Object
    kind: str = "application/merge-patch+json"


_EVICTION: Final = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "runs"}}
_SHIPPED: Final = f"{ADMISSION}/validatingwebhookconfigurations/deferred-quota"
FORBIDDEN: Final = {
    "evict": Attempt("POST", "pods/runs/eviction", _EVICTION, "application/json"),
    "debug": Attempt("PATCH", "pods/runs/ephemeralcontainers", {"spec": {}}),
    "resize": Attempt("PATCH", "pods/runs/resize", {"spec": {}}),
    "replace": Attempt("PUT", "pods/runs", {}, "application/json"),
    "delete": Attempt("DELETE", "pods/runs", {}, "application/json"),
    "create": Attempt("POST", "pods", {}, "application/json"),
    "bind": Attempt("POST", "pods/runs/binding", {}, "application/json"),
    "exec": Attempt("POST", "pods/runs/exec", {}, "application/json"),
    "a quota": Attempt("PATCH", "resourcequotas/q", {"spec": {"hard": {"pods": "1"}}}),
    "a secret": Attempt("POST", "secrets", {}, "application/json"),
    "secrets": Attempt("GET", "secrets", {}, "application/json"),
    "a configuration": Attempt("POST", "configmaps", {}, "application/json"),
    "a token": Attempt("POST", "serviceaccounts/default/token", {}, "application/json"),
    "the namespace": Attempt("PATCH", "", {"metadata": {"labels": {"a": "b"}}}),
}


@pytest.mark.parametrize("program", ["controller", "webhook"])
@pytest.mark.parametrize("namespace", [*EVERYWHERE, SYSTEM])
@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_roles_allow_nothing_else(
    world: World, program: str, namespace: str, what: str
) -> None:
    attempt = FORBIDDEN[what]
    path = f"/api/v1/namespaces/{namespace}/{attempt.path}".rstrip("/")
    api: Api = getattr(world, program)
    answer = api.call(attempt.method, path, attempt.body, kind=attempt.kind)
    assert answer.code == 403, str(answer)
    assert "is forbidden: User" in answer.message


@pytest.mark.parametrize("program", ["controller", "webhook"])
@pytest.mark.parametrize(
    "path",
    [
        _SHIPPED,
        f"{ADMISSION}/mutatingwebhookconfigurations/deferred-quota",
        *(f"{ADMISSION}/validatingadmissionpolicies/{policy}" for policy in POLICIES),
        *(f"{ADMISSION}/validatingadmissionpolicybindings/{policy}" for policy in POLICIES),
        objects.ledger(TEAM),
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/deferred-quota-controller",
    ],
)
@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_the_installation_is_not_theirs_to_change(
    world: World, program: str, path: str, method: str
) -> None:
    api: Api = getattr(world, program)
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = api.call(method, path, {}, kind=kind)
    assert answer.code == 403, str(answer)
    assert "is forbidden: User" in answer.message


def test_no_pod_is_made_by_applying_one(world: World) -> None:
    path = f"{objects.pods(PLAIN, 'made')}?fieldManager=evil"
    wanted = a_pod(name="made", namespace=PLAIN, uid="")
    wanted["metadata"] = {"name": "made"}
    answer = world.controller.call("PATCH", path, wanted, kind="application/apply-patch+yaml")
    assert answer.code == 403, str(answer)


def an_event(namespace: str, component: str) -> Object:
    return {
        "metadata": {"name": f"e-{component}", "namespace": namespace},
        "involvedObject": {"kind": "Pod", "namespace": namespace, "name": "runs"},
        "source": {"component": component},
        "reason": "R",
    }


def test_events_are_our_own(world: World) -> None:
    for namespace in EVERYWHERE:
        path = f"/api/v1/namespaces/{namespace}/events"
        is_refused(world.controller.create(path, an_event(namespace, "kubelet")))
        assert world.admin.create(path, an_event(namespace, "kubelet")).ok
        changed = {"message": "evil", "source": {"component": "deferred-quota"}}
        is_refused(world.controller.patch(f"{path}/e-kubelet", changed))
    for namespace in (TEAM, PLAIN):
        path = f"/api/v1/namespaces/{namespace}/events"
        made = world.controller.create(path, an_event(namespace, "deferred-quota"))
        assert made.ok, str(made)
        assert world.controller.patch(f"{path}/e-deferred-quota", {"count": 2}).ok
    path = f"/api/v1/namespaces/{PLATFORM}/events"
    is_refused(world.controller.create(path, an_event(PLATFORM, "deferred-quota")))


BORN: Final[dict[str, Object]] = {
    "a finalizer": {"finalizers": ["example.com/evil"]},
    "an owner": METADATA["an owner"],
    "a label": {"labels": {"app": "evil"}},
    "an annotation": {"annotations": {"example.com/evil": "x"}},
    "a name to come": {"generateName": "evil-"},
}


@pytest.mark.parametrize("namespace", [TEAM, PLAIN])
@pytest.mark.parametrize("what", BORN)
def test_what_is_created_has_a_name_and_nothing_else(
    world: World, namespace: str, what: str
) -> None:
    """A finalizer would keep the namespace of others from ending."""
    ledger, event = a_ledger(), an_event(namespace, "deferred-quota")
    for wanted in (ledger, event):
        name = {} if "generateName" in BORN[what] else {"name": "ledger"}
        wanted["metadata"] = {**name, **BORN[what]}
    is_refused(world.controller.create(objects.ledger(namespace).removesuffix("/ledger"), ledger))
    is_refused(world.controller.create(f"/api/v1/namespaces/{namespace}/events", event))


@pytest.mark.parametrize("namespace", EVERYWHERE)
def test_a_namespace_gets_no_second_ledger(world: World, namespace: str) -> None:
    ledgers = objects.ledger(namespace).removesuffix("/ledger")
    second = {**a_ledger(), "metadata": {"name": "second"}}
    is_refused(world.controller.create(ledgers, second))


EVENTS: Final[dict[str, Object]] = {
    "a long message": {"message": LONG},
    "a long reason": {"reason": LONG},
    "a long type": {"type": LONG},
    "a long instance": {"reportingInstance": LONG},
    "a long host": {"source": {"component": "deferred-quota", "host": LONG}},
    "a long action": {"action": LONG},
    "another object": {"related": {"kind": "Pod", "name": LONG}},
    "a long path": {
        "involvedObject": {"kind": "Pod", "namespace": TEAM, "name": "runs", "fieldPath": LONG}
    },
}


@pytest.mark.parametrize("what", EVENTS)
def test_an_event_is_short(world: World, what: str) -> None:
    path = f"/api/v1/namespaces/{TEAM}/events"
    event = {**an_event(TEAM, "deferred-quota"), **EVENTS[what]}
    is_refused(world.controller.create(path, event, dry_run=True))


def test_no_event_is_reported_by_others(world: World) -> None:
    event = {**an_event(TEAM, "deferred-quota"), "reportingComponent": "kubelet"}
    is_refused(world.controller.create(f"/api/v1/namespaces/{TEAM}/events", event))


ENDLESS: Final[Object] = {
    "finalizers": ["example.com/evil"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "evil", "uid": "gone"}],
}
"""Metadata of an object that never ends, or at once."""


def test_the_only_lease_is_that_of_the_leader(world: World) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
    answer = world.controller.create(path, {"metadata": {"name": "another"}})
    is_refused(answer, OWN_NAMESPACE_POLICY)
    leader = world.admin.get(f"{path}/{LEADER_LEASE}").body
    for field, value in ENDLESS.items():
        odd = {**leader, "metadata": {**leader["metadata"], field: value}}
        is_refused(
            world.controller.call("PUT", f"{path}/{LEADER_LEASE}", odd), OWN_NAMESPACE_POLICY
        )
    assert world.controller.call("PUT", f"{path}/{LEADER_LEASE}", leader, dry_run=True).ok
    elsewhere = path.replace(SYSTEM, PLATFORM)
    assert world.controller.create(elsewhere, {"metadata": {"name": "another"}}).code == 403


@GATES_ARE_THERE
def test_the_job_that_is_tried_is_tried_by_dry_run_only(world: World) -> None:
    path = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs/{PROBE_JOB}"
    runs = {"spec": {"suspend": False}}
    is_refused(world.webhook.patch(path, runs), OWN_NAMESPACE_POLICY)
    is_refused(world.webhook.patch(f"{path}/status", {"metadata": ENDLESS}), OWN_NAMESPACE_POLICY)
    assert world.webhook.patch(path, runs, dry_run=True).ok
    assert world.webhook.patch(f"{path}/status", {"status": {"failed": 0}}).ok
    assert world.admin.get(path).body["spec"]["suspend"] is True


FOREVER: Final[dict[str, Object]] = {
    "that it has ended": {
        "status": {
            "completionTime": "2026-01-01T00:00:01Z",
            "conditions": [
                {"type": name, "status": "True"} for name in ("Complete", "SuccessCriteriaMet")
            ],
        }
    },
    "that its pods run": {"status": {"active": 1}},
    "its pods": {"status": {"uncountedTerminatedPods": {"failed": ["evil"]}}},
    "a label": {"metadata": {"labels": {"app.kubernetes.io/part-of": "evil"}}},
    "an annotation": {"metadata": {"annotations": {"example.com/evil": "x"}}},
}
"""What the webhook's own next try would not take back."""


@GATES_ARE_THERE
@pytest.mark.parametrize("what", FOREVER)
def test_of_the_job_that_is_tried_nothing_is_said_that_stays(world: World, what: str) -> None:
    path = f"/apis/batch/v1/namespaces/{SYSTEM}/jobs/{PROBE_JOB}/status"
    is_refused(world.webhook.patch(path, FOREVER[what], dry_run=True), OWN_NAMESPACE_POLICY)


# -- our kinds -----------------------------------------------------------------------------


@pytest.fixture
def owner(plane: ControlPlane, world: World) -> Iterator[Api]:
    """A tenant with all rights in both namespaces, and to everything of ours."""
    rules = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    ]
    for namespace in (TEAM, PLAIN):
        where = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        world.admin.create(f"{where}/roles", {"metadata": {"name": "owner"}, "rules": rules})
        grant(world, f"{where}/rolebindings", "Role")
    cluster = "/apis/rbac.authorization.k8s.io/v1"
    ours = [{"apiGroups": ["deferredquota.io"], "resources": ["*"], "verbs": ["*"]}]
    world.admin.create(f"{cluster}/clusterroles", {"metadata": {"name": "owner"}, "rules": ours})
    grant(world, f"{cluster}/clusterrolebindings", "ClusterRole")
    yield Api(plane.rest_as("owner", ()))
    # the doctor of later tests would name it
    world.admin.delete(f"{cluster}/clusterrolebindings/owner")


def grant(world: World, path: str, kind: str) -> None:
    group = "rbac.authorization.k8s.io"
    binding = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": group, "kind": kind, "name": "owner"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "owner"}],
    }
    assert world.admin.create(path, binding).code in (201, 409)


def test_a_tenant_writes_no_ledger_whatever_rights_it_has(world: World, owner: Api) -> None:
    path = objects.ledger(TEAM)
    eventually(lambda: owner.get(path).ok, "the rights are in force")
    becomes(lambda: world.admin.get(path).code, 200, "there is a ledger")
    before = world.admin.get(path).body
    for answer in (
        owner.patch(f"{path}/status", {"status": {"quotas": []}}),
        owner.call("PUT", f"{path}/status", {**before, "status": {}}),
        owner.patch(path, {"metadata": {"labels": {"a": "b"}}}),
        owner.delete(path),
        owner.call("DELETE", path.removesuffix("/ledger")),
        owner.create(path.removesuffix("/ledger"), {**a_ledger(), "metadata": {"name": "second"}}),
    ):
        is_refused(answer, LEDGERS_POLICY)
    assert world.admin.get(path).body.get("status") == before.get("status")


@pytest.mark.parametrize("namespace", [TEAM, PLAIN])
def test_no_quota_keeps_what_we_write_out_of_a_namespace(
    world: World, owner: Api, namespace: str
) -> None:
    """Before it opts in, too."""
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    counts = {"count/podgatings.deferredquota.io": "0"}
    quota: Object = {"metadata": {"name": "counts"}, "spec": {"hard": {"count/jobs.batch": "1"}}}
    eventually(lambda: owner.get(path).ok, "the rights are in force")
    assert owner.create(path, quota).ok
    try:
        for api in (owner, world.admin):
            is_refused(api.create(path, {**quota, "spec": {"hard": counts}}), LEDGERS_POLICY)
            is_refused(
                api.patch(f"{path}/counts", {"spec": {"hard": counts}}, dry_run=True),
                LEDGERS_POLICY,
            )
        assert owner.patch(f"{path}/counts", {"spec": {"hard": {"count/jobs.batch": "2"}}}).ok
    finally:
        assert owner.delete(f"{path}/counts").ok


def a_gating(**metadata: object) -> Object:
    made = {"apiVersion": KINDS.removeprefix("/apis/"), "kind": "PodGating"}
    return {**made, "metadata": {"name": "gating", **metadata}, "spec": {"state": "Open"}}


def gatings(namespace: str) -> str:
    return f"{KINDS}/namespaces/{namespace}/podgatings"


def test_what_gates_new_pods_is_the_controllers_alone(world: World, owner: Api) -> None:
    eventually(lambda: owner.get(gatings(TEAM)).ok, "the rights are in force")
    is_refused(owner.create(gatings(TEAM), a_gating(), dry_run=True), LEDGERS_POLICY)
    assert world.webhook.create(gatings(TEAM), a_gating(), dry_run=True).code == 403
    made = world.controller.create(gatings(TEAM), a_gating(), dry_run=True)
    assert made.ok, str(made)


@pytest.mark.parametrize(
    "metadata", [{"finalizers": ["example.com/x"]}, {"name": "second"}], ids=str
)
def test_a_namespace_gets_one_of_it_without_more(world: World, metadata: Object) -> None:
    is_refused(world.controller.create(gatings(TEAM), a_gating(**metadata), dry_run=True))


def test_it_has_no_amount_that_takes_a_policy_long(world: World) -> None:
    """It would be compared when any pod is created."""
    for part in ("requests", "limits"):
        for amount, code in (("250e33", 201), ("1e999", 422), ("9" * 65, 422)):
            made = {**a_gating(), "spec": {part: {"cpu": amount}}}
            answer = world.controller.create(gatings(TEAM), made, dry_run=True)
            assert answer.code == code, str(answer)


@pytest.mark.parametrize("namespace", [PLAIN, PLATFORM])
def test_where_no_namespace_has_opted_in_nothing_gates(world: World, namespace: str) -> None:
    is_refused(world.controller.create(gatings(namespace), a_gating(), dry_run=True))


def test_the_use_of_a_cluster_quota_is_ours_and_its_spec_the_administrators(
    owner: Api,
) -> None:
    path = f"{KINDS}/clusterdeferredquotas"
    made = owner.create(
        path, {**a_cluster_quota(selector={"no": "where"}), "metadata": {"name": "shared-x"}}
    )
    assert made.ok, str(made)
    try:
        forged = {"status": {"used": {"requests.cpu": "0"}}}
        is_refused(owner.patch(f"{path}/shared-x/status", forged), LEDGERS_POLICY)
        hard = {"spec": {"hard": {"requests.cpu": "7"}}}
        assert owner.patch(f"{path}/shared-x", hard).ok
    finally:
        assert owner.delete(f"{path}/shared-x").ok


def test_users_that_may_change_the_policy_may_write_ledgers(
    plane: ControlPlane,
    world: World,  # noqa: ARG001 - has made what is written
) -> None:
    """As administrators of clusters where nobody is in `system:masters`."""
    name = "identities-administrator"
    command = ("create", "clusterrolebinding", name, "--clusterrole=cluster-admin")
    plane.kubectl(*command, f"--user={name}")
    api = Api(plane.rest_as(name, ()))
    touched = {"status": {"summary": "x"}}
    path = f"{objects.ledger(PLAIN)}/status"
    eventually(lambda: api.patch(path, touched, dry_run=True).ok, "the rights are in force")
    plane.kubectl("delete", "clusterrolebinding", name)


def test_a_namespace_ends_with_its_ledger(world: World) -> None:
    name = "identities-ends"
    apply_namespace(world.admin, name)
    made = world.controller.create(objects.ledger(name).removesuffix("/ledger"), a_ledger())
    assert made.ok, str(made)
    assert world.admin.delete(f"/api/v1/namespaces/{name}").ok
    becomes(
        lambda: world.admin.get(f"/api/v1/namespaces/{name}").code, 404, "the namespace is gone"
    )


def test_the_api_server_finds_nothing_wrong_with_the_policies(world: World) -> None:
    def types(policy: str) -> Callable[[], bool]:
        def are_checked() -> bool:
            found = world.admin.get(f"{ADMISSION}/validatingadmissionpolicies/{policy}").body
            status = found.get("status", {})
            checked = status.get("observedGeneration") == found["metadata"]["generation"]
            assert not status.get("typeChecking", {}).get("expressionWarnings") or not checked
            return bool(checked)

        return are_checked

    for policy in POLICIES:
        eventually(types(policy), f"the types of {policy} are checked")
