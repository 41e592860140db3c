"""What a run found, as JSON and as text."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tests.torture.load.tally import Tally
from tests.torture.observer.clusters import ClusterJudge
from tests.torture.observer.facts import Fact, QuotaFact
from tests.torture.observer.gating import GateJudge
from tests.torture.observer.replay import Judge
from tests.torture.observer.strict import StrictJudge
from tests.torture.world import Incident

_MOST_SHOWN: Final = 20


@dataclass
class Report:
    """Everything that a run found; see `problems` for what makes it fail."""

    options: Mapping[str, object]
    seconds: float = 0.0
    binds: Mapping[str, int] = field(default_factory=dict)
    bind_seconds: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    messages: Mapping[str, int] = field(default_factory=dict)
    incidents: Sequence[Incident] = ()
    facts: int = 0
    assignments: int = 0
    charges: int = 0
    charges_outside: int = 0
    gated: int = 0
    released: int = 0
    let_through: int = 0
    misgated: int = 0
    cluster_charges: int = 0
    churn: Mapping[str, object] = field(default_factory=dict)
    over_commits: int = 0
    uncovered: int = 0
    findings: Sequence[str] = ()
    excuses: Mapping[str, object] = field(default_factory=dict)
    unmasked: Mapping[str, float] = field(default_factory=dict)
    longest_heal_seconds: float = 0.0
    longest_heal: str = ""
    quiet_seconds: float | None = None
    differences: Sequence[str] = ()
    errors: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """Say what must not be; a run without problems passes."""
        found = [f"{self.over_commits} over-commits"] if self.over_commits else []
        if self.uncovered:
            found.append(f"{self.uncovered} revisions at which a ledger held less than was taken")
        if self.misgated:
            found.append(f"{self.misgated} pods with a gate, or without one, that should not be")
        found += [f"in the end: {each}" for each in self.differences]
        return found + self.errors

    def judged(self, judge: Judge, facts: Sequence[Fact]) -> None:
        """Take over what the judge found."""
        self.facts, self.charges, self.assignments = len(facts), judge.charges, judge.assignments
        self.over_commits = judge.counts["over-commit"]
        self.uncovered = judge.counts["uncovered"]
        self.findings = [str(each) for each in judge.findings]
        self.charges_outside = judge.charges_outside
        self.excuses = asdict(judge.excuses)
        self.unmasked = unmasked(facts)

    def judged_gates(self, judge: GateJudge) -> None:
        """Take over what the judge of gates found."""
        self.gated, self.released = judge.gated, judge.released
        self.let_through = judge.let_through
        self.misgated = len(judge.findings)
        self.findings = [*self.findings, *map(str, judge.findings)]

    def judged_clusters(self, judge: ClusterJudge) -> None:
        """Take over what the judge of cluster quotas found."""
        self.cluster_charges = judge.charges
        self.over_commits += len(judge.findings)
        self.findings = [*self.findings, *map(str, judge.findings)]

    def judged_churn(self, judge: StrictJudge, tally: Tally) -> None:
        """Take over what the strict judge found of the churn, and what became of its binds."""
        self.churn = {
            "binds": tally.outcomes(),
            "answers": tally.by_code(),
            "messages": dict(tally.messages.most_common(20)),
            **judge.summary(),
        }
        self.over_commits += len(judge.findings)
        self.findings = [*self.findings, *map(str, judge.findings)]

    def loaded(self, tally: Tally) -> None:
        """Take over what the load counted."""
        self.binds = {"tried": tally.tried, **tally.outcomes()}
        self.answers = tally.by_code()
        self.messages = dict(tally.messages.most_common(60))
        waited = sorted(tally.bind_seconds)
        if waited:
            self.bind_seconds = {
                "median": statistics.median(waited),
                "99th percentile": waited[int(len(waited) * 0.99)],
                "longest": waited[-1],
            }

    def healed(self, incidents: Sequence[Incident], tally: Tally, namespaces: list[str]) -> None:
        """Find out how long binds stood still after each fault."""
        self.incidents = incidents
        for incident in incidents:
            places = incident.namespaces or namespaces
            waits = {
                each: _next_after(tally.bound.get(each, []), incident.ended) for each in places
            }
            known = [wait for wait in waits.values() if wait is not None]
            incident.heal_seconds = max(known, default=None)
            incident.unhealed = tuple(each for each, wait in waits.items() if wait is None)
            if (incident.heal_seconds or 0.0) > self.longest_heal_seconds:
                self.longest_heal_seconds = incident.heal_seconds or 0.0
                self.longest_heal = f"{incident.kind}: {incident.detail}"

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        faults = Counter(each.kind for each in self.incidents)
        return {
            "passed": not self.problems,
            "problems": self.problems,
            **asdict(self),
            "faults": dict(faults.most_common()),
        }

    def text(self) -> str:
        """Return it for people."""
        return "\n".join([*self._load_lines(), *self._fault_lines(), *self._judge_lines()])

    def _load_lines(self) -> Iterable[str]:
        outcomes = ", ".join(f"{count} {name}" for name, count in self.binds.items())
        yield f"{self.seconds:.0f} s of load, seed {self.options.get('seed')}"
        yield f"binds: {outcomes}"
        wanted = self.options.get("binds", 0)
        if isinstance(wanted, int) and self.binds.get("tried", 0) < wanted:
            yield f"NOTE: that is fewer than {wanted}: this machine is too slow for that many"
        if self.bind_seconds:
            spread = ", ".join(f"{name} {value:.3f} s" for name, value in self.bind_seconds.items())
            yield f"time of a bind: {spread}"
        yield "unexpected answers:"
        shown = list(self.messages.items())[:_MOST_SHOWN]
        yield from (f"  {count:6} x {message}" for message, count in shown)

    def _fault_lines(self) -> Iterable[str]:
        yield f"faults: {len(self.incidents)}"
        kinds: defaultdict[str, list[Incident]] = defaultdict(list)
        for incident in self.incidents:
            kinds[incident.kind].append(incident)
        for kind, several in sorted(kinds.items()):
            heals = [each.heal_seconds for each in several if each.heal_seconds is not None]
            longest = f"binds went on after at most {max(heals):.1f} s" if heals else ""
            failed = sum(bool(each.error) for each in several)
            yield f"  {len(several):4} x {kind}: {longest}" + (
                f" ({failed} did not go through)" if failed else ""
            )
        longest_of_all = f"{self.longest_heal_seconds:.1f} s ({self.longest_heal})"
        yield f"longest until binds went on: {longest_of_all}"

    def _judge_lines(self) -> Iterable[str]:
        yield (
            f"history: {self.facts} facts, {self.assignments} assignments, {self.charges} charges,"
            f" {self.excuses.get('count', 0)} excused by an edit of the quota,"
            f" {self.charges_outside} while the namespace was out"
        )
        yield (
            f"gates: {self.gated} pods waited, {self.released} were released,"
            f" {self.let_through} needed none, {self.misgated} wrongly;"
            f" charges of cluster quotas: {self.cluster_charges}"
        )
        if self.churn:
            binds = self.churn["binds"]
            assert isinstance(binds, Mapping)
            outcomes = ", ".join(f"{count} {name}" for name, count in sorted(binds.items()))
            yield f"churn, terminatingPods: {self.options.get('terminating_pods')}: {outcomes}"
            yield (
                f"  highest share {self.churn['highest share']:.3f}, every pod counted until it is"
                f" gone {self.churn['highest share, strictly']:.3f}: above hard at"
                f" {self.churn['revisions above hard, strictly']} revisions, by"
                f" {self.churn['pods past their grace period then']} pods past their grace period"
            )
        yield f"over-commits: {self.over_commits}; ledger held too little: {self.uncovered}"
        yield from (f"  {finding}" for finding in self.findings[:_MOST_SHOWN])
        if self.unmasked:
            longest = max(self.unmasked.values())
            yield f"quotas unmasked: {len(self.unmasked)} times, at most {longest:.2f} s"
        if self.quiet_seconds is None:
            yield "the ledgers did NOT come to equal a recount"
        else:
            yield f"all ledgers equal a recount {self.quiet_seconds:.1f} s after the load"
        yield "PASSED" if not self.problems else f"FAILED, seed {self.options.get('seed')}:"
        yield from (f"  {problem}" for problem in self.problems)


def unmasked(facts: Iterable[Fact]) -> dict[str, float]:
    """Return for how long quotas showed deferred keys: quota and revision → seconds."""
    since: dict[str, tuple[int, float]] = {}
    found: dict[str, float] = {}
    for fact in facts:
        if not isinstance(fact, QuotaFact):
            continue
        key = f"{fact.namespace}/{fact.name}"
        if fact.is_there and fact.unmasked:
            since.setdefault(key, (fact.revision, fact.at))
        elif key in since:
            revision, at = since.pop(key)
            found[f"{key} at {revision}"] = fact.at - at
    return found


def _next_after(moments: Sequence[float], moment: float) -> float | None:
    number = bisect_right(moments, moment)
    return moments[number] - moment if number < len(moments) else None
