"""What a report makes of a run."""

from __future__ import annotations

import json

from tests.torture.load.tally import Tally
from tests.torture.observer.facts import Fact, QuotaFact
from tests.torture.observer.histories import SPACE, History
from tests.torture.observer.strict import StrictJudge
from tests.torture.report import Report, unmasked
from tests.torture.world import Incident


def a_tally() -> Tally:
    tally = Tally()
    for status in (201, 201, 403, 429, 500, 409, 0):
        tally.note("bind", status, "the reason" if status == 500 else "")
    tally.note("create", 201)
    tally.note_bound("n", 10.0, 0.25)
    tally.note_bound("n", 17.0, 0.75)
    return tally


def test_binds_are_counted_by_outcome() -> None:
    report = Report(options={"seed": 7})
    report.loaded(a_tally())
    assert report.binds == {
        "tried": 7,
        "admitted": 2,
        "refused": 1,
        "undecided": 1,
        "failed": 1,
        "other": 1,
        "unanswered": 1,
    }
    assert report.messages == {"bind 500: the reason": 1}
    assert report.bind_seconds["longest"] == 0.75


def test_healing_lasts_until_binds_succeed_everywhere_that_was_hurt() -> None:
    tally = a_tally()
    tally.note_bound("m", 14.0, 0.1)
    here = Incident(kind="edit", began=9.0, ended=11.0, namespaces=("n",))
    everywhere = Incident(kind="kill", began=9.0, ended=13.0)
    never = Incident(kind="last", began=15.0, ended=18.0, namespaces=("n",))
    report = Report(options={})
    report.healed([here, everywhere, never], tally, ["n", "m"])
    incidents = (here, everywhere, never)
    assert [each.heal_seconds for each in incidents] == [6.0, 4.0, None]
    assert [each.unhealed for each in incidents] == [(), (), ("n",)]
    assert (report.longest_heal_seconds, report.longest_heal) == (6.0, "edit: ")


def test_what_is_found_of_the_churn_is_an_over_commit_and_both_shares_are_reported() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "2"})
    history.pod("a", {"requests.cpu": "2"}, assigned=True)
    history.delete_later("a", 2)
    history.wait(2)
    history.pod("b", {"requests.cpu": "1"}, assigned=True)
    for word, problems in (("Release", []), ("Hold", ["1 over-commits"])):
        judge = StrictJudge({SPACE}, holds=word == "Hold")
        for fact in history.facts:
            judge.feed(fact)
        report = Report(options={"seed": 7, "terminating_pods": word})
        report.judged_churn(judge, a_tally())
        assert report.problems == problems
        assert f"churn, terminatingPods: {word}: 2 admitted" in report.text()
        assert "highest share 1.000, every pod counted until it is gone 1.500" in report.text()
        assert json.loads(json.dumps(report.as_json()))["churn"]["not explained"] == len(problems)


def test_an_over_commit_is_a_problem_and_nothing_is_none() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "1"})
    report = Report(options={"seed": 7})
    report.judged(history.judge(), history.facts)
    assert report.problems == []
    assert report.text().endswith("PASSED")
    history.wait(100)
    history.pod("a", {"requests.cpu": "2"}, assigned=True)
    report.judged(history.judge(), history.facts)
    assert report.problems == ["1 over-commits"]
    assert "over-commit at revision 2: team-a/q pod a: requests.cpu=2 of requests.cpu=1" in (
        report.text()
    )
    written = json.loads(json.dumps(report.as_json()))
    assert (written["passed"], written["over_commits"]) == (False, 1)


def test_errors_and_differences_fail_a_run() -> None:
    report = Report(options={}, differences=["n/q: lost charge"], errors=["a binder hangs"])
    assert report.problems == ["in the end: n/q: lost charge", "a binder hangs"]


def test_unmasked_times_are_measured() -> None:
    def quota(revision: int, at: float, *keys: str, is_there: bool = True) -> Fact:
        return QuotaFact(
            revision=revision,
            at=at,
            namespace="n",
            name="q",
            uid="u",
            unmasked=keys,
            is_there=is_there,
        )

    facts = [quota(1, 1.0), quota(2, 2.0, "cpu"), quota(3, 3.0, "cpu", "memory"), quota(4, 4.5)]
    assert unmasked(facts) == {"n/q at 2": 2.5}
    assert unmasked([quota(1, 1.0, "cpu"), quota(2, 2.0, "cpu", is_there=False)]) == {
        "n/q at 1": 1.0
    }
