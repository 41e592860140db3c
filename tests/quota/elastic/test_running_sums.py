"""What is kept up to date while pods are taken and put back is what a plain sum would be."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_pod
from tests.counting import calls_of
from tests.quota.elastic.pools import Cluster, a_quota
from webhook.quota.elastic.balance import Balance
from webhook.quota.elastic.beneficiaries import usage_of_pods
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.disruption_budgets import (
    BudgetWalk,
    NamespaceBudgets,
    protect,
    read_budgets,
)
from webhook.quota.elastic.victims import AnyRoom, Circumstances
from webhook.quota.nodes.node_room import NodeRoom, PlacedPod
from webhook.quota.nodes.requested import Requested

RESOURCES = ("cpu", "memory")
QUOTAS = (
    a_quota("a", {"cpu": 6}, {"cpu": 9}),
    a_quota("b", {"cpu": 2, "memory": 3}, lendable={"cpu": 1}),
    a_quota("c", {"memory": 4}, {"memory": 9, "pods": 3}),
)
NAMES = {"a": ("cpu",), "b": RESOURCES, "c": ("memory",)}
pods_of = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4), st.integers(0, 4), st.sampled_from("xyz")),
    max_size=12,
)
steps_of = st.lists(st.integers(0, 11), max_size=30)


def _cluster(given_pods: Sequence[tuple[str, int, int, str]]) -> tuple[Cluster, list[ElasticPod]]:
    cluster, made = Cluster(*QUOTAS), []
    for namespace, cpu, memory, node in given_pods:
        amounts = {"cpu": cpu, "memory": memory}
        pod = cluster.pod(namespace, {name: amounts[name] for name in NAMES[namespace]}, node=node)
        cluster.pods[cluster.pool.quota_of[namespace]].append(pod)
        made.append(pod)
    return cluster, made


def _left(cluster: Cluster, gone: set[str]) -> dict[str, list[ElasticPod]]:
    return {key: [one for one in pods if one.uid not in gone] for key, pods in cluster.pods.items()}


@given(pods_of, steps_of, st.integers(0, 8), st.booleans())
def test_a_balance(
    given_pods: list[tuple[str, int, int, str]], steps: list[int], asked: int, is_copied: bool
) -> None:
    cluster, pods = _cluster(given_pods)
    queued = cluster.queued("b", {"cpu": asked, "memory": 1})
    balance, gone = Balance(cluster.pool, queued, usage_of_pods(cluster.pods)), set[str]()
    for step in steps:
        if step >= len(pods):
            balance = balance.copy() if is_copied else balance
            continue
        pod = pods[step]
        (balance.put_back if pod.uid in gone else balance.take)([pod])
        gone ^= {pod.uid}
        plain = Balance(cluster.pool, queued, usage_of_pods(_left(cluster, gone)))
        assert balance.shortage == plain.shortage
        for name in ("cpu", "memory"):
            assert balance.claim(name) is plain.claim(name)
            whole = cluster.pool.guaranteed(name, balance.usage)
            assert {key: balance.guaranteed(key, name) for key in whole} == whole
            assert balance.shortage.beyond_pool.count(name) == (
                cluster.pool.free(name, balance.usage) < 0
            )


def _room(pods: Sequence[ElasticPod], cores: int) -> NodeRoom:
    nodes = [
        {
            "metadata": {"name": name},
            "spec": {},
            "status": {"allocatable": {"cpu": "9", "pods": "5"}},
        }
        for name in "xyz"
    ]
    placed = [
        PlacedPod(pod.uid, pod.node, Requested({"cpu": number % 5 * 1000, "pods": 1}, 0, 0))
        for number, pod in enumerate(pods)
    ]
    return NodeRoom(a_pod(requests={"cpu": str(cores)}), nodes, placed)


@given(pods_of, steps_of, st.integers(1, 10))
def test_room_on_nodes(
    given_pods: list[tuple[str, int, int, str]], steps: list[int], cores: int
) -> None:
    _, pods = _cluster(given_pods)
    room = _room(pods, cores)
    after, gone = room.after(()), set[str]()
    for step in (one for one in steps if one < len(pods)):
        pod = pods[step]
        (after.put_back if pod.uid in gone else after.take)([pod])
        gone ^= {pod.uid}
        left = [one for one in pods if one.uid not in gone]
        used = {name: [pods.index(one) % 5 for one in left if one.node == name] for name in "xyz"}
        plain = any(sum(one) + cores <= 9 and len(one) < 5 for one in used.values())
        assert after.fits is room.after(gone).fits is plain


def _protected(pods: Sequence[ElasticPod], allowed: Sequence[int]) -> NamespaceBudgets:
    budgets = read_budgets(
        {
            "spec": {"selector": {"matchLabels": {f"l{number}": "v"}}},
            "status": {"disruptionsAllowed": one},
        }
        for number, one in enumerate(allowed)
    )
    return protect(budgets, [(pod.uid, {f"l{n % 4}": "v"}) for n, pod in enumerate(pods)])


@given(pods_of, steps_of, st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_what_budgets_allow(
    given_pods: list[tuple[str, int, int, str]], steps: list[int], allowed: list[int]
) -> None:
    _, pods = _cluster([("b", *others) for _, *others in given_pods])  # type: ignore[misc]
    budgets = _protected(pods, allowed)
    walk, taken = BudgetWalk(lambda _namespace: budgets), list[int]()
    for step in (one for one in dict.fromkeys(steps) if one < len(pods)):
        same = [one for one in (*taken, step) if one % 4 == step % 4]
        assert walk.allow((pods[step],)) is (step % 4 == 3 or len(same) <= allowed[step % 4])
        walk.take((pods[step],))
        taken.append(step)


@pytest.mark.parametrize("count", [50, 200])
def test_each_pod_that_is_put_back_has_one_node_looked_at(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    cluster = Cluster(a_quota("a", {"cpu": 10 * count}), a_quota("b", {"cpu": 0}), resource="cpu")
    pods = cluster.run("b", 9 * count, node="n0")
    pods += [cluster.run("b", 1, node=f"n{number % 20}")[0] for number in range(count)]
    nodes = [
        {
            "metadata": {"name": f"n{number}"},
            "spec": {},
            "status": {"allocatable": {"cpu": str(count // 20), "pods": "999"}},
        }
        for number in range(20)
    ]
    requested = Requested({"cpu": 1000}, 0, 0)
    room = NodeRoom(
        a_pod(requests={"cpu": "1"}),
        nodes,
        [PlacedPod(pod.uid, pod.node, requested) for pod in pods],
    )
    looked = calls_of(monkeypatch, NodeRoom, "has_room")
    summed = calls_of(monkeypatch, type(cluster.pool), "free")
    circumstances = Circumstances(room=lambda gone: room.after([pod.uid for pod in gone]))
    found = cluster.plan(cluster.queued("a", 5 * count), circumstances)
    assert found.is_possible
    assert len(found.victims) < count / 2
    assert len(looked) <= 2 * count + 200
    assert len(summed) <= 5


@given(pods_of, st.integers(1, 9), st.integers(1, 9))
def test_a_plan_is_the_same_however_room_is_counted(
    given_pods: list[tuple[str, int, int, str]], asked: int, cores: int
) -> None:
    cluster, pods = _cluster(given_pods)
    room, queued = _room(pods, cores), cluster.queued("a", {"cpu": asked})
    running = Circumstances(room=lambda gone: room.after([pod.uid for pod in gone]))
    plain = Circumstances(
        room=lambda gone: AnyRoom(gone, lambda left: room.after([pod.uid for pod in left]).fits)
    )
    assert cluster.plan(queued, running) == cluster.plan(queued, plain)
