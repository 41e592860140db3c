"""What doctor says of other quota managers, and of the scheduling gates of others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.operations.clocks import telling_time
from tests.operations.healthy import NOW, examined, healthy, ids, the
from tests.operations.scenes import NAMESPACE, a_gated_pod, a_namespace, load
from webhook.fakecluster.storage import FakeCluster
from webhook.operations.doctor.runner import Examination
from webhook.operations.findings import Finding

GATE = "example.com/wait"


def a_definition(group: str, kind: str, scope: str = "Namespaced", **version: Any) -> Any:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind},
            "versions": [{"name": "v1", "served": False}, {"name": "v1alpha1", "served": True}],
            **version,
        },
    }


def an_object(group: str, kind: str, namespace: str = "", **fields: Any) -> Any:
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": kind,
        "metadata": {"name": "limit", **place},
        **fields,
    }


def managed(scope: str, found: Any, **version: Any) -> FakeCluster:
    cluster = healthy()
    group = found["apiVersion"].partition("/")[0]
    load(cluster, a_definition(group, found["kind"], scope, **version), found)
    return cluster


NAMESPACED = [
    ("aaq.kubevirt.io", "ApplicationAwareResourceQuota", "Application Aware Quota"),
    ("scheduling.x-k8s.io", "ElasticQuota", "the scheduler's plugin CapacityScheduling"),
    ("kueue.x-k8s.io", "LocalQueue", "Kueue"),
]


@pytest.mark.parametrize(("group", "kind", "manager"), NAMESPACED)
def test_an_object_of_another_manager_is_named(group: str, kind: str, manager: str) -> None:
    found = the(examined(managed("Namespaced", an_object(group, kind, NAMESPACE))), "managers.two")
    assert (str(found.subject), found.severity) == (f"Namespace {NAMESPACE}", "warn")
    assert found.message.startswith(f"{manager} limits its pods too, by {kind} {NAMESPACE}/limit")


@pytest.mark.parametrize(("group", "kind", "manager"), NAMESPACED)
def test_one_in_a_namespace_that_has_not_opted_in_is_not(
    group: str, kind: str, manager: str
) -> None:
    cluster = managed("Namespaced", an_object(group, kind, "other"))
    load(cluster, a_namespace("other", mode=""))
    found = examined(cluster)
    assert manager not in str(found.findings)
    assert "managers" in found.checked


def test_a_cluster_quota_is_about_the_namespaces_in_its_status() -> None:
    status = {"namespaces": [{"namespace": NAMESPACE}, {"namespace": "other"}]}
    kind = "ApplicationAwareClusterResourceQuota"
    one = an_object("aaq.kubevirt.io", kind, status=status)
    found = the(examined(managed("Cluster", one)), "managers.two")
    assert f"by {kind} limit:" in found.message


def test_a_definition_that_serves_nothing_is_not_asked() -> None:
    one = an_object("aaq.kubevirt.io", "ApplicationAwareResourceQuota", NAMESPACE)
    found = examined(managed("Namespaced", one, versions=[{"name": "v1alpha1", "served": False}]))
    assert "managers.two" not in ids(found)


# -- gates ---------------------------------------------------------------------------------


def with_pods(*gates: str, age: str = "1970-01-01T00:00:00Z") -> FakeCluster:
    cluster = healthy()
    for name in ("a", "b"):
        pod: Any = a_gated_pod(name, *gates)
        pod["metadata"]["creationTimestamp"] = age
        load(cluster, pod)
    return cluster


def of_gates(found: Examination) -> list[Finding]:
    return [one for one in found.findings if one.id == "gates.others"]


def test_pods_that_wait_long_behind_the_gate_of_another_are_named() -> None:
    cluster = with_pods("deferredquota.io/quota", GATE)
    found = the(examined(telling_time(cluster, NOW)), "gates.others")
    assert found.severity == "warn"
    assert found.message.startswith(
        f"2 pods wait for more than 5 minutes behind the scheduling gate {GATE}"
    )
    assert found.details == ("a", "b")


@pytest.mark.parametrize(
    ("gate", "manager"),
    [("kueue.x-k8s.io/admission", "Kueue"), ("ApplicationAwareQuotaGate", "Application Aware")],
)
def test_a_queue_is_there_to_wait_in(gate: str, manager: str) -> None:
    found = the(examined(with_pods(gate)), "gates.others")
    assert found.severity == "info"
    assert manager in found.message


def test_a_pod_that_has_only_just_come_is_not() -> None:
    cluster = with_pods(GATE, age=f"{NOW - timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}")
    assert not of_gates(examined(telling_time(cluster, NOW)))
    assert of_gates(examined(telling_time(cluster, NOW + timedelta(seconds=1))))


def test_without_a_clock_all_of_them_are_named() -> None:
    assert "minutes" not in the(examined(with_pods(GATE)), "gates.others").message


def test_our_own_gate_is_none_of_others() -> None:
    assert not of_gates(examined(with_pods()))


def test_a_snapshot_has_no_clock() -> None:
    cluster = with_pods(GATE, age="2999-01-01T00:00:00Z")
    (found,) = of_gates(examined(cluster, lambda: None, is_offline=True))
    assert "minutes" not in found.message


def test_gates_without_number_are_one_finding_of_each_manager() -> None:
    many = [f"example.com/{index:03}" for index in range(200)]
    warned, told = of_gates(examined(with_pods(*many, "kueue.x-k8s.io/admission")))
    assert warned.message.startswith(
        "2 pods wait behind the scheduling gates example.com/000, example.com/001, example.com/002"
        " and 197 more, which another controller has to remove"
    )
    assert warned.details == ("a", "b")
    assert (warned.severity, told.severity) == ("warn", "info")
