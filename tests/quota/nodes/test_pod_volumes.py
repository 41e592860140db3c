"""Volumes of a pod: claims that hold it back everywhere, and nodes that do not reach a volume."""

from __future__ import annotations

import pytest

from tests.quota.nodes.objects import Object, assigned, node, pod
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView

ZONE = "topology.kubernetes.io/zone"
NODES = [node("a1", labels={ZONE: "a"}), node("b1", labels={ZONE: "b"}), node("x1")]
CLASSES: list[Object] = [
    {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {
        "metadata": {"name": "zonal"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}],
    },
    {"metadata": {"name": "at-once"}, "provisioner": "csi.example.com"},
]
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod"
)
OTHER_ZONE = "node(s) had no available volume zone"


def mounting(name: str = "data") -> Object:
    return pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}])


def claim(
    *, phase: str = "Pending", mode: str = "ReadWriteOnce", selected: str = "", **spec: object
) -> dict[str, object]:
    annotations = {"volume.kubernetes.io/selected-node": selected} if selected else {}
    if phase == "Bound":
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    resources = {"requests": {"storage": "10Gi"}}
    return {
        "metadata": {"namespace": "team", "name": "data", "annotations": annotations},
        "spec": {"accessModes": [mode], "resources": resources, **spec},
        "status": {"phase": phase},
    }


def volume(zone: str = "", *, storage: str = "10Gi", **metadata: object) -> Object:
    spec: dict[str, object] = {
        "storageClassName": "local",
        "capacity": {"storage": storage},
        "accessModes": ["ReadWriteOnce"],
    }
    if zone:
        expression = {"key": ZONE, "operator": "In", "values": [zone]}
        terms = [{"matchExpressions": [expression]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {
        "metadata": {"name": "pv", **metadata},
        "spec": spec,
        "status": {"phase": "Available"},
    }


NOWHERE = {
    "a claim that is not there": (None, 'persistentvolumeclaim "data" not found'),
    "a class that does not wait": (
        claim(storageClassName="at-once"),
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "no class": (claim(), "pod has unbound immediate PersistentVolumeClaims"),
    "a lost claim": (
        claim(phase="Lost", volumeName="pv"),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"',
    ),
    "a volume that is gone": (
        claim(phase="Bound", volumeName="gone"),
        'persistentvolume "gone" not found',
    ),
}


@pytest.mark.parametrize(("wanted", "expected"), NOWHERE.values(), ids=NOWHERE.keys())
def test_a_claim_may_hold_the_pod_back_on_all_nodes(wanted: Object | None, expected: str) -> None:
    claims = [wanted] if wanted is not None else []
    view = NodeView(NODES, (), claims, volumes=[], storage_classes=CLASSES)
    verdicts = judge_nodes(mounting(), view)
    assert verdicts.message() == f"0/3 nodes are available: {expected}."
    assert len(verdicts.rejected) == len(NODES)


SOMEWHERE = {
    "a bound volume of one zone": (
        claim(phase="Bound", volumeName="pv"),
        volume("a"),
        {"a1": "", "b1": ELSEWHERE, "x1": ELSEWHERE},
    ),
    "a bound volume with a zone's label": (
        claim(phase="Bound", volumeName="pv"),
        volume(labels={ZONE: "b__c"}),
        {"a1": OTHER_ZONE, "b1": "", "x1": ""},
    ),
    "a volume to bind in one zone": (
        claim(storageClassName="local"),
        volume("a"),
        {"a1": "", "b1": NOTHING_TO_BIND, "x1": NOTHING_TO_BIND},
    ),
    "a volume that is too small": (
        claim(storageClassName="local"),
        volume("a", storage="9Gi"),
        dict.fromkeys(("a1", "b1", "x1"), NOTHING_TO_BIND),
    ),
    "a volume is made in some zones": (
        claim(storageClassName="zonal"),
        volume(),
        {"a1": NOTHING_TO_BIND, "b1": "", "x1": NOTHING_TO_BIND},
    ),
    "a volume is being made for a node": (
        claim(storageClassName="zonal", selected="b1"),
        volume(),
        {"a1": NOTHING_TO_BIND, "b1": "", "x1": NOTHING_TO_BIND},
    ),
}


@pytest.mark.parametrize(("wanted", "there", "expected"), SOMEWHERE.values(), ids=SOMEWHERE.keys())
def test_a_volume_decides_between_nodes(
    wanted: Object, there: Object, expected: dict[str, str]
) -> None:
    view = NodeView(NODES, (), [wanted], [there], CLASSES)
    verdicts = judge_nodes(mounting(), view)
    reasons = {one.node: ", ".join(one.reasons) for one in verdicts.rejected}
    assert reasons | {one.name: "" for one in verdicts.fits} == expected


def test_a_claim_for_one_pod_is_taken_by_the_first() -> None:
    wanted = claim(phase="Bound", volumeName="pv", mode="ReadWriteOncePod")
    view = NodeView(NODES, assigned([mounting()], to="a1"), [wanted], [volume()], CLASSES)
    assert judge_nodes(mounting(), view).counts() == {IN_USE: len(NODES)}


def test_a_claim_that_is_not_there_counts_before_one_that_is_taken() -> None:
    wanted = claim(phase="Bound", volumeName="pv", mode="ReadWriteOncePod")
    view = NodeView(NODES, assigned([mounting()], to="a1"), [wanted], [volume()], CLASSES)
    names = ("data", "absent")
    both = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    verdicts = judge_nodes(pod(volumes=both), view)
    assert verdicts.anywhere == 'persistentvolumeclaim "absent" not found'


def test_an_ephemeral_claim_has_to_be_the_pods_own() -> None:
    wanted = pod(volumes=[{"name": "v", "ephemeral": {}}])
    made = claim(phase="Bound", volumeName="pv") | {
        "metadata": {"namespace": "team", "name": "p-v"}
    }
    messages = [
        judge_nodes(wanted, NodeView(NODES[:1], (), claims, [volume()], CLASSES)).anywhere
        for claims in ([], [made])
    ]
    assert messages == [
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"',
        "PVC team/p-v was not created for pod team/p (pod is not owner)",
    ]


@pytest.mark.parametrize(
    ("view", "unknown"),
    [
        (NodeView(NODES, ()), "persistentvolumeclaims"),
        (NodeView(NODES, (), [claim(phase="Bound", volumeName="pv")]), "persistentvolumes"),
        (NodeView(NODES, (), [claim()], []), "storageclasses"),
    ],
    ids=["claims", "volumes", "classes"],
)
def test_what_is_not_known_refuses_no_node_and_is_named(view: NodeView, unknown: str) -> None:
    verdicts = judge_nodes(mounting(), view)
    assert verdicts.unknown == (unknown,)
    assert len(verdicts.fits) == len(NODES)
