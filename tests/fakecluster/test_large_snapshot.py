"""A list of objects that is only looked at shows what `parse_snapshot` reads of the same file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import a_pod, a_quota
from webhook.fakecluster.manifests import large_snapshot
from webhook.fakecluster.manifests.large_snapshot import PodText, ReadSnapshot, read_for_looking
from webhook.fakecluster.manifests.snapshot import SnapshotError, read_snapshot
from webhook.fakecluster.manifests.snapshot_client import SnapshotClient
from webhook.kube.api import PODS, ListOptions
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView
from webhook.quota.nodes.requested import requested_of

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1", "labels": {"zone": "a"}},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
}
RESIZED = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
REPORTED = {
    "name": "main",
    "containerID": "x",
    "resources": {"requests": {"cpu": "3"}},
    "allocatedResources": {"cpu": "3"},
}
APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        ]
    }
}
SIDECAR = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
PODS_THERE = {
    "plain": a_pod(name="plain", uid="1", node="node-1"),
    "ended": a_pod(name="ended", uid="2", node="node-1", status={"phase": "Succeeded"}),
    "resized": a_pod(
        name="resized",
        uid="3",
        node="node-1",
        status={"conditions": [RESIZED], "containerStatuses": [REPORTED]},
    ),
    "reported": a_pod(
        name="reported", uid="4", node="node-1", status={"containerStatuses": [REPORTED]}
    ),
    "apart": a_pod(name="apart", uid="5", node="node-1", affinity=APART),
    "sidecar": a_pod(name="sidecar", uid="6", node="node-1", initContainers=[SIDECAR]),
    "overhead": a_pod(name="overhead", uid="7", node="node-1", overhead={"cpu": "1"}),
    "pod-level": a_pod(
        name="pod-level", uid="8", node="node-1", resources={"requests": {"cpu": "2"}}
    ),
    "waiting": a_pod(name="waiting", uid="9", metadata={"labels": {"app": "x"}}),
}


def listed(*objects: object, kind: str = "List") -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": kind, "items": objects}).encode()


def looked_at(data: bytes) -> ReadSnapshot:
    return read_for_looking([("cluster.json", data)])


def plainly(data: bytes) -> list[Any]:
    return [one.object for one in read_snapshot([("cluster.json", data)])]


def test_all_objects_are_there_and_the_same() -> None:
    data = listed(*PODS_THERE.values(), NODE, a_quota("q"))
    read = looked_at(data)
    assert len(read.pods) == len(PODS_THERE)
    found = [*map(dict, read.pods), *(one.object for one in read.objects)]
    assert found == plainly(data)


@pytest.mark.parametrize("name", PODS_THERE)
def test_a_pod_requests_the_same(name: str) -> None:
    (brief,) = looked_at(listed(PODS_THERE[name])).pods
    assert requested_of(brief) == requested_of(PODS_THERE[name])


def test_nodes_are_judged_the_same() -> None:
    read = looked_at(listed(*PODS_THERE.values()))
    waiting = PODS_THERE["waiting"]
    briefly = judge_nodes(waiting, NodeView([NODE], read.pods, namespaces=()))
    assert briefly == judge_nodes(waiting, NodeView([NODE], [*PODS_THERE.values()], namespaces=()))
    assert briefly.rejected[0].reasons  # the pod that keeps others apart refuses it


def test_a_client_lists_pods_of_both_kinds() -> None:
    placeless = {**a_pod(name="placeless", uid="10")}
    placeless["metadata"] = {"name": "placeless"}  # its namespace is the default one
    read = looked_at(listed(*PODS_THERE.values(), placeless))
    client = SnapshotClient(read.objects, read.extent, read.pods)
    there = {raw["metadata"]["name"] for raw in client.list(PODS).items}  # type: ignore[index]
    assert there == {*PODS_THERE, "placeless"}
    assigned = client.list(PODS, ListOptions(field_selector="spec.nodeName!=")).items
    assert all(isinstance(raw, PodText) for raw in assigned)
    assert len(assigned) == len(PODS_THERE) - 1
    paged = [one.object for page in client.pages(PODS) for one in page.items]
    assert paged == [dict(raw) for raw in client.list(PODS).items]


REPEATED = listed(PODS_THERE["plain"]).replace(b'"uid": "1"', b'"uid": "1", "uid": "2"')
ESCAPED = REPEATED.replace(b'"uid": "2"', b'"uid": "\\u003a"')
WRONG = {
    "a repeated key": REPEATED,
    "a repeated key beside an escaped colon": ESCAPED,
    "a repeated key beside the items": REPEATED.replace(b'"uid": "1", ', b"").replace(
        b'"kind": "List"', b'"kind": "List", "kind": "List"', 1
    ),
    "two pods of one name": listed(PODS_THERE["plain"], PODS_THERE["plain"]),
    "a name that is none": listed(a_pod(name="Web_1", uid="1")),
    "no text but a number": listed(a_pod(name="web", uid="1", nodeName=3)),
    "no object": listed(PODS_THERE["plain"], 7),
    "cut off": listed(PODS_THERE["plain"])[:-40],
    "a newer format": json.dumps(
        {
            "apiVersion": "deferredquota.io/v1alpha1",
            "kind": "SnapshotList",
            "format": 9,
            "items": [PODS_THERE["plain"]],
        }
    ).encode(),
}


@pytest.mark.parametrize("large", [1 << 20, 0], ids=["in one process", "in two"])
@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_as_always(
    monkeypatch: pytest.MonkeyPatch, data: bytes, large: int
) -> None:
    monkeypatch.setattr(large_snapshot, "LARGE_BYTES", large)
    with pytest.raises(SnapshotError) as expected:
        read_snapshot([("cluster.json", data)])
    with pytest.raises(SnapshotError) as found:
        looked_at(data)
    assert str(found.value) == str(expected.value)


def test_a_list_in_a_list_and_yaml_are_read_in_full() -> None:
    inner = {"apiVersion": "v1", "kind": "List", "items": [PODS_THERE["plain"]]}
    for data in (listed(inner), b"# a list\n" + listed(PODS_THERE["plain"])):
        read = looked_at(data)
        assert not read.pods
        assert [one.object for one in read.objects] == [PODS_THERE["plain"]]


def test_a_number_that_kubectl_sends_as_another_is_read_as_always() -> None:
    data = listed(a_pod(name="web", uid="1", priority=1e6))
    read = looked_at(data)
    pods = SnapshotClient(read.objects, read.extent, read.pods)
    (page,) = pods.pages(PODS)
    assert [one.object for one in page.items] == plainly(data)
    assert b'"priority":1000000}' in page.items[0].data
