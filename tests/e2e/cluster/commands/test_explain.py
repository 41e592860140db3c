"""`explain` on a real control plane, with the scheduler of Kubernetes: live, and of a snapshot.

Every scene is explained twice: by the cluster, and by what kubectl prints of it at that moment.
Both answers are valid by the schema, list the same causes, and agree with the pod's condition.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

import webhook
from tests.builders import a_container, an_expression
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.json_schema import schema_errors
from webhook.cli import cli
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.objects.names import QUOTA_RESERVED

SCHEMA: Final = json.loads(
    (Path(webhook.__file__).parent / "schemas/explain.schema.json").read_text(encoding="utf-8")
)
DOCS: Final = Path(webhook.__file__).parent.parent / "docs/explain.md"
OTHER: Final = "example.com/hold"
HOST: Final = "kubernetes.io/hostname"
GOLD: Final = "explain-gold"
NODES: Final = 3
NODE_CPU: Final = 8
KINDS: Final = (
    "ns,quota,pods,nodes,leases,events,limits,ql,cdq,deploy,rs,sts,ds,jobs,cronjobs,pvc,pv,sc,"
    "elasticquotas,compositeelasticquotas"
)
CAUSES: Final[Mapping[str, set[str]]] = {
    "QuotaExceeded": {"quota", "cluster-quota"},
    "Behind": {"behind"},
    "NeverFits": {"never-fits"},
    "NotCovered": {"rule-priority-class"},
    "MustSpecify": {"rule-must-specify"},
    "OtherGates": {"other-gate"},
    "OwnersFirst": {"owners-first"},
}
"""Reason of the condition → the causes of which one has to be listed."""
UNSEEN: Final = frozenset({"webhook-down"})
"""Causes that no snapshot of this product shows: its processes run outside of the cluster."""

ACTIONS: Final[Mapping[str, set[str]]] = {
    cause: set(re.findall(r"`([a-z-]+)`", row[2]))
    for row in re.findall(
        r"^\| (`[^|]*) \|([^|]*)\|([^|]*)\|$", DOCS.read_text("utf-8"), re.MULTILINE
    )
    for cause in re.findall(r"`([a-z-]+)`", row[0])
}
"""Cause → its actions, as the documentation has them."""

Entry = dict[str, Any]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a scene is set."""

    plane: ControlPlane
    product: Product
    team: Tenant
    directory: Path

    def crowd(self, *names: str, cpu: str = "1", **fields: Any) -> None:
        """Create pods for the real scheduler, one after the other."""
        for name in names:
            self.team.pod(name, cpu, schedulerName=REAL, **fields)

    def full(self, *others: str) -> None:
        """Let two running pods take a quota of 2 cpu, and other pods wait."""
        self.team.quota()
        self.crowd("a", "b")
        for name in ("a", "b"):
            eventually(lambda: self.team.node_of(name), "it runs")  # noqa: B023
        self.team.settles()
        self.crowd(*others)

    def apply(self, group: str, plural: str, body: Object) -> Object:
        prefix = f"/apis/{group}" if group else "/api/v1"
        path = f"{prefix}/namespaces/{self.team.namespace}/{plural}"
        answer = self.team.api.create(path, body)
        assert answer.ok, str(answer)
        return answer.body

    def unschedulable(self, name: str) -> None:
        """Wait until the real scheduler has tried a pod in vain."""
        becomes(lambda: self.team.condition(name)[1], "Unschedulable", "the scheduler's word", 60)

    def says(self, name: str, reason: str) -> None:
        """Wait until the condition of a pod has a reason."""
        becomes(lambda: self.team.condition(name, QUOTA_RESERVED)[1], reason, "the condition")


Wanted = tuple[str, str, list[str]]
"""Kind, name and causes, in their order."""


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("explain-plane")) as plane:
        plane.add_nodes(NODES, cpu=str(NODE_CPU), pods=40)
        gold = {"metadata": {"name": GOLD}, "value": 1000}
        assert Api(plane.rest).create("/apis/scheduling.k8s.io/v1/priorityclasses", gold).ok
        yield plane


@pytest.fixture(scope="module")
def own_product(
    own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    rule = [{"scopeName": "PriorityClass", "operator": "In", "values": [GOLD]}]
    with Product.start(
        own_plane,
        tmp_path_factory.mktemp("explain-product"),
        configuration={"requireQuotaForPriority": rule},
    ) as running:
        yield running


@pytest.fixture
def stage(own_plane: ControlPlane, own_product: Product, tmp_path: Path) -> Iterator[Stage]:
    """A namespace whose pods are gated; everything runs again when the test ends."""
    api = Api(own_plane.rest)
    name = f"explain-{next(_numbers)}"
    apply_namespace(api, name, gating="always")
    yield Stage(own_plane, own_product, Tenant(own_plane.rest, name), tmp_path)
    own_product.restore()
    leading = partial(own_product.controller.metric, "leader")
    becomes(leading, 1.0, "the controller leads", 90)
    if own_plane.scheduler.is_running:
        own_plane.scheduler.resume()
    else:
        own_plane.scheduler.start()
    release(api, name)


def release(api: Api, namespace: str) -> None:
    for pod in api.get(objects.pods(namespace)).body["items"]:
        if pod["metadata"].get("finalizers"):
            path = objects.pods(namespace, pod["metadata"]["name"])
            api.patch(path, {"metadata": {"finalizers": None}})
    api.delete(f"/api/v1/namespaces/{namespace}")
    api.call("DELETE", objects.pods(namespace), {"gracePeriodSeconds": 0})


def run(stage: Stage, kind: str, name: str, *args: str) -> Result:
    config = stage.product.directory / "config.yaml"
    given = [*args, "-n", stage.team.namespace, "--config", str(config), "-o", "json"]
    return CliRunner().invoke(cli, ["explain", kind, name, *given])


def explained(stage: Stage, kind: str, name: str, *args: str) -> Entry:
    where = args or ("--kubeconfig", str(stage.plane.kubeconfig()))
    ran = run(stage, kind, name, *where)
    assert ran.exit_code == 0, ran.output
    entry: Entry = json.loads(ran.stdout)
    assert list(schema_errors(entry, SCHEMA)) == []
    return entry


def snapshot(stage: Stage) -> tuple[str, str]:
    """Take a snapshot, every second one by kubectl, so that both ways of it are tried."""
    number = next(_numbers)
    path = stage.directory / f"cluster-{number}.json.gz"
    if number % 2:
        ours = ["snapshot", str(path), "--kubeconfig", str(stage.plane.kubeconfig())]
        assert CliRunner().invoke(cli, ours).exit_code == 0
    else:
        path.write_text(stage.plane.kubectl("get", KINDS, "-A", "-o", "yaml"), encoding="utf-8")
    return "--snapshot", str(path)


def causes(entry: Entry) -> list[str]:
    return [one["cause"] for one in entry["causes"]]


def both(stage: Stage, wanted: Wanted) -> tuple[Entry, Entry]:
    """Explain live and from a snapshot, until both are as wanted; the conditions agree."""
    kind, name, expected = wanted
    live: Entry = {}
    offline: Entry = {}

    def look(entry: Entry, *where: str) -> list[str]:
        entry.update(explained(stage, kind, name, *where))
        return causes(entry)

    becomes(lambda: look(live), expected, f"the causes of {kind} {name}")
    # the newest moment in a snapshot is some seconds old
    shown = [one for one in expected if one not in UNSEEN]
    becomes(lambda: look(offline, *snapshot(stage)), shown, f"those of {kind} {name} in a file")
    for entry in (live, offline):
        agrees(stage, entry)
        adds_up(entry)
    return live, offline


def agrees(stage: Stage, entry: Entry) -> None:
    """Check that the condition of the pod and the answer say the same."""
    pod = entry["name"] if entry["kind"] == "Pod" else entry.get("pod", "")
    _, reason, message = stage.team.condition(pod, QUOTA_RESERVED) if pod else ("", "", "")
    listed = set(causes(entry))
    if not all(one.is_running for one in stage.product.controllers) or reason not in CAUSES:
        return
    assert listed & CAUSES[reason], (reason, listed)
    texts = " ".join(one["text"] for one in entry["causes"])
    for sentence in re.findall(r"exceeded quota: [^;]+", message):
        assert sentence in texts
    # of how many is not compared: a condition is renewed for that after a while only
    place = re.search(r"place \d+\b", message)
    assert place is None or place[0] in texts


def adds_up(entry: Entry) -> None:
    """Check the numbers and nodes of an answer, and that its actions fit its causes."""
    for cause in entry["causes"]:
        for one in cause.get("resources", ()):
            requested, used, hard, missing = (
                Quantity.parse(one[name]) for name in ("requested", "used", "hard", "missing")
            )
            assert (requested + used).nano - hard.nano == missing.nano > 0
    nodes = entry["nodes"]
    if nodes is not None:
        assert nodes["total"] >= nodes["fit"] == len(nodes["best"]) or nodes["fit"] > 3
        assert max(nodes["reasons"].values(), default=0) <= nodes["total"] - nodes["fit"]
    actions = {one["action"] for one in entry["unblock"]}
    wanted = [ACTIONS[cause] for cause in causes(entry)]
    for possible in wanted:
        assert not possible or possible & actions, (causes(entry), actions)
    besides = {"delete-pod"} if any(one["state"] == "node-gone" for one in entry["who"]) else set()
    assert actions <= set().union(*wanted, besides), (causes(entry), actions)


def numbers(entry: Entry, cause: str) -> dict[str, str]:
    (resources,) = [one["resources"] for one in entry["causes"] if one["cause"] == cause]
    (found,) = resources
    return {name: amount for name, amount in found.items() if name != "resource"}


# -- scenes --------------------------------------------------------------------------------


def quota(stage: Stage) -> Wanted:
    stage.full("c")
    stage.says("c", "QuotaExceeded")
    return "pod", "c", ["quota"]


def behind(stage: Stage) -> Wanted:
    stage.full("c", "d")
    stage.says("d", "Behind")
    return "pod", "d", ["behind", "quota"]


def behind_with_room(stage: Stage) -> Wanted:
    stage.team.quota()
    stage.crowd("a")
    eventually(lambda: stage.team.node_of("a"), "it runs")
    stage.crowd("large", cpu="2")
    stage.crowd("small")
    stage.says("small", "Behind")
    return "pod", "small", ["behind"]


def two_quotas(stage: Stage) -> Wanted:
    stage.team.quota("p2", hard={"requests.cpu": "2"})
    stage.full("c")
    stage.says("c", "QuotaExceeded")
    return "pod", "c", ["quota", "quota"]


def never_fits(stage: Stage) -> Wanted:
    stage.team.quota()
    stage.crowd("x", cpu="3")
    stage.says("x", "NeverFits")
    return "pod", "x", ["never-fits"]


def never_fits_and_exceeds(stage: Stage) -> Wanted:
    stage.team.quota("p2", hard={"requests.cpu": "4"})
    stage.full()
    stage.crowd("x", cpu="3")
    stage.says("x", "NeverFits")
    return "pod", "x", ["never-fits", "quota"]


def other_gate(stage: Stage) -> Wanted:
    stage.team.quota()
    stage.crowd("x", schedulingGates=[{"name": OTHER}])
    stage.says("x", "OtherGates")
    return "pod", "x", ["other-gate"]


def other_gate_and_quota(stage: Stage) -> Wanted:
    stage.full()
    stage.crowd("x", schedulingGates=[{"name": OTHER}])
    stage.says("x", "OtherGates")
    return "pod", "x", ["other-gate", "quota"]


def must_specify(stage: Stage) -> Wanted:
    gates = [{"name": OTHER}]
    stage.team.pod("x", "", schedulerName=REAL, schedulingGates=gates)
    stage.team.quota()
    return "pod", "x", ["other-gate", "rule-must-specify"]


def priority_class(stage: Stage) -> Wanted:
    gold = [an_expression("PriorityClass", "In", GOLD)]
    stage.team.quota("gold", expressions=gold, hard={"requests.cpu": "1"})
    stage.crowd("x", cpu="2", priorityClassName=GOLD)
    stage.says("x", "NeverFits")
    stage.team.api.delete(objects.quotas(stage.team.namespace, "gold"))
    stage.says("x", "NotCovered")
    return "pod", "x", ["rule-priority-class"]


def shared(stage: Stage) -> Wanted:
    name = stage.team.namespace
    other = f"{name}-other"
    apply_namespace(stage.team.api, other, gating="never")
    label = {"metadata": {"labels": {"explain": name}}}
    for each in (name, other):
        assert stage.team.api.patch(f"/api/v1/namespaces/{each}", label).ok
    spec = {"namespaceSelector": {"matchLabels": {"explain": name}}, "hard": {"requests.cpu": "2"}}
    path = "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas"
    assert stage.team.api.create(path, {
        "apiVersion": "deferredquota.io/v1alpha1", "kind": "ClusterDeferredQuota",
        "metadata": {"name": name}, "spec": spec}).ok  # fmt: skip
    elsewhere = Tenant(stage.plane.rest, other)
    for tenant in (stage.team, elsewhere):
        eventually(lambda: f"cdq/{name}" in tenant.accounts(), "it is counted")  # noqa: B023
    elsewhere.pod("far", "2", schedulerName=REAL)
    eventually(lambda: elsewhere.node_of("far"), "it runs")
    stage.crowd("x")
    stage.says("x", "QuotaExceeded")
    return "pod", "x", ["cluster-quota"]


def elastic(stage: Stage, *, least: int) -> Tenant:
    """Give the namespace no part of an elastic pool, and another one all of it."""
    name = stage.team.namespace
    owner = Tenant(stage.plane.rest, f"{name}-owner")
    apply_namespace(stage.team.api, owner.namespace, gating="always")
    for tenant, cpu in ((stage.team, 0), (owner, least)):
        metadata = {"name": "q", "labels": {"deferredquota.io/pool": name}}
        made = {"apiVersion": "nos.nebuly.com/v1alpha1", "kind": "ElasticQuota",
                "metadata": metadata, "spec": {"min": {"cpu": str(cpu)}}}  # fmt: skip
        path = f"/apis/nos.nebuly.com/v1alpha1/namespaces/{tenant.namespace}/elasticquotas"
        answer = tenant.api.create(path, made)
        assert answer.ok, str(answer)
    for tenant in (stage.team, owner):
        eventually(lambda: f"cdq/epool.{name}" in tenant.accounts(), "it is counted", 60)  # noqa: B023
    return owner


def pool_used_up(stage: Stage) -> Wanted:
    elastic(stage, least=2)
    stage.crowd("a", "b", "x")
    for name in ("a", "b"):
        eventually(lambda: stage.team.node_of(name), "it borrows")  # noqa: B023
    stage.says("x", "QuotaExceeded")
    return "pod", "x", ["cluster-quota"]


def owners_first(stage: Stage) -> Wanted:
    owner = elastic(stage, least=3)
    stage.crowd("a", "b")
    for name in ("a", "b"):
        eventually(lambda: stage.team.node_of(name), "it borrows")  # noqa: B023
    owner.pod("large", "2", schedulerName=REAL)
    becomes(lambda: owner.condition("large", QUOTA_RESERVED)[1], "QuotaExceeded", "the owner waits")
    stage.crowd("x")
    stage.says("x", "OwnersFirst")
    return "pod", "x", ["owners-first"]


def capacity(stage: Stage) -> Wanted:
    stage.team.quota(hard={"requests.cpu": "100"})
    stage.crowd("x", cpu="20")
    stage.unschedulable("x")
    return "pod", "x", ["node-capacity"]


def node_selector(stage: Stage) -> Wanted:
    stage.team.quota()
    stage.crowd("x", nodeSelector={"disk": "ssd"})
    stage.unschedulable("x")
    return "pod", "x", ["node-selector"]


def node_affinity(stage: Stage) -> Wanted:
    terms = [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    stage.team.quota()
    stage.crowd("x", affinity={"nodeAffinity": required})
    stage.unschedulable("x")
    return "pod", "x", ["node-affinity"]


def gated_and_no_node(stage: Stage) -> Wanted:
    stage.full()
    stage.crowd("x", nodeSelector={"disk": "ssd"})
    stage.says("x", "QuotaExceeded")
    return "pod", "x", ["quota", "node-selector"]


def behind_and_no_node(stage: Stage) -> Wanted:
    stage.full("c")
    stage.crowd("x", nodeSelector={"disk": "ssd"})
    stage.says("x", "Behind")
    return "pod", "x", ["behind", "quota", "node-selector"]


def gate_never_fits_and_no_node(stage: Stage) -> Wanted:
    stage.team.quota()
    gates = [{"name": OTHER}]
    stage.crowd("x", cpu="20", schedulingGates=gates)
    return "pod", "x", ["other-gate", "never-fits", "node-capacity"]


def ports(stage: Stage) -> Wanted:
    stage.team.quota(hard={"requests.cpu": "8"})
    port = [{"containerPort": 80, "hostPort": 8080}]
    for name in ("a", "b", "c", "x"):
        container = a_container(requests={"cpu": "1"}, ports=port)
        stage.team.pod(name, "", container, schedulerName=REAL)
        if name != "x":
            eventually(lambda: stage.team.node_of(name), "it has its port")  # noqa: B023
    stage.unschedulable("x")
    return "pod", "x", ["ports"]


SPREAD: Final = {"matchLabels": {"app": "spread"}}


def pod_affinity(stage: Stage) -> Wanted:
    term = {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": HOST}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    stage.team.quota()
    stage.crowd("x", affinity={"podAffinity": required})
    stage.unschedulable("x")
    return "pod", "x", ["pod-affinity"]


def topology_spread(stage: Stage) -> Wanted:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    stage.team.quota()
    stage.crowd("x", topologySpreadConstraints=[{**rule, "labelSelector": SPREAD}])
    stage.unschedulable("x")
    return "pod", "x", ["topology-spread"]


def volume(stage: Stage) -> Wanted:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    stage.team.quota()
    stage.crowd("x", volumes=[claim])
    stage.unschedulable("x")
    return "pod", "x", ["volume-unbound"]


def gate_quota_and_volume(stage: Stage) -> Wanted:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    stage.full()
    stage.crowd("x", volumes=[claim], schedulingGates=[{"name": OTHER}])
    stage.says("x", "OtherGates")
    return "pod", "x", ["other-gate", "quota", "volume-unbound"]


def terminating(stage: Stage) -> Wanted:
    stage.full()
    stage.crowd("x", metadata={"finalizers": ["example.com/keep"]})
    stage.team.delete("x")
    return "pod", "x", ["terminating"]


def has_a_node(stage: Stage) -> Wanted:
    stage.full()
    return "pod", "a", ["not-ours"]


def runs(stage: Stage) -> Wanted:
    stage.full()
    stage.team.finish("a", "Running")
    return "pod", "a", ["already-running"]


def failed(stage: Stage) -> Wanted:
    stage.full()
    stage.team.finish("a", "Failed")
    return "pod", "a", ["not-ours"]


TEMPLATE: Final[Object] = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {
        "schedulerName": REAL,
        "terminationGracePeriodSeconds": 0,
        "containers": [a_container(requests={"cpu": "1"})],
    },
}
REPLICAS: Final[Object] = {
    "replicas": 3,
    "selector": {"matchLabels": {"app": "x"}},
    "template": TEMPLATE,
}
JOB: Final[Object] = {
    "parallelism": 3,
    "completions": 3,
    "template": {
        "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"},
    },
}


def suspended_job(stage: Stage) -> Wanted:
    stage.apply("batch/v1", "jobs", {"metadata": {"name": "x"}, "spec": {**JOB, "suspend": True}})
    return "job", "x", ["job-suspended"]


def suspended_cronjob(stage: Stage) -> Wanted:
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": JOB}}
    stage.apply("batch/v1", "cronjobs", {"metadata": {"name": "x"}, "spec": spec})
    return "cronjob", "x", ["job-suspended"]


def job_waits(stage: Stage) -> Wanted:
    stage.full()
    stage.apply("batch/v1", "jobs", {"metadata": {"name": "x"}, "spec": JOB})
    return "job", "x", ["quota"]


def deployment_waits(stage: Stage) -> Wanted:
    stage.full()
    stage.apply("apps/v1", "deployments", {"metadata": {"name": "x"}, "spec": REPLICAS})
    return "deployment", "x", ["quota"]


def replicas_refused(stage: Stage) -> Wanted:
    stage.team.quota("count", hard={"pods": "1"})
    stage.apply("apps/v1", "replicasets", {"metadata": {"name": "x"}, "spec": REPLICAS})
    return "replicaset", "x", ["not-ours", "quota"]


def set_refused(stage: Stage) -> Wanted:
    stage.team.quota("count", hard={"pods": "0"})
    spec = {**REPLICAS, "serviceName": "x"}
    stage.apply("apps/v1", "statefulsets", {"metadata": {"name": "x"}, "spec": spec})
    return "statefulset", "x", ["quota"]


def daemons_wait(stage: Stage) -> Wanted:
    stage.full()
    spec = {"selector": REPLICAS["selector"], "template": TEMPLATE}
    stage.apply("apps/v1", "daemonsets", {"metadata": {"name": "x"}, "spec": spec})
    return "daemonset", "x", ["quota"]


SCENES: Final[Mapping[str, Callable[[Stage], Wanted]]] = {
    scene.__name__: scene
    for scene in (
        quota, behind, behind_with_room, two_quotas, never_fits, never_fits_and_exceeds,
        other_gate, other_gate_and_quota, must_specify, priority_class, shared,
        pool_used_up, owners_first,
        capacity, node_selector, node_affinity, gated_and_no_node, ports,
        behind_and_no_node, gate_never_fits_and_no_node,
        pod_affinity, topology_spread, volume, gate_quota_and_volume,
        terminating, has_a_node, runs, failed,
        suspended_job, suspended_cronjob, job_waits, deployment_waits, replicas_refused,
        set_refused, daemons_wait,
    )
}  # fmt: skip


@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_every_cause_is_found_live_and_in_a_snapshot(
    scene: Callable[[Stage], Wanted], stage: Stage
) -> None:
    both(stage, scene(stage))


# -- numbers, nodes, and what takes the quota ----------------------------------------------


def test_the_numbers_and_what_takes_the_quota(stage: Stage) -> None:
    stage.team.quota(hard={"requests.cpu": "5"})
    stage.crowd("a", "b", cpu="1")
    for name in ("a", "b"):
        eventually(lambda: stage.team.node_of(name), "it has a node")  # noqa: B023
    stage.team.pod("promised", "2")  # for a scheduler that does not exist
    eventually(lambda: stage.team.promised() == ["promised"], "quota is reserved for it")
    stage.team.finish("a", "Running")
    stage.team.delete("b", grace_seconds=300)
    stage.crowd("x", cpu="2")
    stage.says("x", "QuotaExceeded")
    for entry in both(stage, ("pod", "x", ["quota"])):
        assert numbers(entry, "quota") == {
            "requested": "2", "used": "4", "reserved": "2", "hard": "5", "missing": "1",
        }  # fmt: skip
        states = {one["pod"]: one["state"] for one in entry["who"]}
        assert states == {"a": "running", "b": "terminating", "promised": "reserved"}
        first = entry["unblock"][0]
        assert (first["action"], first["amount"]) == ("free-quota", "1")
        assert entry["nodes"]["fit"] == NODES


def test_the_nodes_are_counted_as_the_scheduler_counts_them(stage: Stage) -> None:
    stage.plane.kubectl("cordon", "node-0")
    try:
        stage.team.quota(hard={"requests.cpu": "100"})
        stage.crowd("x", cpu="20")
        stage.unschedulable("x")
        words = "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
        assert words in stage.team.condition("x")[2]
        for entry in both(stage, ("pod", "x", ["node-capacity", "taint"])):
            reasons = {"node-capacity": 2, "taint": 1}
            assert entry["nodes"] == {"total": 3, "fit": 0, "reasons": reasons, "best": []}
            assert any(words in note for note in entry["notes"])
            assert numbers(entry, "node-capacity")["hard"] == str(NODE_CPU)
            assert {"uncordon", "add-node"} <= {one["action"] for one in entry["unblock"]}
    finally:
        stage.plane.kubectl("uncordon", "node-0")


def test_a_full_node_and_those_that_are_not_selected(stage: Stage) -> None:
    (extra,) = stage.plane.add_nodes(1, cpu="4", pods=1)
    try:
        stage.team.quota()
        stage.crowd("a", nodeSelector={HOST: extra})
        becomes(lambda: stage.team.node_of("a"), extra, "its node")
        stage.crowd("x", nodeSelector={HOST: extra})
        stage.unschedulable("x")
        for entry in both(stage, ("pod", "x", ["node-selector", "pod-count"])):
            assert entry["nodes"]["reasons"] == {"node-selector": NODES, "pod-count": 1}
    finally:
        stage.plane.kubectl("delete", "node", extra)


def test_a_node_that_is_gone_is_reported(stage: Stage) -> None:
    (extra,) = stage.plane.add_nodes(1, cpu="4")
    stage.team.quota()
    stage.crowd("a", cpu="2", nodeSelector={HOST: extra})
    becomes(lambda: stage.team.node_of("a"), extra, "its node")
    stage.team.settles()
    stage.crowd("x")
    stage.says("x", "QuotaExceeded")
    stage.plane.kubectl("delete", "node", extra)
    for entry in both(stage, ("pod", "x", ["quota"])):
        assert [one["state"] for one in entry["who"]] == ["node-gone"]
    for entry in both(stage, ("pod", "a", ["not-ours"])):
        assert "does not exist any more" in entry["text"]


def test_a_pod_that_no_scheduler_tries_says_what_it_waits_for(stage: Stage) -> None:
    stage.team.quota()
    stage.team.pod("x", "1")
    wanted = "scheduler-absent"
    becomes(lambda: causes(explained(stage, "pod", "x")), [wanted], "no scheduler", 60)
    for entry in both(stage, ("pod", "x", [wanted])):
        assert "schedulerName nobody" in entry["text"]


def test_a_pod_that_is_gone_or_made_anew_is_reported(stage: Stage) -> None:
    stage.full("x")
    stage.says("x", "QuotaExceeded")
    eventually(lambda: stage.team.events("QuotaExceeded"), "its event")
    stage.team.delete("x")
    where = ("--kubeconfig", str(stage.plane.kubeconfig()))
    for args in (where, snapshot(stage)):
        gone = run(stage, "pod", "x", *args)
        assert gone.exit_code == 1
        assert "does not exist any more; last event" in gone.stderr
    stage.crowd("x")
    stage.says("x", "QuotaExceeded")
    for entry in both(stage, ("pod", "x", ["quota"])):
        assert "another pod of this name is gone" in " ".join(entry["notes"])


def test_a_user_of_the_namespace_alone_learns_what_is_not_known(stage: Stage) -> None:
    stage.full("c", "d")
    stage.says("d", "Behind")
    user = f"viewer-{stage.team.namespace}"
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    stage.apply(
        "rbac.authorization.k8s.io/v1",
        "rolebindings",
        {"metadata": {"name": "view"}, "roleRef": role, "subjects": [subject]},
    )
    where = ("--kubeconfig", str(stage.plane.kubeconfig(user, ())))

    def look() -> list[str]:
        ran = run(stage, "pod", "d", *where)
        return causes(json.loads(ran.stdout)) if ran.exit_code == 0 else [ran.stderr]

    becomes(look, ["behind", "quota"], "what a user of the namespace sees")
    entry = explained(stage, "pod", "d", *where)
    agrees(stage, entry)
    assert entry["nodes"] is None
    unknown = " ".join(entry["unknown"])
    for what in ("nodes: no right", "the Lease of the controller", "whether the webhook answers"):
        assert what in unknown


# -- the parts of the product ---------------------------------------------------------------


def test_without_a_controller_numbers_are_counted_from_the_pods(stage: Stage) -> None:
    stage.full("c")
    stage.says("c", "QuotaExceeded")
    for controller in stage.product.controllers:
        controller.kill()
    two = ["ledger-not-ready", "quota"]
    becomes(lambda: causes(explained(stage, "pod", "c")), two, "its Lease is over", 90)
    stage.team.delete("a")
    for entry in both(stage, ("pod", "c", ["ledger-not-ready"])):
        assert "has not renewed its Lease since" in entry["text"]
        assert [one["action"] for one in entry["unblock"]] == ["start-controller"]
        assert stage.team.condition("c", QUOTA_RESERVED)[1] == "QuotaExceeded", "it is old"


def test_a_quota_that_is_not_counted_is_reported_instead_of_old_numbers(stage: Stage) -> None:
    stage.full("c")
    stage.says("c", "QuotaExceeded")
    for controller in stage.product.controllers:
        controller.kill()
    stage.team.edit_quota("p1", {"hard": {"requests.cpu": "3"}})
    for entry in both(stage, ("pod", "c", ["ledger-not-ready"])):
        assert "usage is being counted for quota: p1" in entry["text"]


def test_without_a_webhook_that_is_said(stage: Stage) -> None:
    stage.full("c")
    stage.says("c", "QuotaExceeded")
    for server in stage.product.webhooks:
        server.kill()
    live, offline = both(stage, ("pod", "c", ["webhook-down", "quota"]))
    assert "start-webhook" in [one["action"] for one in live["unblock"]]
    assert "a snapshot does not show whether the webhook answers" in offline["unknown"]


def test_a_failed_attempt_shows_in_a_snapshot_that_no_webhook_answers(stage: Stage) -> None:
    stage.team.quota()
    stage.plane.scheduler.pause()
    stage.crowd("x")
    eventually(lambda: not stage.team.seen("x").body["spec"].get("schedulingGates"), "released")
    for server in stage.product.webhooks:
        server.kill()
    stage.plane.scheduler.resume()
    eventually(lambda: "failed calling webhook" in stage.team.condition("x")[2], "its words", 60)
    assert causes(explained(stage, "pod", "x")) == ["webhook-down"]
    assert causes(explained(stage, "pod", "x", *snapshot(stage))) == ["webhook-down"]
