"""A pool of elastic quotas: what is borrowed, lent, free, and guaranteed beyond the minimum.

For each resource that a minimum of the pool names and binds are charged for, with `used` what the
pods of a quota take:

    size         Σ min
    available    Σ min(lendable, max(0, min - used))
    share        weight / Σ weight where a quota of the pool has a weight (1 for those without one),
                 else min / Σ min
    guaranteed   floor(available · share), in millicores, bytes and counts
    free         size - Σ max(used, min - lendable)

A quota takes part in a resource only if it names it. All is exact: whole numbers of 10⁻⁹ units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.elastic.elastic_quotas import ElasticQuota, is_charged

Nanos: TypeAlias = Mapping[str, int]
"""Resource → amount in 10⁻⁹ units."""

Usage: TypeAlias = Mapping[str, Nanos]
"""Key of a quota → what its pods take; only of resources that it names."""

_UNIT: Final = 10**9
_MILLI: Final = 10**6


def nanos(amounts: ResourceList) -> dict[str, int]:
    """Return amounts as whole numbers of 10⁻⁹ units."""
    return {name: amount.nano for name, amount in amounts.items()}


def base_unit(resource: str) -> int:
    """Return the smallest amount that is shared out: a millicore, a byte, one."""
    return _MILLI if resource == "cpu" else _UNIT


@dataclass(frozen=True, slots=True)
class Part:
    """Part of one quota in one resource of a pool, 10⁻⁹ units."""

    key: str
    min: int
    lendable: int
    weight: int

    def lends(self, used: int) -> int:
        """Return what the quota lends while it uses so much."""
        return min(self.lendable, max(0, self.min - used))

    def holds(self, used: int) -> int:
        """Return what others cannot have while it uses so much."""
        return max(used, self.min - self.lendable)


class Pool:
    """Quotas that lend each other what they do not use."""

    def __init__(self, name: str, quotas: Iterable[ElasticQuota]) -> None:
        self.name = name
        self.quotas: Mapping[str, ElasticQuota] = {
            one.key: one for one in sorted(quotas, key=lambda one: one.key)
        }
        """Key → quota."""
        self.quota_of: Mapping[str, str] = {
            namespace: key for key, one in self.quotas.items() for namespace in one.namespaces
        }
        """Namespace → key of the quota that counts it."""
        named = {name for one in self.quotas.values() for name in filter(is_charged, one.min)}
        is_weighted = any(one.weight is not None for one in self.quotas.values())
        self._parts: Mapping[str, tuple[Part, ...]] = {
            resource: tuple(
                _part(one, resource, is_weighted=is_weighted)
                for one in self.quotas.values()
                if resource in one.names
            )
            for resource in sorted(named)
        }
        self._part_of: Mapping[str, Mapping[str, Part]] = {
            resource: {part.key: part for part in parts} for resource, parts in self._parts.items()
        }
        self._weights: Mapping[str, int] = {
            resource: sum(part.weight for part in parts) for resource, parts in self._parts.items()
        }

    @property
    def resources(self) -> Iterable[str]:
        """Return what the pool has, sorted: what a minimum names and binds are charged for."""
        return self._parts.keys()

    def size(self, resource: str) -> int:
        """Return the sum of the minimums."""
        return sum(part.min for part in self._parts[resource])

    def available(self, resource: str, usage: Usage) -> int:
        """Return what the quotas lend of their minimums in all."""
        return sum(part.lends(_of(usage, part, resource)) for part in self._parts[resource])

    def free(self, resource: str, usage: Usage) -> int:
        """Return how much more may be taken; negative where the pool holds more than its size."""
        held = (part.holds(_of(usage, part, resource)) for part in self._parts[resource])
        return self.size(resource) - sum(held)

    def part(self, resource: str, key: str) -> Part | None:
        """Return the part of a quota in a resource; None where it takes none."""
        return self._part_of.get(resource, {}).get(key)

    def shares(self, resource: str) -> dict[str, Fraction]:
        """Return the share of each quota that names the resource; all zero if no weight is."""
        return {part.key: self.share(resource, part.key) for part in self._parts[resource]}

    def share(self, resource: str, key: str) -> Fraction:
        """Return the share of one quota that names the resource."""
        total = self._weights[resource]
        return Fraction(self._part_of[resource][key].weight, total) if total else Fraction(0)

    def guaranteed(self, resource: str, usage: Usage) -> dict[str, int]:
        """Return what each quota may take beyond its minimum, whatever the others want."""
        available = self.available(resource, usage)
        return {
            part.key: self.guaranteed_of(resource, part.key, available)
            for part in self._parts[resource]
        }

    def guaranteed_of(self, resource: str, key: str, available: int) -> int:
        """Return what one quota may take beyond its minimum while so much is lent in all."""
        total, unit = self._weights[resource], base_unit(resource)
        weight = self._part_of[resource][key].weight
        return available * weight // (total * unit) * unit if total else 0

    def borrowed(self, resource: str, usage: Usage) -> dict[str, int]:
        """Return what each quota takes beyond its minimum."""
        return {
            part.key: max(0, _of(usage, part, resource) - part.min)
            for part in self._parts[resource]
        }

    def lent(self, resource: str, usage: Usage) -> dict[str, int]:
        """Return what others take of each minimum: all that is borrowed, in proportion.

        Whole base units by the largest remainder, so that the sum is what is borrowed. More than
        is available is not lent: it is above the pool.
        """
        lends = {part.key: part.lends(_of(usage, part, resource)) for part in self._parts[resource]}
        total = sum(lends.values())
        taken = min(total, sum(self.borrowed(resource, usage).values()))
        unit = base_unit(resource)
        lent = {
            key: (one * taken // total // unit * unit if total else 0) for key, one in lends.items()
        }
        by_rest = sorted(lends, key=lambda key: (lent[key] * total - lends[key] * taken, key))
        rest = taken - sum(lent.values())
        for key in by_rest:
            more = min(rest, unit, lends[key] - lent[key])
            lent[key] += more
            rest -= more
        return lent


def _part(quota: ElasticQuota, resource: str, *, is_weighted: bool) -> Part:
    least = quota.min.get(resource, ZERO).nano
    lendable = quota.lendable.get(resource)
    weight = least
    if is_weighted:
        weight = _UNIT if quota.weight is None else quota.weight.nano
    return Part(quota.key, least, least if lendable is None else lendable.nano, weight)


def _of(usage: Usage, part: Part, resource: str) -> int:
    return usage.get(part.key, {}).get(resource, 0)
