"""What pods take that were let through is reserved in their turn, while others wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.builders import a_quota
from tests.controllers.rig import GIVE_UP_SECONDS, Object, Rig, a_rig
from tests.controllers.test_releasing import condition, gated, released, why
from webhook.controllers import lines
from webhook.quota.ledger import Door
from webhook.quota.line import Waits
from webhook.state.reserver import Reserved


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A quota of 2 cpu, counted, in a namespace where pods pass while there is room."""
    with a_rig(a_quota("p1")) as made:
        made.lets_through = True
        made.step()
        yield made


def test_an_earlier_pod_without_a_gate_is_reserved_for_before_those_that_wait(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "late", "2")
    rig.step()
    assert {uid: one.door for uid, one in rig.held().items()} == {"early": Door.RELEASE}
    assert why(rig) == {"late": Waits.QUOTA_EXCEEDED}
    assert released(rig) == ["early"]
    assert isinstance(rig.reserve("early"), Reserved)
    assert rig.reserved() == {"requests.cpu": "1"}


def test_a_later_one_stands_behind(rig: Rig) -> None:
    gated(rig, "early", "2")
    rig.pod("late", "1")
    rig.step()
    assert set(rig.held()) == {"early"}
    assert released(rig) == ["early", "late"]


def test_nothing_is_written_while_nobody_waits(rig: Rig) -> None:
    rig.pod("early", "1")
    rig.step()
    assert rig.held() == {}


def test_where_every_pod_is_gated_one_without_is_left_to_its_bind(rig: Rig) -> None:
    rig.lets_through = False
    rig.pod("early", "1")
    gated(rig, "late", "2")
    rig.step()
    assert set(rig.held()) == {"late"}


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError"])
def test_one_that_no_node_takes_keeps_its_place_as_long_as_a_released_pod(
    rig: Rig, reason: str
) -> None:
    rig.pod("early", "1")
    condition(rig, "early", reason)
    gated(rig, "late", "2")
    rig.step()
    assert set(rig.held()) == {"early"}
    for _ in range(4):
        rig.pass_time(GIVE_UP_SECONDS / 2 + 1)
        rig.step()
    assert set(rig.held()) == {"late"}


def test_room_is_kept_only_before_those_who_wait_for_room(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "huge", "99")
    gated(rig, "held", "1", "example.com/hold")
    rig.step()
    assert rig.held() == {}
    gated(rig, "late", "2")
    rig.pod("latest", "1")
    rig.step()
    assert set(rig.held()) == {"early"}


def test_who_has_lost_its_gate_keeps_nobody_behind_one(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_AT_ONCE", 1)
    rig.pod("early", "1")
    gated(rig, "late", "1")
    rig.step()
    assert set(rig.held()) == {"early"}
    rig.poke()
    rig.step()
    assert set(rig.held()) == {"early", "late"}


def test_only_gates_that_may_go_count_as_releases(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "late", "1")
    rig.step()
    assert set(rig.held()) == {"early", "late"}
    assert rig.counted("released_pods_total") == 1


def test_one_that_no_scheduler_tries_keeps_nobody_waiting_for_ever(rig: Rig) -> None:
    rig.pod("bound", "1")
    rig.bind("bound")
    rig.pod("early", "2")
    gated(rig, "late", "1")
    rig.step()
    assert why(rig) == {"early": Waits.QUOTA_EXCEEDED, "late": Waits.BEHIND}
    rig.pass_time(GIVE_UP_SECONDS + 1)
    rig.step()
    assert set(rig.held()) == {"late"}


def test_what_was_reserved_for_it_is_given_back_like_that_of_a_released_pod(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "late", "2")
    rig.step()
    condition(rig, "early")
    for _ in range(4):
        rig.step()
        rig.pass_time(GIVE_UP_SECONDS / 2 + 1)
    rig.step()
    assert set(rig.held()) == {"late"}


def test_of_who_was_let_through_nothing_is_told_as_waiting_behind_a_gate(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "late", "2")
    rig.step()
    _, held, may_go = rig.told_lines[-1]
    assert (set(held), may_go) == ({"uid-late"}, [])
    assert rig.counted("gate_removals_total", result="removed") == 0


def test_it_is_counted_once_when_it_is_bound_meanwhile(rig: Rig) -> None:
    rig.pod("early", "1")
    gated(rig, "late", "1")
    rig.step()
    assert set(rig.held()) == {"early", "late"}
    assert isinstance(rig.reserve("early"), Reserved)
    rig.bind("early")
    rig.step()
    assert rig.used() == {"requests.cpu": "1"}
    assert set(rig.held()) == {"late"}


def test_no_room_is_kept_in_quotas_that_nobody_waits_for() -> None:
    def of_class(name: str) -> Object:
        only: Object = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
        return a_quota(name, uid=f"quota-{name}", expressions=[only])

    with a_rig(of_class("low"), of_class("high")) as rig:
        rig.lets_through = True
        rig.pod("elsewhere", "1", priorityClassName="high")
        rig.pod("early", "1", priorityClassName="low")
        gated(rig, "late", "2", priorityClassName="low")
        rig.step()
        assert set(rig.held()) == {"early"}
