"""A standby counts and writes nothing; whoever begins to lead trusts nothing it has not seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace, opt_in, opt_out
from tests.builders import a_quota
from tests.controllers.controller_harness import (
    EXPIRE_SECONDS,
    NAMESPACE,
    ControllerHarness,
    new_harness,
    second_harness,
)
from tests.reactions import preceded_by
from webhook.kube.api import NAMESPACES, QUOTA_LEDGERS, UnreachableError
from webhook.quota.charging.denials import QuotaExceeded
from webhook.quota.ledger.ledger import Undecided
from webhook.state.ledger_store import LedgerVersion
from webhook.state.reserver import Reserved


@pytest.fixture
def pair() -> Iterator[tuple[ControllerHarness, ControllerHarness]]:
    """A controller that leads in term 5, and a standby; the quota of 2 cpu is counted."""
    with new_harness(a_quota("p1"), waits_at_start=True, epoch=[5]) as one:
        one.step()
        one.pass_time(EXPIRE_SECONDS + 1)
        one.step()
        with second_harness(one, waits_at_start=True, epoch=[0]) as other:
            other.step()
            yield one, other


def test_of_a_ledger_that_was_not_made_yet_no_loss_is_said() -> None:
    """The leader before had no time for it, or it was lost: the next one cannot know."""
    with new_harness(a_quota("p1"), waits_at_start=True, epoch=[5]) as harness:
        harness.step()
        assert not harness.has_ledger()
        harness.pass_time(EXPIRE_SECONDS + 1)
        harness.step()
        assert harness.conditions()["Rebuilt"] == ("True", "LedgerNotFound")
        harness.pod("web", node="node-1")
        harness.step()
        assert harness.conditions()["Rebuilt"] == ("True", "LedgerNotFound")


def hand_over(one: ControllerHarness, other: ControllerHarness) -> None:
    other.epoch[0] = max(one.epoch[0], other.epoch[0]) + 10
    one.epoch[0] = 0


def test_a_standby_is_ready_counts_and_writes_nothing(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    before = other.cluster.resource_version
    other.step()
    assert other.cluster.resource_version == before
    assert other.controller.readiness_problems() == []
    assert not other.controller.is_leader()
    assert other.state().usage.observed("uid-web") is not None


def test_a_standby_that_takes_over_has_counted_already(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    other.catch_up()
    hand_over(one, other)
    other.reconcile_once()
    assert other.controller.is_leader()
    assert other.used() == {"requests.cpu": "1"}
    assert other.metric("leader") == 1
    assert other.metric("leadership_changes_total", change="began") == 1
    one.step()
    assert one.metric("leadership_changes_total", change="ended") == 1


def test_pods_that_are_stuck_are_released_by_a_standby_too(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
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
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web")
    one.step()
    one.reserve("web")
    one.mark_dirty()
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


def test_a_leader_that_comes_back_watches_reservations_anew(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, _ = pair
    one.pod("web")
    one.step()
    one.reserve("web")
    one.mark_dirty()
    one.step()
    one.epoch[0] = 0
    one.pass_time(EXPIRE_SECONDS + 1)
    one.step()
    one.epoch[0] = 99
    one.step()
    assert set(one.held()) == {"web"}


def test_a_ledger_that_is_missing_when_a_leadership_begins_was_lost(
    pair: tuple[ControllerHarness, ControllerHarness],
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


def test_a_namespace_that_opts_in_later_gets_its_ledger_at_once(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    hand_over(one, other)
    other.step()
    other.create(a_namespace("team-b"))
    other.create(a_quota("p1", namespace="team-b"))
    other.step()
    assert other.has_ledger("team-b")


def test_a_namespace_seen_late_was_opted_in_when_the_leadership_began(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    other.client.pause(NAMESPACES)
    one.create(a_namespace("team-b"))
    one.create(a_quota("p1", namespace="team-b"))
    one.step()
    one.pod("web", "2", namespace="team-b")
    one.pod("next", "2", namespace="team-b")
    assert isinstance(one.reserve("web", "team-b"), Reserved)
    one.api.delete(QUOTA_LEDGERS, "ledger", namespace="team-b")
    hand_over(one, other)
    other.reconcile_once()  # has not been shown yet that team-b has opted in
    other.client.resume()
    other.step()
    other.reconcile_once()
    assert not other.has_ledger("team-b")
    other.bind("web", "team-b")
    other.pass_time(EXPIRE_SECONDS + 1)
    other.step()
    assert isinstance(other.reserve("next", "team-b"), QuotaExceeded)


def test_nothing_is_written_before_the_namespaces_could_be_asked_for(
    pair: tuple[ControllerHarness, ControllerHarness], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = pair
    one.pod("web", node="node-1")
    other.catch_up()

    def unreachable(*_args: object, **_more: object) -> None:
        raise UnreachableError("no route to the namespaces")

    monkeypatch.setattr(other.client, "pages", unreachable)
    hand_over(one, other)
    for _ in range(3):
        with pytest.raises(Exception, match="no route"):
            other.reconcile_once()
    assert other.used() == {"requests.cpu": "0"}
    monkeypatch.undo()
    other.step()
    assert other.used() == {"requests.cpu": "1"}


def test_a_ledger_lost_while_the_namespace_was_opted_out_is_waited_for(
    pair: tuple[ControllerHarness, ControllerHarness],
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


def test_a_deposed_leader_that_is_about_to_write_does_not(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", "2", node="node-1")
    one.catch_up()
    fetch = one.ledgers.fetch

    def while_it_is_deposed(namespace: str) -> LedgerVersion | None:
        one.epoch[0] = 0
        return fetch(namespace)

    one.ledgers.fetch = while_it_is_deposed  # type: ignore[method-assign]
    before = one.cluster.resource_version
    one.reconcile_once()
    assert one.cluster.resource_version == before
    assert other.used() == {"requests.cpu": "0"}


def test_what_a_deposed_leader_has_sent_comes_too_late(
    pair: tuple[ControllerHarness, ControllerHarness],
) -> None:
    one, other = pair
    one.pod("web", "2")
    other.catch_up()
    one.catch_up()

    def while_another_leads() -> None:
        hand_over(one, other)
        other.step()
        assert isinstance(other.reserve("web"), Reserved)

    one.client.on(
        "update", "*", preceded_by(lambda _: while_another_leads()), subresource="status", times=1
    )
    one.reconcile_once()  # computed before the reservation, sent after it
    assert set(other.held()) == {"web"}


def test_a_ledger_is_not_created_by_a_deposed_leader() -> None:
    with new_harness(a_quota("p1"), epoch=[3]) as harness:
        harness.catch_up()
        fetch = harness.ledgers.fetch

        def while_it_is_deposed(namespace: str) -> LedgerVersion | None:
            found = fetch(namespace)
            harness.epoch[0] = 0
            return found

        harness.ledgers.fetch = while_it_is_deposed  # type: ignore[method-assign]
        harness.reconcile_once()
        assert not harness.has_ledger()


def test_a_namespace_that_opted_out_without_a_leader_is_left_without_counts() -> None:
    with new_harness(a_quota("p1"), epoch=[3], follows_ledgers=True) as harness:
        harness.pod("web", "2")
        harness.pod("next", "2")
        harness.step()
        harness.epoch[0] = 0
        opt_out(harness.api, NAMESPACE)
        harness.bind("web")  # nobody watches
        with second_harness(harness, epoch=[9], follows_ledgers=True) as other:
            other.step()
            assert other.ledger().accounts == {}
            opt_in(other.api, NAMESPACE)
            other.catch_up()
            assert isinstance(other.reserve("next"), Undecided)
            other.step()
            assert isinstance(other.reserve("next"), QuotaExceeded)


def test_a_leader_is_not_ready_before_it_has_counted_and_stays_ready_later() -> None:
    with new_harness(a_quota("p1"), epoch=[3]) as harness:
        harness.catch_up()
        assert harness.controller.readiness_problems() != []
        harness.step()
        assert harness.controller.readiness_problems() == []
        harness.epoch[0] = 8
        assert harness.controller.readiness_problems() == []


def test_deleted_pods_do_not_pile_up_in_a_standby() -> None:
    with new_harness(a_quota("p1"), epoch=[3], follows_ledgers=True) as harness:
        harness.step()
        with second_harness(harness, epoch=[0], follows_ledgers=True) as other:
            harness.pod("web")
            harness.step()
            assert isinstance(harness.reserve("web"), Reserved)
            harness.delete("web")
            for number in range(260):
                harness.pod(f"job-{number}")
                harness.delete(f"job-{number}")
            other.step()
            assert other.state().usage.deleted_count == 1  # the one that has a reservation
            harness.epoch[0], other.epoch[0] = 0, 9
            other.step()
            assert other.held() == {}
            assert other.state().usage.deleted_count == 0


@pytest.mark.parametrize(
    "quotas", [[], [a_quota("p1", scopes=["BestEffort"])]], ids=["no quota", "one of no such pod"]
)
def test_nor_do_they_in_a_leader_whose_ledger_does_not_change(
    quotas: list[dict[str, object]],
) -> None:
    with new_harness(*quotas, follows_ledgers=True) as harness:
        harness.pod("stays")
        harness.step()
        for number in range(260):
            harness.pod(f"job-{number}")
            harness.delete(f"job-{number}")
        harness.step()
        assert harness.state().usage.deleted_count == 0


def test_a_write_without_answer_begins_the_wait_for_a_lost_ledger_anew() -> None:
    with new_harness(a_quota("p1"), epoch=[3], waits_at_start=True) as harness:
        harness.pod("web", "2")
        harness.pod("next", "2")
        harness.step()
        harness.pass_time(EXPIRE_SECONDS + 1)

        def lose_the_answer() -> None:
            with second_harness(harness, epoch=[3]) as same:  # what was sent arrives
                same.step()
            assert isinstance(harness.reserve("web"), Reserved)
            harness.api.delete(QUOTA_LEDGERS, "ledger", namespace=NAMESPACE)
            raise UnreachableError("the answer is lost")

        harness.client.on(
            "update", "*", preceded_by(lambda _: lose_the_answer()), subresource="status", times=1
        )
        harness.step()
        harness.bind("web")
        harness.pass_time(2)
        harness.step()
        assert isinstance(harness.reserve("next"), Undecided)
        harness.pass_time(EXPIRE_SECONDS)
        harness.step()
        assert isinstance(harness.reserve("next"), QuotaExceeded)
