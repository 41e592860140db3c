"""Expressions in what selects labels: of a Job's selector, and of nodes in its template.

What the API server says of an expression whose operator it does not know, or whose values do not
go with the operator. Keys and single values of a Job's selector, which cannot change, are left to
it.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go ValidateNodeSelectorRequirement,
ValidatePreferredSchedulingTerms; apimachinery/pkg/apis/meta/v1/validation/validation.go
ValidateLabelSelectorRequirement.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from webhook.jsonfields.fields import FieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.jobs.metadata_rules import invalid, label_key_errors, label_value_faults
from webhook.quota.objects.names import label_value_errors, object_name_errors

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SETS: Final = frozenset({"In", "NotIn"})
_PRESENCES: Final = frozenset({"Exists", "DoesNotExist"})
_COMPARISONS: Final = frozenset({"Gt", "Lt"})
_NAME_FIELD: Final = "metadata.name"
_WEIGHTS: Final = range(1, 101)


def node_affinity_errors(pod: FieldReader, *, allow_values: bool) -> Iterator[FieldError]:
    """Yield what is wrong with the node affinity of a pod's spec.

    Args:
        allow_values: Let pass texts that no label can have as its value.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    affinity = pod.child("affinity").child("nodeAffinity")
    required = affinity.child(_REQUIRED)
    terms = required.children("nodeSelectorTerms")
    if affinity.has(_REQUIRED) and not terms:
        detail = "must have at least one node selector term"
        yield FieldError("FieldValueRequired", required.path("nodeSelectorTerms"), detail)
    for term in terms:
        yield from _term_errors(term, allow_values=allow_values)
    for weighted in affinity.children(_PREFERRED):
        weight = weighted.integer("weight") or 0
        if weight not in _WEIGHTS:
            detail = "must be in the range 1-100"
            yield FieldError("FieldValueInvalid", weighted.path("weight"), detail, str(weight))
        yield from _term_errors(weighted.child("preference"), allow_values=True)


def requires_values_of_no_label(pod: FieldReader) -> bool:
    """Return whether a pod requires nodes by a text that no label can have as its value."""
    required = pod.child("affinity").child("nodeAffinity").child(_REQUIRED)
    return any(
        map(
            label_value_errors,
            (
                value
                for term in required.children("nodeSelectorTerms")
                for expression in term.children("matchExpressions")
                for value in expression.strings("values")
            ),
        )
    )


def label_selector_errors(selector: object, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with operators of a label selector.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    if selector is not None:
        for expression in FieldReader(selector, field).children("matchExpressions"):
            yield from _requirement_errors(expression)


def _term_errors(term: FieldReader, *, allow_values: bool) -> Iterator[FieldError]:
    for expression in term.children("matchExpressions"):
        yield from _label_errors(expression)
        yield from label_key_errors(expression.text("key"), expression.path("key"))
        if not allow_values:
            for index, value in enumerate(expression.strings("values")):
                yield from label_value_faults(value, f"{expression.path('values')}[{index}]")
    for expression in term.children("matchFields"):
        if expression.text("operator") not in _SETS:
            yield _unknown(expression)
        elif len(expression.strings("values")) != 1:
            words = _with("'In' or 'NotIn'", "must be only one value")
            yield _required(expression, f"{words} for node field selector")
        key = expression.text("key")
        if key != _NAME_FIELD:
            yield invalid(expression.path("key"), "not a valid field selector key", key)
            continue
        for index, value in enumerate(expression.strings("values")):
            for error in object_name_errors(value):
                yield invalid(f"{expression.path('values')}[{index}]", error, value)


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
    detail = "not a valid selector operator"
    return invalid(expression.path("operator"), detail, expression.text("operator"))
