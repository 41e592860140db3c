"""What may be bound at any moment: pods without gate and node, seen or let through just now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.admission.handlers.harness import eventually, wait_until_seen
from tests.builders import a_binding, a_pod
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import PODS
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, to_text
from webhook.quota.objects.model import Pod
from webhook.state.cluster_view import WAITING_PODS
from webhook.state.in_flight import CACHE_LAG_SECONDS, InFlightPods
from webhook.state.well_known import SCHEDULING_GATE, UNGATED_ANNOTATION

NAMESPACE = "team-a"
OURS = [{"name": SCHEDULING_GATE}]
NONE = "-1"
LITTLE = "0"
"""Only for a pod before which nothing comes."""


@dataclass
class Scenario:
    """A cluster, the cache of its pods without a node, and what is underway in it."""

    cluster: FakeCluster
    clock: list[float] = field(default_factory=lambda: [1000.0])
    asked: list[dict[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = FakeClient(self.cluster)
        timing = InformerTimings(clock=lambda: self.clock[0], first_pause=0.01, longest_pause=0.05)
        self.pods = Informer(
            self.api, PODS, transform=Pod.from_object, options=WAITING_PODS, timings=timing
        )
        self.underway = InFlightPods(self.pods, lambda: self.clock[0])

    def start(self) -> None:
        self.pods.start()
        self.catch_up()
        eventually(lambda: self.pods.is_following, "the watch stands")

    def catch_up(self) -> None:
        wait_until_seen(self.cluster, [self.pods])

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

        annotations = {UNGATED_ANNOTATION: mark} if mark else {}
        metadata: dict[str, object] = {"annotations": annotations}
        if name.endswith("-"):
            name, metadata = "", {**metadata, "generateName": name}
        raw = a_pod(name=name, uid="", requests={"cpu": cpu}, metadata=metadata)
        return self.underway.try_admit(
            NAMESPACE,
            Pod.from_object(raw),
            fits=note,
            is_ahead=lambda _: is_held,
            is_dry_run=is_dry_run,
        )

    def taken(self) -> str:
        """What is underway, in cpu, as the next pod would be told."""
        self.lets(room=NONE, is_held=False, is_dry_run=True)
        return self.asked[-1].get("requests.cpu", "0")


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario(FakeCluster())
    made.start()
    yield made
    made.pods.stop()


def marked(mark: str) -> dict[str, object]:
    return {"annotations": {UNGATED_ANNOTATION: mark}}


def test_what_was_let_through_is_underway_before_it_is_seen_and_once_it_is(
    scenario: Scenario,
) -> None:
    one, other = scenario.lets("a"), scenario.lets("b")
    assert scenario.taken() == "2"
    scenario.pod("b", metadata=marked(other))
    scenario.catch_up()
    assert scenario.taken() == "2"
    scenario.pod("a", "3", metadata=marked(one))  # somebody has made it larger
    scenario.catch_up()
    assert scenario.taken() == "4"
    scenario.pod("c", metadata=marked("of another replica"))
    scenario.catch_up()
    assert scenario.taken() == "5"


def test_every_pod_gets_a_mark_of_its_own(scenario: Scenario) -> None:
    assert len({scenario.lets() for _ in range(5)}) == 5


def test_a_pod_that_is_asked_about_again_keeps_its_mark_and_is_underway_once(
    scenario: Scenario,
) -> None:
    mark = scenario.lets("a")
    assert scenario.lets("a", mark=mark) == mark
    assert scenario.taken() == "1"
    assert scenario.lets("a", mark=mark, is_dry_run=True) != mark
    assert scenario.taken() == "1"
    other = scenario.lets("b")
    assert not scenario.lets("b", mark=other, room=NONE)
    assert scenario.taken() == "1"


def test_a_mark_that_was_never_given_stands_for_no_request(scenario: Scenario) -> None:
    for _ in range(3):
        assert scenario.lets("a", mark="true") != "true"
    assert scenario.taken() == "3"


def test_one_that_takes_less_than_nothing_makes_no_room(scenario: Scenario) -> None:
    """The API server refuses it after the handler was asked."""
    assert scenario.lets("a", "3")
    assert not scenario.lets("b", "-5")
    assert not scenario.lets("b", "-5", is_held=False)
    assert scenario.taken() == "3"


def test_what_never_came_is_forgotten(scenario: Scenario) -> None:
    assert scenario.lets()
    scenario.clock[0] += CACHE_LAG_SECONDS - 0.1
    scenario.hear()
    assert scenario.taken() == "1"
    scenario.clock[0] += 0.2
    assert scenario.taken() == "1"  # nothing was heard since
    scenario.hear()
    assert scenario.taken() == "0"


LEAVING: dict[str, Callable[[Scenario], object]] = {
    "it has its node": lambda scenario: scenario.api.bind(a_binding("a", namespace=NAMESPACE)),
    "it is gone": lambda scenario: scenario.api.delete(PODS, "a", namespace=NAMESPACE),
    "it has ended": lambda scenario: scenario.api.patch(
        PODS, "a", {"status": {"phase": "Failed"}}, namespace=NAMESPACE, subresource="status"
    ),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_a_pod_is_underway_until(scenario: Scenario, leave: Callable[[Scenario], object]) -> None:
    scenario.pod("a", "3")
    scenario.pod("b", "1")
    scenario.catch_up()
    assert scenario.taken() == "4"
    leave(scenario)
    scenario.catch_up()
    assert scenario.taken() == "1"


def test_one_that_no_node_takes_is_still_on_its_way(scenario: Scenario) -> None:
    scenario.pod("a")
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    patch = {"status": {"conditions": [condition]}}
    scenario.api.patch(PODS, "a", patch, namespace=NAMESPACE, subresource="status")
    scenario.catch_up()
    assert scenario.taken() == "1"


def test_a_pod_that_others_hold_is_not_underway_until_they_let_it_go(scenario: Scenario) -> None:
    scenario.pod("a", schedulingGates=[{"name": "example.com/hold"}])
    scenario.catch_up()
    assert scenario.taken() == "0"
    scenario.api.patch(PODS, "a", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    scenario.catch_up()
    assert scenario.taken() == "1"


def test_no_new_pod_passes_one_that_waits(scenario: Scenario) -> None:
    scenario.pod("first", schedulingGates=OURS)
    scenario.catch_up()
    assert not scenario.lets(room=LITTLE, is_dry_run=True)
    assert {one["requests.cpu"] for one in scenario.asked} == {"1"}
    assert scenario.lets("other", room=LITTLE, is_held=False)
    scenario.api.patch(PODS, "first", {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    scenario.catch_up()
    assert scenario.lets(room="2")


def test_a_waiting_pod_keeps_no_other_where_there_is_room_for_all(scenario: Scenario) -> None:
    for number in range(30):
        scenario.pod(f"p{number}", schedulingGates=OURS)
    scenario.pod("started", "2")
    scenario.catch_up()
    assert not scenario.lets("next", room="31")
    assert scenario.lets("next", room="33")  # the one that was gated just now waits too
    assert not scenario.lets("after", room="33")


@pytest.mark.parametrize("how", ["it is gone", "it has ended"])
def test_a_pod_that_waits_no_more_is_not_counted_any_more(scenario: Scenario, how: str) -> None:
    scenario.pod("a", "3", schedulingGates=OURS)
    scenario.pod("b", "1", schedulingGates=OURS)
    scenario.catch_up()
    assert not scenario.lets(room="3", is_dry_run=True)
    LEAVING[how](scenario)
    scenario.catch_up()
    assert scenario.lets(room="1", is_dry_run=True)


def test_one_that_others_hold_too_keeps_no_other(scenario: Scenario) -> None:
    scenario.pod("first", schedulingGates=[*OURS, {"name": "example.com/hold"}])
    scenario.catch_up()
    assert scenario.lets()


def test_where_many_wait_every_pod_stands_behind_them(scenario: Scenario) -> None:
    for number in range(21):
        scenario.pod(f"p{number}", schedulingGates=OURS)
    scenario.catch_up()
    assert not scenario.lets(room=LITTLE, is_held=False)


def test_one_that_was_gated_waits_before_it_is_seen(scenario: Scenario) -> None:
    assert not scenario.lets(room=NONE)
    assert not scenario.lets(room=LITTLE)
    scenario.clock[0] += CACHE_LAG_SECONDS
    scenario.hear()
    assert scenario.lets()


def test_pods_that_come_all_the_time_are_let_through_again_when_none_waits(
    scenario: Scenario,
) -> None:
    assert not scenario.lets("large", room=NONE)
    scenario.pod("large", schedulingGates=OURS)
    scenario.catch_up()
    for number in range(3):  # one behind the other, each before the other is forgotten
        scenario.clock[0] += CACHE_LAG_SECONDS - 1
        assert not scenario.lets(f"p{number}", room=LITTLE)
        scenario.pod(f"p{number}", schedulingGates=OURS)
        scenario.catch_up()
    for name in ("large", "p0", "p1", "p2"):
        scenario.api.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)
    scenario.catch_up()
    assert scenario.lets("next")


def test_another_pod_that_is_seen_is_not_the_one_that_was_gated(scenario: Scenario) -> None:
    assert not scenario.lets("a", room=NONE)
    scenario.pod("b", schedulingGates=OURS)
    scenario.pod("a")
    scenario.catch_up()
    scenario.api.delete(PODS, "b", namespace=NAMESPACE)
    scenario.catch_up()
    assert not scenario.lets("c", room="1")


def test_of_names_made_up_alike_the_pod_that_was_gated_is_known_by_what_it_takes(
    scenario: Scenario,
) -> None:
    for cpu in ("9", "1"):
        assert not scenario.lets("run-", cpu, room=NONE)
    made_up: dict[str, object] = {"generateName": "run-"}
    scenario.pod("run-a", "1", metadata=made_up, schedulingGates=OURS)
    scenario.catch_up()
    assert not scenario.lets(room="9", is_dry_run=True)
    scenario.pod(
        "run-b", "8", metadata=made_up, schedulingGates=OURS
    )  # somebody has made it smaller
    scenario.catch_up()
    assert not scenario.lets(room="8", is_dry_run=True)
    assert scenario.lets(room="9", is_dry_run=True)


def test_a_dry_run_leaves_nothing_behind(scenario: Scenario) -> None:
    assert scenario.lets(is_dry_run=True)
    assert not scenario.lets(room=NONE, is_dry_run=True)
    assert scenario.lets()
    assert scenario.asked == [{}, {}, {}]


def test_other_namespaces_do_not_matter(scenario: Scenario) -> None:
    scenario.pod("a", namespace="team-b", schedulingGates=OURS)
    scenario.pod("b", namespace="team-b")
    scenario.catch_up()
    assert scenario.taken() == "0"


def test_nothing_passes_while_it_is_not_known_which_pods_wait() -> None:
    scenario = Scenario(FakeCluster())
    assert not scenario.lets()  # nothing was listed yet
    scenario.start()
    try:
        assert scenario.lets()
        scenario.clock[0] += STALE_SECONDS + 1
        assert not scenario.lets()
    finally:
        scenario.pods.stop()


def test_namespaces_are_forgotten_when_nothing_is_underway(scenario: Scenario) -> None:
    scenario.pod("a")
    scenario.catch_up()
    scenario.api.delete(PODS, "a", namespace=NAMESPACE)
    scenario.catch_up()
    assert len(scenario.underway) == 0


def test_namespaces_in_which_nothing_came_of_it_are_forgotten_too(scenario: Scenario) -> None:
    assert not scenario.lets(room=NONE)
    scenario.clock[0] += CACHE_LAG_SECONDS
    for name in ("a", "b"):  # what is heard now counts from the next time on
        scenario.pod(name, namespace="elsewhere")
        scenario.catch_up()
    assert len(scenario.underway) == 1  # "elsewhere"


def test_a_pod_takes_little_time_whatever_resources_others_name(scenario: Scenario) -> None:
    """Each of very many pods may name 32 that no other pod names."""
    pods = [
        Pod.from_object(
            a_pod(
                name=f"pod-{number}",
                uid="",
                requests={f"example.com/r{number}-{one}": "1" for one in range(31)},
            )
        )
        for number in range(3_000)
    ]
    started = time.process_time()
    for number, pod in enumerate(pods):
        scenario.underway.try_admit(
            NAMESPACE,
            pod,
            fits=lambda _underway, _queued, may=number % 2 == 0: may,  # type: ignore[misc]
            is_ahead=lambda _: True,
        )
    assert time.process_time() - started < 1.5


def test_the_mark_of_a_pod_lets_no_others_through(scenario: Scenario) -> None:
    mark = scenario.lets("a", "2")
    for name, cpu in (("b", "2"), ("a", "1")):
        assert scenario.lets(name, cpu, mark=mark) not in ("", mark)
    assert scenario.taken() == "5"
    assert scenario.lets("a", "3", mark=mark) == mark  # a later webhook made it larger
    assert scenario.lets("a", "3", mark=mark) not in ("", mark)
    assert scenario.taken() == "9"


def test_the_mark_of_a_pod_without_a_name_stands_for_one_more_at_most(scenario: Scenario) -> None:
    mark = scenario.lets("web-")
    for _ in range(4):
        assert scenario.lets("web-", mark=mark)
    assert scenario.taken() == "4"


LONG: Final = "x" * 400
NAMED: Final[dict[str, dict[str, object]]] = {
    "its name": {"name": LONG},
    "the prefix of its name": {"name": "", "metadata": {"generateName": LONG}},
    "its namespace": {"namespace": LONG},
    "its class": {"priorityClassName": LONG},
    "a gate": {"schedulingGates": [{"name": LONG}]},
    "a container": {"containers": [{"name": LONG}]},
    "a resource": {"requests": {f"example.com/{LONG}": "1"}},
    "an overhead": {"overhead": {f"example.com/{LONG}": "1"}},
    "a resource of the pod": {"resources": {"limits": {f"example.com/{LONG}": "1"}}},
}


@pytest.mark.parametrize("fields", NAMED.values(), ids=NAMED)
def test_a_pod_with_a_name_that_no_api_server_stores_is_not_remembered(
    scenario: Scenario, fields: dict[str, Any]
) -> None:
    pod = Pod.from_object(a_pod(**{"name": "a", "uid": "", "requests": {"cpu": "1"}, **fields}))
    for may in (True, False):
        assert not scenario.underway.try_admit(
            NAMESPACE, pod, fits=lambda *_, may=may: may, is_ahead=lambda _: True
        )
    assert len(scenario.underway) == 0


def test_what_is_seen_makes_room_for_more_to_be_remembered(scenario: Scenario) -> None:
    """Also in a namespace whose pods never all go."""
    scenario.pod("stays")
    scenario.catch_up()
    names = [{"name": f"{number}-{'x' * 300}"} for number in range(32)]
    for turn in range(40):
        for number in range(100):
            name = f"large-{turn}-{number}"
            raw = a_pod(name=name, uid="", requests={"cpu": "1"}, containers=names)
            token = scenario.underway.try_admit(
                NAMESPACE,
                Pod.from_object(raw),
                fits=lambda *_, number=number: number % 2 == 0,
                is_ahead=lambda _: True,
            )
            assert (token != "") is (number % 2 == 0), name
        scenario.clock[0] += CACHE_LAG_SECONDS
        scenario.hear()


def test_new_pods_get_gates_while_no_more_can_be_remembered(scenario: Scenario) -> None:
    names = [{"name": f"{number}-{'x' * 300}"} for number in range(32)]
    pod = Pod.from_object(a_pod(name="large", uid="", containers=names))

    def pass_all() -> bool:
        token = scenario.underway.try_admit(
            NAMESPACE, pod, fits=lambda *_: True, is_ahead=lambda _: True
        )
        return token != ""

    assert sum(pass_all() for _ in range(3_000)) in range(1_500, 2_500)
    assert not scenario.lets()
    scenario.clock[0] += CACHE_LAG_SECONDS
    scenario.hear()
    assert scenario.lets()
    assert scenario.taken() == "1"
