"""Patches as the API server applies them: JSON Patch (RFC 6902) and JSON merge patch (RFC 7386)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

import jsonpatch
import jsonpointer

from webhook.kube.errors import BadRequestError, InvalidError, TooLargeError

MAX_OPERATIONS: Final = 10_000
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("value",),
    "replace": ("value",),
    "test": ("value",),
    "remove": (),
    "move": ("from",),
    "copy": ("from",),
}


class PatchError(ValueError):
    """A JSON Patch that is well-formed and does not fit the document; the text says where."""


def apply_patch(
    document: dict[str, object], patch: Sequence[Mapping[str, object]] | Mapping[str, object]
) -> dict[str, object]:
    """Apply a patch to a document that the caller owns, and return the outcome.

    Raises:
        BadRequestError: The patch is not a patch, or leaves something other than an object.
        InvalidError: An operation of a JSON Patch fails.
    """
    if isinstance(patch, Mapping):
        return cast("dict[str, object]", _merge(document, patch))
    try:
        return apply_operations(document, patch)
    except PatchError as err:
        raise InvalidError(
            "the server rejected our request due to an error in our request"
        ) from err


def apply_operations(
    document: dict[str, object], patch: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """Apply a JSON Patch, operation by operation; the document is used up.

    Raises:
        BadRequestError: The patch is not a list of operations, or leaves something other than an
            object.
        PatchError: An operation does not fit the document, or a test fails.
    """
    operations = check_operations(patch)
    try:
        outcome = jsonpatch.JsonPatch(operations).apply(document, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as err:
        raise PatchError(str(err)) from err
    except (TypeError, KeyError, IndexError, AttributeError, ValueError) as err:
        # older releases of the library let these through where a path crosses a scalar
        raise PatchError(f"the patch does not fit the document: {err}") from err
    if not isinstance(outcome, dict):
        raise BadRequestError("the patch leaves something that is not an object")
    return outcome


def check_operations(patch: object) -> list[dict[str, object]]:
    """Return the operations of a JSON Patch as a list of their own.

    Raises:
        BadRequestError: It is not a list of well-formed operations.
        TooLargeError: There are more than `MAX_OPERATIONS`.
    """
    if not isinstance(patch, Sequence) or isinstance(patch, str | bytes):
        raise BadRequestError("a JSON Patch must be a list of operations")
    if len(patch) > MAX_OPERATIONS:
        raise TooLargeError(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(patch)}"
        )
    return [_checked(operation, index) for index, operation in enumerate(patch)]


def _checked(operation: object, index: int) -> dict[str, object]:
    if not isinstance(operation, Mapping):
        raise BadRequestError(f"operation {index} of the JSON Patch is not an object")
    name = operation.get("op")
    if not isinstance(name, str) or name not in _NEEDS:
        raise BadRequestError(f"operation {index} of the JSON Patch has an unknown op")
    for pointer in ("path", *(field for field in _NEEDS[name] if field == "from")):
        if not _is_pointer(operation.get(pointer)):
            raise BadRequestError(f"operation {index} of the JSON Patch has no valid {pointer}")
    if "value" in _NEEDS[name] and "value" not in operation:
        raise BadRequestError(f"operation {index} of the JSON Patch has no value")
    return dict(operation)


def _is_pointer(value: object) -> bool:
    return isinstance(value, str) and (not value or value.startswith("/"))


def _merge(target: object, patch: object) -> object:
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
