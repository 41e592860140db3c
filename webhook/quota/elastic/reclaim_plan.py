"""Plans to evict assigned pods, so that a queued pod gets what its quota is entitled to.

With R the request of the pod, A its quota and S the resources of R of which the pool is short, the
claim in each of S is

    own     used_A + R ≤ min_A                  from quotas over their min
    fair    used_A + R ≤ min_A + guaranteed_A   from quotas over min + guaranteed

and without either there is no plan. Guaranteed is that of the state that the plan leaves: the pod
counted in its quota, the victims so far gone. A victim is over-quota in the walk at its turn and
asks for a resource of S that is still short. Within A itself only pods of strictly lower priority
go; where `max` is in the way, only these help.

The victims are chosen one by one (`elastic.victims`), and those that are not needed are put back.
So no victim, queued in its turn, can have the beneficiary evicted: its quota was above what it is
entitled to without it (a property of the tests).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import islice
from typing import Final

from webhook.quota.elastic.balance import Balance, Claim, Queued, Shortage
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.victims import Candidates, Circumstances, Source, Stock, Unit, flat
from webhook.quota.shared.grants import MAX_PROMISES

TOO_MANY_PROMISES: Final = (
    f"its quota has half of what others leave of the {MAX_PROMISES} promises of the pool"
)
"""Why nothing is evicted for a pod although that would help."""

_MOST: Final = Fraction(10**60)
"""Above every ratio: a quota without a share is the one most above its guaranteed."""
_NODES: Final = 64
"""Nodes that are tried one by one where a plan that does not look at them leaves none with room."""


_MOST_WORK: Final = 200_000
"""Quotas compared for all pods that are to go: of 10,000 pods and 20 quotas, a second or two."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Pods to evict for one pod; none where it needs nothing, or nothing helps."""

    shortage: Shortage
    is_possible: bool
    claim: Claim = Claim.NONE
    victims: tuple[ElasticPod, ...] = ()
    """In the order in which they are evicted."""
    obstacle: str = ""
    """Why nothing helps."""
    lacks_node: bool = False
    """Whether the obstacle is that no node has room, though there is quota to take back."""


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
    balance = Balance(pool, queued, usage_of_pods(assigned))
    state = _State(pool, assigned, queued, given, balance)
    shortage = balance.shortage
    if not shortage.resources:
        if given.room(()).fits:
            return Plan(shortage, True)
        return Plan(shortage, False, obstacle="no node has room for it, and quota is not short")
    if not queued.takes:
        return Plan(shortage, False, obstacle="its preemptionPolicy is Never")
    attempts = [_Attempt(state, claims) for claims in state.claims()]
    unplaced = False
    for attempt in attempts:
        blocked: Plan | None = None
        for victims in attempt.plans():
            if not given.room(victims).fits:
                unplaced = True
                continue
            plan = Plan(shortage, True, attempt.claim, tuple(victims))
            if given.disruptions().allow(plan.victims):
                return plan
            blocked = blocked or plan
        if blocked is not None:
            return blocked
    is_placed_nowhere = unplaced and not state.work.is_too_much
    obstacle = "no node has room for it after any plan" if is_placed_nowhere else state.obstacle()
    return Plan(shortage, False, obstacle=obstacle, lacks_node=is_placed_nowhere)


@dataclass(slots=True)
class _Work:
    """Work that was done for one pod: quotas that were compared for each pod that is to go."""

    done: int = 0
    has_blocked: bool = False
    """Whether a budget keeps a pod that was looked at."""

    @property
    def is_too_much(self) -> bool:
        """Whether the plans of other pods wait for too long."""
        return self.done > _MOST_WORK


@dataclass(frozen=True, slots=True)
class _State:
    """A pool while a plan is made for one pod."""

    pool: Pool
    assigned: Mapping[str, Sequence[ElasticPod]]
    queued: Queued
    given: Circumstances
    balance: Balance
    """With all assigned pods, and the one that is queued counted in its quota."""
    work: _Work = field(default_factory=_Work)

    def claims(self) -> Iterator[Mapping[str, Claim]]:
        """Yield the claims to try: on other quotas where there are any, then on its own pods."""
        on_others = {name: self.balance.claim(name) for name in self.balance.shortage.beyond_pool}
        if on_others and Claim.NONE not in on_others.values():
            yield on_others
        yield {}

    def obstacle(self) -> str:
        """Return why there is no plan."""
        if self.work.is_too_much:
            return "too many pods would have to be evicted for it"
        short = self.balance.shortage
        if short.beyond_max:
            return "beyond max only pods of the same quota with lower priority help, and too few do"
        without = [name for name in short.beyond_pool if self.balance.claim(name) is Claim.NONE]
        if without:
            names = ", ".join(without)
            return f"its quota would be above min and guaranteed of {names}"
        return "no pod may be evicted for it that frees enough"


@dataclass(frozen=True)
class _Attempt:
    """One way to make room: by claims on other quotas, or by the quota's own pods alone."""

    state: _State
    claims: Mapping[str, Claim]
    """Resource of which the pool is short → claim; empty: nothing of others is taken."""

    @property
    def claim(self) -> Claim:
        found = set(self.claims.values())
        return Claim.FAIR if Claim.FAIR in found else Claim.OWN if found else Claim.NONE

    def plans(self) -> Iterator[list[ElasticPod]]:
        """Yield the plans to try: first the one that does not look at nodes.

        Whether one node or another is preferred, there is the same to take: where that is too
        little, or leaves no node with room when all of it goes, nothing else is tried. Nodes on
        which pods have to go that a budget keeps now come last: a tenant chooses its nodes.
        """
        victims = self._victims("")
        if victims is None:
            return
        yield victims
        everything = self.stock.everything()
        room = self.state.given.room
        if not room(everything).fits:
            return
        for node in islice(self._fitting_nodes(everything), _NODES):
            for keeps_blocked in (False, True):
                if keeps_blocked and not self.state.work.has_blocked:
                    break  # the same again
                victims = self._victims(node, keeps_blocked=keeps_blocked)
                if victims is not None:
                    yield victims

    def _fitting_nodes(self, everything: Iterable[ElasticPod]) -> Iterator[str]:
        """Yield the nodes that have room once all that may go is gone, those by free pods first."""
        by_node: dict[str, list[ElasticPod]] = {}
        for pod in everything:
            if pod.node:
                by_node.setdefault(pod.node, []).append(pod)
        room, budgets = self.state.given.room, self.state.given.disruptions()
        left: list[str] = []
        for node, pods in sorted(by_node.items()):
            free = [pod for pod in pods if budgets.allow((pod,))]
            if room(free).fits:
                yield node
            elif len(free) < len(pods):
                left.append(node)
        yield from (node for node in left if room(by_node[node]).fits)

    @cached_property
    def stock(self) -> Stock:
        """The pods that may be evicted."""
        state = self.state
        return Stock(state.pool, state.assigned, state.queued, state.given, self.claim)

    def _victims(self, node: str, *, keeps_blocked: bool = False) -> list[ElasticPod] | None:
        """Return what to evict, those of a node first; None if there is not enough.

        With `keeps_blocked` those that a budget keeps now come after all others, on the node too.
        """
        balance = self.state.balance.copy()
        candidates = Candidates(self.stock, balance.lacking, node, keeps_blocked=keeps_blocked)
        units: list[Unit] = []
        while (short := balance.shortage).resources:
            sources = self._sources(balance, short)
            self.state.work.done += 1 + len(sources)
            if self.state.work.is_too_much:
                return None
            chosen = candidates.take(sources)
            if chosen is None:
                return None
            balance.take(chosen)
            units.append(chosen)
            self.state.work.has_blocked |= candidates.has_blocked
        return flat(self._needed(units, balance))

    def _sources(self, balance: Balance, short: Shortage) -> list[Source]:
        """Return the quotas that may be taken from now."""
        own = self.state.queued.quota
        if short.beyond_max or not self.claims:
            names = frozenset(short.beyond_max or short.beyond_pool)
            return [Source(own, names, Fraction(0), is_for_max=bool(short.beyond_max))]
        return [one for one in self._above(balance, short.beyond_pool) if one.quota != own]

    def _above(self, balance: Balance, short: Collection[str]) -> Iterator[Source]:
        """Yield the quotas that are above what is theirs: in which resources, and how far."""
        pool = self.state.pool
        names: dict[str, set[str]] = {}
        for resource in self.claims:
            if resource not in short:
                continue
            is_fair = self.claims[resource] is Claim.FAIR
            for key, borrowed in pool.borrowed(resource, balance.usage).items():
                if borrowed and (not is_fair or borrowed > balance.guaranteed(key, resource)):
                    names.setdefault(key, set()).add(resource)
        for key, found in names.items():
            named = [name for name in self.claims if pool.part(name, key) is not None]
            yield Source(
                key, frozenset(found), max(self._ratio(balance, key, name) for name in named)
            )

    def _ratio(self, balance: Balance, key: str, resource: str) -> Fraction:
        """Return how far a quota is above what is guaranteed to it, for its share.

        Those without a share are above all others, and among themselves by what they take.
        """
        beyond = balance.used_beyond(key, resource) - balance.guaranteed(key, resource)
        share = self.state.pool.share(resource, key)
        return beyond / share if share else _MOST * max(0, beyond)

    def _needed(self, units: list[Unit], balance: Balance) -> list[Unit]:
        """Return the units without which the plan fails, those put back left out.

        Whatever is put back leaves the others what they were: over their quota, which is above
        what is guaranteed to it. The claim holds as well: it held with all pods there, and each
        that is gone can only leave more to lend, and the own quota no further above its min. Only
        whether there is enough has to be looked at.
        """

        def rank(unit: Unit) -> tuple[int, object]:
            return -max(pod.priority for pod in unit), min(pod.age_order for pod in unit)

        room = self.state.given.room(flat(units))
        is_placed = room.fits
        kept = dict(enumerate(units))
        for number, unit in sorted(kept.items(), key=lambda item: rank(item[1])):
            del kept[number]
            balance.put_back(unit)
            room.put_back(unit)
            if not balance.shortage.resources and (not is_placed or room.fits):
                continue
            balance.take(unit)
            room.take(unit)
            kept[number] = unit
        return [unit for _, unit in sorted(kept.items())]
