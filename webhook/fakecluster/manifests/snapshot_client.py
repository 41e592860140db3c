"""A snapshot as it was read, for commands that only look: nothing is stored or copied.

Loading a `FakeCluster` takes as long as reading the files, and more memory. Writes go to an empty
cluster, and come to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from webhook.fakecluster.manifests.large_snapshot import PodText, with_uid
from webhook.fakecluster.manifests.snapshot import SnapshotObject
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    ALL,
    LEASES,
    PODS,
    Decode,
    ForbiddenError,
    Kind,
    ListOptions,
    NotFoundError,
    Object,
    ObjectList,
    Page,
    Revision,
    object_key,
)
from webhook.kube.codec import encode
from webhook.kube.files.snapshot_format import SnapshotExtent
from webhook.kube.selectors import Selector, parse_selector

_NODE_NAME: Final = "spec.nodeName"
_WHOLE: Final = SnapshotExtent()


class SnapshotClient(FakeClient):
    """The objects of a snapshot. What it returns is shared: it must not be changed."""

    def __init__(
        self,
        objects: Iterable[SnapshotObject],
        extent: SnapshotExtent = _WHOLE,
        pods: Iterable[PodText] = (),
    ) -> None:
        """Take the objects, what the snapshot does not hold, and pods as their text."""
        super().__init__(FakeCluster())
        self.extent = extent
        """What the snapshot does not hold, and when it was taken."""
        self._objects: dict[Kind, dict[tuple[str, str], Object]] = {}
        self._sorted: dict[Kind, Mapping[str, Sequence[Object]]] = {}
        texts = {(one.namespace, one.name): one for one in pods}
        if texts:
            self._objects[PODS] = dict(texts)
        for one in objects:
            place, raw = (one.namespace, one.name), one.object
            self._objects.setdefault(one.kind, {})[place] = (
                with_uid(raw, *place) if one.kind == PODS else raw
            )

    def get(
        self, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
    ) -> Object:
        """Read one object; see `ClusterApi.get`. It is there, whatever it is decoded with."""
        del decode
        found = self._objects.get(kind, {}).get((namespace, name))
        if found is None:
            self._check_read(kind, namespace)
            raise NotFoundError.of(kind, name)
        return found

    def _check_read(self, kind: Kind, namespace: str | None) -> None:
        # Leases are those of all namespaces in every snapshot
        place = (namespace or "") if kind.namespaced and kind != LEASES else None
        if self.extent.lacks(f"{kind.kind}.{kind.api_version}", place):
            where = f" of namespace {namespace}" if namespace else ""
            raise ForbiddenError(f"the snapshot does not have the {kind.plural}{where}")

    def list(self, kind: Kind, options: ListOptions = ALL) -> ObjectList:
        """Read objects; see `ClusterApi.list`."""
        self._check_read(kind, options.namespace)
        selector = parse_selector(kind, options.label_selector, options.field_selector)
        items = self._in_order(kind, options.namespace or "")
        if selector.labels:
            items = [raw for raw in items if _is_selected(selector, raw)]
        else:
            for term in selector.fields:
                items = [raw for raw in items if term.accepts(_field(raw, term.key))]
        return ObjectList(tuple(items), 0)

    def _in_order(self, kind: Kind, namespace: str) -> Sequence[Object]:
        """Return the objects of a namespace, of all where it is empty, by namespace and name."""
        if kind not in self._sorted:
            self._sorted[kind] = _by_namespace(self._objects.get(kind, {}))
        return self._sorted[kind].get(namespace, ())

    def pages(
        self, kind: Kind, options: ListOptions = ALL, *, limit: int = 500, is_brief: bool = False
    ) -> Iterator[Page]:
        """Read objects in parts, and whole; see `ClusterApi.pages`."""
        del is_brief
        items = self.list(kind, options).items
        for start in range(0, max(len(items), 1), limit):
            yield Page(tuple(map(_revision, items[start : start + limit])), 0)


def _by_namespace(
    objects: Mapping[tuple[str, str], Object],
) -> Mapping[str, Sequence[Object]]:
    names: dict[str, list[str]] = {}
    for namespace, name in objects:
        names.setdefault(namespace, []).append(name)
    found = {
        namespace: [objects[namespace, name] for name in sorted(names[namespace])]
        for namespace in sorted(names)
    }
    return {**found, "": [one for items in found.values() for one in items]}


def _is_selected(selector: Selector, raw: Object) -> bool:
    texts: dict[str, str] = {}
    if selector.labels:
        labels = _part(_part(raw, "metadata"), "labels")
        texts = {name: value for name, value in labels.items() if isinstance(value, str)}
    return selector.matches(texts, lambda field: _field(raw, field))


def _field(raw: Object, field: str) -> str:
    if field == _NODE_NAME and type(raw) is PodText:
        return raw.node_name
    part, _, name = field.partition(".")
    return _text(_part(raw, part), name)


def _revision(raw: Object) -> Revision:
    metadata = _part(raw, "metadata")
    key = object_key(_text(metadata, "namespace"), _text(metadata, "name"))
    return Revision(key=key, uid=_text(metadata, "uid"), resource_version=0, data=_encoded(raw))


def _encoded(raw: Object) -> bytes:
    return bytes(raw.text) if isinstance(raw, PodText) else encode(raw)


def _part(raw: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = raw.get(name)
    return value if type(value) is dict or isinstance(value, Mapping) else {}


def _text(raw: Mapping[str, object], name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""
