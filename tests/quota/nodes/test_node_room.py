"""Room on nodes for a pod that others would be evicted for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from tests.builders import a_pod
from tests.counting import calls_of
from tests.quota.nodes.objects import node
from webhook.quota.nodes import taints
from webhook.quota.nodes.node_room import NodeRoom, PlacedPod
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
