"""Settings of a kubelet for a pod: protection from OOM kills, shares of cpu.

The QoS class is in `objects.qos`.

Source: kubernetes v1.36, pkg/kubelet/qos/policy.go, helpers.go; pkg/kubelet/cm/helpers_linux.go,
cgroup_manager_linux.go; pkg/kubelet/kuberuntime/kuberuntime_container_linux.go;
opencontainers/cgroups v0.0.6 utils.go.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.pod_requests import (
    container_requests,
    is_pod_level_resource,
    pod_requests,
)
from webhook.quota.nodes.requested import CPU, MEMORY, scheduler_amount
from webhook.quota.objects.model import Container, Pod
from webhook.quota.objects.qos import effective_qos_class

_PROTECTED: Final = -997
_BEST_EFFORT: Final = 1000
_LEAST_BURSTABLE: Final = 3
_NODE_CRITICAL: Final = "system-node-critical"
_CRITICAL_PRIORITY: Final = 2_000_000_000
_SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
_SHARES_PER_CPU: Final = 1024
_MILLI_PER_CPU: Final = 1000
_MIN_SHARES: Final = 2
_MAX_SHARES: Final = 262144
_MAX_WEIGHT: Final = 10000


@dataclass(frozen=True, slots=True)
class CpuWeights:
    """`cpu.weight` of a container's cgroup; which one it gets depends on its runtime's release."""

    linear: int
    """Of runc before 1.3.2 and crun before 1.23: proportional."""
    quadratic: int
    """Of these and later ones: 1024 shares are 100, the kernel's default."""


def oom_score_adj(pod: Pod, container: Container, memory_capacity: Quantity) -> int:
    """Return what the kernel adds to the OOM score of a container: the higher, the sooner killed.

    Burstable containers are between 3 and 999, by the part of the node's memory that they do not
    request. A sidecar is at least as safe as the least safe of the containers.

    Args:
        pod: The pod.
        container: One of its containers or init containers.
        memory_capacity: Memory of the node, more than zero.
    """
    match _oom_class(pod):
        case "Guaranteed":
            return _PROTECTED
        case "BestEffort":
            return _BEST_EFFORT
    share = _unclaimed_memory(pod)
    requested = _memory(container) + share
    if container.restartable:
        least = min(map(_memory, pod.containers), default=0)
        requested = max(requested, least + share)
    adjustment = _BEST_EFFORT - _quotient(_BEST_EFFORT * requested, memory_capacity.value)
    if adjustment < _LEAST_BURSTABLE:
        return _LEAST_BURSTABLE
    return _BEST_EFFORT - 1 if adjustment == _BEST_EFFORT else adjustment


def cpu_shares(millicores: int) -> int:
    """Return the cgroup v1 shares for cpu that is requested."""
    shares = _quotient(millicores * _SHARES_PER_CPU, _MILLI_PER_CPU)
    return min(max(shares, _MIN_SHARES), _MAX_SHARES)


def pod_cpu_weight(pod: Pod) -> int:
    """Return `cpu.weight` of the pod's cgroup, which kubelets set by the linear mapping."""
    if effective_qos_class(pod) == "BestEffort":
        return linear_weight(_MIN_SHARES)
    requests = pod_requests(replace(pod, statuses={}))
    return linear_weight(cpu_shares(_millicores(requests)))


def container_cpu_weights(pod: Pod, container: Container) -> CpuWeights:
    """Return `cpu.weight` of a container's cgroup, by both mappings that runtimes use.

    Where the container requests no cpu, its limit stands for that, or else the pod's.
    """
    shares = cpu_shares(_cpu_of(pod, container))
    return CpuWeights(linear_weight(shares), quadratic_weight(shares))


def linear_weight(shares: int) -> int:
    """Return cgroup v2 weight, proportional: 2 to 262144 shares are 1 to 10000."""
    if shares >= _MAX_SHARES:
        return _MAX_WEIGHT
    return 1 + (shares - _MIN_SHARES) * (_MAX_WEIGHT - 1) // (_MAX_SHARES - _MIN_SHARES)


def quadratic_weight(shares: int) -> int:
    """Return cgroup v2 weight by the curve through 2 → 1, 1024 → 100 and 262144 → 10000."""
    if shares <= _MIN_SHARES:
        return 1
    if shares >= _MAX_SHARES:
        return _MAX_WEIGHT
    log = math.log2(shares)  # in floats, as the runtimes compute it
    return math.ceil(10 ** ((log * log + 125 * log) / 612.0 - 7.0 / 34.0))


def _oom_class(pod: Pod) -> str:
    is_static = pod.annotations.get(_SOURCE_ANNOTATION, "api") != "api"
    is_critical = is_static or pod.is_mirror or (pod.priority or 0) >= _CRITICAL_PRIORITY
    if is_critical and pod.priority_class_name == _NODE_CRITICAL:
        return "Guaranteed"
    return effective_qos_class(pod)


def _unclaimed_memory(pod: Pod) -> int:
    """Return a container's share of the memory that only the pod as a whole requests."""
    requests = pod.resources.requests if pod.resources is not None else {}
    if not any(map(is_pod_level_resource, requests)) or not requests.get(MEMORY):
        return 0
    claimed = container_requests(replace(pod, statuses={})).get(MEMORY, ZERO)
    count = len(pod.containers) + len(pod.init_containers)
    return _quotient(requests[MEMORY].value - claimed.value, count)


def _cpu_of(pod: Pod, container: Container) -> int:
    if CPU in container.requests:
        return _millicores(container.requests)
    limits: Mapping[str, Quantity] = container.limits
    if not limits.get(CPU) and pod.resources is not None:
        limits = pod.resources.limits
    return _millicores(limits)


def _memory(container: Container) -> int:
    return container.requests.get(MEMORY, ZERO).value


def _millicores(resources: ResourceList) -> int:
    return scheduler_amount(CPU, resources.get(CPU, ZERO))


def _quotient(dividend: int, divisor: int) -> int:
    """Divide towards zero, as Go does."""
    quotient = abs(dividend) // divisor
    return quotient if dividend >= 0 else -quotient
