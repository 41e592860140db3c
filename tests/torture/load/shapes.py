"""The namespaces, quotas and pods of the torture: tight, overlapping, in many spellings."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PREFIX: Final = "torture-"
TEAM: Final = {"torture.example/team": "all"}
"""A label of the namespaces that share the cluster quota, where there are such."""

GOLD: Final = "torture-gold"
NOBODY: Final = "torture-binders"
"""The scheduler of pods that the load binds itself: there is none of that name."""

GRACE_SECONDS: Final = 2
TARGET_PODS: Final = 24
"""Assigned pods of a namespace that its quotas have room for, roughly."""


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace and what happens to it.

    Attributes:
        is_scheduled: The real scheduler binds here.
        is_edited: Its quotas are edited.
        is_wild: Its ledger, its status and everything else may be tampered with.
        is_paced: Its pods wait behind the gate until they fit.
        is_moved: It is opted out and in, and paced in other ways now and then.
        lets_through: Its pods are paced, but need no gate while there is room; room comes and goes.
        has_counts: Its quotas also limit what stays with the API server.
        is_churned: It belongs to the churn, and nothing else happens to it.
    """

    name: str
    is_scheduled: bool = False
    is_edited: bool = False
    is_wild: bool = False
    is_paced: bool = False
    is_moved: bool = False
    lets_through: bool = False
    has_counts: bool = False
    is_churned: bool = False

    @property
    def has_bystander(self) -> bool:
        """Whether another webhook is asked here, which makes requests late or refuses them."""
        return self.is_edited

    @property
    def shares_cluster_quota(self) -> bool:
        """Whether it is under the cluster quota too, where there are such; nobody edits it."""
        return not (self.is_edited or self.is_moved or self.is_scheduled or self.is_churned)

    @property
    def gating(self) -> str:
        """What the label says that paces its pods, unless it is being moved."""
        if not self.is_paced:
            return "never"
        return "auto" if self.lets_through else "always"

    @property
    def path(self) -> str:
        """Where its objects are."""
        return f"/api/v1/namespaces/{self.name}"


def spaces(count: int) -> list[Space]:
    """Give the namespaces, by turns: untouched, edited, scheduled, wild, paced, paced and moved."""
    made = []
    for number in range(count):
        style = number % 6
        made.append(
            Space(
                f"{PREFIX}{number}",
                is_scheduled=style == 2,
                is_edited=style in {1, 3},
                is_wild=style == 3,
                is_paced=style in {4, 5},
                is_moved=style == 5,
                lets_through=style == 5,
                has_counts=style in {0, 3},
            )
        )
    return made


def churned_space() -> Space:
    """Return the namespace of the churn."""
    return Space(f"{PREFIX}churn", is_churned=True)


def _selector(operator: str, *values: str) -> dict[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": operator}
    return {
        "scopeSelector": {
            "matchExpressions": [expression | ({"values": list(values)} if values else {})]
        }
    }


_SPECS: Final[Mapping[str, Mapping[str, Any]]] = {
    "all": {"hard": {"requests.cpu": "16", "requests.memory": "6Gi"}},
    "busy": {"hard": {"limits.memory": "9Gi", "limits.cpu": "26"}, "scopes": ["NotBestEffort"]},
    "gold": {"hard": {"cpu": "5", "limits.memory": "4Gi"}, **_selector("In", GOLD)},
    "long": {"hard": {"memory": "3500Mi"}, "scopes": ["NotTerminating"]},
    "other": {"hard": {"limits.cpu": "17"}, **_selector("NotIn", GOLD)},
    "short": {"hard": {"requests.cpu": "5.5", "limits.cpu": "8"}, "scopes": ["Terminating"]},
}

_CHURNED: Final[Mapping[str, Mapping[str, Any]]] = {
    "all": {"hard": {"requests.cpu": "2"}},
    "long": {"hard": {"cpu": "1500m"}, "scopes": ["NotTerminating"]},
    "short": {"hard": {"requests.cpu": "1"}, "scopes": ["Terminating"]},
}

SCOPED_ANEW: Final[tuple[Mapping[str, Any], ...]] = (
    {"scopes": ["Terminating"]},
    {"scopes": ["NotTerminating"]},
    {"scopes": ["NotBestEffort"]},
    _selector("In", GOLD),
    _selector("NotIn", GOLD),
    _selector("Exists"),
    _selector("DoesNotExist"),
)
"""What a quota that is made anew may select."""


def quota_specs(space: Space) -> dict[str, dict[str, Any]]:
    """Give the specs of a namespace's quotas by name."""
    wanted = _CHURNED if space.is_churned else _SPECS
    specs = {name: {**spec, "hard": dict(spec["hard"])} for name, spec in wanted.items()}
    if space.has_counts:
        specs["all"]["hard"]["pods"] = "150"
        specs["idle"] = {"hard": {"pods": "12"}, "scopes": ["BestEffort"]}
    return specs


def quota(name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Give a ResourceQuota."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def cluster_quota() -> dict[str, Any]:
    """Give a cluster quota that is tighter than the quotas of its namespaces together."""
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": f"{PREFIX}team"},
        "spec": {
            "namespaceSelector": {"matchLabels": TEAM},
            "hard": {"requests.cpu": "24", "limits.memory": "16Gi"},
        },
    }


def elastic_quotas(space: Space) -> str:
    """Return the path of a namespace's elastic quotas."""
    return f"/apis/nos.nebuly.com/v1alpha1/namespaces/{space.name}/elasticquotas"


def elastic_quota() -> dict[str, Any]:
    """Give an elastic quota that lets a namespace borrow, of a pool that is tight."""
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "elastic"},
        "spec": {"min": {"memory": "2Gi"}, "max": {"memory": "3Gi"}},
    }


_CORES: Final = ("100m", "0.25", "300m", ".5", "0.750", "1", "1250m")
_BYTES: Final = ("64Mi", "100M", "0.125Gi", "134217728", "200Mi", "268435456", "3e8")


def a_size(rng: random.Random, *, is_equal: bool) -> dict[str, dict[str, str]]:
    """Give resources of a container: limits of twice the requests, or equal ones."""
    number, several = rng.randrange(len(_CORES)), rng.randrange(len(_BYTES))
    requests = {"cpu": _CORES[number], "memory": _BYTES[several]}
    if is_equal:
        return {"requests": requests, "limits": requests}
    above = min(number + 2, len(_CORES) - 1)
    limits = {"cpu": _CORES[above] if above > number else "2500m", "memory": "300Mi"}
    return {"requests": requests, "limits": limits}


_NOTHING: Final = {"cpu": "0", "memory": "0"}


def a_pod(rng: random.Random, name: str, *, scheduler: str, node: str = "") -> dict[str, Any]:
    """Give a pod of any shape that the quotas tell apart."""
    is_idle, is_equal = rng.random() < 0.08, rng.random() < 0.2
    if is_idle:
        containers = [_container("c", {"requests": _NOTHING, "limits": _NOTHING})]
    else:
        containers = [_container("c", a_size(rng, is_equal=is_equal))]
        if rng.random() < 0.15:
            containers.append(_container("d", a_size(rng, is_equal=is_equal)))
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "containers": containers,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        **({"nodeName": node} if node else {}),
    }
    if not is_idle and rng.random() < 0.2:
        more = {"restartPolicy": "Always"} if rng.random() < 0.5 else {}
        spec["initContainers"] = [_container("i", a_size(rng, is_equal=is_equal)) | more]
    if rng.random() < 0.35:
        spec["priorityClassName"] = GOLD
    if rng.random() < 0.3:
        spec["activeDeadlineSeconds"] = 7200
    metadata: dict[str, Any] = {"name": name}
    if is_held(name):
        metadata["finalizers"] = ["torture.example/held"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_held(name: str) -> bool:
    """Say whether a pod of this name has a finalizer: deleted, it stays until that is removed."""
    return name.endswith("7")


def _container(name: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": resources}


def binding(name: str, node: str, *, uid: str = "") -> dict[str, Any]:
    """Give a Binding."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **({"uid": uid} if uid else {})},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
