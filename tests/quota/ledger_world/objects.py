"""Versions of pods and quotas, requests about pods, and amounts that are whole numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeVar

from webhook.quota.amounts.quantity import UNCOUNTABLE, Quantity
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.ledger.ledger import Claim, Ledger, QuotaRevision

CPU = "requests.cpu"
MEMORY = "requests.memory"
KEYS = (frozenset({CPU, MEMORY}), frozenset({CPU}), frozenset({MEMORY}))
"""What the configuration may defer."""
HELD = "/hold"
"""How what is counted is named where stuck pods are held."""
HUGE = UNCOUNTABLE.value
"""What is counted for an amount that is too large to be counted."""
SCOPES = ("all", "gold", "deadline", "no-deadline")

T = TypeVar("T")


@dataclass(frozen=True)
class PodState:
    """One version of a pod in storage."""

    uid: str
    name: str
    version: int
    cpu: int
    memory: int
    gold: bool
    has_deadline: bool = False
    is_assigned: bool = False
    is_finished: bool = False
    is_deleted: bool = False
    is_gated: bool = False
    is_stuck: bool = False
    """It is being deleted, and its grace period is long over."""
    is_mirror: bool = False
    may_preempt: bool = False

    @property
    def is_live(self) -> bool:
        return not (self.is_finished or self.is_deleted)

    def counts(self, *, holds: bool) -> bool:
        """Return whether it is charged, where stuck pods are held until they are gone, or not."""
        return self.is_live and (holds or not self.is_stuck)

    @property
    def runs(self) -> bool:
        return self.is_assigned and self.is_live

    @property
    def waits(self) -> bool:
        return self.is_gated and self.is_live and not self.is_assigned

    @property
    def usage(self) -> ResourceList:
        return amounts(self.cpu, self.memory)


@dataclass(frozen=True)
class QuotaState:
    """One version of a quota in storage; `scope` is one of `SCOPES`."""

    uid: str
    name: str
    cpu: int
    memory: int
    scope: str
    is_deleted: bool = False

    def hard(self, keys: Set[str]) -> ResourceList:
        return part(amounts(self.cpu, self.memory), keys)

    def observed(self, keys: Set[str], *, holds: bool) -> QuotaRevision:
        named = "+".join(sorted(keys)) + (HELD if holds else "")
        return QuotaRevision(self.name, self.uid, f"{self.cpu}/{self.memory}/{self.scope}/{named}")

    def applies_to(self, pod: PodState) -> bool:
        return {
            "all": True,
            "gold": pod.gold,
            "deadline": pod.has_deadline,
            "no-deadline": not pod.has_deadline,
        }[self.scope]


@dataclass
class Request:
    """A request on its way to storage, and what the handler knew that was asked about it."""

    kind: str
    pod: PodState  # as storage will have it if the request succeeds
    read_version: int  # the version the API server's write is conditional on; 0: none
    started: float
    claim: Claim
    observed: frozenset[QuotaRevision]
    ledger: tuple[int, Ledger | None]
    keys: frozenset[str]
    holds: bool
    again: Callable[[PodState], None] | None = None
    """Asks again, of a newer pod, where storage has one; None for what then has failed."""
    is_admitted: bool = False
    admitted_at: int = 0
    was_refused: bool = False


def amounts(cpu: int, memory: int) -> ResourceList:
    """A resource list of whole numbers."""
    return {CPU: Quantity.parse(str(cpu)), MEMORY: Quantity.parse(str(memory))}


def part(resources: ResourceList, keys: Set[str]) -> ResourceList:
    """The deferred part of a resource list."""
    return {name: amount for name, amount in resources.items() if name in keys}


def raised(resources: ResourceList, more: int) -> ResourceList:
    """A resource list in which everything is more."""
    return {name: amount + Quantity.parse(str(more)) for name, amount in resources.items()}


def observed(
    quotas: Mapping[str, QuotaState], keys: Set[str], *, holds: bool
) -> frozenset[QuotaRevision]:
    """What quotas are counted as by whoever defers `keys`, and holds stuck pods or does not."""
    return frozenset(quota.observed(keys, holds=holds) for quota in quotas.values())


def number(resources: ResourceList, name: str) -> int:
    """One amount as a whole number; absent is 0."""
    return resources[name].value if name in resources else 0


def pick(items: Sequence[T], index: int) -> T | None:
    """Choose by an arbitrary number; None where there is nothing to choose from."""
    return items[index % len(items)] if items else None
