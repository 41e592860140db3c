"""Requests of pods on nodes, in the scheduler's units: millicores of cpu, whole units else.

Amounts are rounded up per pod. One beyond 64 bits is the largest there is; sums never overflow.

Source: kubernetes v1.36, pkg/scheduler/framework/types.go CalculateResource, Resource.Add;
pkg/scheduler/util/pod_resources.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.quantity import ZERO, Format, Quantity
from webhook.quota.amounts.resources import ResourceList, max_of
from webhook.quota.charging.pod_requests import (
    is_pod_level_resource,
    pod_requests,
    without_overhead,
)
from webhook.quota.nodes.brief_pods import BriefPod
from webhook.quota.objects.model import Container, ContainerStatus, Pod, PodResources
from webhook.quota.objects.names import cached_by_name, is_extended_resource, is_hugepages
from webhook.quota.objects.pod_templates import if_short, template_key

Amounts: TypeAlias = Mapping[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"

_NANO_PER_MILLI: Final = 10**6
_LARGEST: Final = 2**63 - 1
_TEMPLATES: Final = 1024
_KEPT_NAMES: Final = 64
"""Resources of a pod that are kept; those of usual pods are two."""
_FIRST_KEPT: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_MISSING_REQUESTS: Final = {CPU: Quantity.parse("100m"), MEMORY: Quantity.parse("200Mi")}
"""Counted for scores only, for a container that does not request the resource."""
_SPEC_FIELDS: Final = ("overhead", "resources")
_CONTAINER_FIELDS: Final = ("name", "resources", "restartPolicy")


@dataclass(frozen=True, slots=True)
class Requested:
    """Requests of one pod on its node."""

    amounts: Amounts
    scored_cpu: int
    scored_memory: int


def requested_of(raw: Mapping[str, object], *, field: str = "") -> Requested:
    """Return what a pod with a node takes of it; of pods that agree in that, read once.

    Args:
        raw: The pod's API object.
        field: YAML path of the pod itself, for messages.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    if isinstance(raw, BriefPod):
        key = if_short(raw.template)
    else:
        key = template_key(raw, _SPEC_FIELDS, _CONTAINER_FIELDS)
    try:
        if key is not None:
            return _requested_by_template(key)
    except InvalidFieldError:
        pass  # the whole object says where the field is
    return _requested(Pod.from_stored(raw, field=field))


def held_amounts(pod: Pod) -> Amounts:
    """Return what a pod on a node takes of it as the kubelet counts: as it was admitted there.

    A resize that the kubelet has not taken counts no more than what it has set aside. One that
    reports nothing has the requests of its spec.

    Source: kubernetes v1.36, pkg/kubelet/allocation/allocation_manager.go UpdatePodFromAllocation.
    """

    def allocated(container: Container) -> Container:
        status = pod.statuses.get(container.name)
        if status is None or not status.allocated:
            return container
        return replace(container, requests=status.allocated)

    whole = pod.resources
    if whole is not None and pod.reported is not None and pod.reported.allocated:
        whole = replace(whole, requests=without_overhead(pod.reported.allocated, pod))
    held = replace(
        pod,
        containers=tuple(map(allocated, pod.containers)),
        init_containers=tuple(map(allocated, pod.init_containers)),
        resources=whole,
    )
    return {**scheduler_amounts(pod_requests(held)), PODS: 1}


def kept_requested(requested: Requested) -> Requested:
    """Return what a pod takes with no more of it than is kept of very many pods."""
    return replace(requested, amounts=kept_amounts(requested.amounts))


def kept_amounts(amounts: Amounts) -> Amounts:
    """Return amounts with no more of them than are kept of very many pods.

    The creator of a pod decides how many resources it names. Those of which it asks for nothing
    weigh nothing, and what every pod takes is always kept.
    """
    names = [name for name in _FIRST_KEPT if name in amounts]
    names += [name for name in amounts if name not in _FIRST_KEPT and amounts[name]]
    return {name: amounts[name] for name in names[:_KEPT_NAMES]}


def pending_amounts(pod: Pod) -> Amounts:
    """Return what a pod without a node asks for: its spec's requests, whatever its status says.

    Source: kubernetes v1.36, noderesources/fit.go computePodResourceRequest.
    """
    return {**scheduler_amounts(pod_requests(replace(pod, statuses={}))), PODS: 1}


def scored_amounts(pod: Pod) -> Amounts:
    """Return what a pod without a node counts in scores.

    Source: kubernetes v1.36, noderesources/resource_allocation.go calculatePodResourceRequest.
    """
    unassigned = replace(pod, statuses={})
    return scheduler_amounts(pod_requests(_without_missing(unassigned, _MISSING_REQUESTS)))


def scheduler_amounts(resources: ResourceList) -> dict[str, int]:
    """Return amounts in the scheduler's units; resources that it does not look at are left out."""
    return {
        name: scheduler_amount(name, amount)
        for name, amount in resources.items()
        if is_scheduled(name)
    }


def scheduler_amount(name: str, amount: Quantity) -> int:
    """Return an amount in millicores for cpu, in whole units for all else, rounded up."""
    return min(_LARGEST, -(-amount.nano // _NANO_PER_MILLI) if name == CPU else amount.value)


def as_quantity(name: str, amount: int) -> Quantity:
    """Return an amount in the scheduler's units as a quantity."""
    if name == CPU:
        return Quantity.of_nano(amount * _NANO_PER_MILLI)
    is_binary = name in {MEMORY, EPHEMERAL_STORAGE} or is_hugepages(name)
    return Quantity.of_units(amount, Format.BIN if is_binary else Format.SI)


@cached_by_name
def is_scheduled(name: str) -> bool:
    """Return whether the scheduler counts the resource.

    Source: kubernetes v1.36, pkg/scheduler/util/utils.go IsScalarResourceName.
    """
    if name in {CPU, MEMORY, PODS, EPHEMERAL_STORAGE} or is_hugepages(name):
        return True
    is_scalar = "kubernetes.io/" in name or name.startswith("attachable-volumes-")
    return is_scalar or is_extended_resource(name)


def _requested(pod: Pod) -> Requested:
    pod = _with_reported(pod)
    requests = pod_requests(pod)
    scored = pod_requests(_without_missing(pod, _missing_requests(pod, requests)))
    amounts = scheduler_amounts(requests)
    amounts[PODS] = 1
    return Requested(
        amounts,
        scheduler_amount(CPU, scored[CPU]) if CPU in scored else 0,
        scheduler_amount(MEMORY, scored[MEMORY]) if MEMORY in scored else 0,
    )


def _with_reported(pod: Pod) -> Pod:
    """Return the pod with pod-level requests that are as large as what its node has set aside.

    Like the scheduler it counts the overhead in that twice.

    Quota does not look at these (see `pod_usage.charged_to`), the scheduler does.

    Source: kubernetes v1.36, component-helpers/resource/helpers.go PodRequests with
    InPlacePodLevelResourcesVerticalScalingEnabled.
    """
    if pod.reported is None or pod.resources is None:
        return pod
    wanted, held = pod.resources.requests, max_of(pod.reported.requests, pod.reported.allocated)
    effective = held if pod.resize_infeasible else max_of(wanted, held)
    requests = {name: effective.get(name, ZERO) for name in wanted}
    return replace(pod, resources=PodResources(requests, pod.resources.limits))


def _missing_requests(pod: Pod, requests: ResourceList) -> ResourceList:
    """Return what counts for containers without requests, by resource.

    Source: kubernetes v1.36, pkg/scheduler/framework/types.go getNonMissingContainerRequests.
    """
    wanted = pod.resources.requests if pod.resources is not None else {}
    if not any(map(is_pod_level_resource, wanted)):
        return _MISSING_REQUESTS
    return {name: amount for name, amount in _MISSING_REQUESTS.items() if name not in requests}


def _without_missing(pod: Pod, missing: ResourceList) -> Pod:
    """Return the pod with these requests where a container has none.

    They stand in what its node reports of a container, where it does so and that counts.
    """
    running = [*pod.containers, *(one for one in pod.init_containers if one.restartable)]
    statuses = {
        one.name: _filled_status(pod.statuses[one.name], one, missing, pod)
        for one in running
        if one.name in pod.statuses
    }

    def filled(container: Container) -> Container:
        if container.name in statuses:
            return container
        return replace(container, requests={**missing, **container.requests})

    return replace(
        pod,
        containers=tuple(map(filled, pod.containers)),
        init_containers=tuple(map(filled, pod.init_containers)),
        statuses=statuses,
    )


def _filled_status(
    status: ContainerStatus, container: Container, missing: ResourceList, pod: Pod
) -> ContainerStatus:
    wanted: ResourceList = {} if pod.resize_infeasible else container.requests
    stated = status.requests.keys() | status.allocated.keys() | wanted.keys()
    added = {name: amount for name, amount in missing.items() if name not in stated}
    return replace(status, requests={**added, **status.requests})


@lru_cache(maxsize=_TEMPLATES)
def _requested_by_template(key: bytes) -> Requested:
    raw = decode_json(key)
    assert isinstance(raw, dict)  # noqa: S101 - only this module makes keys
    return _requested(Pod.from_stored(raw))
