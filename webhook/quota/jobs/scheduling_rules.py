"""Rules of the API server for the scheduling gates and the tolerations of a pod.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go validateSchedulingGates,
ValidateTolerations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from webhook.jsonfields.fields import FieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.go_format import quoted
from webhook.quota.jobs.metadata_rules import invalid, label_key_errors
from webhook.quota.objects.names import label_value_errors

_COMPARISONS: Final = ("Lt", "Gt")
_OPERATORS: Final = ("Equal", "Exists")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def gate_errors(pod: FieldReader) -> Iterator[FieldError]:
    """Yield what is wrong with the scheduling gates of a pod's spec."""
    seen: set[str] = set()
    for index, gate in enumerate(pod.children("schedulingGates")):
        name, field = gate.text("name"), f"{pod.path('schedulingGates')}[{index}]"
        yield from label_key_errors(name, field)
        if name in seen:
            yield replace(invalid(field, "", name), type="FieldValueDuplicate")
        seen.add(name)


def compares(pod: FieldReader) -> bool:
    """Return whether a toleration compares numbers, which takes a feature gate."""
    return any(one.text("operator") in _COMPARISONS for one in pod.children("tolerations"))


def toleration_errors(pod: FieldReader, *, comparisons: bool) -> Iterator[FieldError]:
    """Yield what is wrong with the tolerations of a pod's spec.

    Args:
        comparisons: Whether operators that compare numbers pass; their values are not looked at.
    """
    for one in pod.children("tolerations"):
        key, operator, effect = one.text("key"), one.text("operator"), one.text("effect")
        if key:
            yield from label_key_errors(key, one.path("key"))
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values'
            yield invalid(one.path("operator"), f'{detail} and all keys"', operator)
        if one.integer("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(one.path("effect"), detail, effect)
        yield from _value_errors(one, operator, comparisons=comparisons)
        if effect and effect not in _EFFECTS:
            yield not_supported(one.path("effect"), effect, _EFFECTS)


def _value_errors(
    toleration: FieldReader, operator: str, *, comparisons: bool
) -> Iterator[FieldError]:
    field, value = toleration.path("operator"), toleration.text("value")
    if operator in {"", "Equal"}:
        faults = label_value_errors(value)
        if faults:
            yield invalid(field, ";".join(faults), value)
    elif operator == "Exists":
        if value:
            yield invalid(field, "value must be empty when `operator` is 'Exists'", value)
    elif operator not in _COMPARISONS:
        yield not_supported(field, operator, _OPERATORS)
    elif not comparisons:
        yield not_supported(field, operator, (*_OPERATORS, *_COMPARISONS))


def not_supported(field: str, value: str, values: tuple[str, ...]) -> FieldError:
    """Return the error of a text that is none of those that a field can have."""
    detail = f"supported values: {', '.join(map(quoted, values))}"
    return replace(invalid(field, detail, value), type="FieldValueNotSupported")
