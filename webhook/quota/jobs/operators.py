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

from webhook.jsonfields.fields import FieldError
from webhook.jsonfields.reader import FieldReader

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
    affinity = FieldReader(pod, field).child("affinity").child("nodeAffinity")
    for term in affinity.child(_REQUIRED).children("nodeSelectorTerms"):
        yield from _term_errors(term)
    for weighted in affinity.children(_PREFERRED):
        yield from _term_errors(weighted.child("preference"))


def label_selector_errors(selector: object, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with operators of a label selector.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    if selector is not None:
        for expression in FieldReader(selector, field).children("matchExpressions"):
            yield from _requirement_errors(expression)


def _term_errors(term: FieldReader) -> Iterator[FieldError]:
    for expression in term.children("matchExpressions"):
        yield from _label_errors(expression)
    for expression in term.children("matchFields"):
        if expression.text("operator") not in _SETS:
            yield _unknown(expression)
        elif len(expression.strings("values")) != 1:
            words = _with("'In' or 'NotIn'", "must be only one value")
            yield _required(expression, f"{words} for node field selector")


def _label_errors(expression: FieldReader) -> Iterator[FieldError]:
    if expression.text("operator") not in _COMPARISONS:
        yield from _requirement_errors(expression)
    elif len(expression.strings("values")) != 1:
        yield _required(expression, _with("'Lt' or 'Gt'", "must be specified single value"))


def _requirement_errors(expression: FieldReader) -> Iterator[FieldError]:
    operator, values = expression.text("operator"), expression.strings("values")
    if operator in _SETS:
        if not values:
            yield _required(expression, _with("'In' or 'NotIn'", "must be specified"))
    elif operator in _PRESENCES:
        if values:
            detail = _with("'Exists' or 'DoesNotExist'", "may not be specified")
            yield FieldError("FieldValueForbidden", expression.path("values"), detail)
    else:
        yield _unknown(expression)


def _with(operators: str, words: str) -> str:
    return f"{words} when `operator` is {operators}"


def _required(expression: FieldReader, detail: str) -> FieldError:
    return FieldError("FieldValueRequired", expression.path("values"), detail)


def _unknown(expression: FieldReader) -> FieldError:
    operator, detail = expression.text("operator"), "not a valid selector operator"
    return FieldError(
        "FieldValueInvalid", expression.path("operator"), detail, json.dumps(operator)
    )
