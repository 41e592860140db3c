"""Rules of the API server for `resources`: of a container, and of a pod as a whole.

Errors come in the order of the fields; where the API server goes through a map in random
order, names are sorted.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go validateResourceRequirements.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError
from webhook.quota.amounts.quantity import InvalidQuantityError, Quantity
from webhook.quota.amounts.resource_reader import ResourceReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.objects.names import (
    INTEGER_RESOURCES,
    dns_label_errors,
    is_extended_resource,
    is_hugepages,
    is_native,
    qualified_name_errors,
)

NameRule: TypeAlias = Callable[[str, str], Iterator[FieldError]]

_COMPUTE: Final = ("cpu", "memory")
_OF_CONTAINERS: Final = frozenset({*_COMPUTE, "ephemeral-storage"})
_STANDARD: Final = (
    INTEGER_RESOURCES
    | {f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in _OF_CONTAINERS}
    | {"storage", "requests.storage"}
)
_HUGEPAGES: Final = "hugepages-"
_MOST_LISTED: Final = 256
_MOST_CHARACTERS: Final = 8192


@dataclass(frozen=True, slots=True)
class Claim:
    """A reference to a resource claim of the pod, or to one request in it."""

    name: str
    request: str = ""


@dataclass(frozen=True, slots=True)
class Requirements:
    """A `resources` object and where it stands."""

    field: str
    requests: ResourceList
    limits: ResourceList
    claims: tuple[Claim, ...] | None = None


def read_requirements(holder: ResourceReader) -> Requirements:
    """Read the `resources` of a container or of a pod's spec; null has nothing in it.

    Raises:
        InvalidFieldError: A field has the wrong type.
        InvalidQuantityError: An amount is not a quantity.
    """
    resources = holder.child("resources")
    claims = (Claim(one.text("name"), one.text("request")) for one in resources.children("claims"))
    return Requirements(
        holder.path("resources"),
        resources.resource_list("requests"),
        resources.resource_list("limits"),
        tuple(claims) if resources.has("claims") else None,
    )


def container_name_errors(name: str, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the name of a container's resource."""
    yield from resource_name_errors(name, field)
    if "/" not in name:
        if name not in _OF_CONTAINERS and not is_hugepages(name):
            yield _invalid(field, "must be a standard resource for containers", name)
    elif not is_native(name) and not is_extended_resource(name):
        yield _invalid(field, "doesn't follow extended resource name standard", name)


def pod_name_errors(name: str, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the name of a resource that is given for the whole pod."""
    errors = list(resource_name_errors(name, field))
    yield from errors
    if not errors and name not in _COMPUTE and not is_hugepages(name):
        supported = 'supported values: "cpu", "hugepages-", "memory"'
        yield FieldError("FieldValueNotSupported", field, supported, _printed(name))


def requirement_errors(
    resources: Requirements,
    *,
    claim_names: frozenset[str] = frozenset(),
    allow_torn_pages: bool = False,
    name_errors: NameRule = container_name_errors,
) -> Iterator[FieldError]:
    """Yield what is wrong with a `resources` object.

    Args:
        claim_names: Names in the pod's `spec.resourceClaims`.
        allow_torn_pages: Let pass huge pages that are not a multiple of their size, as the API
            server does for objects that already have such.
        name_errors: Which names may be used.
    """
    limits, requests = f"{resources.field}.limits", f"{resources.field}.requests"
    for name, limit in sorted(resources.limits.items()):
        yield from name_errors(name, f"{limits}[{name}]")
        yield from _amount_errors(name, limit, f"{limits}[{name}]")
        if not allow_torn_pages:
            yield from _page_errors(name, limit, f"{limits}[{name}]")
    for name, request in sorted(resources.requests.items()):
        yield from name_errors(name, f"{requests}[{name}]")
        yield from _amount_errors(name, request, f"{requests}[{name}]")
        yield from _limit_errors(name, request, resources)
        if not allow_torn_pages:
            yield from _page_errors(name, request, f"{requests}[{name}]")
    names = {*resources.limits, *resources.requests}
    if any(map(is_hugepages, names)) and names.isdisjoint(_COMPUTE):
        detail = "HugePages require cpu or memory"
        yield FieldError("FieldValueForbidden", resources.field, detail)
    yield from _claim_errors(resources, claim_names)


def negative_amounts(resources: Requirements) -> Iterator[FieldError]:
    """Yield which amounts of a `resources` object are below zero."""
    for name, amounts in (("limits", resources.limits), ("requests", resources.requests)):
        for key, amount in sorted(amounts.items()):
            if amount.sign < 0:
                yield from _amount_errors(key, amount, f"{resources.field}.{name}[{key}]")


def has_torn_pages(resources: ResourceList) -> bool:
    """Return whether an amount of huge pages is not a multiple of their size."""
    return any(not _fits_pages(name, amount) for name, amount in resources.items())


def resource_name_errors(name: str, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the name of any resource."""
    errors = qualified_name_errors(name)
    yield from (_invalid(field, error, name) for error in errors)
    is_standard = name in _STANDARD or name.startswith((_HUGEPAGES, f"requests.{_HUGEPAGES}"))
    if not errors and "/" not in name and not is_standard:
        yield _invalid(field, "must be a standard resource type or fully qualified", name)


def _amount_errors(name: str, amount: Quantity, field: str) -> Iterator[FieldError]:
    if amount.sign < 0:
        yield _invalid(field, "must be greater than or equal to 0", amount)
    is_counted = name in INTEGER_RESOURCES or is_extended_resource(name)
    if is_counted and not amount.is_whole:
        yield _invalid(field, "must be an integer", amount)


def _limit_errors(name: str, request: Quantity, resources: Requirements) -> Iterator[FieldError]:
    limit = resources.limits.get(name)
    may_differ = is_native(name) and not is_hugepages(name)
    requests = f"{resources.field}.requests"
    if limit is None:
        if not may_differ:
            detail = "Limit must be set for non overcommitable resources"
            yield FieldError("FieldValueRequired", f"{resources.field}.limits", detail)
    elif request != limit and not may_differ:
        yield _invalid(requests, f"must be equal to {name} limit of {limit}", request)
    elif request > limit:
        yield _invalid(requests, f"must be less than or equal to {name} limit of {limit}", request)


def _page_errors(name: str, amount: Quantity, field: str) -> Iterator[FieldError]:
    if not _fits_pages(name, amount):
        yield _invalid(field, f"{amount} is not positive integer multiple of {name}", amount)


def _fits_pages(name: str, amount: Quantity) -> bool:
    if not is_hugepages(name):
        return True
    try:
        page = Quantity.parse(name.removeprefix(_HUGEPAGES))
    except InvalidQuantityError:
        return False
    return page.sign > 0 and page.is_whole and amount.value % page.value == 0


def _claim_errors(resources: Requirements, names: frozenset[str]) -> Iterator[FieldError]:
    # a claim as a whole, or `claim/request`; and of how many requests there are such, by claim
    seen: set[str] = set()
    parts: Counter[str] = Counter()
    detail = f"must be one of the names in pod.spec.resourceClaims{_listed(names)}"
    for index, claim in enumerate(resources.claims or ()):
        field = f"{resources.field}.claims[{index}]"
        if not claim.name:
            yield FieldError("FieldValueRequired", field, "")
            continue
        if claim.name in seen:
            yield FieldError("FieldValueDuplicate", field, "", _printed(claim.name))
        else:
            for error in dns_label_errors(claim.request) if claim.request else ():
                yield _invalid(f"{field}.request", error, claim.request)
            key = "/".join(filter(None, (claim.name, claim.request)))
            times = int(key in seen) if claim.request else parts[claim.name]
            yield from [FieldError("FieldValueDuplicate", field, "", _printed(key))] * times
            if key not in seen and "/" in key:
                parts[key.partition("/")[0]] += 1
            seen.add(key)
        if claim.name not in names:
            yield FieldError("FieldValueNotFound", field, detail, _printed(claim.name))


def _listed(names: frozenset[str]) -> str:
    if not names:
        return " which is empty"
    if len(names) > _MOST_LISTED:
        return f": {len(names)} names"
    # a pod can have as many errors as claims, and each has this list
    listed = ", ".join(sorted(names))
    return f": {listed:.{_MOST_CHARACTERS}}"


def _invalid(field: str, detail: str, value: object) -> FieldError:
    return FieldError("FieldValueInvalid", field, detail, _printed(value))


def _printed(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)
