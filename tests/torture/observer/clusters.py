"""The judge of cluster quotas: what the pods of all their namespaces take together.

It knows nothing of grants. A charge (`replay` says what that is) in a namespace that a cluster
quota's status lists must not leave more taken in all listed namespaces than its `spec.hard`. As
there, every version of the cluster quota that was in force within the window may excuse it: one
with room for what is taken, or one that would not have charged the pod so, because it was not
there, had other scopes, or listed other namespaces. A namespace that comes in brings what runs in
it, which may be more than there is room for; that charges nothing, the next charge does. Whoever
had not opted in within the window is excused as well.

Without any cluster quota in the history it finds nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.torture.observer.amounts import Amounts
from tests.torture.observer.facts import ClusterFact, Fact, PodFact, SpaceFact
from tests.torture.observer.replay import WINDOW_SECONDS, Finding


@dataclass(slots=True)
class _Pods:
    """The charged pods of one namespace, and until when it had not opted in."""

    charged: dict[str, PodFact] = field(default_factory=dict)
    out_until: float = -math.inf


class ClusterJudge:
    """Takes facts in the order of their revisions; see the module for the rules."""

    def __init__(self, *, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._spaces: defaultdict[str, _Pods] = defaultdict(_Pods)
        self._versions: dict[str, list[ClusterFact]] = {}
        self.findings: list[Finding] = []
        self.charges = 0
        self.excused = 0

    def feed(self, fact: Fact) -> None:
        """Take the next fact."""
        if isinstance(fact, ClusterFact):
            self._versions.setdefault(fact.name, []).append(fact)
        elif isinstance(fact, PodFact):
            self._pod(self._spaces[fact.namespace], fact)
        elif isinstance(fact, SpaceFact):
            space = self._spaces[fact.namespace]
            if not fact.is_deferred:
                space.out_until = math.inf
            elif space.out_until == math.inf:
                space.out_until = fact.at

    def taken(self, quota: ClusterFact, at: float) -> dict[str, int]:
        """Add up what the pods of a cluster quota's namespaces take of it at a moment."""
        result = dict.fromkeys(quota.hard, 0)
        for name in quota.members:
            for pod in self._spaces[name].charged.values():
                if pod.released_at is not None and pod.released_at <= at:
                    continue
                for key, amount in _contribution(quota, pod).items():
                    result[key] += amount
        return result

    def _pod(self, space: _Pods, fact: PodFact) -> None:
        before = space.charged.pop(fact.uid, None)
        is_over = fact.released_at is not None and fact.released_at <= fact.at
        if not fact.is_assigned or not fact.is_live or is_over:
            return
        space.charged[fact.uid] = fact
        for versions in self._versions.values():
            quota = versions[-1]
            if not quota.is_there or fact.namespace not in quota.members:
                continue
            old = {} if before is None else _contribution(quota, before)
            new = _contribution(quota, fact)
            grown = [key for key in new if new[key] > old.get(key, 0)]
            if grown:
                self.charges += 1
                self._check(space, versions, fact, grown)

    def _check(
        self, space: _Pods, versions: list[ClusterFact], fact: PodFact, keys: list[str]
    ) -> None:
        quota = versions[-1]
        everything = self.taken(quota, fact.at)
        taken = {key: everything[key] for key in keys}
        if _fits(taken, quota.hard):
            return
        if self._is_excused(space, versions, fact, taken):
            self.excused += 1
            return
        self.findings.append(
            Finding(
                kind="over-commit of a cluster quota",
                revision=fact.revision,
                at=fact.at,
                namespace=fact.namespace,
                quota=quota.name,
                pod=fact.name,
                amounts=taken,
                limit={key: quota.hard[key] for key in keys},
            )
        )

    def _is_excused(
        self, space: _Pods, versions: list[ClusterFact], fact: PodFact, taken: Amounts
    ) -> bool:
        start, present = fact.at - self._window, versions[-1]
        if space.out_until >= start:
            return True
        for number in range(len(versions) - 1, -1, -1):
            if versions[number].at < start:
                return False
            former = versions[number - 1] if number else None
            if former is None or not _is_alike(former, present) or _fits(taken, former.hard):
                return True
        return False


def _is_alike(former: ClusterFact, present: ClusterFact) -> bool:
    """Say whether two versions charge the same pods."""
    return (
        former.is_there
        and former.uid == present.uid
        and former.conditions == present.conditions
        and former.members == present.members
    )


def _contribution(quota: ClusterFact, pod: PodFact) -> Mapping[str, int]:
    if not quota.selects(pod.traits):
        return {}
    return {key: amount for key, amount in pod.usage.items() if key in quota.hard}


def _fits(taken: Amounts, hard: Amounts) -> bool:
    return all(key not in hard or amount <= hard[key] for key, amount in taken.items())
