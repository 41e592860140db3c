"""Gates are removed in turns: pods whose patches are not answered hold up no other namespace."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.builders import a_pod
from tests.reactions import Call, ReactiveClient, preceded_by
from webhook.controllers.queue.gate_remover import GateRemover
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import PODS, ForbiddenError, Object, RequestTimeoutError
from webhook.quota.objects.model import Pod
from webhook.state.well_known import SCHEDULING_GATE
from webhook.telemetry.metrics import Metrics

WORKERS = 6
HALF = WORKERS // 2
TEAMS = [f"team-{number}" for number in range(HALF + 1)]


class SlowPods:
    """Pods of which some have patches that take longer than a client waits for.

    Attributes:
        tried: Keys of the pods, in the order in which their patches were sent.
        answers: Lets the slow patches come to their end, without an answer.
        is_slow: Whether there are slow patches.
        now: The clock.
        requeued: Namespace → after how many seconds it is to be looked at again.
    """

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.tried: list[str] = []
        self.answers = threading.Event()
        self.is_slow = True
        self.now = 1000.0
        self.requeued: dict[str, float] = {}
        self._waiting = threading.Semaphore(0)
        client = ReactiveClient(self.cluster)
        client.on("patch", PODS, preceded_by(self._before_patch))
        self.remover = GateRemover(
            client,
            workers=WORKERS,
            clock=lambda: self.now,
            requeue_after=self.requeued.__setitem__,
            metrics=Metrics(),
        )

    def pods(self, namespace: str, *names: str) -> list[Pod]:
        """Store pods; a slow one has `slow` in its name."""
        made = [
            a_pod(
                name=name,
                namespace=namespace,
                uid=f"uid-{name}",
                schedulingGates=[{"name": SCHEDULING_GATE}],
            )
            for name in names
        ]
        self.cluster.load([(PODS, one) for one in made])
        api = FakeClient(self.cluster)
        return [Pod.from_object(api.get(PODS, name, namespace=namespace)) for name in names]

    def enqueue(self, pods: list[Pod]) -> None:
        """Have the gates of these pods removed, all of one namespace."""
        namespace = pods[0].namespace
        self.remover.enqueue(namespace, pods, since=self.now, is_leader=lambda: True)

    def remove_all(self) -> list[str]:
        """Send what may be sent now; return which pods these were."""
        before = len(self.tried)
        while self.remover.remove_next(0):
            pass
        return self.tried[before:]

    def time_out(self, *namespaces: str) -> None:
        """Have patches of slow pods in each of the namespaces time out, and delete the pods."""
        self.answers.set()
        for name in namespaces:
            self.enqueue(self.pods(name, "slow-gone-a", "slow-gone-b"))
        self.remove_all()
        for name in namespaces:
            self.remover.enqueue(name, [], since=self.now, is_leader=lambda: True)

    def hold_answers(self) -> None:
        """Let slow patches last until `answers` is set."""
        self.answers.clear()
        while self._waiting.acquire(blocking=False):
            pass

    def wait_for(self, patches: int) -> bool:
        """Wait until so many slow patches are on their way."""
        return all(self._waiting.acquire(timeout=5) for _ in range(patches))

    def _before_patch(self, call: Call) -> None:
        self.tried.append(call.key)
        if "refused" in call.key:
            raise ForbiddenError("a policy does not let the gate go")
        if self.is_slow and "slow" in call.key:
            self._waiting.release()
            self.answers.wait(10)
            raise RequestTimeoutError("no answer within 10 s")


def within(seconds: float, condition: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return True
        pause.wait(0.01)
    return condition()


def is_gated(pod: Object) -> bool:
    return bool(pod["spec"].get("schedulingGates"))  # type: ignore[attr-defined]


def test_slow_pods_of_one_namespace_leave_threads_to_others() -> None:
    world = SlowPods()
    slow = world.pods("slow-team", *(f"slow-{number}" for number in range(2 * WORKERS)))
    (quick,) = world.pods("team-b", "web")
    world.remover.start()
    try:
        world.enqueue(slow)
        assert world.wait_for(patches=HALF)
        world.enqueue([quick])
        api = FakeClient(world.cluster)
        assert within(5, lambda: not is_gated(api.get(PODS, "web", namespace="team-b")))
        assert len(world.tried) == HALF + 1
    finally:
        world.answers.set()
        world.remover.stop()


def test_slow_pods_of_two_namespaces_leave_threads_to_others() -> None:
    """Also where each patch is answered just in time, so that no namespace counts as slow."""
    world = SlowPods()
    slow = [
        world.pods(team, *(f"slow-{number}" for number in range(2 * WORKERS)))
        for team in ("slow-team-1", "slow-team-2")
    ]
    (quick,) = world.pods("team-b", "web")
    world.remover.start()
    try:
        for pods in slow:
            world.enqueue(pods)
        assert world.wait_for(patches=HALF + 1)
        world.enqueue([quick])
        assert within(5, lambda: "team-b/web" in world.tried)
        assert len(world.tried) <= WORKERS  # none of the others has ended
    finally:
        world.answers.set()
        world.remover.stop()


def test_namespaces_take_turns() -> None:
    world = SlowPods()
    first, second = world.pods("team-a", "a", "b", "c"), world.pods("team-b", "d", "e")
    world.enqueue(first)
    world.enqueue(second)
    order = ["team-a/a", "team-b/d", "team-a/b", "team-b/e", "team-a/c"]
    assert world.remove_all() == order


def test_slow_pods_are_tried_one_at_a_time_and_ever_later() -> None:
    world = SlowPods()
    world.answers.set()
    pods = world.pods("team-a", "slow-1", "slow-2", "web")
    world.enqueue(pods)
    assert world.remove_all() == ["team-a/slow-1", "team-a/slow-2", "team-a/web"]
    slow = pods[:2]
    pauses: list[float] = []
    tried: list[str] = []
    for _ in range(9):
        world.enqueue(slow)
        assert world.remove_all() == []  # its time has not come
        pauses.append(world.requeued["team-a"])
        world.now += pauses[-1]
        world.enqueue(slow)
        tried += world.remove_all()
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 120, 120]
    assert tried == ["team-a/slow-1", "team-a/slow-2"] * 4 + ["team-a/slow-1"]


def test_all_are_tried_when_one_that_was_slow_is_answered() -> None:
    world = SlowPods()
    world.answers.set()
    pods = world.pods("team-a", "slow-1", "slow-2")
    world.enqueue(pods)
    assert len(world.remove_all()) == 2
    world.now += 1
    world.is_slow = False
    world.enqueue(pods)
    assert world.remove_all() == ["team-a/slow-1"]
    world.enqueue(pods[1:])
    assert world.remove_all() == ["team-a/slow-2"]


@pytest.mark.parametrize(
    ("teams", "tried"),
    [(TEAMS[:1], TEAMS[:1]), (TEAMS, TEAMS[:HALF])],
    ids=["one has one thread", "all have half of the threads"],
)
def test_a_namespace_stays_slow_when_its_slow_pods_are_gone(
    teams: list[str], tried: list[str]
) -> None:
    """A tenant deletes them, and makes new ones."""
    world = SlowPods()
    world.time_out(*teams)
    quick = world.pods("team-b", "web-1", "web-2")
    slow = [world.pods(team, "slow-a", "slow-b") for team in teams]
    world.hold_answers()
    before = len(world.tried)
    try:
        for pods in (*slow, quick):
            world.enqueue(pods)
        world.remover.start()
        api = FakeClient(world.cluster)
        assert within(5, lambda: not is_gated(api.get(PODS, "web-2", namespace="team-b")))
        assert sorted(world.tried[before:]) == [
            *(f"{team}/slow-a" for team in tried), "team-b/web-1", "team-b/web-2"
        ]  # fmt: skip
    finally:
        world.answers.set()
        world.remover.stop()


def test_a_namespace_is_slow_no_more_some_time_after_its_last_timeout() -> None:
    world = SlowPods()
    world.time_out("team-1")
    world.now += 20
    slow = world.pods("team-1", *(f"slow-{number}" for number in range(WORKERS)))
    world.hold_answers()
    try:
        world.enqueue(slow)
        world.remover.start()
        assert world.wait_for(patches=HALF)
    finally:
        world.answers.set()
        world.remover.stop()


def test_a_pod_that_is_refused_is_tried_ever_later_whatever_becomes_of_others() -> None:
    world = SlowPods()
    (refused,) = world.pods("team-a", "refused")
    for number in range(92):
        world.enqueue([refused, *world.pods("team-a", f"web-{number}")])
        world.remove_all()
        world.now += 1
    assert world.tried.count("team-a/refused") == 8  # after 1, 2, 4, 8, 16, 30 and 30 s
    assert len(world.tried) == 92 + 8
    world.enqueue([replace(refused, resource_version="1000")])
    assert world.remove_all() == ["team-a/refused"]


def test_a_pod_whose_gate_was_to_stay_meanwhile_is_tried_at_once() -> None:
    world = SlowPods()
    refused, web = world.pods("team-a", "refused", "web")
    for pods, tried in (
        ([refused, web], ["refused", "web"]),
        ([web], []),
        ([refused, web], ["refused"]),
    ):
        world.enqueue(pods)
        assert world.remove_all() == [f"team-a/{name}" for name in tried]
