"""Resource lists: maps from resource names to amounts, and their arithmetic.

A missing name is not a zero: it says nothing about that resource.

Source: kubernetes v1.36, apiserver/pkg/quota/v1/resources.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from webhook.jsonfields.fields import key, mapping
from webhook.quota.amounts.quantity import (
    COUNTABLE,
    UNCOUNTABLE,
    ZERO,
    InvalidQuantityError,
    Quantity,
)

ResourceList: TypeAlias = Mapping[str, Quantity]


def parse_resource_list(raw: object, *, field: str) -> ResourceList:
    """Read a resource map such as `spec.hard`; null is the empty one.

    Args:
        raw: Resource name → quantity, as decoded JSON or YAML.
        field: YAML path of the map, for messages.

    Raises:
        InvalidFieldError: Not a map.
        InvalidQuantityError: A value is not a quantity; its `field` is the full path.
    """
    amounts = mapping(raw, field)
    try:
        return {name: Quantity.from_json(value) for name, value in amounts.items()}
    except InvalidQuantityError:
        # read again with the paths, which are not worth building while all is well
        return {
            name: Quantity.from_json(value, field=key(field, name))
            for name, value in amounts.items()
        }


def parse_stored_list(raw: object, *, field: str) -> ResourceList:
    """Read a resource map that the API server has stored; raises as `parse_resource_list`.

    It stores amounts that cannot be read here for their size: they are read as `UNCOUNTABLE`.
    """
    return {
        name: parse_stored_amount(value, field=key(field, name))
        for name, value in mapping(raw, field).items()
    }


def parse_stored_amount(value: object, *, field: str) -> Quantity:
    """Read an amount that the API server has stored.

    Raises:
        InvalidQuantityError: It is not a quantity, of whatever size.
    """
    try:
        return Quantity.from_json(value, field=field)
    except InvalidQuantityError as err:
        if err.is_too_large:
            return UNCOUNTABLE
        raise


def counted(resources: ResourceList) -> dict[str, Quantity]:
    """Return the amounts as they are counted: those above `COUNTABLE` as `UNCOUNTABLE`."""
    return {
        name: UNCOUNTABLE if amount > COUNTABLE else amount for name, amount in resources.items()
    }


def uncountable_names(resources: ResourceList) -> list[str]:
    """Return the names of the amounts above `COUNTABLE`, sorted."""
    most = COUNTABLE.nano
    return sorted([name for name, amount in resources.items() if amount.nano > most])


def add(left: ResourceList, right: ResourceList) -> ResourceList:
    """Return the sums; a name on one side only keeps its amount."""
    total = dict(left)
    for name, amount in right.items():
        before = total.get(name)
        total[name] = amount if before is None else before + amount
    return total


def add_to(total: dict[str, Quantity], amounts: ResourceList) -> None:
    """Add amounts to a sum in place: its other names, perhaps very many, take no time."""
    for name, amount in amounts.items():
        before = total.get(name)
        total[name] = amount if before is None else before + amount


def total_of(lists: Iterable[ResourceList]) -> dict[str, Quantity]:
    """Return the sums over some lists; a name in one of them only keeps its amount."""
    total: dict[str, Quantity] = {}
    for amounts in lists:
        add_to(total, amounts)
    return total


def take_from(total: dict[str, Quantity], amounts: ResourceList) -> None:
    """Take amounts out of a sum in place; names of which nothing is left go."""
    for name, amount in amounts.items():
        rest = total.get(name, ZERO) - amount
        if rest.nano:
            total[name] = rest
        else:
            total.pop(name, None)


def subtract(left: ResourceList, right: ResourceList) -> ResourceList:
    """Return the differences; a name of the right side only becomes negative."""
    rest = dict(left)
    for name, amount in right.items():
        before = rest.get(name)
        rest[name] = -amount if before is None else before - amount
    return rest


def subtract_non_negative(left: ResourceList, right: ResourceList) -> ResourceList:
    """Return the differences over the names of both sides, zero where negative.

    A name of the right side only is zero, whatever its amount.
    """
    rest = dict.fromkeys((*left, *right), ZERO)
    rest.update(positive_part(subtract(left, mask(right, left))))
    return rest


def positive_part(resources: ResourceList) -> ResourceList:
    """Return the same names, with zero for every negative amount."""
    return {name: amount if amount.nano >= 0 else ZERO for name, amount in resources.items()}


def max_of(left: ResourceList, right: ResourceList) -> ResourceList:
    """Return the larger amount of each name; of equal ones the right one."""
    largest = dict(left)
    for name, amount in right.items():
        before = largest.get(name)
        if before is None or before <= amount:
            largest[name] = amount
    return largest


def mask(resources: ResourceList, names: Iterable[str]) -> ResourceList:
    """Return only the amounts whose name is among `names`, in the order of `resources`."""
    kept = names if isinstance(names, (set, frozenset, Mapping)) else frozenset(names)
    return {name: amount for name, amount in resources.items() if name in kept}


def remove_zeros(resources: ResourceList) -> ResourceList:
    """Return only the amounts that are not zero."""
    return {name: amount for name, amount in resources.items() if amount.nano}


def exceeding(left: ResourceList, right: ResourceList) -> tuple[str, ...]:
    """Return the names, sorted, whose amount on the left is above the one on the right.

    Names of one side only never exceed.
    """
    above = [
        name
        for name, amount in left.items()
        if (limit := right.get(name)) is not None and amount.nano > limit.nano
    ]
    return tuple(sorted(above))


def excess(left: ResourceList, right: ResourceList) -> ResourceList:
    """Return by how much `left` is above `right`; resources that are not above are absent."""
    if not right:
        return {name: amount for name, amount in left.items() if amount > ZERO}
    return {
        name: amount - right.get(name, ZERO)
        for name, amount in left.items()
        if amount > right.get(name, ZERO)
    }


def is_within(amounts: ResourceList, most: ResourceList) -> bool:
    """Return whether no amount is above the one of `most`, where a missing one is zero."""
    return all(amount <= most.get(name, ZERO) for name, amount in amounts.items())


def equal(left: ResourceList, right: ResourceList) -> bool:
    """Are names and amounts the same? Formats and texts do not matter."""
    return dict(left) == dict(right)


def to_text(resources: ResourceList) -> dict[str, str]:
    """Return the map as the API server prints it, names sorted."""
    return {name: str(resources[name]) for name in sorted(resources)}


def render(resources: ResourceList) -> str:
    """Return `name=amount` pairs joined by commas, names sorted bytewise."""
    return ",".join(f"{name}={resources[name]}" for name in sorted(resources))
