"""Cache of namespaces: which defer their quotas, since which version, with which labels."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, ClusterApi, NotFoundError, Object
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.metadata import object_name
from webhook.state.lazy_ledger import identity_of
from webhook.state.namespace_labels import is_deferred, labels_of, read_namespace
from webhook.state.object_decoders import decode_namespace


class NamespaceCache:
    """Cache of the namespaces that defer their quotas.

    Args:
        api: The API server to follow, and to ask about namespaces it has not shown yet.
        timing: Clock and pauses of the informer.
    """

    def __init__(self, api: ClusterApi, *, timing: InformerTimings = InformerTimings()) -> None:
        self._api = api
        self._opted_in_at: dict[str, int] = {}
        self._last_version: dict[str, int] = {}
        """The version of each Namespace that was looked at for this."""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._lock = threading.Lock()
        self.informer: Final = Informer(
            api, NAMESPACES, transform=self._read, timings=timing, decode=decode_namespace
        )
        self.informer.add_handler(self._note_change)

    def is_opted_in(self, namespace: str) -> bool:
        """Return whether a namespace defers its quotas.

        Raises:
            ApiError: The namespace is not in the cache and the API server does not answer.
        """
        entry = self.informer.entry(namespace)
        if entry is not None and entry.value is True and self.informer.is_following:
            return True
        # The API server only calls where its own view of the labels says so: a cache that says
        # no is behind, or the registration is too wide. And while no watch stands, a namespace
        # may opt out and in again unseen.
        try:
            found = read_namespace(self._api, namespace)
        except NotFoundError:
            return False
        try:
            is_opted_in = is_deferred(found)
        except InvalidFieldError:
            is_opted_in = True  # whatever its labels say, the API server took them for a yes
        if is_opted_in:
            self._note_opted_in(namespace, identity_of(found)[1])
        return is_opted_in

    def is_terminating(self, namespace: str) -> bool:
        """Return whether the API server says that a namespace is being deleted, or is gone.

        Raises:
            ApiError: It does not answer.
        """
        try:
            found = read_namespace(self._api, namespace)
        except NotFoundError:
            return True
        return FieldReader(found).child("metadata").has("deletionTimestamp")

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace that has opted in; None of others, or if not seen yet.

        It is the same object until they change.
        """
        return self._labels.get(namespace)

    def opted_in_at(self, namespace: str) -> int:
        """Return the version of the Namespace by which it opted in; 0 if that was never seen.

        It is the one that the watch showed first with the label. Where a list showed it, it may
        have opted out and in again unseen, so it is the version that the list showed.
        """
        entry = self.informer.entry(namespace)
        if entry is not None and entry.resource_version > self._last_version.get(namespace, 0):
            return entry.resource_version  # it is there and was not looked at yet
        return self._opted_in_at.get(namespace, 0)

    def _read(self, namespace: Object) -> bool:
        """Note the labels, if it has opted in, and say whether it has."""
        name = object_name(namespace)
        is_opted_in = is_deferred(namespace)
        if not is_opted_in:
            self._labels.pop(name, None)
            return False
        labels = labels_of(namespace, name)
        if labels != self._labels.get(name):
            self._labels[name] = labels
        return True

    def _note_change(self, change: Change[bool]) -> None:
        if change.type == "DELETED":
            with self._lock:
                self._labels.pop(change.key, None)
                self._opted_in_at.pop(change.key, None)
                self._last_version.pop(change.key, None)
            return
        if change.new is True and (change.old is not True or not self.informer.is_following):
            self._note_opted_in(change.key, change.resource_version)
        self._last_version[change.key] = change.resource_version

    def _note_opted_in(self, namespace: str, version: int) -> None:
        with self._lock:
            self._opted_in_at[namespace] = max(version, self._opted_in_at.get(namespace, 0))
