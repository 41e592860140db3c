"""When two values of an API object mean the same, as the API server compares them.

`canonical` maps a value to plain Python data that is equal (`==`) exactly when the API server
takes the two for equal:

1. Amounts are compared by value: `0.1` is `100m`.
2. null, an absent field and an empty list are the same, and so is an empty map (labels,
   amounts). An empty object is not: `emptyDir: {}` is a volume, `securityContext: {}` is set.
   Objects that every parent has, such as `metadata`, are the exception.
3. An empty text, and a flag or number whose zero is its default, are the same as an absent one;
   in a list, null is an item of that kind.
4. The order of a list matters, the order of keys does not.

Source: kubernetes v1.36, apimachinery/pkg/api/equality and the Go types of the pod template,
which decide what is a pointer and so has an absence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from webhook.encoding import NumberText
from webhook.quota.fields import InvalidFieldError, child, kind_of, mapping, string_map
from webhook.quota.quantity import Quantity
from webhook.quota.resources import parse_resource_list

_MAX_DEPTH: Final = 64
"""More than twice the depth of any field of a pod template."""

# Objects that are part of their parent, as are the items of lists: an empty one says nothing.
_ITEM: Final = ""
_EMBEDDED: Final = frozenset(
    {_ITEM, "metadata", "podAffinityTerm", "preference", "resources", "spec"}
)
# Texts whose empty value says something else than their absence.
_OPTIONAL_TEXTS: Final = frozenset(
    {"runtimeClassName", "storageClassName", "volumeAttributesClassName"}
)
_FLAGS: Final = frozenset(
    {"hostIPC", "hostNetwork", "hostPID", "readOnly", "stdin", "stdinOnce", "tty"}
)
_NUMBERS: Final = frozenset({"hostPort", "initialDelaySeconds"})


def _amounts(value: object, field: str) -> object:
    return parse_resource_list(value, field=field) or None


def _strings(value: object, field: str) -> object:
    return string_map(value, field) or None


def _amount(value: object, field: str) -> object:
    return Quantity.from_json(value, field=field)


def _amount_but_zero(value: object, field: str) -> object:
    return Quantity.from_json(value, field=field) or None


_READERS: Final[Mapping[str, Callable[[object, str], object]]] = {
    "annotations": _strings,
    "divisor": _amount_but_zero,
    "labels": _strings,
    "limits": _amounts,
    "matchLabels": _strings,
    "nodeSelector": _strings,
    "overhead": _amounts,
    "requests": _amounts,
    "sizeLimit": _amount,
    "volumeAttributes": _strings,
}


def canonical(value: object, field: str, *, name: str = _ITEM, depth: int = 0) -> object:
    """Return what the value means; None if it says nothing.

    Args:
        value: Decoded JSON.
        field: YAML path of the value, for messages.
        name: Name of the field, which decides how it is read; empty for an item of a list.
        depth: How deep the value is nested.

    Raises:
        InvalidFieldError: Not JSON, nested too deep, or of a wrong type where that matters.
    """
    if value is None:
        return None
    if depth > _MAX_DEPTH:
        raise InvalidFieldError(field, "nests too deep")
    if name in _READERS:
        return _READERS[name](value, field)
    if isinstance(value, Mapping):
        members = canonical_members(value, field, depth=depth)
        return None if not members and name in _EMBEDDED else members
    if isinstance(value, (list, tuple)):
        items = enumerate(value)
        return [canonical(item, f"{field}[{i}]", depth=depth + 1) for i, item in items] or None
    return _scalar(value, field, name)


def canonical_members(value: object, field: str, *, depth: int = 0) -> dict[str, object]:
    """Return the members of an object that say something; null has none.

    Raises:
        InvalidFieldError: Not an object, or see `canonical`.
    """
    members = {
        key: canonical(item, child(field, key), name=key, depth=depth + 1)
        for key, item in mapping(value, field).items()
    }
    return {key: item for key, item in members.items() if item is not None}


def _scalar(value: object, field: str, name: str) -> object:
    match value:
        case bool():
            # Python's True is 1, JSON's is not
            return None if not value and name in _FLAGS else ("boolean", value)
        case int():
            return None if value == 0 and name in _NUMBERS else value
        case NumberText():
            return ("number", str(value))
        case str():
            return None if value == "" and name not in _OPTIONAL_TEXTS else value
        case _:
            raise InvalidFieldError(field, f"must be a JSON value, not {kind_of(value)}")
