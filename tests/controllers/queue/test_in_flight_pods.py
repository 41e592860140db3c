"""What pods take that were let through is reserved in their turn, while others wait."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.builders import a_pod, a_quota
from tests.controllers.controller_harness import (
    GATE_RELEASE_SECONDS,
    ControllerHarness,
    Object,
    new_harness,
)
from tests.controllers.queue.queue_steps import condition, gated, released, why
from webhook.controllers.queue.gated_pods import GatedPods, usage_without
from webhook.quota.amounts.resources import to_text
from webhook.quota.ledger.ledger import ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.queue import release_order
from webhook.quota.queue.queued_pods import PendingReason
from webhook.state.reserver import Reserved


@pytest.fixture
def harness() -> Iterator[ControllerHarness]:
    """A quota of 2 cpu, counted, in a namespace where pods pass while there is room."""
    with new_harness(a_quota("p1")) as made:
        made.may_admit_ungated = True
        made.step()
        yield made


def test_an_earlier_pod_without_a_gate_is_reserved_for_before_those_that_wait(
    harness: ControllerHarness,
) -> None:
    harness.pod("early", "1")
    gated(harness, "late", "2")
    harness.step()
    assert {uid: one.source for uid, one in harness.held().items()} == {
        "early": ReservationSource.RELEASE
    }
    assert why(harness) == {"late": PendingReason.QUOTA_EXCEEDED}
    assert released(harness) == ["early"]
    assert isinstance(harness.reserve("early"), Reserved)
    assert harness.reserved() == {"requests.cpu": "1"}


def test_a_later_one_stands_behind(harness: ControllerHarness) -> None:
    gated(harness, "early", "2")
    harness.pod("late", "1")
    harness.step()
    assert set(harness.held()) == {"early"}
    assert released(harness) == ["early", "late"]


def test_nothing_is_written_while_no_pod_waits(harness: ControllerHarness) -> None:
    harness.pod("early", "1")
    harness.step()
    assert harness.held() == {}


def test_where_every_pod_is_gated_one_without_is_left_to_its_bind(
    harness: ControllerHarness,
) -> None:
    harness.may_admit_ungated = False
    harness.pod("early", "1")
    gated(harness, "late", "2")
    harness.step()
    assert set(harness.held()) == {"late"}


@pytest.mark.parametrize("reason", ["Unschedulable", "SchedulerError"])
def test_one_that_no_node_takes_keeps_its_place_as_long_as_a_released_pod(
    harness: ControllerHarness, reason: str
) -> None:
    harness.pod("early", "1")
    condition(harness, "early", reason)
    gated(harness, "late", "2")
    harness.step()
    assert set(harness.held()) == {"early"}
    for _ in range(4):
        harness.pass_time(GATE_RELEASE_SECONDS / 2 + 1)
        harness.step()
    assert set(harness.held()) == {"late"}


def test_room_is_kept_only_before_pods_that_wait_for_room(harness: ControllerHarness) -> None:
    harness.pod("early", "1")
    gated(harness, "huge", "99")
    gated(harness, "held", "1", "example.com/hold")
    harness.step()
    assert harness.held() == {}
    gated(harness, "late", "2")
    harness.pod("latest", "1")
    harness.step()
    assert set(harness.held()) == {"early"}


def test_a_pod_that_has_lost_its_gate_keeps_no_other_behind_one(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_order, "MAX_PENDING_RELEASES", 1)
    harness.pod("early", "1")
    gated(harness, "late", "1")
    harness.step()
    assert set(harness.held()) == {"early"}
    harness.mark_dirty()
    harness.step()
    assert set(harness.held()) == {"early", "late"}


def test_an_intent_of_a_pod_that_waits_is_no_release(
    harness: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_order, "MAX_PENDING_RELEASES", 1)
    gated(harness, "never", "3")
    harness.step()
    assert isinstance(harness.reserve_resize("never", "4"), Reserved)
    gated(harness, "late", "1")
    harness.step()
    assert {name: one.is_intent for name, one in harness.held().items()} == {
        "never": True,
        "late": False,
    }


def test_only_gates_that_may_go_count_as_releases(harness: ControllerHarness) -> None:
    harness.pod("early", "1")
    gated(harness, "late", "1")
    harness.step()
    assert set(harness.held()) == {"early", "late"}
    assert harness.metric("released_pods_total") == 1


def test_one_that_no_scheduler_tries_keeps_no_other_waiting_for_ever(
    harness: ControllerHarness,
) -> None:
    harness.pod("bound", "1")
    harness.bind("bound")
    harness.pod("early", "2")
    gated(harness, "late", "1")
    harness.step()
    assert why(harness) == {"early": PendingReason.QUOTA_EXCEEDED, "late": PendingReason.BEHIND}
    harness.pass_time(GATE_RELEASE_SECONDS + 1)
    harness.step()
    assert set(harness.held()) == {"late"}


def test_what_was_reserved_for_it_is_given_back_like_that_of_a_released_pod(
    harness: ControllerHarness,
) -> None:
    harness.pod("early", "1")
    gated(harness, "late", "2")
    harness.step()
    condition(harness, "early")
    for _ in range(4):
        harness.step()
        harness.pass_time(GATE_RELEASE_SECONDS / 2 + 1)
    harness.step()
    assert set(harness.held()) == {"late"}


def test_a_released_pod_is_not_reported_as_waiting_behind_a_gate(
    harness: ControllerHarness,
) -> None:
    harness.pod("early", "1")
    gated(harness, "late", "2")
    harness.step()
    _, held, releasable = harness.queue_updates[-1]
    assert (set(held), releasable) == ({"uid-late"}, [])
    assert harness.metric("gate_removals_total", result="removed") == 0


def test_it_is_counted_once_when_it_is_bound_meanwhile(harness: ControllerHarness) -> None:
    harness.pod("early", "1")
    gated(harness, "late", "1")
    harness.step()
    assert set(harness.held()) == {"early", "late"}
    assert isinstance(harness.reserve("early"), Reserved)
    harness.bind("early")
    harness.step()
    assert harness.used() == {"requests.cpu": "1"}
    assert set(harness.held()) == {"late"}


def test_no_room_is_kept_in_quotas_that_no_pod_waits_for() -> None:
    def of_class(name: str) -> Object:
        only: Object = {"scopeName": "PriorityClass", "operator": "In", "values": [name]}
        return a_quota(name, uid=f"quota-{name}", expressions=[only])

    with new_harness(of_class("low"), of_class("high")) as harness:
        harness.may_admit_ungated = True
        harness.pod("elsewhere", "1", priorityClassName="high")
        harness.pod("early", "1", priorityClassName="low")
        gated(harness, "late", "2", priorityClassName="low")
        harness.step()
        assert set(harness.held()) == {"early"}


def test_a_pod_takes_little_time_whatever_resources_others_name() -> None:
    """Each of very many pods may name 32 that no other pod names, and no node have them."""
    pods = [
        Pod.from_object(
            a_pod(
                name=f"pod-{number}",
                uid=f"uid-{number}",
                requests={
                    "cpu": "1",
                    **{f"example.com/r{number}-{one}": "1" for one in range(30)},
                },
            )
        )
        for number in range(4_000)
    ]
    gated_pods = GatedPods()
    started = time.process_time()
    for pod in pods:
        gated_pods.put(pod)
    reserved = [f"uid-{number}" for number in range(100)]
    usage = usage_without(*gated_pods.in_flight(reserved, {"requests.cpu", "limits.cpu"}))
    assert time.process_time() - started < 5.0  # a second at most where nothing else runs
    assert to_text(usage) == {"limits.cpu": "0", "requests.cpu": "3900"}
    for pod in pods:
        gated_pods.remove(pod.uid)
    assert to_text(gated_pods.in_flight((), {"requests.cpu"})[0]) == {"requests.cpu": "0"}
