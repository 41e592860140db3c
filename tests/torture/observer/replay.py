"""The judge: replays a history in the order of its revisions and says where it broke the rules.

What is taken of a quota at a revision is the usage of all pods that are assigned, live and selected
by the quota's present spec. A pod that should be gone a whole grace period after its
`deletionTimestamp` counts no more, as on the platform.

**Over-commit.** A revision *charges* a quota's key if one pod's contribution to it rises: the pod
is assigned, grows, or begins to be selected by what was changed in it. A revision that charges a
key must not leave more taken of it than `spec.hard` allows. Which `spec.hard`: the decision was
made somewhere between the beginning of the request and its commit, by what could be known then. So
every version of the quota that was in force at any moment of the last `WINDOW_SECONDS` (what an API
request can last) may excuse the charge, one version for all its keys together; a version excuses
if what is taken now fits its limits, or if it would not have charged the pod by the same rule: the
quota was not there, was another object, or had other scopes. Where a quota has not been edited
within the window nothing is excused. Usage above a limit because the limit was lowered, a quota
was created or scopes were edited is no over-commit: those charge nothing; the next charge is.

Every excuse is counted, with how old the version was that gave it, measured from the commit, and
from the beginning of the pod's request where the load wrote that down.

A charge while the namespace had not opted in, at some moment of the window, is nobody's fault: the
decision may have been left to the API server. These are counted too.

**Law 1, uncovered.** At every revision a ledger holds used + reserved >= what is taken, for each
quota that it counts, or at least the limit that it has, where that was lowered within
`WINDOW_SECONDS`: what only a request has said is cut to it, and nothing more is admitted. Not asked
for `WINDOW_SECONDS` after a quota was created or its scopes were edited (it may still be counted
for the former spec), nor after the namespace was not opted in, and while there is no ledger.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.torture.observer.amounts import Amounts, spelled
from tests.torture.observer.facts import (
    Account,
    ClusterFact,
    Fact,
    LedgerFact,
    PodFact,
    QuotaFact,
    SpaceFact,
)

WINDOW_SECONDS: Final = 35.0
"""An API request ends within 34 seconds; two watches are apart by far less than the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that must not be."""

    kind: str
    revision: int
    at: float
    namespace: str
    quota: str
    pod: str
    amounts: Amounts
    limit: Amounts

    def __str__(self) -> str:
        return (
            f"{self.kind} at revision {self.revision}: {self.namespace}/{self.quota}"
            f" pod {self.pod or '-'}: {spelled(self.amounts)} of {spelled(self.limit)}"
        )


@dataclass(slots=True)
class Excuses:
    """Charges that only a former version of the quota allows.

    Attributes:
        count: How many.
        oldest_seconds: From the end of that version to the commit, at most.
        before_request_seconds: From its end to the beginning of the request, at most, of those
            whose request is known; above zero the limit was out of date from the beginning.
        before_request: How many were.
    """

    count: int = 0
    oldest_seconds: float = 0.0
    before_request_seconds: float = 0.0
    before_request: int = 0


@dataclass(slots=True)
class _Namespace:
    pods: dict[str, PodFact] = field(default_factory=dict)  # charged ones, by uid
    quotas: dict[str, QuotaFact] = field(default_factory=dict)
    taken: dict[str, dict[str, int]] = field(default_factory=dict)  # quota → key → amount
    versions: dict[str, list[QuotaFact]] = field(default_factory=dict)
    ledger: LedgerFact | None = None
    out_until: float = -math.inf  # infinite while it has not opted in


class Judge:
    """Takes facts in the order of their revisions; see the module for the rules.

    Args:
        requests: Pod uid → when requests began that could charge it, ascending.
        window_seconds: How far back a limit may excuse.
        began: When the first request can have begun; versions that ended before excuse nothing.
        most_findings: Further ones are counted and not kept.
    """

    def __init__(
        self,
        *,
        requests: Mapping[str, Sequence[float]] | None = None,
        window_seconds: float = WINDOW_SECONDS,
        began: float = -math.inf,
        most_findings: int = 1000,
    ) -> None:
        self._requests = requests or {}
        self._window, self._began = window_seconds, began
        self._most = most_findings
        self._spaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._releases: list[tuple[float, str, str]] = []
        self._revision = 0
        self.findings: list[Finding] = []
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.excuses = Excuses()
        self.charges = 0
        self.charges_outside = 0
        self.assignments = 0
        self.highest: dict[tuple[str, str, str], int] = {}

    def feed(self, fact: Fact) -> None:
        """Take the next fact.

        Raises:
            ValueError: It is older than one before it.
        """
        if fact.revision < self._revision:
            raise ValueError(f"revision {fact.revision} comes after {self._revision}")
        self._revision = fact.revision
        self._release(fact.at)
        if isinstance(fact, ClusterFact):
            return
        space = self._spaces[fact.namespace]
        if isinstance(fact, PodFact):
            self._pod(space, fact)
        elif isinstance(fact, QuotaFact):
            self._quota(space, fact)
        elif isinstance(fact, SpaceFact):
            if not fact.is_deferred:
                space.out_until = math.inf
            elif space.out_until == math.inf:
                space.out_until = fact.at
        else:
            space.ledger = fact
            self._check_cover(space, fact, "")

    def taken(self, namespace: str, quota: str) -> Amounts:
        """Return what is taken of a quota's keys after the last fact."""
        return dict(self._spaces[namespace].taken.get(quota, {}))

    def pods(self, namespace: str) -> Iterable[PodFact]:
        """Return the pods that are charged after the last fact."""
        return self._spaces[namespace].pods.values()

    # -- pods --------------------------------------------------------------------------------

    def _pod(self, space: _Namespace, fact: PodFact) -> None:
        before = space.pods.pop(fact.uid, None)
        is_charged = fact.is_assigned and fact.is_live
        if fact.released_at is not None and fact.released_at <= fact.at:
            is_charged = False
        if is_charged:
            space.pods[fact.uid] = fact
            self.assignments += before is None
            if fact.released_at is not None:
                heapq.heappush(self._releases, (fact.released_at, fact.namespace, fact.uid))
        after = fact if is_charged else None
        has_grown = False
        for quota in space.quotas.values():
            grown = self._recharge(space, quota, before, after)
            if grown:
                has_grown = True
                self._check_limit(space, quota, fact, grown)
        if has_grown:
            self.charges += 1
            self._check_cover(space, fact, fact.name)

    def _recharge(
        self, space: _Namespace, quota: QuotaFact, before: PodFact | None, after: PodFact | None
    ) -> list[str]:
        """Replace a pod's contribution; return the keys under which it has grown."""
        old, new = _contribution(quota, before), _contribution(quota, after)
        if old == new:
            return []
        taken = space.taken[quota.name]
        for key in quota.hard:
            taken[key] += new.get(key, 0) - old.get(key, 0)
        return [key for key in new if new[key] > old.get(key, 0)]

    def _check_limit(
        self, space: _Namespace, quota: QuotaFact, fact: PodFact, keys: Sequence[str]
    ) -> None:
        taken = {key: space.taken[quota.name][key] for key in keys}
        for key, amount in taken.items():
            place = (quota.namespace, quota.name, key)
            self.highest[place] = max(self.highest.get(place, 0), amount)
        if _fits(taken, quota.hard):
            return
        if self._was_outside(space, fact.at):
            self.charges_outside += 1
            return
        excuse = self._excuse(space, quota, fact, taken)
        if excuse is None:
            limit = {key: quota.hard[key] for key in keys}
            self._find("over-commit", fact, quota.name, fact.name, taken, limit)
        else:
            self._note_excuse(fact, excuse)

    def _was_outside(self, space: _Namespace, at: float) -> bool:
        """Say whether the namespace had not opted in at some moment of the window."""
        return space.out_until >= max(at - self._window, self._began)

    def _excuse(
        self, space: _Namespace, quota: QuotaFact, fact: PodFact, taken: Amounts
    ) -> float | None:
        """Return when the latest version ended that allows what was taken; None without one."""
        for version, ended in self._former(space, quota.name, fact.at):
            is_same = (
                version is not None
                and version.is_there
                and version.uid == quota.uid
                and version.conditions == quota.conditions
            )
            if not is_same or version is None or _fits(taken, version.hard):
                return ended
        return None

    def _former(
        self, space: _Namespace, name: str, at: float
    ) -> Iterator[tuple[QuotaFact | None, float]]:
        """Yield the former versions that were in force in the window, latest first, and their end.

        Before the first version there was none.
        """
        start = max(at - self._window, self._began)
        versions = space.versions[name]
        for number in range(len(versions) - 1, -1, -1):
            ended = versions[number].at
            if ended < start:
                return
            yield (versions[number - 1] if number else None), ended

    def _note_excuse(self, fact: PodFact, ended: float) -> None:
        excuses = self.excuses
        excuses.count += 1
        excuses.oldest_seconds = max(excuses.oldest_seconds, fact.at - ended)
        began = self._request_began(fact)
        if began is not None and began > ended:
            excuses.before_request += 1
            excuses.before_request_seconds = max(excuses.before_request_seconds, began - ended)

    def _request_began(self, fact: PodFact) -> float | None:
        """Return when the first request began that can have made this change."""
        moments = self._requests.get(fact.uid, ())
        first = bisect_right(moments, fact.at - self._window)
        return moments[first] if first < len(moments) and moments[first] <= fact.at else None

    def _release(self, now: float) -> None:
        while self._releases and self._releases[0][0] <= now:
            moment, namespace, uid = heapq.heappop(self._releases)
            space = self._spaces[namespace]
            pod = space.pods.get(uid)
            if pod is not None and pod.released_at == moment:
                del space.pods[uid]
                for quota in space.quotas.values():
                    self._recharge(space, quota, pod, None)

    # -- quotas and ledgers ------------------------------------------------------------------

    def _quota(self, space: _Namespace, fact: QuotaFact) -> None:
        space.versions.setdefault(fact.name, []).append(fact)
        if not fact.is_there:
            space.quotas.pop(fact.name, None)
            space.taken.pop(fact.name, None)
            return
        space.quotas[fact.name] = fact
        taken = dict.fromkeys(fact.hard, 0)
        for pod in space.pods.values():
            for key, amount in _contribution(fact, pod).items():
                taken[key] += amount
        space.taken[fact.name] = taken

    def _check_cover(self, space: _Namespace, fact: PodFact | LedgerFact, pod: str) -> None:
        ledger = space.ledger
        if ledger is None or not ledger.is_there or self._was_outside(space, fact.at):
            return
        for name, quota in space.quotas.items():
            account = ledger.accounts.get(name)
            if account is None or account.uid != quota.uid:
                continue
            held = {
                key: account.used[key] + account.reserved.get(key, 0)
                for key in quota.hard
                if key in account.used
            }
            short = [
                key
                for key in held
                if held[key] < space.taken[name][key]
                and not self._is_full(space, name, key, account, fact.at)
            ]
            if short and not self._was_reshaped(space, name, fact.at):
                taken = {key: space.taken[name][key] for key in short}
                self._find("uncovered", fact, name, pod, taken, {key: held[key] for key in short})

    def _is_full(self, space: _Namespace, name: str, key: str, account: Account, at: float) -> bool:
        """Say whether an account holds all of a limit that was higher within the window."""
        hard = account.hard.get(key)
        if hard is None or account.used[key] + account.reserved.get(key, 0) < hard:
            return False
        return any(
            version is not None and version.hard.get(key, 0) > hard
            for version, _ended in self._former(space, name, at)
        )

    def _was_reshaped(self, space: _Namespace, name: str, at: float) -> bool:
        """Say whether the quota came, or got other scopes or keys, within the window."""
        present = space.quotas[name]
        return any(
            version is None
            or not version.is_there
            or version.uid != present.uid
            or version.conditions != present.conditions
            or version.hard.keys() != present.hard.keys()
            for version, _ended in self._former(space, name, at)
        )

    def _find(
        self,
        kind: str,
        fact: PodFact | LedgerFact,
        quota: str,
        pod: str,
        amounts: Amounts,
        limit: Amounts,
    ) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= self._most:
            self.findings.append(
                Finding(
                    kind=kind,
                    revision=fact.revision,
                    at=fact.at,
                    namespace=fact.namespace,
                    quota=quota,
                    pod=pod,
                    amounts=amounts,
                    limit=limit,
                )
            )


def _contribution(quota: QuotaFact, pod: PodFact | None) -> Mapping[str, int]:
    if pod is None or not quota.selects(pod.traits):
        return {}
    return {key: amount for key, amount in pod.usage.items() if key in quota.hard}


def _fits(taken: Amounts, hard: Amounts) -> bool:
    return all(key not in hard or amount <= hard[key] for key, amount in taken.items())
