"""What may be bound at any moment: pods without gate and node, seen or let through just now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.admission.doors.desk import eventually
from tests.builders import a_binding, a_pod
from webhook.cluster.api import PODS
from webhook.cluster.informer import Informer, Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.quota.objects import Pod
from webhook.quota.resources import ResourceList, to_text
from webhook.state.names import GATE
from webhook.state.underway import LATE_SECONDS, Underway
from webhook.state.view import STALE_SECONDS, WAITING_PODS

NAMESPACE = "team-a"
OURS = [{"name": GATE}]


@dataclass
class Road:
    """A cluster, the cache of its pods without a node, and what is underway in it."""

    cluster: MemoryCluster
    clock: list[float] = field(default_factory=lambda: [1000.0])
    asked: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = MemoryClient(self.cluster)
        timing = Timing(clock=lambda: self.clock[0], first_pause=0.01, longest_pause=0.05)
        self.pods = Informer(
            self.api, PODS, transform=Pod.from_object, scope=WAITING_PODS, timing=timing
        )
        self.underway = Underway(self.pods, lambda: self.clock[0])

    def start(self) -> None:
        self.pods.start()
        self.catch_up()

    def catch_up(self) -> None:
        version = self.cluster.resource_version

        def has_seen() -> bool:
            self.cluster.send_bookmarks()
            return self.pods.wait_for_version(version, 0.02)

        eventually(has_seen, "the cache has seen all")

    def pod(self, name: str, cpu: str = "1", **fields: object) -> None:
        made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)  # type: ignore[arg-type]
        self.cluster.load([(PODS, made)])

    def lets(self, name: str = "web-1", *, fits: bool = True, **options: bool) -> bool:
        def note(underway: ResourceList) -> bool:
            self.asked.append(to_text(underway))
            return fits

        pod = Pod.from_object(a_pod(name=name, uid="", requests={"cpu": "1"}))
        return self.underway.let_through(NAMESPACE, pod, note, **options)

    def taken(self) -> str:
        """What is underway, in cpu, as the next pod would be told."""
        self.lets(fits=True, is_dry_run=True)
        return self.asked[-1].get("requests.cpu", "0")


@pytest.fixture
def road() -> Iterator[Road]:
    made = Road(MemoryCluster())
    made.start()
    yield made
    made.pods.stop()


def test_what_was_let_through_is_underway_before_it_is_seen_and_once_it_is(road: Road) -> None:
    assert road.lets("a")
    assert road.taken() == "1"
    assert road.lets("b")
    assert road.taken() == "2"
    road.pod("b")
    road.catch_up()
    assert road.taken() == "2"
    road.pod("a", "3")  # somebody has made it larger
    road.catch_up()
    assert road.taken() == "4"


def test_names_that_are_made_up_are_known_by_what_they_begin_with(road: Road) -> None:
    made_up = Pod.from_object(
        a_pod(name="", uid="", metadata={"generateName": "web-"}, requests={"cpu": "1"})
    )
    for _ in range(2):
        assert road.underway.let_through(NAMESPACE, made_up, lambda _: True)
    assert road.taken() == "2"
    road.pod("web-abcde", metadata={"generateName": "web-"})
    road.catch_up()
    assert road.taken() == "2"


def test_a_pod_that_is_asked_about_again_is_underway_once(road: Road) -> None:
    assert road.lets("a")
    assert road.lets("a", is_again=True)
    assert road.taken() == "1"
    assert not road.lets("a", fits=False, is_again=True)
    road.clock[0] += LATE_SECONDS
    assert road.taken() == "0"


def test_what_never_came_is_forgotten(road: Road) -> None:
    assert road.lets()
    road.clock[0] += LATE_SECONDS - 0.1
    assert road.taken() == "1"
    road.clock[0] += 0.2
    assert road.taken() == "0"


LEAVING: dict[str, Callable[[Road], object]] = {
    "it has its node": lambda road: road.api.bind(a_binding("a", namespace=NAMESPACE)),
    "it is gone": lambda road: road.api.delete(PODS, "a", namespace=NAMESPACE),
    "it has ended": lambda road: road.api.patch(
        PODS, "a", {"status": {"phase": "Failed"}}, namespace=NAMESPACE, subresource="status"
    ),
    "no node takes it": lambda road: road.api.patch(
        PODS,
        "a",
        {
            "status": {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            }
        },
        namespace=NAMESPACE,
        subresource="status",
    ),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_a_pod_is_underway_until(road: Road, leave: Callable[[Road], object]) -> None:
    road.pod("a", "3")
    road.pod("b", "1")
    road.catch_up()
    assert road.taken() == "4"
    leave(road)
    road.catch_up()
    assert road.taken() == "1"


def test_a_pod_that_others_hold_is_not_underway_until_they_let_it_go(road: Road) -> None:
    road.pod("a", schedulingGates=[{"name": "example.com/hold"}])
    road.catch_up()
    assert road.taken() == "0"
    road.api.patch(PODS, "a", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    road.catch_up()
    assert road.taken() == "1"


def test_nobody_passes_who_waits(road: Road) -> None:
    road.pod("first", schedulingGates=OURS)
    road.catch_up()
    assert not road.lets()
    assert road.asked == []
    road.api.patch(PODS, "first", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    road.catch_up()
    road.clock[0] += LATE_SECONDS
    assert road.lets()


def test_one_that_was_gated_waits_before_it_is_seen(road: Road) -> None:
    assert not road.lets(fits=False)
    assert not road.lets(fits=True)
    road.clock[0] += LATE_SECONDS
    assert road.lets(fits=True)


def test_pods_that_come_all_the_time_are_let_through_again_when_nobody_waits(road: Road) -> None:
    assert not road.lets("large", fits=False)
    road.pod("large", schedulingGates=OURS)
    road.catch_up()
    for number in range(3):  # one behind the other, each before the other is forgotten
        road.clock[0] += LATE_SECONDS - 1
        assert not road.lets(f"p{number}")
        road.pod(f"p{number}", schedulingGates=OURS)
        road.catch_up()
    for name in ("large", "p0", "p1", "p2"):
        road.api.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    road.catch_up()
    assert road.lets("next")


def test_another_pod_that_is_seen_is_not_the_one_that_was_gated(road: Road) -> None:
    assert not road.lets("a", fits=False)
    road.pod("b", schedulingGates=OURS)
    road.pod("a")
    road.catch_up()
    road.api.delete(PODS, "b", namespace=NAMESPACE)
    road.catch_up()
    assert not road.lets("c")


def test_a_dry_run_leaves_nothing_behind(road: Road) -> None:
    assert road.lets(is_dry_run=True)
    assert not road.lets(fits=False, is_dry_run=True)
    assert road.lets()
    assert road.asked == [{}, {}, {}]


def test_other_namespaces_do_not_matter(road: Road) -> None:
    road.pod("a", namespace="team-b", schedulingGates=OURS)
    road.pod("b", namespace="team-b")
    road.catch_up()
    assert road.taken() == "0"


def test_nothing_passes_while_it_is_not_known_who_waits() -> None:
    road = Road(MemoryCluster())
    assert not road.lets()  # nothing was listed yet
    road.start()
    try:
        assert road.lets()
        road.clock[0] += STALE_SECONDS + 1
        assert not road.lets()
    finally:
        road.pods.stop()


def test_namespaces_are_forgotten_when_nothing_is_underway(road: Road) -> None:
    road.pod("a")
    road.catch_up()
    road.api.delete(PODS, "a", namespace=NAMESPACE)
    road.catch_up()
    assert cast("dict[str, object]", road.underway._spaces) == {}
