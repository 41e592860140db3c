"""What may be bound at any moment: pods without gate and node, seen or let through just now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.admission.doors.desk import eventually
from tests.builders import a_binding, a_pod
from webhook.cluster.api import PODS
from webhook.cluster.informer import Informer, Timing
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.quota.objects import Pod
from webhook.quota.quantity import ZERO, Quantity
from webhook.quota.resources import ResourceList, add, to_text
from webhook.state.names import GATE, LET_THROUGH_ANNOTATION
from webhook.state.staleness import STALE_SECONDS
from webhook.state.underway import LATE_SECONDS, Underway
from webhook.state.view import WAITING_PODS

NAMESPACE = "team-a"
OURS = [{"name": GATE}]
NONE = "-1"
LITTLE = "0"
"""Only for a pod before which nothing comes."""


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
        eventually(lambda: self.pods.is_following, "the watch stands")

    def catch_up(self) -> None:
        version = self.cluster.resource_version

        def has_seen() -> bool:
            self.cluster.send_bookmarks()
            return self.pods.wait_for_version(version, 0.02)

        eventually(has_seen, "the cache has seen all")

    def hear(self) -> None:
        """Let the API server be heard of, by an object that is new somewhere else."""
        self.pod(f"elsewhere-{self.clock[0]}", namespace="elsewhere")
        self.catch_up()

    def pod(self, name: str, cpu: str = "1", **fields: object) -> None:
        made = a_pod(name=name, uid=f"uid-{name}", requests={"cpu": cpu}, **fields)  # type: ignore[arg-type]
        self.cluster.load([(PODS, made)])

    def lets(
        self,
        name: str = "web-1",
        cpu: str = "1",
        *,
        mark: str = "",
        room: str = "100",
        is_held: bool = True,
        is_dry_run: bool = False,
    ) -> str:
        """Ask for a pod, and return its mark; whoever waits stands before it if it is held.

        It fits where no more than the room is taken by what comes before it. A name that ends
        with a dash has its end made up when the pod is created.
        """

        def note(underway: ResourceList, waiting: ResourceList) -> bool:
            before = add(underway, waiting)
            self.asked.append(to_text(before))
            return before.get("requests.cpu", ZERO) <= Quantity.parse(room)

        annotations = {LET_THROUGH_ANNOTATION: mark} if mark else {}
        metadata: dict[str, object] = {"annotations": annotations}
        if name.endswith("-"):
            name, metadata = "", {**metadata, "generateName": name}
        raw = a_pod(name=name, uid="", requests={"cpu": cpu}, metadata=metadata)
        return self.underway.let_through(
            NAMESPACE,
            Pod.from_object(raw),
            fits=note,
            stands_before=lambda _: is_held,
            is_dry_run=is_dry_run,
        )

    def taken(self) -> str:
        """What is underway, in cpu, as the next pod would be told."""
        self.lets(room=NONE, is_held=False, is_dry_run=True)
        return self.asked[-1].get("requests.cpu", "0")


@pytest.fixture
def road() -> Iterator[Road]:
    made = Road(MemoryCluster())
    made.start()
    yield made
    made.pods.stop()


def marked(mark: str) -> dict[str, object]:
    return {"annotations": {LET_THROUGH_ANNOTATION: mark}}


def test_what_was_let_through_is_underway_before_it_is_seen_and_once_it_is(road: Road) -> None:
    one, other = road.lets("a"), road.lets("b")
    assert road.taken() == "2"
    road.pod("b", metadata=marked(other))
    road.catch_up()
    assert road.taken() == "2"
    road.pod("a", "3", metadata=marked(one))  # somebody has made it larger
    road.catch_up()
    assert road.taken() == "4"
    road.pod("c", metadata=marked("of another replica"))
    road.catch_up()
    assert road.taken() == "5"


def test_every_pod_gets_a_mark_of_its_own(road: Road) -> None:
    assert len({road.lets() for _ in range(5)}) == 5


def test_a_pod_that_is_asked_about_again_keeps_its_mark_and_is_underway_once(road: Road) -> None:
    mark = road.lets("a")
    assert road.lets("a", mark=mark) == mark
    assert road.taken() == "1"
    assert road.lets("a", mark=mark, is_dry_run=True) != mark
    assert road.taken() == "1"
    assert not road.lets("a", mark=mark, room=NONE)
    road.clock[0] += LATE_SECONDS
    road.catch_up()
    assert road.taken() == "0"


def test_a_mark_that_was_never_given_stands_for_nobody(road: Road) -> None:
    for _ in range(3):
        assert road.lets("a", mark="true") != "true"
    assert road.taken() == "3"


def test_what_never_came_is_forgotten(road: Road) -> None:
    assert road.lets()
    road.clock[0] += LATE_SECONDS - 0.1
    road.hear()
    assert road.taken() == "1"
    road.clock[0] += 0.2
    assert road.taken() == "1"  # nothing was heard since
    road.hear()
    assert road.taken() == "0"


LEAVING: dict[str, Callable[[Road], object]] = {
    "it has its node": lambda road: road.api.bind(a_binding("a", namespace=NAMESPACE)),
    "it is gone": lambda road: road.api.delete(PODS, "a", namespace=NAMESPACE),
    "it has ended": lambda road: road.api.patch(
        PODS, "a", {"status": {"phase": "Failed"}}, namespace=NAMESPACE, subresource="status"
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


def test_one_that_no_node_takes_is_still_on_its_way(road: Road) -> None:
    road.pod("a")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    patch = {"status": {"conditions": [condition]}}
    road.api.patch(PODS, "a", patch, namespace=NAMESPACE, subresource="status")
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
    assert not road.lets(room=LITTLE, is_dry_run=True)
    assert {one["requests.cpu"] for one in road.asked} == {"1"}
    assert road.lets("other", room=LITTLE, is_held=False)
    road.api.patch(PODS, "first", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    road.catch_up()
    assert road.lets(room="2")


def test_who_waits_keeps_nobody_where_there_is_room_for_all(road: Road) -> None:
    for number in range(30):
        road.pod(f"p{number}", schedulingGates=OURS)
    road.pod("started", "2")
    road.catch_up()
    assert not road.lets("next", room="31")
    assert road.lets("next", room="33")  # the one that was gated just now waits too
    assert not road.lets("after", room="33")


@pytest.mark.parametrize("how", ["it is gone", "it has ended"])
def test_who_waits_no_more_is_not_counted_any_more(road: Road, how: str) -> None:
    road.pod("a", "3", schedulingGates=OURS)
    road.pod("b", "1", schedulingGates=OURS)
    road.catch_up()
    assert not road.lets(room="3", is_dry_run=True)
    LEAVING[how](road)
    road.catch_up()
    assert road.lets(room="1", is_dry_run=True)


def test_one_that_others_hold_too_keeps_nobody(road: Road) -> None:
    road.pod("first", schedulingGates=[*OURS, {"name": "example.com/hold"}])
    road.catch_up()
    assert road.lets()


def test_where_many_wait_every_pod_stands_behind_them(road: Road) -> None:
    for number in range(21):
        road.pod(f"p{number}", schedulingGates=OURS)
    road.catch_up()
    assert not road.lets(room=LITTLE, is_held=False)


def test_one_that_was_gated_waits_before_it_is_seen(road: Road) -> None:
    assert not road.lets(room=NONE)
    assert not road.lets(room=LITTLE)
    road.clock[0] += LATE_SECONDS
    road.hear()
    assert road.lets()


def test_pods_that_come_all_the_time_are_let_through_again_when_nobody_waits(road: Road) -> None:
    assert not road.lets("large", room=NONE)
    road.pod("large", schedulingGates=OURS)
    road.catch_up()
    for number in range(3):  # one behind the other, each before the other is forgotten
        road.clock[0] += LATE_SECONDS - 1
        assert not road.lets(f"p{number}", room=LITTLE)
        road.pod(f"p{number}", schedulingGates=OURS)
        road.catch_up()
    for name in ("large", "p0", "p1", "p2"):
        road.api.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    road.catch_up()
    assert road.lets("next")


def test_another_pod_that_is_seen_is_not_the_one_that_was_gated(road: Road) -> None:
    assert not road.lets("a", room=NONE)
    road.pod("b", schedulingGates=OURS)
    road.pod("a")
    road.catch_up()
    road.api.delete(PODS, "b", namespace=NAMESPACE)
    road.catch_up()
    assert not road.lets("c", room="1")


def test_of_names_made_up_alike_the_pod_that_was_gated_is_told_by_what_it_takes(road: Road) -> None:
    for cpu in ("9", "1"):
        assert not road.lets("run-", cpu, room=NONE)
    made_up: dict[str, object] = {"generateName": "run-"}
    road.pod("run-a", "1", metadata=made_up, schedulingGates=OURS)
    road.catch_up()
    assert not road.lets(room="9", is_dry_run=True)
    road.pod("run-b", "8", metadata=made_up, schedulingGates=OURS)  # somebody has made it smaller
    road.catch_up()
    assert not road.lets(room="8", is_dry_run=True)
    assert road.lets(room="9", is_dry_run=True)


def test_a_dry_run_leaves_nothing_behind(road: Road) -> None:
    assert road.lets(is_dry_run=True)
    assert not road.lets(room=NONE, is_dry_run=True)
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
    assert road.underway._spaces == {}


def test_namespaces_in_which_nothing_came_of_it_are_forgotten_too(road: Road) -> None:
    assert not road.lets(room=NONE)
    road.clock[0] += LATE_SECONDS
    for name in ("a", "b"):  # what is heard now counts from the next time on
        road.pod(name, namespace="elsewhere")
        road.catch_up()
    assert set(road.underway._spaces) == {"elsewhere"}
