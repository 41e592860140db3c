"""Labels of namespaces, read from objects or from the API server.

Labels of those that have opted in are kept (`namespace_cache`). Those of the others are needed only
by rules that select namespaces, and asked for one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeAlias

from webhook.jsonfields.fields import mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import NAMESPACES, ClusterApi, ListOptions, Object
from webhook.kube.joint_reads import JointReads
from webhook.kube.kinds import NAMESPACE_NAME_LABEL
from webhook.state.object_decoders import decode_namespace
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL

_TTL_SECONDS: Final = 5.0
_MAX_NAMESPACES: Final = 1000

_Listed: TypeAlias = Mapping[str, Mapping[str, str]]


def labels_of(namespace: Object, name: str) -> dict[str, str]:
    """Return the labels of a Namespace object, with that of its name.

    Raises:
        InvalidFieldError: They cannot be read.
    """
    labels = FieldReader(namespace).child("metadata").string_map("labels")
    return {NAMESPACE_NAME_LABEL: name, **labels}


def is_deferred(namespace: Object) -> bool:
    """Return whether a Namespace object asks to defer its quotas.

    Raises:
        InvalidFieldError: Its labels cannot be read.
    """
    metadata = mapping(namespace.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    return labels.get(MODE_LABEL) == DEFERRED_MODE


def read_namespace(api: ClusterApi, name: str) -> Object:
    """Read a Namespace as it is now, with little more than its metadata.

    Raises:
        ApiError: The API server does not answer, or there is no such namespace.
    """
    return api.get(NAMESPACES, name, decode=decode_namespace)


def namespace_metadata(api: ClusterApi, *, opted_in: bool = False) -> Iterator[Object]:
    """Yield the Namespaces that there are now, with little more than their metadata.

    Each is read when it is its turn: labels of one can take megabytes, and their owners write them.

    Args:
        opted_in: Whether only those are wanted that ask to defer their quotas.

    Raises:
        ApiError: The API server does not answer.
    """
    selector = f"{MODE_LABEL}={DEFERRED_MODE}" if opted_in else ""
    for page in api.pages(NAMESPACES, ListOptions(label_selector=selector), is_brief=True):
        for one in page.items:
            yield decode_namespace(one.data)


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
        self._reads: JointReads[_Listed] = JointReads(at_once=1)

    def of(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace.

        Raises:
            ApiError: The API server does not answer, or there is no such namespace.
            InvalidFieldError: They cannot be read.
        """
        now = self._clock()
        known = self._known.get(namespace)
        if known is not None and now - known[0] <= _TTL_SECONDS:
            return known[1]
        found = read_namespace(self._api, namespace)
        labels = FieldReader(found).child("metadata").string_map("labels")
        if len(self._known) >= _MAX_NAMESPACES:
            self._known = {}
        self._known[namespace] = (now, labels)
        return labels

    def all(self, namespace: str) -> _Listed:
        """List the labels of all namespaces, by name, for a request about one of them.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Those of one cannot be read.
        """
        return self._reads.read("", self._list, namespace=namespace)

    def _list(self) -> _Listed:
        metadata = (FieldReader(one).child("metadata") for one in namespace_metadata(self._api))
        return {one.text("name"): one.string_map("labels") for one in metadata}
