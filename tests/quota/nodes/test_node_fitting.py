"""Which nodes a pod fits on: the first filter that refuses each, in the scheduler's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from tests.quota.nodes.objects import Object, assigned, node, pod
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.nodes.fitting import judge_nodes, judge_without_pods, no_node_text
from webhook.quota.nodes.model import NodeView

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
UNTOLERATED = ("TaintToleration", "node(s) had untolerated taint(s)")
UNSELECTED = ("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
PORTS_TAKEN = ("NodePorts", "node(s) didn't have free ports for the requested pod ports")


def tolerating(**toleration: str) -> Object:
    return pod(tolerations=[toleration])


def requiring(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return pod(affinity={"nodeAffinity": required})


def expressing(key: str, operator: str, *values: str) -> Object:
    expression = {"key": key, "operator": operator, "values": list(values)}
    return requiring({"matchExpressions": [expression]})


def listening(port: int, **fields: str) -> Object:
    return pod(ports=[{"hostPort": port, "containerPort": port, **fields}])


FITTING = {
    "an empty node has room": (pod(requests={"cpu": "4"}), node(), ()),
    "a cordon may be tolerated": (
        tolerating(key="node.kubernetes.io/unschedulable", operator="Exists"),
        node(unschedulable=True),
        (),
    ),
    "a taint tolerated by its value": (
        tolerating(key="dedicated", value="gpu", effect="NoSchedule"),
        node(taints=[TAINT]),
        (),
    ),
    "everything tolerated": (tolerating(operator="Exists"), node(taints=[TAINT]), ()),
    "a taint that only repels": (pod(), node(taints=[TAINT | {"effect": "PreferNoSchedule"}]), ()),
    "a selected label": (pod(nodeSelector={"zone": "a"}), node(labels={"zone": "a"}), ()),
    "an absent label is not in": (expressing("zone", "NotIn", "a"), node(), ()),
    "a greater number": (expressing("cores", "Gt", "4"), node(labels={"cores": "16"}), ()),
    "one term of two": (
        requiring({}, {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}),
        node(),
        (),
    ),
    "a named node": (pod(nodeName="n1"), node(), ()),
    "another protocol": (
        listening(80, protocol="UDP"),
        node(),
        (listening(80),),
    ),
    "another address": (
        listening(80, hostIP="10.0.0.1"),
        node(),
        (listening(80, hostIP="10.0.0.2"),),
    ),
    "what has ended takes nothing": (
        pod(requests={"cpu": "4"}),
        node(),
        (pod(requests={"cpu": "4"}) | {"status": {"phase": "Succeeded"}},),
    ),
}
REFUSED = {
    "a cordon comes before a taint": (
        pod(),
        node(unschedulable=True, taints=[TAINT]),
        (),
        ("NodeUnschedulable", "node(s) were unschedulable"),
    ),
    "another name": (
        pod(nodeName="n2"),
        node(),
        (),
        ("NodeName", "node(s) didn't match the requested node name"),
    ),
    "a taint": (pod(), node(taints=[TAINT]), (), UNTOLERATED),
    "a taint of another value": (
        tolerating(key="dedicated", value="cpu"),
        node(taints=[TAINT]),
        (),
        UNTOLERATED,
    ),
    "a taint tolerated for another effect": (
        tolerating(operator="Exists", effect="NoExecute"),
        node(taints=[TAINT]),
        (),
        UNTOLERATED,
    ),
    "a comparing toleration, an alpha feature": (
        tolerating(key="level", operator="Gt", value="1"),
        node(taints=[{"key": "level", "value": "2", "effect": "NoExecute"}]),
        (),
        UNTOLERATED,
    ),
    "another label": (pod(nodeSelector={"zone": "a"}), node(labels={"zone": "b"}), (), UNSELECTED),
    "a label that is no number": (
        expressing("cores", "Lt", "4"),
        node(labels={"cores": "many"}),
        (),
        UNSELECTED,
    ),
    "no term at all": (requiring(), node(), (), UNSELECTED),
    "an empty term": (requiring({}), node(), (), UNSELECTED),
    "a port of all addresses": (
        listening(80),
        node(),
        (listening(80, hostIP="10.0.0.2"),),
        PORTS_TAKEN,
    ),
    "a port of a pod in the node's network": (
        listening(80),
        node(),
        (pod(hostNetwork=True, ports=[{"containerPort": 80}]),),
        PORTS_TAKEN,
    ),
    "too many pods": (
        pod(),
        node(allocatable={"pods": "1"}),
        (pod(),),
        ("NodeResourcesFit", "Too many pods"),
    ),
    "every short resource counts": (
        pod(requests={"memory": "9Gi", "cpu": "1", "nvidia.com/gpu": "1"}),
        node(),
        (pod(requests={"cpu": "3500m"}),),
        (
            "NodeResourcesFit",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient nvidia.com/gpu",
        ),
    ),
}


@pytest.mark.parametrize(("wanted", "on", "others"), FITTING.values(), ids=FITTING.keys())
def test_fits_where_no_filter_refuses(
    wanted: Object, on: Object, others: tuple[Object, ...]
) -> None:
    verdicts = judge_nodes(wanted, NodeView([on], assigned(others)))
    assert [one.name for one in verdicts.fits] == ["n1"]


@pytest.mark.parametrize(
    ("wanted", "on", "others", "expected"), REFUSED.values(), ids=REFUSED.keys()
)
def test_names_the_first_filter_that_refuses(
    wanted: Object, on: Object, others: tuple[Object, ...], expected: tuple[str, ...]
) -> None:
    (rejection,) = judge_nodes(wanted, NodeView([on], assigned(others))).rejected
    assert (rejection.filter, *rejection.reasons) == expected


def test_says_by_how_much_a_node_is_short_even_if_something_else_refused_it() -> None:
    others = assigned([pod(requests={"cpu": "3500m"})])
    view = NodeView([node(unschedulable=True)], others)
    (rejection,) = judge_nodes(pod(requests={"cpu": "2", "memory": "9Gi"}), view).rejected
    assert rejection.filter == "NodeUnschedulable"
    assert [
        tuple(map(str, (one.resource, one.requested, one.used, one.allocatable, one.missing)))
        for one in rejection.shortages
    ] == [("cpu", "2", "3500m", "4", "1500m"), ("memory", "9Gi", "0", "8Gi", "1Gi")]


def test_words_the_message_as_the_scheduler() -> None:
    nodes = [node("n1", taints=[TAINT]), node("n2", taints=[TAINT]), node("n3")]
    verdicts = judge_nodes(pod(requests={"cpu": "5"}), NodeView(nodes, ()))
    assert verdicts.message() == (
        "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s)."
    )


def test_counts_nodes_that_are_not_named_apart() -> None:
    named = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    wanted = requiring({"matchFields": [named]})
    verdicts = judge_nodes(wanted, NodeView([node("n1", taints=[TAINT]), node("n2")], ()))
    assert verdicts.message() == (
        "0/2 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity], "
        "1 node(s) had untolerated taint(s)."
    )


def test_a_pod_that_names_two_nodes_at_once_fits_nowhere() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]
    verdicts = judge_nodes(
        requiring({"matchFields": fields}), NodeView([node("n1"), node("n2")], ())
    )
    assert verdicts.message() == "0/2 nodes are available: pod affinity terms conflict."
    assert {one.filter for one in verdicts.rejected} == {"NodeAffinity"}


def test_without_nodes_says_so() -> None:
    message = judge_nodes(pod(), NodeView((), ())).message()
    assert message == "no nodes available to schedule pods"


def test_names_what_is_neither_judged_nor_scored() -> None:
    wanted = pod(labels={"app": "web"}, resourceClaims=[{"name": "gpu"}])
    verdicts = judge_nodes(wanted, NodeView([node()], ()))
    assert verdicts.unknown == ("resourceclaims",)
    assert verdicts.unscored == {"PodTopologySpread": 2, "DynamicResources": 2}


def test_a_resource_that_no_node_has_may_stand_for_devices() -> None:
    wanted = pod(requests={"example.com/gpu": "1"})
    nodes = [node("n1"), node("n2", allocatable={"example.com/gpu": "0"})]
    assert judge_nodes(wanted, NodeView(nodes[:1], ())).unknown == ("deviceclasses",)
    assert not judge_nodes(wanted, NodeView(nodes, ())).unknown


def test_what_is_devices_of_a_class_is_compared_only_where_a_node_has_some() -> None:
    gpu = "example.com/gpu"
    wanted = pod(requests={gpu: "2", "cpu": "1"})
    offers: list[dict[str, str]] = [{}, {gpu: "0"}, {gpu: "1"}, {gpu: "2"}, {"cpu": "0"}]
    nodes = [node(f"n{number}", allocatable=offer) for number, offer in enumerate(offers)]
    verdicts = judge_nodes(wanted, NodeView(nodes, (), devices=frozenset({gpu})))
    assert {one.name for one in verdicts.fits} == {"n0", "n1", "n3"}
    assert verdicts.counts() == {"Insufficient cpu": 1, f"Insufficient {gpu}": 1}
    short = {one.node: [each.resource for each in one.shortages] for one in verdicts.rejected}
    assert short == {"n2": [gpu], "n4": ["cpu"]}
    assert verdicts.unknown == ("deviceclasses",)


def test_amounts_beyond_64_bits_are_short_and_nothing_breaks() -> None:
    huge = "1" + "0" * 30
    view = NodeView([node("n1"), node("n2", allocatable={"cpu": huge})], ())
    verdicts = judge_nodes(pod(requests={"cpu": "1" + "0" * 12}), view)
    assert verdicts.message() == "1/2 nodes are available: 1 Insufficient cpu."
    assert [one.name for one in verdicts.fits] == ["n2"]


BAD = {
    "Node n2.status.allocatable.cpu": NodeView([node(), node("n2", allocatable={"cpu": "x"})], ()),
    "Pod team/p.spec.containers[0].resources.requests.cpu": NodeView(
        [node()], assigned([pod(requests={"cpu": "x"})])
    ),
    "Node n1.spec.taints": NodeView([node(taints="all")], ()),
}


@pytest.mark.parametrize(("field", "view"), BAD.items(), ids=BAD.keys())
def test_names_the_field_that_cannot_be_read(field: str, view: NodeView) -> None:
    with pytest.raises(InvalidFieldError) as raised:
        judge_nodes(pod(), view)
    assert raised.value.field == field


NOWHERE = {
    "resources": pod(requests={"cpu": "2"}),
    "a selector": pod(nodeSelector={"zone": "z"}),
    "a selector and resources": pod(requests={"cpu": "9"}, nodeSelector={"zone": "a"}),
    "no such node": requiring(
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}
    ),
}


@pytest.mark.parametrize("one", NOWHERE.values(), ids=NOWHERE.keys())
def test_nodes_whose_pods_are_only_counted_are_judged_alike(one: Object) -> None:
    running = assigned([pod(requests={"cpu": "3"})] * 2, "n1") + assigned(
        [pod(requests={"cpu": "3"})], "n2"
    )
    nodes = [
        node("n1", labels={"zone": "a"}),
        node("n2", labels={"zone": "a"}),
        node("n3", unschedulable=True),
        node("n4", taints=[TAINT]),
    ]
    view = NodeView(nodes, running)
    counted = [replace(info, pods=[]) for info in view.infos]
    verdicts = judge_without_pods(one, counted)
    assert verdicts is not None
    assert verdicts.message() == judge_nodes(one, view).message()
    assert verdicts.message().startswith("0/4 nodes are available: ")
    text = no_node_text(verdicts, "2026-05-04T12:00:00Z")
    assert text == f"no node fits: {verdicts.message()[:-1]}, as of 2026-05-04T12:00:00Z"


UNKNOWN = {
    "a node passes": pod(requests={"cpu": "1"}),
    "a pod affinity may keep it from a node that passes": pod(
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}}
                ]
            }
        }
    ),
    "a host port": pod(requests={"cpu": "9"}, ports=[{"hostPort": 80}]),
    "devices that may stand for a resource": pod(requests={"example.com/gpu": "1"}),
}


EXPRESSION: Final = {"key": "zone", "operator": "In", "values": ["z"]}
LONG: Final = {
    "expressions": requiring({"matchExpressions": [EXPRESSION] * 1000}),
    "terms without any": requiring(*[{}] * 5000),
    "a selector": pod(nodeSelector={f"l{number}": "" for number in range(1000)}),
    "amounts": pod(requests={f"hugepages-{number}Ki": "1Gi" for number in range(1, 2000)}),
}


@pytest.mark.parametrize("one", LONG.values(), ids=LONG.keys())
def test_nothing_is_said_where_much_would_be_compared_with_many_nodes(one: Object) -> None:
    """Conditions of all namespaces wait for the answer."""
    infos = NodeView([node(f"n{number}") for number in range(100)], ()).infos
    assert judge_without_pods(one, infos[:2]) is not None
    assert judge_without_pods(one, infos) is None


@pytest.mark.parametrize("one", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_nothing_is_said_of_nodes_where_that_is_not_enough(one: Object) -> None:
    assert judge_without_pods(one, NodeView([node()], ()).infos) is None
