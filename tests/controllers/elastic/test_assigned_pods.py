"""What is kept of the assigned pods of all namespaces."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from tests.builders import a_container, a_pod
from webhook.controllers.elastic.assigned_pods import read_assigned_pod
from webhook.kube.api import Object
from webhook.quota.objects.compact import compact_pod

CPU: Final = {"cpu": "1"}
PODS: Final = 24
ROOM: Final = 32 * 1024
NAMES: Final = 3000


def many_resources(number: int, amount: str) -> Object:
    scalars = {f"example.com/pod-{number}-{name}": amount for name in range(NAMES)}
    return a_pod(
        name=f"p{number}",
        uid=f"u{number}",
        node="node-1",
        containers=[a_container(requests={"cpu": "1", **scalars}, limits=scalars)],
    )


def many_containers(number: int) -> Object:
    containers = [
        a_container(f"pod-{number}-container-{name}", requests={"cpu": "1m"})
        for name in range(NAMES)
    ]
    return a_pod(name=f"p{number}", uid=f"u{number}", node="node-1", containers=containers)


LARGE: Final[dict[str, Callable[[int], Object]]] = {
    "resources of which it asks for nothing": lambda number: many_resources(number, "0"),
    "resources": lambda number: many_resources(number, "1"),
    "containers": many_containers,
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_what_is_kept_of_a_pod_does_not_grow_with_the_pod(make: Callable[[int], Object]) -> None:
    read_assigned_pod(make(0))
    raws = [make(number) for number in range(1, PODS)]
    gc.collect()
    tracemalloc.start()
    try:
        kept = [read_assigned_pod(raw) for raw in raws]
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]  # what was remembered of them included
    finally:
        tracemalloc.stop()
    assert taken / len(kept) < ROOM


def test_a_pod_that_another_cache_keeps_is_kept_once() -> None:
    raw = a_pod(name="p", uid="u", node="node-1", containers=[a_container(requests=CPU)])
    there = {"team-a/p": compact_pod(raw)}
    assert read_assigned_pod(raw, there.get).pod is there["team-a/p"]


def test_an_older_version_of_it_is_not_taken() -> None:
    raw = a_pod(name="p", uid="u", node="node-1", containers=[a_container(requests=CPU)])
    older = a_pod(name="p", uid="u", node="", containers=[a_container(requests=CPU)])
    assert read_assigned_pod(raw, lambda _key: compact_pod(older)).pod.node_name == "node-1"


def test_what_every_pod_takes_of_a_node_is_kept() -> None:
    amounts = read_assigned_pod(many_resources(0, "1")).requested.amounts
    assert {name: amounts[name] for name in ("cpu", "pods")} == {"cpu": 1000, "pods": 1}
    assert len(amounts) == 64


def test_a_pod_that_is_created_with_a_node_is_bound_then() -> None:
    """Without a kubelet no condition says when; it would be protected for ever."""
    raw = a_pod(node="node-1", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    pod, now = read_assigned_pod(raw), datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
    assert pod.is_young(601, now)
    assert not pod.is_young(599, now)


def test_pods_of_a_pod_group_share_its_name() -> None:
    """It has up to 253 characters, and tens of thousands of pods may be in PodGroups."""
    names = (".".join(("train", "a" * length)) for length in (40, 40))
    one, other = (
        read_assigned_pod(a_pod(node="node-1", schedulingGroup={"podGroupName": name})).pod_group
        for name in names
    )
    assert one.startswith("train.a")
    assert one is other
    assert read_assigned_pod(a_pod(node="node-1")).pod_group == ""
