"""Histories for tests of the judge: what happens to pods and quotas, one revision each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.torture.observer.amounts import read_amounts
from tests.torture.observer.facts import (
    Account,
    ClusterFact,
    Fact,
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
)
from tests.torture.observer.replay import Judge
from tests.torture.observer.usage import Expression, Traits

SPACE = "team-a"


@dataclass
class History:
    """Facts in the making; every call is one revision, one second after the one before."""

    facts: list[Fact] = field(default_factory=list)
    clock: float = 0.0
    _pods: dict[str, PodFact] = field(default_factory=dict)
    _quotas: dict[str, QuotaFact] = field(default_factory=dict)

    @property
    def revision(self) -> int:
        """The last revision."""
        return len(self.facts)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock += seconds

    def quota(
        self, name: str, hard: Mapping[str, str], *conditions: Expression, uid: str = ""
    ) -> None:
        """Create or edit a quota."""
        revision, at = self._next()
        fact = QuotaFact(
            revision=revision,
            at=at,
            namespace=SPACE,
            name=name,
            uid=uid or f"uid-{name}",
            hard=read_amounts(hard),
            conditions=conditions,
        )
        self._quotas[name] = fact
        self.facts.append(fact)

    def remove_quota(self, name: str) -> None:
        """Delete a quota."""
        revision, at = self._next()
        self.facts.append(replace(self._quotas.pop(name), revision=revision, at=at, is_there=False))

    def pod(
        self,
        name: str,
        usage: Mapping[str, str],
        *,
        assigned: bool = False,
        uid: str = "",
        traits: Traits | None = None,
        gated: bool = False,
        let_through: bool = False,
        namespace: str = SPACE,
    ) -> None:
        """Create a pod."""
        revision, at = self._next()
        fact = PodFact(
            revision=revision,
            at=at,
            namespace=namespace,
            name=name,
            uid=uid or f"uid-{name}",
            is_gated=gated,
            is_let_through=let_through,
            is_assigned=assigned,
            traits=traits or Traits(),
            usage=read_amounts(usage),
        )
        self._pods[name] = fact
        self.facts.append(fact)

    def bind(self, name: str) -> None:
        """Assign a pod."""
        self._change(name, is_assigned=True)

    def ungate(self, name: str) -> None:
        """Take the gate off a pod."""
        self._change(name, is_gated=False)

    def move(
        self, *, deferred: bool = True, paced: bool = True, lets_through: bool = False
    ) -> None:
        """Change what the namespace's labels say."""
        revision, at = self._next()
        self.facts.append(
            SpaceFact(
                revision=revision,
                at=at,
                namespace=SPACE,
                is_deferred=deferred,
                is_paced=paced,
                lets_through=lets_through,
            )
        )

    def cluster_quota(
        self, hard: Mapping[str, str], *members: str, uid: str = "uid-all", is_there: bool = True
    ) -> None:
        """Create or edit a cluster quota, or list other namespaces in it."""
        revision, at = self._next()
        self.facts.append(
            ClusterFact(
                revision=revision,
                at=at,
                name="all",
                uid=uid,
                is_there=is_there,
                hard=read_amounts(hard),
                members=members,
            )
        )

    def resize(self, name: str, usage: Mapping[str, str]) -> None:
        """Change what a pod takes."""
        self._change(name, usage=read_amounts(usage))

    def flip(self, name: str, traits: Traits) -> None:
        """Change what scopes look at."""
        self._change(name, traits=traits)

    def end(self, name: str) -> None:
        """Let a pod end, or be gone."""
        self._change(name, is_live=False)

    def delete_later(self, name: str, seconds: float) -> None:
        """Ask a pod to end; it is charged for that long."""
        self._change(name, released_at=self.clock + 1 + seconds)

    def ledger(
        self,
        accounts: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]],
        *,
        reservations: int = 0,
        is_there: bool = True,
        promised: Sequence[str] = (),
        hard: Mapping[str, str] | None = None,
    ) -> None:
        """Write the ledger: quota → used, reserved; `hard` is the limit of each."""
        revision, at = self._next()
        self.facts.append(
            LedgerFact(
                revision=revision,
                at=at,
                namespace=SPACE,
                is_there=is_there,
                reservations=reservations,
                promised=tuple(f"uid-{name}" for name in promised),
                accounts={
                    name: Account(
                        uid=f"uid-{name}",
                        used=read_amounts(used),
                        reserved=read_amounts(reserved),
                        hard=read_amounts(hard),
                    )
                    for name, (used, reserved) in accounts.items()
                },
            )
        )

    def judge(
        self, requests: Mapping[str, list[float]] | None = None, began: float = -math.inf
    ) -> Judge:
        """Replay everything."""
        judge = Judge(requests=requests, began=began)
        for fact in self.facts:
            judge.feed(fact)
        return judge

    def _next(self) -> tuple[int, float]:
        self.clock += 1
        return len(self.facts) + 1, self.clock

    def _change(self, name: str, **changes: object) -> None:
        revision, at = self._next()
        fact = replace(self._pods[name], revision=revision, at=at, **changes)  # type: ignore[arg-type]
        self._pods[name] = fact
        self.facts.append(fact)
