"""Scores of nodes that a pod fits on, with the weights of the default profile."""

from __future__ import annotations

import pytest

from tests.quota.nodes.objects import Object, assigned, node, pod
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView

REPELLING = {"key": "old", "value": "", "effect": "PreferNoSchedule"}


def scores(wanted: Object, view: NodeView) -> dict[str, int]:
    (best, *_) = judge_nodes(wanted, view).fits
    return dict(best.plugins)


CASES = {
    "an empty node and nothing requested: 100m and 200Mi count": (
        pod(),
        (),
        {"NodeResourcesFit": (97 + 97) // 2},
    ),
    "what is left decides": (
        pod(requests={"cpu": "1", "memory": "1Gi"}),
        (pod(requests={"cpu": "1", "memory": "5Gi"}),),
        {"NodeResourcesFit": (50 + 25) // 2, "NodeResourcesBalancedAllocation": 78},
    ),
    "a pod that brings cpu and memory together": (
        pod(requests={"cpu": "2"}),
        (pod(requests={"memory": "4Gi"}),),
        {"NodeResourcesFit": (47 + 47) // 2, "NodeResourcesBalancedAllocation": 87},
    ),
    "a pod that drives them apart": (
        pod(requests={"cpu": "4"}),
        (),
        {"NodeResourcesFit": 97 // 2, "NodeResourcesBalancedAllocation": 50},
    ),
}


@pytest.mark.parametrize(("wanted", "others", "expected"), CASES.values(), ids=CASES.keys())
def test_scores_by_resources(
    wanted: Object, others: tuple[Object, ...], expected: dict[str, int]
) -> None:
    found = scores(wanted, NodeView([node()], assigned(others)))
    resources = {name: score for name, score in found.items() if name.startswith("NodeResources")}
    assert resources == expected


def test_taints_that_repel_weigh_three() -> None:
    nodes = [node("n1", taints=[REPELLING]), node("n2")]
    verdicts = judge_nodes(pod(), NodeView(nodes, ()))
    assert {one.name: one.plugins["TaintToleration"] for one in verdicts.fits} == {
        "n1": 0,
        "n2": 300,
    }


def test_preferred_nodes_weigh_two() -> None:
    preference = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    preferred = [{"weight": 7, "preference": preference}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    nodes = [node("n1"), node("n2", labels={"zone": "a"})]
    verdicts = judge_nodes(pod(affinity=affinity), NodeView(nodes, ()))
    assert [(one.name, one.plugins["NodeAffinity"]) for one in verdicts.fits] == [
        ("n2", 200),
        ("n1", 0),
    ]


def test_images_that_are_there_score_by_their_size_and_spread() -> None:
    image = {"names": ["registry/app:v1"], "sizeBytes": 1000 * 2**20}
    nodes = [node("n1"), node("n2")]
    nodes[0]["status"] = {"allocatable": {"pods": "9"}, "images": [image]}
    wanted = pod()
    wanted["spec"] = {"containers": [{"name": "c", "image": "registry/app:v1"}]}
    verdicts = judge_nodes(wanted, NodeView(nodes, ()))
    half = 100 * (500 - 23) // (1000 - 23)
    assert {one.name: one.plugins["ImageLocality"] for one in verdicts.fits} == {
        "n1": half,
        "n2": 0,
    }


def test_pod_level_requests_and_overhead_count() -> None:
    wanted = pod(overhead={"cpu": "1"}, resources={"requests": {"cpu": "3500m"}})
    (rejection,) = judge_nodes(wanted, NodeView([node()], ())).rejected
    assert [str(one.missing) for one in rejection.shortages] == ["500m"]


def test_what_a_node_has_set_aside_for_a_resize_counts() -> None:
    resized = pod(requests={"cpu": "1"}) | {
        "status": {
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": "3"}},
                    "allocatedResources": {"cpu": "3"},
                }
            ]
        }
    }
    view = NodeView([node()], assigned([resized]))
    (rejection,) = judge_nodes(pod(requests={"cpu": "2"}), view).rejected
    assert [str(one.used) for one in rejection.shortages] == ["3"]


def test_pod_level_resources_that_shrink_count_until_the_node_gives_them_back() -> None:
    shrinking = pod(resources={"requests": {"cpu": "1"}}) | {
        "status": {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    }
    view = NodeView([node()], assigned([shrinking]))
    (rejection,) = judge_nodes(pod(requests={"cpu": "2"}), view).rejected
    assert [str(one.used) for one in rejection.shortages] == ["3"]
