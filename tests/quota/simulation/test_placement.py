"""The node that is chosen is the best of all nodes judged anew, whatever came and went before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object
from tests.quota.simulation.scenarios import a_node, a_template
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView
from webhook.quota.simulation.placement import Placement
from webhook.quota.simulation.values import PodTemplate

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
SOFT = {**TAINT, "effect": "PreferNoSchedule"}
NODES = (
    a_node("a", cpu=4),
    a_node("b", cpu=8, memory=4),
    a_node("c", cpu=2, memory=16, taints=[TAINT]),
    a_node("d", cpu=4, unschedulable=True),
    a_node("e", cpu=4),
)
TOLERATION = {"key": "dedicated", "operator": "Exists"}
ON_HOST = {"kubernetes.io/hostname": "b"}
LOCAL = (
    a_template(),
    a_template("team-b"),
    a_template(requests={"cpu": "2", "memory": "3Gi"}),
    a_template(requests={"memory": "2Gi"}, tolerations=[TOLERATION]),
    a_template(nodeSelector=ON_HOST),
    a_template(hostNetwork=True, containers=[{"name": "m", "ports": [{"hostPort": 80}]}]),
)
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
PREFERS = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 5,
                "preference": {
                    "matchExpressions": [
                        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["e"]}
                    ]
                },
            }
        ]
    }
}
SEVERAL = (*LOCAL[:3], a_template(affinity=APART), a_template(affinity=PREFERS))
CASES: dict[str, tuple[tuple[Object, ...], tuple[PodTemplate, ...]]] = {
    "one node at a time": (NODES, LOCAL),
    "several nodes": (NODES, SEVERAL),
    "taints to avoid": ((*NODES, a_node("f", cpu=16, memory=64, taints=[SOFT])), LOCAL),
}


@pytest.mark.parametrize(("nodes", "templates"), CASES.values(), ids=CASES.keys())
@given(st.data())
def test_the_choice_is_that_of_all_nodes_judged_anew(
    nodes: tuple[Object, ...], templates: tuple[PodTemplate, ...], data: st.DataObject
) -> None:
    placement = Placement(nodes, templates)
    placed: dict[str, tuple[PodTemplate, str, Object]] = {}
    for number in range(data.draw(st.integers(1, 25))):
        template = data.draw(st.sampled_from(templates))
        pods = [raw for _, _, raw in placed.values()]
        fits = judge_nodes(template.raw, NodeView(nodes, pods)).fits
        best = placement.best(template)
        assert best == (fits[0].name if fits else "")
        if best:
            spec = template.raw["spec"]
            assert isinstance(spec, dict)
            raw = {**template.raw, "spec": {**spec, "nodeName": best}}
            placed[f"pod-{number}"] = template, best, raw
            placement.add(f"pod-{number}", template, best)
        one_goes: bool = data.draw(st.booleans())
        if placed and one_goes:
            gone = data.draw(st.sampled_from(sorted(placed)))
            placement.remove(gone, *placed.pop(gone)[:2])
