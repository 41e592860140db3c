"""ResourceQuotas as the proposal "Priority in ResourceQuota" of 2017 wrote them, as of today.

That proposal gave the spec a list of names of priority classes, `priorityClassNameList`. What came
instead is the scope selector. The list says the same as an expression of scope PriorityClass:

| list | today |
| --- | --- |
| names | In, with these values |
| `*`, alone or among names: any class | Exists |
| absent or empty: pods without a class | nothing, which selects all pods: the meaning has changed |

A list beside scopes or a selector narrows them, as expressions do that stand together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.jsonfields.fields import (
    InvalidFieldError,
    InvalidFieldsError,
    child,
    key,
    mapping,
    refuse,
    sequence,
    text,
)
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.scope_validation import may_limit, read_expressions
from webhook.quota.charging.scopes import EXISTS, PRIORITY_CLASS
from webhook.quota.objects.names import is_pod_quota_key, label_value_error
from webhook.quota.objects.quota_validation import quota_errors

LIST_FIELD: Final = "priorityClassNameList"
_SPELLINGS: Final = (LIST_FIELD, "PriorityClassNameList")
"""As the API would have had it, and as the proposal's Go type has it."""

_ANY_CLASS: Final = "*"
_CHANGED_MEANING: Final = (
    "is absent: as proposed, such a quota counts only pods without a priority class, but today it"
    " counts all pods; for those without one add a scopeSelector with PriorityClass DoesNotExist"
)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A quota of today."""

    quota: Mapping[str, object]
    """The object; the very same one where there was nothing to convert."""
    warnings: tuple[tuple[str, str], ...] = ()
    """YAML path of a field, and how its meaning has changed."""
    has_list: bool = False
    """Whether the quota was given with a list. Where no quota is, the author has not written them
    for the proposal, and the warnings are about nothing."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """YAML path of a value → path of what it was before."""


def is_resource_quota(raw: Mapping[str, object]) -> bool:
    """Return whether an object is a ResourceQuota of the core API."""
    return raw.get("apiVersion") == "v1" and raw.get("kind") == "ResourceQuota"


def convert_class_list(raw: Mapping[str, object], *, field: str = "") -> Conversion:
    """Turn the list of priority classes of a ResourceQuota into an expression.

    A quota without list stays as it is. There is a warning if it limits anything of pods and says
    nothing of classes.

    Args:
        field: Its YAML path, for errors.

    Raises:
        InvalidFieldError: The spec or its list cannot be read, names are not such as an expression
            can hold, or the converted quota is not one that can be stored: `InvalidFieldsError`
            has all that is wrong.
    """
    path = child(field, "spec")
    spec = mapping(raw.get("spec"), path)
    given = [name for name in _SPELLINGS if name in spec]
    if len(given) > 1:
        raise InvalidFieldError(child(path, given[1]), f"is the same as {given[0]}, give one")
    list_field = given[0] if given else LIST_FIELD
    names = _names(spec.get(list_field), child(path, list_field))
    rest = {name: value for name, value in spec.items() if name != list_field}
    if not names:
        kept = {**raw, "spec": rest} if given else raw
        return Conversion(kept, tuple(_warnings(rest, path)), has_list=bool(given))
    if errors := [*_name_errors(names, child(path, list_field)), *_uncountable(spec, path)]:
        raise InvalidFieldsError(errors)
    expression = _expression(names)
    converted = {**raw, "spec": {**rest, "scopeSelector": _selector(spec, expression, path)}}
    refuse(quota_errors(converted), lambda at: child(field, at))
    moved = {} if "scopeSelector" in spec else {_place(expression, path): child(path, list_field)}
    return Conversion(converted, has_list=True, moved=moved)


def _names(raw: object, path: str) -> tuple[str, ...]:
    """Read the list, each name once, in its order."""
    names = [text(name, f"{path}[{index}]") for index, name in enumerate(sequence(raw, path))]
    return tuple(dict.fromkeys(names))


def _name_errors(names: tuple[str, ...], path: str) -> Iterator[InvalidFieldError]:
    for index, name in enumerate(() if _ANY_CLASS in names else names):
        error = label_value_error(name) if name else "must name a priority class"
        if error:
            yield InvalidFieldError(f"{path}[{index}]", error)


def _expression(names: tuple[str, ...]) -> Mapping[str, object]:
    if _ANY_CLASS in names:
        return {"scopeName": PRIORITY_CLASS, "operator": EXISTS}
    return {"scopeName": PRIORITY_CLASS, "operator": "In", "values": list(names)}


def _place(expression: Mapping[str, object], path: str) -> str:
    """Return the path of what becomes of the list in a selector with one expression."""
    selector = child(path, "scopeSelector")
    return f"{selector}.matchExpressions[0].values" if "values" in expression else selector


def _selector(
    spec: Mapping[str, object], expression: Mapping[str, object], path: str
) -> Mapping[str, object]:
    """Return the selector with one more expression, unless it has that already."""
    here = child(path, "scopeSelector")
    selector = mapping(spec.get("scopeSelector"), here)
    expressions = sequence(selector.get("matchExpressions"), child(here, "matchExpressions"))
    more = [] if expression in expressions else [expression]
    return {**selector, "matchExpressions": [*expressions, *more]}


def _uncountable(spec: Mapping[str, object], path: str) -> Iterator[InvalidFieldError]:
    """Yield the keys that a quota for priority classes may not limit today."""
    here = child(path, "hard")
    for name in mapping(spec.get("hard"), here):
        if not may_limit(PRIORITY_CLASS, name):
            yield InvalidFieldError(
                key(here, name),
                "cannot be limited for priority classes; limit it in a quota of its own",
            )


def _warnings(spec: Mapping[str, object], path: str) -> Iterator[tuple[str, str]]:
    limits_pods = any(map(is_pod_quota_key, mapping(spec.get("hard"), child(path, "hard"))))
    if limits_pods and PRIORITY_CLASS not in _scopes(spec, path):
        yield child(path, LIST_FIELD), _CHANGED_MEANING


def _scopes(spec: Mapping[str, object], path: str) -> set[str]:
    """Return the names of all scopes of a quota, under `scopes` and in its selector."""
    here = child(path, "scopeSelector")
    raw = mapping(spec.get("scopeSelector"), here).get("matchExpressions")
    expressions = read_expressions(raw, child(here, "matchExpressions"))
    return {*FieldReader(spec, path).strings("scopes"), *(each.scope_name for each in expressions)}
