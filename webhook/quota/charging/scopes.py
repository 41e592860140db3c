"""Scopes of a quota: the pods that its scopes and its scope selector match.

Laws:

1. A pod has to match every scope and every expression; without any, all pods match.
2. A name under `spec.scopes` means the operator Exists.
3. PriorityClass looks at the name of the class only, never at the integer. No name is no
   label: NotIn and DoesNotExist match it, In and Exists do not.
4. Other scopes ignore the operator. VolumeAttributesClass, like any scope that is not about
   pods, matches none.
5. An expression that cannot be evaluated is an error for every pod, even for one that another
   expression of the same quota rules out.

Whether a quota limits anything that pods use is not asked here.

Source: kubernetes v1.36, pkg/quota/v1/evaluator/core/pods.go podMatchesScopeFunc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.amounts.go_format import expression_text, json_text, quoted
from webhook.quota.objects.model import Pod, ResourceQuota, ScopeExpression
from webhook.quota.objects.names import label_value_error
from webhook.quota.objects.qos import effective_qos_class

PRIORITY_CLASS: Final = "PriorityClass"
BEST_EFFORT: Final = "BestEffort"
EXISTS: Final = "Exists"
_SELECTOR: Final = "spec.scopeSelector.matchExpressions"

_Rule: TypeAlias = Callable[[Pod], bool]


class ScopeError(InvalidFieldError):
    """A scope expression cannot be evaluated.

    Attributes:
        expression: The expression.
        detail: What is wrong with it, in the API server's words.
    """

    def __init__(self, expression: ScopeExpression, detail: str, *, field: str = "") -> None:
        super().__init__(field, detail)
        self.expression = expression

    def __str__(self) -> str:
        return f"error on matching scope {expression_text(self.expression)}: {self.detail}"


def matches(quota: ResourceQuota, pod: Pod) -> bool:
    """Return whether the scopes of a quota select a pod.

    Raises:
        ScopeError: The quota has an expression that cannot be evaluated.
    """
    if not quota.scopes and not quota.expressions:
        return True
    compiled = quota.compiled(_compile_quota)
    compiled.check(_SELECTOR)
    for rule in compiled.merged:  # noqa: SIM110 - twice as fast as all()
        if not rule(pod):
            return False
    return True


def is_evaluable(quota: ResourceQuota) -> bool:
    """Return whether `matches` raises no error for pods."""
    return not quota.expressions or quota.compiled(_compile_quota).fault is None


def quota_matching_expressions(quota: ResourceQuota, pod: Pod) -> tuple[ScopeExpression, ...]:
    """Return the scopes, as expressions, and the expressions of a quota that match a pod.

    Raises:
        ScopeError: The quota has an expression that cannot be evaluated.
    """
    rules = quota.compiled(_compile_quota).rules(_SELECTOR)
    return tuple(expression for expression, rule in rules if rule(pod))


def matching_expressions(
    expressions: tuple[ScopeExpression, ...], pod: Pod
) -> tuple[ScopeExpression, ...]:
    """Return the expressions of `matchScopes` that match a pod, in their order.

    Raises:
        ScopeError: An expression cannot be evaluated, whether or not an earlier one matches.
    """
    rules = _compile_configured(expressions).rules("matchScopes")
    return tuple(expression for expression, rule in rules if rule(pod))


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod has a deadline; zero is one. Deletion has nothing to do with it."""
    deadline = pod.active_deadline_seconds
    return deadline is not None and deadline >= 0


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Expressions with the rule of each; `fault` is the first that has none, and why."""

    pairs: tuple[tuple[ScopeExpression, _Rule], ...]
    fault: tuple[int, ScopeExpression, str] | None = None
    merged: tuple[_Rule, ...] = ()
    """Of a quota: few rules that hold together where those of all its expressions do."""

    def check(self, field: str) -> None:
        """Raise ScopeError when there is a fault in the list at `field`."""
        if self.fault is not None:
            index, expression, detail = self.fault
            raise ScopeError(expression, detail, field=f"{field}[{index}]")

    def rules(self, field: str) -> tuple[tuple[ScopeExpression, _Rule], ...]:
        """Return the pairs, or raise ScopeError as `check` does."""
        self.check(field)
        return self.pairs


@lru_cache(maxsize=64)
def _compile_configured(expressions: tuple[ScopeExpression, ...]) -> _Compiled:
    return _compile((), expressions)


def _compile_quota(quota: ResourceQuota) -> _Compiled:
    found = _compile(quota.scopes, quota.expressions)
    # the API server stores one expression a thousand times
    rules = dict(found.pairs)
    return replace(found, pairs=tuple(rules.items()), merged=_merged(rules))


def _compile(scopes: tuple[str, ...], expressions: tuple[ScopeExpression, ...]) -> _Compiled:
    pairs = [(each, _rule(each)) for each in (ScopeExpression(name, EXISTS) for name in scopes)]
    for index, expression in enumerate(expressions):
        detail = _fault(expression)
        if detail:
            return _Compiled((), (index, expression, detail))
        pairs.append((expression, _rule(expression)))
    return _Compiled(tuple(pairs))


def _is_best_effort(pod: Pod) -> bool:
    return effective_qos_class(pod) == BEST_EFFORT


_RULES: Final[Mapping[str, _Rule]] = {
    "Terminating": is_terminating,
    "NotTerminating": lambda pod: not is_terminating(pod),
    BEST_EFFORT: _is_best_effort,
    "NotBestEffort": lambda pod: not _is_best_effort(pod),
    "CrossNamespacePodAffinity": lambda pod: pod.cross_namespace_affinity,
}

_NO_CLASS: Final = frozenset({""})

_CLASS_NAMES: Final[Mapping[str, Callable[[frozenset[str]], tuple[bool, frozenset[str]]]]] = {
    "In": lambda values: (True, values),
    "NotIn": lambda values: (False, values),
    EXISTS: lambda _values: (False, _NO_CLASS),
    "DoesNotExist": lambda _values: (True, _NO_CLASS),
}
"""Operator → of its values, the names that match, or (False) those that do not."""


def _rule(expression: ScopeExpression) -> _Rule:
    if expression.scope_name == PRIORITY_CLASS:
        return _class_rule([expression])
    return _RULES.get(expression.scope_name, _matches_none)


def _matches_none(_pod: Pod) -> bool:
    return False


def _class_rule(expressions: Iterable[ScopeExpression]) -> _Rule:
    """Return one rule for expressions on the class; their number makes no pod slower to match."""
    matching: list[frozenset[str]] = []
    ruled_out: set[str] = set()
    for expression in expressions:
        # a pod without a class must not be taken for one of class ""
        values = frozenset(expression.values) - _NO_CLASS
        is_match, names = _CLASS_NAMES[expression.operator](values)
        if is_match:
            matching.append(names)
        else:
            ruled_out |= names
    others = frozenset(ruled_out)
    if not matching:
        return lambda pod: pod.priority_class_name not in others
    common = frozenset.intersection(*matching) - others
    return lambda pod: pod.priority_class_name in common


def _merged(rules: Mapping[ScopeExpression, _Rule]) -> tuple[_Rule, ...]:
    """Return rules that hold together where all of these do: at most one for each scope name.

    Tenants write hundreds of expressions, and counting a pod matches it against each of its
    namespace's quotas, for which the pods of all others wait.
    """
    on_class = [expression for expression in rules if expression.scope_name == PRIORITY_CLASS]
    # other scopes ignore the operator, so those of one name have the same rule
    merged = dict.fromkeys(
        rule for expression, rule in rules.items() if expression.scope_name != PRIORITY_CLASS
    )
    return (*merged, *([_class_rule(on_class)] if on_class else []))


def _fault(expression: ScopeExpression) -> str:
    """Return why an expression cannot be evaluated, or nothing.

    Only PriorityClass expressions are ever looked at, and Exists is taken without a look.

    Source: kubernetes v1.36, pkg/apis/core/v1/helper/helpers.go
    ScopedResourceSelectorRequirementsAsSelector, and apimachinery/pkg/labels/selector.go
    NewRequirement.
    """
    if expression.scope_name != PRIORITY_CLASS or expression.operator == EXISTS:
        return ""
    if expression.operator not in _CLASS_NAMES:
        found = f"{quoted(expression.operator)} is not a valid scope selector operator"
    else:
        found = _joined_faults((*_count_faults(expression), *_value_faults(expression)))
    return f"failed to parse and convert selector: {found}" if found else ""


def _count_faults(expression: ScopeExpression) -> tuple[str, ...]:
    if expression.operator == "DoesNotExist":
        if not expression.values:
            return ()
        listed = json_text(expression.values)
        rule = "values set must be empty for exists and does not exist"
        return (f"values: Invalid value: {listed}: {rule}",)
    if expression.values:
        return ()
    return ("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",)


def _value_faults(expression: ScopeExpression) -> tuple[str, ...]:
    return tuple(
        f"values[{index}][{PRIORITY_CLASS}]: Invalid value: {quoted(value)}: {error}"
        for index, value in enumerate(expression.values)
        if (error := label_value_error(value))
    )


def _joined_faults(faults: tuple[str, ...]) -> str:
    return faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]" if faults else ""
