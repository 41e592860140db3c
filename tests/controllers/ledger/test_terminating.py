"""Until when pods are charged that are being deleted, by the time that passes in this process."""

from __future__ import annotations

import pytest

from tests.builders import a_pod
from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.namespace_usage import NamespaceUsage
from webhook.controllers.ledger.reservation_expiry import ReservationExpiry
from webhook.controllers.ledger.usage_cache import TerminatingPods
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.quota.objects.model import Pod

NS = "team-a"


def a_place() -> NamespaceState:
    watch = ReservationExpiry(FakeClient(FakeCluster()), expire_seconds=45.0, clock=lambda: 0.0)
    return NamespaceState(NamespaceUsage(), watch)


def deleted(uid: str, grace: int | None) -> Pod:
    metadata: dict[str, object] = {"deletionTimestamp": "2026-05-04T10:00:00Z"}
    if grace is not None:
        metadata["deletionGracePeriodSeconds"] = grace
    return Pod.from_object(a_pod(name=uid, uid=uid, metadata=metadata))


@pytest.mark.parametrize(("grace", "seconds"), [(30, 61.0), (0, 1.0), (-1, 1.0)])
def test_a_pod_is_charged_for_twice_its_grace_period(grace: int, seconds: float) -> None:
    pods, place = TerminatingPods(), a_place()
    pods.track(NS, place, deleted("u", grace), 100.0)
    assert pods.pop_due({NS: place}, 100.0 + seconds - 0.1) == []
    assert pods.pop_due({NS: place}, 100.0 + seconds) == [(NS, "u")]
    assert pods.pop_due({NS: place}, 1e9) == []


@pytest.mark.parametrize(
    "pod",
    [Pod.from_object(a_pod(uid="u")), deleted("u", None)],
    ids=["not deleted", "no grace period"],
)
def test_of_other_pods_nothing_is_noted(pod: Pod) -> None:
    pods, place = TerminatingPods(), a_place()
    pods.track(NS, place, pod, 0.0)
    assert len(pods) == 0


def test_those_that_are_due_come_in_the_order_of_their_times() -> None:
    pods, place, other = TerminatingPods(), a_place(), a_place()
    pods.track(NS, place, deleted("late", 30), 0.0)
    pods.track("team-b", other, deleted("soon", 5), 0.0)
    pods.track(NS, place, deleted("later", 600), 0.0)
    assert pods.pop_due({NS: place, "team-b": other}, 61.0) == [("team-b", "soon"), (NS, "late")]


def test_a_shorter_time_counts_and_a_longer_one_does_not() -> None:
    pods, place = TerminatingPods(), a_place()
    for grace in (3600, 10, 60):
        pods.track(NS, place, deleted("u", grace), 0.0)
    assert pods.pop_due({NS: place}, 21.0) == [(NS, "u")]
    assert pods.pop_due({NS: place}, 1e9) == []


def test_a_pod_that_is_gone_or_counted_anew_is_not_released_by_what_was_noted_before() -> None:
    pods, place = TerminatingPods(), a_place()
    pods.track(NS, place, deleted("gone", 5), 0.0)
    pods.track(NS, place, deleted("counted", 5), 0.0)
    pods.track("team-b", a_place(), deleted("elsewhere", 5), 0.0)
    place.remove_pod("gone")
    anew = a_place()
    pods.track(NS, anew, deleted("counted", 5), 4.0)
    assert pods.pop_due({NS: anew}, 11.0) == []
    assert pods.pop_due({NS: anew}, 15.0) == [(NS, "counted")]


def test_pods_with_a_long_grace_period_that_are_gone_do_not_pile_up() -> None:
    pods, place, gone = TerminatingPods(), a_place(), a_place()
    pods.track(NS, place, deleted("stays", 86_400), 0.0)
    for number in range(5_000):
        pods.track(NS, place, deleted(f"u{number}", 86_400), 0.0)
        pods.track("team-b", gone, deleted(f"u{number}", 86_400), 0.0)
        place.remove_pod(f"u{number}")
        assert pods.pop_due({NS: place}, 1.0) == []
    assert len(pods) < 2_000
    assert pods.pop_due({NS: place}, 200_000.0) == [(NS, "stays")]
