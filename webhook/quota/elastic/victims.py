"""Pods that may be evicted next for one that is to be bound, in the order of eviction.

Pods of a quota are in turn while they are over it. Whatever is taken makes fewer of them over,
brings their quota nearer to what is guaranteed to it, and leaves less that is short: a pod that is
not in turn is never in turn again, and is looked at no more. So a plan takes little more than the
time to sort the pods, however many are evicted.

Pods of a namespace with one group are one unit, be it by a label or by a PodGroup. It consists of
those of them that may be evicted: a pod that is within its quota or exempt does not keep the
others, or a group of all pods of a namespace would keep all that it has borrowed. A unit has the
highest priority of its pods, its turn by the newest, and is protected only while all are young.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heapreplace
from typing import Final, Protocol

from webhook.quota.elastic.balance import Claim, Queued
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder, QuotaWalk, in_label_order
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.pod_groups import with_units

Unit = tuple[ElasticPod, ...]
"""Pods that are evicted together."""


class Room(Protocol):
    """Room for the pod once some are gone, which may come back, and go again."""

    @property
    def fits(self) -> bool:
        """Whether the pod fits some node."""

    def take(self, pods: Unit) -> None:
        """Count pods as gone."""

    def put_back(self, pods: Unit) -> None:
        """Count pods again that are gone."""


class Disruptions(Protocol):
    """PodDisruptionBudgets while pods are taken."""

    def allow(self, unit: Unit) -> bool:
        """Return whether they let a unit go now, after the pods that were taken already."""

    def take(self, unit: Unit) -> None:
        """Count a unit as gone."""


class AnyRoom:
    """Room where nodes are not known, or what a function says of it.

    Args:
        gone: The pods that are gone.
        has_node: Returns whether the pod fits some node once these are gone.
    """

    def __init__(
        self,
        gone: Iterable[ElasticPod] = (),
        has_node: Callable[[Sequence[ElasticPod]], bool] = lambda _gone: True,
    ) -> None:
        self._gone = {pod.uid: pod for pod in gone}
        self._has_node = has_node

    @property
    def fits(self) -> bool:
        """Whether the pod fits some node."""
        return self._has_node([*self._gone.values()])

    def take(self, pods: Unit) -> None:
        """Count pods as gone."""
        self._gone |= {pod.uid: pod for pod in pods}

    def put_back(self, pods: Unit) -> None:
        """Count pods again that are gone."""
        for pod in pods:
            del self._gone[pod.uid]


class NoBudgets:
    """Disruptions where every pod may be evicted."""

    def allow(self, unit: Unit) -> bool:
        """Return that a unit may go."""
        del unit
        return True

    def take(self, unit: Unit) -> None:
        """Count nothing."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Circumstances beside quotas that decide which pods may be evicted."""

    order: LabelOrder = LabelOrder.CREATION_TIME
    disruptions: Callable[[], Disruptions] = NoBudgets
    """Returns the PodDisruptionBudgets, while no pod is taken."""
    room: Callable[[Sequence[ElasticPod]], Room] = AnyRoom
    """Returns the room on nodes once some pods are gone."""
    is_disrupted_whole: Callable[[str, str], bool] = lambda _namespace, _name: False
    """Whether the pods of a PodGroup, by namespace and name, go together."""


@dataclass(frozen=True, slots=True)
class Source:
    """A quota from which may be taken now."""

    quota: str
    names: frozenset[str]
    """Resources of which a unit has to ask for one."""
    above: Fraction
    """How far it is above what is guaranteed to it, for its share."""
    is_for_max: bool = False
    """Whether something of its max is to become free."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """Age of a pod; the newest is the least."""

    age: tuple[object, ...]

    def __lt__(self, other: _Newest) -> bool:
        return self.age > other.age


@dataclass(frozen=True, slots=True)
class _Member:
    """A unit as the plan began, and its place among those of its quota."""

    pods: Unit
    is_partial: bool
    """Whether pods of the group stay."""
    priority: int
    newest: _Newest
    """Age of its newest pod."""

    @property
    def order(self) -> tuple[bool, int, _Newest]:
        """What decides between units of which nothing else is known; no two share it."""
        return self.is_partial, self.priority, self.newest


_SMALL: Final = 1000
"""A unit that frees less than one in so many parts of what the pod lacks is small: there can be so
many of them that no plan ends in time, and their creator would keep all others' pods by that."""

_Entry = tuple[bool, bool, bool, bool, int, _Newest, _Member]
"""Elsewhere, blocked, small, order (of three): the least goes first."""

_Rank = tuple[bool, bool, bool, Fraction, bool, int, _Newest]
_Head = tuple[_Rank, str, Unit]
"""The first unit of a quota that is in turn, after its rank among those of all."""


class Stock:
    """The pods of a pool that may be evicted for one pod, as units.

    Args:
        assigned: Key of each quota → its assigned pods, without those that are ending.
        claim: What the plan rests on.
    """

    def __init__(
        self,
        pool: Pool,
        assigned: Mapping[str, Sequence[ElasticPod]],
        queued: Queued,
        given: Circumstances,
        claim: Claim,
    ) -> None:
        self.given = given
        self._pool = pool
        self._queued = queued
        self._is_fair = claim is Claim.FAIR
        self._quotas = pool.quotas if claim is not Claim.NONE else (queued.quota,)
        self._assigned = assigned
        self._ordered: dict[str, Sequence[ElasticPod]] = {}
        self._members: dict[str, list[_Member]] = {}

    def members(self, key: str) -> Sequence[_Member]:
        """Return the units of a quota, worked out when they are asked for: few quotas are."""
        if key not in self._members:
            self._members[key] = [*self._units(key)]
        return self._members[key]

    def everything(self) -> list[ElasticPod]:
        """Return all pods that may be evicted."""
        return [pod for key in self._quotas for one in self.members(key) for pod in one.pods]

    def walk(self, key: str) -> QuotaWalk | None:
        """Return the walk over a quota; None of that of the pod, where priorities decide."""
        if key == self._queued.quota:
            return None
        return QuotaWalk(self._pool.quotas[key], self._in_order(key))

    def _in_order(self, key: str) -> Sequence[ElasticPod]:
        if key not in self._ordered:
            ordered = in_label_order(self._assigned.get(key, ()), self.given.order)
            self._ordered[key] = with_units(ordered, self.given.is_disrupted_whole)
        return self._ordered[key]

    def _units(self, key: str) -> Iterator[_Member]:
        groups: dict[tuple[str, str], list[ElasticPod]] = {}
        for pod in self._in_order(key):
            groups.setdefault((pod.namespace, pod.group or f"\0{pod.uid}"), []).append(pod)
        may_go = self._may_go(key)
        for pods in groups.values():
            unit = tuple([pod for pod in pods if not pod.is_exempt and may_go(pod)])
            if unit and not (self._is_fair and all(pod.is_young for pod in unit)):
                yield _Member(
                    unit,
                    len(unit) < len(pods),
                    max(pod.priority for pod in unit),
                    _Newest(max(pod.age_order for pod in unit)),
                )

    def _may_go(self, key: str) -> Callable[[ElasticPod], bool]:
        walk, priority = self.walk(key), self._queued.pod.priority
        return (lambda pod: pod.priority < priority) if walk is None else walk.is_over


class Candidates:
    """The units that are in turn, while some are taken.

    Args:
        lacking: Of which resources how much is to be freed for the pod itself.
        node: Pods of this one are taken first; empty: wherever they are.
        keeps_blocked: Whether those that a budget keeps now come after all others, there too.

    Attributes:
        has_blocked: Whether a budget keeps one of them.
    """

    def __init__(
        self, stock: Stock, lacking: Mapping[str, int], node: str, *, keeps_blocked: bool = False
    ) -> None:
        self.has_blocked = False
        self._stock = stock
        self._lacking = lacking
        self._node = node
        self._keeps_blocked = keeps_blocked
        self._entries: dict[tuple[str, bool], list[_Entry]] = {}
        self._walks: dict[str, QuotaWalk | None] = {}
        self._taken: set[str] = set()
        self._heads: dict[str, tuple[Source, _Head | None]] = {}
        """Heads of quotas from which nothing was taken since; budgets are of one quota each."""
        self._disruptions = stock.given.disruptions()

    def take(self, sources: Iterable[Source]) -> Unit | None:
        """Return the unit to evict next, of one of these quotas; None if there is none."""
        first = self._first(sources)
        if first is None:
            return None
        _, key, unit = first
        self._heads.pop(key, None)
        self._disruptions.take(unit)
        walk = self._walks[key]
        for pod in unit:
            self._taken.add(pod.uid)
            if walk is not None:
                walk.remove(pod)
        return unit

    def _first(self, sources: Iterable[Source]) -> _Head | None:
        """Return the head of least rank, and look at no quota that cannot have it.

        One that can be evicted, where it is looked for, comes before all of quotas less far above.
        """
        first: _Head | None = None
        for one in sorted(sources, key=lambda source: source.above, reverse=True):
            if first is not None and first[0][:4] < (False, False, False, -one.above):
                break
            head = self._known_head(one)
            if head is not None and (first is None or head[0] < first[0]):
                first = head
        return first

    def _known_head(self, source: Source) -> _Head | None:
        """Return the head of a quota, looked for once until something is taken from the quota."""
        former, head = self._heads.get(source.quota, (None, None))
        if former is None or replace(source, above=former.above) != former:
            head = self._head(source)
            self._heads[source.quota] = source, head
        if head is None:
            return None
        rank, key, unit = head
        return (*rank[:3], -source.above, *rank[4:]), key, unit

    def _head(self, source: Source) -> _Head | None:
        """Return the first unit of a quota that is in turn, after its rank among those of all."""
        entries = self._entries_of(source)
        while entries:
            elsewhere, is_blocked, is_small, _, _, _, member = entries[0]
            unit = self._present(source.quota, member)
            if not _asks(unit, source.names):
                heappop(entries)
            elif not is_blocked and not self._disruptions.allow(unit):
                self.has_blocked = True
                last = elsewhere or self._keeps_blocked
                heapreplace(entries, (last, True, is_small, *member.order, member))
            elif not is_small and self._is_small(unit, source.names):
                heapreplace(entries, (elsewhere, is_blocked, True, *member.order, member))
            else:
                rank = (elsewhere, is_blocked, is_small, -source.above, *member.order)
                return rank, source.quota, unit
        return None

    def _entries_of(self, source: Source) -> list[_Entry]:
        key = source.quota, source.is_for_max
        if key not in self._entries:
            if source.quota not in self._walks:
                self._walks[source.quota] = self._stock.walk(source.quota)
            entries = [
                (self._is_elsewhere(one), False, False, *one.order, one)
                for one in self._stock.members(source.quota)
            ]
            heapify(entries)
            self._entries[key] = entries
        return self._entries[key]

    def _is_small(self, unit: Unit, names: Iterable[str]) -> bool:
        freed = ((sum(pod.amounts.get(name, 0) for pod in unit), name) for name in names)
        return all(amount * _SMALL < self._lacking[name] for amount, name in freed)

    def _is_elsewhere(self, member: _Member) -> bool:
        return self._node != "" and all(pod.node != self._node for pod in member.pods)

    def _present(self, key: str, member: _Member) -> Unit:
        """Return the pods of a unit that are in turn by now."""
        walk = self._walks[key]
        return tuple(
            [
                pod
                for pod in member.pods
                if pod.uid not in self._taken and (walk is None or walk.is_over(pod))
            ]
        )


def flat(units: Iterable[Unit]) -> list[ElasticPod]:
    """Return the pods of units."""
    return [pod for unit in units for pod in unit]


def _asks(unit: Unit, names: Collection[str]) -> bool:
    return any(name in pod.amounts for pod in unit for name in names)
