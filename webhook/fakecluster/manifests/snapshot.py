"""A cluster's objects from files, as `kubectl get -o yaml` prints them: all of them or none.

Lists are taken apart, `List` and `PodList` alike. Objects of kinds that are not known are taken
too, for any of them may be a custom resource.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from webhook.fakecluster.storage.pod_strategy import PodSpec, PodStatus
from webhook.fakecluster.storage.stored_object import read_object
from webhook.fakecluster.storage.strategies import check_readable
from webhook.kube.api import NAMESPACES, PODS, BadRequestError, Kind, Object, kind_of
from webhook.kube.files.documents import Document, SnapshotError, flatten_lists, read_documents
from webhook.kube.files.positions import located
from webhook.kube.files.snapshot_format import extent_of, unpacked
from webhook.kube.metadata import ObjectMeta, name_causes

__all__ = [
    "SnapshotError",
    "SnapshotObject",
    "located_in",
    "parse_snapshot",
    "read_files",
    "read_snapshot",
]


@dataclass(frozen=True, slots=True)
class SnapshotObject:
    """One object of a snapshot and where it was read."""

    kind: Kind
    object: Object
    """The object, its namespace filled in."""
    file: str
    """The file; empty for a Namespace that was made for its inhabitants."""
    document: int
    """The number of the document in the file, from 1."""
    field: str
    """YAML path inside the document; empty if the object is all of it."""
    namespace: str
    """Empty for what has none."""
    name: str

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Identity of an object in its cluster: group, kind, namespace and name."""
        return self.kind.group, self.kind.kind, self.namespace, self.name

    @property
    def key(self) -> str:
        """Namespace and name, as messages have them."""
        return "/".join(part for part in (self.namespace, self.name) if part)


def read_files(paths: Iterable[Path]) -> tuple[tuple[str, bytes], ...]:
    """Read files as input for `read_snapshot`.

    Raises:
        SnapshotError: One cannot be read.
    """
    return tuple((str(path), _read_file(path)) for path in paths)


def _read_file(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as err:
        raise SnapshotError(str(path), err.strerror or "cannot be read") from err
    return unpacked(str(path), data)


def located_in(err: SnapshotError, paths: Iterable[Path]) -> SnapshotError:
    """Return an error with line and column of its field, if its file can be read again."""
    try:
        return next(
            (located(err, _read_file(path)) for path in paths if str(path) == err.file), err
        )
    except SnapshotError:
        return err


def read_snapshot(
    inputs: Iterable[tuple[str, bytes]], *, namespace_labels: Mapping[str, str] | None = None
) -> tuple[SnapshotObject, ...]:
    """Read all objects of some files, in their order.

    Objects of a known, namespaced kind that name no namespace are in `default`.

    Args:
        inputs: Name and content of each file.
        namespace_labels: Make a Namespace with these labels for every namespace that objects are
            in and that has none in the snapshot. None makes no Namespaces.

    Raises:
        SnapshotError: Something cannot be read, or an object appears twice.
    """
    documents = [document for file, data in inputs for document in read_documents(file, data)]
    return parse_snapshot(documents, namespace_labels=namespace_labels)


def parse_snapshot(
    documents: Iterable[Document], *, namespace_labels: Mapping[str, str] | None = None
) -> tuple[SnapshotObject, ...]:
    """Take the objects out of documents; see `read_snapshot`."""
    objects: dict[tuple[str, str, str, str], SnapshotObject] = {}
    for document in documents:
        extent_of([document])  # a newer format is refused
        for field, value in flatten_lists(document):
            item = one_object(document, value, field)
            first = objects.setdefault(item.place, item)
            if first is not item:
                raise document.error(
                    f"{item.kind.kind} {item.key} is already in {first.file}, document "
                    f"{first.document}",
                    field=item.field,
                )
    made = () if namespace_labels is None else _namespaces_for(objects.values(), namespace_labels)
    return (*made, *objects.values())


def _namespaces_for(
    objects: Iterable[SnapshotObject], labels: Mapping[str, str]
) -> tuple[SnapshotObject, ...]:
    all_objects = tuple(objects)
    there = {one.name for one in all_objects if one.kind == NAMESPACES}
    mentioned = {one.namespace: None for one in all_objects}
    return tuple(
        SnapshotObject(NAMESPACES, _namespace(name, labels), "", 0, "", "", name)
        for name in mentioned
        if name and name not in there
    )


def _namespace(name: str, labels: Mapping[str, str]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": dict(labels)},
        "status": {"phase": "Active"},
    }


def one_object(document: Document, value: Mapping[str, object], field: str) -> SnapshotObject:
    """Take one object, that is no list, out of a document.

    Args:
        document: The document.
        value: The object; it says what it is.
        field: YAML path of it.

    Raises:
        SnapshotError: It cannot be read.
    """
    namespaced = _has_namespace(value)
    kind = kind_of(str(value["apiVersion"]), str(value["kind"]), namespaced=namespaced)
    # kubectl and the API server leave out a namespace that kustomize gave to what has none
    placed = value if kind.namespaced is namespaced else _placed(kind, value)
    prefix = f"{field}." if field else ""
    meta = _ordinary(kind, placed)
    if meta is None:
        try:
            stored = read_object(kind, placed)
            check_readable(stored)
        except BadRequestError as err:
            inner, detail = _field_of(err)
            raise document.error(detail, field=f"{prefix}{inner}".removesuffix(".")) from err
        meta = stored.meta
    for cause in name_causes(kind, meta):
        raise document.error(cause.message, field=f"{prefix}{cause.field}")
    return SnapshotObject(
        kind, placed, document.file, document.number, field, meta.namespace, meta.name
    )


class _Shape(msgspec.Struct):
    """Fields that are read of every object before it is taken."""

    metadata: ObjectMeta


class _PodShape(_Shape):
    """Fields that are read of a pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def _ordinary(kind: Kind, value: Mapping[str, object]) -> ObjectMeta | None:
    """Return the metadata of an object that can be read at once; None where it has to be looked at.

    What `read_object` and `check_readable` find wrong is not ordinary: they say what it is.
    """
    try:
        return msgspec.convert(value, _PodShape if kind == PODS else _Shape).metadata
    except msgspec.ValidationError:
        return None


def _field_of(error: BadRequestError) -> tuple[str, str]:
    """Return the field that an error is about, and what is wrong with it."""
    causes = error.details.get("causes")
    cause = causes[0] if isinstance(causes, list) and causes else {}
    return str(cause.get("field", "")), str(cause.get("message", error.message))


def _has_namespace(value: Mapping[str, object]) -> bool:
    meta = value.get("metadata")
    return isinstance(meta, Mapping) and bool(meta.get("namespace"))


def _placed(kind: Kind, value: Mapping[str, object]) -> Mapping[str, object]:
    """Return an object in `default`, or in no namespace where its kind has none."""
    meta = value.get("metadata")
    if not isinstance(meta, Mapping):
        return value
    rest = {name: one for name, one in meta.items() if name != "namespace"}
    place = {"namespace": "default"} if kind.namespaced else {}
    return {**value, "metadata": {**rest, **place}}
