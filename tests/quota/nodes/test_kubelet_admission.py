"""Kubelets: which pods they do not admit, and the reasons that they give.

Source: kubernetes v1.36, pkg/kubelet/lifecycle/predicate_test.go TestGeneralPredicates,
TestRemoveMissingExtendedResources, TestRejectPodAdmissionBasedOnOSField.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_container, a_container_status, a_pod
from tests.quota.nodes.objects import node, pod
from tests.quota.pod_strategies import damaged, json_values, places, pods
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.nodes.kubelet_admission import (
    KubeletAdmission,
    KubeletPod,
    KubeletRejection,
    NodeLoad,
    as_placed,
    read_kept_pod,
    read_kubelet_pod,
    read_node,
)
from webhook.quota.nodes.requested import Amounts, kept_amounts

Object = Mapping[str, object]

NOTHING = NodeLoad({})
MAINTENANCE = {"key": "maintenance", "value": "now", "effect": "NoExecute"}
PORT = [{"hostPort": 8080, "containerPort": 80}]
ZONE: Any = {"nodeSelector": {"zone": "a"}}
MISMATCH = "NodeAffinity (the node does not match the pod's node selector or affinity)"
WINDOWS = {"status": {"allocatable": {"pods": "1"}, "nodeInfo": {"operatingSystem": "windows"}}}

CASES: dict[str, tuple[Object, Object, NodeLoad, tuple[str, ...]]] = {
    "all of the node": (pod(requests={"cpu": "4", "memory": "8Gi"}), node(), NOTHING, ()),
    "a little more": (
        pod(requests={"cpu": "4001m"}),
        node(),
        NOTHING,
        ("OutOfcpu (requested: 4001m, used: 0, allocatable: 4)",),
    ),
    "what others leave": (
        pod(requests={"cpu": "1", "memory": "1Gi"}),
        node(),
        NodeLoad({"cpu": 3500, "memory": 2**33 - 1, "pods": 2}),
        (
            "OutOfcpu (requested: 1, used: 3500m, allocatable: 4)",
            "OutOfmemory (requested: 1Gi, used: 8589934591, allocatable: 8Gi)",
        ),
    ),
    "no requests on a full node": (pod(), node(), NodeLoad({"cpu": 9000}), ()),
    "one pod too many": (
        pod(),
        node(),
        NodeLoad({"pods": 10}),
        ("OutOfpods (requested: 1, used: 10, allocatable: 10)",),
    ),
    "a resource that the node has": (
        pod(requests={"nvidia.com/gpu": "2"}),
        node(allocatable={"nvidia.com/gpu": "1"}),
        NOTHING,
        ("OutOfnvidia.com/gpu (requested: 2, used: 0, allocatable: 1)",),
    ),
    "a resource of the cluster": (pod(requests={"example.com/seat": "2"}), node(), NOTHING, ()),
    "a resource of which the node has none, and a DeviceClass some": (
        pod(requests={"nvidia.com/gpu": "2"}),
        node(allocatable={"nvidia.com/gpu": "0"}),
        NOTHING,
        (),
    ),
    "huge pages that the node lacks": (
        pod(requests={"hugepages-2Mi": "2Mi"}),
        node(),
        NOTHING,
        ("OutOfhugepages-2Mi (requested: 2Mi, used: 0, allocatable: 0)",),
    ),
    "a node that reports nothing": (
        pod(requests={"cpu": "9"}),
        {"metadata": {"name": "n1"}},
        NOTHING,
        (),
    ),
    "a critical pod, for which others go": (
        pod(requests={"cpu": "9"}, priority=2 * 10**9),
        node(),
        NOTHING,
        (),
    ),
    "a critical pod on the wrong node": (
        pod(requests={"cpu": "9"}, priority=2 * 10**9, **ZONE),
        node(),
        NOTHING,
        (MISMATCH,),
    ),
    "another zone": (pod(**ZONE), node(labels={"zone": "b"}), NOTHING, (MISMATCH,)),
    "its zone": (pod(**ZONE), node(labels={"zone": "a"}), NOTHING, ()),
    "a cordoned node": (pod(), node(unschedulable=True), NOTHING, ()),
    "a taint for schedulers": (
        pod(),
        node(taints=[{**MAINTENANCE, "effect": "NoSchedule"}]),
        NOTHING,
        (),
    ),
    "a taint that evicts": (
        pod(),
        node(taints=[MAINTENANCE]),
        NOTHING,
        ("TaintToleration (not tolerated: maintenance=now:NoExecute)",),
    ),
    "a taint that is tolerated": (
        pod(tolerations=[{"operator": "Exists"}]),
        node(taints=[MAINTENANCE]),
        NOTHING,
        (),
    ),
    "a port that is taken": (
        pod(ports=PORT),
        node(),
        NodeLoad({}, read_kubelet_pod(pod(ports=PORT)).ports),
        ("NodePorts (taken: 8080)",),
    ),
    "another port": (
        pod(ports=PORT),
        node(),
        NodeLoad({}, read_kubelet_pod(pod(ports=[{"hostPort": 8081}])).ports),
        (),
    ),
    "another operating system": (
        pod(os={"name": "linux"}),
        {**node(), **WINDOWS},
        NOTHING,
        ("PodOSNotSupported (the pod is for linux, the node has windows)",),
    ),
    "everything at once": (
        pod(requests={"cpu": "5"}, ports=PORT, **ZONE),
        node(taints=[MAINTENANCE]),
        NodeLoad({}, read_kubelet_pod(pod(ports=PORT)).ports),
        (
            "OutOfcpu (requested: 5, used: 0, allocatable: 4)",
            MISMATCH,
            "NodePorts (taken: 8080)",
            "TaintToleration (not tolerated: maintenance=now:NoExecute)",
        ),
    ),
}


def rejections(raw: Object, to: Object, load: NodeLoad) -> tuple[KubeletRejection, ...]:
    return KubeletAdmission(read_kubelet_pod(raw), read_node(to)).rejections(load)


@pytest.mark.parametrize(("raw", "to", "load", "expected"), CASES.values(), ids=CASES.keys())
def test_pods_are_admitted_as_the_kubelet_admits_them(
    raw: Object, to: Object, load: NodeLoad, expected: tuple[str, ...]
) -> None:
    assert tuple(one.text for one in rejections(raw, to, load)) == expected


HELD: dict[str, tuple[Object, Amounts]] = {
    "nothing is reported": (
        a_pod(requests={"cpu": "2"}, node="n1"),
        {"cpu": 2000, "pods": 1},
    ),
    "a growth that the kubelet has not taken": (
        a_pod(
            a_container(requests={"cpu": "4"}),
            node="n1",
            status={
                "containerStatuses": [
                    a_container_status("main", requests={"cpu": "1"}, allocated={"cpu": "1"})
                ]
            },
        ),
        {"cpu": 1000, "pods": 1},
    ),
    "a shrinkage that is not in force": (
        a_pod(
            a_container(requests={"cpu": "1"}),
            node="n1",
            status={
                "containerStatuses": [
                    a_container_status("main", requests={"cpu": "4"}, allocated={"cpu": "1"})
                ]
            },
        ),
        {"cpu": 4000, "pods": 1},
    ),
    "the overhead, which is in what is set aside for a pod as a whole": (
        a_pod(
            node="n1",
            overhead={"cpu": "250m"},
            resources={"requests": {"cpu": "1"}},
            status={
                "resources": {"requests": {"cpu": "1250m"}},
                "allocatedResources": {"cpu": "1250m"},
            },
        ),
        {"cpu": 1250, "pods": 1},
    ),
}


@pytest.mark.parametrize(("raw", "expected"), HELD.values(), ids=HELD.keys())
def test_a_pod_on_a_node_holds_what_its_kubelet_has_set_aside(
    raw: Object, expected: Amounts
) -> None:
    assert read_kubelet_pod(raw).amounts == expected


MANY_PORTS: Final = [{"hostPort": port, "containerPort": port} for port in range(1, 16_001)]


def test_very_many_ports_are_not_compared_one_by_one() -> None:
    """A quarter of a billion comparisons would take minutes, in which no other bind is judged."""
    udp = [{**one, "protocol": "UDP"} for one in MANY_PORTS]
    load = NodeLoad({}, read_kubelet_pod(pod(ports=udp)).ports)
    assert rejections(pod(ports=MANY_PORTS), node(), load) == ()
    load = NodeLoad({}, read_kubelet_pod(pod(ports=MANY_PORTS)).ports)
    (taken,) = rejections(pod(ports=MANY_PORTS), node(), load)
    assert taken.detail == f"taken: {', '.join(map(str, range(1, 17)))}, ..."


def test_of_very_many_resources_that_are_missing_some_are_named() -> None:
    pages = {f"hugepages-{number}Ki": "1Gi" for number in range(1, 2000)}
    found = rejections(pod(requests={**pages, "cpu": "5"}), node(), NOTHING)
    assert len(found) == 17
    assert "OutOfcpu" in {one.reason for one in found}


def test_a_pod_counts_for_its_node_with_some_of_its_resources_and_ports() -> None:
    many = {f"example.com/r{number}": "1" for number in range(1000)}
    placed = as_placed(read_kubelet_pod(pod(requests=many, ports=MANY_PORTS, **ZONE)))
    assert (len(placed.amounts), len(placed.ports), placed.constraints) == (64, 256, None)


def test_long_constraints_are_not_kept() -> None:
    long = pod(nodeSelector={f"label-{number}": "x" * 60 for number in range(200)})
    assert read_kept_pod(long).constraints is None
    assert read_kubelet_pod(long).constraints is not None
    assert read_kept_pod(pod(**ZONE)).constraints is not None


def test_of_a_name_that_no_node_has_a_part_is_kept() -> None:
    assert len(read_kept_pod(pod(nodeName="n" * 100_000)).node) == 254


def test_of_very_many_resources_and_ports_some_are_kept() -> None:
    many = pod(
        requests={f"example.com/r{number}": "1" for number in range(1000)},
        ports=[{"hostPort": number} for number in range(1, 1001)],
    )
    kept = read_kept_pod(many)
    assert (len(kept.amounts), len(kept.ports)) == (64, 256)


def test_amounts_of_usual_pods_are_shared_and_not_those_of_very_many_or_long_names() -> None:
    """What is shared outlives its pods, and their creator chooses how much that is."""
    usual = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert placed_amounts(usual) is placed_amounts(usual)
    for many in (
        {f"example.com/r{number}": "1" for number in range(64)},
        {f"{'a' * 240}/{letter * 40}": "1" for letter in "ab"},
    ):
        assert placed_amounts(many) == placed_amounts(many)
        assert placed_amounts(many) is not placed_amounts(many)


def placed_amounts(requests: Mapping[str, str]) -> Amounts:
    return as_placed(read_kubelet_pod(pod(requests=requests))).amounts


PLACED: dict[str, st.SearchStrategy[object]] = {
    "nodeName": st.sampled_from(["", "node-1"]),
    "priority": st.sampled_from([0, 2 * 10**9]),
    "hostNetwork": st.booleans(),
    "nodeSelector": st.sampled_from([{}, {"zone": "a"}]),
    "tolerations": st.sampled_from([[], [{"operator": "Exists"}]]),
    "os": st.just({"name": "linux"}),
    "affinity": st.just(
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
                    ]
                }
            }
        }
    ),
}


@st.composite
def placed_pods(draw: st.DrawFn) -> Any:
    """Pods that are bound or not, with what a node has to meet."""
    raw: Any = draw(pods())
    spec = {**raw["spec"], **draw(st.fixed_dictionaries({}, optional=PLACED))}
    spec["containers"][0]["ports"] = draw(st.sampled_from([[], PORT, [{"containerPort": 1}]]))
    phase = draw(st.sampled_from(["Pending", "Failed"]))
    return {**raw, "spec": spec, "status": {**raw["status"], "phase": phase}}


def outcome(read: Callable[[Object], KubeletPod], raw: Object) -> KubeletPod | str:
    try:
        pod = read(raw)
    except InvalidFieldError as err:
        return str(err)
    return replace(pod, amounts=kept_amounts(pod.amounts))


@given(raw=placed_pods(), uid=st.sampled_from(["uid-1", "uid-2"]))
def test_a_pod_that_is_kept_is_read_as_it_is(raw: Any, uid: str) -> None:
    raw["metadata"]["uid"] = uid
    expected = outcome(read_kubelet_pod, raw)
    assert isinstance(expected, KubeletPod)
    assert outcome(read_kept_pod, raw) == expected
    assert outcome(read_kept_pod, raw) == expected  # as one of a template that is known


@given(raw=placed_pods(), data=st.data())
def test_a_damaged_pod_is_refused_with_its_field(raw: Any, data: st.DataObject) -> None:
    part = data.draw(st.sampled_from(["spec", "status"]))
    path = data.draw(st.sampled_from(list(places(raw[part], (part,)))))
    broken: Any = damaged(raw, path, data.draw(json_values(of_yaml=False)))
    expected = outcome(read_kubelet_pod, broken)
    found = outcome(read_kept_pod, broken)
    # fields that decide nothing here are not looked at
    assert found == expected or (isinstance(expected, str) and isinstance(found, KubeletPod))
