"""What doctor says of nodes on which more is requested than they have."""

from __future__ import annotations

from typing import Any

from tests.operations.healthy import a_guarded_pod, a_node, examined, healthy, ids, remove, the
from tests.operations.scenes import a_cluster, a_namespace, load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import NODES


def with_node(**allocatable: str) -> FakeCluster:
    """A cluster whose only node has one pod that requests one core."""
    cluster = healthy()
    remove(cluster, NODES, "node-1")
    load(cluster, a_node(**allocatable))
    return cluster


def test_a_node_with_more_requested_than_allocatable_is_named() -> None:
    cluster = with_node(cpu="1500m", pods="1", memory="1Gi")
    load(cluster, a_guarded_pod("web-2"))
    found = the(examined(cluster), "node.overcommitted")
    assert (str(found.subject), found.severity) == ("Node node-1", "warn")
    assert found.message.endswith("cpu 2 of 1500m, pods 2 of 1")


def test_a_node_that_is_just_full_is_not() -> None:
    assert "node.overcommitted" not in ids(examined(with_node(cpu="1", pods="1")))


def test_pods_that_have_ended_do_not_count() -> None:
    cluster = with_node(cpu="1")
    load(cluster, {**a_guarded_pod("web-2"), "status": {"phase": "Succeeded"}})
    assert "node.overcommitted" not in ids(examined(cluster))


def test_pods_of_other_namespaces_count() -> None:
    cluster = with_node(cpu="1")
    pod: Any = a_guarded_pod("db")
    pod["metadata"]["namespace"] = "other"
    load(cluster, a_namespace("other", mode=""), pod)
    assert "cpu 2 of 1" in the(examined(cluster), "node.overcommitted").message


def test_a_resource_that_the_node_does_not_report_is_not_judged() -> None:
    """It may be allocated in another way, or the node may not have reported yet."""
    assert "node.overcommitted" not in ids(examined(with_node(memory="1Gi")))


def test_nothing_is_read_where_no_namespace_opted_in_or_only_one_is_asked_about() -> None:
    full = with_node(cpu="100m")
    assert "node.overcommitted" in ids(examined(full))
    assert "node.overcommitted" not in ids(examined(full, namespaces=("team-a",)))
    empty = a_cluster(a_namespace("default", mode=""), a_node(cpu="100m"), a_guarded_pod())
    assert "node.overcommitted" not in ids(examined(empty))


def a_pool(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": "epool.default", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "namespaceSelector": {},
            "hard": {key.replace("__", "/").replace("_", "."): one for key, one in hard.items()},
        },
    }


def test_a_pool_that_guarantees_more_than_all_nodes_have_is_named() -> None:
    cluster = with_node(
        cpu="2", memory="1Gi", **{"nvidia.com/gpu": "1", "nvidia.com/mig-1g.8gb": "1"}
    )
    load(cluster, a_node("node-2", cpu="1500m"))
    pool = a_pool(requests_cpu="4")
    pool["spec"]["hard"]["nos.nebuly.com/gpu-memory.16gb"] = "25"
    load(cluster, pool)
    found = the(examined(cluster), "elastic.pool-above-nodes")
    assert str(found.subject) == "ClusterDeferredQuota epool.default"
    assert found.message == (
        "its elastic quotas guarantee nos.nebuly.com/gpu-memory.16gb=25,requests.cpu=4 together,"
        " and all nodes have nos.nebuly.com/gpu-memory.16gb=24,requests.cpu=3500m: not each of"
        " them can have its min"
    )


def test_a_pool_within_what_the_nodes_have_is_not() -> None:
    cluster = with_node(cpu="2", memory="1Gi")
    load(cluster, a_pool(requests_cpu="2", requests_memory="1Gi"))
    assert "elastic.pool-above-nodes" not in ids(examined(cluster))
