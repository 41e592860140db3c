"""ClusterDeferredQuotas that are sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.builders import an_expression

Object = dict[str, Any]
GPU: Final = "requests.nvidia.com/gpu"
TEAM: Final = {"matchLabels": {"team": "blue"}}


def a_cluster_quota(
    *, hard: Mapping[str, object] | None = None, selector: object = None, **spec: object
) -> Object:
    """Make one that is sound unless something is given."""
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "team-total"},
        "spec": {
            "namespaceSelector": TEAM if selector is None else selector,
            "hard": {"requests.cpu": "20"} if hard is None else hard,
            **spec,
        },
    }


SOUND: Final[dict[str, Object]] = {
    "one limit": a_cluster_quota(),
    "a number for a quantity": a_cluster_quota(hard={"limits.cpu": 20}),
    "every namespace": a_cluster_quota(selector={}),
    "an extended resource that is deferred": a_cluster_quota(hard={GPU: "8"}),
    "an extended resource": a_cluster_quota(hard={"requests.example.com/gpu": "8"}),
    "GPU memory": a_cluster_quota(hard={"nos.nebuly.com/gpu-memory": "80"}),
    "GPU memory of larger GPUs": a_cluster_quota(hard={"nos.nebuly.com/gpu-memory.40gb": "80"}),
    "expressions": a_cluster_quota(
        selector={
            "matchExpressions": [
                {"key": "example.com/team", "operator": "In", "values": ["blue", ""]},
                {"key": "team", "operator": "Exists"},
                {"key": "team", "operator": "DoesNotExist", "values": []},
            ]
        }
    ),
    "a class of pods": a_cluster_quota(
        scopeSelector={"matchExpressions": [an_expression("PriorityClass", "In", "gold")]}
    ),
    "scopes": a_cluster_quota(scopes=["NotTerminating", "NotBestEffort"]),
}
