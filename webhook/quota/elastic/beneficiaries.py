"""The order in which pods have others evicted for them.

First those that stay within the min of their quota, then those within min and what is guaranteed
beyond, then the rest; in each the quota that has least above its min for its share, then the higher
priority, then the older pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

from webhook.quota.elastic.balance import Queued
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.fair_share import Pool, Usage

_NO_SHARE: Final = Fraction(10**60)


def in_claim_order(pool: Pool, usage: Usage, queued: Iterable[Queued]) -> list[Queued]:
    """Return the pods that wait for a pool in the order of their claims; usage is without them."""
    available = {name: pool.available(name, usage) for name in pool.resources}

    def rank(one: Queued) -> tuple[object, ...]:
        above = [_above(pool, usage, available, one, name) for name in one.pod.amounts]
        classes = [found for found, _ in above]
        ratios = [ratio for _, ratio in above]
        first = max(classes, default=0), max(ratios, default=Fraction(0))
        return (*first, -one.pod.priority, one.pod.age_order)

    return sorted(queued, key=rank)


def _above(
    pool: Pool, usage: Usage, available: Mapping[str, int], queued: Queued, resource: str
) -> tuple[int, Fraction]:
    """Return the class of a pod in one resource, and how much its quota has above min."""
    key = queued.quota
    part = pool.part(resource, key)
    if part is None:
        return 0, Fraction(0)
    used = usage.get(key, {}).get(resource, 0)
    after = used + queued.pod.amounts[resource]
    least, share = part.min, pool.share(resource, key)
    beyond = used - least
    ratio = beyond / share if share else _NO_SHARE * (beyond > 0)
    if after <= least:
        return 0, ratio
    left = available[resource] - part.lends(used) + part.lends(after)
    guaranteed = pool.guaranteed_of(resource, key, left)
    return (1 if after <= least + guaranteed else 2), ratio


def usage_of_pods(pods: Mapping[str, Iterable[ElasticPod]]) -> dict[str, dict[str, int]]:
    """Return what the pods of each quota take, 10⁻⁹ units."""
    found: dict[str, dict[str, int]] = {}
    for key, every in pods.items():
        used = found.setdefault(key, {})
        for pod in every:
            for name, amount in pod.amounts.items():
                used[name] = used.get(name, 0) + amount
    return found
