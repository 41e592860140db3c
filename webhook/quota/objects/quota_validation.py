"""Validation of ResourceQuota objects: the API server's own rules, and two of ours.

The API server accepts some quotas that do harm later, so these are refused as well:

1. A value under In or NotIn that no label can have: it fails every pod creation.
2. An amount that the API server would store as another one: `1000E` is kept as `1`.

Errors have the API server's field paths: a key stands in brackets (`spec.hard[cpu]`), and
faults of an expression name the list, not the item, except where the rule is ours. Equal
errors are listed once.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go ValidateResourceQuotaSpec and
ValidateResourceQuotaUpdate; pkg/registry/core/resourcequota/strategy.go WarningsOnCreate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from webhook.jsonfields.fields import MOST_NATIVE_ERRORS, FieldError, InvalidFieldError, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.charging.scope_validation import (
    SCOPES,
    are_conflicting,
    is_scope,
    may_limit,
    operator_errors,
    read_expressions,
    value_errors,
)
from webhook.quota.objects.model import ScopeExpression
from webhook.quota.objects.names import (
    INTEGER_RESOURCES,
    is_extended_resource,
    is_standard_quota_name,
    qualified_name_errors,
)

_SCOPES: Final = "spec.scopes"
_EXPRESSIONS: Final = "spec.scopeSelector.matchExpressions"
_UNFIT: Final = "unsupported scope applied to resource"
_NANO: Final = 10**9

_COMPARED: Final = ("cpu", "memory", "storage", "ephemeral-storage")

_Object: TypeAlias = Mapping[str, object]
_T = TypeVar("_T")
_NOTHING: Final[_Object] = {}
_NO_TEXTS: Final[tuple[str, ...]] = ()
_NO_EXPRESSIONS: Final[tuple[ScopeExpression, ...]] = ()

SCOPE_FIELDS: Final = frozenset({"scopes", "scopeSelector"})
"""The fields of a quota's spec that say which pods it is about."""

_ADVICE: Final = "field is immutable: create a quota with another name, then delete this one"


def _none(_name: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class _Spec:
    """The parts of a quota's spec; a part that cannot be read is empty and has an error."""

    hard: Mapping[str, object]
    scopes: tuple[str, ...]
    expressions: tuple[ScopeExpression, ...]
    unreadable: tuple[FieldError, ...]


def quota_errors(raw: Mapping[str, object], *, is_guarded: bool = True) -> list[FieldError]:
    """List what is wrong with a ResourceQuota that is to be stored.

    Only the spec is looked at. A field of the wrong type is an error like any other.

    Args:
        raw: The quota.
        is_guarded: Whether our own rules hold beside those of the API server.
    """
    return _once(_errors(_read(raw), is_guarded=is_guarded))


def quota_update_errors(
    new: Mapping[str, object], old: Mapping[str, object], *, frozen: Callable[[str], bool] = _none
) -> list[FieldError]:
    """List what is wrong with a changed ResourceQuota, its change included.

    For the API server only `spec.scopes` must stay, as a set; selector and amounts may change.

    Args:
        new: The quota as it is to be stored.
        old: The quota as it is stored.
        frozen: Says which fields of the spec, such as `hard`, must stay too.
    """
    spec = _read(new)
    kept = [name for name in changed_fields(new, old) if frozen(name)]
    advised = [
        FieldError("FieldValueInvalid", f"spec.{name}".rstrip("."), _ADVICE) for name in kept
    ]
    native = () if "scopes" in kept else _change_errors(spec, _read(old))
    return _once((*_errors(spec), *advised, *native))


def changed_fields(new: Mapping[str, object], old: Mapping[str, object]) -> tuple[str, ...]:
    """Return the fields of the spec that no longer mean what they meant, sorted.

    Amounts count by value, scopes as a set; absent, null and empty are the same. A spec that is
    no object is one field without a name.
    """
    meanings = _meaning(new), _meaning(old)
    names = sorted({*meanings[0], *meanings[1]})
    return tuple(name for name in names if meanings[0].get(name) != meanings[1].get(name))


def quota_warnings(raw: Mapping[str, object]) -> list[str]:
    """List what the API server warns about when the quota is created: requests above limits.

    Amounts that cannot be read have errors and no warnings.
    """
    hard = _amounts(_read(raw))
    pairs = ((_request_key(name, hard), f"limits.{name}") for name in _COMPARED)
    return [
        f"ResourceQuota {request} ({hard[request]}) should be less than {limit} ({hard[limit]})"
        for request, limit in pairs
        if request in hard and limit in hard and hard[request] > hard[limit]
    ]


class _Reading:
    """Reads on behind what cannot be read."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []

    def attempt(self, read: Callable[[], _T], otherwise: _T) -> _T:
        """Return what `read` returns, or `otherwise`, the error noted."""
        try:
            return read()
        except InvalidFieldError as err:
            self.errors.append(FieldError("FieldValueInvalid", err.field, err.detail))
            return otherwise


def _read(raw: Mapping[str, object]) -> _Spec:
    reading = _Reading()
    spec = reading.attempt(lambda: mapping(mapping(raw, "").get("spec"), "spec"), _NOTHING)
    hard = reading.attempt(lambda: mapping(spec.get("hard"), "spec.hard"), _NOTHING)
    scopes = reading.attempt(lambda: FieldReader(spec, "spec").strings("scopes"), _NO_TEXTS)
    expressions = reading.attempt(lambda: _expressions(spec), _NO_EXPRESSIONS)
    return _Spec(hard, scopes, expressions, tuple(reading.errors))


def _expressions(spec: _Object) -> tuple[ScopeExpression, ...]:
    selector = mapping(spec.get("scopeSelector"), "spec.scopeSelector")
    return read_expressions(selector.get("matchExpressions"), _EXPRESSIONS)


def _errors(spec: _Spec, *, is_guarded: bool = True) -> Iterator[FieldError]:
    yield from spec.unreadable
    yield from _hard_errors(spec, is_guarded=is_guarded)
    yield from _scope_errors(spec)
    yield from _selector_errors(spec, is_guarded=is_guarded)


def _once(errors: Iterable[FieldError]) -> list[FieldError]:
    return list(dict.fromkeys(islice(errors, MOST_NATIVE_ERRORS)))


def _hard_errors(spec: _Spec, *, is_guarded: bool) -> Iterator[FieldError]:
    for key in sorted(spec.hard):
        amount_faults = _amount_faults(key, spec.hard[key], is_guarded=is_guarded)
        for detail in (*_key_faults(key), *amount_faults):
            yield FieldError("FieldValueInvalid", f"spec.hard[{key}]", detail)


def _key_faults(key: str) -> Iterator[str]:
    faults = qualified_name_errors(key)
    yield from faults
    if "/" in key or is_standard_quota_name(key):
        return
    if not faults and key != "storage":
        yield "must be a standard resource type or fully qualified"
    yield "must be a standard resource for quota"


def _amount_faults(key: str, value: object, *, is_guarded: bool) -> Iterator[str]:
    try:
        amount = Quantity.from_json(value).rounded_to_milli()
    except InvalidFieldError as err:
        yield err.detail
        return
    if amount.sign < 0:
        yield "must be greater than or equal to 0"
    if amount.nano % _NANO and (key in INTEGER_RESOURCES or is_extended_resource(key)):
        yield "must be an integer"
    if is_guarded and not amount.is_storable:
        yield f"cannot be stored exactly: the API server would keep {amount.canonical}"


def _scope_errors(spec: _Spec) -> Iterator[FieldError]:
    unfit = _unfit_scopes(spec)
    for scope in spec.scopes:
        if not is_scope(scope):
            yield FieldError("FieldValueInvalid", _SCOPES, "unsupported scope")
        if scope in unfit:
            yield FieldError("FieldValueInvalid", _SCOPES, _UNFIT)
    yield from _conflicts(spec.scopes, _SCOPES)


def _selector_errors(spec: _Spec, *, is_guarded: bool) -> Iterator[FieldError]:
    unfit = _unfit_scopes(spec)
    for index, expression in enumerate(spec.expressions):
        if not is_scope(expression.scope_name):
            yield FieldError("FieldValueInvalid", f"{_EXPRESSIONS}.scopeName", "unsupported scope")
        if expression.scope_name in unfit:
            yield FieldError("FieldValueInvalid", _EXPRESSIONS, _UNFIT)
        yield from operator_errors(expression, _EXPRESSIONS)
        if is_guarded:
            yield from value_errors(expression, f"{_EXPRESSIONS}[{index}]")
    yield from _conflicts([each.scope_name for each in spec.expressions], _EXPRESSIONS)


def _unfit_scopes(spec: _Spec) -> frozenset[str]:
    """Return the scopes that may not stand beside some key of the quota."""
    return frozenset(
        scope for scope in SCOPES if not all(may_limit(scope, key) for key in spec.hard)
    )


def _conflicts(scopes: Sequence[str], field: str) -> Iterator[FieldError]:
    if are_conflicting(scopes):
        yield FieldError("FieldValueInvalid", field, "conflicting scopes")


def _change_errors(spec: _Spec, before: _Spec) -> Iterator[FieldError]:
    if set(spec.scopes) != set(before.scopes):
        yield FieldError("FieldValueInvalid", _SCOPES, "field is immutable")


def _meaning(raw: object) -> Mapping[str, object]:
    """Return the fields of a spec in a form that is equal where they mean the same.

    What cannot be read means itself.
    """
    if not isinstance(raw, Mapping):
        return {"": raw}
    spec = raw.get("spec")
    if not isinstance(spec, Mapping):
        return {"": spec} if spec else {}
    read = _read(raw)
    amounts = _amounts(read)
    meant = {
        "hard": {key: amounts.get(key, value) for key, value in read.hard.items()},
        "scopes": frozenset(read.scopes),
        "scopeSelector": read.expressions,
    }
    unreadable = {_field_of_spec(error) for error in read.unreadable}
    readable = {name: value for name, value in meant.items() if name not in unreadable}
    return {name: value for name, value in {**spec, **readable}.items() if value}


def _field_of_spec(error: FieldError) -> str:
    """Return `scopes` for an error at `spec.scopes[0]`."""
    return error.field.removeprefix("spec.").partition(".")[0].partition("[")[0]


def _amounts(spec: _Spec) -> Mapping[str, Quantity]:
    """Return the amounts that can be read, as the API server would store them."""
    found: dict[str, Quantity] = {}
    for key, value in spec.hard.items():
        with suppress(InvalidFieldError):
            found[key] = Quantity.from_json(value).rounded_to_milli()
    return found


def _request_key(name: str, hard: Mapping[str, Quantity]) -> str:
    key = f"requests.{name}"
    return name if key not in hard and name in {"cpu", "memory"} else key
