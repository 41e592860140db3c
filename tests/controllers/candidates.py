"""Candidates of one election on a clock that a test moves, each with a wrong time of day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.cluster.faults import FlakyClient, Plan, never
from webhook.cluster.api import LEASES, NotFoundError
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.election import Election, ElectionTiming

NAMESPACE = "deferred-quota-system"
NAME = "deferred-quota-controller"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@dataclass
class Candidate:
    """One process that stands for election, and what it was told."""

    name: str
    election: Election
    client: FlakyClient
    told: list[str] = field(default_factory=list)


@dataclass
class Voting:
    """A cluster with a Lease and candidates; nobody steps but when told."""

    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    clock: list[float] = field(default_factory=lambda: [1000.0])
    candidates: list[Candidate] = field(default_factory=list)

    def candidate(
        self,
        name: str,
        *,
        time_of_day: Callable[[], datetime] | None = None,
        plan: Plan = never,
    ) -> Candidate:
        """Add a candidate; its time of day follows the clock unless another is given."""
        client = FlakyClient(MemoryClient(self.cluster), plan)
        told: list[str] = []
        timing = ElectionTiming(
            clock=lambda: self.clock[0],
            now=time_of_day or (lambda: NOON + timedelta(seconds=self.clock[0])),
            rand=lambda: 0.5,
        )
        election = Election(
            client,
            namespace=NAMESPACE,
            name=NAME,
            identity=name,
            timing=timing,
            on_started=lambda: told.append("started"),
            on_lost=lambda: told.append("lost"),
        )
        made = Candidate(name, election, client, told)
        self.candidates.append(made)
        return made

    def pass_time(self, seconds: float) -> None:
        """Move the clock and check that there is still one leader at most."""
        self.clock[0] += seconds
        self.check()

    def check(self) -> None:
        """Nobody leads beside another, and a term never goes back."""
        leaders = [one.name for one in self.candidates if one.election.is_leader()]
        assert len(leaders) <= 1, f"at {self.clock[0]} all of these lead: {leaders}"

    def run(self, seconds: float, *who: Candidate) -> None:
        """Let candidates step for some time, each after the pause that it asked for."""
        until = self.clock[0] + seconds
        due = {one.name: self.clock[0] for one in who}
        while True:
            first = min(who, key=lambda one: due[one.name])
            if due[first.name] > until:
                break
            self.pass_time(max(0.0, due[first.name] - self.clock[0]))
            due[first.name] = self.clock[0] + first.election.step()
            self.check()
        self.pass_time(until - self.clock[0])

    def spec(self) -> dict[str, object]:
        """Return what the Lease says."""
        spec = MemoryClient(self.cluster).get(LEASES, NAME, namespace=NAMESPACE)["spec"]
        assert isinstance(spec, dict)
        return spec

    def delete(self) -> None:
        """Delete the Lease, as a person may."""
        try:
            MemoryClient(self.cluster).delete(LEASES, NAME, namespace=NAMESPACE)
        except NotFoundError:
            return

    def leader(self) -> Candidate | None:
        """Return who leads now."""
        return next((one for one in self.candidates if one.election.is_leader()), None)
