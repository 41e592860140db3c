"""Candidates of one election on a clock that a test moves, each with a wrong time of day."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from tests.reactions import ReactiveClient
from webhook.controllers.runtime.election import Election, ElectionTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import LEASES, NotFoundError

NAMESPACE = "deferred-quota-system"
NAME = "deferred-quota-controller"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@dataclass
class ElectionCandidate:
    """One process that stands for election."""

    name: str
    election: Election
    client: ReactiveClient


@dataclass
class ElectionSimulation:
    """A cluster with a Lease and candidates; nobody steps but when told."""

    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: list[float] = field(default_factory=lambda: [1000.0])
    candidates: list[ElectionCandidate] = field(default_factory=list)

    def candidate(
        self,
        name: str,
        *,
        time_of_day: Callable[[], datetime] | None = None,
    ) -> ElectionCandidate:
        """Add a candidate; its time of day follows the clock unless another is given."""
        client = ReactiveClient(self.cluster)
        timing = ElectionTimings(
            clock=lambda: self.clock[0],
            now=time_of_day or (lambda: NOON + timedelta(seconds=self.clock[0])),
            rand=lambda: 0.5,
        )
        election = Election(
            client,
            namespace=NAMESPACE,
            name=NAME,
            identity=name,
            timings=timing,
        )
        made = ElectionCandidate(name, election, client)
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

    def run(self, seconds: float, *who: ElectionCandidate) -> None:
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
        spec = FakeClient(self.cluster).get(LEASES, NAME, namespace=NAMESPACE)["spec"]
        assert isinstance(spec, dict)
        return spec

    def delete(self) -> None:
        """Delete the Lease, as a person may."""
        try:
            FakeClient(self.cluster).delete(LEASES, NAME, namespace=NAMESPACE)
        except NotFoundError:
            return

    def leader(self) -> ElectionCandidate | None:
        """Return who leads now."""
        return next((one for one in self.candidates if one.election.is_leader()), None)
