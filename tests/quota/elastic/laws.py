"""The laws E7 to E12 as checks of one state; what they compare with is worked out here, plainly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.elastic import capacity
from webhook.quota.elastic.balance import Claim, Queued, shortage_of
from webhook.quota.elastic.capacity import ElasticPod, LabelOrder, in_label_order
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.elastic.reclaim_plan import Plan, plan_reclaim

Pods = Mapping[str, Sequence[ElasticPod]]
"""Key of each quota → its assigned pods."""
Usage = Mapping[str, Mapping[str, int]]


def left(pods: Pods, gone: Sequence[ElasticPod]) -> dict[str, list[ElasticPod]]:
    """Return the pods without some."""
    uids = {pod.uid for pod in gone}
    return {key: [pod for pod in listed if pod.uid not in uids] for key, listed in pods.items()}


def with_pod(pods: Pods, queued: Queued) -> dict[str, list[ElasticPod]]:
    """Return the pods with the one that is queued bound."""
    return {**left(pods, ()), queued.quota: [*pods.get(queued.quota, ()), queued.pod]}


def usage_of(pods: Pods) -> dict[str, dict[str, int]]:
    """Return what the pods of each quota take."""
    found: dict[str, dict[str, int]] = {}
    for key, listed in pods.items():
        names = {name for pod in listed for name in pod.amounts}
        found[key] = {name: sum(pod.amounts.get(name, 0) for pod in listed) for name in names}
    return found


def _least(quota: ElasticQuota, resource: str) -> int:
    return quota.min.get(resource, ZERO).nano


def available(pool: Pool, usage: Usage, resource: str) -> int:
    """Return what the quotas lend of their minimums."""
    total = 0
    for key, quota in pool.quotas.items():
        least, used = _least(quota, resource), usage.get(key, {}).get(resource, 0)
        lendable = quota.lendable.get(resource)
        total += min(least if lendable is None else lendable.nano, max(0, least - used))
    return total


def guaranteed(pool: Pool, usage: Usage, resource: str) -> dict[str, int]:
    """Return what each quota may take beyond its minimum."""
    sharing = {key: one for key, one in pool.quotas.items() if resource in one.names}
    is_weighted = any(one.weight is not None for one in pool.quotas.values())
    weights = {
        key: (10**9 if one.weight is None else one.weight.nano)
        if is_weighted
        else _least(one, resource)
        for key, one in sharing.items()
    }
    total, unit = sum(weights.values()), 10**6 if resource == "cpu" else 10**9
    spare = available(pool, usage, resource)
    return {
        key: floor(Fraction(spare * weight, total * unit)) * unit if total else 0
        for key, weight in weights.items()
    }


def check_plan(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """Check all that is a law of plans."""
    for check in (check_fits, check_e7, check_e8, check_e9):
        check(pool, pods, queued, found)


def check_fits(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """After a plan the pod fits; without one nothing is taken, and it says why."""
    if found.is_possible:
        after = usage_of(left(pods, found.victims))
        assert shortage_of(pool, after, queued).resources == ()
    else:
        assert found.victims == ()
        assert found.obstacle


def check_e7(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """The claim is kept in the state that the plan leaves."""
    if found.claim is Claim.NONE:
        own = all(pool.quota_of[pod.namespace] == queued.quota for pod in found.victims)
        assert own, "E7: taken from others without a claim"
        return
    usage = usage_of(with_pod(left(pods, found.victims), queued))
    for resource in found.shortage.beyond_pool:
        most = _least(pool.quotas[queued.quota], resource)
        if found.claim is Claim.FAIR:
            most += guaranteed(pool, usage, resource)[queued.quota]
        used = usage[queued.quota][resource]
        assert used <= most, f"E7: {used} is used, {most} is its {found.claim} claim"


def check_e8(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """Every victim is over its quota at its turn, and none may be left out."""
    assert queued.pod.uid not in {pod.uid for pod in found.victims}
    for victim in found.victims:
        is_own = pool.quota_of[victim.namespace] == queued.quota
        assert not is_own or victim.priority < queued.pod.priority, "E8: of no lower priority"
    assert not _is_out_of_turn(pool, pods, queued, found.victims), "E8: not over-quota at its turn"
    for victim in found.victims:
        rest = [pod for pod in found.victims if pod is not victim]
        assert not _is_plan(pool, pods, queued, rest, found), f"E8: {victim.uid} is not needed"


def _is_plan(
    pool: Pool, pods: Pods, queued: Queued, victims: Sequence[ElasticPod], found: Plan
) -> bool:
    """Return whether the pod could be bound by the same claim with other victims."""
    after = left(pods, victims)
    if shortage_of(pool, usage_of(after), queued).resources:
        return False
    if found.claim is Claim.FAIR:
        usage = usage_of(with_pod(after, queued))
        for name in found.shortage.beyond_pool:
            more = guaranteed(pool, usage, name)[queued.quota]
            if usage[queued.quota][name] > _least(pool.quotas[queued.quota], name) + more:
                return False
    return not _is_out_of_turn(pool, pods, queued, victims)


def _is_out_of_turn(pool: Pool, pods: Pods, queued: Queued, victims: Sequence[ElasticPod]) -> bool:
    """Return whether a victim of another quota, in this order, is not over-quota at its turn."""
    for index, victim in enumerate(victims):
        key = pool.quota_of[victim.namespace]
        before = left(pods, victims[:index])[key]
        if key != queued.quota and victim.uid not in expected_over(pool.quotas[key], before):
            return True
    return False


def check_e9(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """No victim that waits again has a plan against the pod."""
    after = with_pod(left(pods, found.victims), queued)
    for victim in found.victims:
        turned = plan_reclaim(pool, after, Queued(pool.quota_of[victim.namespace], victim))
        assert queued.pod.uid not in {pod.uid for pod in turned.victims}, "E9: taken back"


def check_e10(pool: Pool, usage: Usage) -> None:
    """Shares are whole, within what is available, and whatever the order of quotas."""
    backwards = Pool(pool.name, reversed(list(pool.quotas.values())))
    for resource in pool.resources:
        found = pool.guaranteed(resource, usage)
        expected = guaranteed(pool, usage, resource)
        assert found == expected, f"E10: {found} are guaranteed, {expected} is expected"
        assert sum(found.values()) <= available(pool, usage, resource), "E10: more than available"
        assert backwards.guaranteed(resource, usage) == found, "E10: it depends on the order"


def expected_over(
    quota: ElasticQuota,
    pods: Sequence[ElasticPod],
    order: LabelOrder = LabelOrder.CREATION_TIME,
) -> frozenset[str]:
    """Return the pods that are over their quota: the sum up to them is above min."""
    places = {pod.uid: place for place, pod in enumerate(in_label_order(pods, order))}

    def up_to(pod: ElasticPod, name: str) -> int:
        return sum(one.amounts.get(name, 0) for one in pods if places[one.uid] <= places[pod.uid])

    return frozenset(
        pod.uid
        for pod in pods
        if any(up_to(pod, name) > _least(quota, name) for name in pod.amounts)
    )


def check_e11(
    quota: ElasticQuota,
    pods: Sequence[ElasticPod],
    order: LabelOrder = LabelOrder.CREATION_TIME,
) -> None:
    """Labels say where the sum is above min, and what is left without those over is within it."""
    over = capacity.over_quota(quota, in_label_order(pods, order))
    expected = expected_over(quota, pods, order)
    assert over == expected, f"E11: {sorted(over)} are over-quota, expected {sorted(expected)}"
    for resource in quota.names:
        asking = [pod for pod in pods if pod.amounts.get(resource)]
        within = sum(pod.amounts[resource] for pod in asking if pod.uid not in over)
        assert within <= _least(quota, resource), "E11: above min without those that are over it"
        if sum(pod.amounts[resource] for pod in asking) > _least(quota, resource):
            assert any(pod.uid in over for pod in asking), "E11: above min, and no pod is over"


def check_e12(pool: Pool, pods: Pods, queued: Queued, found: Plan) -> None:
    """A composite is judged as if all its pods were in its first namespace."""
    single = Pool(
        pool.name,
        [replace(one, namespaces=one.namespaces[:1]) for one in pool.quotas.values()],
    )

    def moved(pod: ElasticPod) -> ElasticPod:
        key = pool.quota_of[pod.namespace]
        return replace(pod, namespace=pool.quotas[key].namespaces[0])

    there = {key: [moved(pod) for pod in listed] for key, listed in pods.items()}
    expected = plan_reclaim(single, there, Queued(queued.quota, moved(queued.pod), queued.takes))
    both = [
        (one.is_possible, one.claim, one.shortage, [pod.uid for pod in one.victims])
        for one in (found, expected)
    ]
    assert both[0] == both[1], f"E12: {both[0]} is planned, for one namespace {both[1]}"
