"""Quality of service, by which the BestEffort scopes of a quota choose pods.

Source: kubernetes v1.36, pkg/apis/core/v1/helper/qos/qos.go ComputePodQOS, GetPodQOS.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Literal, cast

from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.constraints import states_pod_level
from webhook.quota.objects.model import Container, Pod, PodResources

QosClass = Literal["Guaranteed", "Burstable", "BestEffort"]

_COUNTED: Final = ("cpu", "memory")


def qos_class(pod: Pod) -> QosClass:
    """Return the class that the pod's spec earns, whatever its status claims.

    Only positive amounts of cpu and memory count, of containers and init containers. A pod with
    `spec.resources`, even empty ones, is judged by these alone. It is worked out once: each quota
    may ask for it, and a pod have thousands of containers.
    """
    found = cast("QosClass", pod._earned_qos)  # noqa: SLF001 - the slot is there for this function
    if not found:
        found = _earned_by(pod)
        object.__setattr__(pod, "_earned_qos", found)
    return found


def _earned_by(pod: Pod) -> QosClass:
    judged: tuple[Container | PodResources, ...] = (*pod.containers, *pod.init_containers)
    if pod.resources is not None:
        judged = (pod.resources,)
    requests = _total(each.requests for each in judged)
    limits = _total(each.limits for each in judged)
    if not requests and not limits:
        return "BestEffort"
    if requests == limits and all(_is_limited(each.limits) for each in judged):
        return "Guaranteed"
    return "Burstable"


def effective_qos_class(pod: Pod) -> str:
    """Return the class on record in the status, or else the one that the spec earns.

    The status of a pod that is not stored yet is what its client sent: use `qos_class` there.
    """
    return pod.qos_class or qos_class(pod)


def forged_qos_class(pod: Pod) -> str:
    """Return a sentence about a class on record that the spec does not earn; empty without one.

    The API server stores whatever class a client writes into a new pod, and by it quotas choose.
    Of a pod whose `spec.resources` state nothing that one from 1.37 on looks at the containers.

    Source: kubernetes v1.37, pkg/apis/core/helper/qos/qos.go ComputePodQOS.
    """
    computed = qos_class(pod)
    if pod.qos_class in ("", computed):
        return ""
    if not states_pod_level(pod) and pod.qos_class == qos_class(replace(pod, resources=None)):
        return ""
    return f"status.qosClass: {pod.qos_class} is not what the pod's resources make it: {computed}"


def _total(lists: Iterable[ResourceList]) -> dict[str, int]:
    """Sum positive amounts of cpu and memory, in nano units."""
    total: dict[str, int] = {}
    for amounts in lists:
        for name in _COUNTED:
            amount = amounts.get(name)
            if amount is not None and amount.nano > 0:
                total[name] = total.get(name, 0) + amount.nano
    return total


def _is_limited(limits: ResourceList) -> bool:
    return all(name in limits and limits[name].nano > 0 for name in _COUNTED)
