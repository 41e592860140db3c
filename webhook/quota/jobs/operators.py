"""Operators in what selects labels: of a Job's selector, and of nodes in its template.

What the API server says of an expression whose operator it does not know, or whose values do not
go with the operator. Keys and single values are left to it.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go ValidateNodeSelectorRequirement,
ValidatePreferredSchedulingTerms; apimachinery/pkg/apis/meta/v1/validation/validation.go
ValidateLabelSelectorRequirement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError, child, mapping, sequence, text

_Members: TypeAlias = Mapping[str, object]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SETS: Final = frozenset({"In", "NotIn"})
_PRESENCES: Final = frozenset({"Exists", "DoesNotExist"})
_COMPARISONS: Final = frozenset({"Gt", "Lt"})


def node_affinity_errors(pod: _Members, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with operators in the node affinity of a pod's spec at `field`.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    path = child(field, "affinity")
    affinity = mapping(pod.get("affinity"), path)
    path = child(path, "nodeAffinity")
    node = mapping(affinity.get("nodeAffinity"), path)
    required = mapping(node.get(_REQUIRED), child(path, _REQUIRED))
    terms = child(child(path, _REQUIRED), "nodeSelectorTerms")
    for index, term in enumerate(sequence(required.get("nodeSelectorTerms"), terms)):
        yield from _term_errors(term, f"{terms}[{index}]")
    preferred = child(path, _PREFERRED)
    for index, item in enumerate(sequence(node.get(_PREFERRED), preferred)):
        weighted = mapping(item, f"{preferred}[{index}]")
        yield from _term_errors(weighted.get("preference"), f"{preferred}[{index}].preference")


def label_selector_errors(selector: object, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with operators of a label selector.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    for expression, path in _expressions(selector, field, "matchExpressions"):
        yield from _requirement_errors(_operator(expression, path), _values(expression, path), path)


def _term_errors(term: object, field: str) -> Iterator[FieldError]:
    for expression, path in _expressions(term, field, "matchExpressions"):
        yield from _label_errors(_operator(expression, path), _values(expression, path), path)
    for expression, path in _expressions(term, field, "matchFields"):
        operator = _operator(expression, path)
        if operator not in _SETS:
            yield _unknown(operator, path)
        elif _values(expression, path) != 1:
            words = _with("'In' or 'NotIn'", "must be only one value")
            yield _required(f"{path}.values", f"{words} for node field selector")


def _label_errors(operator: str, values: int, path: str) -> Iterator[FieldError]:
    if operator in _COMPARISONS:
        if values != 1:
            words = _with("'Lt' or 'Gt'", "must be specified single value")
            yield _required(f"{path}.values", words)
    else:
        yield from _requirement_errors(operator, values, path)


def _requirement_errors(operator: str, values: int, path: str) -> Iterator[FieldError]:
    if operator in _SETS:
        if not values:
            yield _required(f"{path}.values", _with("'In' or 'NotIn'", "must be specified"))
    elif operator in _PRESENCES:
        if values:
            yield _forbidden(path)
    else:
        yield _unknown(operator, path)


def _expressions(holder: object, field: str, name: str) -> Iterator[tuple[_Members, str]]:
    path = child(field, name)
    items = sequence(mapping(holder, field).get(name), path)
    for index, item in enumerate(items):
        yield mapping(item, f"{path}[{index}]"), f"{path}[{index}]"


def _operator(expression: _Members, path: str) -> str:
    return text(expression.get("operator"), f"{path}.operator")


def _values(expression: _Members, path: str) -> int:
    return len(sequence(expression.get("values"), f"{path}.values"))


def _with(operators: str, words: str) -> str:
    return f"{words} when `operator` is {operators}"


def _required(field: str, detail: str) -> FieldError:
    return FieldError("FieldValueRequired", field, detail)


def _forbidden(path: str) -> FieldError:
    detail = _with("'Exists' or 'DoesNotExist'", "may not be specified")
    return FieldError("FieldValueForbidden", f"{path}.values", detail)


def _unknown(operator: str, path: str) -> FieldError:
    detail = "not a valid selector operator"
    return FieldError("FieldValueInvalid", f"{path}.operator", detail, json.dumps(operator))
