"""Fill in, and drop, what the API server does of objects that are not stored yet.

`created_pod` drops the state that a client wrote into a new pod. The others fill in, for manifests
that no API server has seen, and only resources: every other field is handed on as it is, in
structures shared with the manifest, which is not changed. Objects that came from the API server are
already defaulted; defaulting them again changes nothing.

The API server defaults pods, not the templates of Jobs and Deployments: to estimate what a
template will cost, default a pod that has the template's spec.

Source: kubernetes v1.36, pkg/apis/core/v1/defaults.go SetDefaults_Pod, SetDefaults_ResourceList.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from webhook.quota.amounts.quantity import Format, Quantity, QuantityText
from webhook.quota.charging.pod_requests import (
    container_limits,
    container_requests,
    is_pod_level_resource,
)
from webhook.quota.objects.model import Pod, PodResources, ResourceQuota
from webhook.quota.objects.names import is_hugepages

_Object = dict[str, object]

_CONTAINER_LISTS: Final = ("containers", "initContainers")
_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses")
_OVERCOMMITTED: Final = ("cpu", "memory")
_NANO_PER_MILLI: Final = 10**6
_CUT_OFF: Final = 2**63
_DROPPED_METADATA: Final = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds"})


def created_pod(raw: Mapping[str, object]) -> Mapping[str, object]:
    """Return a new pod as the API server stores it, as far as its state goes.

    A client may write any state into the pod that it creates, and a mutating webhook is shown that.
    The API server stores none of it: the phase becomes Pending, a deletion goes. `status.qosClass`
    alone survives. Parts of a wrong type stay as they are.

    Source: kubernetes v1.36, pkg/registry/core/pod/strategy.go PrepareForCreate;
    apiserver/pkg/registry/rest/meta.go WipeObjectMetaSystemFields.
    """
    pod = dict(raw)
    status, metadata = raw.get("status"), raw.get("metadata")
    if isinstance(status, Mapping):
        kept = {"qosClass": status["qosClass"]} if "qosClass" in status else {}
        pod["status"] = {"phase": "Pending", **kept}
    if isinstance(metadata, Mapping) and not _DROPPED_METADATA.isdisjoint(metadata):
        pod["metadata"] = {
            name: value for name, value in metadata.items() if name not in _DROPPED_METADATA
        }
    return pod


def default_pod(raw: Mapping[str, object], *, field: str = "") -> dict[str, object]:
    """Return the pod as the API server would hand it to admission, as far as resources go.

    - A container's missing requests become its limits.
    - With `spec.resources`: missing limits of huge pages become the containers' sum; where there
      are limits, missing requests of cpu and memory become the containers' sum, or else the
      limit.
    - Every amount is rounded up to a multiple of 0.001. One that needs no rounding stays as it
      was written.

    Args:
        raw: A decoded manifest of a pod.
        field: YAML path of the pod itself, for messages.

    Raises:
        InvalidFieldError: A field that quota reads has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    Pod.from_object(raw, field=field)  # from here on the types are known to be right
    spec = _object(raw.get("spec"))
    for name in _CONTAINER_LISTS:
        if spec.get(name):
            spec[name] = [_with_requests(container) for container in _list(spec[name])]
    if spec.get("resources") is not None:
        pod = Pod.from_object({**raw, "spec": spec})
        spec["resources"] = _with_pod_level(_object(spec["resources"]), pod)
    defaulted: _Object = {**raw, "spec": _rounded_spec(spec)}
    if raw.get("status"):
        defaulted["status"] = _rounded_status(_object(raw["status"]))
    return defaulted


def with_pod_level_defaults(pod: Pod) -> Pod:
    """Return a pod with what the API server fills into its `spec.resources`.

    From 1.37 on that is after mutating admission, and a missing limit becomes the containers' sum,
    or else the request where that is larger, if all containers have a limit.

    Source: kubernetes v1.37, pkg/api/pod/util.go DefaultPodLevelResources.
    """
    if pod.resources is None or not (pod.resources.requests or pod.resources.limits):
        return pod
    limits = _pod_level_limits(pod)
    requests = _pod_level_requests(pod, limits)
    summed, containers = container_limits(pod), (*pod.containers, *pod.init_containers)
    for name, amount in requests.items():
        if is_pod_level_resource(name) and all(name in one.limits for one in containers):
            limits.setdefault(name, max(amount, summed.get(name, amount)))
    return replace(pod, resources=PodResources(requests, limits))


def has_defaults(pod: Pod) -> bool:
    """Return whether `default_pod` has nothing to fill in or to round of a pod that was read.

    False may also mean that it was not looked at closely enough.
    """
    if pod.resources is not None or pod.overhead or pod.statuses:
        return False
    return all(
        one.limits.keys() <= one.requests.keys()
        and all(
            amount.nano % _NANO_PER_MILLI == 0
            for amounts in (one.requests, one.limits)
            for amount in amounts.values()
        )
        for one in (*pod.containers, *pod.init_containers)
    )


def default_quota(raw: Mapping[str, object], *, field: str = "") -> dict[str, object]:
    """Return the quota as the API server would store it: amounts are multiples of 0.001.

    Args:
        raw: A decoded manifest of a ResourceQuota.
        field: YAML path of the quota itself, for messages.

    Raises:
        InvalidFieldError: A field that is read has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    ResourceQuota.from_object(raw, field=field)
    parts = {name: _object(raw[name]) for name in ("spec", "status") if raw.get(name)}
    return {**raw, **{name: _rounded(part, "hard", "used") for name, part in parts.items()}}


def _with_requests(container: object) -> _Object:
    filled = _object(container)
    resources = _object(filled.get("resources"))
    limits = _object(resources.get("limits"))
    if limits:
        requests = {**limits, **_object(resources.get("requests"))}
        filled["resources"] = {**resources, "requests": requests}
    return filled


def _with_pod_level(resources: _Object, pod: Pod) -> _Object:
    """Return `spec.resources` filled in; what was written there stays as it was written."""
    bare = replace(pod, statuses={})  # a resize under way does not matter here
    limits = _pod_level_limits(bare)
    maps = {"limits": limits, "requests": _pod_level_requests(bare, limits)}
    filled = {
        name: {key: _text(amount) for key, amount in amounts.items()} | _object(resources.get(name))
        for name, amounts in maps.items()
        if amounts
    }
    return {**resources, **filled}


def _pod_level_limits(pod: Pod) -> dict[str, Quantity]:
    if pod.resources is None or not (pod.resources.limits or pod.resources.requests):
        return {}
    hugepages = {
        name: amount
        for name, amount in container_limits(pod).items()
        if is_hugepages(name) and name not in pod.resources.requests
    }
    return {**hugepages, **pod.resources.limits}


def _pod_level_requests(pod: Pod, limits: Mapping[str, Quantity]) -> dict[str, Quantity]:
    requests = {} if pod.resources is None else dict(pod.resources.requests)
    if not limits:
        return requests
    wanted = container_requests(pod)
    summed: dict[str, Quantity] = {name: wanted[name] for name in _OVERCOMMITTED if name in wanted}
    limited = {name: limit for name, limit in limits.items() if is_pod_level_resource(name)}
    return {**limited, **summed, **requests}


def _rounded_spec(spec: _Object) -> _Object:
    rounded = _rounded(spec, "overhead")
    for name in _CONTAINER_LISTS:
        if spec.get(name):
            rounded[name] = [_with_rounded_resources(item) for item in _list(spec[name])]
    return _with_rounded_resources(rounded)


def _rounded_status(status: _Object) -> _Object:
    """Round what kubelets report; allocations without `resources` are nowhere read."""
    rounded = dict(status)
    for name in _STATUS_LISTS:
        if status.get(name):
            rounded[name] = [_rounded_container_status(item) for item in _list(status[name])]
    return rounded


def _rounded_container_status(status: object) -> _Object:
    fields = _with_rounded_resources(status)
    return _rounded(fields, "allocatedResources") if fields.get("resources") is not None else fields


def _with_rounded_resources(holder: object) -> _Object:
    fields = _object(holder)
    if fields.get("resources"):
        fields["resources"] = _rounded(_object(fields["resources"]), "requests", "limits")
    return fields


def _rounded(holder: _Object, *names: str) -> _Object:
    """Return the object with its members of these names rounded, which are resource lists."""
    lists = {name: _object(holder[name]) for name in names if holder.get(name)}
    return {
        **holder,
        **{
            name: {key: _rounded_amount(amount) for key, amount in amounts.items()}
            for name, amounts in lists.items()
        },
    }


def _rounded_amount(written: object) -> object:
    amount = Quantity.from_json(written)
    rounded = amount.rounded_to_milli()
    return written if rounded == amount else _text(rounded)


def _text(amount: Quantity) -> str:
    """Return text that is read as the same amount, even where the platform's own is not.

    That one lacks suffixes beyond E, and with a binary suffix it is cut off at 2^63 - 1. Nor
    does it always tell the format, in which sums are printed: see `QuantityText`.
    """
    is_plain = amount.is_storable and abs(amount.value) < _CUT_OFF
    text = str(amount if is_plain else Quantity.of_nano(amount.nano, Format.EXP))
    tells_all = not is_plain or Quantity.parse(text).format is amount.format
    return text if tells_all else QuantityText(amount)


def _object(value: object) -> _Object:
    """Return a copy of an object; null, the only other value left, is one without fields."""
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, Sequence) else []
