"""Random pods and quotas of the shapes that an API server takes, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.builders import a_container, a_pod, an_expression
from webhook.quota.amounts.quantity import Quantity

Object = dict[str, Any]

GOLD: Final = "differential-gold"
SILVER: Final = "differential-silver"
HEAVY: Final = "differential-heavy"
"""A RuntimeClass whose pods cost more than their containers say."""

CLUSTER_OBJECTS: Final[Mapping[str, Sequence[Object]]] = {
    "/apis/scheduling.k8s.io/v1/priorityclasses": [
        {"metadata": {"name": name}, "value": value} for name, value in ((GOLD, 1000), (SILVER, 10))
    ],
    "/apis/node.k8s.io/v1/runtimeclasses": [
        {
            "metadata": {"name": HEAVY},
            "handler": "heavy",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
        }
    ],
}
"""Path → what pods refer to."""

_CPU: Final = (
    "0", "0.1", "100m", "1", "1.500", "0.5", "333m", "1e-1", "2", "0.0001", "1500m", "100u", "1e3",
    "0.001", "+1", "2500e-3", "1.0", "25e-2",
)  # fmt: skip
_MEMORY: Final = (
    "0", "128974848", "129e6", "129M", "123Mi", "128974848000m", "1Ki", "1k", "1Gi", "1G", "0.5Gi",
    "1.5Gi", "1e3", "100.5", "1e9", "256Mi", "+64Mi", "1024Mi", "1T", "0.1",
)  # fmt: skip

# none like 3e0, which a webhook gets as 3: it cannot know that sums are to be written with exponent
ODD: Final[Mapping[str, Sequence[str]]] = {"cpu": _CPU, "memory": _MEMORY}
"""Amounts in every notation: the notation of their sum depends on which was the first."""

EVEN: Final[Mapping[str, Sequence[str]]] = {
    "cpu": ("0", "100m", "1", "0.5", "333m", "2", "1500m", "1.0", "10"),
    "memory": ("0", "1Ki", "1Gi", "0.5Gi", "1.5Gi", "256Mi", "64Mi", "1024Mi", "1Ti"),
}
"""Amounts in one notation for each resource."""

_HARD_CPU: Final = ("0", "500m", "8", "4", "8.0", "1e1", "2500m", "30", "12", "1e3")
_HARD_MEMORY: Final = ("0", "16Gi", "4Gi", "2G", "3e10", "5368709120", "8Gi", "1.5Gi", "1Ti")
_HARD: Final = {
    "cpu": _HARD_CPU,
    "memory": _HARD_MEMORY,
    "requests.cpu": _HARD_CPU,
    "requests.memory": _HARD_MEMORY,
    "limits.cpu": _HARD_CPU,
    "limits.memory": _HARD_MEMORY,
}

_SELECTORS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {},
    {},
    {"scopes": ["Terminating"]},
    {"scopes": ["NotTerminating"]},
    {"scopes": ["NotBestEffort"]},
    {"scopes": ["PriorityClass"]},
    {"scopes": ["NotTerminating", "NotBestEffort"]},
    {"scopes": ["CrossNamespacePodAffinity"]},
    {"scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "In", GOLD)]}},
    {"scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "In", GOLD, SILVER)]}},
    {"scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "NotIn", GOLD)]}},
    {"scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "Exists")]}},
    {"scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "DoesNotExist")]}},
    {
        "scopeSelector": {
            "matchExpressions": [
                an_expression("PriorityClass", "NotIn", SILVER),
                an_expression("Terminating", "Exists"),
            ]
        }
    },
    {
        "scopes": ["NotBestEffort"],
        "scopeSelector": {"matchExpressions": [an_expression("PriorityClass", "In", SILVER)]},
    },
)

_ELSEWHERE: Final = {
    "podAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "podAffinityTerm": {
                    "labelSelector": {"matchLabels": {"app": "db"}},
                    "topologyKey": "kubernetes.io/hostname",
                    "namespaceSelector": {},
                },
            }
        ]
    }
}


def random_quotas(chance: random.Random) -> dict[str, Object]:
    """Make one to three quotas of deferred resources alone: name → spec."""
    found: dict[str, Object] = {}
    for name in ("alpha", "beta", "gamma")[: chance.choice((1, 1, 2, 3))]:
        hard = {key: chance.choice(_HARD[key]) for key in _some_keys(chance)}
        found[name] = {"hard": hard, **chance.choice(_SELECTORS)}
    return found


def random_pod(chance: random.Random, name: str, amounts: Mapping[str, Sequence[str]]) -> Object:
    """Make a pod without a node and without a namespace, of amounts for each resource."""
    shapes = _shapes(chance)
    containers = [
        a_container(f"c{number}", **_resources(chance, amounts, shapes))
        for number in range(chance.choice((1, 1, 1, 2, 3)))
    ]
    init = [
        a_container(f"i{number}", **_resources(chance, amounts, shapes), **_restarts(chance))
        for number in range(chance.choice((0, 0, 0, 1, 2)))
    ]
    spec: Object = {"schedulerName": "nobody"}
    if chance.random() < 0.5:
        spec["priorityClassName"] = chance.choice((GOLD, SILVER))
    if chance.random() < 0.3:
        spec["activeDeadlineSeconds"] = chance.choice((1, 600))
    if chance.random() < 0.15:
        spec["runtimeClassName"] = HEAVY
    if chance.random() < 0.15:
        spec["affinity"] = _ELSEWHERE
    if chance.random() < 0.2:
        spec["resources"] = _of_whole_pod(chance, amounts)
    made = a_pod(*containers, name=name, init=init, **spec)
    made["metadata"] = {"name": name}
    return made


def grown(chance: random.Random, resources: Object, amounts: Mapping[str, Sequence[str]]) -> Object:
    """Choose larger resources for a container; what shrinks the API server gives back late."""
    old = resources.get("limits") or {}
    limits = {name: _at_least(chance, amounts[name], old[name]) for name in old if name in amounts}
    requests = {**old, **(resources.get("requests") or {})}
    return {
        "limits": limits,
        "requests": {
            name: _at_least(chance, amounts[name], text, limits.get(name, ""))
            for name, text in requests.items()
            if name in amounts
        },
    }


def _some_keys(chance: random.Random) -> list[str]:
    return chance.sample(sorted(_HARD), chance.choice((1, 1, 2, 2, 3, 4)))


def _shapes(chance: random.Random) -> Sequence[str]:
    """Choose how containers say what they need; the first names all that a quota can ask for."""
    return chance.choice(
        (
            ("both", "limit", "equal"),
            ("both", "equal"),
            ("request", "both", "limit", "none"),
            ("none",),
        )
    )


def _restarts(chance: random.Random) -> Object:
    return {"restartPolicy": "Always"} if chance.random() < 0.5 else {}


def _resources(
    chance: random.Random, amounts: Mapping[str, Sequence[str]], shapes: Sequence[str]
) -> Object:
    """Choose requests and limits: a limit is never below its request."""
    requests: Object = {}
    limits: Object = {}
    for resource, texts in amounts.items():
        request = chance.choice(texts)
        shape = chance.choice(shapes)
        if shape in ("request", "both", "equal"):
            requests[resource] = request
        if shape == "both":
            limits[resource] = _at_least(chance, texts, request)
        if shape in ("limit", "equal"):
            limits[resource] = request
    if chance.random() < 0.05:
        limits["nvidia.com/gpu"] = "1"
    return {"requests": requests or None, "limits": limits or None}


def _of_whole_pod(chance: random.Random, amounts: Mapping[str, Sequence[str]]) -> Object:
    """Choose resources of a pod as a whole; some are too small for its containers."""
    resources = chance.sample(sorted(amounts), chance.choice((1, 2)))
    requests = {name: chance.choice(amounts[name]) for name in resources}
    found: Object = {"requests": requests}
    if chance.random() < 0.6:
        found["limits"] = {
            name: _at_least(chance, amounts[name], request) for name, request in requests.items()
        }
    return found


def _at_least(chance: random.Random, amounts: Sequence[str], least: str, most: str = "") -> str:
    floor = Quantity.parse(least)
    larger = [text for text in amounts if Quantity.parse(text) >= floor]
    if most:
        larger = [text for text in larger if Quantity.parse(text) <= Quantity.parse(most)]
    return chance.choice(larger)
