"""Laws of elastic quotas, for random pools: E7 to E12 of the rules.

The pool is one resource of small whole numbers or two, so that quotas are met exactly.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.quota.elastic import laws
from tests.quota.elastic.pools import UNIT, Cluster, a_quota
from webhook.quota.elastic.balance import Claim, Queued, shortage_of
from webhook.quota.elastic.beneficiaries import in_claim_order
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder, in_label_order, over_quota
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.reclaim_plan import plan_reclaim
from webhook.quota.elastic.victims import Circumstances

NAMES = ("a", "b", "c")
RESOURCES = ("cpu", "example.com/r")


@st.composite
def amounts(draw: st.DrawFn, most: int = 6) -> dict[str, int]:
    asked = draw(st.sets(st.sampled_from(RESOURCES), min_size=1))
    return {name: draw(st.integers(0, most)) for name in sorted(asked)}


@st.composite
def quotas(draw: st.DrawFn) -> list[ElasticQuota]:
    found = []
    is_weighted = draw(st.booleans())
    for name in NAMES:
        least = draw(amounts(12))
        spec: dict[str, object] = {}
        if is_weighted and draw(st.booleans()):
            spec["weight"] = draw(st.integers(0, 3))
        if draw(st.integers(0, 3)) == 0:
            spec["lendable"] = {
                resource: draw(st.integers(0, amount)) for resource, amount in least.items()
            }
        most = None
        if draw(st.integers(0, 3)) == 0:
            most = {
                resource: amount + draw(st.integers(0, 12)) for resource, amount in least.items()
            }
        found.append(a_quota(name, dict(least), dict(most) if most else None, **spec))
    return found


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    cluster = Cluster(*draw(quotas()))
    for _ in range(draw(st.integers(0, 10))):
        namespace = draw(st.sampled_from(NAMES))
        key = cluster.pool.quota_of[namespace]
        asked = {
            name: amount
            for name, amount in draw(amounts()).items()
            if amount and name in cluster.pool.quotas[key].names
        }
        pod = cluster.pod(namespace, asked, priority=draw(st.integers(0, 2)))
        is_forced = draw(st.integers(0, 4)) == 0
        queued = Queued(key, pod)
        if is_forced or not shortage_of(cluster.pool, cluster.usage(), queued).resources:
            cluster.pods[key].append(pod)
    return cluster


@st.composite
def requests(draw: st.DrawFn) -> tuple[Cluster, Queued]:
    cluster = draw(clusters())
    namespace = draw(st.sampled_from(NAMES))
    key = cluster.pool.quota_of[namespace]
    asked = {
        name: amount
        for name, amount in draw(amounts()).items()
        if amount and name in cluster.pool.quotas[key].names
    }
    return cluster, cluster.queued(namespace, asked, priority=draw(st.integers(0, 2)))


@settings(max_examples=400)
@given(requests())
def test_e7_to_e9_a_plan_takes_what_it_may_and_needs_and_then_the_pod_fits(
    given_: tuple[Cluster, Queued],
) -> None:
    cluster, queued = given_
    laws.check_plan(cluster.pool, cluster.pods, queued, cluster.plan(queued))


@given(clusters())
def test_e10_shares_are_whole_and_within_what_is_available(cluster: Cluster) -> None:
    usage = cluster.usage()
    laws.check_e10(cluster.pool, usage)
    for resource in cluster.pool.resources:
        unit = 10**6 if resource == "cpu" else UNIT
        found = cluster.pool.guaranteed(resource, usage).values()
        assert all(amount >= 0 and amount % unit == 0 for amount in found)
        assert sum(cluster.pool.shares(resource).values()) in (0, 1)


@given(clusters())
def test_what_is_lent_is_what_is_borrowed(cluster: Cluster) -> None:
    usage = cluster.usage()
    for resource in cluster.pool.resources:
        lent = cluster.pool.lent(resource, usage)
        borrowed = sum(cluster.pool.borrowed(resource, usage).values())
        assert sum(lent.values()) == min(borrowed, cluster.pool.available(resource, usage))
        assert all(amount >= 0 for amount in lent.values())
        if cluster.pool.free(resource, usage) >= 0:
            assert sum(lent.values()) == borrowed


@given(clusters(), st.sampled_from(LabelOrder), st.randoms(use_true_random=False))
def test_e11_labels_are_a_function_of_pods_and_quota(
    cluster: Cluster, order: LabelOrder, chance: Random
) -> None:
    for key, pods in cluster.pods.items():
        quota = cluster.pool.quotas[key]
        laws.check_e11(quota, pods, order)
        shuffled = list(pods)
        chance.shuffle(shuffled)
        over = over_quota(quota, in_label_order(pods, order))
        assert over_quota(quota, in_label_order(shuffled, order)) == over


@given(requests(), st.lists(st.sampled_from("xyz"), min_size=16, max_size=16))
def test_e12_a_composite_is_judged_like_one_namespace(
    given_: tuple[Cluster, Queued], homes: list[str]
) -> None:
    cluster, queued = given_
    single = next(one for one in cluster.pool.quotas.values() if one.name == "a")
    composite = replace(single, kind="CompositeElasticQuota", namespaces=("x", "y", "z"))
    others = [one for one in cluster.pool.quotas.values() if one.name != "a"]
    many = Pool("default", [composite, *others])
    moved: dict[str, list[ElasticPod]] = {}
    for key, pods in cluster.pods.items():
        new_key = composite.key if key == single.key else key
        moved[new_key] = [_moved(pod, homes, index) for index, pod in enumerate(pods)]
    pod, key = queued.pod, queued.quota
    if key == single.key:
        pod, key = replace(pod, namespace="x"), composite.key
    found = plan_reclaim(many, moved, Queued(key, pod))
    expected = cluster.plan(queued)
    assert (found.is_possible, found.claim, found.shortage) == (
        expected.is_possible,
        expected.claim,
        expected.shortage,
    )
    assert [one.uid for one in found.victims] == [one.uid for one in expected.victims]


def _moved(pod: ElasticPod, homes: list[str], index: int) -> ElasticPod:
    return replace(pod, namespace=homes[index % len(homes)]) if pod.namespace == "a" else pod


def test_groups_go_together_or_not_at_all() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 0))
    cluster.run("b", 5, 5, group="train")
    cluster.run("b", 10)
    small = cluster.plan(cluster.queued("a", 5))
    assert [pod.amounts for pod in small.victims] == [{cluster.resource: 10 * UNIT}]
    large = cluster.plan(cluster.queued("a", 20))
    assert len(large.victims) == 3


@settings(max_examples=400)
@given(requests(), st.lists(st.sampled_from(("", "g", "h")), min_size=10, max_size=10))
def test_a_pod_group_is_planned_for_like_a_label(
    given_: tuple[Cluster, Queued], names: list[str]
) -> None:
    cluster, queued = given_

    def pods(field: str) -> dict[str, list[ElasticPod]]:
        return {
            key: [
                replace(pod, **{field: name})  # type: ignore[arg-type]
                for pod, name in zip(listed, names, strict=False)
            ]
            for key, listed in cluster.pods.items()
        }

    whole = Circumstances(is_disrupted_whole=lambda _namespace, _name: True)
    found = plan_reclaim(cluster.pool, pods("pod_group"), queued, whole)
    expected = plan_reclaim(cluster.pool, pods("group"), queued)
    assert [one.uid for one in found.victims] == [one.uid for one in expected.victims]
    assert replace(found, victims=()) == replace(expected, victims=())


def test_a_pod_that_is_within_its_quota_is_not_taken_for_its_priority() -> None:
    cluster = Cluster(a_quota("a", 20), a_quota("b", 10))
    cluster.run("a", 10)
    cluster.run("b", 10, priority=0)
    (newer,) = cluster.run("b", 10, priority=5)
    found = cluster.plan(cluster.queued("a", 10))
    assert (found.claim, found.victims) == (Claim.OWN, (newer,))


def test_a_fair_claim_leaves_others_what_is_guaranteed_to_them() -> None:
    cluster = Cluster(*(a_quota(name, 10) for name in "abcd"))
    cluster.run("a", 10)
    cluster.run("b", 10, 2)
    cluster.run("c", 18, is_exempt=True)
    found = cluster.plan(cluster.queued("a", 2))
    assert (found.shortage.resources, found.is_possible) == ((cluster.resource,), False)


@settings(max_examples=400)
@given(clusters(), st.lists(st.integers(0, 20), min_size=9, max_size=9))
def test_the_order_of_claims_goes_by_what_is_guaranteed_beside_each_pod(
    cluster: Cluster, sizes: list[int]
) -> None:
    name, pool = RESOURCES[0], cluster.pool
    waiting = [
        Queued(key, cluster.pod(quota.namespaces[0], {name: size}))
        for size, (key, quota) in zip(sizes, [*pool.quotas.items()] * 3, strict=False)
        if name in quota.names and name in pool.resources
    ]

    def claim(one: Queued) -> int:
        usage = cluster.usage()
        used = usage[one.quota][name] + one.pod.amounts[name]
        part = pool.part(name, one.quota)
        assert part is not None
        after = {**usage, one.quota: {name: used}}
        return (used > part.min) + (used > part.min + pool.guaranteed(name, after)[one.quota])

    found = in_claim_order(pool, cluster.usage(), waiting)
    assert [claim(one) for one in found] == sorted(map(claim, waiting))
    assert {one.pod.uid for one in found} == {one.pod.uid for one in waiting}
