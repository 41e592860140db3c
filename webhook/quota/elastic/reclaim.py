"""Which assigned pods have to go so that a queued pod gets what its quota is entitled to.

With R the request of the pod, A its quota and S the resources of R of which the pool is short, the
claim in each of S is

    own     used_A + R ≤ min_A                  from quotas over their min
    fair    used_A + R ≤ min_A + guaranteed_A   from quotas over min + guaranteed

and without either there is no plan. Guaranteed is that of the state that the plan leaves: the pod
counted in its quota, the victims so far gone. A victim is over-quota in the walk at its turn and
asks for a resource of S that is still short. Within A itself only pods of strictly lower priority
go; where `max` is in the way, only these help.

The victims are chosen one by one, and those that are not needed are put back. So no victim, queued
in its turn, can have the beneficiary evicted: its quota was above what it is entitled to without it
(a property of the tests).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final

from webhook.quota.elastic.capacity import ElasticPod, LabelOrder, in_label_order, over_quota
from webhook.quota.elastic.fair_share import Pool, Usage, nanos

_MOST: Final = Fraction(10**60)
"""Above every ratio: a quota without a share is the one most above its guaranteed."""


class Claim(StrEnum):
    """What a plan rests on."""

    OWN = "own"
    """The quota stays within its minimum."""
    FAIR = "fair"
    """The quota stays within its minimum and what is guaranteed beyond it."""
    NONE = "none"
    """Nothing of other quotas is taken."""


Unit = tuple[ElasticPod, ...]
"""Pods that are evicted together."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What decides beside quotas which pods may be evicted."""

    order: LabelOrder = LabelOrder.CREATION_TIME
    is_evictable: Callable[[Unit, Sequence[ElasticPod]], bool] = lambda _unit, _taken: True
    """Whether PodDisruptionBudgets let a unit go now, after the pods that were taken already."""
    has_node: Callable[[Sequence[ElasticPod]], bool] = lambda _taken: True
    """Whether the pod fits some node once the victims are gone; true where nodes are not known."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a pod is not bound now."""

    beyond_max: tuple[str, ...] = ()
    """Resources of which its quota would have more than its max."""
    beyond_pool: tuple[str, ...] = ()
    """Resources of which the pool has too little."""

    @property
    def resources(self) -> tuple[str, ...]:
        """Return all of them, sorted."""
        return tuple(sorted({*self.beyond_max, *self.beyond_pool}))


@dataclass(frozen=True, slots=True)
class Plan:
    """Which pods to evict for one pod; none where it needs nothing, or nothing helps."""

    shortage: Shortage
    is_possible: bool
    claim: Claim = Claim.NONE
    victims: tuple[ElasticPod, ...] = ()
    """In the order in which they are evicted."""
    obstacle: str = ""
    """Why nothing helps."""


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
    quota, used = pool.quotas[queued.quota], usage.get(queued.quota, {})
    request = queued.pod.amounts
    ceiling = nanos(quota.max)
    beyond_max = [
        name
        for name, amount in request.items()
        if name in ceiling and used.get(name, 0) + amount > ceiling[name]
    ]
    after = _with(usage, queued.quota, queued.pod)
    beyond_pool = [
        name for name in request if name in pool.resources and pool.free(name, after) < 0
    ]
    return Shortage(tuple(sorted(beyond_max)), tuple(sorted(beyond_pool)))


def plan_reclaim(
    pool: Pool,
    assigned: Mapping[str, Sequence[ElasticPod]],
    queued: Queued,
    circumstances: Circumstances | None = None,
) -> Plan:
    """Return which pods to evict so that one can be bound.

    Args:
        pool: The pool of its quota.
        assigned: Key of each quota → its assigned pods, without those that are ending.
        queued: The pod.
        circumstances: What decides beside quotas.
    """
    given = circumstances or Circumstances()
    state = _State(pool, assigned, queued, given)
    shortage = state.shortage
    if not shortage.resources:
        if given.has_node(()):
            return Plan(shortage, True)
        return Plan(shortage, False, obstacle="no node has room for it, and quota is not short")
    if not queued.takes:
        return Plan(shortage, False, obstacle="its preemptionPolicy is Never")
    attempts = [_Attempt(state, claims) for claims in state.claims()]
    unplaced = False
    for attempt in attempts:
        for node in ("", *attempt.nodes()):
            victims = attempt.victims(node)
            if victims is None:
                break  # whichever node is preferred: there is not enough to take
            if given.has_node(victims):
                return Plan(shortage, True, attempt.claim, tuple(victims))
            unplaced = True
    obstacle = "no node has room for it after any plan" if unplaced else state.obstacle()
    return Plan(shortage, False, obstacle=obstacle)


@dataclass(slots=True)
class _State:
    """A pool while a plan is made for one pod."""

    pool: Pool
    assigned: Mapping[str, Sequence[ElasticPod]]
    queued: Queued
    given: Circumstances
    usage: Usage = field(init=False)
    """Of the assigned pods, without the one that is queued."""
    _ordered: dict[str, list[ElasticPod]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.usage = {key: _sum(pods) for key, pods in self.assigned.items()}

    @property
    def shortage(self) -> Shortage:
        return shortage_of(self.pool, self.usage, self.queued)

    def ordered(self, key: str) -> list[ElasticPod]:
        """Return the pods of a quota in label order."""
        if key not in self._ordered:
            self._ordered[key] = in_label_order(self.assigned.get(key, ()), self.given.order)
        return self._ordered[key]

    def after(self, gone: Iterable[ElasticPod]) -> Usage:
        """Return the usage with the pod counted and some pods gone."""
        return _with(self.without(gone), self.queued.quota, self.queued.pod)

    def without(self, gone: Iterable[ElasticPod]) -> Usage:
        """Return the usage with some pods gone."""
        changed: dict[str, dict[str, int]] = {}
        for pod in gone:
            key = self.pool.quota_of[pod.namespace]
            used = changed.setdefault(key, dict(self.usage[key]))
            for name, amount in pod.amounts.items():
                used[name] -= amount
        return {**self.usage, **changed}

    def short_after(self, gone: Iterable[ElasticPod]) -> Shortage:
        """Return what is short once some pods are gone."""
        return shortage_of(self.pool, self.without(gone), self.queued)

    def claim(self, resource: str, gone: Iterable[ElasticPod]) -> Claim:
        """Return the claim of the quota in one resource of which the pool is short."""
        key = self.queued.quota
        usage = self.after(gone)
        least = nanos(self.pool.quotas[key].min).get(resource, 0)
        used = usage[key].get(resource, 0)
        if used <= least:
            return Claim.OWN
        guaranteed = self.pool.guaranteed(resource, usage)[key]
        return Claim.FAIR if used <= least + guaranteed else Claim.NONE

    def claims(self) -> Iterator[Mapping[str, Claim]]:
        """Yield the claims to try: on other quotas where there are any, then on its own pods."""
        short = self.shortage
        on_others = {name: self.claim(name, ()) for name in short.beyond_pool}
        if on_others and Claim.NONE not in on_others.values():
            yield on_others
        yield {}

    def obstacle(self) -> str:
        """Return why there is no plan."""
        short = self.shortage
        if short.beyond_max:
            return "beyond max only pods of the same quota with lower priority help, and too few do"
        without = [name for name in short.beyond_pool if self.claim(name, ()) is Claim.NONE]
        if without:
            names = ", ".join(without)
            return f"its quota would be above min and guaranteed of {names}"
        return "no pod may be evicted for it that frees enough"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One way to make room: by claims on other quotas, or by the quota's own pods alone."""

    state: _State
    claims: Mapping[str, Claim]
    """Resource of which the pool is short → claim; empty: nothing of others is taken."""

    @property
    def claim(self) -> Claim:
        found = set(self.claims.values())
        return Claim.FAIR if Claim.FAIR in found else Claim.OWN if found else Claim.NONE

    def nodes(self) -> list[str]:
        """Return the nodes on which pods could be evicted, sorted."""
        return sorted({pod.node for unit, _ in self._candidates([]) for pod in unit} - {""})

    def victims(self, node: str) -> list[ElasticPod] | None:
        """Return what to evict, those of a node first; None if there is not enough."""
        units: list[Unit] = []
        while self.state.short_after(_flat(units)).resources:
            chosen = self._next(units, node)
            if chosen is None:
                return None
            units.append(chosen)
        return _flat(self._needed(units))

    def _next(self, units: Sequence[Unit], node: str) -> Unit | None:
        taken = _flat(units)

        def rank(found: tuple[Unit, Fraction]) -> tuple[bool, bool, Fraction, int]:
            unit, above = found
            return (
                all(pod.node != node for pod in unit) if node else False,
                not self.state.given.is_evictable(unit, taken),
                -above,
                max(pod.priority for pod in unit),
            )

        newest_first = sorted(self._candidates(units), key=_age, reverse=True)
        best = min(newest_first, key=rank, default=None)  # of equal ones the first
        return None if best is None else best[0]

    def _candidates(self, units: Sequence[Unit]) -> Iterator[tuple[Unit, Fraction]]:
        """Yield what may be taken next, and how far its quota is above what is guaranteed."""
        gone = _flat(units)
        short = self.state.short_after(gone)
        own = self.state.queued.quota
        if short.beyond_max or not self.claims:
            lower = [unit for unit in self._units(own, gone) if self._is_lower(unit)]
            names = frozenset(short.beyond_max or short.beyond_pool)
            yield from ((unit, Fraction(0)) for unit in lower if _asks(unit, names))
            return
        usage = self.state.after(gone)
        above = self._above(usage, short.beyond_pool)
        for key, (names, ratio) in above.items():
            if key == own:
                continue
            over = self._over(key, gone)
            for unit in self._units(key, gone):
                if _asks(unit, names) and all(pod.uid in over for pod in unit):
                    yield unit, ratio

    def _above(
        self, usage: Usage, short: Collection[str]
    ) -> Mapping[str, tuple[frozenset[str], Fraction]]:
        """Return the quotas that may be taken from: in which resources, and how far above."""
        names: dict[str, set[str]] = {}
        ratios: dict[str, Fraction] = {}
        for resource in self.claims:
            guaranteed = self.state.pool.guaranteed(resource, usage)
            shares = self.state.pool.shares(resource)
            for key, borrowed in self.state.pool.borrowed(resource, usage).items():
                kept = guaranteed[key] if self.claims[resource] is Claim.FAIR else 0
                if resource in short and borrowed > kept:
                    names.setdefault(key, set()).add(resource)
                beyond = self._used_beyond(key, resource, usage) - guaranteed[key]
                ratio = beyond / shares[key] if shares[key] else _MOST * (beyond > 0)
                ratios[key] = max(ratio, ratios.get(key, ratio))
        return {key: (frozenset(found), ratios[key]) for key, found in names.items()}

    def _used_beyond(self, key: str, resource: str, usage: Usage) -> int:
        least = nanos(self.state.pool.quotas[key].min).get(resource, 0)
        return usage.get(key, {}).get(resource, 0) - least

    def _over(self, key: str, gone: Collection[ElasticPod]) -> frozenset[str]:
        uids = {pod.uid for pod in gone}
        kept = [pod for pod in self.state.ordered(key) if pod.uid not in uids]
        return over_quota(self.state.pool.quotas[key], kept)

    def _units(self, key: str, gone: Collection[ElasticPod]) -> Iterator[Unit]:
        """Yield the pods of a quota that may be evicted, those of one group as one."""
        uids = {pod.uid for pod in gone}
        groups: dict[tuple[str, str], list[ElasticPod]] = {}
        for pod in self.state.ordered(key):
            if pod.uid not in uids:
                groups.setdefault((pod.namespace, pod.group or f"\0{pod.uid}"), []).append(pod)
        is_fair = self.claim is Claim.FAIR
        for pods in groups.values():
            if not any(pod.is_exempt or (pod.is_young and is_fair) for pod in pods):
                yield tuple(pods)

    def _is_lower(self, unit: Unit) -> bool:
        return all(pod.priority < self.state.queued.pod.priority for pod in unit)

    def _needed(self, units: list[Unit]) -> list[Unit]:
        """Return the units without which the plan fails, those put back left out."""

        def rank(unit: Unit) -> tuple[int, object]:
            return -max(pod.priority for pod in unit), min(pod.age_order for pod in unit)

        has_node = self.state.given.has_node
        is_placed = has_node(_flat(units))
        kept = units
        for unit in sorted(units, key=rank):
            rest = [one for one in kept if one is not unit]
            if self._holds(rest) and (not is_placed or has_node(_flat(rest))):
                kept = rest
        return kept

    def _holds(self, units: Sequence[Unit]) -> bool:
        """Return whether units may be taken one after the other, and are enough."""
        if self.state.short_after(_flat(units)).resources:
            return False
        for index, unit in enumerate(units):
            if not any(unit == one for one, _ in self._candidates(units[:index])):
                return False
        gone = _flat(units)
        return all(self.state.claim(name, gone) is not Claim.NONE for name in self.claims)


def _age(found: tuple[Unit, Fraction]) -> tuple[object, ...]:
    return max(pod.age_order for pod in found[0])


def _asks(unit: Unit, names: Collection[str]) -> bool:
    return any(name in pod.amounts for pod in unit for name in names)


def _flat(units: Iterable[Unit]) -> list[ElasticPod]:
    return [pod for unit in units for pod in unit]


def _sum(pods: Iterable[ElasticPod]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pod in pods:
        for name, amount in pod.amounts.items():
            total[name] = total.get(name, 0) + amount
    return total


def _with(usage: Usage, key: str, pod: ElasticPod) -> Usage:
    """Return usage with one pod more."""
    used = dict(usage.get(key, {}))
    for name, amount in pod.amounts.items():
        used[name] = used.get(name, 0) + amount
    return {**usage, key: used}
