"""The strict judge: a pod with a node and without an end phase counts until it is gone from etcd.

It counts some namespaces, whose quotas are not edited, in two ways, at every revision of a pod:

- By the platform's rule, which is the product's with `terminatingPods: Release`: a pod that has a
  `deletionTimestamp` and is a whole grace period past it counts no more. That sum may never exceed
  `spec.hard`, whatever the revision is about. So what exceeds it strictly is explained entirely by
  pods past their grace period.
- Strictly. With `terminatingPods: Hold` this sum may never exceed `spec.hard` either.

The judge of `replay` looks at charges only, and excuses edits; here there is no excuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Final

from tests.torture.observer.facts import Fact, PodFact, QuotaFact
from tests.torture.observer.replay import Finding

_NOTHING: Final = Fraction(0)


def held(fact: Fact) -> Fact:
    """Return a fact in which time alone releases no pod, as with `terminatingPods: Hold`."""
    if isinstance(fact, PodFact) and fact.released_at is not None:
        return replace(fact, released_at=None)
    return fact


@dataclass(slots=True)
class _Namespace:
    pods: dict[str, PodFact] = field(default_factory=dict)
    quotas: dict[str, QuotaFact] = field(default_factory=dict)


class StrictJudge:
    """Takes facts in the order of their revisions; see the module for the rules.

    Args:
        namespaces: Which it judges.
        holds: Whether the product holds pods that are past their grace period.
    """

    def __init__(self, namespaces: Collection[str], *, holds: bool) -> None:
        self._names, self._holds = frozenset(namespaces), holds
        self._spaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._above: set[tuple[str, str, str, str]] = set()
        self.findings: list[Finding] = []
        self.highest = _NOTHING
        self.highest_strictly = _NOTHING
        self.revisions_above = 0
        self.past: set[str] = set()

    def feed(self, fact: Fact) -> None:
        """Take the next fact."""
        if fact.namespace not in self._names:
            return
        space = self._spaces[fact.namespace]
        if isinstance(fact, QuotaFact):
            if fact.is_there:
                space.quotas[fact.name] = fact
            else:
                space.quotas.pop(fact.name, None)
        elif isinstance(fact, PodFact):
            space.pods.pop(fact.uid, None)
            if fact.is_assigned and fact.is_live:
                space.pods[fact.uid] = fact
            self._look(space, fact)

    def summary(self) -> dict[str, Any]:
        """Return what is reported, as plain values."""
        return {
            "highest share": float(self.highest),
            "highest share, strictly": float(self.highest_strictly),
            "revisions above hard, strictly": self.revisions_above,
            "pods past their grace period then": len(self.past),
            "not explained": len(self.findings),
        }

    def _look(self, space: _Namespace, fact: PodFact) -> None:
        is_above = False
        for quota in space.quotas.values():
            pods = [pod for pod in space.pods.values() if quota.selects(pod.traits)]
            past = [pod for pod in pods if _is_past(pod, fact.at)]
            present = [pod for pod in pods if not _is_past(pod, fact.at)]
            for key, hard in quota.hard.items():
                strictly, by_rule = _sum(pods, key), _sum(present, key)
                self.highest = max(self.highest, _share(by_rule, hard))
                self.highest_strictly = max(self.highest_strictly, _share(strictly, hard))
                if strictly > hard:
                    is_above = True
                    self.past.update(pod.uid for pod in past)
                self._judge("over-commit", quota, key, by_rule, fact)
                if self._holds:
                    self._judge("over-commit of what is held", quota, key, strictly, fact)
        self.revisions_above += is_above

    def _judge(self, kind: str, quota: QuotaFact, key: str, taken: int, fact: PodFact) -> None:
        """Find a sum that exceeds a limit, once until it does not any more."""
        place = (kind, quota.namespace, quota.name, key)
        if taken <= quota.hard[key]:
            self._above.discard(place)
        elif place not in self._above:
            self._above.add(place)
            self.findings.append(
                Finding(
                    kind=kind,
                    revision=fact.revision,
                    at=fact.at,
                    namespace=quota.namespace,
                    quota=quota.name,
                    pod=fact.name,
                    amounts={key: taken},
                    limit={key: quota.hard[key]},
                )
            )


def _is_past(pod: PodFact, at: float) -> bool:
    return pod.released_at is not None and pod.released_at <= at


def _sum(pods: Iterable[PodFact], key: str) -> int:
    return sum(pod.usage.get(key, 0) for pod in pods)


def _share(taken: int, hard: int) -> Fraction:
    return Fraction(taken, hard) if hard else _NOTHING
