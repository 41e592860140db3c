"""The judge of gates: pods that wait for quota, their order left aside.

- A pod that has the product's gate has no node.
- A gate goes only with a promise: the ledger held one for the pod, now or at some moment of the
  window; or the pod was free at some moment of it: its namespace had not opted in or was not paced,
  or no quota charged it anything.
- A pod is created without the gate, because there is room, only where that may be: in a namespace
  that said so at some moment of the window. It never gets the gate later.
- In the end, no gate is left where nobody removes it, and the first of those who wait for a quota
  does not fit; cluster quotas and the elastic pool are quotas of several namespaces.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.torture.observer.amounts import Amounts, spelled, total
from tests.torture.observer.facts import (
    ClusterFact,
    Fact,
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
)
from tests.torture.observer.recount import Difference, recount
from tests.torture.observer.replay import WINDOW_SECONDS, Finding


@dataclass(slots=True)
class _Namespace:
    gated: dict[str, PodFact] = field(default_factory=dict)
    quotas: dict[str, list[QuotaFact]] = field(default_factory=dict)
    promised: frozenset[str] = frozenset()
    promised_until: dict[str, float] = field(default_factory=dict)
    free_until: float = -math.inf  # infinite while nobody paces it
    let_through: set[str] = field(default_factory=set)
    lets_through_until: float = -math.inf  # infinite while it does


class GateJudge:
    """Takes facts in the order of their revisions; see the module for the rules."""

    def __init__(self, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._spaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self.findings: list[Finding] = []
        self.gated = 0
        self.released = 0
        self.let_through = 0

    def feed(self, fact: Fact) -> None:
        """Take the next fact."""
        space = self._spaces[fact.namespace]
        if isinstance(fact, PodFact):
            self._pod(space, fact)
        elif isinstance(fact, QuotaFact):
            space.quotas.setdefault(fact.name, []).append(fact)
        elif isinstance(fact, LedgerFact):
            now = frozenset(fact.promised)
            space.promised_until.update(dict.fromkeys(space.promised - now, fact.at))
            space.promised = now
        elif isinstance(fact, SpaceFact):
            if not (fact.is_deferred and fact.is_paced):
                space.free_until = math.inf
            elif space.free_until == math.inf:
                space.free_until = fact.at
            if fact.is_deferred and fact.lets_through:
                space.lets_through_until = math.inf
            elif space.lets_through_until == math.inf:
                space.lets_through_until = fact.at

    def _pod(self, space: _Namespace, fact: PodFact) -> None:
        if fact.is_let_through:
            self._let_through(space, fact)
        before = space.gated.pop(fact.uid, None)
        if fact.is_gated and fact.is_live:
            self.gated += before is None
            space.gated[fact.uid] = fact
            if fact.is_assigned:
                self._find("assigned behind the gate", fact)
        if before is None or fact.is_gated or not fact.is_live or fact.released_at is not None:
            return
        self.released += 1
        if not (self._was_promised(space, fact) or self._was_free(space, before, fact.at)):
            self._find("gate gone without a promise", fact)

    def _let_through(self, space: _Namespace, fact: PodFact) -> None:
        if fact.is_gated:
            self._find("let through, and gated", fact)
        if fact.uid in space.let_through:
            return
        space.let_through.add(fact.uid)
        self.let_through += 1
        if space.lets_through_until < fact.at - self._window:
            self._find("let through where nobody is", fact)

    def _was_promised(self, space: _Namespace, fact: PodFact) -> bool:
        until = space.promised_until.get(fact.uid, -math.inf)
        return fact.uid in space.promised or until >= fact.at - self._window

    def _was_free(self, space: _Namespace, pod: PodFact, at: float) -> bool:
        start = at - self._window
        return space.free_until >= start or not any(
            all(_charges(version, pod) for version in _in_force(versions, start))
            for versions in space.quotas.values()
        )

    def _find(self, kind: str, fact: PodFact) -> None:
        self.findings.append(
            Finding(
                kind=kind,
                revision=fact.revision,
                at=fact.at,
                namespace=fact.namespace,
                quota="-",
                pod=fact.name,
                amounts=fact.usage,
                limit={},
            )
        )


def _in_force(versions: Sequence[QuotaFact], start: float) -> Iterable[QuotaFact | None]:
    """Yield what a quota was since a moment; None where it was not there."""
    for number in range(len(versions) - 1, -1, -1):
        yield versions[number]
        if versions[number].at <= start:
            return
    yield None


def _charges(quota: QuotaFact | ClusterFact | None, pod: PodFact) -> bool:
    return (
        quota is not None
        and quota.selects(pod.traits)
        and any(pod.usage.get(key, 0) > 0 for key in quota.hard)
    )


FIRST: Final = (-(2**31), "")
"""Rank of a pod that all others may wait for."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod that waits behind the gate in the end.

    Attributes:
        rank: Its priority, and then its age: what is smaller is first.
    """

    pod: PodFact
    rank: tuple[int, str]

    @classmethod
    def of(cls, pod: PodFact, raw: Mapping[str, Any]) -> Waiting:
        """Read what the fact does not tell."""
        priority = int(raw["spec"].get("priority") or 0)
        return cls(pod, (-priority, str(raw["metadata"]["creationTimestamp"])))


@dataclass(frozen=True, slots=True)
class Shared:
    """A limit that namespaces share, or that one has of a shared pool, in the end.

    Attributes:
        used: What pods of its namespaces take, and what is promised to those without a node.
        waiting: The pods behind the gate in all of its namespaces.
    """

    limit: ClusterFact
    used: Amounts
    waiting: tuple[Waiting, ...] = ()

    @classmethod
    def of(
        cls,
        limit: ClusterFact,
        pods: Iterable[PodFact],
        promised: Container[str],
        waiting: Iterable[Waiting],
        *,
        at: float,
    ) -> Shared:
        """Count a limit among the pods of all namespaces."""
        taking = [
            pod
            for pod in pods
            if pod.namespace in limit.members
            and limit.selects(pod.traits)
            and (pod.is_assigned or pod.uid in promised)
            and pod.remains(at)
        ]
        behind = tuple(one for one in waiting if one.pod.namespace in limit.members)
        return cls(limit, total(pod.usage for pod in taking), behind)

    def with_owners_first(self) -> Shared:
        """Return it with pods that do not fit before all others, as an elastic pool has owners."""
        first = [
            one if self.has_room(one.pod) else replace(one, rank=FIRST) for one in self.waiting
        ]
        return replace(self, waiting=tuple(first))

    def has_room(self, pod: PodFact) -> bool:
        """Return whether a pod fits beside what is taken."""
        return all(
            not pod.usage.get(key) or self.used.get(key, 0) + pod.usage[key] <= limit
            for key, limit in self.limit.hard.items()
        )


_NOBODY_WAITS_HERE: Final = "waits behind the gate, where nobody takes it off"


def left_behind(
    space: SpaceFact,
    waiting: Sequence[Waiting],
    quotas: Sequence[QuotaFact],
    pods: Sequence[PodFact],
    ledger: LedgerFact | None,
    shared: Sequence[Shared] = (),
    *,
    at: float,
) -> list[Difference]:
    """Say of which pods the gate should be gone when everything is at rest."""
    if not (space.is_deferred and space.is_paced):
        return [Difference(space.namespace, one.pod.name, _NOBODY_WAITS_HERE) for one in waiting]
    used = {quota.name: recount(quota, pods, at=at) for quota in quotas}
    found: list[Difference] = []
    for one in waiting:
        concerned = [quota for quota in quotas if _charges(quota, one.pod)]
        limits = [
            each
            for each in shared
            if space.namespace in each.limit.members and _charges(each.limit, one.pod)
        ]
        has_room = all(
            _has_room(quota, used[quota.name], ledger, one.pod) for quota in concerned
        ) and all(each.has_room(one.pod) for each in limits)
        if not has_room:
            continue
        before: list[tuple[QuotaFact | ClusterFact, Sequence[Waiting]]] = [
            *((quota, waiting) for quota in concerned),
            *((each.limit, each.waiting) for each in limits),
        ]
        if not any(_is_behind(one, limit, others) for limit, others in before):
            what = f"waits behind the gate and fits: {spelled(one.pod.usage)}"
            found.append(Difference(space.namespace, one.pod.name, what))
    return found


def _is_behind(one: Waiting, limit: QuotaFact | ClusterFact, others: Iterable[Waiting]) -> bool:
    return any(
        other.rank <= one.rank and other.pod.uid != one.pod.uid and _charges(limit, other.pod)
        for other in others
    )


def _has_room(
    quota: QuotaFact, used: Mapping[str, int], ledger: LedgerFact | None, pod: PodFact
) -> bool:
    account = None if ledger is None else ledger.accounts.get(quota.name)
    reserved = {} if account is None else account.reserved
    return all(
        not pod.usage.get(key) or used[key] + reserved.get(key, 0) + pod.usage[key] <= limit
        for key, limit in quota.hard.items()
    )
