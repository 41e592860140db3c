"""Pods of a PodGroup, which Kubernetes 1.36 has behind feature gates, and reclaim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.controlplane.features import Gate
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.elastic.kubelets import Kubelets
from tests.e2e.cluster.elastic.pools import Pool
from tests.e2e.cluster.objects import Object
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

SETTINGS: Final = {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0}}}
GATE: Final = Gate("WorkloadAwarePreemption", is_on=False)
GATES: Final = dict.fromkeys(("GenericWorkload", "GangScheduling", GATE.name), True)
API: Final = "scheduling.k8s.io/v1alpha2"

pytestmark = pytest.mark.needs(GATE)


@pytest.fixture(scope="module")
def grouping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that serves PodGroups, and the product on it."""
    directory = tmp_path_factory.mktemp("pod-groups")
    flags = (f"--runtime-config={API}=true",)
    with ControlPlane.start(
        directory / "plane", apiserver_flags=flags, feature_gates=GATES
    ) as plane:
        plane.add_nodes(2, cpu="50")
        with Product.start(plane, directory / "product", configuration=SETTINGS):
            yield plane


def a_pod_group(tenant: Tenant, **spec: Any) -> Object:
    """Create a PodGroup, and return it as it is stored."""
    raw = {
        "apiVersion": API,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"basic": {}}, **spec},
    }
    path = f"/apis/{API}/namespaces/{tenant.namespace}/podgroups"
    answer = tenant.api.create(path, raw)
    assert answer.ok, str(answer)
    return answer.body


def run(tenant: Tenant, name: str, **fields: Any) -> None:
    """Create a pod, and wait until it has a node."""
    tenant.pod(name, "1", schedulerName=REAL, **fields)
    eventually(lambda: tenant.node_of(name), f"{name} runs")


def evicted(pool: Pool, team: str) -> list[str]:
    """Return the pods of a team about which an event says that they were evicted."""
    path = f"/api/v1/namespaces/{pool.teams[team].namespace}/events"
    listed = pool.api.get(path).body["items"]
    names = [one["involvedObject"]["name"] for one in listed if one["reason"] == "Reclaimed"]
    return sorted(names)


def staying(pool: Pool, team: str) -> list[str]:
    """Return the pods of a team that are not being deleted."""
    listed = pool.api.get(objects.pods(pool.teams[team].namespace)).body["items"]
    found = [one["metadata"] for one in listed]
    return sorted(one["name"] for one in found if "deletionTimestamp" not in one)


MODES: Final = {
    "as a whole": ({"disruptionMode": "PodGroup"}, ["b2", "b3"]),
    "one by one": ({"disruptionMode": "Pod"}, ["b3"]),
    "by default": ({}, ["b3"]),
}


@pytest.mark.parametrize(("spec", "expected"), MODES.values(), ids=MODES)
def test_pods_of_a_pod_group_go_as_it_says(
    grouping: ControlPlane, spec: Object, expected: list[str]
) -> None:
    least = {"a": {"min": {"cpu": 3}}, "b": {"min": {"cpu": 1}}}
    pool = Pool(grouping, least, gating="always")
    kept = [name for name in ("b0", "b1", "b2", "b3") if name not in expected]
    owner, borrower = pool.teams["a"], pool.teams["b"]
    try:
        with Kubelets(grouping.rest, [owner.namespace, borrower.namespace]):
            made = a_pod_group(borrower, **spec)
            assert made["spec"]["disruptionMode"] == spec.get("disruptionMode", "Pod")
            for name in ("b0", "b1"):
                run(borrower, name)
            for name in ("b2", "b3"):
                run(borrower, name, schedulingGroup={"podGroupName": "train"})
            stored = borrower.seen("b3").body["spec"]
            assert stored["schedulingGroup"] == {"podGroupName": "train"}
            run(owner, "a0")  # all that goes for it is chosen by then
            becomes(lambda: staying(pool, "b"), kept, "what stays")
            becomes(lambda: evicted(pool, "b"), expected, "what was evicted")
    finally:
        pool.close()
