"""What a kubelet makes of a pod: OOM scores, shares of cpu."""

from __future__ import annotations

from typing import Any

import pytest

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.nodes.kubelet import (
    CpuWeights,
    container_cpu_weights,
    oom_score_adj,
    pod_cpu_weight,
    quadratic_weight,
)
from webhook.quota.objects.model import Pod

CAPACITY = Quantity.parse("10Gi")
CRITICAL: dict[str, Any] = {"priority": 2_000_001_000, "priorityClassName": "system-node-critical"}


def pod(*memory: str, sidecar: str = "", **spec: object) -> Pod:
    """Return a pod whose containers request this memory, and perhaps a sidecar."""
    names = [container(f"c{index}", amount) for index, amount in enumerate(memory)]
    init = [{**container("sidecar", sidecar), "restartPolicy": "Always"}] if sidecar else []
    return Pod.from_object({"spec": {"containers": names, "initContainers": init, **spec}})


def container(name: str, memory: str) -> dict[str, object]:
    requests = {"memory": memory} if memory else {}
    return {"name": name, "resources": {"requests": requests}}


OOM: dict[str, tuple[Pod, int]] = {
    "best effort": (pod(""), 1000),
    "a fifth of the memory": (pod("2Gi"), 800),
    "almost nothing": (pod("1"), 999),
    "all of it": (pod("10Gi"), 3),
    "critical for the node": (pod("1Gi", **CRITICAL), -997),
    "what only the pod as a whole requests is shared": (
        pod("1Gi", "1Gi", resources={"requests": {"memory": "4Gi"}}),
        800,
    ),
}


@pytest.mark.parametrize(("given", "expected"), OOM.values(), ids=OOM.keys())
def test_oom_score_adj_of_the_first_container(given: Pod, expected: int) -> None:
    assert oom_score_adj(given, given.containers[0], CAPACITY) == expected


def test_a_sidecar_is_as_safe_as_the_least_safe_container() -> None:
    given = pod("4Gi", "2Gi", sidecar="1Gi")
    assert oom_score_adj(given, given.init_containers[0], CAPACITY) == 800


def cpu(text: str, limit: str = "") -> Pod:
    limits = {"cpu": limit} if limit else {}
    resources = {"requests": {"cpu": text} if text else {}, "limits": limits}
    return Pod.from_object({"spec": {"containers": [{"name": "c", "resources": resources}]}})


WEIGHTS = {
    "one core": (cpu("1"), 39, CpuWeights(39, 100)),
    "a tenth": (cpu("100m"), 4, CpuWeights(4, 17)),
    "nothing": (cpu(""), 1, CpuWeights(1, 1)),
    "more than there is": (cpu("1000"), 10000, CpuWeights(10000, 10000)),
    "a limit alone": (cpu("", limit="1"), 1, CpuWeights(39, 100)),
}


@pytest.mark.parametrize(("given", "of_pod", "of_container"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_cpu_weights(given: Pod, of_pod: int, of_container: CpuWeights) -> None:
    assert pod_cpu_weight(given) == of_pod
    assert container_cpu_weights(given, given.containers[0]) == of_container


def test_the_curve_goes_through_the_kernels_default() -> None:
    assert [quadratic_weight(shares) for shares in (2, 1024, 262144)] == [1, 100, 10000]
