"""Validation of scope expressions, and of the quota keys beside a scope.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go validateResourceQuotaScopes
and validateScopedResourceSelectorRequirement, and pkg/apis/core/helper/helpers.go
IsResourceQuotaScopeValidForResource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from webhook.jsonfields.fields import FieldError, InvalidFieldError, mapping, sequence
from webhook.quota.charging.constraints import MUST_SPECIFY_KEYS
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.names import is_standard_quota_name, label_value_error

_POD_AMOUNTS: Final = MUST_SPECIFY_KEYS | {"pods"}

_KEYS_BESIDE: Final[Mapping[str, frozenset[str]]] = {
    "Terminating": _POD_AMOUNTS,
    "NotTerminating": _POD_AMOUNTS,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _POD_AMOUNTS,
    "PriorityClass": _POD_AMOUNTS,
    "CrossNamespacePodAffinity": _POD_AMOUNTS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
SCOPES: Final = tuple(_KEYS_BESIDE)
"""All scopes that Kubernetes knows."""

_WITH_OPERATORS: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})
_OPPOSITES: Final = (
    frozenset({"BestEffort", "NotBestEffort"}),
    frozenset({"Terminating", "NotTerminating"}),
)
_VALUES_NEEDED: Final[Mapping[str, bool]] = {
    "In": True,
    "NotIn": True,
    "Exists": False,
    "DoesNotExist": False,
}

_EXISTS_ONLY: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_VALUES_MISSING: Final = (
    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
)
_VALUES_TOO_MANY: Final = (
    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
)


def is_scope(name: str) -> bool:
    """Return whether Kubernetes knows the scope."""
    return name in _KEYS_BESIDE


def may_limit(scope: str, key: str) -> bool:
    """Return whether a quota with this scope may limit the key.

    Only names that Kubernetes itself defines are judged; a name with a domain goes with any
    scope, and an unknown scope with any name.
    """
    if scope not in _KEYS_BESIDE or not is_standard_quota_name(key):
        return True
    return key in _KEYS_BESIDE[scope]


def are_conflicting(scopes: Sequence[str]) -> bool:
    """Return whether two of the scopes rule each other out, so that they match no pod."""
    return any(pair <= set(scopes) for pair in _OPPOSITES)


def operator_errors(expression: ScopeExpression, field: str) -> Iterator[FieldError]:
    """Yield what is wrong with the operator of an expression, and with the number of values.

    Args:
        field: YAML path that `.operator` and `.values` are put after.
    """
    scope, operator = expression.scope_name, expression.operator
    if scope in _KEYS_BESIDE and scope not in _WITH_OPERATORS and operator != "Exists":
        yield FieldError("FieldValueInvalid", f"{field}.operator", _EXISTS_ONLY)
    if operator not in _VALUES_NEEDED:
        yield FieldError("FieldValueInvalid", f"{field}.operator", "not a valid selector operator")
    elif _VALUES_NEEDED[operator] and not expression.values:
        yield FieldError("FieldValueRequired", f"{field}.values", _VALUES_MISSING)
    elif expression.values and not _VALUES_NEEDED[operator]:
        yield FieldError("FieldValueInvalid", f"{field}.values", _VALUES_TOO_MANY)


def value_errors(expression: ScopeExpression, field: str) -> Iterator[FieldError]:
    """Yield the values that no label can have.

    The API server stores them, and from then on fails the creation of every pod of the
    namespace, because it compares class names as labels.
    """
    for index, value in enumerate(expression.values):
        if label_value_error(value):
            yield FieldError(
                "FieldValueInvalid", f"{field}.values[{index}]", "must be a valid label value"
            )


def read_expressions(raw: object, field: str) -> tuple[ScopeExpression, ...]:
    """Read a list of expressions as they are, legal or not; null is the empty list.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    items = enumerate(sequence(raw, field))
    return tuple(_read(item, f"{field}[{index}]") for index, item in items)


def read_legal_expressions(raw: object, field: str) -> tuple[ScopeExpression, ...]:
    """Read a list of expressions that can be evaluated against any pod.

    Raises:
        InvalidFieldError: A field has the wrong type, the scope is unknown, the operator does
            not go with it, or a value is missing, too many or not the value of a label.
    """
    expressions = read_expressions(raw, field)
    for index, expression in enumerate(expressions):
        _require_legal(expression, f"{field}[{index}]")
    return expressions


def _read(item: object, field: str) -> ScopeExpression:
    return ScopeExpression.from_object(mapping(item, field), field=field)


def _require_legal(expression: ScopeExpression, field: str) -> None:
    if not is_scope(expression.scope_name):
        raise InvalidFieldError(f"{field}.scopeName", "unsupported scope")
    checks: tuple[Callable[[ScopeExpression, str], Iterator[FieldError]], ...]
    checks = (operator_errors, value_errors)
    for check in checks:
        for error in check(expression, field):
            raise InvalidFieldError(error.field, error.detail)
