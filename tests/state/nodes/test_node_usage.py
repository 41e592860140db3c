"""Usage of nodes: seen pods, and pods whose bind was let through and is not seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.quota.nodes.objects import pod
from webhook.kube.informer import Change
from webhook.quota.nodes.kubelet_admission import KubeletPod, read_kubelet_pod
from webhook.state.nodes.node_usage import IN_FLIGHT_SECONDS, MAX_FAILED, Loads, NodeUsage


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def usage(clock: Clock) -> NodeUsage:
    return NodeUsage(clock)


def a_waiting(uid: str, cpu: str = "1", port: int = 0) -> KubeletPod:
    ports = [{"hostPort": port}] if port else []
    return replace(read_kubelet_pod(pod(requests={"cpu": cpu}, ports=ports)), uid=uid)


def on_node(one: KubeletPod, node: str = "n1", *, ended: bool = False) -> KubeletPod:
    return replace(one, node=node, has_ended=ended, constraints=None)


def shown(usage: NodeUsage, old: KubeletPod | None, new: KubeletPod | None) -> None:
    pod = new or old
    assert pod is not None
    kind = "ADDED" if old is None else "DELETED" if new is None else "UPDATED"
    usage.on_pod(Change(kind, f"team/{pod.uid}", pod.uid, 1, old=old, new=new))  # type: ignore[arg-type]


def loads(usage: NodeUsage, node: str = "n1", port: int = 0) -> Loads:
    """Return what a bind to the node is judged by; it is not let through."""
    asked: list[Loads] = []

    def judge(loads: Loads) -> tuple[str, ...]:
        asked.append(loads)
        return ("no",)

    usage.admit(node, a_waiting("asking", port=port), judge)
    return asked[0]


def let_through(usage: NodeUsage, one: KubeletPod, node: str = "n1") -> None:
    assert usage.admit(node, one, lambda _: ()) == ()


def millicores(usage: NodeUsage, node: str = "n1") -> tuple[int, int]:
    """Return what is seen of cpu, and what is expected."""
    found = loads(usage, node)
    return found.seen.requested.get("cpu", 0), found.expected.requested.get("cpu", 0)


def test_pods_on_a_node_count_until_they_end_or_go(usage: NodeUsage) -> None:
    first, second = a_waiting("a", "1"), a_waiting("b", "2")
    shown(usage, None, first)
    assert millicores(usage) == (0, 0)
    shown(usage, first, on_node(first))
    shown(usage, None, on_node(second))
    shown(usage, None, on_node(a_waiting("c", "4"), "n2"))
    assert (millicores(usage), millicores(usage, "n2")) == ((3000, 3000), (4000, 4000))
    shown(usage, on_node(first), on_node(first, ended=True))
    assert millicores(usage) == (2000, 2000)
    shown(usage, on_node(first, ended=True), None)
    shown(usage, on_node(second), None)
    assert millicores(usage) == (0, 0)


def test_ports_count_with_their_pods(usage: NodeUsage) -> None:
    one = on_node(a_waiting("a", port=80))
    shown(usage, None, one)
    assert [port.port for port in loads(usage, port=80).seen.ports] == [80]
    shown(usage, one, None)
    assert loads(usage, port=80).seen.ports == []


def test_a_bind_that_was_let_through_counts_until_it_is_seen(usage: NodeUsage) -> None:
    one = a_waiting("a", "2")
    shown(usage, None, one)
    let_through(usage, one)
    assert (millicores(usage), loads(usage).in_flight) == ((0, 2000), 1)
    shown(usage, one, replace(one))  # a change of the pod before its bind
    assert millicores(usage) == (0, 2000)
    shown(usage, one, on_node(one))
    assert (millicores(usage), loads(usage).in_flight) == ((2000, 2000), 0)


def test_a_bind_that_is_repeated_counts_once_and_for_its_last_node(usage: NodeUsage) -> None:
    one = a_waiting("a", "2")
    let_through(usage, one)
    let_through(usage, one)
    assert millicores(usage) == (0, 2000)
    let_through(usage, one, "n2")
    assert (millicores(usage), millicores(usage, "n2")) == ((0, 0), (0, 2000))


def test_a_bind_that_never_comes_is_forgotten(usage: NodeUsage, clock: Clock) -> None:
    let_through(usage, a_waiting("a", "2"))
    clock.now = IN_FLIGHT_SECONDS
    assert millicores(usage) == (0, 2000)
    clock.now += 0.001
    assert millicores(usage) == (0, 0)


def test_a_bind_that_fails_again_and_again_counts_no_longer_in_all(
    usage: NodeUsage, clock: Clock
) -> None:
    one = a_waiting("a")
    for _ in range(4):
        let_through(usage, one)
        assert millicores(usage) == (0, 1000)
        clock.now += IN_FLIGHT_SECONDS / 4
    clock.now += 1
    for node in ("n2", "n1"):
        let_through(usage, one, node)
        assert millicores(usage, node) == (0, 0)
    shown(usage, one, on_node(one))
    shown(usage, on_node(one), None)
    let_through(usage, one)  # of a pod that is gone nothing is kept
    assert millicores(usage) == (0, 1000)


def test_of_very_many_binds_that_failed_the_first_are_forgotten(
    usage: NodeUsage, clock: Clock
) -> None:
    """A pod may be gone before its bind is judged, and nothing is shown of it any more."""
    waiting = a_waiting("a")
    pods = [replace(waiting, uid=str(number)) for number in range(MAX_FAILED + 1)]
    for one in pods:
        let_through(usage, one, f"n{one.uid}")
    clock.now += IN_FLIGHT_SECONDS + 1
    for one in pods:
        assert usage.in_flight(f"n{one.uid}") == {}
    for one, expected in ((pods[-1], 0), (pods[0], 1000)):
        let_through(usage, one)
        assert millicores(usage) == (0, expected)


def test_a_pod_that_goes_or_is_refused_after_all_is_forgotten(usage: NodeUsage) -> None:
    gone, refused = a_waiting("a", "2"), a_waiting("b", "4")
    shown(usage, None, gone)
    let_through(usage, gone)
    let_through(usage, refused)
    shown(usage, gone, None)
    assert millicores(usage) == (0, 4000)
    usage.forget("b")
    usage.forget("b")
    assert millicores(usage) == (0, 0)


def among(
    usage: NodeUsage, stored: list[KubeletPod], in_flight: dict[str, KubeletPod]
) -> tuple[int, int]:
    asked: list[Loads] = []

    def judge(loads: Loads) -> tuple[str, ...]:
        asked.append(loads)
        return ("no",)

    usage.admit_among("n1", a_waiting("asking"), judge, stored=stored, in_flight=in_flight)
    (found,) = asked
    return found.seen.requested.get("cpu", 0), found.expected.requested.get("cpu", 0)


def test_pods_that_were_just_read_stand_for_the_cache(usage: NodeUsage) -> None:
    ended, flying = on_node(a_waiting("a", "8")), a_waiting("b", "2")
    shown(usage, None, ended)
    let_through(usage, flying)
    assert among(usage, [on_node(ended, ended=True)], {}) == (0, 2000)
    assert among(usage, [on_node(flying)], {}) == (2000, 2000)
    # it counts on for those that are judged by the cache, which has not shown it
    assert millicores(usage) == (8000, 10000)


def test_a_bind_that_was_seen_after_the_read_counts_too(usage: NodeUsage) -> None:
    one = a_waiting("a", "2")
    let_through(usage, one)
    before = usage.in_flight("n1")
    shown(usage, one, on_node(one))
    assert usage.in_flight("n1") == {}
    assert among(usage, [], before) == (0, 2000)


def test_no_resource_is_remembered_that_no_pod_on_the_node_names(usage: NodeUsage) -> None:
    """Any client that creates pods with a node chooses their names."""
    stays = on_node(a_waiting("stays"))
    shown(usage, None, stays)
    for number in range(3):
        odd = pod(requests={"cpu": "1", f"example.com/r{number}": "1"})
        gone = on_node(replace(read_kubelet_pod(odd), uid=f"gone-{number}"))
        shown(usage, None, gone)
        shown(usage, gone, None)
    assert usage.requested("n1").keys() == stays.amounts.keys()


def test_pods_that_request_nothing_of_a_resource_come_and_go(usage: NodeUsage) -> None:
    none = on_node(a_waiting("none", cpu="0"))
    some = on_node(a_waiting("some"))
    for one in (none, some, replace(none, uid="another")):
        shown(usage, None, one)
    for one in (some, none, replace(none, uid="another")):
        shown(usage, one, None)
    assert usage.requested("n1") == {}
