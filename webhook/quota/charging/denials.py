"""Reasons of refusals, as data that prints in the API server's words.

A refusal is a value, never an exception. Each kind gives:

- `message`: the sentence, without the `pods "name" is forbidden: ` in front of it, which the
  API server adds on its own to what a webhook says;
- `code` and `reason`: the HTTP status and the Status reason the platform answers with;
- `causes`: the same facts for machines, one entry per key.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go
CheckRequest, and pkg/quota/v1/evaluator/core/pods.go Constraints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from webhook.quota.amounts.go_format import expression_text
from webhook.quota.amounts.resources import render
from webhook.quota.charging.constraints import constraint_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.quota.amounts.resources import ResourceList
    from webhook.quota.objects.model import ScopeExpression

_POOL: Final = re.compile(r"cdq/epool\.([^.]+)(?:\.[0-9a-f]{8})?")
_ELASTIC: Final = re.compile(r"cdq/(c?eq)\.([^.]+)\.(.+)")
"""Quotas by which elastic quotas are charged (`elastic.derived_quotas`)."""
_GPU_MEMORY: Final = re.compile(r"(nos\.nebuly\.com/gpu-memory)\.\d+gb")

FORBIDDEN: Final = 403
_NAMED_BORROWERS: Final = 8
SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True)
class QuotaName:
    """Names of a quota, its limit and its resources in messages."""

    text: str
    """Such as `quota team-a`, `elastic pool default`, `elastic quota eq/team-a`."""
    limit: str
    """What its limit is called: `limited`, `size`, `max`."""
    is_elastic: bool = False
    """Whether it charges an elastic quota."""

    @property
    def is_pool(self) -> bool:
        """Return whether it is what elastic quotas share."""
        return self.limit == "size"

    def resource(self, key: str) -> str:
        """Return the name of a quota key: elastic quotas name resources."""
        if not self.is_elastic:
            return key
        return _GPU_MEMORY.sub(r"\1", key.removeprefix("requests."))


def name_quota(quota: str) -> QuotaName:
    """Return what people call a quota of this name in ledgers."""
    if (pool := _POOL.fullmatch(quota)) is not None:
        return QuotaName(f"elastic pool {pool[1]}", "size", is_elastic=True)
    if (elastic := _ELASTIC.fullmatch(quota)) is not None:
        kind, namespace, own = elastic.groups()
        name = f"ceq/{namespace}/{own}" if kind == "ceq" else f"eq/{own}"
        return QuotaName(f"elastic quota {name}", "max", is_elastic=True)
    return QuotaName(f"quota {quota}", "limited")


@dataclass(frozen=True, slots=True)
class Cause:
    """One fact of a refusal, in the shape of a Status cause."""

    reason: str
    field: str
    message: str


class _Refusing:
    """Base of all refusals."""

    __slots__ = ()
    code: int

    @property
    def reason(self) -> str:
        """Return the Status reason; empty for the platform's 500."""
        return "Forbidden" if self.code == FORBIDDEN else ""


@dataclass(frozen=True, slots=True)
class QuotaExceeded(_Refusing):
    """A request that would lift `used` above `limited`; the three lists hold the same keys.

    Only keys that are exceeded are named.
    """

    quota: str
    requested: ResourceList
    used: ResourceList
    limited: ResourceList
    code: int = FORBIDDEN
    borrowed: tuple[tuple[str, ResourceList], ...] = ()
    """Of a pool, which namespaces use more than their min of what is short, and how much more."""

    @property
    def is_of_pool(self) -> bool:
        """Return whether it is the pool of elastic quotas that has too little."""
        return name_quota(self.quota).is_pool

    @property
    def message(self) -> str:
        """Return which quota, and for each key what is asked, what is used and what is allowed."""
        quota = name_quota(self.quota)
        said = f"exceeded {quota.text.replace('quota ', 'quota: ', 1)}"
        if quota.is_pool:
            said = f"{quota.text} is used up"
        lists = (
            ("requested", self.requested),
            ("used", self.used),
            (quota.limit, self.limited),
        )
        amounts = [
            f"{word}: {render({quota.resource(key): each[key] for key in each})}"
            for word, each in lists
        ]
        return ", ".join((said, *amounts)) + self._borrowers(quota)

    def _borrowers(self, quota: QuotaName) -> str:
        if not self.borrowed:
            return ""
        named = [
            f"{names} {render({quota.resource(key): above[key] for key in above})}"
            for names, above in self.borrowed[:_NAMED_BORROWERS]
        ]
        more = len(self.borrowed) - len(named)
        return f"; borrowed: {', '.join([*named, *([f'and {more} more'] if more else [])])}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per exceeded key, sorted by key."""
        return tuple(
            Cause(
                "QuotaExceeded",
                f"{self.quota}/{key}",
                f"requested={self.requested[key]},used={self.used[key]},limited={self.limited[key]}",
            )
            for key in sorted(self.requested)
        )


@dataclass(frozen=True, slots=True)
class MustSpecify(_Refusing):
    """A quota counts amounts that some containers do not state: key → container names."""

    quota: str
    missing: Mapping[str, tuple[str, ...]]
    code: int = FORBIDDEN

    @property
    def message(self) -> str:
        """Return which key is missing in which containers."""
        return f"failed quota: {self.quota}: {constraint_text(self.missing)}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per missing key, sorted by key."""
        return tuple(
            Cause(
                "MustSpecify",
                f"{self.quota}/{key}",
                constraint_text({key: self.missing[key]}),
            )
            for key in sorted(self.missing)
        )


@dataclass(frozen=True, slots=True)
class StatusUnknown(_Refusing):
    """A quota limits keys whose use is not counted yet; `keys` are all it limits of pods."""

    quota: str
    keys: tuple[str, ...]
    code: int = FORBIDDEN

    @property
    def message(self) -> str:
        """Return which quota is not counted yet, and over which keys."""
        return f"status unknown for quota: {self.quota}, resources: {_joined(self.keys)}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per key, sorted by key."""
        return tuple(
            Cause("StatusUnknown", f"{self.quota}/{key}", "usage is not counted yet")
            for key in sorted(self.keys)
        )


@dataclass(frozen=True, slots=True)
class InsufficientQuota(_Refusing):
    """Keys that may only be used where a quota limits them, and no matching quota does."""

    keys: tuple[str, ...]
    code: int = FORBIDDEN

    @property
    def message(self) -> str:
        """Return which keys no quota covers."""
        return f"insufficient quota to consume: {_joined(self.keys)}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per key, sorted by key."""
        return tuple(
            Cause("InsufficientQuota", key, "no matching quota limits it")
            for key in sorted(self.keys)
        )


@dataclass(frozen=True, slots=True)
class UncoveredScopes(_Refusing):
    """Scopes a pod may only be in where a quota covers them, and none does.

    The API server answers this with 500 and no reason, which reads like an outage; a rule of
    ours that says the same gives `code=FORBIDDEN`.
    """

    expressions: tuple[ScopeExpression, ...]
    code: int = SERVER_ERROR

    @property
    def message(self) -> str:
        """Return which expressions no quota covers, in their order."""
        listed = " ".join(expression_text(each) for each in self.expressions)
        return f"insufficient quota to match these scopes: [{listed}]"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per expression, in their order."""
        return tuple(
            Cause("InsufficientQuota", each.scope_name, expression_text(each))
            for each in self.expressions
        )


@dataclass(frozen=True, slots=True)
class NegativeUsage(_Refusing):
    """A pod that would give quota back by asking for less than nothing."""

    keys: tuple[str, ...]
    code: int = FORBIDDEN

    @property
    def message(self) -> str:
        """Return which keys are negative."""
        return f"quota usage is negative for resource(s): {_joined(self.keys)}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return one cause per key, sorted by key."""
        return tuple(Cause("NegativeUsage", key, "usage is negative") for key in sorted(self.keys))


@dataclass(frozen=True, slots=True)
class ScopeFailure(_Refusing):
    """A quota whose scopes cannot be evaluated; at the platform it fails every pod created.

    `detail` is what was wrong with `expression`.
    """

    quota: str
    expression: ScopeExpression
    detail: str
    code: int = SERVER_ERROR

    @property
    def message(self) -> str:
        """Return which expression of which quota cannot be evaluated, and why."""
        return (
            f"error matching scopes of quota {self.quota}, err: error on matching scope "
            f"{expression_text(self.expression)}: {self.detail}"
        )

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Return the one cause there is."""
        return (Cause("InvalidScope", f"{self.quota}/{self.expression.scope_name}", self.detail),)


Refusal = (
    QuotaExceeded
    | MustSpecify
    | StatusUnknown
    | InsufficientQuota
    | UncoveredScopes
    | NegativeUsage
    | ScopeFailure
)


def full_message(refusal: Refusal, name: str) -> str:
    """Write the whole sentence the API server answers for the pod `name`.

    A refusal of code 403 gets the usual start; the platform's 500s stand bare.
    """
    if refusal.code != FORBIDDEN:
        return refusal.message
    return f'pods "{name}" is forbidden: {refusal.message}'


def _joined(keys: tuple[str, ...]) -> str:
    return ",".join(sorted(keys))
