"""The node model beside the real scheduler: random pods on random nodes, one after another.

Of each pod that finds no node, the message has to be the scheduler's, count by count; of each that
does, its node has to be one of those with the most points.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.waiting import eventually
from webhook.quota.nodes.fitting import NodeVerdicts, judge_nodes
from webhook.quota.nodes.model import NodeView

ROUNDS: Final = 5
PODS: Final = 70
NODES: Final = 14
NAMESPACE, OTHER = "placed", "elsewhere"
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
APPS: Final = ("web", "db", "batch")
IMAGES: Final = {"registry/small:v1": 100 * 2**20, "registry/large:v1": 900 * 2**20}
TAINTS: Final = (
    {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
    {"key": "dedicated", "value": "db", "effect": "NoExecute"},
    {"key": "old", "effect": "PreferNoSchedule"},
)
CLAIMS: Final = ("in-zone-a", "of-zone-b", "for-one", "waits", "at-once", "absent")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of its own, whose nodes no controller taints."""
    flags = ["--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"]
    directory = tmp_path_factory.mktemp("node-model-plane")
    with ControlPlane.start(directory, controller_manager=False, apiserver_flags=flags) as running:
        make_storage(Api(running.rest))
        yield running


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_agrees_with_the_scheduler(cluster: ControlPlane, seed: int) -> None:
    api, rng = Api(cluster.rest), random.Random(seed)  # noqa: S311 - the same in each run
    try:
        for number in range(NODES):
            assert api.create("/api/v1/nodes", a_node(rng, f"n{seed}-{number}")).ok
        wait_for_nodes(api, NODES)
        outcomes = [compare(api, a_pod(rng, f"p{seed}-{number}")) for number in range(PODS)]
    finally:
        for namespace in (NAMESPACE, OTHER):
            api.call("DELETE", objects.pods(namespace), {"gracePeriodSeconds": 0})
        api.delete("/api/v1/nodes")
    # a round in which all pods fit, or none, has shown nothing
    assert outcomes.count("bound") > PODS // 10
    assert outcomes.count("refused") > PODS // 10


def compare(api: Api, pod: Object) -> str:
    """Create the pod, and compare what becomes of it with the model's verdict."""
    view = read_view(api)
    path = objects.pods(pod["metadata"]["namespace"])
    made = api.create(path, pod)
    assert made.ok, made
    verdicts = judge_nodes(made.body, view)
    assert not verdicts.unknown
    name = f"{path}/{pod['metadata']['name']}"
    stored = outcome(api, name)
    node = stored["spec"].get("nodeName")
    if node:
        assert node in best(verdicts), (pod, verdicts.fits)
        return "bound"
    said = condition(stored)["message"]
    assert said.startswith(verdicts.message()), (pod, said, verdicts.message())
    api.delete(name, grace_seconds=0)
    return "refused"


def best(verdicts: NodeVerdicts) -> set[str]:
    """Return the nodes between which the scheduler draws lots."""
    return {one.name for one in verdicts.fits if one.score == verdicts.fits[0].score}


def outcome(api: Api, path: str) -> Object:
    """Return the pod when it has a node, or the scheduler has said why not."""

    def is_tried() -> bool:
        pod = api.get(path).body
        return bool(pod["spec"].get("nodeName")) or condition(pod).get("reason") == "Unschedulable"

    eventually(is_tried, f"the scheduler tries {path}")
    return api.get(path).body


def condition(pod: Object) -> Object:
    found = pod.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == "PodScheduled"), {})


def read_view(api: Api) -> NodeView:
    def items(path: str) -> list[Object]:
        found: list[Object] = api.get(path).body["items"]
        return found

    return NodeView(
        items("/api/v1/nodes"),
        items("/api/v1/pods"),
        items("/api/v1/persistentvolumeclaims"),
        items("/api/v1/persistentvolumes"),
        items("/apis/storage.k8s.io/v1/storageclasses"),
        items("/api/v1/namespaces"),
    )


def wait_for_nodes(api: Api, count: int) -> None:
    """Wait until the scheduler has seen all nodes: a pod that is too large for each says so.

    They are changed once when all are there: on how many nodes an image is, the scheduler counts
    when it looks at a node that has changed.
    """
    for node in api.get("/api/v1/nodes").body["items"]:
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        assert api.patch(path, {"metadata": {"labels": {"complete": ""}}}).ok
    resources = {"requests": {"cpu": "1000"}}
    probe = pod_of(
        {
            "containers": [{"name": "c", "image": "x", "resources": resources}],
            "nodeSelector": {"complete": ""},
            "tolerations": [{"operator": "Exists"}],
        },
        "probe",
        {},
    )

    def is_counted() -> bool:
        api.create(objects.pods(NAMESPACE), probe)
        path = objects.pods(NAMESPACE, "probe")
        message: str = condition(outcome(api, path))["message"]
        api.delete(path, grace_seconds=0)
        return message.startswith(f"0/{count} nodes are available: {count} Insufficient cpu")

    eventually(is_counted, "the scheduler sees the nodes")


# -- what there is ---------------------------------------------------------------------------


def make_storage(api: Api) -> None:
    """Make namespaces, and claims of every kind that needs no controller to be judged."""
    for name, labels in ((NAMESPACE, {}), (OTHER, {"env": "test"})):
        assert api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}).ok
    for name, mode in (("waits", "WaitForFirstConsumer"), ("at-once", "Immediate")):
        storage_class = {
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": mode,
        }
        assert api.create("/apis/storage.k8s.io/v1/storageclasses", storage_class).ok
    in_zone = {"key": ZONE, "operator": "In", "values": ["a"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [in_zone]}]}}
    make_volume(api, "in-zone-a", nodeAffinity=affinity)
    make_volume(api, "of-zone-b", labels={ZONE: "b"})
    make_volume(api, "for-one", mode="ReadWriteOncePod")
    for name in ("waits", "at-once"):
        make_claim(api, name, storageClassName=name)


def make_volume(
    api: Api,
    name: str,
    *,
    labels: dict[str, str] | None = None,
    mode: str = "ReadWriteOnce",
    **spec: Any,
) -> None:
    """Make a volume and a claim that is bound to it."""
    volume = {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "csi": {"driver": "csi.example.com", "volumeHandle": name},
            "claimRef": {"namespace": NAMESPACE, "name": name},
            **spec,
        },
    }
    made = api.create("/api/v1/persistentvolumes", volume)
    assert made.ok, made
    make_claim(api, name, mode=mode, volumeName=name, storageClassName="")


def make_claim(api: Api, name: str, *, mode: str = "ReadWriteOnce", **spec: Any) -> None:
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec else {}
    claim = {
        "metadata": {"name": name, "annotations": bound},
        "spec": {
            "accessModes": [mode],
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }
    made = api.create(f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", claim)
    assert made.ok, made


def a_node(rng: random.Random, name: str) -> Object:
    labels = {HOSTNAME: name, "cores": str(rng.choice([2, 8, 64]))}
    if rng.random() < 0.85:
        labels[ZONE] = rng.choice("abc")
    if rng.random() < 0.5:
        labels["disk"] = rng.choice(["ssd", "hdd"])
    room = {
        "cpu": rng.choice(["2", "4", "7500m"]),
        "memory": rng.choice(["4Gi", "8Gi", "7777Mi"]),
        "pods": str(rng.randint(2, 9)),
        "ephemeral-storage": rng.choice(["0", "20Gi"]),
    }
    if rng.random() < 0.3:
        room["example.com/gpu"] = "2"
    taints = [one for one in TAINTS if rng.random() < 0.2]
    images = [
        {"names": [image], "sizeBytes": size}
        for image, size in IMAGES.items()
        if rng.random() < 0.4
    ]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "unschedulable": rng.random() < 0.1},
        "status": {
            "capacity": room,
            "allocatable": room,
            "images": images,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_pod(rng: random.Random, name: str) -> Object:
    labels = {"app": rng.choice(APPS), "version": rng.choice("12")}
    spec: Object = {"containers": [a_container(rng, f"c{i}") for i in range(rng.choice([1, 1, 2]))]}
    if rng.random() < 0.15:
        spec["initContainers"] = [a_container(rng, "init")]
    if rng.random() < 0.15:
        sidecar = {**a_container(rng, "sidecar"), "restartPolicy": "Always"}
        spec["initContainers"] = [*spec.get("initContainers", []), sidecar]
    if rng.random() < 0.2 and len(spec["containers"]) == 1 and "initContainers" not in spec:
        spec["resources"] = {"requests": {"cpu": "5"}, "limits": {"memory": "12Gi"}}
    if rng.random() < 0.15:
        spec["nodeSelector"] = {ZONE: rng.choice("abcd")}
    if rng.random() < 0.4:
        spec["tolerations"] = [a_toleration(rng) for _ in range(rng.choice([1, 2]))]
    if rng.random() < 0.2:
        spec["containers"][0]["ports"] = [a_port(rng)]
    if rng.random() < 0.25:
        spec["topologySpreadConstraints"] = spread(rng, labels["app"])
    namespace = NAMESPACE if rng.random() < 0.8 else OTHER
    if rng.random() < 0.2 and namespace == NAMESPACE:
        source = {"claimName": rng.choice(CLAIMS)}
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": source}]
    spec["affinity"] = an_affinity(rng)
    return pod_of(spec, name, labels, namespace=namespace)


def pod_of(
    spec: Object, name: str, labels: dict[str, str], *, namespace: str = NAMESPACE
) -> Object:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": spec}


def a_container(rng: random.Random, name: str) -> Object:
    requests = {}
    if rng.random() < 0.7:
        requests["cpu"] = rng.choice(["1m", "100m", "333m", "900m", "1500m", "5"])
    if rng.random() < 0.6:
        requests["memory"] = rng.choice(["1", "100Mi", "500M", "1Gi", "3Gi"])
    if rng.random() < 0.1:
        requests["ephemeral-storage"] = rng.choice(["1Gi", "30Gi"])
    resources: Object = {"requests": requests}
    if rng.random() < 0.1:
        resources["limits"] = {"example.com/gpu": "1"}
    return {"name": name, "image": rng.choice([*IMAGES, "x"]), "resources": resources}


def a_toleration(rng: random.Random) -> Object:
    return rng.choice(
        [
            {"key": "dedicated", "operator": "Exists"},
            {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
            {"key": "dedicated", "value": "db"},
            {"key": "old", "operator": "Exists"},
            {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
            {"operator": "Exists"},
        ]
    )


def a_port(rng: random.Random) -> Object:
    port: Object = {"containerPort": 80, "hostPort": rng.choice([80, 81])}
    if rng.random() < 0.4:
        port["hostIP"] = rng.choice(["10.0.0.1", "10.0.0.2"])
    if rng.random() < 0.2:
        port["protocol"] = "UDP"
    return port


def spread(rng: random.Random, app: str) -> list[Object]:
    constraints = []
    for key in rng.sample([ZONE, HOSTNAME, "disk"], rng.choice([1, 1, 2])):
        constraint: Object = {
            "maxSkew": rng.choice([1, 2]),
            "topologyKey": key,
            "whenUnsatisfiable": rng.choice(["DoNotSchedule", "ScheduleAnyway"]),
            "labelSelector": {"matchLabels": {"app": app}},
        }
        if rng.random() < 0.3:
            constraint["nodeTaintsPolicy"] = "Honor"
        if rng.random() < 0.3:
            constraint["nodeAffinityPolicy"] = "Ignore"
        if rng.random() < 0.3:
            constraint["matchLabelKeys"] = ["version"]
        if constraint["whenUnsatisfiable"] == "DoNotSchedule" and rng.random() < 0.2:
            constraint["minDomains"] = 4
        constraints.append(constraint)
    return constraints


def an_affinity(rng: random.Random) -> Object:
    affinity: Object = {}
    if rng.random() < 0.3:
        affinity["nodeAffinity"] = node_affinity(rng)
    for kind in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.15:
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": [pod_term(rng)]}
        elif rng.random() < 0.2:
            weighted = {"weight": rng.choice([1, 50]), "podAffinityTerm": pod_term(rng)}
            affinity[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}
    return affinity


def node_affinity(rng: random.Random) -> Object:
    expression: Object = rng.choice(
        [
            {"key": ZONE, "operator": "In", "values": ["a", "b"]},
            {"key": ZONE, "operator": "NotIn", "values": ["a"]},
            {"key": "disk", "operator": "Exists"},
            {"key": "disk", "operator": "DoesNotExist"},
            {"key": "cores", "operator": "Gt", "values": ["4"]},
            {"key": "cores", "operator": "Lt", "values": ["64"]},
        ]
    )
    term: Object = {"matchExpressions": [expression]}
    if rng.random() < 0.2:
        field = {"key": "metadata.name", "operator": "In", "values": [f"n{rng.randint(0, 4)}-1"]}
        term["matchFields"] = [field]
    if rng.random() < 0.5:
        required = {"nodeSelectorTerms": [term]}
        return {"requiredDuringSchedulingIgnoredDuringExecution": required}
    weighted = {"weight": rng.choice([1, 30]), "preference": term}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}


def pod_term(rng: random.Random) -> Object:
    term: Object = {
        "topologyKey": rng.choice([ZONE, HOSTNAME]),
        "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
    }
    reach = rng.random()
    if reach < 0.15:
        term["namespaceSelector"] = {}
    elif reach < 0.3:
        term["namespaceSelector"] = {"matchLabels": {"env": "test"}}
    elif reach < 0.4:
        term["namespaces"] = [OTHER]
    if rng.random() < 0.15:
        term["matchLabelKeys"] = ["version"]
    return term
