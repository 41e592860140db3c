"""Resources that may only be used where a quota covers them (`limitedResources`).

Two kinds of rules, which know nothing of each other:

1. `matchContains`: a usage key with one of these substrings has to be limited by a quota that
   matches the pod. Entries for other resources than pods do not count.
2. `matchScopes`: a pod in one of these scopes needs a quota with a matching expression of the
   same scope, by name: the quota may limit anything and need not match the pod otherwise.
   Entries count whatever resource they name.

Beside these, `require_quota_for_priority` is the second rule as it was meant.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go
limitedByDefault and getMatchedLimitedScopes; pkg/quota/v1/evaluator/core/pods.go
UncoveredQuotaScopes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from webhook.jsonfields.fields import InvalidFieldError, child, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.resources import ResourceList
from webhook.quota.charging.denials import FORBIDDEN, UncoveredScopes
from webhook.quota.charging.scope_validation import read_expressions, read_legal_expressions
from webhook.quota.charging.scopes import (
    ScopeError,
    matches,
    matching_expressions,
    quota_matching_expressions,
)
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import is_pod_quota_key

_FIELDS: Final = frozenset({"apiGroup", "resource", "matchContains", "matchScopes"})

Coverage = Literal["matching", "platform"]
"""Which quotas cover a scope: those that limit the pod, or as the platform counts them."""


@dataclass(frozen=True, slots=True)
class LimitedResource:
    """An entry of `limitedResources`, as in the API server's ResourceQuotaConfiguration."""

    resource: str
    """Plural name, such as `pods`."""
    api_group: str = ""
    """Empty is the core group."""
    match_contains: tuple[str, ...] = ()
    """Substrings of usage keys; the empty one is in all of them."""
    match_scopes: tuple[ScopeExpression, ...] = ()

    @property
    def is_about_pods(self) -> bool:
        """Return whether the entry is for pods."""
        return self.resource == "pods" and self.api_group == ""

    @classmethod
    def from_object(
        cls, raw: Mapping[str, object], *, field: str = "", strict: bool = False
    ) -> LimitedResource:
        """Read an entry.

        Args:
            raw: The decoded entry.
            field: Its YAML path, for messages.
            strict: Refuse what the API server takes and then, at the first pod it concerns,
                gives up on all quotas for: an expression that cannot be evaluated. Also
                unknown fields, an entry without a resource, and substrings of what is no pod:
                those would not be looked at.

        Raises:
            InvalidFieldError: A field has the wrong type or, when strict, is not legal.
        """
        members = mapping(raw, field)
        node = FieldReader(members, field)
        path = child(field, "matchScopes")
        read = read_legal_expressions if strict else read_expressions
        entry = cls(
            resource=node.text("resource"),
            api_group=node.text("apiGroup"),
            match_contains=node.strings("matchContains"),
            match_scopes=read(members.get("matchScopes"), path),
        )
        if strict:
            _require_known_fields(members, field)
            _require_resource(entry, field)
            _require_pods(entry, field)
        return entry


def limited_keys(limited: Iterable[LimitedResource], usage: ResourceList) -> frozenset[str]:
    """Return the keys of a pod's usage that a matching quota has to limit.

    Amounts of zero need no quota.
    """
    parts = [part for entry in limited if entry.is_about_pods for part in entry.match_contains]
    return frozenset(
        key
        for key, amount in usage.items()
        if amount.sign > 0 and any(part in key for part in parts)
    )


def may_limit_other_names(limited: Iterable[LimitedResource], usage: ResourceList) -> bool:
    """Return whether some entry may be about resources whose names are not in a pod's usage."""
    return any(
        part not in usage
        for entry in limited
        if entry.is_about_pods
        for part in entry.match_contains
    )


def limited_scopes(limited: Iterable[LimitedResource], pod: Pod) -> tuple[ScopeExpression, ...]:
    """Return the expressions of all entries that match a pod, in their order.

    Raises:
        ScopeError: An expression cannot be evaluated.
    """
    return tuple(
        expression
        for entry in limited
        for expression in matching_expressions(entry.match_scopes, pod)
    )


def uncovered(
    required: Iterable[ScopeExpression], covering: Iterable[str]
) -> tuple[ScopeExpression, ...]:
    """Return the expressions whose scope is not among the names `covering`, in their order."""
    names = frozenset(covering)
    return tuple(expression for expression in required if expression.scope_name not in names)


def require_quota_for_priority(
    pod: Pod,
    quotas: Iterable[ResourceQuota],
    expressions: tuple[ScopeExpression, ...],
    *,
    coverage: Coverage = "matching",
) -> UncoveredScopes | None:
    """Refuse a pod in a priority class for which its namespace has no quota.

    Args:
        pod: The pod, assigned or not.
        quotas: All quotas of its namespace. One that cannot be evaluated covers nothing.
        expressions: Which pods need a quota, such as PriorityClass Exists; legal ones, as
            `scope_validation.read_legal_expressions` returns them.
        coverage: `matching`: a quota covers when it limits something of pods in `spec.hard`
            and all its scopes match. `platform`: when one expression does, whatever it limits.

    Returns:
        The expressions that match the pod and that no quota covers, as 403; or None.

    Raises:
        ScopeError: One of `expressions` cannot be evaluated.
    """
    required = matching_expressions(expressions, pod)
    if not required:
        return None
    names = [name for quota in quotas for name in _covered_scopes(quota, pod, coverage)]
    missing = uncovered(required, names)
    return UncoveredScopes(missing, code=FORBIDDEN) if missing else None


def _covered_scopes(quota: ResourceQuota, pod: Pod, coverage: Coverage) -> Iterator[str]:
    try:
        matched = quota_matching_expressions(quota, pod)
        if coverage == "matching" and not (_limits_pods(quota) and matches(quota, pod)):
            return
    except ScopeError:
        return
    for expression in matched:
        yield expression.scope_name


def _limits_pods(quota: ResourceQuota) -> bool:
    return any(is_pod_quota_key(key) for key in quota.hard)


def _require_known_fields(raw: Mapping[str, object], field: str) -> None:
    for name in raw:
        if name not in _FIELDS:
            raise InvalidFieldError(child(field, name), "unknown field")


def _require_resource(entry: LimitedResource, field: str) -> None:
    if not entry.resource:
        raise InvalidFieldError(child(field, "resource"), "must name a resource, such as pods")


def _require_pods(entry: LimitedResource, field: str) -> None:
    if entry.match_contains and not entry.is_about_pods:
        named = f"{entry.api_group}/{entry.resource}".removeprefix("/")
        raise InvalidFieldError(
            child(field, "resource"),
            f"must be pods, without apiGroup, where matchContains is given, not {named}:"
            " nothing else is judged here; leave it to the API server's own configuration",
        )
