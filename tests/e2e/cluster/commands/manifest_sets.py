"""Random manifest sets: a namespace with quotas and limits, and objects that meet them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.builders import Object, a_container

GOLD: Final = "check-gold"
_PATHS: Final[Mapping[str, str]] = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
}
_VERSIONS: Final = {"Job": "batch/v1"} | dict.fromkeys(
    ("Deployment", "ReplicaSet", "StatefulSet"), "apps/v1"
)
_KINDS: Final = (
    *("Pod", "Pod", "Pod", "Deployment", "Deployment", "ReplicaSet", "StatefulSet", "Job"),
    *("Service", "ConfigMap", "PersistentVolumeClaim"),
)
_HARD: Final[Mapping[str, tuple[str, ...]]] = {
    "requests.cpu": ("2", "4", "2500m"),
    "limits.cpu": ("6", "9"),
    "requests.memory": ("512Mi", "1Gi"),
    "pods": ("2", "4", "6"),
    "count/configmaps": ("1", "2"),
    "count/deployments.apps": ("0", "1"),
    "services.nodeports": ("0", "2"),
    "requests.storage": ("1Gi", "3Gi"),
    "persistentvolumeclaims": ("1",),
}
_SCOPES: Final = ("NotTerminating", "Terminating", "BestEffort", "NotBestEffort")
_MISNAMED: Final = 9
"""Of so many sets one has an object with a name that is not allowed."""
_LOST: Final = 20
"""Every such set, in a namespace that does not defer, has a pod that no node takes."""
_POD_KEYS: Final = frozenset({"requests.cpu", "limits.cpu", "requests.memory", "pods"})


@dataclass(frozen=True, slots=True)
class ManifestSet:
    """A namespace, what limits it, and the objects in the order in which they are created."""

    namespace: str
    is_deferred: bool
    limits: tuple[Object, ...]
    """Quotas and LimitRanges."""
    objects: tuple[Object, ...]


def manifest_sets(count: int, seed: int) -> tuple[ManifestSet, ...]:
    """Make sets, every second one in a namespace that defers its quotas."""
    random = Random(seed)  # noqa: S311 - for tests
    return tuple(_manifest_set(random, index) for index in range(count))


def path_of(raw: Object) -> str:
    """Return the path of the collection that an object is created in."""
    meta = raw["metadata"]
    assert isinstance(meta, dict)
    return _PATHS[str(raw["kind"])].format(meta["namespace"])


def _manifest_set(random: Random, index: int) -> ManifestSet:
    namespace = f"check-{index}"
    limits = [_quota(random, namespace, number) for number in range(random.choice((1, 1, 2)))]
    if random.random() < 0.4:
        limits.append(_limit_range(random, namespace))
    kinds = [random.choice(_KINDS) for _ in range(random.randint(2, 4))]
    objects = [
        _object(random, namespace, kind, f"{kind.lower()}-{number}")
        for number, kind in enumerate(kinds)
    ]
    is_deferred = bool(index % 2)
    if index % _LOST == 0:
        # where quotas are deferred its reservation would be given up in time, for others
        container = a_container(requests={"cpu": "100m", "memory": "1Mi"}, limits={"cpu": "1"})
        spec = {"containers": [container], "nodeSelector": {"check": "nowhere"}}
        objects.insert(0, _named("Pod", namespace, "lost", spec))
    if index % _MISNAMED == 0:
        objects.append(_misnamed(namespace, index // _MISNAMED))
    return ManifestSet(namespace, is_deferred, tuple(limits), tuple(objects))


def _misnamed(namespace: str, number: int) -> Object:
    """Make an object that is refused for its name, or for those of its containers."""
    amounts = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "1"}}
    name, containers = (
        ("pod_a", ["main"]),
        ("pod-a", ["main", "side_car"]),
        ("pod-a", ["main", "main"]),
        ("Pod-a", ["main", ""]),
    )[number % 4]
    spec = {"containers": [a_container(one, **amounts) for one in containers]}
    if number % 2:
        return _named("Pod", namespace, name, spec)
    labels = {"app": "misnamed"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    workload = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return _named("Deployment", namespace, name, workload)


def _named(kind: str, namespace: str, name: str, spec: Mapping[str, object]) -> Object:
    version = _VERSIONS.get(kind, "v1")
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": dict(spec)}


def _quota(random: Random, namespace: str, number: int) -> Object:
    names = random.sample(sorted(_HARD), random.randint(2, 4))
    if number == 0 and "requests.cpu" not in names:
        names.append("requests.cpu")
    spec: Object = {}
    if number and random.random() < 0.7:
        names = sorted(_POD_KEYS.intersection(names)) or ["pods"]
        spec |= _scoped(random, names)
    hard = {name: random.choice(_HARD[name]) for name in names}
    return _named("ResourceQuota", namespace, f"quota-{number}", {"hard": hard, **spec})


def _scoped(random: Random, names: list[str]) -> Object:
    if random.random() < 0.4:
        gold = {"scopeName": "PriorityClass", "operator": "In", "values": [GOLD]}
        return {"scopeSelector": {"matchExpressions": [gold]}}
    scope = random.choice(_SCOPES)
    if scope == "BestEffort":
        names[:] = ["pods"]  # nothing else may be limited there
    return {"scopes": [scope]}


def _limit_range(random: Random, namespace: str) -> Object:
    item: Object = {"type": "Container", "defaultRequest": {"cpu": "250m", "memory": "64Mi"}}
    if random.random() < 0.5:
        item["max"] = {"cpu": random.choice(("1", "2"))}
    claims = {"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}}
    return _named("LimitRange", namespace, "limits", {"limits": [item, claims]})


def _object(random: Random, namespace: str, kind: str, name: str) -> Object:
    match kind:
        case "Pod":
            return _named(kind, namespace, name, _pod_spec(random))
        case "ConfigMap":
            raw = _named(kind, namespace, name, {})
            del raw["spec"]
            return raw
        case "Service":
            ports = [
                {"name": f"p{port}", "port": port} for port in range(80, 81 + random.randint(0, 1))
            ]
            service = random.choice(("ClusterIP", "NodePort"))
            return _named(kind, namespace, name, {"type": service, "ports": ports})
        case "PersistentVolumeClaim":
            storage = random.choice(("1Gi", "2Gi", "3Gi"))
            spec = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "none",
                "resources": {"requests": {"storage": storage}},
            }
            return _named(kind, namespace, name, spec)
        case _:
            return _workload(random, namespace, kind, name)


def _workload(random: Random, namespace: str, kind: str, name: str) -> Object:
    count = random.randint(1, 4)
    labels = {"app": name}
    template: Object = {"metadata": {"labels": labels}, "spec": _pod_spec(random)}
    if kind == "Job":
        spec: Object = {"parallelism": count, "completions": count, "backoffLimit": 100}
    else:
        spec = {"replicas": count, "selector": {"matchLabels": labels}}
    if kind == "StatefulSet":
        spec |= {"podManagementPolicy": "Parallel", "serviceName": name}
    inner = template["spec"]
    assert isinstance(inner, dict)
    if kind == "Job":
        inner["restartPolicy"] = "Never"
    else:
        inner.pop("activeDeadlineSeconds", None)  # only pods that end may have one
    return _named(kind, namespace, name, {**spec, "template": template})


def _pod_spec(random: Random) -> Object:
    spec: Object = {"containers": [_container(random)], "terminationGracePeriodSeconds": 0}
    if random.random() < 0.15:
        spec["initContainers"] = [a_container("init", requests={"cpu": "1500m", "memory": "1Mi"})]
    if random.random() < 0.2:
        spec["activeDeadlineSeconds"] = 3600
    if random.random() < 0.2:
        spec["priorityClassName"] = random.choice((GOLD, GOLD, "check-none"))
    return spec


def _container(random: Random) -> Object:
    requests, limits = {}, {}
    if random.random() < 0.95:
        requests["cpu"] = random.choice(("250m", "500m", "1", "1500m", "1500m", "3"))
    if random.random() < 0.9:
        requests["memory"] = random.choice(("64Mi", "64Mi", "256Mi", "2Gi"))
    if random.random() < 0.7:
        limits["cpu"] = random.choice(("3", "4"))
    return a_container(requests=requests or None, limits=limits or None)
