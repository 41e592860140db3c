"""JSON Patches of webhooks: applied strictly and in order, with the API server's words.

Source: kubernetes v1.36, vendored evanphx/json-patch v4 (patch.go).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jsonpointer

from webhook.kube.api import BadRequestError, InternalError, Kind, Object, TooLargeError
from webhook.kube.codec import decode_object, encode
from webhook.kube.patches import PatchError, apply_operations, check_operations


def apply_webhook_patch(kind: Kind, obj: Object, patch: Sequence[Mapping[str, object]]) -> Object:
    """Return what a webhook's patch makes of an object.

    Raises:
        InternalError: An operation cannot be read or does not apply, or the patch makes something
            else of the object.
    """
    document = decode_object(encode(obj))
    try:
        for operation in check_operations(patch):
            document = _applied(document, operation)
    except (BadRequestError, TooLargeError) as err:
        raise InternalError.of(err.message) from err
    for name, expected in (("apiVersion", kind.api_version), ("kind", kind.kind)):
        if document.get(name, expected) != expected:
            raise InternalError.of(f"the patch changes {name} to {document[name]}")
    return document


def _applied(document: dict[str, object], operation: Mapping[str, object]) -> dict[str, object]:
    has_parent = _has_parent(document, str(operation["path"]))
    try:
        return apply_operations(document, [operation])
    except PatchError as err:
        raise InternalError.of(_failure(operation, has_parent=has_parent)) from err


def _has_parent(document: Mapping[str, object], path: str) -> bool:
    parent = path.rpartition("/")[0]
    try:
        found = jsonpointer.resolve_pointer(document, parent)
    except jsonpointer.JsonPointerException:
        return False
    return isinstance(found, dict | list)


def _failure(operation: Mapping[str, object], *, has_parent: bool) -> str:
    name, path = str(operation["op"]), str(operation["path"])
    if name == "test":
        return f"testing value {path} failed: test failed"
    if not has_parent:
        shown = path if name == "replace" else f'"{path}"'
        return f"{name} operation does not apply: doc is missing path: {shown}: missing value"
    if name == "replace":
        return f"replace operation does not apply: doc is missing key: {path}: missing value"
    if name == "remove":
        key = path.rpartition("/")[2]
        return (
            f"error in remove for path: '{path}': Unable to remove nonexistent key: {key}: "
            "missing value"
        )
    return f"error in {name} for path: '{path}': missing value"
