"""Pods of a PodGroup, which Kubernetes 1.36 and 1.37 have behind feature gates, and reclaim."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Version:
    """How a version of Kubernetes has PodGroups.

    Attributes:
        gate: Is there in no other version.
        gates: Have to be on.
        modes: What `spec.disruptionMode` says: as a whole, and one by one.
    """

    gate: Gate
    gates: tuple[str, ...]
    api: str
    modes: tuple[object, object]


VERSIONS: Final = {
    "1.36": Version(
        Gate("WorkloadAwarePreemption", is_on=False),
        ("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption"),
        "scheduling.k8s.io/v1alpha2",
        ("PodGroup", "Pod"),
    ),
    "1.37": Version(
        Gate("PodGroupPreemptionPolicy", is_on=False),
        ("GenericWorkload",),
        "scheduling.k8s.io/v1beta1",
        ({"all": {}}, {"single": {}}),
    ),
}


@dataclass(frozen=True, slots=True)
class Grouping:
    """A control plane that serves PodGroups."""

    plane: ControlPlane
    version: Version


@pytest.fixture(
    scope="module",
    params=[pytest.param(each, marks=pytest.mark.needs(each.gate)) for each in VERSIONS.values()],
    ids=list(VERSIONS),
)
def grouping(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grouping]:
    """A control plane that serves PodGroups, and the product on it."""
    version: Version = request.param
    directory = tmp_path_factory.mktemp("pod-groups")
    flags = (f"--runtime-config={version.api}=true",)
    gates = dict.fromkeys(version.gates, True)
    with ControlPlane.start(
        directory / "plane", apiserver_flags=flags, feature_gates=gates
    ) as plane:
        plane.add_nodes(2, cpu="50")
        with Product.start(plane, directory / "product", configuration=SETTINGS):
            yield Grouping(plane, version)


def a_pod_group(tenant: Tenant, api: str, **spec: Any) -> Object:
    """Create a PodGroup, and return it as it is stored."""
    raw = {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": {"basic": {}}, **spec},
    }
    path = f"/apis/{api}/namespaces/{tenant.namespace}/podgroups"
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
    "as a whole": (0, ["b2", "b3"]),
    "one by one": (1, ["b3"]),
    "by default": (None, ["b3"]),
}
"""Which of the modes of its version a PodGroup names, and what goes."""


@pytest.mark.parametrize(("mode", "expected"), MODES.values(), ids=MODES)
def test_pods_of_a_pod_group_go_as_it_says(
    grouping: Grouping, mode: int | None, expected: list[str]
) -> None:
    plane, version = grouping.plane, grouping.version
    least = {"a": {"min": {"cpu": 3}}, "b": {"min": {"cpu": 1}}}
    pool = Pool(plane, least, gating="always")
    kept = [name for name in ("b0", "b1", "b2", "b3") if name not in expected]
    owner, borrower = pool.teams["a"], pool.teams["b"]
    try:
        with Kubelets(plane.rest, [owner.namespace, borrower.namespace]):
            named = {} if mode is None else {"disruptionMode": version.modes[mode]}
            made = a_pod_group(borrower, version.api, **named)
            assert made["spec"]["disruptionMode"] == version.modes[1 if mode is None else mode]
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
