"""The part of kustomize that `manifests/` uses, so that an installation needs no kubectl.

A directory is read through its `kustomization.yaml`: `resources` are files and directories, in
order; `patches` of a component are files that add or change entries of webhook configurations, by
name, or JSON Patches with a target. Anything else in a base or component is refused: it would be
left out in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias, cast

from webhook.jsonfields.fields import InvalidFieldError, mapping, sequence, text
from webhook.kube.errors import ApiError
from webhook.kube.files.documents import SnapshotError, flatten_lists, read_documents
from webhook.kube.patches import PatchError, apply_operations

Manifest: TypeAlias = dict[str, object]
"""An object as it stands in a file, the caller's to change."""

_KNOWN: Final = frozenset({"apiVersion", "kind", "resources", "patches"})


class InstallError(Exception):
    """Something that keeps an installation from going on, in words for an administrator."""


def read_directory(directory: Path) -> list[Manifest]:
    """Read the resources of a kustomization, in order.

    Raises:
        InstallError: A file is missing or cannot be read; the error names it.
    """
    found: list[Manifest] = []
    for name in _entries(directory, "resources"):
        path = directory / text(name, "resources")
        found += read_directory(path) if path.is_dir() else read_file(path)
    return found


def add_component(directory: Path, objects: Sequence[Manifest]) -> list[Manifest]:
    """Return the objects with a component: its own resources behind them, its patches applied.

    Raises:
        InstallError: A file is missing or cannot be read, or a patch has nothing to change.
    """
    everything = [*objects, *read_directory(directory)]
    apply_patches(directory, everything)
    return everything


def apply_patches(directory: Path, objects: Sequence[Manifest]) -> None:
    """Apply the patches of a kustomization to objects, in place.

    Raises:
        InstallError: A file is missing or cannot be read, or a patch has nothing to change.
    """
    for item in _entries(directory, "patches"):
        patch_item = mapping(item, "patches")
        if "target" in patch_item:
            _patch_target(objects, patch_item, directory / "kustomization.yaml")
            continue
        path = directory / text(patch_item.get("path"), "patches[].path")
        for patch in read_file(path):
            _patch_webhooks(objects, patch, path)


def read_file(path: Path) -> list[Manifest]:
    """Read the objects of a file.

    Raises:
        InstallError: It is missing, or cannot be read.
    """
    try:
        return [
            dict(value)
            for document in read_documents(str(path), path.read_bytes())
            for _, value in flatten_lists(document)
        ]
    except OSError as err:
        raise InstallError(f"{path}: {err.strerror or err}") from err
    except SnapshotError as err:
        raise InstallError(str(err)) from err


def entries_of(configuration: Mapping[str, object]) -> Iterator[Manifest]:
    """Return the entries of a webhook configuration, to be changed in place."""
    for entry in sequence(configuration.get("webhooks"), "webhooks"):
        yield cast("Manifest", entry)


def _entries(directory: Path, field: str) -> Sequence[object]:
    path = directory / "kustomization.yaml"
    (kustomization,) = read_file(path)
    unknown = sorted(kustomization.keys() - _KNOWN)
    if unknown:
        raise InstallError(f"{path}: {unknown[0]}: is read by kustomize only")
    try:
        return sequence(kustomization.get(field), field)
    except InvalidFieldError as err:
        raise InstallError(f"{path}: {err}") from err


def _patch_webhooks(objects: Sequence[Manifest], patch: Manifest, path: Path) -> None:
    targets = [each for each in objects if _identity(each) == _identity(patch)]
    if not targets or "webhooks" not in patch:
        raise InstallError(f"{path}: patches no webhook configuration that is there")
    known = {entry["name"]: entry for entry in entries_of(targets[0])}
    for entry in entries_of(patch):
        if entry["name"] in known:
            known[entry["name"]].update(entry)
        else:
            known[entry["name"]] = entry
    targets[0]["webhooks"] = list(known.values())


def _patch_target(objects: Sequence[Manifest], item: Mapping[str, object], path: Path) -> None:
    """Apply a JSON Patch to the object of a kind and a name, in place."""
    target = mapping(item.get("target"), "patches[].target")
    wanted = target.get("kind"), target.get("name")
    (document,) = read_documents(str(path), text(item.get("patch"), "patches[].patch").encode())
    operations = cast("Sequence[Mapping[str, object]]", document.value)
    found = [each for each in objects if _identity(each) == wanted]
    if not found:
        raise InstallError(f"{path}: patches no object that is there: {wanted[0]} {wanted[1]}")
    for each in found:
        try:
            apply_operations(each, operations)
        except (PatchError, ApiError) as err:
            raise InstallError(f"{path}: {err}") from err


def _identity(obj: Mapping[str, object]) -> tuple[object, object]:
    return obj.get("kind"), mapping(obj.get("metadata"), "metadata").get("name")
