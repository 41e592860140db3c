"""Requests of a pod as a whole, by resource name, before they become quota keys.

An amount that nothing was added to keeps its text, as in the API server's messages; of equal
amounts the one that was there first stays.

Source: kubernetes v1.36, component-helpers/resource/helpers.go PodRequests and PodLimits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import (
    ResourceList,
    add_to,
    mask,
    positive_part,
    subtract,
    total_of,
)
from webhook.quota.objects.model import Container, Pod
from webhook.quota.objects.names import is_hugepages

_Amounts: TypeAlias = dict[str, Quantity]
_Reader: TypeAlias = Callable[[Container], ResourceList]

_REQUESTS: Final[_Reader] = attrgetter("requests")
_LIMITS: Final[_Reader] = attrgetter("limits")


def pod_requests(pod: Pod) -> dict[str, Quantity]:
    """Return the requests of the pod: its containers', pod-level ones, and overhead.

    A pod-level amount stands for the containers' sum, even a higher one. Overhead is added to
    every resource that it names, whether or not a container asks for that.
    """
    requests = container_requests(pod)
    if pod.resources is not None:
        requests.update(_pod_level(pod.resources.requests))
    if pod.overhead:
        add_to(requests, pod.overhead)
    return requests


def pod_limits(pod: Pod) -> dict[str, Quantity]:
    """Return the limits of the pod: its containers', pod-level ones, and overhead.

    Overhead is added only where there already is a limit other than zero.
    """
    limits = container_limits(pod)
    if pod.resources is not None:
        limits.update(_pod_level(pod.resources.limits))
    for name, amount in pod.overhead.items():
        if limits.get(name):
            limits[name] += amount
    return limits


def container_requests(pod: Pod) -> dict[str, Quantity]:
    """Return what the containers request together at the moment when that is most.

    Of a container whose node reports its resources, the largest counts of what is wanted, what
    is in force and what the node has set aside; what is wanted is left out if the node has said
    that it can never grant it. Of init containers that run to their end the spec alone counts,
    although they can be resized, too; `pod_usage.charged_to` charges what is in force of them.
    """
    if not pod.statuses:
        return _peak(pod, _REQUESTS, _REQUESTS)
    return _peak(pod, _REQUESTS, lambda container: _requests_in_resize(container, pod))


def container_limits(pod: Pod) -> dict[str, Quantity]:
    """Return the containers' limits together, counted as `container_requests` counts."""
    if not pod.statuses:
        return _peak(pod, _LIMITS, _LIMITS)
    return _peak(pod, _LIMITS, lambda container: _limits_in_resize(container, pod))


def without_overhead(reported: ResourceList, pod: Pod) -> ResourceList:
    """Return what a kubelet reports of a pod as a whole without the overhead, which is added again.

    It is in what the node has set aside, and in what is read of the pod's cgroup.

    Source: kubernetes v1.36.3, pkg/kubelet/kubelet_pods.go convertStatusToAPIStatus,
    convertToAPIPodLevelResourcesStatus; v1.35 and v1.37 alike.
    """
    return positive_part(subtract(reported, mask(pod.overhead, reported)))


def is_pod_level_resource(name: str) -> bool:
    """Return whether the resource can be given for a pod as a whole; others are ignored there."""
    return name in {"cpu", "memory"} or is_hugepages(name)


def _peak(pod: Pod, starting: _Reader, running: _Reader) -> _Amounts:
    """Return the largest need in the life of the pod, resource by resource.

    Init containers run one after another, each beside the sidecars started before it; the
    containers run beside all sidecars.

    Args:
        starting: Reads the amounts of an init container that runs to its end.
        running: Reads the amounts of a container or sidecar.
    """
    total = total_of(map(running, pod.containers))
    if not pod.init_containers:
        return total
    sidecars: _Amounts = {}
    highest: _Amounts = {}
    for container in pod.init_containers:
        amounts = running(container) if container.restartable else starting(container)
        if container.restartable:
            add_to(total, amounts)
            add_to(sidecars, amounts)
            needed = _of_names(sidecars, amounts)
        else:
            needed = total_of((amounts, _of_names(sidecars, amounts)))
        # what this one does not name is as high already as all sidecars before it: to look at all
        # names each time would take the square of the number of containers
        _raise_to(highest, needed)
    _raise_to(total, highest)
    return total


def _requests_in_resize(container: Container, pod: Pod) -> ResourceList:
    status = pod.statuses.get(container.name)
    if status is None:
        return container.requests
    reported = (status.requests, status.allocated)
    return _largest(reported if pod.resize_infeasible else (container.requests, *reported))


def _limits_in_resize(container: Container, pod: Pod) -> ResourceList:
    status = pod.statuses.get(container.name)
    if status is None:
        return container.limits
    return status.limits if pod.resize_infeasible else _largest((container.limits, status.limits))


def _pod_level(resources: ResourceList) -> _Amounts:
    return {name: amount for name, amount in resources.items() if is_pod_level_resource(name)}


def _of_names(resources: _Amounts, names: ResourceList) -> _Amounts:
    return {name: resources[name] for name in names if name in resources}


def _largest(lists: Iterable[ResourceList]) -> _Amounts:
    largest: _Amounts = {}
    for amounts in lists:
        _raise_to(largest, amounts)
    return largest


def _raise_to(total: _Amounts, amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        before = total.get(name)
        if before is None or amount.nano > before.nano:
            total[name] = amount
