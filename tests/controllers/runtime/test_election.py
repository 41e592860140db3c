"""One process leads at a time, whatever the clocks, the network and the scheduler of threads do."""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.admission.handlers.harness import eventually
from tests.controllers.runtime.election_simulation import (
    NAME,
    NAMESPACE,
    NOON,
    ElectionCandidate,
    ElectionSimulation,
)
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    StaleReads,
    at_random,
    conflict,
    lose_answer,
    preceded_by,
    unavailable,
)
from webhook.controllers.runtime.election import Election, ElectionTimings
from webhook.controllers.runtime.lease import LeaseSpec
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import LEASES

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture
def simulation() -> ElectionSimulation:
    return ElectionSimulation()


def edit(simulation: ElectionSimulation, **spec: object) -> None:
    FakeClient(simulation.cluster).patch(LEASES, NAME, {"spec": spec}, namespace=NAMESPACE)


# -- taking, renewing, giving back ---------------------------------------------------------


def test_the_first_candidate_takes_the_lease_at_once(simulation: ElectionSimulation) -> None:
    one = simulation.candidate("one")
    one.election.step()
    assert one.election.is_leader()
    spec = simulation.spec()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("one", 15)
    assert spec["leaseTransitions"] == 0
    assert MICRO_TIME.fullmatch(str(spec["acquireTime"]))
    assert MICRO_TIME.fullmatch(str(spec["renewTime"]))


def test_a_leader_renews_with_one_write_and_keeps_its_term(simulation: ElectionSimulation) -> None:
    one = simulation.candidate("one")
    one.election.step()
    epoch, acquired = one.election.epoch(), simulation.spec()["acquireTime"]
    calls = len(one.client.calls)
    simulation.pass_time(2)
    one.election.step()
    assert len(one.client.calls) == calls + 1
    assert one.election.epoch() == epoch > 0
    assert simulation.spec()["acquireTime"] == acquired != simulation.spec()["renewTime"]


def test_a_second_candidate_waits_while_the_lease_is_renewed(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(300, one, two)
    assert one.election.is_leader()
    assert (two.election.leader, two.election.epoch()) == ("one", 0)


def test_a_lease_that_is_not_renewed_is_taken_after_its_time_and_not_before(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    one.election.step()
    two.election.step()
    simulation.run(14.9, two)
    assert not two.election.is_leader()
    simulation.run(2, two)
    assert two.election.is_leader()
    spec = simulation.spec()
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)
    assert two.election.transitions == 1


def test_stopping_hands_the_lease_over_without_a_wait(simulation: ElectionSimulation) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(10, one, two)
    one.election.stop()
    assert not one.election.is_leader()
    assert simulation.spec()["holderIdentity"] == ""
    two.election.step()
    assert two.election.is_leader()


def test_a_lease_of_another_holder_is_not_given_back(simulation: ElectionSimulation) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    two.election.stop()
    assert simulation.spec()["holderIdentity"] == "one"


def test_a_lease_that_cannot_be_given_back_does_not_keep_the_process(
    simulation: ElectionSimulation,
) -> None:
    one = simulation.candidate("one")
    one.election.step()
    one.client.on("*", "*", unavailable)
    one.election.stop()
    assert not one.election.is_leader()


def test_what_others_put_into_the_lease_stays(simulation: ElectionSimulation) -> None:
    one = simulation.candidate("one")
    one.election.step()
    labels = {"metadata": {"labels": {"team": "x"}}, "spec": {"strategy": "mine"}}
    FakeClient(simulation.cluster).patch(LEASES, NAME, labels, namespace=NAMESPACE)
    simulation.run(20, one)
    stored = FakeClient(simulation.cluster).get(LEASES, NAME, namespace=NAMESPACE)
    metadata = stored["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["labels"]["team"] == "x"
    assert simulation.spec()["strategy"] == "mine"
    assert one.election.is_leader()


# -- losing it -----------------------------------------------------------------------------


def test_a_process_that_was_paused_says_no_in_the_moment_it_runs_again(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    simulation.run(30, two)  # one does not run
    assert two.election.is_leader()
    assert not one.election.is_leader()
    one.election.step()
    assert one.election.leader == "two"


def test_a_leader_without_api_server_stops_before_others_may_start(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    one.client.on("*", "*", unavailable)
    simulation.run(9, one, two)
    simulation.run(1, one, two)
    assert not one.election.is_leader()
    simulation.run(8, one, two)
    assert two.election.is_leader()


def test_a_pause_during_the_renewal_counts_from_when_it_was_sent(
    simulation: ElectionSimulation,
) -> None:
    one = simulation.candidate("one")
    one.election.step()
    simulation.pass_time(2)

    def slow(_call: Call) -> None:
        simulation.pass_time(9)

    one.client.on("*", "*", preceded_by(slow))
    one.election.step()
    assert one.election.is_leader()
    simulation.pass_time(1.1)  # ten seconds after it was sent, though one after it came back
    assert not one.election.is_leader()


def test_a_leadership_that_ended_and_began_unnoticed_is_another_term(
    simulation: ElectionSimulation, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    one = simulation.candidate("one")
    one.election.step()
    former = one.election.epoch()
    simulation.pass_time(100)
    one.election.step()
    assert one.election.epoch() > former
    assert caplog.messages == ["leadership began", "leadership ended", "leadership began"]


def test_a_lost_answer_to_the_first_write_is_found_out(simulation: ElectionSimulation) -> None:
    one = simulation.candidate("one")
    one.client.on("create", LEASES, lose_answer, times=1)
    one.election.step()
    assert not one.election.is_leader()
    one.election.step()
    assert one.election.is_leader()
    assert simulation.spec()["leaseTransitions"] == 0


# -- clocks --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [timedelta(hours=1), timedelta(hours=-1)])
def test_a_time_of_day_that_is_wrong_by_an_hour_changes_nothing(
    simulation: ElectionSimulation, wrong: timedelta
) -> None:
    one = simulation.candidate("one", time_of_day=lambda: NOON + wrong)
    two = simulation.candidate("two", time_of_day=lambda: NOON - wrong)
    simulation.run(60, one, two)
    assert one.election.is_leader()
    simulation.run(30, two)
    assert two.election.is_leader()


def test_a_clock_that_stands_still_is_not_taken_for_a_holder_that_is_gone(
    simulation: ElectionSimulation,
) -> None:
    one = simulation.candidate("one", time_of_day=lambda: NOON)
    two = simulation.candidate("two")
    simulation.run(120, one, two)
    assert one.election.is_leader()


# -- leases that people touch --------------------------------------------------------------


def test_a_deleted_lease_is_made_again_by_its_holder(simulation: ElectionSimulation) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    simulation.delete()
    simulation.run(30, two, one)
    assert one.election.is_leader()
    assert simulation.spec()["holderIdentity"] == "one"


def test_a_deleted_lease_whose_holder_is_gone_is_taken_after_its_time(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    simulation.delete()
    two.election.step()
    simulation.run(14, two)
    assert not two.election.is_leader()
    simulation.run(3, two)
    assert two.election.is_leader()


def test_a_duration_shortened_by_hand_does_not_cut_a_leadership_short(
    simulation: ElectionSimulation,
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    edit(simulation, leaseDurationSeconds=1)
    simulation.run(8, two)
    assert not two.election.is_leader()


@pytest.mark.parametrize(
    "forged", [{"leaseDurationSeconds": 2**31 - 1}, {"leaseTransitions": 2**31 - 1}], ids=str
)
def test_a_lease_that_was_forged_is_taken_once_it_is_not_renewed(
    simulation: ElectionSimulation, forged: dict[str, int]
) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    edit(simulation, holderIdentity="a thief", **forged)
    simulation.run(200, one, two)
    assert simulation.leader() is not None
    assert 0 <= simulation.spec()["leaseTransitions"] < 2**31  # type: ignore[operator]


def test_of_a_large_lease_nothing_stays_that_others_added(simulation: ElectionSimulation) -> None:
    """One that is as large as can be stored could not be written by the next holder."""
    one = simulation.candidate("one")
    simulation.run(5, one)
    for size, is_kept in ((100, True), (100_000, False)):
        added = {"metadata": {"annotations": {"example.com/added": "x" * size}}}
        FakeClient(simulation.cluster).patch(LEASES, NAME, added, namespace=NAMESPACE)
        simulation.run(30, one)
        assert one.election.is_leader()
        lease = FakeClient(simulation.cluster).get(LEASES, NAME, namespace=NAMESPACE)
        assert ("annotations" in lease["metadata"]) is is_kept  # type: ignore[operator]
        assert lease["metadata"]["labels"]["app.kubernetes.io/component"] == "controller"  # type: ignore[index]


def test_a_lease_that_cannot_be_read_is_left_alone(simulation: ElectionSimulation) -> None:
    one, two = simulation.candidate("one"), simulation.candidate("two")
    simulation.run(5, one, two)
    edit(simulation, holderIdentity=["nobody"])
    simulation.run(30, one, two)
    assert simulation.leader() is None
    edit(simulation, holderIdentity="somebody")
    simulation.run(30, one, two)
    assert simulation.leader() is not None


@pytest.mark.parametrize(
    "wrong", [{"renew_seconds": 15.0}, {"retry_seconds": 9.0}, {"retry_seconds": 0.0}]
)
def test_durations_that_cannot_be_safe_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        ElectionTimings(**wrong)  # type: ignore[arg-type]


# -- whatever happens ----------------------------------------------------------------------


class _ElectionFaults:
    """Three candidates whose calls fail and during whose calls time passes and others run."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self.simulation = ElectionSimulation()
        self.terms: dict[str, int] = {}
        self.busy: set[str] = set()
        self.leaderships = 0
        clocks = (None, lambda: NOON, self._leaping)
        for name, clock in zip(("one", "two", "three"), clocks, strict=True):
            client, stale = self.simulation.candidate(name, time_of_day=clock).client, StaleReads()
            faults: dict[Reaction, float] = {
                lose_answer: 0.15,
                unavailable: 0.1,
                conflict: 0.1,
                stale.repeat: 0.15,
            }
            client.on("*", "*", stale.remember)
            client.on("*", "*", at_random(self.chance, faults))
            client.on("*", "*", preceded_by(self._interrupt))

    def _leaping(self) -> datetime:
        return NOON + timedelta(minutes=self.chance.randrange(-60, 60))

    def _interrupt(self, _call: Call) -> None:
        if len(self.busy) < 3 and self.chance.random() < 0.3:
            self.pass_time()
            self.step(self.chance.choice(self.simulation.candidates))

    def pass_time(self) -> None:
        self.simulation.pass_time(self.chance.choice((0.1, 1.0, 2.0, 4.9, 9.9, 10.1, 15.1, 40.0)))

    def step(self, candidate: ElectionCandidate) -> None:
        if candidate.name in self.busy:
            return  # a process takes one step at a time
        self.busy.add(candidate.name)
        try:
            candidate.election.step()
        finally:
            self.busy.discard(candidate.name)
        self.simulation.check()
        epoch = candidate.election.epoch()
        if epoch and self.terms.get(candidate.name) != epoch:
            assert epoch > max(self.terms.values(), default=0), "a term went back"
            self.terms[candidate.name] = epoch
            self.leaderships += 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() < 0.7:
                self.simulation.pass_time(self.chance.choice((0.1, 1.0, 2.0)))
            else:
                self.pass_time()
            self.step(self.chance.choice(self.simulation.candidates))

    def heal(self) -> None:
        for candidate in self.simulation.candidates:
            candidate.client.reset()
        self.simulation.run(60, *self.simulation.candidates)
        assert self.simulation.leader() is not None


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32))
def test_two_never_lead_at_once_whatever_fails_or_is_paused(seed: int) -> None:
    chaos = _ElectionFaults(seed)
    chaos.run(60)
    chaos.heal()


def test_the_chaos_changes_leaders_often_enough_to_prove_something() -> None:
    leaderships = 0
    for seed in range(30):
        chaos = _ElectionFaults(seed)
        chaos.run(150)
        chaos.heal()
        leaderships += chaos.leaderships
    assert leaderships > 150


def test_the_chaos_notices_leaders_that_trust_the_answer_instead_of_the_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    genuine = Election.lead

    def late(self: Election, raw: object, sent: float) -> None:
        del sent
        genuine(self, raw, self.timings.clock() + 6)  # type: ignore[arg-type]

    monkeypatch.setattr(Election, "lead", late)
    with pytest.raises(AssertionError, match="all of these lead"):
        _search()


def test_the_chaos_notices_renewals_that_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseSpec, "renewed_at", lambda self, _moment: self)
    with pytest.raises(AssertionError, match="all of these lead"):
        _search()


def _search() -> None:
    for seed in range(200):
        _ElectionFaults(seed).run(150)


# -- the thread ----------------------------------------------------------------------------


def test_threads_hand_over_when_one_is_stopped() -> None:
    cluster = FakeCluster()
    timing = ElectionTimings(lease_seconds=600, renew_seconds=500.0, retry_seconds=0.05)
    both = [
        Election(FakeClient(cluster), namespace=NAMESPACE, name=NAME, identity=name, timings=timing)
        for name in ("one", "two")
    ]
    for election in both:
        election.start()
    eventually(lambda: any(one.is_leader() for one in both), "one leads")
    first, second = sorted(both, key=lambda one: not one.is_leader())
    first.stop()
    eventually(second.is_leader, "the other one leads, long before the lease ends")
    second.stop()


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_renewal_that_is_under_way_while_a_leader_stops_does_not_make_it_lead_again(
    look: int,
) -> None:
    """The thread is not run for a while, at one of its looks at the clock after the write."""
    looks = itertools.count(1)
    is_written, is_held, goes_on = threading.Event(), threading.Event(), threading.Event()

    def clock() -> float:
        on_thread = threading.current_thread().name == "election"
        if on_thread and is_written.is_set() and next(looks) == look:
            is_held.set()
            assert goes_on.wait(10)
        return time.monotonic()

    def written(_call: Call, proceed: Proceed) -> Any:
        answer = proceed()
        is_written.set()
        return answer

    client = ReactiveClient(FakeCluster())
    client.on("update", LEASES, written, times=1)
    timing = ElectionTimings(clock=clock)
    election = Election(client, namespace=NAMESPACE, name=NAME, identity="one", timings=timing)
    election.step()
    assert election.is_leader()
    election.start()
    assert is_held.wait(10)
    stopper = threading.Thread(target=election.stop)
    stopper.start()
    eventually(lambda: not election.is_leader(), "it stops")
    goes_on.set()
    stopper.join(10)
    assert (election.is_leader(), election.epoch()) == (False, 0)
