"""Rules of the core as CEL expressions, with which the API server evaluates them itself.

The object is a pod without a node, as validating admission sees it: validated, defaulted, and with
the QoS class that storage will have. Source of the rules: the modules of `quota.charging`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from webhook.quota.charging.scopes import EXISTS, PRIORITY_CLASS
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.quota_bounds import MOST_TERMS

CONTAINERS: Final = "object.spec.containers + object.spec.?initContainers.orValue([])"
HAS_NO_NODE: Final = 'object.?spec.?nodeName.orValue("") == ""'

STATES_POD_LEVEL: Final = """\
[object.spec.?resources.?requests.orValue({}), object.spec.?resources.?limits.orValue({})].exists(
  amounts, amounts.exists(name, name in ['cpu', 'memory'] || name.startsWith('hugepages-')))"""
"""`constraints.states_pod_level`."""

_CLASS: Final = "object.?spec.?priorityClassName.orValue('')"
_HAS_DEADLINE: Final = "object.?spec.?activeDeadlineSeconds.orValue(-1) >= 0"
_IS_BEST_EFFORT: Final = "object.?status.?qosClass.orValue('') == 'BestEffort'"
MANY_ITEMS: Final = 256
"""A loop over a map or a list takes the API server time by the square of its size."""


def any_of(items: str, one: str, rule: str, *, of_many: str = "false") -> str:
    """Return whether a rule holds of one of some items that a client wrote.

    Args:
        items: A list or a map.
        one: The name by which the rule knows an item, or a key.
        rule: Whether it holds of it.
        of_many: What is the answer for more than `MANY_ITEMS`; they are known as `items` there.
    """
    return (
        f"[{items}].exists(items, items.size() > {MANY_ITEMS} ? {of_many}\n"
        f"    : items.exists({one}, {rule}))"
    )


_AFFINITIES: Final = (
    "[object.?spec.?affinity.?podAffinity, object.?spec.?affinity.?podAntiAffinity]"
)
_REQUIRED: Final = "kind.?requiredDuringSchedulingIgnoredDuringExecution.orValue([])"
_PREFERRED: Final = "kind.?preferredDuringSchedulingIgnoredDuringExecution.orValue([])"

HAS_MANY_TERMS: Final = f"""\
{_AFFINITIES}.exists(kind,
  {_REQUIRED}.size() > {MANY_ITEMS} || {_PREFERRED}.size() > {MANY_ITEMS})"""
"""Whether it is not known if the pod is in the scope CrossNamespacePodAffinity."""


def _reaches_out(of_many: str) -> str:
    """Return `Pod.cross_namespace_affinity`."""
    is_other = "{0}.?namespaces.orValue([]).size() > 0 || {0}.?namespaceSelector.hasValue()"
    of_required = any_of(_REQUIRED, "term", is_other.format("term"), of_many=of_many)
    term = "each.podAffinityTerm"
    of_preferred = any_of(_PREFERRED, "each", is_other.format(term), of_many=of_many)
    return f"""\
{_AFFINITIES}.exists(kind,
  {of_required}
  || {of_preferred})"""


SCOPES: Final[Mapping[str, str]] = {
    "Terminating": _HAS_DEADLINE,
    "NotTerminating": f"!({_HAS_DEADLINE})",
    "BestEffort": _IS_BEST_EFFORT,
    "NotBestEffort": f"!({_IS_BEST_EFFORT})",
    "CrossNamespacePodAffinity": _reaches_out(of_many="true"),
    PRIORITY_CLASS: f"{_CLASS} != ''",
}
"""Scope → whether the pod is in it, or may be, by the operator Exists."""

_IN_SCOPE: Final[Mapping[str, str]] = {
    **SCOPES,
    "CrossNamespacePodAffinity": "variables.reachesOut",
    PRIORITY_CLASS: "variables.priorityClass != ''",
}

SCOPE_VARIABLES: Final[Mapping[str, str]] = {
    "priorityClass": _CLASS,
    "reachesOut": _reaches_out(of_many="false"),
}
"""Variables that `selects_pod` reads: of a policy, they are evaluated once and where needed."""

# Class "" is no class: it is in no list of classes.
_SELECTS_CLASS: Final = """\
expression.operator == 'In'
    ? variables.priorityClass != ''
      && variables.priorityClass in expression.?values.orValue([]) :
  expression.operator == 'NotIn'
    ? variables.priorityClass == ''
      || !(variables.priorityClass in expression.?values.orValue([])) :
  expression.operator == 'Exists' ? variables.priorityClass != ''
    : variables.priorityClass == ''"""


def selects_pod(quota: str) -> str:
    """Return whether the scopes of a quota surely select the pod (`scopes.matches`).

    Those of a quota with more than `MOST_TERMS` of them are not looked at: nothing is bound then.

    Args:
        quota: The quota, as the expression that it is known by.
    """
    expressions = f"{quota}.spec.?scopeSelector.?matchExpressions.orValue([])"
    scopes = f"{quota}.spec.?scopes.orValue([])"
    names = (
        f"({scopes} + {expressions}.filter(expression,\n"
        f"  expression.scopeName != '{PRIORITY_CLASS}').map(expression, expression.scopeName))"
    )
    cases = "\n".join(f"  scope == '{scope}' ? {rule} :" for scope, rule in _IN_SCOPE.items())
    return f"""\
{scopes}.size() + {expressions}.size() > {MOST_TERMS} ? false :
{names}.all(scope,
{cases}
  false)
&& {expressions}.filter(expression,
  expression.scopeName == '{PRIORITY_CLASS}').all(expression,
  {_SELECTS_CLASS})"""


def matches_any(expressions: Iterable[ScopeExpression]) -> str:
    """Return whether the pod may match one of some legal expressions; `false` without any."""
    return " || ".join(f"({_matches(each)})" for each in expressions) or "false"


def cel_list(names: Sequence[str]) -> str:
    """Return names as a list in CEL, whatever is in them."""
    return f"[{', '.join(map(cel_text, names))}]"


def cel_text(name: str) -> str:
    """Return a name as text in CEL, whatever is in it."""
    inside = json.dumps(name, ensure_ascii=False)[1:-1].replace('\\"', '"')
    return "'" + inside.replace("'", "\\'") + "'"


def cel_truth(value: bool) -> str:
    """Return a truth value in CEL."""
    return "true" if value else "false"


def _matches(expression: ScopeExpression) -> str:
    """Return whether the pod matches an expression (`scopes.matching_expressions`)."""
    if expression.scope_name != PRIORITY_CLASS:
        return SCOPES.get(expression.scope_name, "false")
    classes = cel_list(sorted(set(expression.values) - {""}))
    return {
        "In": f"{_CLASS} in {classes}",
        "NotIn": f"!({_CLASS} in {classes})",
        EXISTS: f"{_CLASS} != ''",
        "DoesNotExist": f"{_CLASS} == ''",
    }[expression.operator]
