"""Coverage: what a pod may take or be only where there is a quota for it, whatever its amounts.

Three rules, in the order of the API server, the third being ours; each gives one refusal, which
names all that it finds missing:

1. `limitedResources.matchContains`: keys that a quota which selects the pod has to limit. A
   deferred key is asked about where the pod is charged for it, any other when the pod is created.
2. `limitedResources.matchScopes`: scopes that some quota has to have an expression of.
3. `requireQuotaForPriority`: the second as it was meant, see
   `limited_resources.require_quota_for_priority`.

Ceilings are those of `spec.hard`, because `status.hard` has the deferred resources hidden. Quotas
that their owner leaves to the API server cover like any other: they are enforced.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go CheckRequest.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

from webhook.quota.amounts.resources import excess
from webhook.quota.charging.deferral import QuotaScopeError, deferred_part, selects
from webhook.quota.charging.denials import FORBIDDEN, InsufficientQuota, UncoveredScopes
from webhook.quota.charging.limited_resources import (
    Coverage,
    LimitedResource,
    limited_keys,
    limited_scopes,
    require_quota_for_priority,
    uncovered,
)
from webhook.quota.charging.pod_usage import charged_to, usage_of
from webhook.quota.charging.scopes import ScopeError, quota_matching_expressions
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import is_pod_quota_key

Uncovered: TypeAlias = InsufficientQuota | UncoveredScopes


@dataclass(frozen=True, slots=True)
class CoverageRules:
    """Rules by which something needs a quota; `CoverageRules()` has none."""

    limited: tuple[LimitedResource, ...] = ()
    """Entries of `limitedResources`, legal ones."""
    required: tuple[ScopeExpression, ...] = ()
    """Expressions of `requireQuotaForPriority`, legal ones."""
    coverage: Coverage = "matching"
    """Which quotas `required` is content with."""


def uncovered_creation(
    pod: Pod, quotas: Iterable[ResourceQuota], rules: CoverageRules, deferred: Set[str]
) -> Uncovered | None:
    """Refuse a new pod that waits for a node; as the other two, 403 in the API server's words.

    Args:
        quotas: All quotas of its namespace.
        rules: What needs a quota.
        deferred: Keys that are asked about later, when the pod is given its node.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
        ScopeError: One of the rules cannot be evaluated.
    """
    return _uncovered(pod, tuple(quotas), rules, usage_of(pod, now=None).keys() - deferred)


def uncovered_assignment(
    pod: Pod, quotas: Iterable[ResourceQuota], rules: CoverageRules
) -> Uncovered | None:
    """Refuse a pod that is given its node, at its creation or later.

    Everything is asked about, also what was when the pod was created: it may have been created
    unasked.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
        ScopeError: One of the rules cannot be evaluated.
    """
    return _uncovered(pod, tuple(quotas), rules, usage_of(pod, now=None).keys())


def uncovered_growth(
    old: Pod,
    new: Pod,
    quotas: Iterable[ResourceQuota],
    rules: CoverageRules,
    deferred: Set[str],
) -> Uncovered | None:
    """Refuse a change of a pod that has a node, if it is charged anything for it.

    All deferred keys that the pod then takes are asked about, grown or not, as the API server
    asks. A pod that takes no more, in no quota that it was not in, is left alone.

    Raises:
        QuotaScopeError: A quota's scopes cannot be evaluated.
        ScopeError: One of the rules cannot be evaluated.
    """
    if not (old.is_assigned and (rules.limited or rules.required)):
        return None
    # a verdict that a former resize cannot be granted says nothing of this one
    pod = replace(new, resize_infeasible=False)
    every = tuple(quotas)
    usage = deferred_part(charged_to(pod), deferred)
    grows = excess(usage, deferred_part(charged_to(old), deferred))
    if not grows and not any(_moves_into(quota, old, pod) for quota in every):
        return None
    return _uncovered(pod, every, rules, usage.keys())


def _uncovered(
    pod: Pod, quotas: tuple[ResourceQuota, ...], rules: CoverageRules, keys: Set[str]
) -> Uncovered | None:
    if rules.limited:
        found = _uncovered_keys(pod, quotas, rules, keys) or _uncovered_scopes(pod, quotas, rules)
        if found is not None:
            return found
    return require_quota_for_priority(pod, quotas, rules.required, coverage=rules.coverage)


def _uncovered_keys(
    pod: Pod, quotas: tuple[ResourceQuota, ...], rules: CoverageRules, keys: Set[str]
) -> InsufficientQuota | None:
    needed = limited_keys(rules.limited, usage_of(pod, now=None)) & keys
    if not needed:
        return None
    covering = [quota for quota in quotas if selects(quota, pod)]
    missing = needed.difference(*(quota.hard for quota in covering))
    return InsufficientQuota(tuple(sorted(missing))) if missing else None


def _uncovered_scopes(
    pod: Pod, quotas: tuple[ResourceQuota, ...], rules: CoverageRules
) -> UncoveredScopes | None:
    needed = limited_scopes(rules.limited, pod)
    if not needed:
        return None
    covering = [one.scope_name for quota in quotas for one in _matching_expressions(quota, pod)]
    missing = uncovered(needed, covering)
    return UncoveredScopes(missing, code=FORBIDDEN) if missing else None


def _moves_into(quota: ResourceQuota, old: Pod, new: Pod) -> bool:
    """Return whether a quota that limits something of pods selects a pod only from now on."""
    limits_pods = any(map(is_pod_quota_key, quota.hard))
    return limits_pods and selects(quota, new) and not selects(quota, old)


def _matching_expressions(quota: ResourceQuota, pod: Pod) -> tuple[ScopeExpression, ...]:
    try:
        return quota_matching_expressions(quota, pod)
    except ScopeError as err:
        raise QuotaScopeError(quota.name, err) from err
