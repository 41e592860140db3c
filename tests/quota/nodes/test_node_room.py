"""Room on nodes for a pod that others would be evicted for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod
from tests.counting import calls_of
from tests.quota.nodes.objects import node
from webhook.quota.nodes import node_room, taints
from webhook.quota.nodes.node_room import NodeRoom, PlacedPod, placement_key
from webhook.quota.nodes.requested import requested_of

Object = dict[str, object]

NODES: Final = 50


def some_nodes(*, is_tainted: bool = False) -> list[Object]:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    return [
        {
            "metadata": {"name": f"n{number}", "labels": {"zone": "a"}},
            "spec": {"taints": [taint]} if is_tainted else {},
            "status": {"allocatable": {"cpu": "4", "pods": "10"}},
        }
        for number in range(NODES)
    ]


def requiring(*expressions: Object) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return a_pod(requests={"cpu": "1"}, affinity=affinity)


def absent(count: int) -> list[Object]:
    return [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(count)]


GPU: Final = "example.com/gpu"
BY_CLASS: Final = "deviceclass.resource.kubernetes.io/gpu"

OFFERED: Final[dict[str, tuple[str, tuple[Mapping[str, str], ...], bool]]] = {
    "an extended resource of no node": (GPU, ({}, {}), True),
    "of one node, and of another one with more than is left": (GPU, ({}, {GPU: "1"}), False),
    "of one node with room": (GPU, ({}, {GPU: "2"}), True),
    "of nodes that have none left to give": (GPU, ({GPU: "0"}, {}), False),
    "devices by the name of their class": (BY_CLASS, ({}, {}), True),
    "a native resource of no node": ("hugepages-2Mi", ({}, {}), False),
}


@pytest.mark.parametrize(("resource", "offers", "fits"), OFFERED.values(), ids=OFFERED)
def test_what_no_node_names_may_be_devices_and_is_not_compared(
    resource: str, offers: tuple[Mapping[str, str], ...], fits: bool
) -> None:
    nodes = [node(f"n{number}", allocatable=offer) for number, offer in enumerate(offers)]
    assert NodeRoom(a_pod(requests={resource: "2"}), nodes, ()).after(()).fits is fits


def test_beside_devices_all_else_is_compared() -> None:
    wanted = a_pod(requests={GPU: "1", "cpu": "3"})
    other = PlacedPod("u", "n1", requested_of(a_pod(requests={GPU: "1", "cpu": "2"})))
    room = NodeRoom(wanted, [node()], [other])
    assert (room.after(()).fits, room.after(["u"]).fits) == (False, True)


REQUIRED: Final = {
    "a few expressions": (requiring(*absent(100)), True),
    "very many expressions": (requiring(*absent(20_000)), False),
    "many values": (
        requiring({"key": "zone", "operator": "In", "values": [*map(str, range(5000)), "a"]}),
        True,
    ),
    "very many values": (
        requiring({"key": "zone", "operator": "NotIn", "values": [*map(str, range(100_000))]}),
        False,
    ),
    "another zone": (requiring({"key": "zone", "operator": "In", "values": ["b"]}), False),
}


@pytest.mark.parametrize(("pod", "fits"), REQUIRED.values(), ids=REQUIRED)
def test_what_very_much_is_required_of_fits_no_node(pod: Object, fits: bool) -> None:
    assert NodeRoom(pod, some_nodes(), ()).after(()).fits is fits


@pytest.mark.parametrize("is_tolerated", [False, True])
def test_the_creator_of_a_pod_does_not_decide_how_often_tolerations_are_compared(
    monkeypatch: pytest.MonkeyPatch, is_tolerated: bool
) -> None:
    compared = calls_of(monkeypatch, taints, "is_tolerated")
    others: list[Object] = [{"key": f"k{number}", "operator": "Exists"} for number in range(1000)]
    own: list[Object] = [{"key": "dedicated", "value": "x"}] if is_tolerated else []
    pod = a_pod(requests={"cpu": "1"}, tolerations=[*others, *own])
    assert NodeRoom(pod, some_nodes(is_tainted=True), ()).after(()).fits is is_tolerated
    assert len(compared) == 2  # the taint of all nodes, and that of cordoned ones


FAST: Final[dict[str, Any]] = {"nodeSelector": {"zone": "fast"}}
ONE: Final = {"cpu": "1"}


def pods_asking(number: int, requests: Mapping[str, str], **spec: Any) -> dict[bytes, int]:
    key = placement_key(a_pod(requests=requests, **spec))
    assert key is not None
    return {key: number}


def fits_beside(unassigned: Mapping[bytes, int], pod: Object, **cpu: str) -> bool:
    """Return whether a pod has room beside others, on nodes of a zone each."""
    nodes = [
        node(name, labels={"zone": name}, allocatable={"cpu": amount, "pods": "9"})
        for name, amount in cpu.items()
    ]
    return NodeRoom(pod, nodes, (), unassigned).after(()).fits


BESIDE: Final[dict[str, tuple[dict[bytes, int], dict[str, Any], bool]]] = {
    "as many places as pods": (pods_asking(1, ONE, **FAST), FAST, True),
    "a place too few": (pods_asking(2, ONE, **FAST), FAST, False),
    "another amount on the same nodes": (pods_asking(1, {"cpu": "1500m"}, **FAST), FAST, False),
    "others that go elsewhere, too": (pods_asking(9, ONE), FAST, True),
    "others that fit elsewhere only": (pods_asking(9, ONE, nodeSelector={"zone": "a"}), FAST, True),
    "others that can go to some of the nodes only": (pods_asking(9, ONE, **FAST), {}, True),
    "others of all nodes": (pods_asking(3, ONE), {}, True),
    "others that take all nodes": (pods_asking(4, ONE), {}, False),
    "others that fit no node": (pods_asking(9, {"cpu": "3"}), {}, True),
    "smaller ones where there is no room for it": (pods_asking(2, {"cpu": "500m"}), {}, True),
    "an amount that cannot be read": (
        {b'{"spec":{"containers":[{"name":"a","resources":{"requests":{"cpu":"x"}}}]}}': 9},
        FAST,
        True,
    ),
}


@pytest.mark.parametrize(("unassigned", "spec", "fits"), BESIDE.values(), ids=BESIDE)
def test_others_that_are_on_no_node_yet_take_their_places(
    unassigned: dict[bytes, int], spec: dict[str, Any], fits: bool
) -> None:
    """Node a has room for two pods of 1 cpu, and so has fast."""
    assert fits_beside(unassigned, a_pod(requests=ONE, **spec), a="2", fast="2") is fits


def test_others_take_first_what_is_of_no_use_to_it_whoever_leaves() -> None:
    """Else a stream of small pods kept a large one from all plans, wherever they go."""
    nodes = [
        node(name, allocatable={"cpu": cpu, "pods": "9"}) for name, cpu in (("a", "2"), ("b", "1"))
    ]
    victim = PlacedPod("victim", "a", requested_of(a_pod(requests=ONE)))
    room = NodeRoom(a_pod(requests={"cpu": "2"}), nodes, [victim], pods_asking(1, ONE))
    assert not room.after(()).fits
    assert room.after(["victim"]).fits


def test_others_take_last_what_there_is_for_it_now() -> None:
    nodes = [node(name, allocatable={"cpu": "2", "pods": "9"}) for name in ("a", "b")]
    other = PlacedPod("other", "b", requested_of(a_pod(requests=ONE)))
    pod = a_pod(requests={"cpu": "2"})
    assert NodeRoom(pod, nodes, [other], pods_asking(1, ONE)).after(()).fits


def test_another_pod_that_requires_very_much_of_its_node_takes_no_room() -> None:
    """Its creator does not decide how long a plan takes."""
    for number, fits in ((2, False), (500, True)):
        values = ["fast", *map(str, range(number))]
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": values}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        others = pods_asking(1, ONE, affinity={"nodeAffinity": required})
        assert fits_beside(others, a_pod(requests=ONE), fast="1") is fits


AMOUNTS = st.sampled_from(["100m", "500m", "1", "1500m", "2"])
SPECS = st.sampled_from([{}, FAST, {"nodeSelector": {"zone": "a"}}])


@given(st.lists(st.tuples(AMOUNTS, SPECS, st.integers(1, 9))), AMOUNTS, SPECS)
def test_beside_others_room_is_only_rarer(
    others: list[tuple[str, dict[str, Any], int]], cpu: str, spec: dict[str, Any]
) -> None:
    unassigned: dict[bytes, int] = {}
    for amount, its_spec, number in others:
        unassigned |= pods_asking(number, {"cpu": amount}, **its_spec)
    pod = a_pod(requests={"cpu": cpu}, **spec)
    beside = fits_beside(unassigned, pod, a="2", fast="2")
    assert not beside or fits_beside({}, pod, a="2", fast="2")


def test_nodes_are_compared_with_few_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    unassigned: dict[bytes, int] = {}
    for number in range(200):
        unassigned |= pods_asking(number, ONE, nodeSelector={"zone": str(number)})
    unassigned |= pods_asking(1, ONE, **FAST)
    read = calls_of(monkeypatch, node_room, "_open_to")
    assert not fits_beside(unassigned, a_pod(requests=ONE, **FAST), fast="1", a="9")
    assert len(read) == 1 + 8
