"""Which pods are in turn, and that nothing a namespace writes on its pods makes plans expensive."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counting import calls_of
from tests.quota.elastic.pools import Cluster, a_quota, uids
from webhook.jsonfields.reader import FieldReader
from webhook.quota.elastic import reclaim_plan
from webhook.quota.elastic.balance import Claim
from webhook.quota.elastic.capacity import (
    ElasticPod,
    QuotaWalk,
    in_label_order,
    is_of_daemon_set,
    over_quota,
)
from webhook.quota.elastic.disruption_budgets import DisruptionBudgets, NamespaceBudgets
from webhook.quota.elastic.victims import AnyRoom, Circumstances, NoBudgets

FEW, MANY = 50, 400


@given(
    st.lists(st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(1, 5)), max_size=12),
    st.integers(0, 20),
    st.data(),
)
def test_a_walk_says_what_adding_up_again_says(
    requests: list[dict[str, int]], least: int, data: st.DataObject
) -> None:
    cluster = Cluster(a_quota("b", {"cpu": least, "memory": 3}))
    pods = in_label_order([cluster.pod("b", amounts) for amounts in requests])
    quota = next(iter(cluster.pool.quotas.values()))
    walk = QuotaWalk(quota, pods)
    kept = list(pods)
    for pod in data.draw(st.permutations(pods)):
        over = over_quota(quota, kept)
        assert {one.uid for one in kept if walk.is_over(one)} == over
        walk.remove(pod)
        kept.remove(pod)


KEEPING = {
    "a pod within min": {},
    "an exempt pod": {"is_exempt": True},
}


@pytest.mark.parametrize("first", KEEPING.values(), ids=KEEPING)
def test_a_pod_that_stays_does_not_keep_its_group(first: dict[str, bool]) -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 10))
    cluster.run("b", 10, group="all", **first)
    borrowed = cluster.run("b", 10, 10, group="all")
    found = cluster.plan(cluster.queued("a", 10))
    assert uids(found.victims) == uids(borrowed)


def test_whole_groups_go_before_parts_of_groups() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 10))
    cluster.run("b", 10, group="split")
    cluster.run("b", 10, group="split")
    (alone,) = cluster.run("b", 10, age=1)
    found = cluster.plan(cluster.queued("a", 10))
    assert found.victims == (alone,)


def test_a_group_is_as_young_as_its_oldest_pod() -> None:
    cluster = Cluster(*(a_quota(name, 10) for name in "abc"))
    cluster.run("a", 10)
    cluster.run("b", 10)
    old = cluster.run("b", 5, group="g")
    young = cluster.run("b", 5, group="g", is_young=True)
    found = cluster.plan(cluster.queued("a", 3))
    assert (found.claim, uids(found.victims)) == (Claim.FAIR, uids([*old, *young]))


OWNERS = {
    "of Kubernetes": ("apps/v1", True, True),
    "of another group": ("example.com/v1", True, False),
    "of a version that is not served": ("apps/v2", True, False),
    "an owner that does not control": ("apps/v1", False, False),
}


@pytest.mark.parametrize(("version", "controls", "expected"), OWNERS.values(), ids=OWNERS)
def test_only_kubernetes_own_daemon_sets_exempt(
    version: str, *, controls: bool, expected: bool
) -> None:
    owner = {"apiVersion": version, "kind": "DaemonSet", "name": "d", "controller": controls}
    assert is_of_daemon_set(FieldReader({"ownerReferences": [owner]})) is expected


def seconds_for(count: int, *, is_put_back: bool) -> float:
    """Return the processor time of a plan about many small pods."""
    cluster = Cluster(a_quota("a", {"cpu": 10 * count}), a_quota("b", {"cpu": 0}), resource="cpu")
    if is_put_back:  # the small ones are chosen first, and the large one makes them needless
        cluster.run("b", 9 * count, *[1] * count)
    else:
        cluster.run("b", *[1] * 10 * count)
    queued = cluster.queued("a", 5 * count)
    started = time.process_time()
    assert cluster.plan(queued).is_possible
    return time.process_time() - started


@pytest.mark.parametrize("is_put_back", [False, True], ids=["all go", "all but one are put back"])
def test_a_plan_takes_little_more_time_for_each_pod(*, is_put_back: bool) -> None:
    few = min(seconds_for(FEW, is_put_back=is_put_back) for _ in range(3))
    many = min(seconds_for(MANY, is_put_back=is_put_back) for _ in range(3))
    assert many / few < 4 * MANY / FEW


@pytest.mark.parametrize(("room", "most"), [("nowhere", 3), ("where all of it goes", 700)])
def test_few_of_many_nodes_are_tried(room: str, most: int) -> None:
    cluster = Cluster(a_quota("a", 500), a_quota("b", 0))
    for number in range(250):
        cluster.run("b", 1, 1, node=f"node-{number}")
    looks = 0

    def has_node(taken: Sequence[ElasticPod]) -> bool:
        nonlocal looks
        looks += 1
        by_node = [pod.node for pod in taken]
        return room != "nowhere" and any(by_node.count(name) > 1 for name in {*by_node})

    found = cluster.plan(
        cluster.queued("a", 1), Circumstances(room=lambda gone: AnyRoom(gone, has_node))
    )
    assert not found.is_possible
    assert found.obstacle == "no node has room for it after any plan"
    assert looks <= most


def test_a_plan_gives_up_where_very_many_pods_would_have_to_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("webhook.quota.elastic.reclaim_plan._MOST_WORK", 40)
    cluster = Cluster(a_quota("a", 30), a_quota("b", 0))
    cluster.run("b", *[1] * 30)
    assert cluster.plan(cluster.queued("a", 15)).is_possible
    found = cluster.plan(cluster.queued("a", 25))
    assert (found.is_possible, found.obstacle) == (
        False,
        "too many pods would have to be evicted for it",
    )


class KeepingBudgets(NoBudgets):
    """Budgets that keep each pod of a group."""

    def allow(self, unit: Sequence[ElasticPod]) -> bool:
        return not any(pod.group for pod in unit)


def test_a_group_that_a_budget_keeps_is_not_looked_at_again_for_each_victim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(a_quota("a", 2 * MANY), a_quota("b", 0), a_quota("c", 0))
    cluster.run("b", *[1] * MANY, group="all")
    singles = cluster.run("c", *[1] * MANY)
    looks = calls_of(monkeypatch, QuotaWalk, "is_over")
    found = cluster.plan(cluster.queued("a", MANY // 2), Circumstances(disruptions=KeepingBudgets))
    assert len(found.victims) == MANY // 2
    assert {*uids(found.victims)} <= {*uids(singles)}
    assert len(looks) <= 6 * MANY


def _small_and_large(small: int, *large: int) -> Cluster:
    """Return a pool that is used up; b, which is most above its share, has small pods alone."""
    cluster = Cluster(a_quota("a", 4000), a_quota("b", 0), a_quota("c", 1000))
    cluster.run("b", *[1] * small)
    cluster.run("c", 1000, *large)
    return cluster


def test_pods_that_free_next_to_nothing_come_after_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their creator would keep what others borrow by making too many of them for any plan."""
    monkeypatch.setattr(reclaim_plan, "_MOST_WORK", 500)
    cluster = _small_and_large(400, 1000, 1000, 1600)
    found = cluster.plan(cluster.queued("a", 2000))
    assert found.is_possible, found.obstacle
    assert {pod.namespace for pod in found.victims} == {"c"}


def test_small_pods_go_where_others_are_not_enough() -> None:
    cluster = _small_and_large(2500, 1500)
    kept = {pod.uid: (0,) for pod in cluster.pods[cluster.pool.quota_of["c"]]}
    protected = {"c": NamespaceBudgets((0,), frozenset(), kept)}
    budgets = DisruptionBudgets(lambda name: protected.get(name, NamespaceBudgets()))
    queued = cluster.queued("a", 1500)
    found = cluster.plan(queued, Circumstances(disruptions=budgets.begin))
    assert {pod.namespace for pod in found.victims} == {"b"}, "those of c may not go now"
    found = cluster.plan(queued)
    assert {pod.namespace for pod in found.victims} == {"c"}


def test_far_below_zero_pods_as_large_as_the_one_that_waits_have_their_turn() -> None:
    """What the pool lacks there is thousands of times what any pod takes."""
    cluster = Cluster(a_quota("a", 10), a_quota("b", 0), a_quota("c", 1000))
    cluster.run("b", *[1] * 2000)
    cluster.run("c", 1000, 9)
    found = cluster.plan(cluster.queued("a", 1))
    assert (len(found.victims), {pod.namespace for pod in found.victims}) == (2000, {"b"})


@pytest.mark.parametrize("priority", [0, 1000])
def test_of_quotas_without_a_share_the_one_that_takes_most_is_first(priority: int) -> None:
    """However old its pods are, and whatever their priority."""
    cluster = Cluster(a_quota("a", 20), a_quota("b", 0), a_quota("c", 0))
    cluster.run("b", *[1] * 18, priority=priority)
    cluster.run("c", 1, 1)
    for _ in range(3):
        found = cluster.carry_out(cluster.queued("a", 1))
        assert [pod.namespace for pod in found.victims] == ["b"]
