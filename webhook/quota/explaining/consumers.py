"""The pods and namespaces that take most of the quotas that a pod waits for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from fractions import Fraction
from typing import Final

from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import ResourceList, max_of
from webhook.quota.charging.deferral import DeferredQuota, deferred_part
from webhook.quota.charging.pod_usage import charged_to, is_quota_eligible
from webhook.quota.charging.scopes import ScopeError, matches
from webhook.quota.explaining.facts import NamespaceFacts, PodFacts
from webhook.quota.explaining.values import Consumer, ConsumerState
from webhook.quota.objects.model import Pod

_MOST: Final = 10
_ORDINARY: Final = frozenset(
    {ConsumerState.RUNNING, ConsumerState.STARTING, ConsumerState.NAMESPACE}
)


def consumers(there: NamespaceFacts, wanted: Mapping[str, Set[str]]) -> tuple[Consumer, ...]:
    """Return those that take most, the largest share of a limit first.

    The ten largest, and as many more that are terminating, on a node that is gone, or reserved.

    Args:
        there: The namespace.
        wanted: Quota → the resources that matter.
    """
    criteria = there.criteria
    quotas = [] if criteria is None else [q for q in criteria.quotas.quotas if q.name in wanted]
    found = [*_pods(there, quotas, wanted), *_namespaces(there, wanted)]
    hard = {key: amount for quota in quotas for key, amount in quota.hard.items()}
    found.sort(key=lambda one: (-_share(one.amounts, hard), one.pod))
    first, rest = found[:_MOST], found[_MOST:]
    special = [one for one in rest if one.state not in _ORDINARY]
    return (*first, *special[:_MOST])


def _pods(
    there: NamespaceFacts, quotas: list[DeferredQuota], wanted: Mapping[str, Set[str]]
) -> Iterator[Consumer]:
    for one in there.pods:
        state = _state(one, there)
        if state is None:
            continue
        keys: set[str] = set()
        for quota in quotas:
            if _selects(quota, one.pod):
                keys |= wanted[quota.name]
        usage = {**charged_to(one.pod)}
        if one.pod.resize_infeasible:
            usage = {**max_of(usage, charged_to(replace(one.pod, resize_infeasible=False)))}
        amounts = {key: amount for key, amount in deferred_part(usage, keys).items() if amount.sign}
        if amounts:
            yield Consumer(there.name, one.pod.name, amounts, state)


def _state(one: PodFacts, there: NamespaceFacts) -> ConsumerState | None:
    """Return the state of a pod that takes of quotas; None of one that does not."""
    pod = one.pod
    if not pod.is_assigned:
        is_held = there.ledger is not None and there.ledger.is_reserved(pod.uid)
        return ConsumerState.RESERVED if is_held else None
    holds = there.criteria is not None and there.criteria.quotas.holds_terminating
    if not is_quota_eligible(pod, now=None if holds else there.now):
        return None
    if there.node_names is not None and pod.node_name not in there.node_names:
        return ConsumerState.NODE_GONE
    if pod.is_deleting:
        return ConsumerState.TERMINATING
    return ConsumerState.RUNNING if pod.phase == "Running" else ConsumerState.STARTING


def _selects(quota: DeferredQuota, pod: Pod) -> bool:
    try:
        return matches(quota.quota, pod)
    except ScopeError:
        return False


def _namespaces(there: NamespaceFacts, wanted: Mapping[str, Set[str]]) -> Iterator[Consumer]:
    for quota, holdings in there.holdings.items():
        for namespace, held in holdings.items():
            keys = wanted.get(quota, frozenset())
            amounts = {key: held[key] for key in sorted(keys) if held.get(key, ZERO) > ZERO}
            if amounts:
                yield Consumer(namespace, "", amounts, ConsumerState.NAMESPACE)


def _share(amounts: ResourceList, hard: ResourceList) -> Fraction:
    shares = [
        Fraction(amount.nano, max(hard[key].nano, 1))
        for key, amount in amounts.items()
        if key in hard
    ]
    return max(shares, default=Fraction(0))
