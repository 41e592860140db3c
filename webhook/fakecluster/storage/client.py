"""A Kubernetes API server in memory: the same conflicts, versions and watches, and no network.

`FakeCluster` is the cluster, `FakeClient` one client of it; any number of clients on any
number of threads may be used at once. What a client hands out is decoded for that call alone.

It keeps objects, versions and the rules of pods, bindings and namespaces. It has no controllers,
no defaulting, no field ownership (`managedFields` is dropped), and validates neither quotas nor
Jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from webhook.fakecluster.storage.admission_hook import Admission
from webhook.fakecluster.storage.cluster import FakeCluster
from webhook.fakecluster.storage.stored_object import StoredObject, read_object
from webhook.fakecluster.storage.watch import FakeWatch
from webhook.fakecluster.storage.writer import Target, Writer
from webhook.jsonfields.encoding import encode_json
from webhook.kube.api import (
    ALL,
    ANY,
    BINDINGS,
    PODS,
    BadRequestError,
    Decode,
    JsonPatch,
    Kind,
    ListOptions,
    MergePatch,
    Object,
    ObjectList,
    Page,
    Preconditions,
    Revision,
)
from webhook.kube.patches import apply_patch

__all__ = ["FakeClient"]


class FakeClient:
    """One client of a `FakeCluster`: a `ClusterApi`."""

    def __init__(self, cluster: FakeCluster, *, admission: Admission | None = None) -> None:
        """Make a client whose writes pass `admission`; without one nothing is asked."""
        self.cluster: Final = cluster
        self._writer = Writer(cluster, admission)

    def get(
        self, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
    ) -> Object:
        """Read one object; see `ClusterApi.get`."""
        stored = self.cluster.get(kind, namespace, name)
        return stored.decode() if decode is None else decode(stored.data())

    def list(self, kind: Kind, options: ListOptions = ALL) -> ObjectList:
        """Read objects; see `ClusterApi.list`."""
        chosen, version = self.cluster.select(kind, options)
        return ObjectList(tuple(stored.decode() for stored in chosen), version)

    def pages(
        self, kind: Kind, options: ListOptions = ALL, *, limit: int = 500, is_brief: bool = False
    ) -> Iterator[Page]:
        """Read objects in parts; see `ClusterApi.pages`."""
        pages = self.cluster.read_pages(kind, options, limit)
        return map(_brief, pages) if is_brief else pages

    def watch(
        self,
        kind: Kind,
        options: ListOptions = ALL,
        *,
        resource_version: int,
        timeout_seconds: float | None = None,
        bookmarks: bool = True,
    ) -> FakeWatch:
        """Follow changes; see `ClusterApi.watch`."""
        return FakeWatch(
            self.cluster.store,
            kind,
            options,
            version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
        )

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Revision:
        """Create an object; see `ClusterApi.create`."""
        return self._writer.create(read_object(kind, obj), dry_run=dry_run).revision()

    def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Revision:
        """Replace an object; see `ClusterApi.update`."""
        sent = read_object(kind, obj)
        target = Target(kind, sent.meta.namespace, sent.meta.name, subresource)
        return self._writer.rewrite(target, lambda _: sent, dry_run=dry_run).revision()

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        """Replace an object's status; see `ClusterApi.update_status`."""
        written = self.update(kind, obj, subresource="status", dry_run=dry_run)
        return _metadata_of(written) if is_brief else written

    def patch(
        self,
        kind: Kind,
        name: str,
        patch: JsonPatch | MergePatch,
        *,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Revision:
        """Change parts of an object; see `ClusterApi.patch`."""
        return self.change(
            kind,
            name,
            lambda document: apply_patch(document, patch),
            namespace=namespace,
            subresource=subresource,
            dry_run=dry_run,
        )

    def change(
        self,
        kind: Kind,
        name: str,
        change: Callable[[dict[str, object]], Object],
        *,
        namespace: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> Revision:
        """Write what `change` makes of the newest version, again if that loses a race."""

        def changed(old: StoredObject) -> StoredObject:
            return read_object(kind, change(old.decode()))

        target = Target(kind, namespace, name, subresource)
        return self._writer.rewrite(target, changed, dry_run=dry_run).revision()

    def delete(
        self,
        kind: Kind,
        name: str,
        *,
        namespace: str = "",
        preconditions: Preconditions = ANY,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> Revision:
        """Delete an object; see `ClusterApi.delete`."""
        target = Target(kind, namespace, name)
        gone = self._writer.delete(target, preconditions, grace_period_seconds, dry_run=dry_run)
        return gone.revision()

    def bind(
        self,
        binding: Object,
        *,
        namespace: str = "",
        legacy: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Assign a pod to a node; see `ClusterApi.bind`. `legacy`: by way of `bindings`."""
        sent = read_object(BINDINGS, binding)
        if namespace and sent.meta.namespace not in ("", namespace):
            raise BadRequestError(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        placed = sent.with_meta(namespace=sent.meta.namespace or namespace)
        self._writer.bind(placed, legacy=legacy, dry_run=dry_run)

    def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Ask a pod to end; see `ClusterApi.evict`."""
        target = Target(PODS, namespace, name)
        self._writer.evict(target, uid, grace_seconds, dry_run=dry_run)


def _brief(page: Page) -> Page:
    """Leave away all but the metadata of the objects of a page."""
    return replace(page, items=tuple(map(_metadata_of, page.items)))


def _metadata_of(revision: Revision) -> Revision:
    """Leave away all but the metadata."""
    partial = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": revision.object["metadata"],
    }
    return replace(revision, data=encode_json(partial))
