"""Each pod has one place in the queue, and the places that it had before are void."""

from __future__ import annotations

import pytest

from tests.builders import a_pod
from webhook.controllers.conditions.condition_queue import (
    MIN_WAIT_SECONDS,
    RELEASE_DELAY_SECONDS,
    ConditionQueue,
    PodConditionState,
)
from webhook.quota.objects.model import Pod
from webhook.quota.queue.pod_conditions import RESERVED, ObservedCondition, QuotaCondition
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus

NAMESPACE = "team-a"


class Pods:
    """The cache of the pods that a test names."""

    def __init__(self) -> None:
        self.stored: dict[str, Pod] = {}
        self.listed = 0

    def get(self, key: str) -> Pod | None:
        return self.stored.get(key)

    def items(self) -> dict[str, Pod]:
        return self.stored

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        self.listed += 1
        return tuple(pod for pod in self.stored.values() if pod.namespace == namespace)


class QueueOfPods(ConditionQueue):
    """A queue, with the pods of its updates in the cache."""

    def __init__(self) -> None:
        self.pods = Pods()
        super().__init__(lambda: self.pods, 30.0)

    def hear(
        self,
        now: float,
        *held: str,
        going: tuple[str, ...] = (),
        has_left: bool = False,
        namespace: str = NAMESPACE,
    ) -> None:
        for uid in (*held, *going):
            pod = Pod.from_object(a_pod(name=f"pod-{uid}", uid=uid, namespace=namespace))
            self.pods.stored[pod.key] = pod
        self.update(namespace, waiting(*held), going, releasable=() if has_left else going, now=now)


def waiting(*uids: str) -> dict[str, PendingStatus]:
    return {
        uid: PendingStatus(PendingReason.QUOTA_EXCEEDED, place) for place, uid in enumerate(uids, 1)
    }


@pytest.fixture
def queue() -> QueueOfPods:
    return QueueOfPods()


def taken(queue: QueueOfPods, now: float) -> list[PodConditionState]:
    found = []
    while (reason := queue.get(now)) is not None:
        found.append(reason)
    return found


def uids(reasons: list[PodConditionState]) -> list[str]:
    return [one.uid for one in reasons]


def test_pods_have_their_turn_in_the_order_of_the_line_once_they_have_waited(
    queue: QueueOfPods,
) -> None:
    queue.hear(0.0, "b", "a", "c")
    assert taken(queue, MIN_WAIT_SECONDS - 0.1) == []
    assert uids(taken(queue, MIN_WAIT_SECONDS)) == ["b", "a", "c"]
    assert taken(queue, 100.0) == []


def test_no_namespace_waits_for_all_pods_of_another(queue: QueueOfPods) -> None:
    queue.hear(0.0, "a", "b", "c", "d")
    queue.hear(0.1, "x", "y", namespace="team-x")
    queue.hear(0.2, "z", namespace="team-z")
    assert uids(taken(queue, 2.0)) == ["a", "x", "z", "b", "y", "c", "d"]


def test_those_without_a_condition_hold_up_their_own_namespace_alone(
    queue: QueueOfPods,
) -> None:
    queue.hear(0.0, "a")
    (state,) = taken(queue, 2.0)
    state.record(ObservedCondition("a", condition=RESERVED), 2.0)
    queue.requeue_at(state, 3.0)
    queue.hear(2.0, "x", "y", namespace="team-x")
    assert uids(taken(queue, 4.0)) == ["a", "x", "y"]


@pytest.mark.parametrize("is_there", [True, False])
def test_one_that_has_left_has_one_place_until_its_turn(queue: QueueOfPods, is_there: bool) -> None:
    queue.hear(0.0, "a")
    (state,) = taken(queue, 2.0)
    waits = QuotaCondition("False", "QuotaExceeded", "")
    state.record(ObservedCondition("a", condition=waits), 2.0)
    if not is_there:
        queue.pods.stored.clear()
    for number in range(100):
        queue.update(NAMESPACE, {}, (), now=3.0 + number)
    assert queue.backlog == is_there


def test_a_name_is_asked_for_only_where_a_pod_is_new(queue: QueueOfPods) -> None:
    queue.hear(0.0, "a")
    queue.update(NAMESPACE, waiting("a"), (), now=1.0)
    assert queue.pods.listed == 1
    (reason,) = taken(queue, 5.0)
    assert reason.key == "team-a/pod-a"


def test_a_pod_that_has_no_name_any_more_has_no_turn(queue: QueueOfPods) -> None:
    queue.update(NAMESPACE, waiting("a"), ("b",), now=0.0)
    assert taken(queue, 100.0) == []


def test_a_pod_that_is_released_while_it_waits_for_its_turn_loses_its_place(
    queue: QueueOfPods,
) -> None:
    queue.hear(0.0, "a", "b")
    first = queue.get(MIN_WAIT_SECONDS)
    assert first is not None
    assert first.uid == "a"  # and b has a place behind it
    queue.hear(2.0, going=("b",))
    assert taken(queue, 2.0 + RELEASE_DELAY_SECONDS - 0.1) == []
    assert uids(taken(queue, 2.0 + RELEASE_DELAY_SECONDS)) == ["b"]


def test_released_pods_have_their_turn_in_the_order_in_which_they_were_released(
    queue: QueueOfPods,
) -> None:
    order = tuple(f"uid-{number * 7 % 50}" for number in range(50))
    queue.hear(0.0, going=order)
    assert uids(taken(queue, RELEASE_DELAY_SECONDS)) == list(order)


def test_a_sleeping_thread_is_woken_by_the_next_news_or_at_the_moment(
    queue: QueueOfPods,
) -> None:
    queue.hear(0.0, "a", "b")
    for reason in taken(queue, 1.0):
        queue.park(reason, until=50.0)
    queue.hear(10.0, "a", "b")
    a, b = taken(queue, 10.0)
    queue.park(a, until=50.0)
    queue.park(b)
    assert taken(queue, 49.0) == []
    assert uids(taken(queue, 50.0)) == ["a"]
    assert taken(queue, 500.0) == []


def test_a_moment_that_comes_while_a_pod_waits_for_its_turn_changes_nothing(
    queue: QueueOfPods,
) -> None:
    queue.hear(0.0, "a", "b")
    a, b = taken(queue, 1.0)
    for reason in (a, b):
        reason.record(ObservedCondition("uid", condition=RESERVED), 1.0)
    queue.park(a, until=50.0)
    queue.park(b)
    queue.hear(49.0, "a", "b")
    assert uids(taken(queue, 51.0)) == ["a", "b"]


def test_planning_the_same_moment_again_and_again_takes_no_memory(queue: QueueOfPods) -> None:
    queue.hear(0.0, "a")
    for _ in range(100):
        for reason in taken(queue, 1.0):
            queue.park(reason, until=300.0)
        queue.hear(1.0, "a")
    assert queue.scheduled <= 2


def test_a_pod_that_is_put_off_is_not_woken_by_news(queue: QueueOfPods) -> None:
    queue.hear(0.0, "a")
    (reason,) = taken(queue, 1.0)
    queue.requeue_at(reason, 31.0)
    queue.hear(5.0, "a")
    assert taken(queue, 30.0) == []
    assert uids(taken(queue, 31.0)) == ["a"]


def test_the_backlog_is_the_pods_that_wait_for_a_turn(queue: QueueOfPods) -> None:
    queue.hear(0.0, "a", "b", "c")
    assert queue.backlog == 0
    queue.get(1.0)
    assert queue.backlog == 2
    queue.clear()
    assert queue.backlog == 0
    assert taken(queue, 100.0) == []


def test_of_pods_that_come_and_go_nothing_stays(queue: QueueOfPods) -> None:
    """Another namespace has its turns meanwhile."""
    for number in range(100):
        now = 10.0 * number
        queue.hear(now, f"a{number}", f"b{number}")
        queue.hear(now, f"other-{number}", namespace="team-x")
        assert queue.get(now + 5.0) is not None
    assert queue.backlog <= 102


@pytest.mark.parametrize("is_first", [True, False])
def test_of_one_that_has_left_at_the_same_look_nothing_stays_once_it_has_had_its_turn(
    queue: QueueOfPods, is_first: bool
) -> None:
    if not is_first:
        queue.hear(0.0, going=("a",))
        (reason,) = taken(queue, 10.0)
        queue.forget(reason)
        queue.hear(10.0, going=("a",))
        assert taken(queue, 20.0) == []  # all was said of it
    queue.hear(20.0, going=("a",), has_left=True)
    for reason in taken(queue, 30.0):
        queue.forget(reason)
    assert queue.is_empty


def test_nor_of_one_that_is_gone_by_then(queue: QueueOfPods) -> None:
    queue.update(NAMESPACE, {}, ("a",), now=0.0)
    assert queue.is_empty
