"""Room on nodes for a pod that others would be evicted for."""

from __future__ import annotations

from typing import Final

import pytest

from tests.builders import a_pod
from webhook.quota.nodes import taints
from webhook.quota.nodes.model import Taint
from webhook.quota.nodes.node_room import NodeRoom

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
    compared: list[Taint] = []
    judge = taints.is_tolerated

    def counting(taint: Taint, tolerations: tuple[taints.Toleration, ...]) -> bool:
        compared.append(taint)
        return judge(taint, tolerations)

    monkeypatch.setattr(taints, "is_tolerated", counting)
    others: list[Object] = [{"key": f"k{number}", "operator": "Exists"} for number in range(1000)]
    own: list[Object] = [{"key": "dedicated", "value": "x"}] if is_tolerated else []
    pod = a_pod(requests={"cpu": "1"}, tolerations=[*others, *own])
    assert NodeRoom(pod, some_nodes(is_tainted=True), ()).after(()).fits is is_tolerated
    assert len(compared) == 2  # the taint of all nodes, and that of cordoned ones
