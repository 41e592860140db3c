"""Rules for the objects that limit others: quotas, LimitRanges and PriorityClasses.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go ValidateLimitRange;
pkg/apis/scheduling/validation/validation.go ValidatePriorityClass; for quotas see
`objects.quota_validation`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.checking.classes import SYSTEM_CLASSES, PriorityClass
from webhook.quota.checking.limit_ranges import LimitRange, LimitRangeItem, decimal
from webhook.quota.elastic.elastic_quotas import elastic_quota_errors
from webhook.quota.jobs.resource_rules import container_name_errors, resource_name_errors
from webhook.quota.objects.names import is_hugepages, is_native, qualified_name_errors
from webhook.quota.objects.quota_validation import quota_errors
from webhook.quota.shared.cluster_quota_validation import cluster_quota_errors

_Object: TypeAlias = Mapping[str, object]

CLUSTER_QUOTAS: Final = "clusterdeferredquotas.deferredquota.io"
_QUOTA: Final = ("hard", "scopes", "scopeSelector")
_ELASTIC: Final = ("min", "max", "lendable", "weight", "reclaim")
_FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "resourcequotas": _QUOTA,
    "limitranges": ("limits",),
    CLUSTER_QUOTAS: (*_QUOTA, "namespaceSelector", "kept", "headroom"),
    "elasticquotas.nos.nebuly.com": _ELASTIC,
    "compositeelasticquotas.nos.nebuly.com": (*_ELASTIC, "namespaces"),
}
"""Resource → the fields of its spec."""
_POD: Final = "Pod"
_CLAIM: Final = "PersistentVolumeClaim"
_TYPES: Final = ("Container", _POD, _CLAIM)
_NOT_FOR_PODS: Final = "may not be specified when `type` is 'Pod'"
_NO_STORAGE: Final = "either minimum or maximum storage value is required, but neither was provided"
_ONE: Final = Quantity.of_units(1)
_SYSTEM_PREFIX: Final = "system-"
_HIGHEST: Final = 1_000_000_000
"""Largest value of a PriorityClass of users."""
_RESERVED: Final = (
    "priority class names with 'system-' prefix are reserved for system use only. error: "
)


def limit_errors(
    resource: str, raw: _Object, *, field: str = "", is_guarded: bool = False
) -> tuple[FieldError, ...]:
    """Return the errors of an object by which others are judged; none for other kinds.

    Args:
        resource: Its kind as error messages name it: "resourcequotas".
        raw: The object.
        field: YAML path of the object in its document, for what cannot be read.
        is_guarded: Whether the namespace defers its quotas, so that the webhook judges them too.

    Raises:
        InvalidFieldError: A field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    unknown = tuple(_unknown_fields(raw, _FIELDS.get(resource, ())))
    if resource == "resourcequotas":
        return (*unknown, *quota_errors(raw, is_guarded=is_guarded))
    rule = _RULES.get(resource)
    return unknown if rule is None else (*unknown, *dict.fromkeys(rule(raw, field)))


def cluster_limit_errors(raw: _Object, keys: Set[str]) -> tuple[FieldError, ...]:
    """Return the errors of a ClusterDeferredQuota.

    Args:
        raw: The object.
        keys: The deferred resources.
    """
    unknown = _unknown_fields(raw, _FIELDS[CLUSTER_QUOTAS])
    return (*unknown, *cluster_quota_errors(raw, keys))


def _unknown_fields(raw: _Object, fields: Sequence[str]) -> Iterator[FieldError]:
    """Yield the fields of the spec that kubectl has the API server refuse: it would drop them."""
    spec = raw.get("spec")
    for name in spec if fields and isinstance(spec, Mapping) else ():
        if name not in fields:
            close = get_close_matches(str(name), fields, n=1)
            meant = f", did you mean {close[0]!r}?" if close else ""
            yield FieldError("FieldValueInvalid", f"spec.{name}", f"unknown field{meant}")


def _limit_range_errors(raw: _Object, field: str) -> Iterator[FieldError]:
    earlier: set[str] = set()
    for index, item in enumerate(LimitRange.from_object(raw, field=field).items):
        place = f"spec.limits[{index}]"
        yield from _type_errors(item.type, f"{place}.type")
        if item.type in earlier:
            yield FieldError("FieldValueDuplicate", f"{place}.type", "", json.dumps(item.type))
        earlier.add(item.type)
        if item.type == _POD:
            parts = {"default": item.default, "defaultRequest": item.default_request}
            for name in (name for name, amounts in parts.items() if amounts):
                yield FieldError("FieldValueForbidden", f"{place}.{name}", _NOT_FOR_PODS)
        yield from _resource_errors(item, place)
        if item.type == _CLAIM and "storage" not in {*item.min, *item.max}:
            yield FieldError("FieldValueRequired", f"{place}.limits", _NO_STORAGE)
        for name in sorted({*item.min, *item.max, *item.default, *item.default_request}):
            yield from _order_errors(item, name, place)
        for name in sorted(item.ratio):
            yield from _ratio_errors(item, name, f"{place}.maxLimitRequestRatio[{name}]")


def _type_errors(name: str, field: str) -> Iterator[FieldError]:
    errors = qualified_name_errors(name)
    if not errors and "/" not in name and name not in _TYPES:
        errors = ("must be a standard limit type or fully qualified",)
    for detail in errors:
        yield FieldError("FieldValueInvalid", field, detail, json.dumps(name))


def _resource_errors(item: LimitRangeItem, place: str) -> Iterator[FieldError]:
    """Yield the resources that an item of its type cannot limit."""
    rule = resource_name_errors if item.type not in {"Container", _POD} else container_name_errors
    parts: dict[str, ResourceList] = {"max": item.max, "min": item.min}
    if item.type != _POD:
        parts |= {"default": item.default, "defaultRequest": item.default_request}
    parts["maxLimitRequestRatio"] = item.ratio
    for part, amounts in parts.items():
        for name in sorted(amounts):
            yield from rule(name, f"{place}.{part}[{name}]")


def _order_errors(item: LimitRangeItem, name: str, place: str) -> Iterator[FieldError]:
    """Yield the amounts of one resource that contradict each other."""
    is_pod = item.type == _POD
    low, high = item.min.get(name), item.max.get(name)
    default = None if is_pod else item.default.get(name)
    request = None if is_pod else item.default_request.get(name)
    pairs: Iterable[tuple[str, Quantity | None, str, Quantity | None, str, Quantity | None]] = (
        ("min", low, "min value", high, "max value", low),
        ("defaultRequest", low, "min value", request, "default request value", request),
        ("defaultRequest", request, "default request value", high, "max value", request),
        (
            "defaultRequest",
            request,
            "default request value",
            default,
            "default limit value",
            request,
        ),
        ("default", low, "min value", default, "default value", low),
        ("default", default, "default value", high, "max value", high),
    )
    for part, less, what, more, than, shown in pairs:
        if less is not None and more is not None and less > more:
            detail = f"{what} {less} is greater than {than} {more}"
            yield FieldError("FieldValueInvalid", f"{place}.{part}[{name}]", detail, f'"{shown}"')
    is_exact = not is_native(name) or is_hugepages(name)
    if is_exact and default is not None and request is not None and default != request:
        detail = f"default value {default} must equal to defaultRequest value {request} in {name}"
        field = f"{place}.defaultRequest[{name}]"
        yield FieldError("FieldValueInvalid", field, detail, f'"{request}"')


def _ratio_errors(item: LimitRangeItem, name: str, field: str) -> Iterator[FieldError]:
    ratio, low, high = item.ratio[name], item.min.get(name), item.max.get(name)
    if ratio < _ONE:
        yield FieldError("FieldValueInvalid", field, f"ratio {ratio} is less than 1", f'"{ratio}"')
    if low is None or high is None or not low:  # nothing is greater than a quotient by zero
        return
    if ratio.nano * low.nano > high.nano * _ONE.nano:
        most = decimal(high.nano, low.nano)
        detail = f"ratio {ratio} is greater than max/min = {most}"
        yield FieldError("FieldValueInvalid", field, detail, f'"{ratio}"')


def _priority_class_errors(raw: _Object, field: str) -> Iterator[FieldError]:
    one = PriorityClass.from_object(raw, field=field)
    if not one.name.startswith(_SYSTEM_PREFIX):
        if one.value > _HIGHEST:
            detail = f"maximum allowed value of a user defined priority is {_HIGHEST}"
            yield FieldError("FieldValueForbidden", "value", detail)
        return
    fault = _system_class_fault(one)
    if fault:
        yield FieldError("FieldValueForbidden", "metadata.name", f"{_RESERVED}{fault}")


def _elastic_errors(raw: _Object, _field: str) -> Iterator[FieldError]:
    yield from elastic_quota_errors(raw)


def _system_class_fault(one: PriorityClass) -> str:
    """Source: kubernetes v1.36, pkg/apis/scheduling/v1/helpers.go IsKnownSystemPriorityClass."""
    if one.name not in SYSTEM_CLASSES:
        return f"{one.name} is not a known system priority class"
    value = SYSTEM_CLASSES[one.name]
    if one.value != value:
        return f"value of {one.name} PriorityClass must be {value}"
    if one.is_default:
        return f"globalDefault of {one.name} PriorityClass must be false"
    return ""


_RULES: Final[Mapping[str, Callable[[_Object, str], Iterator[FieldError]]]] = {
    "limitranges": _limit_range_errors,
    "priorityclasses.scheduling.k8s.io": _priority_class_errors,
    "elasticquotas.nos.nebuly.com": _elastic_errors,
    "compositeelasticquotas.nos.nebuly.com": _elastic_errors,
}
"""Resource → its rules."""
