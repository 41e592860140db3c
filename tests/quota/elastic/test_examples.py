"""The examples X1 to X24 of the rules for elastic quotas.

GB of GPU memory, pods of 10, all of one priority, unless said.
"""

from __future__ import annotations

import pytest

from tests.quota.elastic.pools import UNIT, Cluster, a_quota, namespaces, uids
from tests.quota.elastic.promised_pool import PromisedPool
from webhook.quota import pod_usage
from webhook.quota.charging.gpu_memory import GPU_MEMORY, gpu_memory
from webhook.quota.elastic.balance import Claim
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder, in_label_order, over_quota
from webhook.quota.elastic.derived_quotas import derived_quotas
from webhook.quota.elastic.elastic_quotas import ElasticQuota, charge
from webhook.quota.elastic.victims import AnyRoom, Circumstances

GPU = "nvidia.com/gpu"


def requesting(**requests: int) -> dict[str, object]:
    given = {f"nvidia.com/{name}": str(amount) for name, amount in requests.items()}
    return {"resources": {"requests": given, "limits": given}}


def a_pod(
    *containers: dict[str, object], init: tuple[dict[str, object], ...] = ()
) -> dict[str, object]:
    return {
        "spec": {
            "containers": [{"name": f"c{i}", **one} for i, one in enumerate(containers)],
            "initContainers": [{"name": f"i{i}", **one} for i, one in enumerate(init)],
        }
    }


@pytest.mark.parametrize(
    ("pod", "gb_per_gpu", "gb"),
    [
        (a_pod(requesting(**{"gpu": 1, "mig-1g.10gb": 1})), 32, 42),
        (a_pod(requesting(**{"gpu": 2, "mig-2g.32gb": 3})), 32, 160),
        (a_pod(requesting(**{"mig-2g.20gb.me": 1, "mig-1c.3g.20gb": 2, "gpu-10gb": 3})), 32, 90),
        (a_pod(requesting(gpu=2)), 16, 32),
        (a_pod(requesting(**{"mig-1g.10gb": 1}), init=(requesting(gpu=1),)), 32, 42),
    ],
)
def test_x1_gpu_memory(pod: dict[str, object], gb_per_gpu: int, gb: int) -> None:
    """nos: 20 for the third, without compute instances and slices."""
    found = gpu_memory(pod_usage(pod), gb_per_gpu)
    assert found is not None
    assert (str(found.amount), found.unknown) == (str(gb), ())


def test_x1_a_profile_without_a_size_counts_nothing_and_is_named() -> None:
    found = gpu_memory(pod_usage(a_pod(requesting(**{"mig-foo": 1}))))
    assert found is not None
    assert (str(found.amount), found.unknown) == ("0", ("nvidia.com/mig-foo",))


def test_x1_without_a_gpu_the_resource_is_absent() -> None:
    assert gpu_memory(pod_usage(a_pod({}))) is None
    assert charge(pod_usage(a_pod({})), {GPU_MEMORY}) == {}


def labels(
    quota: ElasticQuota, pods: list[ElasticPod], order: LabelOrder = LabelOrder.CREATION_TIME
) -> str:
    """Return i for a pod in quota and o for one over it, in the order in which they are given."""
    over = over_quota(quota, in_label_order(pods, order))
    return "".join("o" if pod.uid in over else "i" for pod in pods)


def test_x2_x3_the_walk_is_by_age() -> None:
    quota = a_quota("a", 40)
    cluster = Cluster(quota)
    pods = cluster.run("a", 10, 10, 10, 10, 10)
    assert labels(quota, pods) == "iiiio"
    assert labels(quota, [pods[0], *pods[2:]]) == "iiii"


def test_x4_of_one_second_the_higher_priority_and_the_smaller_request_is_first() -> None:
    """nos: the lower priority first."""
    quota = a_quota("a", 10)
    cluster = Cluster(quota)
    low = cluster.pod("a", 10, priority=10, age=5)
    high = cluster.pod("a", 10, priority=100, age=5)
    assert labels(quota, [low, high]) == "oi"
    large, small = cluster.pod("a", 10, age=5), cluster.pod("a", 5, age=5)
    assert labels(quota, [small, large]) == "io"


def test_priority_may_come_before_age() -> None:
    quota = a_quota("a", 10)
    cluster = Cluster(quota)
    old, high = cluster.pod("a", 10), cluster.pod("a", 10, priority=1)
    assert labels(quota, [old, high]) == "io"
    assert labels(quota, [old, high], LabelOrder.PRIORITY) == "oi"


def test_x5_only_what_a_pod_asks_for_makes_it_over_quota() -> None:
    """nos: one resource that ran out makes every later pod over-quota."""
    quota = a_quota("a", {"cpu": 4, GPU_MEMORY: 10})
    cluster = Cluster(quota)
    both = {"cpu": 1, GPU_MEMORY: 10}
    pods = [cluster.pod("a", both), cluster.pod("a", both), cluster.pod("a", {"cpu": 1})]
    assert labels(quota, pods) == "ioi"


def test_x6_the_sum_has_the_pods_over_quota_in_it() -> None:
    quota = a_quota("a", 40)
    assert labels(quota, Cluster(quota).run("a", 30, 20, 10)) == "ioo"


def test_x7_a_quota_without_min_borrows_all_it_uses() -> None:
    b = a_quota("b", None, {"cpu": 20})
    cluster = Cluster(a_quota("a", {"cpu": 40}), b, resource="cpu")
    pods = cluster.run("b", 10, 10)
    assert labels(b, pods) == "oo"
    assert cluster.pool.borrowed("cpu", cluster.usage())["ElasticQuota b/b"] == 20 * UNIT
    first = cluster.carry_out(cluster.queued("a", 20))
    assert (first.is_possible, first.victims) == (True, ())
    second = cluster.plan(cluster.queued("a", 20))
    assert (second.claim, namespaces(second.victims)) == (Claim.OWN, ["b", "b"])


def golden(**spec: int) -> Cluster:
    weights = iter(spec.values())
    given = {"weight": next(weights)} if spec else {}
    others = [{"weight": weight} for weight in weights] or [{}, {}]
    return Cluster(
        a_quota("a", 40, **given), a_quota("b", 10, **others[0]), a_quota("c", 30, **others[1])
    )


def running(cluster: Cluster, **amounts: int) -> Cluster:
    for namespace, amount in amounts.items():
        cluster.run(namespace, *[10] * (amount // 10))
    return cluster


def test_x8_the_spare_is_shared_in_proportion_to_min() -> None:
    cluster = running(golden(), a=40, b=40)
    assert cluster.pool.available(GPU_MEMORY, cluster.usage()) == 30 * UNIT
    assert cluster.guaranteed() == (15, 3, 11)
    assert cluster.pool.size(GPU_MEMORY) == 80 * UNIT
    assert cluster.pool.free(GPU_MEMORY, cluster.usage()) == 0


def test_x9_x10_a_fair_claim_ends_at_what_is_guaranteed() -> None:
    cluster = running(golden(), a=40, b=40)
    found = cluster.carry_out(cluster.queued("a", 10))
    assert (found.claim, namespaces(found.victims)) == (Claim.FAIR, ["b"])
    assert [cluster.used(name) for name in "abc"] == [50, 30, 0]
    assert cluster.guaranteed() == (15, 3, 11)
    another = cluster.plan(cluster.queued("a", 10))
    assert not another.is_possible
    assert "guaranteed" in another.obstacle


def test_x11_the_quota_most_above_its_guaranteed_gives() -> None:
    cluster = running(golden(), a=50, b=30)
    guaranteed, victims, used = [], [], []
    for _ in range(3):
        found = cluster.carry_out(cluster.queued("c", 10))
        assert found.claim is Claim.OWN
        victims += namespaces(found.victims)
        guaranteed.append(cluster.guaranteed())
        used.append([cluster.used(name) for name in "abc"])
    assert victims == ["b", "b", "a"]
    assert guaranteed == [(10, 2, 7), (5, 1, 3), (0, 0, 0)]
    assert used == [[50, 20, 10], [50, 10, 20], [40, 10, 30]]


def test_x12_weights_take_the_place_of_min() -> None:
    assert running(golden(a=1, b=1, c=2), a=40, b=40).guaranteed() == (7, 7, 15)


def test_x13_cpu_in_millicores_and_memory_in_bytes() -> None:
    quotas = [a_quota(name, {"cpu": 1, "memory": "1Gi"}) for name in "abc"]
    cluster = Cluster(*quotas)
    gi = 2**30 * UNIT
    usage = {
        f"ElasticQuota {name}/{name}": {"cpu": cpu * UNIT, "memory": memory * gi}
        for name, cpu, memory in (("a", 0, 1), ("b", 2, 2), ("c", 0, 0))
    }
    assert cluster.pool.available("cpu", usage) == 2 * UNIT
    assert list(cluster.pool.guaranteed("cpu", usage).values()) == [666 * 10**6] * 3
    assert cluster.pool.available("memory", usage) == gi
    assert list(cluster.pool.guaranteed("memory", usage).values()) == [357913941 * UNIT] * 3


@pytest.mark.parametrize(("request_of_a", "is_possible"), [(20, True), (22, False)])
def test_x14_guaranteed_is_that_of_the_state_which_the_plan_leaves(
    request_of_a: int, is_possible: bool
) -> None:
    cluster = golden()
    cluster.run("a", 35)
    cluster.run("b", 10, 10, 10, 10, 5)
    found = cluster.carry_out(cluster.queued("a", request_of_a))
    assert found.is_possible is is_possible
    if is_possible:
        assert [cluster.used(name) for name in "abc"] == [55, 25, 0]


def test_x15_an_owner_gets_its_own_from_one_that_borrows() -> None:
    cluster = Cluster(
        a_quota("a", {GPU: 4}, {GPU: 5}), a_quota("b", {GPU: 1}, {GPU: 5}), resource=GPU
    )
    cluster.run("a", 1, 1, 1, 1, 1)
    found = cluster.carry_out(cluster.queued("b", 1))
    assert (found.claim, namespaces(found.victims)) == (Claim.OWN, ["a"])
    assert (cluster.used("a"), cluster.used("b")) == (4, 1)


def cpu_pair() -> Cluster:
    return Cluster(
        a_quota("q1", {"cpu": 0}, {"cpu": 4}), a_quota("q2", {"cpu": 2}, {"cpu": 4}), resource="cpu"
    )


def test_x16_a_quota_without_min_gives_all_back() -> None:
    cluster = cpu_pair()
    for _ in range(4):
        cluster.carry_out(cluster.queued("q1", 1))
    assert cluster.used("q1") == 2
    plans = [cluster.carry_out(cluster.queued("q2", 1)) for _ in range(3)]
    assert [found.is_possible for found in plans] == [True, True, False]
    assert (cluster.used("q1"), cluster.used("q2")) == (0, 2)


@pytest.mark.parametrize(("cpus", "is_possible"), [(2, True), (1, False)])
def test_x17_the_beneficiary_has_a_node(cpus: int, is_possible: bool) -> None:
    cluster = cpu_pair()
    first, second = (cluster.run("q1", 1, node=node)[0] for node in ("n1", "n2"))

    def has_node(victims: object) -> bool:
        assert isinstance(victims, (list, tuple))
        nodes = [pod.node for pod in victims]
        return any(cpus - (node not in nodes) >= 2 for node in ("n1", "n2"))

    found = cluster.plan(
        cluster.queued("q2", 2), Circumstances(room=lambda gone: AnyRoom(gone, has_node))
    )
    assert found.is_possible is is_possible
    if is_possible:
        assert uids(found.victims) == uids([first, second])


def test_x18_at_max_only_lower_priorities_of_the_quota_help() -> None:
    cluster = Cluster(a_quota("a", 2, 3), a_quota("b", 10))
    (low,) = cluster.run("a", 1, priority=1)
    cluster.run("a", 2, priority=10)
    plain = cluster.plan(cluster.queued("a", 1, priority=1))
    assert (plain.is_possible, plain.shortage.beyond_max) == (False, (GPU_MEMORY,))
    higher = cluster.plan(cluster.queued("a", 1, priority=5))
    assert (higher.claim, higher.victims) == (Claim.NONE, (low,))


def test_x19_what_a_quota_does_not_name_is_not_compared() -> None:
    """nos: absent cpu is zero, and the pod waits for ever."""
    quota = a_quota("a", 40)
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "64"}}}]}}
    assert charge(pod_usage(pod), quota.names) == {}
    cluster = Cluster(quota)
    found = cluster.plan(cluster.queued("a", {}))
    assert (found.is_possible, found.shortage.resources) == (True, ())


def test_x20_a_composite_is_one_quota() -> None:
    """nos: a size of 30, and x and y as two quotas."""
    both = a_quota("both", 10, 20, namespaces=["x", "y"])
    cluster = Cluster(both, a_quota("z", 10))
    assert cluster.pool.size(GPU_MEMORY) == 20 * UNIT
    cluster.run("x", 12)
    cluster.run("y", 8)
    assert cluster.plan(cluster.queued("y", 1)).shortage.beyond_max == (GPU_MEMORY,)

    other = Cluster(both, a_quota("z", 10))
    pods = other.run("x", 2, 2, 2, 2) + other.run("y", 2, 2, 2, 2)
    assert labels(both, pods) == "iiiiiooo"
    found = other.plan(other.queued("z", 5))
    assert (found.claim, found.victims) == (Claim.OWN, (pods[-1],))


def test_x21_what_is_not_lendable_is_not_taken() -> None:
    a = a_quota("a", 40, lendable={GPU_MEMORY: 10})
    cluster = Cluster(a, a_quota("b", 10))
    for _ in range(3):
        cluster.carry_out(cluster.queued("b", 10))
    assert cluster.used("b") == 20
    assert cluster.guaranteed()[1] == 2
    plans = [cluster.carry_out(cluster.queued("a", 10)) for _ in range(4)]
    assert [namespaces(found.victims) for found in plans] == [[], [], [], ["b"]]


def test_x22_what_is_freed_for_an_owner_goes_to_no_other_pod() -> None:
    """A: min 40, uses 20; B: min 10, uses 60; C: min 30. A pod of A asks for 20."""
    cluster = running(golden(), a=20, b=60)
    owner, another = cluster.queued("a", 20), cluster.queued("b", 10)
    plan = cluster.plan(owner)
    assert (plan.claim, namespaces(plan.victims)) == (Claim.OWN, ["b", "b"])
    pool = PromisedPool(derived_quotas(cluster.pool.quotas.values(), lambda _name: True, 32))
    pool.hold(a=20, b=60, c=0)
    pool.promise(owner.pod)
    assert not pool.admits(owner.pod)  # 80 are held
    pool.hold(a=20, b=50, c=0)  # b1 has ended
    assert pool.refusal(another.pod) == (
        "elastic pool default is used up, requested: nos.nebuly.com/gpu-memory=10,"
        " used: nos.nebuly.com/gpu-memory=90, size: nos.nebuly.com/gpu-memory=80"
    )
    assert not pool.admits(owner.pod)  # 70 + 20
    pool.hold(a=20, b=40, c=0)  # b2 has
    assert pool.admits(owner.pod)
    assert not pool.admits(another.pod)
    pool.hold(a=40, b=40, c=0)
    pool.promises.clear()
    assert not pool.admits(another.pod)
    done = cluster.carry_out(owner)
    assert done.victims == plan.victims
    assert [cluster.used(name) for name in "abc"] == [40, 40, 0]


def test_x23_pods_that_are_not_needed_are_put_back() -> None:
    def cluster() -> tuple[Cluster, list[ElasticPod]]:
        made = Cluster(a_quota("a", 22), a_quota("b", 0))
        r = made.run("b", 10, priority=5)
        q = made.run("b", 6)
        return made, [*made.run("b", 6), *q, *r]

    made, (p, q, _) = cluster()
    assert uids(made.plan(made.queued("a", 10)).victims) == uids([p, q])
    made, (p, q, r) = cluster()
    assert uids(made.plan(made.queued("a", 16)).victims) == uids([p, r])


def test_x24_a_lowered_min_evicts_no_pod_by_itself() -> None:
    cluster = running(Cluster(a_quota("a", 20), a_quota("b", 10)), a=10, b=40)
    assert cluster.pool.size(GPU_MEMORY) == 30 * UNIT
    assert cluster.pool.available(GPU_MEMORY, cluster.usage()) == 10 * UNIT
    assert cluster.guaranteed() == (6, 3)
    found = cluster.carry_out(cluster.queued("a", 10))
    assert (found.claim, namespaces(found.victims)) == (Claim.OWN, ["b", "b", "b"])
    assert (cluster.used("a"), cluster.used("b")) == (20, 10)
    empty = Cluster(a_quota("a", 0), a_quota("b", 0))
    found = empty.plan(empty.queued("a", 10))
    assert (found.is_possible, found.shortage.beyond_pool) == (False, (GPU_MEMORY,))
