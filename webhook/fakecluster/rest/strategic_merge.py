"""Strategic merge patch, as far as kubectl needs it for the kinds that it knows.

A JSON merge patch in which some lists are merged by a key, and directives say what else to do.
Which lists, by their field's name, is in a table instead of the API's schema.

Source: kubernetes v1.36, apimachinery/pkg/util/strategicpatch/patch.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.kube.api import BadRequestError

_MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "imagePullSecrets": ("name",),
    "resourceClaims": ("name",),
    "schedulingGates": ("name",),
    "ports": ("containerPort", "port"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "hostAliases": ("ip",),
    "topologySpreadConstraints": ("topologyKey",),
    "taints": ("key",),
}
_SETS: Final = frozenset({"finalizers"})
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_REMOVE_FROM: Final = "$deleteFromPrimitiveList/"


def apply_strategic(
    document: Mapping[str, object], patch: Mapping[str, object]
) -> dict[str, object]:
    """Return what a strategic merge patch makes of a document.

    Raises:
        BadRequestError: The patch cannot be read.
    """
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise BadRequestError(f"unknown patch directive {directive!r}")
    merged = _retained(document, patch)
    for name, value in patch.items():
        if name.startswith(_REMOVE_FROM):
            _remove_from(merged, name.removeprefix(_REMOVE_FROM), value)
        elif not name.startswith("$"):
            _merge_field(merged, name, value)
    return merged


def _retained(document: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    keep = patch.get(_RETAIN)
    if not isinstance(keep, list):
        return dict(document)
    return {name: value for name, value in document.items() if name in keep}


def _remove_from(merged: dict[str, object], name: str, unwanted: object) -> None:
    there = merged.get(name)
    if isinstance(there, list) and isinstance(unwanted, list):
        merged[name] = [value for value in there if value not in unwanted]


def _merge_field(merged: dict[str, object], name: str, value: object) -> None:
    there = merged.get(name)
    if value is None:
        merged.pop(name, None)
    elif isinstance(value, Mapping):
        merged[name] = apply_strategic(there if isinstance(there, Mapping) else {}, value)
    elif isinstance(value, list):
        merged[name] = _merge_list(name, there if isinstance(there, list) else [], value)
    else:
        merged[name] = value


def _merge_list(name: str, there: list[object], patch: list[object]) -> list[object]:
    if name in _SETS:
        return there + [value for value in patch if value not in there]
    keys = _MERGE_KEYS.get(name)
    if keys is None or not all(isinstance(item, Mapping) for item in (*there, *patch)):
        return patch
    entries = [item for item in patch if isinstance(item, Mapping)]
    if {_DIRECTIVE: "replace"} in entries:
        return [item for item in entries if _DIRECTIVE not in item]
    merged: list[object] = list(there)
    for entry in entries:
        _merge_entry(name, merged, entry, keys)
    return merged


def _merge_entry(
    name: str, merged: list[object], entry: Mapping[str, object], keys: tuple[str, ...]
) -> None:
    key = next((key for key in keys if key in entry), None)
    if key is None:
        raise BadRequestError(f"an entry of {name} in the patch has no {' or '.join(keys)}")
    place = next(
        (
            index
            for index, item in enumerate(merged)
            if isinstance(item, Mapping) and item.get(key) == entry[key]
        ),
        None,
    )
    if entry.get(_DIRECTIVE) == "delete":
        if place is not None:
            del merged[place]
        return
    old = merged[place] if place is not None else {}
    updated = apply_strategic(old if isinstance(old, Mapping) else {}, entry)
    if place is None:
        merged.append(updated)
    else:
        merged[place] = updated
