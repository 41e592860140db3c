"""`deferred-quota explain`: of snapshots, of clusters, and of what may not be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

import webhook
from tests.builders import a_container, a_job, a_pod, a_quota, out_of_bounds
from tests.json_schema import schema_errors
from tests.operations.healthy import NOW, Guard, Pulse, count, edit, healthy, remove
from tests.operations.scenes import NAMESPACE, a_gated_pod, load
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.cli import ExitCode, cli
from webhook.cli.exit_codes import CommandError
from webhook.cli.explain import watch
from webhook.cli.printing.explanation_report import print_explanation
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    BINDINGS,
    CLUSTER_DEFERRED_QUOTAS,
    EVENTS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    VALIDATING_WEBHOOKS,
    ForbiddenError,
    InternalError,
    Kind,
)
from webhook.kube.kinds import DEVICE_CLASSES
from webhook.kube.metadata import utc_now
from webhook.operations.explain.entry import explanation_entry
from webhook.operations.explain.explaining import KINDS, NotThereError, Target, explain
from webhook.operations.explain.session import ExplainOptions
from webhook.operations.snapshot_usage import COUNTED_FROM_PODS
from webhook.quota.explaining.values import Action, CauseKind, ConsumerState
from webhook.quota.ledger.ledger import GUARDED, JUST_REGISTERED, Condition, Ledger
from webhook.state.well_known import (
    DEFAULT_NAMESPACE,
    EMERGENCY_SINCE,
    LEADER_LEASE,
    REGISTRATION,
)

SCHEMA = json.loads(
    (Path(webhook.__file__).parent / "schemas/explain.schema.json").read_text(encoding="utf-8")
)
GATE = {"name": "deferredquota.io/quota"}
OTHER = "example.com/hold"


def a_node(name: str = "node-1", cpu: str = "8", **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


@pytest.fixture
def cluster() -> FakeCluster:
    """`team-a` has a quota of 4 cpu, of which `web-1` uses one, and a node."""
    return healthy()


def wait_for_quota(cluster: FakeCluster, *pods: Mapping[str, object]) -> None:
    load(cluster, *pods)
    count(cluster)


def client(cluster: FakeCluster) -> ReactiveClient:
    return ReactiveClient(cluster, admission=Guard())


def options(**given: Any) -> ExplainOptions:
    pulse = Pulse()
    return ExplainOptions(now=lambda: NOW, clock=pulse.clock, sleep=pulse.sleep, **given)


def why(
    api: FakeClient | FakeCluster, name: str, kind: str = "pod", **given: Any
) -> dict[str, Any]:
    """Explain an object; the answer is valid by the schema."""
    reached = client(api) if isinstance(api, FakeCluster) else api
    entry = explanation_entry(
        explain(reached, Target(KINDS[kind], NAMESPACE, name), options(**given))
    )
    assert list(schema_errors(entry, SCHEMA)) == []
    return entry


def causes(entry: Mapping[str, Any]) -> list[str]:
    return [one["cause"] for one in entry["causes"]]


def actions(entry: Mapping[str, Any]) -> list[str]:
    return [one["action"] for one in entry["unblock"]]


def forbidden(*kinds: Kind) -> Callable[[FakeCluster], ReactiveClient]:
    """A client that may not read some kinds."""

    def refuse(call: Call, _proceed: Proceed) -> None:
        raise ForbiddenError(f"{call.kind.plural} is forbidden: no right")

    def make(cluster: FakeCluster) -> ReactiveClient:
        api = client(cluster)
        for kind in kinds:
            api.on("get", kind, refuse)
            api.on("list", kind, refuse)
        return api

    return make


# -- pods ----------------------------------------------------------------------------------


def test_the_numbers_the_users_and_the_actions_are_reported(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("large", cpu="4"))
    entry = why(cluster, "large")
    assert entry["causes"] == [
        {
            "cause": "quota",
            "text": "exceeded quota: p1, requested: requests.cpu=4, used: requests.cpu=1,"
            " limited: requests.cpu=4, missing: requests.cpu=1; place 1 of 1",
            "quota": "p1",
            "resources": [
                {
                    "resource": "requests.cpu",
                    "requested": "4",
                    "used": "1",
                    "reserved": "0",
                    "hard": "4",
                    "missing": "1",
                }
            ],
            "place": 1,
        }
    ]
    assert entry["cause"] == "quota"
    assert entry["who"] == [
        {
            "namespace": "team-a",
            "pod": "web-1",
            "amounts": {"requests.cpu": "1"},
            "state": "starting",
        }
    ]
    assert entry["nodes"]["total"] == 1
    assert entry["unblock"][0] == {
        "action": "free-quota",
        "text": "free 1 requests.cpu of quota p1",
        "quota": "p1",
        "resource": "requests.cpu",
        "amount": "1",
    }
    assert (entry["unknown"], entry["asOf"]) == ([], "2026-06-01T00:00:00Z")


def test_nodes_are_judged_while_the_gate_is_on(cluster: FakeCluster) -> None:
    edit(cluster, NODES, "node-1", lambda node: node["spec"].update(unschedulable=True))
    load(cluster, a_node("node-2", cpu="1"))
    wait_for_quota(cluster, a_gated_pod("large", cpu="4"))
    entry = why(cluster, "large")
    assert causes(entry) == ["quota", "taint", "node-capacity"]
    reasons = {"taint": 1, "node-capacity": 1}
    assert entry["nodes"] == {"total": 2, "fit": 0, "reasons": reasons, "best": []}
    assert entry["causes"][2]["resources"] == [
        {
            "resource": "cpu",
            "requested": "4",
            "used": "0",
            "reserved": "0",
            "hard": "1",
            "missing": "3",
        }
    ]
    assert {"uncordon", "add-node", "shrink-pod"} <= set(actions(entry))


def test_the_cordoned_node_is_named_on_which_the_pod_fits(cluster: FakeCluster) -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordon: dict[str, Any] = {"unschedulable": True, "taints": [taint]}
    edit(cluster, NODES, "node-1", lambda node: node["spec"].update(cordon))
    wanted = {"nodeSelector": {"disk": "ssd"}, "schedulingGates": [GATE]}
    pod = a_pod(name="x", uid="uid-x", requests={"cpu": "1"}, **wanted)  # type: ignore[arg-type]
    wait_for_quota(cluster, pod)

    def uncordon() -> str:
        (action,) = [one for one in why(cluster, "x")["unblock"] if one["action"] == "uncordon"]
        text: str = action["text"]
        return text

    selector = "node(s) didn't match Pod's node affinity/selector"
    assert uncordon() == f"kubectl uncordon node-1, which is not enough: {selector}"
    other: dict[str, Any] = a_node("node-2", **cordon)
    other["metadata"]["labels"]["disk"] = "ssd"
    load(cluster, other)
    assert uncordon() == "kubectl uncordon node-2"


def test_devices_of_a_class_are_no_resource_that_nodes_lack(cluster: FakeCluster) -> None:
    gpu = {"cpu": "4", "example.com/gpu": "1"}
    wait_for_quota(cluster, a_pod(name="x", uid="x", requests=gpu, schedulingGates=[GATE]))
    assert "node-capacity" in causes(why(cluster, "x"))
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }
    FakeClient(cluster).create(DEVICE_CLASSES, made)
    entry = why(cluster, "x")
    assert "node-capacity" not in causes(entry)
    assert entry["nodes"]["fit"] == 1
    assert entry["unknown"] == ["nodes are not judged by: deviceclasses"]


def test_the_taints_of_most_nodes_are_named(cluster: FakeCluster) -> None:
    def taint(key: str, value: str = "") -> dict[str, Any]:
        return {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}

    edit(cluster, NODES, "node-1", lambda node: node["spec"].update(taint("a")))
    load(cluster, *(a_node(f"node-{number}", **taint("pool", "gpu")) for number in (2, 3)))
    wait_for_quota(cluster, a_gated_pod("x"))
    (action,) = why(cluster, "x")["unblock"]
    assert action["text"] == "create the pod with a toleration of pool=gpu:NoSchedule (2 nodes)"


def test_a_toleration_that_is_not_enough_is_named_as_such(cluster: FakeCluster) -> None:
    def taint(key: str) -> dict[str, Any]:
        return {"taints": [{"key": key, "effect": "NoSchedule"}]}

    edit(cluster, NODES, "node-1", lambda node: node["spec"].update(taint("a")))
    load(cluster, a_node("node-2", **taint("a")))
    wanted = {"nodeSelector": {"disk": "ssd"}, "schedulingGates": [GATE]}
    pod = a_pod(name="x", uid="uid-x", requests={"cpu": "1"}, **wanted)  # type: ignore[arg-type]
    wait_for_quota(cluster, pod)

    def tolerate() -> str:
        actions = why(cluster, "x")["unblock"]
        (text,) = [one["text"] for one in actions if one["action"] == "add-toleration"]
        return str(text).removeprefix("create the pod with a toleration of ")

    selector = "node(s) didn't match Pod's node affinity/selector"
    assert tolerate() == f"a:NoSchedule (2 nodes), which is not enough: {selector}"
    other: dict[str, Any] = a_node("node-3", **taint("b"))
    other["metadata"]["labels"]["disk"] = "ssd"
    load(cluster, other)
    assert tolerate() == "b:NoSchedule (node node-3)"


def test_plugins_that_are_not_scored_are_named(cluster: FakeCluster) -> None:
    metadata = {"labels": {"app": "web"}, "creationTimestamp": "2026-05-31T23:59:00Z"}
    waits = a_pod(
        name="x", uid="uid-x", metadata=metadata, requests={"cpu": "4"}, schedulingGates=[GATE]
    )
    wait_for_quota(cluster, waits)
    assert why(cluster, "x")["unknown"] == [], "with one node there is no other"
    load(cluster, a_node("node-2"))
    (unknown,) = why(cluster, "x")["unknown"]
    assert unknown.startswith("scores are without PodTopologySpread, of weight 2: ")


NODE_CAUSES: dict[str, tuple[dict[str, object], dict[str, object], list[str], list[str]]] = {
    "tainted": (
        {"taints": [{"key": "a", "effect": "NoSchedule"}]}, {},
        ["taint"], ["add-toleration"],
    ),
    "cordoned": ({"unschedulable": True}, {}, ["taint"], ["uncordon"]),
    "node selector": (
        {}, {"nodeSelector": {"disk": "ssd"}},
        ["node-selector"], ["label-node", "change-selector"],
    ),
    "node affinity": (
        {},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
                        ]
                    }
                }
            }
        },
        ["node-affinity"], ["label-node", "change-affinity"],
    ),
    "too large": (
        {}, {"requests": {"cpu": "9"}},
        ["never-fits", "node-capacity"],
        ["shrink-pod", "raise-quota", "shrink-pod", "add-node"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("node", "fields", "expected", "unblocking"), NODE_CAUSES.values(), ids=NODE_CAUSES.keys()
)
def test_every_cause_of_nodes(
    node: dict[str, object],
    fields: dict[str, Any],
    expected: list[str],
    unblocking: list[str],
    cluster: FakeCluster,
) -> None:
    edit(cluster, NODES, "node-1", lambda raw: raw["spec"].update(node))
    spec = {"requests": {"cpu": "1"}, "schedulingGates": [GATE], **fields}
    wait_for_quota(cluster, a_pod(name="x", uid="uid-x", **spec))
    entry = why(cluster, "x")
    assert causes(entry) == expected
    assert actions(entry) == unblocking


def test_a_large_namespace_takes_no_more_requests(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    counts = []
    for first, last in ((0, 10), (10, 1000)):
        pods = [
            a_pod(name=f"run-{number}", uid=f"uid-run-{number}", namespace=NAMESPACE, node="node-1")
            for number in range(first, last)
        ]
        load(cluster, *pods)
        api = client(cluster)
        assert "quota" in causes(why(api, "x"))
        counts.append(len(api.calls))
    small, large = counts
    assert large - small <= 4, "two lists have three pages of 500 instead of one"
    assert small <= 19


@pytest.mark.parametrize(("kind", "name"), [("pod", "x"), ("deployment", "x")])
def test_an_open_emergency_is_noted(cluster: FakeCluster, kind: str, name: str) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    load(cluster, a_workload("Deployment", "x"))
    edit(
        cluster,
        VALIDATING_WEBHOOKS,
        REGISTRATION,
        lambda found: found["metadata"].update(annotations={EMERGENCY_SINCE: "2026-11-26"}),
    )
    note, *_ = why(cluster, name, kind)["notes"]
    assert note.startswith("the emergency is open since 2026-11-26: the API server enforces")
    api = forbidden(VALIDATING_WEBHOOKS)(cluster)
    assert not any("emergency" in one for one in why(api, name, kind)["notes"])


def test_a_pod_made_anew_is_reported(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x"))
    load(cluster, an_event("Pod", "x", "uid-of-another", "QuotaExceeded", "exceeded quota: p1"))
    assert "another pod of this name is gone" in " ".join(why(cluster, "x")["notes"])


def test_a_pod_that_is_gone_is_explained_by_its_last_event(cluster: FakeCluster) -> None:
    load(cluster, an_event("Pod", "x", "uid-x", "QuotaExceeded", "exceeded quota: p1"))
    with pytest.raises(NotThereError, match=r"team-a/x does not exist any more; last event.*p1"):
        why(cluster, "x")
    with pytest.raises(NotThereError, match=r"Pod team-a/y does not exist$"):
        why(cluster, "y")


# Source: kubernetes v1.36, client-go/tools/events/event_recorder.go makeEvent
OF_SCHEDULERS: dict[str, tuple[dict[str, Any], str]] = {
    "once": ({}, "09:30:00.123456Z"),
    "a series": (
        {"series": {"count": 7, "lastObservedTime": "2026-06-01T09:41:00.000000Z"}},
        "09:41:00.000000Z",
    ),
}


@pytest.mark.parametrize(("more", "at"), OF_SCHEDULERS.values(), ids=OF_SCHEDULERS)
def test_the_last_event_of_a_pod_that_is_gone_may_be_its_schedulers(
    cluster: FakeCluster, more: dict[str, Any], at: str
) -> None:
    tried = an_event("Pod", "x", "uid-x", "FailedScheduling", "0/3 nodes are available")
    times = {"lastTimestamp": None, "eventTime": "2026-06-01T09:30:00.123456Z"}
    load(cluster, {**tried, **times, **more})
    with pytest.raises(NotThereError, match=f"last event, of 2026-06-01T{at}: FailedScheduling"):
        why(cluster, "x")


# -- the parts of the product ---------------------------------------------------------------


def test_without_a_leader_used_is_counted_from_the_pods(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    lead = {"holderIdentity": "", "renewTime": "2026-05-31T23:00:00.000000Z"}
    edit(
        cluster,
        LEASES,
        LEADER_LEASE,
        lambda raw: raw["spec"].update(lead),
        namespace=DEFAULT_NAMESPACE,
    )
    entry = why(cluster, "x")
    assert causes(entry) == ["ledger-not-ready", "quota"]
    remove(cluster, PODS, "web-1", namespace=NAMESPACE)
    entry = why(cluster, "x")
    assert causes(entry) == ["ledger-not-ready"], "the ledger still counts web-1"
    assert "no controller leads since 2026-05-31T23:00:00" in entry["text"]
    assert actions(entry) == ["start-controller"]


def test_a_lease_that_looks_old_is_watched_before_it_counts_as_old(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="1"))

    def later() -> datetime:
        return NOW + timedelta(hours=1)

    api = client(cluster)
    pulse = Pulse()
    silent = ExplainOptions(clock=pulse.clock, sleep=pulse.sleep, now=later)
    target = Target(PODS, NAMESPACE, "x")
    assert explain(api, target, silent).cause is CauseKind.LEDGER_NOT_READY

    def renew() -> None:
        patch = {"spec": {"renewTime": "2026-06-01T00:00:07.000000Z"}}
        FakeClient(cluster).patch(LEASES, LEADER_LEASE, patch, namespace=DEFAULT_NAMESPACE)

    pulse = Pulse(renew)
    alive = ExplainOptions(clock=pulse.clock, sleep=pulse.sleep, now=later)
    assert explain(api, target, alive).cause is None


def test_a_ledger_of_other_quotas_is_reported_instead_of_its_numbers(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    change = {"hard": {"requests.cpu": "5", "pods": "9"}}
    edit(
        cluster, RESOURCE_QUOTAS, "p1", lambda raw: raw["spec"].update(change), namespace=NAMESPACE
    )
    entry = why(cluster, "x")
    assert causes(entry) == ["ledger-not-ready"]
    assert entry["causes"][0]["text"] == "usage is being counted for quota: p1"
    remove(cluster, QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    assert causes(why(cluster, "x")) == ["ledger-not-ready"]


def test_a_ledger_from_before_the_registration_is_reported(cluster: FakeCluster) -> None:
    load(cluster, a_gated_pod("x", cpu="4"))
    mark = Condition(GUARDED, "True", "Registered", "another")
    count(cluster, lambda ledger: replace(ledger, conditions=(mark,)))
    entry = why(cluster, "x")
    assert causes(entry) == ["ledger-not-ready"]
    assert entry["causes"][0]["text"] == JUST_REGISTERED.message
    assert causes(why(forbidden(VALIDATING_WEBHOOKS)(cluster), "x")) == ["quota"]
    found: Any = FakeClient(cluster).get(VALIDATING_WEBHOOKS, REGISTRATION)
    mark = replace(mark, message=found["metadata"]["uid"])
    count(cluster, lambda ledger: replace(ledger, conditions=(mark,)))
    assert causes(why(cluster, "x")) == ["quota"]


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_quotas_for_which_nothing_is_bound_are_the_reason_of_the_bind(
    cluster: FakeCluster, quotas: list[dict[str, Any]], reason: str
) -> None:
    load(cluster, *quotas)
    wait_for_quota(cluster, a_gated_pod("x", cpu="1"))
    entry = why(cluster, "x")
    assert causes(entry)[0] == "ledger-not-ready"
    assert entry["causes"][0]["text"] == reason


def test_a_webhook_that_does_not_answer_is_reported(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="1"))

    def silent(_: object) -> None:
        raise InternalError('failed calling webhook "bind.deferredquota.io": connection refused')

    entry = why(ReactiveClient(cluster, admission=Guard(silent)), "x")
    assert causes(entry) == ["webhook-down"]
    assert "connection refused" in entry["text"]
    assert actions(entry) == ["start-webhook"]


# -- what may not be read -------------------------------------------------------------------

RIGHTS: dict[str, tuple[tuple[Kind, ...], list[str], str]] = {
    "nodes": ((NODES,), ["quota"], "nodes: no right to read"),
    "leases": ((LEASES,), ["quota"], "no right to read the Lease of the controller"),
    "events": ((EVENTS,), ["quota"], "the events of namespace team-a: no right to read"),
    "namespaces": ((NAMESPACES,), ["quota"], "the labels of namespace team-a: no right to read"),
    "shared quotas": ((CLUSTER_DEFERRED_QUOTAS,), ["quota"], "cluster quotas: no right to read"),
    "the ledger": (
        (QUOTA_LEDGERS,), ["ledger-not-ready"], "the quota ledger: no right to read",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kinds", "expected", "text"), RIGHTS.values(), ids=RIGHTS.keys())
def test_what_may_not_be_read_is_reported(
    kinds: tuple[Kind, ...], expected: list[str], text: str, cluster: FakeCluster
) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    entry = why(forbidden(*kinds)(cluster), "x")
    assert causes(entry) == expected
    assert text in entry["unknown"]


def test_cluster_quotas_that_may_not_be_read_are_not_said_to_be_being_counted(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    def share(ledger: Ledger) -> Ledger:
        (account,) = ledger.accounts.values()
        observed = replace(account.observed, name="cdq/total")
        shared = {"cdq/total": replace(account, observed=observed)}
        return replace(ledger, accounts={**ledger.accounts, **shared})

    load(cluster, a_gated_pod("x", cpu="4"))
    count(cluster, share)
    text = "cluster quotas cannot be read: cdq/total"
    entry = why(forbidden(CLUSTER_DEFERRED_QUOTAS)(cluster), "x")
    assert entry["causes"][0]["text"] == text
    path = a_snapshot(cluster, tmp_path, without=[CLUSTER_DEFERRED_QUOTAS])
    unread = ["ClusterDeferredQuota.deferredquota.io/v1alpha1"]
    without(path, head={**OF_OURS, "unread": unread})
    pod = tmp_path / "pod.yaml"
    pod.write_text(yaml.safe_dump(a_pod(name="other", namespace=NAMESPACE)), encoding="utf-8")
    ran = CliRunner().invoke(cli, ["check", "-f", str(pod), "--snapshot", str(path)])
    assert f"note: what is reserved of quota p1: {text}\n" in ran.output
    # a quota of its own that is not counted yet is
    load(cluster, a_quota("new", namespace=NAMESPACE, uid="new", hard={"requests.cpu": "9"}))
    entry = why(forbidden(CLUSTER_DEFERRED_QUOTAS)(cluster), "x")
    assert entry["causes"][0]["text"] == "usage is being counted for quota: new"


def test_without_a_right_to_bind_the_webhook_is_not_known(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    api = client(cluster)

    def refuse(_call: Call, _proceed: Proceed) -> None:
        raise ForbiddenError('cannot create resource "pods/binding" in API group')

    api.on("create", BINDINGS, refuse)
    entry = why(api, "x")
    assert causes(entry) == ["quota"]
    assert "whether the webhook answers: no right to create pods/binding" in entry["unknown"]


def test_without_pods_elsewhere_the_nodes_are_judged_by_those_here(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    api = client(cluster)

    def refuse(call: Call, proceed: Proceed) -> Any:
        if call.selection.namespace is None:
            raise ForbiddenError("pods is forbidden")
        return proceed()

    api.on("list", PODS, refuse)
    entry = why(api, "x")
    assert entry["nodes"]["fit"] == 1
    words = "pods of other namespaces, which may take more of the nodes: no right to read"
    assert words in entry["unknown"]


@pytest.mark.parametrize(("elsewhere", "fit"), [("2", 1), ("5", 0)])
def test_pods_here_and_elsewhere_take_of_a_node_each_once(
    cluster: FakeCluster, elsewhere: str, fit: int
) -> None:
    """The node has 8, of which `web-1` takes 1 and the pod 4."""
    taken = a_pod(name="far", namespace="far", node="node-1", requests={"cpu": elsewhere})
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"), taken)
    api = client(cluster)
    assert why(api, "x")["nodes"]["fit"] == fit
    read = [
        cast("Any", one)["metadata"]["name"]
        for call in api.calls_of("list", PODS)
        for one in FakeClient(cluster)
        .list(
            PODS,
            call.selection,
        )
        .items
    ]
    assert sorted(read) == ["far", "web-1", "x"]


# -- workloads -----------------------------------------------------------------------------


def owned_by(kind: str, name: str, pod: dict[str, Any]) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": kind, "name": name, "uid": f"uid-{name}"}
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


def a_workload(
    kind: str,
    name: str,
    *,
    replicas: int = 1,
    owner: str = "",
    cpu: str = "1",
    status: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    references = [{"kind": "Deployment", "name": owner, "uid": f"uid-{owner}"}] if owner else []
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "ownerReferences": references,
        },
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"containers": [a_container(requests={"cpu": cpu})]}},
        },
        "status": dict(status or {}),
    }


def an_event(kind: str, name: str, uid: str, reason: str, message: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.1", "namespace": NAMESPACE},
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-05-31T23:59:00Z",
    }


def test_the_first_waiting_pod_of_a_deployment_is_explained(cluster: FakeCluster) -> None:
    load(cluster, a_workload("Deployment", "web", replicas=3))
    load(cluster, a_workload("ReplicaSet", "web-7", replicas=3, owner="web"))
    pods = [owned_by("ReplicaSet", "web-7", a_gated_pod(name, cpu="2")) for name in "abc"]
    wait_for_quota(cluster, *pods)
    entry = why(cluster, "web", "deployment")
    assert entry["kind"] == "Deployment"
    assert entry["pod"] == "a"
    assert entry["text"].startswith("Deployment team-a/web: 3 of 3 pods wait, first a: it fits")
    assert why(cluster, "web-7", "replicaset")["pod"] == "a"


def test_of_pods_of_one_second_without_a_controller_the_one_created_first_is_explained(
    cluster: FakeCluster,
) -> None:
    load(cluster, a_workload("ReplicaSet", "web", replicas=3))
    pods = [owned_by("ReplicaSet", "web", a_gated_pod(name, cpu="2")) for name in "cab"]
    wait_for_quota(cluster, *pods)
    entry = why(cluster, "web", "replicaset")
    assert entry["text"].startswith("ReplicaSet team-a/web: 3 of 3 pods wait, first c: it fits")


def test_pods_that_start_are_not_counted_as_waiting(cluster: FakeCluster) -> None:
    load(cluster, a_workload("ReplicaSet", "web", replicas=3))
    starting = [
        a_pod(name=name, uid=name, node="node-1", status={"phase": "Pending"})
        for name in ("s0", "s1")
    ]
    load(cluster, *(owned_by("ReplicaSet", "web", pod) for pod in starting))
    text = why(cluster, "web", "replicaset")["text"]
    assert text.startswith("ReplicaSet team-a/web: 2 of 3 pods start, first s0: the pod has node")
    wait_for_quota(cluster, owned_by("ReplicaSet", "web", a_gated_pod("x", cpu="4")))
    text = why(cluster, "web", "replicaset")["text"]
    assert text.startswith("ReplicaSet team-a/web: 1 of 3 pods waits, first x: ")


def test_one_pod_is_not_several(cluster: FakeCluster) -> None:
    load(cluster, a_workload("ReplicaSet", "web", replicas=1))
    wait_for_quota(cluster, owned_by("ReplicaSet", "web", a_gated_pod("x", cpu="4")))
    text = why(cluster, "web", "replicaset")["text"]
    assert text.startswith("ReplicaSet team-a/web: 1 of 1 pod waits, first x: ")


def test_a_refused_creation_is_explained_by_the_quota_as_it_is(cluster: FakeCluster) -> None:
    status = {
        "conditions": [
            {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: p1, used: 7"}
        ]
    }
    load(cluster, a_workload("ReplicaSet", "web", status=status))
    full = {"hard": {"pods": "9"}, "used": {"pods": "9"}}
    edit(cluster, RESOURCE_QUOTAS, "p1", lambda raw: raw.update(status=full), namespace=NAMESPACE)
    entry = why(cluster, "web", "replicaset")
    assert causes(entry) == ["quota"]
    assert entry["causes"][0]["resources"][0] == {
        "resource": "pods", "requested": "1", "used": "9", "reserved": "0", "hard": "9",
        "missing": "1",
    }  # fmt: skip
    assert actions(entry) == ["free-quota", "raise-quota"]
    edit(
        cluster, RESOURCE_QUOTAS, "p1",
        lambda raw: raw["status"]["used"].update(pods="8"), namespace=NAMESPACE,
    )  # fmt: skip
    entry = why(cluster, "web", "replicaset")
    assert causes(entry) == [], "there is room by now"
    assert "the last creation of a pod was refused" in entry["notes"][0]


REFUSALS: dict[str, tuple[str, str]] = {
    "must specify": ("failed quota: p9: must specify limits.cpu for: main", "rule-must-specify"),
    "no quota": ("insufficient quota to match these scopes: [x]", "rule-priority-class"),
    "webhook": ('failed calling webhook "shape.deferredquota.io": refused', "webhook-down"),
    "others": ("pods is forbidden: violates PodSecurity", "not-ours"),
}


@pytest.mark.parametrize(("message", "cause"), REFUSALS.values(), ids=REFUSALS.keys())
def test_other_refusals_are_reported_in_their_words(
    message: str, cause: str, cluster: FakeCluster
) -> None:
    load(cluster, a_workload("StatefulSet", "db"))
    load(cluster, an_event("StatefulSet", "db", "uid-db", "FailedCreate", message))
    entry = why(cluster, "db", "statefulset")
    assert causes(entry) == [cause]
    assert message in entry["text"]


MIXTURES: dict[str, tuple[str, ...]] = {
    "must specify": ("rule-must-specify", "quota"),
    "no quota": ("rule-priority-class", "quota"),
    "webhook": ("quota", "webhook-down"),
    "others": ("quota", "not-ours"),
}


@pytest.mark.parametrize(("refusal", "expected"), MIXTURES.items(), ids=MIXTURES.keys())
def test_a_full_quota_hides_no_other_refusal(
    refusal: str, expected: tuple[str, ...], cluster: FakeCluster
) -> None:
    message = REFUSALS[refusal][0]
    load(cluster, a_workload("StatefulSet", "db"))
    load(cluster, an_event("StatefulSet", "db", "uid-db", "FailedCreate", message))
    full = {"hard": {"pods": "9"}, "used": {"pods": "9"}}
    edit(cluster, RESOURCE_QUOTAS, "p1", lambda raw: raw.update(status=full), namespace=NAMESPACE)
    entry = why(cluster, "db", "statefulset")
    assert causes(entry) == list(expected)
    assert any(message in one["text"] for one in entry["causes"])


def test_a_limit_range_may_add_what_a_template_does_not_say(cluster: FakeCluster) -> None:
    quota = a_quota("m", uid="uid-m", hard={"limits.cpu": "1"}, used={"limits.cpu": "0"})
    quota["metadata"]["annotations"] = {"deferredquota.io/exclude": "true"}  # type: ignore[index]
    load(cluster, quota, a_workload("ReplicaSet", "web"))
    count(cluster)
    assert causes(why(cluster, "web", "replicaset")) == ["rule-must-specify"]
    load(cluster, {
        "apiVersion": LIMIT_RANGES.api_version, "kind": LIMIT_RANGES.kind,
        "metadata": {"name": "defaults", "namespace": NAMESPACE},
    })  # fmt: skip
    assert causes(why(cluster, "web", "replicaset")) == []


def test_suspended_jobs(cluster: FakeCluster) -> None:
    cron: dict[str, Any] = {
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": NAMESPACE, "uid": "uid-nightly"},
        "spec": {"suspend": True, "jobTemplate": {"spec": {"template": {"spec": {
            "containers": [a_container()]}}}}},
    }  # fmt: skip
    load(cluster, a_job(), cron, a_job(name="done", suspend=False, uid="uid-done", status={
        "conditions": [{"type": "Complete", "status": "True"}]}))  # fmt: skip
    for kind, name in (("job", "train"), ("cronjob", "nightly")):
        entry = why(cluster, name, kind)
        assert causes(entry) == ["job-suspended"]
        assert actions(entry) == ["resume-job"]
    cron["metadata"] = {"name": "hourly", "namespace": NAMESPACE, "uid": "uid-hourly"}
    cron["spec"] = {**cron["spec"], "suspend": False}
    load(cluster, cron)
    assert why(cluster, "hourly", "cronjob")["text"].endswith(": no Job of it is active")
    done = why(cluster, "done", "job")
    assert (causes(done), done["text"]) == ([], "Job team-a/done: it has ended")


def test_workloads_that_run_or_want_nothing(cluster: FakeCluster) -> None:
    load(cluster, a_workload("StatefulSet", "db", replicas=0))
    load(cluster, a_workload("DaemonSet", "agent", status={"desiredNumberScheduled": 1}))
    running = a_pod(
        name="agent-1", uid="uid-agent-1", node="node-1", requests={"cpu": "1"},
        status={"phase": "Running"},
    )  # fmt: skip
    wait_for_quota(cluster, owned_by("DaemonSet", "agent", running))
    assert why(cluster, "db", "statefulset")["text"].endswith(": it asks for no pods")
    assert causes(why(cluster, "agent", "daemonset")) == ["already-running"]


# -- the command ---------------------------------------------------------------------------


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *args])


IN_SNAPSHOTS = (
    NAMESPACES,
    RESOURCE_QUOTAS,
    PODS,
    NODES,
    LEASES,
    QUOTA_LEDGERS,
    CLUSTER_DEFERRED_QUOTAS,
)
OF_KUBECTL = {"apiVersion": "v1", "kind": "List"}
OF_OURS = {
    "apiVersion": "deferredquota.io/v1alpha1",
    "kind": "SnapshotList",
    "format": 1,
    "taken": "2030-01-02T03:04:05Z",
}


def a_snapshot(cluster: FakeCluster, tmp_path: Path, *, without: Collection[Kind] = ()) -> Path:
    api = FakeClient(cluster)
    kinds = [kind for kind in IN_SNAPSHOTS if kind not in without]
    items = [one for kind in kinds for one in api.list(kind).items]
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({**OF_KUBECTL, "items": items}))
    return path


@pytest.fixture
def snapshot(cluster: FakeCluster, tmp_path: Path) -> Path:
    """What kubectl would print of a namespace where `x` waits."""
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))
    api = FakeClient(cluster)
    lead = {"spec": {"renewTime": utc_now()}}
    api.patch(LEASES, LEADER_LEASE, lead, namespace=DEFAULT_NAMESPACE)
    load(cluster, a_cluster_quota(selector={"matchLabels": {"no": "namespace"}}))
    return a_snapshot(cluster, tmp_path)


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_snapshot_is_explained(snapshot: Path, output: str) -> None:
    ran = run("pod", "x", "-n", NAMESPACE, "--snapshot", str(snapshot), "-o", output)
    assert ran.exit_code == ExitCode.OK, ran.output
    entry = json.loads(ran.stdout) if output == "json" else yaml.safe_load(ran.stdout)
    assert list(schema_errors(entry, SCHEMA)) == []
    assert causes(entry) == ["quota"]
    assert entry["unknown"] == ["a snapshot does not show whether the webhook answers"]


@pytest.mark.parametrize("is_list_of_json", [True, False])
def test_pods_that_a_file_gives_no_uid_are_told_apart(
    snapshot: Path, is_list_of_json: bool
) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    for pod in (one for one in items if one["kind"] == "Pod"):
        del pod["metadata"]["uid"]
    write = json.dumps if is_list_of_json else yaml.safe_dump
    snapshot.write_text(write({**OF_KUBECTL, "items": items}), encoding="utf-8")
    entry = explained(snapshot)
    assert entry["text"].startswith("Pod team-a/x: exceeded quota: ")


@pytest.mark.parametrize("has_labels", [True, False])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("ResourceQuota", "quotas"),
        ("ClusterDeferredQuota", "cluster quotas"),
        ("QuotaLedger", "quota ledgers"),
    ],
)
def test_limits_that_are_not_in_a_file_of_kubectl_are_not_known(
    snapshot: Path, kind: str, name: str, has_labels: bool
) -> None:
    without(snapshot, kind, *(() if has_labels else ("Namespace",)))
    noted = [one for one in explained(snapshot)["unknown"] if "has none" in one]
    missing = [*([] if has_labels else ["namespaces"]), name]
    counted = has_labels and kind == "QuotaLedger"
    assert noted == (
        [COUNTED_FROM_PODS] if counted else [f"{one}: the snapshot has none" for one in missing]
    )


def without(snapshot: Path, *kinds: str, head: Mapping[str, object] = OF_KUBECTL) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    kept = [one for one in items if one["kind"] not in kinds]
    snapshot.write_text(json.dumps({**head, "items": kept}), encoding="utf-8")


def with_items(snapshot: Path, *more: object, head: Mapping[str, object]) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    snapshot.write_text(json.dumps({**head, "items": [*items, *more]}), encoding="utf-8")


def explained(snapshot: Path, kind: str = "pod", name: str = "x", *given: str) -> Any:
    ran = run(kind, name, "-n", NAMESPACE, "--snapshot", str(snapshot), "-o", "json", *given)
    assert ran.exit_code == ExitCode.OK, ran.output
    return json.loads(ran.stdout)


def test_usage_is_counted_from_the_pods_of_a_snapshot_without_ledgers(snapshot: Path) -> None:
    before = explained(snapshot)
    without(snapshot, "QuotaLedger")
    entry = explained(snapshot)
    assert entry["causes"] == before["causes"]
    assert COUNTED_FROM_PODS in entry["unknown"]


def test_a_ledger_that_is_missing_in_a_snapshot_of_ours_is_a_cause_with_the_numbers(
    snapshot: Path,
) -> None:
    without(snapshot, "QuotaLedger", head=OF_OURS)
    assert {"quota", "ledger-not-ready"} <= set(causes(explained(snapshot)))


def test_a_shared_quota_is_counted_from_the_pods_of_all_its_namespaces(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    other = a_pod(
        a_container(requests={"cpu": "5"}), name="far", namespace="team-b", uid="far", node="node-1"
    )
    labels = {"deferredquota.io/mode": "deferred"}
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-b", "labels": labels},
    }
    load(cluster, space, other, a_cluster_quota(hard={"requests.cpu": "8"}, selector={}))
    load(cluster, a_gated_pod("x", cpu="3"))
    found = explained(a_snapshot(cluster, tmp_path, without=[QUOTA_LEDGERS]))
    silent, cause = found["causes"][:2]
    assert (silent["cause"], cause["cause"]) == ("ledger-not-ready", "cluster-quota")
    assert cause["resources"][0]["used"] == "6", "one here, five in team-b"


@pytest.mark.parametrize("mode", ["Off", "Plan", "Act"])
def test_a_plan_that_nobody_carries_out_is_named_by_the_command_that_shows_it(
    mode: str, cluster: FakeCluster, tmp_path: Path
) -> None:
    pool = {
        **a_cluster_quota(hard={"requests.cpu": "1"}, selector={}),
        "metadata": {"name": "epool.default"},
    }
    load(cluster, pool, a_gated_pod("x", cpu="1"))
    snapshot = a_snapshot(cluster, tmp_path, without=[QUOTA_LEDGERS])
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
        f"elastic: {{reclaim: {{mode: {mode!r}}}}}\n"
    )
    entry = explained(snapshot, "pod", "x", "--config", str(config))
    assert "cluster-quota" in causes(entry)
    plan = "deferred-quota elastic plan x -n team-a"
    assert any(note.endswith(plan) for note in entry["notes"]) is (mode == "Plan")


def test_a_file_without_pods_does_not_say_that_nothing_is_used(snapshot: Path) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    deployment = a_workload("Deployment", "web", replicas=1)
    snapshot.write_text(yaml.safe_dump({"items": [*items, deployment]}))
    without(snapshot, "QuotaLedger", "Pod")
    assert COUNTED_FROM_PODS not in explained(snapshot, "deployment", "web")["unknown"]


@pytest.mark.parametrize("lacks", ["Pod", "ReplicaSet"])
def test_pods_that_a_file_does_not_hold_are_not_said_to_be_missing(
    snapshot: Path, lacks: str
) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    workloads = [a_workload(kind, "web", replicas=1) for kind in ("Deployment", "ReplicaSet")]
    snapshot.write_text(yaml.safe_dump({"items": [*items, *workloads]}))
    without(snapshot, lacks)
    entry = explained(snapshot, "deployment", "web")
    assert entry["text"] == "Deployment team-a/web: its pods are not known"
    assert f"{lacks.lower()}s: the snapshot has none" in entry["unknown"]


def test_pods_that_a_snapshot_could_not_take_are_not_said_to_be_missing(snapshot: Path) -> None:
    items = yaml.safe_load(snapshot.read_text())["items"]
    snapshot.write_text(
        yaml.safe_dump({"items": [*items, a_workload("StatefulSet", "db", replicas=1)]})
    )
    without(snapshot, "Pod", head={**OF_OURS, "unread": ["Pod.v1"]})
    entry = explained(snapshot, "statefulset", "db")
    assert entry["text"] == "StatefulSet team-a/db: its pods are not known"
    assert f"the pods of namespace {NAMESPACE}: not in the snapshot" in entry["unknown"]


def test_what_a_file_has_nothing_of_is_not_said_not_to_exist(snapshot: Path) -> None:
    without(snapshot, "Pod")
    ran = run("pod", "x", "-n", NAMESPACE, "--snapshot", str(snapshot))
    assert ran.exit_code == ExitCode.FINDINGS
    assert "Pod team-a/x: the snapshot has no pods: take them into it" in ran.output


def test_a_pod_that_does_not_go_is_counted_no_longer_than_it_is_charged(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    since = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    takes = [a_container(requests={"cpu": "3"})]
    load(cluster, a_pod(*takes, name="stuck", uid="stuck", node="node-1", metadata=since))
    load(cluster, a_gated_pod("x", cpu="3"))
    entry = explained(a_snapshot(cluster, tmp_path, without=[QUOTA_LEDGERS]))
    assert "quota" not in causes(entry)


def test_a_pod_fits_only_as_far_as_a_file_of_kubectl_holds_what_limits_it(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    load(cluster, a_gated_pod("small", cpu="1"))
    lacking = [LEASES, QUOTA_LEDGERS, CLUSTER_DEFERRED_QUOTAS]
    path = a_snapshot(cluster, tmp_path, without=lacking)
    assert explained(path, name="small")["text"] == (
        "Pod team-a/small: it fits (the snapshot holds no cluster quotas); the controller releases"
        " it at its next look"
    )


@pytest.mark.parametrize(("has_leases", "as_of"), [(False, "2030-01-02T03:04:05Z"), (True, None)])
def test_a_snapshot_without_leases_is_as_of_when_it_was_taken(
    snapshot: Path, has_leases: bool, as_of: str | None
) -> None:
    without(snapshot, *([] if has_leases else ["Lease"]), head=OF_OURS)
    found = explained(snapshot)["asOf"]
    assert found == as_of if as_of else found < "2030"


def a_lease_of(namespace: str) -> dict[str, object]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "elsewhere", "namespace": namespace},
        "spec": {"renewTime": "2029-12-31T00:00:00.000000Z"},
    }


@pytest.mark.parametrize("head", [OF_KUBECTL, OF_OURS], ids=["kubectl", "ours"])
@pytest.mark.parametrize(
    ("namespace", "counts"),
    [
        (NAMESPACE, False),
        ("kube-node-lease", True),
        ("kube-system", True),
        (DEFAULT_NAMESPACE, True),
    ],
)
def test_a_lease_that_a_tenant_can_write_does_not_tell_the_time(
    snapshot: Path, head: Mapping[str, object], namespace: str, counts: bool
) -> None:
    with_items(snapshot, a_lease_of(namespace), head=head)
    assert (explained(snapshot)["asOf"] == "2029-12-31T00:00:00Z") is counts


def test_what_is_later_than_the_snapshot_does_not_tell_its_time(snapshot: Path) -> None:
    later = {"creationTimestamp": "2099-01-01T00:00:00Z"}
    pod = a_pod(name="y", namespace=NAMESPACE, uid="y", metadata=later)
    with_items(snapshot, a_lease_of("kube-system"), pod, head=OF_OURS)

    def as_of(taken: str) -> str:
        without(snapshot, head={**OF_OURS, "taken": taken})
        return str(explained(snapshot)["asOf"])

    assert as_of("2029-12-30T23:59:00Z") == "2029-12-31T00:00:00Z"
    assert as_of("2029-12-30T23:58:59Z") < "2029", "the Lease of the controller is older"
    assert as_of("2020-01-01T00:00:00Z") == "2020-01-01T00:00:00Z", "all are later"


@pytest.mark.parametrize(
    "words",
    [("pod", "x"), ("pods", "x"), ("po", "x"), ("Pod/x",), ("pods/x",)],
)
def test_kinds_are_written_as_kubectl_takes_them(snapshot: Path, words: tuple[str, ...]) -> None:
    done = run(*words, "-n", NAMESPACE, "--snapshot", str(snapshot))
    assert done.stdout.startswith("Pod team-a/x: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("pod",), "Missing argument 'NAME'"),
        (("pod/x", "web-2"), "pod/x names the object already"),
        (("svc", "x"), "'svc' is not one of 'pod', 'job'"),
        (("svc/x",), "'svc' is not one of 'pod', 'job'"),
        (("pod/",), "Missing argument 'NAME'"),
    ],
)
def test_what_names_no_object_is_wrong_usage(words: tuple[str, ...], message: str) -> None:
    done = run(*words)
    assert (done.exit_code, message in done.stderr) == (ExitCode.BAD_INPUT, True)


def test_the_text_names_numbers_and_actions(snapshot: Path) -> None:
    ran = run("pod", "x", "-n", NAMESPACE, "--snapshot", str(snapshot))
    assert ran.stdout.startswith("Pod team-a/x: exceeded quota: p1, requested: requests.cpu=4")
    for line in (
        "p1     requests.cpu          4     1         0     4        1",
        "team-a     web-1  starting  requests.cpu=1",
        "1 of 1 nodes fit; best: node-1",
        "  free-quota: free 1 requests.cpu of quota p1",
    ):
        assert line in ran.stdout


def test_a_name_that_is_not_there_ends_with_1(snapshot: Path) -> None:
    ran = run("pod", "nope", "-n", NAMESPACE, "--snapshot", str(snapshot))
    assert ran.exit_code == ExitCode.FINDINGS
    assert "Pod team-a/nope does not exist" in ran.stderr


def test_wrong_usage_ends_with_2(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert run("pods", "x").exit_code == ExitCode.BAD_INPUT
    watched = run("pod", "x", "--watch", "--snapshot", str(snapshot))
    assert watched.exit_code == ExitCode.BAD_INPUT
    torn = tmp_path / "torn.yaml"
    torn.write_text(snapshot.read_text()[:700])
    assert run("pod", "x", "--snapshot", str(torn)).exit_code == ExitCode.BAD_INPUT


def test_control_characters_are_escaped(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = a_gated_pod("x")
    pod["status"] = {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "\x1b[31mred\nline",
            }
        ]
    }
    wait_for_quota(cluster, pod)
    print_explanation(explain(client(cluster), Target(PODS, NAMESPACE, "x"), options()), "text")
    assert "\x1b[31mred" not in capsys.readouterr().out


def test_watching_ends_when_it_runs_and_tells_a_new_pod_of_the_name(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))

    def turns() -> Iterator[None]:
        remove(cluster, PODS, "web-1", namespace=NAMESPACE)
        count(cluster)
        yield
        remove(cluster, PODS, "x", namespace=NAMESPACE)
        load(cluster, a_pod(name="x", uid="uid-2", node="node-1", status={"phase": "Running"}))
        yield

    steps = turns()
    given = ExplainOptions(now=lambda: NOW, sleep=lambda _: next(steps))
    target = Target(PODS, NAMESPACE, "x")
    assert watch(client(cluster), target, given, "text") == ExitCode.OK
    out = capsys.readouterr().out
    order = [
        out.index(words)
        for words in ("exceeded quota", "it fits", "created again", "has node node-1 and runs")
    ]
    assert order == sorted(order)


def test_watching_ends_when_it_is_gone(cluster: FakeCluster) -> None:
    wait_for_quota(cluster, a_gated_pod("x", cpu="4"))

    def delete(_: float) -> None:
        remove(cluster, PODS, "x", namespace=NAMESPACE)

    given = ExplainOptions(now=lambda: NOW, sleep=delete)
    with pytest.raises(CommandError, match="does not exist"):
        watch(client(cluster), Target(PODS, NAMESPACE, "x"), given, "json")


def test_the_schema_names_every_word() -> None:
    def words(*path: str) -> set[str | None]:
        node = SCHEMA["properties"]
        for name in path:
            node = node[name]
        return set(node["enum"])

    assert words("cause") == {*map(str, CauseKind), None}
    assert words("causes", "items", "properties", "cause") == {*map(str, CauseKind)}
    assert words("unblock", "items", "properties", "action") == {*map(str, Action)}
    assert words("who", "items", "properties", "state") == {*map(str, ConsumerState)}


def test_the_page_names_every_cause_action_and_state() -> None:
    page = (Path(webhook.__file__).parents[1] / "docs/explain.md").read_text(encoding="utf-8")
    words = [*map(str, CauseKind), *map(str, Action), *map(str, ConsumerState)]
    assert [one for one in words if f"`{one}`" not in page] == []
