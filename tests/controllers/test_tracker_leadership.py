"""A standby counts and writes nothing; whoever begins to lead trusts nothing it has not seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.doors.desk import a_namespace, opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.rig import EXPIRE_SECONDS, NAMESPACE, Rig, a_rig, another_rig
from webhook.cluster.api import NAMESPACES, QUOTA_LEDGERS, UnreachableError
from webhook.quota.ledger import Undecided
from webhook.quota.refusals import QuotaExceeded
from webhook.state.ledgers import LedgerVersion
from webhook.state.reserver import Reserved


@pytest.fixture
def pair() -> Iterator[tuple[Rig, Rig]]:
    """A tracker that leads in term 5, and a standby; the quota of 2 cpu is counted."""
    with a_rig(a_quota("p1"), waits_at_start=True, term=[5]) as one:
        one.step()
        one.pass_time(EXPIRE_SECONDS + 1)
        one.step()
        with another_rig(one, waits_at_start=True, term=[0]) as other:
            other.step()
            yield one, other


def hand_over(one: Rig, other: Rig) -> None:
    other.term[0] = max(one.term[0], other.term[0]) + 10
    one.term[0] = 0


def test_a_standby_is_ready_counts_and_writes_nothing(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    before = other.cluster.resource_version
    other.step()
    assert other.cluster.resource_version == before
    assert other.tracker.not_ready() == []
    assert not other.tracker.leads()
    assert other.tracked().count.seen("uid-web") is not None


def test_a_standby_that_takes_over_has_counted_already(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    other.catch_up()
    hand_over(one, other)
    other.round()
    assert other.tracker.leads()
    assert other.used() == {"requests.cpu": "1"}
    assert other.counted("leader") == 1


def test_pods_that_are_stuck_are_released_by_a_standby_too(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    one.delete("web", grace=5)
    other.step()
    other.pass_time(11.1)
    other.step()
    hand_over(one, other)
    other.step()
    assert other.used() == {"requests.cpu": "0"}


def test_reservations_are_watched_from_the_beginning_of_a_leadership(
    pair: tuple[Rig, Rig],
) -> None:
    one, other = pair
    one.pod("web")
    one.step()
    one.reserve("web")
    one.poke()
    one.step()
    one.pass_time(EXPIRE_SECONDS - 1)
    other.step()
    hand_over(one, other)
    other.step()
    other.pass_time(EXPIRE_SECONDS - 1)
    other.step()
    assert set(other.held()) == {"web"}
    other.pass_time(2)
    other.step()
    assert other.held() == {}


def test_a_leader_that_comes_back_watches_reservations_anew(pair: tuple[Rig, Rig]) -> None:
    one, _ = pair
    one.pod("web")
    one.step()
    one.reserve("web")
    one.poke()
    one.step()
    one.term[0] = 0
    one.pass_time(EXPIRE_SECONDS + 1)
    one.step()
    one.term[0] = 99
    one.step()
    assert set(one.held()) == {"web"}


def test_a_ledger_that_is_missing_when_a_leadership_begins_was_lost(
    pair: tuple[Rig, Rig],
) -> None:
    one, other = pair
    one.pod("web", "2")
    one.pod("next", "2")
    one.step()
    assert isinstance(one.reserve("web"), Reserved)
    hand_over(one, other)
    other.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    other.step()
    other.pass_time(EXPIRE_SECONDS - 1)
    other.bind("web")
    other.step()
    assert isinstance(other.reserve("next"), Undecided)
    other.pass_time(2)
    other.step()
    assert isinstance(other.reserve("next"), QuotaExceeded)


def test_a_namespace_that_opts_in_later_gets_its_ledger_at_once(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    hand_over(one, other)
    other.step()
    other.create(a_namespace("team-b"))
    other.create(a_quota("p1", namespace="team-b"))
    other.step()
    assert other.has_ledger("team-b")


def test_a_namespace_seen_late_was_opted_in_when_the_leadership_began(
    pair: tuple[Rig, Rig],
) -> None:
    one, other = pair
    other.line.hold(NAMESPACES)
    one.create(a_namespace("team-b"))
    one.create(a_quota("p1", namespace="team-b"))
    one.step()
    one.pod("web", "2", namespace="team-b")
    one.pod("next", "2", namespace="team-b")
    assert isinstance(one.reserve("web", "team-b"), Reserved)
    one.api.delete(QUOTA_LEDGERS, "ledger", namespace="team-b")
    hand_over(one, other)
    other.round()  # has not been shown yet that team-b has opted in
    other.line.resume()
    other.step()
    other.round()
    assert not other.has_ledger("team-b")
    other.bind("web", "team-b")
    other.pass_time(EXPIRE_SECONDS + 1)
    other.step()
    assert isinstance(other.reserve("next", "team-b"), QuotaExceeded)


def test_nothing_is_written_before_the_namespaces_could_be_asked_for(
    pair: tuple[Rig, Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    other.catch_up()

    def unreachable(*_args: object, **_more: object) -> None:
        raise UnreachableError("no route to the namespaces")

    monkeypatch.setattr(other.line, "list", unreachable)
    hand_over(one, other)
    for _ in range(3):
        with pytest.raises(Exception, match="no route"):
            other.round()
    assert other.used() == {"requests.cpu": "0"}
    monkeypatch.undo()
    other.step()
    assert other.used() == {"requests.cpu": "1"}


def test_a_ledger_lost_while_the_namespace_was_opted_out_is_waited_for(
    pair: tuple[Rig, Rig],
) -> None:
    one, _ = pair
    one.pod("web", "2")
    one.pod("next", "2")
    one.step()
    assert isinstance(one.reserve("web"), Reserved)
    opt_out(one.api, NAMESPACE)
    one.step()
    one.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
    opt_in(one.api, NAMESPACE)
    one.step()
    assert isinstance(one.reserve("next"), Undecided)
    one.bind("web")
    one.pass_time(EXPIRE_SECONDS + 1)
    one.step()
    assert isinstance(one.reserve("next"), QuotaExceeded)


def test_a_deposed_leader_that_is_about_to_write_does_not(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    one.pod("web", "2", node="node-1")
    one.catch_up()
    fetch = one.ledgers.fetch

    def while_it_is_deposed(namespace: str) -> LedgerVersion | None:
        one.term[0] = 0
        return fetch(namespace)

    one.ledgers.fetch = while_it_is_deposed  # type: ignore[method-assign]
    before = one.cluster.resource_version
    one.round()
    assert one.cluster.resource_version == before
    assert other.used() == {"requests.cpu": "0"}


def test_what_a_deposed_leader_has_sent_comes_too_late(pair: tuple[Rig, Rig]) -> None:
    one, other = pair
    one.pod("web", "2")
    other.catch_up()
    one.catch_up()

    def while_another_leads() -> None:
        one.line.before_write = None
        hand_over(one, other)
        other.step()
        assert isinstance(other.reserve("web"), Reserved)

    one.line.before_write = while_another_leads
    one.round()  # computed before the reservation, sent after it
    assert set(other.held()) == {"web"}


def test_a_ledger_is_not_created_by_a_deposed_leader() -> None:
    with a_rig(a_quota("p1"), term=[3]) as rig:
        rig.catch_up()
        fetch = rig.ledgers.fetch

        def while_it_is_deposed(namespace: str) -> LedgerVersion | None:
            found = fetch(namespace)
            rig.term[0] = 0
            return found

        rig.ledgers.fetch = while_it_is_deposed  # type: ignore[method-assign]
        rig.round()
        assert not rig.has_ledger()


def test_a_namespace_that_opted_out_while_nobody_led_is_left_without_counts() -> None:
    with a_rig(a_quota("p1"), term=[3], follows=True) as rig:
        rig.pod("web", "2")
        rig.pod("next", "2")
        rig.step()
        rig.term[0] = 0
        opt_out(rig.api, NAMESPACE)
        rig.bind("web")  # nobody watches
        with another_rig(rig, term=[9], follows=True) as other:
            other.step()
            assert other.ledger().accounts == {}
            opt_in(other.api, NAMESPACE)
            other.catch_up()
            assert isinstance(other.reserve("next"), Undecided)
            other.step()
            assert isinstance(other.reserve("next"), QuotaExceeded)


def test_a_leader_is_not_ready_before_it_has_counted_and_stays_ready_later() -> None:
    with a_rig(a_quota("p1"), term=[3]) as rig:
        rig.catch_up()
        assert rig.tracker.not_ready() != []
        rig.step()
        assert rig.tracker.not_ready() == []
        rig.term[0] = 8
        assert rig.tracker.not_ready() == []


def test_deleted_pods_do_not_pile_up_in_a_standby() -> None:
    with a_rig(a_quota("p1"), term=[3], follows=True) as rig:
        rig.step()
        with another_rig(rig, term=[0], follows=True) as other:
            rig.pod("web")
            rig.step()
            assert isinstance(rig.reserve("web"), Reserved)
            rig.delete("web")
            for number in range(260):
                rig.pod(f"job-{number}")
                rig.delete(f"job-{number}")
            other.step()
            assert other.tracked().count.gone == 1  # the one that has a reservation
            rig.term[0], other.term[0] = 0, 9
            other.step()
            assert other.held() == {}
            assert other.tracked().count.gone == 0


def test_a_write_without_answer_begins_the_wait_for_a_lost_ledger_anew() -> None:
    with a_rig(a_quota("p1"), term=[3], waits_at_start=True) as rig:
        rig.pod("web", "2")
        rig.pod("next", "2")
        rig.step()
        rig.pass_time(EXPIRE_SECONDS + 1)

        def lose_the_answer() -> None:
            rig.line.before_write = None
            with another_rig(rig, term=[3]) as same:  # what was sent arrives
                same.step()
            assert isinstance(rig.reserve("web"), Reserved)
            rig.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
            raise UnreachableError("the answer is lost")

        rig.line.before_write = lose_the_answer
        rig.step()
        rig.bind("web")
        rig.pass_time(2)
        rig.step()
        assert isinstance(rig.reserve("next"), Undecided)
        rig.pass_time(EXPIRE_SECONDS)
        rig.step()
        assert isinstance(rig.reserve("next"), QuotaExceeded)
