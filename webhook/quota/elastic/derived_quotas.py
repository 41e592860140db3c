"""ClusterDeferredQuotas by which elastic quotas are charged.

A pool is one quota that all namespaces of its elastic quotas share, limited to the sum of their
minimums; the maximum of an elastic quota is one more, of its own namespaces:

    epool.default       hard: {requests.cpu: "8"}     # Σ min of team-a, team-b
    eq.team-a.quota     hard: {requests.cpu: "6"}     # max
    ceq.team-b.quota    hard: {requests.cpu: "9"}     # max, of all that it lists

A resource that only some quotas of a pool name has a quota of its own, without the namespaces of
the others. So a bind takes of pool and maximum all or nothing, by the laws of the ledger and of
shared quotas (`ledger.ledger`, `shared.escrow`), and what is borrowed is never more than what
others leave unused.

What a quota does not lend of its min (`lendable`) is kept for its namespaces in the pool's spec.
Up to its min they may have headroom: hold more than they use, so that a bind writes no pool.

A namespace shares the pool as soon as an elastic quota counts it. Its minimum is part of the pool
only while a namespace of it has opted in: what is not charged lends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, to_text
from webhook.quota.charging.gpu_memory import GPU_MEMORY, gpu_memory_key
from webhook.quota.elastic.elastic_quotas import COMPOSITE, ElasticQuota, is_charged
from webhook.quota.objects.names import MAX_NAME_BYTES, POOL_PREFIX
from webhook.quota.shared.cluster_quotas import NAMESPACE_NAME_LABEL


@dataclass(frozen=True, slots=True)
class DerivedQuota:
    """A ClusterDeferredQuota that the controller keeps."""

    name: str
    namespaces: tuple[str, ...]
    """Which share it, sorted."""
    hard: ResourceList
    """By quota key."""
    kept: tuple[tuple[tuple[str, ...], ResourceList], ...] = ()
    """Namespaces of a quota → the part of its min that is not lent, by quota key."""
    headroom: tuple[tuple[tuple[str, ...], ResourceList], ...] = ()
    """Namespaces of a quota → up to what they may hold without using it, by quota key."""

    @property
    def spec(self) -> dict[str, object]:
        """Return the spec of the object."""
        kept, headroom = _parts(self.kept), _parts(self.headroom)
        expression = {"key": NAMESPACE_NAME_LABEL, "operator": "In", "values": [*self.namespaces]}
        return {
            "namespaceSelector": {"matchExpressions": [expression]},
            "hard": to_text(self.hard),
            **({"kept": kept} if kept else {}),
            **({"headroom": headroom} if headroom else {}),
        }


def derived_quotas(
    quotas: Iterable[ElasticQuota],
    is_opted_in: Callable[[str], bool],
    gb_per_gpu: int,
    *,
    has_headroom: bool = False,
) -> dict[str, DerivedQuota]:
    """Return the quotas by which elastic quotas are charged, by name.

    Args:
        quotas: Those that count: none is wrong, and no namespace has two.
        is_opted_in: Returns whether the pods of a namespace are charged at the bind.
        gb_per_gpu: Memory of a whole GPU, GB.
        has_headroom: Whether namespaces may hold more than they use.
    """
    every = sorted(quotas, key=lambda one: one.key)
    found = [*_pools(every, is_opted_in, gb_per_gpu)]
    for quota in every:
        hard = _by_key(quota.max, gb_per_gpu)
        if hard:
            whole = ((quota.namespaces, hard),)
            found.append(DerivedQuota(max_name(quota), quota.namespaces, hard, headroom=whole))
    return {one.name: one if has_headroom else replace(one, headroom=()) for one in found}


def _parts(parts: Iterable[tuple[tuple[str, ...], ResourceList]]) -> list[dict[str, object]]:
    return [{"namespaces": [*names], "amounts": to_text(amounts)} for names, amounts in parts]


def _pools(
    quotas: list[ElasticQuota], is_opted_in: Callable[[str], bool], gb_per_gpu: int
) -> Iterator[DerivedQuota]:
    for pool in sorted({one.pool for one in quotas}):
        members = [one for one in quotas if one.pool == pool]
        opted_in = [one for one in members if any(map(is_opted_in, one.namespaces))]
        sizes: dict[tuple[str, ...], dict[str, Quantity]] = {}
        for resource in sorted({name for one in members for name in one.min}):
            key = quota_key(resource, gb_per_gpu)
            sharing = [one for one in members if resource in one.names]
            if key is not None:
                names = tuple(sorted({name for one in sharing for name in one.namespaces}))
                least = (one.min.get(resource, ZERO) for one in opted_in)
                sizes.setdefault(names, {})[key] = sum(least, ZERO)
        every = tuple(sorted({name for one in members for name in one.namespaces}))
        for namespaces, hard in sizes.items():
            part = "" if namespaces == every else ",".join(sorted(hard))
            kept = tuple(_shares(opted_in, hard, gb_per_gpu, _kept))
            headroom = tuple(_shares(opted_in, hard, gb_per_gpu, lambda one: one.min))
            yield DerivedQuota(pool_name(pool, part), namespaces, hard, kept, headroom)


def _shares(
    quotas: Iterable[ElasticQuota],
    hard: Mapping[str, Quantity],
    gb_per_gpu: int,
    amounts_of: Callable[[ElasticQuota], ResourceList],
) -> Iterator[tuple[tuple[str, ...], ResourceList]]:
    """Yield what each quota of a pool has of what the pool is limited to, where it has any."""
    for one in quotas:
        by_key = _by_key(amounts_of(one), gb_per_gpu)
        amounts = {key: amount for key, amount in by_key.items() if key in hard and amount > ZERO}
        if amounts:
            yield one.namespaces, amounts


def _kept(quota: ElasticQuota) -> ResourceList:
    """Return what a quota does not lend of its min."""
    return {name: quota.min.get(name, ZERO) - lendable for name, lendable in quota.lendable.items()}


def pool_name(pool: str, part: str = "") -> str:
    """Return the name of the quota by which a pool is charged.

    Args:
        pool: Name of the pool.
        part: The quota keys that only some of its quotas name: those share a quota of their own,
            because pods of the others are not compared.
    """
    suffix = f".{sha256(part.encode()).hexdigest()[:8]}" if part else ""
    return f"{POOL_PREFIX}{pool}{suffix}"


def max_name(quota: ElasticQuota) -> str:
    """Return the name of the quota by which the maximum of an elastic quota is charged.

    One that would be too long for an object ends in a hash.
    """
    prefix = "ceq" if quota.kind == COMPOSITE else "eq"
    name = f"{prefix}.{quota.namespace}.{quota.name}"
    if len(name) <= MAX_NAME_BYTES:
        return name
    digest = sha256(name.encode()).hexdigest()[:16]
    return f"{prefix}.{quota.namespace}.{digest}"


def quota_key(resource: str, gb_per_gpu: int) -> str | None:
    """Return the quota key of a resource as elastic quotas name it; None if none is charged."""
    if resource == GPU_MEMORY:
        return gpu_memory_key(gb_per_gpu)
    return f"requests.{resource}" if is_charged(resource) else None


def uncharged_resources(quota: ElasticQuota) -> tuple[str, ...]:
    """Return the resources that a quota names and no bind is charged for, sorted."""
    return tuple(sorted(one for one in quota.names if not is_charged(one)))


def _by_key(amounts: ResourceList, gb_per_gpu: int) -> ResourceList:
    keys = {name: quota_key(name, gb_per_gpu) for name in amounts}
    return {key: amounts[name] for name, key in sorted(keys.items()) if key is not None}


def held_by(
    quota: ElasticQuota, held: Mapping[str, Mapping[str, ResourceList]], gb_per_gpu: int
) -> ResourceList:
    """Return what the namespaces of an elastic quota hold, reserved for requests included.

    Args:
        held: Name of each derived quota → namespace → what it holds of it, by quota key.
        gb_per_gpu: Memory of a whole GPU, GB.

    Returns:
        Resource, as the quota names it → amount; of each that is charged.
    """
    found: dict[str, Quantity] = {}
    for resource in sorted(quota.names):
        key = quota_key(resource, gb_per_gpu)
        if key is not None:
            sums = [_sum(each, key, quota.namespaces) for each in held.values()]
            found[resource] = max(sums, default=ZERO)
    return found


def _sum(held: Mapping[str, ResourceList], key: str, namespaces: Iterable[str]) -> Quantity:
    return sum((held[name].get(key, ZERO) for name in namespaces if name in held), ZERO)
