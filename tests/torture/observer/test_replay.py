"""The judge reports planted faults, exactly those, and nothing else."""

from __future__ import annotations

import pytest

from tests.torture.observer.histories import History
from tests.torture.observer.replay import Judge
from tests.torture.observer.usage import Expression, Traits

CPU = {"requests.cpu": "1"}
GOLD = Expression("PriorityClass", "In", ("gold",))


def found(judge: Judge) -> list[tuple[str, int, str, str]]:
    return [(each.kind, each.revision, each.quota, each.pod) for each in judge.findings]


@pytest.fixture
def history() -> History:
    """A quota of two cores, long there, and two pods that take one each."""
    history = History()
    history.quota("q", {"requests.cpu": "2"})
    history.wait(100)
    for name in ("a", "b"):
        history.pod(name, CPU)
        history.bind(name)
    return history


def test_a_full_quota_is_no_fault(history: History) -> None:
    judge = history.judge()
    assert found(judge) == []
    assert judge.taken("team-a", "q") == {"requests.cpu": 2 * 10**9}
    assert judge.assignments == judge.charges == 2


def test_one_pod_too_many_is_found(history: History) -> None:
    history.pod("c", {"requests.cpu": "1n"})
    history.bind("c")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "c")]


def test_a_pod_created_with_a_node_is_charged(history: History) -> None:
    history.pod("c", CPU, assigned=True)
    assert found(history.judge()) == [("over-commit", history.revision, "q", "c")]


def test_growth_beyond_the_quota_is_found_and_shrinking_is_not(history: History) -> None:
    history.resize("a", {"requests.cpu": "1500m"})
    grown = history.revision
    history.resize("a", {"requests.cpu": "1200m"})
    assert found(history.judge()) == [("over-commit", grown, "q", "a")]


def test_what_has_ended_makes_room(history: History) -> None:
    history.end("a")
    history.pod("c", CPU)
    history.bind("c")
    assert found(history.judge()) == []


def test_a_pod_that_waits_or_takes_nothing_is_free(history: History) -> None:
    history.pod("c", CPU)
    history.pod("d", {"requests.cpu": "0"})
    history.bind("d")
    assert found(history.judge()) == []


def test_a_deleted_pod_is_charged_until_a_grace_period_after_its_time(history: History) -> None:
    history.delete_later("a", 10)
    history.pod("c", CPU)
    history.bind("c")
    too_early = history.revision
    history.end("c")
    history.wait(10)
    history.pod("d", CPU)
    history.bind("d")
    assert found(history.judge()) == [("over-commit", too_early, "q", "c")]


def test_a_limit_lowered_while_the_request_was_on_its_way_excuses_it() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "2"})
    history.pod("a", CPU)
    history.bind("a")
    history.pod("b", CPU)
    history.wait(100)
    history.quota("q", {"requests.cpu": "1"})
    history.wait(30)
    history.bind("b")
    judge = history.judge({"uid-b": [101.0, 120.0]})
    assert found(judge) == []
    assert judge.excuses.count == 1
    assert judge.excuses.oldest_seconds == pytest.approx(31)
    assert judge.excuses.before_request == 1


def test_what_was_over_before_the_first_request_excuses_nothing() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "1"})
    history.pod("a", {"requests.cpu": "2"})
    history.bind("a")
    assert found(history.judge()) == []
    assert found(history.judge(began=1.5)) == [("over-commit", history.revision, "q", "a")]


def test_a_limit_lowered_longer_ago_than_a_request_lasts_excuses_nothing() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "2"})
    history.pod("a", CPU)
    history.bind("a")
    history.pod("b", CPU)
    history.quota("q", {"requests.cpu": "1"})
    history.wait(36)
    history.bind("b")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "b")]


def test_lowering_below_usage_is_no_fault_and_the_next_charge_is(history: History) -> None:
    history.quota("q", {"requests.cpu": "1"})
    history.wait(50)
    history.end("a")
    history.pod("c", {"requests.cpu": "1m"})
    assert found(history.judge()) == []
    history.bind("c")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "c")]


def test_a_higher_former_limit_does_not_excuse_more_than_it_allowed(history: History) -> None:
    history.quota("q", {"requests.cpu": "3"})
    history.quota("q", {"requests.cpu": "1"})
    history.pod("c", CPU)
    history.bind("c")
    history.pod("d", CPU)
    history.bind("d")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "d")]


def test_one_version_must_excuse_all_keys_together() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "2", "requests.memory": "1"})
    history.wait(100)
    history.quota("q", {"requests.cpu": "1", "requests.memory": "2"})
    history.quota("q", {"requests.cpu": "1", "requests.memory": "1"})
    history.pod("a", {"requests.cpu": "2", "requests.memory": "2"})
    history.bind("a")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "a")]


def test_a_quota_that_comes_excuses_what_is_on_its_way_and_no_more(history: History) -> None:
    history.quota("new", {"requests.cpu": "1"})
    history.end("a")
    history.pod("c", CPU)
    history.bind("c")
    history.end("c")
    history.wait(36)
    history.pod("d", CPU)
    history.bind("d")
    assert found(history.judge()) == [("over-commit", history.revision, "new", "d")]


def test_a_quota_made_anew_under_its_name_is_another_one(history: History) -> None:
    history.remove_quota("q")
    history.pod("c", CPU)
    history.bind("c")
    history.quota("q", {"requests.cpu": "2"}, uid="another")
    history.pod("d", CPU)
    history.bind("d")
    assert found(history.judge()) == []
    history.wait(36)
    history.end("d")
    history.pod("e", CPU)
    history.bind("e")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "e")]


def test_scopes_decide_which_pods_are_charged() -> None:
    history = History()
    history.quota("gold", {"requests.cpu": "1"}, GOLD)
    history.quota("short", {"requests.cpu": "1"}, Expression("Terminating"))
    history.wait(100)
    history.pod("a", CPU, traits=Traits(priority_class="gold"))
    history.bind("a")
    history.pod("b", CPU)
    history.bind("b")
    history.pod("c", CPU)
    history.bind("c")
    assert found(history.judge()) == []
    history.flip("b", Traits(has_deadline=True))
    history.flip("c", Traits(has_deadline=True))
    assert found(history.judge()) == [("over-commit", history.revision, "short", "c")]


def test_an_edited_selector_charges_nothing_by_itself() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "1"}, GOLD)
    history.wait(100)
    for name in ("a", "b"):
        history.pod(name, CPU)
        history.bind(name)
    history.quota("q", {"requests.cpu": "1"})
    history.pod("c", CPU)
    history.bind("c")
    assert found(history.judge()) == []
    history.wait(36)
    history.pod("d", CPU)
    history.bind("d")
    assert found(history.judge()) == [("over-commit", history.revision, "q", "d")]


def test_all_quotas_are_looked_at(history: History) -> None:
    history.quota("a-second", {"requests.cpu": "2"})
    history.wait(100)
    history.pod("c", CPU)
    history.bind("c")
    assert {each.quota for each in history.judge().findings} == {"q", "a-second"}


def test_a_ledger_that_holds_too_little_is_found(history: History) -> None:
    history.ledger({"q": ({"requests.cpu": "1"}, {"requests.cpu": "1"})})
    assert found(history.judge()) == []
    history.ledger({"q": ({"requests.cpu": "1"}, {"requests.cpu": "999m"})})
    assert found(history.judge()) == [("uncovered", history.revision, "q", "")]


def test_a_pod_that_no_reservation_covers_is_found() -> None:
    history = History()
    history.quota("q", {"requests.cpu": "9"})
    history.wait(100)
    history.ledger({"q": ({"requests.cpu": "0"}, {"requests.cpu": "1"})})
    history.pod("a", CPU)
    history.bind("a")
    history.pod("b", CPU)
    history.bind("b")
    assert found(history.judge()) == [("uncovered", history.revision, "q", "b")]


LOWERED = {
    "all of the lowered limit": ("1", 1, True),
    "less than it": ("1500m", 1, False),
    "all of it, long after it was lowered": ("1", 100, False),
}


@pytest.mark.parametrize(("hard", "seconds", "is_covered"), LOWERED.values(), ids=LOWERED)
def test_a_ledger_holds_what_is_taken_or_all_of_a_limit_that_was_lowered(
    hard: str, seconds: float, *, is_covered: bool
) -> None:
    """What only a request has said is cut to the limit, also where its pod is just stored."""
    history = History()
    history.quota("q", {"requests.cpu": "9"})
    history.wait(100)
    for name in ("a", "b"):
        history.pod(name, CPU)
    history.ledger({"q": ({"requests.cpu": "1"}, {"requests.cpu": "1"})})
    for name in ("a", "b"):
        history.bind(name)
    history.quota("q", {"requests.cpu": hard})
    history.wait(seconds)
    cut = {"q": ({"requests.cpu": "1"}, {"requests.cpu": "0"})}
    history.ledger(cut, hard={"requests.cpu": hard})
    assert (found(history.judge()) == []) == is_covered


def test_a_lost_ledger_covers_nothing_and_is_not_asked(history: History) -> None:
    history.ledger({}, is_there=False)
    history.end("a")
    history.pod("c", CPU)
    history.bind("c")
    assert found(history.judge()) == []


def test_facts_out_of_order_are_refused(history: History) -> None:
    judge = history.judge()
    with pytest.raises(ValueError, match="revision 1 comes after"):
        judge.feed(history.facts[0])


@pytest.mark.parametrize(("seconds", "is_fault"), [(20, False), (40, True)])
def test_what_was_decided_while_the_namespace_was_out_is_no_fault(
    history: History, seconds: float, *, is_fault: bool
) -> None:
    history.move(deferred=False)
    history.wait(100)
    history.move()
    history.wait(seconds)
    history.pod("c", CPU, assigned=True)
    judge = history.judge()
    assert bool(judge.findings) is is_fault
    assert judge.charges_outside == (not is_fault)


def test_a_namespace_that_stays_in_is_excused_of_nothing(history: History) -> None:
    history.move(paced=False)
    history.pod("c", CPU, assigned=True)
    assert len(history.judge().findings) == 1
