"""The labels of namespaces, asked for one at a time.

Only rules that select namespaces need them, so they are not kept for all namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from webhook.cluster.api import NAMESPACES, ClusterApi
from webhook.quota.reading import Node

_BELIEVED_SECONDS: Final = 5.0
_MOST: Final = 1000


class NamespaceLabels:
    """Labels of namespaces, believed for some seconds. Safe to use from several threads.

    Args:
        api: The API server to ask.
        clock: A monotonic clock.
    """

    def __init__(self, api: ClusterApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, tuple[float, Mapping[str, str]]] = {}

    def of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace.

        Raises:
            ApiError: The API server does not answer, or there is no such namespace.
            InvalidFieldError: They cannot be read.
        """
        now = self._clock()
        known = self._known.get(namespace)
        if known is not None and now - known[0] <= _BELIEVED_SECONDS:
            return known[1]
        found = self._api.get(NAMESPACES, namespace)
        labels = Node(found).child("metadata").string_map("labels")
        if len(self._known) >= _MOST:
            self._known = {}
        self._known[namespace] = (now, labels)
        return labels

    def every(self) -> Mapping[str, Mapping[str, str]]:
        """List the labels of all namespaces, by name.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Those of one cannot be read.
        """
        metadata = [Node(raw).child("metadata") for raw in self._api.list(NAMESPACES).items]
        return {one.text("name"): one.string_map("labels") for one in metadata}
