"""LimitRanges: what they add to containers, and what they refuse, in the API server's words.

Source: kubernetes v1.36, plugin/pkg/admission/limitranger/admission.go;
pkg/apis/core/v1/defaults.go SetDefaults_LimitRangeItem.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.pod_requests import pod_limits, pod_requests
from webhook.quota.objects.model import Pod

_CONTAINER: Final = "Container"
_POD: Final = "Pod"
_CLAIM: Final = "PersistentVolumeClaim"
_LISTS: Final = ("containers", "initContainers")
_MILLION: Final = 10**6


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """The limits of one type of object."""

    type: str
    min: ResourceList
    max: ResourceList
    default: ResourceList
    """Limits of containers that have none."""
    default_request: ResourceList
    ratio: ResourceList
    """How many times its request a limit may be."""


@dataclass(frozen=True, slots=True)
class LimitRange:
    """A LimitRange, its own defaults filled in."""

    name: str
    items: tuple[LimitRangeItem, ...]

    @classmethod
    def from_object(cls, raw: Mapping[str, object], *, field: str = "") -> LimitRange:
        """Read a LimitRange.

        Raises:
            InvalidFieldError: A field has the wrong type.
            InvalidQuantityError: An amount is not a quantity.
        """
        root = ResourceReader(raw, field)
        items = root.child("spec").children("limits")
        return cls(root.child("metadata").text("name"), tuple(map(_item, items)))


def with_defaults(raw: Mapping[str, object], ranges: Iterable[LimitRange]) -> Mapping[str, object]:
    """Return a pod with the amounts that LimitRanges add to its containers.

    Args:
        raw: The pod as the API server decodes it; see `defaults.default_pod`.
        ranges: Those of its namespace, in the order in which they are applied.
    """
    for one in ranges:
        limits, requests = _defaults(one)
        if limits or requests:
            raw = _merged(raw, limits, requests)
    return raw


def violations(pod: Pod, limit_range: LimitRange) -> tuple[str, ...]:
    """Return what a LimitRange has against a pod, in the API server's words."""
    bare = replace(pod, overhead={}, statuses={})
    found: list[str] = []
    for item in limit_range.items:
        if item.type == _CONTAINER:
            for one in (*pod.containers, *pod.init_containers):
                found += _against(item, one.requests, one.limits)
        elif item.type == _POD:
            found += _against(item, pod_requests(bare), pod_limits(bare))
    return tuple(dict.fromkeys(found))


def claim_violations(requests: ResourceList, limit_range: LimitRange) -> tuple[str, ...]:
    """Return what a LimitRange has against a PersistentVolumeClaim with these requests."""
    found: list[str] = []
    for item in limit_range.items:
        if item.type == _CLAIM:
            found += _below(item, requests, {})
            found += _above_request(item, requests)
    return tuple(dict.fromkeys(found))


def joined(errors: Sequence[str]) -> str:
    """Return errors as the API server joins them."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _item(node: ResourceReader) -> LimitRangeItem:
    kind = node.text("type")
    low, high = node.resource_list("min"), node.resource_list("max")
    default = dict(node.resource_list("default"))
    request = dict(node.resource_list("defaultRequest"))
    if kind == _CONTAINER:
        default = {**high, **default}
        request = {**low, **default, **request}
    return LimitRangeItem(
        kind, low, high, default, request, node.resource_list("maxLimitRequestRatio")
    )


def _defaults(limit_range: LimitRange) -> tuple[dict[str, str], dict[str, str]]:
    limits: dict[str, str] = {}
    requests: dict[str, str] = {}
    for item in limit_range.items:
        if item.type == _CONTAINER:
            limits.update({name: str(amount) for name, amount in item.default.items()})
            requests.update({name: str(amount) for name, amount in item.default_request.items()})
    return limits, requests


def _merged(
    raw: Mapping[str, object], limits: Mapping[str, str], requests: Mapping[str, str]
) -> Mapping[str, object]:
    spec = dict(_mapping(raw.get("spec")))
    for name in _LISTS:
        containers = spec.get(name)
        if isinstance(containers, list):
            spec[name] = [_filled(_mapping(one), limits, requests) for one in containers]
    return {**raw, "spec": spec}


def _filled(
    container: Mapping[str, object], limits: Mapping[str, str], requests: Mapping[str, str]
) -> Mapping[str, object]:
    resources = _mapping(container.get("resources"))
    return {
        **container,
        "resources": {
            **resources,
            "limits": {**limits, **_mapping(resources.get("limits"))},
            "requests": {**requests, **_mapping(resources.get("requests"))},
        },
    }


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _against(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    yield from _below(item, requests, limits)
    yield from _above(item, requests, limits)
    yield from _ratio(item, requests, limits)


def _below(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, least in sorted(item.min.items()):
        rule = f"minimum {name} usage per {item.type} is {least}"
        if name not in requests:
            yield f"{rule}.  No request is specified"
        elif requests[name] < least:
            yield f"{rule}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{rule}, but limit is {limits[name]}"


def _above(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, most in sorted(item.max.items()):
        rule = f"maximum {name} usage per {item.type} is {most}"
        if name not in limits:
            yield f"{rule}.  No limit is specified"
        elif limits[name] > most:
            yield f"{rule}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{rule}, but request is {requests[name]}"


def _above_request(item: LimitRangeItem, requests: ResourceList) -> Iterator[str]:
    for name, most in sorted(item.max.items()):
        rule = f"maximum {name} usage per {item.type} is {most}"
        if name not in requests:
            yield f"{rule}.  No request is specified"
        elif requests[name] > most:
            yield f"{rule}, but request is {requests[name]}"


def _ratio(item: LimitRangeItem, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, most in sorted(item.ratio.items()):
        rule = f"{name} max limit to request ratio per {item.type} is {most}"
        request, limit = requests.get(name), limits.get(name)
        if request is None or not request.nano:
            yield f"{rule}, but no request is specified or request is 0"
        elif limit is None or not limit.nano:
            yield f"{rule}, but no limit is specified or limit is 0"
        elif limit.nano * Quantity.parse("1").nano > most.nano * request.nano:
            yield f"{rule}, but provided ratio is {decimal(limit.nano, request.nano)}"


def decimal(limit: int, request: int) -> str:
    """Return a quotient with six decimals, as Go prints it."""
    whole, rest = divmod((limit * _MILLION * 2 + request) // (request * 2), _MILLION)
    return f"{whole}.{rest:06d}"
