"""`deferred-quota elastic`: of snapshots, with what may not be read, and with bad input."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_container
from tests.controllers.elastic.objects import a_pod_group
from tests.counting import calls_of
from tests.quota.nodes.objects import node
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.cli import ExitCode, cli
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    ELASTIC_QUOTAS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    ForbiddenError,
)
from webhook.operations.elastic import planning
from webhook.operations.elastic.planning import plan_for
from webhook.operations.elastic.reading import read_elastic
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.operations.names import CONFIG_KEY
from webhook.operations.snapshots.taking import take_snapshot
from webhook.state.well_known import CONFIG_MAP, DEFAULT_NAMESPACE

GPU = "nvidia.com/gpu-10gb"
MEMORY = "nos.nebuly.com/gpu-memory"
API = "nos.nebuly.com/v1alpha1"
START = datetime(2026, 1, 1, tzinfo=UTC)


def quota(
    name: str, least: Mapping[str, object] | None = None, *, pool: str = "", **spec: object
) -> dict[str, object]:
    labels = {"deferredquota.io/pool": pool} if pool else {}
    kind = "CompositeElasticQuota" if "namespaces" in spec else "ElasticQuota"
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"namespace": name, "name": "quota", "labels": labels},
        "spec": {**({} if least is None else {"min": least}), **spec},
    }


def namespace(name: str, mode: str = "deferred") -> dict[str, object]:
    labels = {"deferredquota.io/mode": mode} if mode else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def pod(
    team: str,
    name: str,
    slices: int = 1,
    *,
    at: int = 0,
    on: str = "n1",
    metadata: Mapping[str, object] | None = None,
    **spec: object,
) -> dict[str, object]:
    """Return a pod of slices of 10 GB, `at` seconds old."""
    spread = {"nodeName": on, **spec} if on else spec
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": team,
            "name": name,
            "uid": f"{team}-{name}",
            "creationTimestamp": (START + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **(metadata or {}),
        },
        "spec": {"containers": [a_container(requests={GPU: str(slices)})], **spread},
    }


def golden() -> list[dict[str, object]]:
    """Three quotas of 40, 10 and 30 GB; the first two use 40 each, `new` waits in the first."""
    teams = {"a": 40, "b": 10, "c": 30}
    made = [namespace(name) for name in teams]
    made += [quota(name, {MEMORY: least}) for name, least in teams.items()]
    for name in ("a", "b"):
        made += [pod(name, f"p{index}", at=index) for index in range(4)]
    return [*made, pod("a", "new", at=60, on="")]


def run(tmp_path: Path, objects: Sequence[object], *args: str) -> Result:
    path = tmp_path / "snapshot.yaml"
    path.write_text(yaml.safe_dump_all(list(objects)), encoding="utf-8")
    return CliRunner().invoke(cli, ["elastic", *args, "--snapshot", str(path)])


def entries(tmp_path: Path, objects: Sequence[object], *args: str) -> dict[str, Any]:
    """Return the quotas by namespace."""
    done = run(tmp_path, objects, "-o", "json", *args)
    assert done.exit_code == ExitCode.OK, done.output
    return {one["namespace"]: one for one in json.loads(done.stdout)}


def planned(
    tmp_path: Path, objects: Sequence[object], name: str = "new", *args: str
) -> dict[str, Any]:
    done = run(tmp_path, objects, "plan", name, "-n", "a", "-o", "json", *args)
    entry: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (ExitCode.OK if entry["possible"] else ExitCode.FINDINGS)
    return entry


def test_the_figures_of_every_quota_are_shown(tmp_path: Path) -> None:
    found = entries(tmp_path, golden())
    assert found["b"] == {
        "kind": "ElasticQuota",
        "namespace": "b",
        "name": "quota",
        "pool": "default",
        "min": {MEMORY: "10"},
        "max": {},
        "used": {MEMORY: "40"},
        "borrowed": {MEMORY: "30"},
        "lent": {MEMORY: "0"},
        "guaranteed": {MEMORY: "3"},
        "headroom": {MEMORY: "0"},
    }
    assert (found["a"]["guaranteed"], found["c"]["lent"]) == ({MEMORY: "15"}, {MEMORY: "30"})


def test_the_table_has_a_row_for_each_resource(tmp_path: Path) -> None:
    objects = [namespace("a"), quota("a", {MEMORY: 40, "memory": "4Gi"}, max={"cpu": 2})]
    lines = run(tmp_path, objects).stdout.splitlines()
    assert lines[0].split()[:4] == ["POOL", "QUOTA", "NAMESPACE", "RESOURCE"]
    rows = {line.split()[3]: line.split()[4:] for line in lines[1:]}
    assert rows["memory"] == ["4Gi", "-", "0", "0", "0", "4Gi", "4Gi"]
    assert rows["cpu"] == ["-", "2", "0", "-", "-", "-", "2"]
    assert run(tmp_path, [namespace("a")]).stdout == "no elastic quotas\n"


def test_of_what_no_bind_is_charged_for_only_min_and_max_are_shown(tmp_path: Path) -> None:
    objects = [namespace("a"), quota("a", {"pods": 1, "cpu": 2}, max={"hugepages-2Mi": "4Mi"})]
    lines = run(tmp_path, [*objects, pod("a", "p0")]).stdout.splitlines()
    rows = {line.split()[3]: line.split()[4:] for line in lines[1:]}
    assert rows["pods"] == ["1", *"------"]
    assert rows["hugepages-2Mi"] == ["-", "4Mi", *"-----"]
    assert rows["cpu"][0] == "2"


def test_headroom_is_what_can_be_taken_at_once(tmp_path: Path) -> None:
    objects = [
        namespace("a"),
        namespace("b"),
        quota("a", {MEMORY: 40}, lendable={MEMORY: 10}),
        quota("b", {MEMORY: 10}, max={MEMORY: 15}),
        pod("b", "p0"),
    ]
    found = entries(tmp_path, objects)
    assert found["a"]["headroom"] == {MEMORY: "40"}
    assert found["b"]["headroom"] == {MEMORY: "5"}


def test_a_composite_is_one_quota_of_its_namespaces(tmp_path: Path) -> None:
    objects = [
        *(namespace(name) for name in ("x", "w", "z", "system")),
        quota("system", {MEMORY: 10}, namespaces=["x", "w"]),
        quota("z", {MEMORY: 10}),
        pod("x", "p0"),
        pod("w", "p0"),
    ]
    found = entries(tmp_path, objects)
    assert found["system"]["used"] == {MEMORY: "20"}
    assert found["system"]["borrowed"] == {MEMORY: "10"}
    assert found["z"]["lent"] == {MEMORY: "10"}


def test_quotas_lend_within_their_pool_only(tmp_path: Path) -> None:
    objects = [
        *(namespace(name) for name in "ab"),
        quota("a", {MEMORY: 10}, pool="one"),
        quota("b", {MEMORY: 10}, pool="two"),
        pod("b", "p0"),
        pod("a", "new", on=""),
        pod("a", "large", 2, on=""),
    ]
    assert planned(tmp_path, objects)["possible"] is True
    large = planned(tmp_path, objects, "large")
    assert "elastic pool one is used up, requested: nos.nebuly.com/gpu-memory=20" in large["reason"]
    assert {one["pool"] for one in entries(tmp_path, objects).values()} == {"one", "two"}


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        (
            [quota("a", {"cpu": 2}, max={"cpu": 1})],
            'spec.min[cpu]: Invalid value: "2": must be less than or equal to spec.max[cpu]',
        ),
        ([quota("a", {"cpu": -1})], "spec.min[cpu]: Invalid value"),
        ([quota("a", {"cpu": 1}, lendable={"cpu": 2})], "spec.lendable[cpu]: Invalid value"),
        ([quota("a", {"cpu": "1x"})], "ElasticQuota a/quota: spec.min"),
        ([quota("a", {}, namespaces=[])], "spec.namespaces: Required value"),
        ([quota("a", {}, namespaces=["x", "x"])], 'spec.namespaces: Duplicate value: "x"'),
        ([quota("a", {"gpus": 1})], "gpus: no pod asks for a resource of this name"),
        ([quota("a", {"pods": 1})], "pods: no bind is charged for it"),
        ([quota("a", {"cpu": 1}), namespace("b")], "namespace a does not exist"),
        (
            [quota("a", {"cpu": 1}), namespace("a", "")],
            "namespace a has not opted in and is not counted: deferred-quota enable a",
        ),
        (
            [quota("a", {}), quota("b", {}, namespaces=["a", "c"])],
            "ElasticQuota a/quota: namespace a has CompositeElasticQuota b/quota already",
        ),
        (
            [quota("a", {}), quota("b", {}, namespaces=["a", "c"])],
            "delete one of them, this one with kubectl delete -n a elasticquota quota",
        ),
        (
            [
                quota("a", {MEMORY: 1}),
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"namespace": "a", "name": "p"},
                    "spec": {
                        "nodeName": "n1",
                        "containers": [a_container(requests={"nvidia.com/mig-foo": "1"})],
                    },
                },
            ],
            "pod a/p: nvidia.com/mig-foo: names no amount of memory",
        ),
    ],
)
def test_what_is_wrong_is_named_and_the_rest_is_shown(
    tmp_path: Path, objects: list[object], words: str
) -> None:
    done = run(tmp_path, objects)
    assert done.exit_code == ExitCode.OK
    assert words in done.stderr


def test_a_plan_names_its_victims_and_what_each_frees(tmp_path: Path) -> None:
    assert planned(tmp_path, golden()) == {
        "possible": True,
        "claim": "fair",
        "short": [MEMORY],
        "victims": [
            {
                "namespace": "b",
                "name": "p3",
                "quota": "eq/quota",
                "node": "n1",
                "frees": {MEMORY: "10"},
            }
        ],
        "reason": f"elastic pool default is used up, requested: {MEMORY}=10, used: {MEMORY}=80,"
        f" size: {MEMORY}=80; borrowed: eq/b/quota {MEMORY}=30",
    }
    text = run(tmp_path, golden(), "plan", "new", "-n", "a").stdout
    assert text.startswith("possible: yes, claim: fair\n")
    assert "b          p3   eq/quota  n1" in text


def test_a_plan_that_is_not_possible_exits_with_1(tmp_path: Path) -> None:
    objects = [*golden(), pod("a", "huge", 2, on="")]
    entry = planned(tmp_path, objects, "huge")
    assert (entry["possible"], entry["claim"], entry["victims"]) == (False, "none", [])
    assert "its quota would be above min and guaranteed" in entry["reason"]


def test_a_plan_for_a_manifest(tmp_path: Path) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "c"},
        "spec": {"template": {"spec": {"containers": [a_container(limits={GPU: "2"})]}}},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job), encoding="utf-8")
    done = run(tmp_path, golden(), "plan", "-f", str(path), "-o", "json")
    entry = json.loads(done.stdout)
    assert (entry["claim"], [one["name"] for one in entry["victims"]]) == ("own", ["p3", "p2"])


def test_the_priority_class_decides_which_pod_goes_within_a_quota(tmp_path: Path) -> None:
    high = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 100,
    }
    never = {**high, "metadata": {"name": "never"}, "preemptionPolicy": "Never"}
    objects = [
        namespace("a"),
        quota("a", {MEMORY: 10}, max={MEMORY: 10}),
        pod("a", "low"),
        high,
        never,
    ]
    for name, is_possible in (("high", True), ("never", False)):
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "new", "namespace": "a"},
            "spec": {"priorityClassName": name, "containers": [a_container(requests={GPU: "1"})]},
        }
        path = tmp_path / "pod.yaml"
        path.write_text(yaml.safe_dump(manifest), encoding="utf-8")
        done = run(tmp_path, objects, "plan", "-f", str(path), "-o", "json")
        entry = json.loads(done.stdout)
        assert entry["possible"] is is_possible
        assert "exceeded elastic quota: eq/quota, requested:" in entry["reason"]


def test_pods_that_never_go_and_pods_that_are_ending(tmp_path: Path) -> None:
    def objects(**of_last: Any) -> list[dict[str, object]]:
        made = [one for one in golden() if (one["kind"], _name(one)) != ("Pod", ("b", "p3"))]
        return [*made, pod("b", "p3", at=3, **of_last)]

    def victims(**of_last: Any) -> list[str]:
        return [one["name"] for one in planned(tmp_path, objects(**of_last))["victims"]]

    assert victims() == ["p3"]
    assert victims(priority=2_000_000_000) == ["p2"]
    assert victims(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}) == ["p2"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}
    assert victims(metadata={"ownerReferences": [owner]}) == ["p2"]
    deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    entry = planned(tmp_path, objects(metadata=deleted))
    assert (entry["possible"], entry["victims"]) == (True, [])
    long_ago = {**deleted, "deletionTimestamp": "2025-12-31T00:00:00Z"}
    assert victims(metadata=long_ago) == []
    held = [*objects(metadata=long_ago), configured("terminatingPods: Hold")]
    assert [one["name"] for one in planned(tmp_path, held)["victims"]] == ["p2"]


def configured(text: str) -> dict[str, object]:
    """Return the configuration of an installation."""
    head = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": DEFAULT_NAMESPACE},
        "data": {CONFIG_KEY: head + text},
    }


def _name(raw: Any) -> tuple[str, str]:
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def keeping(team: str) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"namespace": team, "name": "keep"},
        "spec": {"selector": {"matchLabels": {"keep": "yes"}}},
        "status": {"disruptionsAllowed": 0},
    }


def test_a_budget_puts_its_pods_last(tmp_path: Path) -> None:
    budget = keeping("b")
    made = [one for one in golden() if _name(one) != ("b", "p3")]
    objects = [*made, pod("b", "p3", at=3, metadata={"labels": {"keep": "yes"}}), budget]
    assert [one["name"] for one in planned(tmp_path, objects)["victims"]] == ["p2"]
    budget["status"] = {"disruptionsAllowed": 1}
    assert [one["name"] for one in planned(tmp_path, objects)["victims"]] == ["p3"]


def grouped() -> list[dict[str, object]]:
    """Return the three quotas, with the two newest pods of the second in a PodGroup."""
    names = {("b", "p2"), ("b", "p3")}
    group = {"podGroupName": "train"}
    return [
        pod("b", _name(one)[1], at=int(_name(one)[1][1:]), schedulingGroup=group)
        if _name(one) in names
        else one
        for one in golden()
    ]


MODES = {
    "one by one": (a_pod_group("Pod", namespace="b"), ["p3"]),
    "together": (a_pod_group("PodGroup", namespace="b"), ["p2", "p3"]),
    "together, in a later version": (
        a_pod_group({"all": {}}, namespace="b", version="v1beta1"),
        ["p2", "p3"],
    ),
    "together, in a version between": (
        a_pod_group({"all": {}}, namespace="b", version="v1alpha3"),
        ["p2", "p3"],
    ),
}


@pytest.mark.parametrize(("group", "expected"), MODES.values(), ids=MODES)
def test_pods_of_a_pod_group_go_as_it_says(
    tmp_path: Path, group: dict[str, object], expected: list[str]
) -> None:
    assert [one["name"] for one in planned(tmp_path, grouped())["victims"]] == ["p3"]
    found = planned(tmp_path, [*grouped(), group])
    assert sorted(one["name"] for one in found["victims"]) == expected


def test_a_snapshot_is_planned_for_like_its_cluster(tmp_path: Path) -> None:
    cluster = FakeCluster()
    kinds = {"Pod": PODS, "PodGroup": POD_GROUPS[-1], "ElasticQuota": ELASTIC_QUOTAS}
    objects = [*grouped(), a_pod_group("PodGroup", namespace="b")]
    cluster.load([(kinds.get(str(one["kind"]), NAMESPACES), one) for one in objects])
    session = Session(ReactiveClient(cluster), ExplainOptions())
    live = plan_for(session, read_elastic(session, 32), pod("a", "new", on=""))
    taken = take_snapshot(session)
    found = planned(tmp_path, taken.items)
    assert [one.name for one in live.plan.victims] == [one["name"] for one in found["victims"]]
    assert len(found["victims"]) == 2


def test_pods_that_were_just_bound_are_protected_from_fair_claims(tmp_path: Path) -> None:
    made = [one for one in golden() if one["kind"] != "ElasticQuota" or _name(one)[0] != "b"]
    young = quota("b", {MEMORY: 10}, reclaim={"protectSeconds": 10**6})
    for one in made:
        if one["kind"] == "Pod" and _name(one)[0] == "b":
            bound = {"type": "PodScheduled", "lastTransitionTime": "2999-01-01T00:00:00Z"}
            one["status"] = {"phase": "Running", "conditions": [bound]}
    assert planned(tmp_path, [*made, young])["possible"] is False
    claim = run(tmp_path, [*made, young, pod("c", "new", on="")], "plan", "new", "-n", "c")
    assert claim.stdout.startswith("possible: yes, claim: own")


def test_a_snapshot_is_judged_as_of_its_own_time(tmp_path: Path) -> None:
    """In January the pods of team b were an hour old and protected for two."""
    made = [one for one in golden() if one["kind"] != "ElasticQuota" or _name(one)[0] != "b"]
    young = quota("b", {MEMORY: 10}, reclaim={"protectSeconds": 7200})
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "kube-node-lease", "name": "n1"},
        "spec": {"renewTime": "2026-01-01T01:00:00.000000Z"},
    }
    assert planned(tmp_path, [*made, young, lease])["possible"] is False
    later = {**lease, "spec": {"renewTime": "2026-01-01T03:00:00.000000Z"}}
    assert planned(tmp_path, [*made, young, later])["possible"] is True


def test_the_pod_has_a_node_after_the_plan(tmp_path: Path) -> None:
    def on_nodes(*nodes: tuple[str, str]) -> list[dict[str, object]]:
        made = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                **node(name, allocatable={GPU: room, "pods": "20"}),
            }
            for name, room in nodes
        ]
        return [*golden(), *made]

    full = planned(tmp_path, on_nodes(("n1", "8")))
    assert [one["name"] for one in full["victims"]] == ["p3"]
    small = planned(tmp_path, on_nodes(("n1", "7")))
    assert small["possible"] is False
    assert "no node has room" in small["reason"]


def test_what_no_node_names_may_be_devices_and_keeps_no_pod_from_a_node(tmp_path: Path) -> None:
    def with_pods(room: str) -> list[dict[str, object]]:
        return [*golden(), {"apiVersion": "v1", "kind": "Node", **node(allocatable={"pods": room})}]

    entry = planned(tmp_path, with_pods("8"))
    assert [one["name"] for one in entry["victims"]] == ["p3"]
    assert "no node has room" in planned(tmp_path, with_pods("7"))["reason"]


def promising(*pods: dict[str, object]) -> list[dict[str, object]]:
    """Return some pods without a node, and a pool with promises to them."""
    names = map(_name, pods)
    held = [{"uid": f"{ns}-{name}", "namespace": ns, "pod": name} for ns, name in names]
    pool: dict[str, object] = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "epool.default"},
        "spec": {"namespaceSelector": {}, "hard": {}},
        "status": {"promises": [{**one, "amounts": {}} for one in held]},
    }
    return [*pods, pool]


def test_what_is_promised_to_others_is_taken(tmp_path: Path) -> None:
    """As the controller counts it; it is never evicted."""
    held = pod("c", "held", on="")
    deleted: Any = {"deletionTimestamp": "2026-01-01T00:01:00Z", "deletionGracePeriodSeconds": 30}
    ending = pod("b", "p3", at=3, metadata=deleted)
    objects = [*(one for one in golden() if _name(one) != ("b", "p3")), ending]
    assert planned(tmp_path, [*objects, held])["victims"] == []
    found = planned(tmp_path, [*objects, *promising(held)])
    assert [one["name"] for one in found["victims"]] == ["p2"]
    own = next(one for one in objects if _name(one) == ("a", "new"))
    others = [one for one in objects if one is not own]
    assert planned(tmp_path, [*others, *promising(own)])["victims"] == []


@pytest.mark.parametrize("is_its_own", [False, True])
def test_a_place_that_is_promised_to_another_pod_is_no_room(
    tmp_path: Path, *, is_its_own: bool
) -> None:
    """But for a pod with a promise, which was planned for beside others."""
    place: dict[str, object] = node(allocatable={GPU: "8", "pods": "8"})
    place = {"apiVersion": "v1", "kind": "Node", **place}
    gone = {("b", "p2"), ("b", "p3"), ("a", "new")}
    objects = [place, *(one for one in golden() if _name(one) not in gone)]
    new, others = pod("a", "new", on=""), [pod("c", name, 0, on="") for name in ("h0", "h1")]
    assert planned(tmp_path, [*objects, new, *others])["possible"] is True
    made = promising(*others, new) if is_its_own else [new, *promising(*others)]
    found = planned(tmp_path, [*objects, *made])
    assert found["possible"] is is_its_own
    assert ("no node has room" in found["reason"]) is not is_its_own


def test_a_quota_has_its_share_of_the_promises_of_a_pool(tmp_path: Path) -> None:
    others = [pod("a", f"held-{number}", 0, on="") for number in range(128)]
    assert planned(tmp_path, [*golden(), *promising(*others[1:])])["victims"] != []
    found = planned(tmp_path, [*golden(), *promising(*others)])
    assert (found["possible"], found["victims"]) == (False, [])
    assert "its quota has half of what others leave of the 256 promises" in found["reason"]


def test_the_victim_on_the_node_that_the_pod_fits_is_preferred(tmp_path: Path) -> None:
    nodes = [
        {"apiVersion": "v1", "kind": "Node", **node("n1", allocatable={GPU: "7", "pods": "20"})},
        {"apiVersion": "v1", "kind": "Node", **node("n2", allocatable={GPU: "1", "pods": "20"})},
    ]
    made = [one for one in golden() if _name(one) not in {("b", "p2"), ("a", "new")}]
    objects = [*made, pod("b", "p2", at=2, on="n2"), *nodes]
    selected = pod("a", "new", at=60, on="", nodeSelector={"kubernetes.io/hostname": "n2"})
    entry = planned(tmp_path, [*objects, selected])
    assert [one["name"] for one in entry["victims"]] == ["p2"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("plan",), "give POD or -f FILE\n"),
        (("plan", "new", "-f", "x.yaml"), "give POD or -f FILE, not both"),
        (("--watch",), "--watch cannot be used with --snapshot"),
        (("plan", "gone", "-n", "a"), "pod a/gone does not exist"),
        (("plan", "p0", "-n", "a"), "pod a/p0 is on node n1 already"),
        (("plan", "-f", "/nowhere.yaml"), "/nowhere.yaml"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, args: tuple[str, ...], words: str) -> None:
    done = run(tmp_path, golden(), *args)
    assert done.exit_code in (ExitCode.BAD_INPUT, ExitCode.FINDINGS)
    assert words in done.stderr


def test_watch_prints_again_when_something_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    api = FakeClient(cluster)
    for kind, made in ((NAMESPACES, namespace("a")), (ELASTIC_QUOTAS, quota("a", {MEMORY: 10}))):
        api.create(kind, made)
    looks = itertools.count()

    def sleep(_seconds: float) -> None:
        look = next(looks)
        if look == 1:
            api.create(PODS, pod("a", "p0"))
        elif look == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("webhook.cli.elastic.live_cluster", lambda *_: nullcontext(api))
    monkeypatch.setattr("webhook.cli.elastic.sleep", sleep)
    done = CliRunner().invoke(cli, ["elastic", "--watch"])
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[6] for row in rows if row] == ["USED", "0", "USED", "10"]
    assert rows.count([]) == 1


def test_a_namespace_without_a_quota_has_no_plan(tmp_path: Path) -> None:
    done = run(tmp_path, [*golden(), pod("other", "new", on="")], "plan", "new", "-n", "other")
    assert done.exit_code == ExitCode.FINDINGS
    assert "namespace other has no elastic quota that counts" in done.stderr


def test_names_from_outside_are_escaped(tmp_path: Path) -> None:
    odd = quota("a", {"cpu": 1}, pool="p\x1b[31m")
    assert "\x1b" not in run(tmp_path, [odd]).output


@pytest.mark.parametrize("kind", ["ElasticQuota", "CompositeElasticQuota"])
def test_quotas_that_may_not_be_read_are_not_said_to_be_missing(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "mine.json"
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1}
    unread = [f"{kind}.{API}"]
    path.write_text(json.dumps({**head, "unread": unread, "items": []}), encoding="utf-8")
    done = CliRunner().invoke(cli, ["elastic", "--snapshot", str(path)])
    assert done.stdout == "no elastic quotas that may be read\n"
    assert "not in the snapshot" in done.stderr


def _session(*forbidden: Any) -> Session:
    cluster = FakeCluster()
    client = ReactiveClient(cluster)

    def refuse(call: Call, _proceed: Proceed) -> None:
        raise ForbiddenError(f"{call.kind.plural} is forbidden: no right")

    for kind in forbidden:
        client.on("list", kind, refuse)
    cluster.load([(ELASTIC_QUOTAS, quota("a", {MEMORY: 10}))])
    return Session(client, ExplainOptions())


def test_pod_groups_and_budgets_that_may_not_be_read_are_noted() -> None:
    session = _session(*POD_GROUPS, POD_DISRUPTION_BUDGETS)
    client = cast("ReactiveClient", session.api)
    borrowed = pod("b", "p0", schedulingGroup={"podGroupName": "train"})
    client.cluster.load([(ELASTIC_QUOTAS, quota("b", {MEMORY: 0})), (PODS, borrowed)])
    found = plan_for(session, read_elastic(session, 32), pod("a", "new", on=""))
    noted = [note for note in found.notes if "no right to read" in note]
    assert noted == ["poddisruptionbudgets: no right to read", "podgroups: no right to read"]


def test_budgets_and_pods_are_sorted_by_namespaces_once(monkeypatch: pytest.MonkeyPatch) -> None:
    session, teams = _session(), [f"b{number}" for number in range(20)]
    kept = {"labels": {"keep": "yes"}}
    for one in teams:
        objects = (
            (ELASTIC_QUOTAS, quota(one, {MEMORY: 0})),
            (POD_DISRUPTION_BUDGETS, keeping(one)),
            (PODS, pod(one, "p0", metadata=kept)),
        )
        cast("ReactiveClient", session.api).cluster.load(objects)
    elastic = read_elastic(session, 32)
    looks = calls_of(monkeypatch, planning, "object_namespace")
    found = plan_for(session, elastic, pod("a", "new", on="")).plan
    assert len(looks) <= 2 * len(teams) + 2
    assert found.obstacle == ""


@pytest.mark.parametrize("kind", [ELASTIC_QUOTAS, PODS, NODES])
def test_what_may_not_be_read_is_noted(kind: Any) -> None:
    session = _session(kind)
    elastic = read_elastic(session, 32)
    notes = elastic.notes
    if kind is NODES:
        notes = plan_for(session, elastic, pod("a", "new", on="")).notes
        assert "nodes are not known" in notes[-1]
    else:
        assert any("no right to read" in note for note in notes)
