"""Balance of a pool while pods are taken for one that is to be bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.fair_share import Pool, Usage, nanos


class Claim(StrEnum):
    """Claim on which a plan rests."""

    OWN = "own"
    """The quota stays within its minimum."""
    FAIR = "fair"
    """The quota stays within its minimum and what is guaranteed beyond it."""
    NONE = "none"
    """Nothing of other quotas is taken."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Resources for want of which a pod is not bound now."""

    beyond_max: tuple[str, ...] = ()
    """Resources of which its quota would have more than its max."""
    beyond_pool: tuple[str, ...] = ()
    """Resources of which the pool has too little."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Return all of them, sorted."""
        return tuple(sorted({*self.beyond_max, *self.beyond_pool}))


@dataclass(frozen=True, slots=True)
class Queued:
    """The pod that is to be bound."""

    quota: str
    """Key of its quota."""
    pod: ElasticPod
    takes: bool = True
    """Whether it may take the place of others: `preemptionPolicy` is not Never."""


def shortage_of(pool: Pool, usage: Usage, queued: Queued) -> Shortage:
    """Return of what there is too little for a pod; usage is without it."""
    return Balance(pool, queued, usage).shortage


class Balance:
    """Usage of a pool with the queued pod counted in its quota, and without those that are taken.

    Very many pods are taken and put back one by one: what is free and lent is kept up to date, not
    summed up over all quotas each time.

    Args:
        usage: Of the assigned pods, without the one that is queued.
    """

    def __init__(self, pool: Pool, queued: Queued, usage: Usage) -> None:
        self._pool = pool
        self._queued = queued
        self._least = {key: nanos(quota.min) for key, quota in pool.quotas.items()}
        self._ceiling = nanos(pool.quotas[queued.quota].max)
        self._usage = {key: dict(used) for key, used in usage.items()}
        self._free = {name: pool.free(name, usage) for name in pool.resources}
        self._available = {name: pool.available(name, usage) for name in pool.resources}
        self._count(queued.quota, queued.pod, 1)

    def copy(self) -> Self:
        """Return another one that begins with the same usage."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__}
        made._usage = {key: dict(used) for key, used in self._usage.items()}
        made._free, made._available = {**self._free}, {**self._available}
        return made

    @property
    def usage(self) -> Usage:
        """Usage of each quota now."""
        return self._usage

    def take(self, pods: Iterable[ElasticPod]) -> None:
        """Count some pods no more."""
        for pod in pods:
            self._count(self._pool.quota_of[pod.namespace], pod, -1)

    def put_back(self, pods: Iterable[ElasticPod]) -> None:
        """Count some pods again."""
        for pod in pods:
            self._count(self._pool.quota_of[pod.namespace], pod, 1)

    @property
    def shortage(self) -> Shortage:
        """Of what there is too little for the pod."""
        request = self._queued.pod.amounts
        used = self._usage[self._queued.quota]
        beyond_max = [
            name for name in request if name in self._ceiling and used[name] > self._ceiling[name]
        ]
        beyond_pool = [name for name in request if self._free.get(name, 0) < 0]
        return Shortage(tuple(sorted(beyond_max)), tuple(sorted(beyond_pool)))

    @property
    def lacking(self) -> Mapping[str, int]:
        """How much of each resource of the shortage is to become free for the pod.

        No more than it requests: a pool that an edit left far below zero lacks thousands of times
        what any pod takes.
        """
        short, used = self.shortage, self._usage[self._queued.quota]
        request = self._queued.pod.amounts
        beyond_max = {name: used[name] - self._ceiling[name] for name in short.beyond_max}
        beyond_pool = {name: -self._free[name] for name in short.beyond_pool}
        every = {**beyond_max, **beyond_pool}
        return {
            name: min(request[name], max(every[name], beyond_max.get(name, 0))) for name in every
        }

    def claim(self, resource: str) -> Claim:
        """Return the claim of the pod's quota in a resource of which the pool is short."""
        key = self._queued.quota
        beyond = self.used_beyond(key, resource)
        if beyond <= 0:
            return Claim.OWN
        return Claim.FAIR if beyond <= self.guaranteed(key, resource) else Claim.NONE

    def guaranteed(self, key: str, resource: str) -> int:
        """Return what a quota that names a resource may take beyond its min now."""
        return self._pool.guaranteed_of(resource, key, self._available[resource])

    def used_beyond(self, key: str, resource: str) -> int:
        """Return what a quota uses above its min; negative below it."""
        return self._usage.get(key, {}).get(resource, 0) - self._least[key].get(resource, 0)

    def _count(self, key: str, pod: ElasticPod, sign: int) -> None:
        used = self._usage.setdefault(key, {})
        for name, amount in pod.amounts.items():
            before = used.get(name, 0)
            used[name] = after = before + sign * amount
            part = self._pool.part(name, key)
            if part is not None:
                self._free[name] += part.holds(before) - part.holds(after)
                self._available[name] += part.lends(after) - part.lends(before)
