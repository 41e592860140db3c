"""The API server as a port: what the rest of the program asks of a cluster.

Rules of every implementation:

1. Objects are plain decoded JSON. What a call returns belongs to the caller: changing it changes
   nothing that another caller sees. What a caller passes in is read once and not kept.
2. Every write gives the object a new, higher `resourceVersion`, comparable as an integer over all
   kinds; a write that changes nothing writes nothing and keeps the version.
3. An update that names a `resourceVersion` takes effect only on that very version, or raises
   `ConflictError`. One that names a `uid` takes effect only on that very object.
4. A call either takes effect and returns, or raises an `ApiError`. Only `UnavailableError`,
   `UnreachableError`, `RequestTimeoutError` and `InternalError` leave open whether a write took
   place; every other error means that nothing was written.
5. With `dry_run` everything is checked and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, Self, TypeAlias, cast

from webhook.jsonfields.encoding import decode_json

# errors and kinds are the port's as well: all that use it take them from here
from webhook.kube.errors import (
    AlreadyExistsError,
    ApiError,
    BadRequestError,
    ConflictError,
    ExpiredError,
    FieldCause,
    ForbiddenError,
    InternalError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    RequestTimeoutError,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
    UnsupportedMediaTypeError,
)
from webhook.kube.kinds import (
    BINDINGS,
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    CONFIG_MAPS,
    ELASTIC_QUOTAS,
    EVENTS,
    JOBS,
    KNOWN_KINDS,
    LEASES,
    LIMIT_RANGES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GATINGS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUOTA_LEDGERS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Kind,
    is_path_segment,
    kind_of,
    known_kind,
    object_key,
    split_key,
)

Object: TypeAlias = Mapping[str, object]
"""A decoded API object. Numbers that are not integers are `NumberText`, never floats."""

Decode: TypeAlias = Callable[[bytes], Object]
"""Decoder of an object's JSON, or of a part of it; raises BadRequestError."""

JsonPatch: TypeAlias = Sequence[Mapping[str, object]]
"""RFC 6902: a list of operations; all take effect or none."""

MergePatch: TypeAlias = Mapping[str, object]
"""RFC 7386: what is given replaces, null removes."""

EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Revision:
    """One version of one object: its identity at once, its content when asked for."""

    key: str
    """"namespace/name", or the name for kinds without namespace."""
    uid: str
    resource_version: int
    """The version. 0 for what a dry run would have created."""
    data: bytes = field(repr=False)
    _decoded: list[Object] = field(default_factory=list, init=False, repr=False)

    @property
    def object(self) -> Object:
        """Return the object, decoded at the first call and kept; it belongs to the caller."""
        if not self._decoded:
            self._decoded.append(cast("Object", decode_json(self.data)))
        return self._decoded[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WatchEvent(Revision):
    """One line of a watch.

    BOOKMARK: everything up to `resource_version` has been sent; key and uid are empty.
    ERROR: the watch ends; `object` is a Status; key and uid are empty, the version is 0.
    DELETED: `object` is the object as it last was, its version that of the deletion.
    """

    type: EventType

    def error(self) -> ApiError:
        """Return the error that an ERROR event stands for."""
        return ApiError.from_status(self.object)


@dataclass(frozen=True, slots=True)
class ObjectList:
    """The objects of a kind at one moment; a watch from `resource_version` misses nothing."""

    items: tuple[Object, ...]
    resource_version: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some of the objects of a list that is read in parts."""

    items: tuple[Revision, ...]
    """Their revisions, to be decoded one by one."""
    resource_version: int
    """The moment of the whole list, the same on all its pages; a watch from it misses nothing."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of a list or watch: by default all objects of a kind."""

    namespace: str | None = None
    """None or empty is everywhere."""
    label_selector: str = ""
    """`a=b,c!=d,e in (f,g),h notin (i),j,!k`."""
    field_selector: str = ""
    """`metadata.name=x`, `metadata.namespace`; for pods also `spec.nodeName` and `status.phase`;
    operators `=`, `==`, `!=`."""


ALL: Final = ListOptions()


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Object and version that a deletion means; empty and None mean any."""

    uid: str = ""
    resource_version: int | None = None


ANY: Final = Preconditions()


class WatchStream(Protocol):
    """A running watch: an iterator of events that ends when the server or `close` ends it."""

    def __iter__(self) -> Iterator[WatchEvent]:
        """Return the stream itself."""

    def __next__(self) -> WatchEvent:
        """Wait for the next event.

        Raises:
            StopIteration: The watch is over: its time is up, it was cut, or it was closed.
            ApiError: The connection broke.
        """

    def close(self) -> None:
        """End the watch; a thread that waits in `__next__` is woken."""

    def __enter__(self) -> Self:
        """Return the stream; leaving the block closes it."""

    def __exit__(self, *_: object) -> None:
        """Close the stream."""


class ClusterApi(Protocol):
    """A Kubernetes API server, or its fake API server. Safe to use from several threads."""

    def get(
        self, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
    ) -> Object:
        """Read one object as it is now (a quorum read).

        With `decode` no more of it is kept than that makes of its JSON, and few large ones are
        read at a time.

        Raises:
            NotFoundError: There is none.
        """

    def list(self, kind: Kind, options: ListOptions = ALL) -> ObjectList:
        """Read all objects of a kind that are selected, sorted by key.

        Raises:
            BadRequestError: A selector cannot be read, or its field is not served.
        """

    def pages(
        self, kind: Kind, options: ListOptions = ALL, *, limit: int = 500, is_brief: bool = False
    ) -> Iterator[Page]:
        """Read all these objects as they are at one moment, `limit` at a time, sorted by key.

        The server is asked when the iterator is advanced; there is always a first page. A list
        of everything, however long, is never in memory as a whole. The moment is that of the first
        page, which is read as it is now (a quorum read). With `is_brief` the objects need not hold
        more than their metadata.

        Raises:
            ExpiredError: The server no longer knows that moment; what was read so far is part of
                no whole list: begin again.
            BadRequestError: As in `list`.
        """

    def watch(
        self,
        kind: Kind,
        options: ListOptions = ALL,
        *,
        resource_version: int,
        timeout_seconds: float | None = None,
        bookmarks: bool = True,
    ) -> WatchStream:
        """Follow the changes after `resource_version`, in order.

        With selectors, an object that begins to match is ADDED and one that ceases is DELETED.
        A version that is too old is answered by an ERROR event of code 410, or raises
        `ExpiredError`. Without `timeout_seconds` the server chooses.
        """

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Revision:
        """Create an object in the namespace of its metadata, named by `name` or `generateName`.

        Raises:
            AlreadyExistsError: The name is taken.
            InvalidError: The object breaks a rule of its kind.
        """

    def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Revision:
        """Replace an object, except its status; with subresource "resize" a pod's resources only.

        Raises:
            NotFoundError: There is no such object.
            ConflictError: Its `resourceVersion` or `uid` is another one now.
        """

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        """Replace an object's status and nothing of its spec; conflicts as in `update`.

        With `is_brief` the answer need not hold more than the object's metadata.
        """

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
        """Change parts of an object: a sequence is a JSON Patch, a mapping a JSON merge patch.

        The patch is applied to the newest version, and again if that loses a race, unless it
        names a `metadata.resourceVersion` itself.

        Raises:
            NotFoundError: There is no such object.
            InvalidError: An operation of the JSON Patch fails, a `test` among them.
            ConflictError: The patch names another `resourceVersion` or `uid`.
        """

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
        """Delete an object, or ask a running pod to end; returns it as it last was.

        A real API server may only name what is gone at once: `data` is a Status then, and the
        version 0.

        A pod with a node gets a `deletionTimestamp` and stays until it is deleted with grace 0;
        None takes the grace period of its spec. An object with finalizers stays until they are
        gone.

        Raises:
            NotFoundError: There is no such object.
            ConflictError: It has another uid or version than asked for.
        """

    def bind(self, binding: Object, *, namespace: str = "", dry_run: bool = False) -> None:
        """Return the pod that the Binding names its node, through `pods/binding`.

        Labels and annotations of the Binding land on the pod in the same write.

        Raises:
            NotFoundError: There is no such pod.
            ConflictError: It has a node, has scheduling gates, is being deleted, or is not of
                the uid or version that the Binding names.
        """

    def evict(
        self,
        name: str,
        *,
        namespace: str,
        uid: str,
        grace_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        """Ask a pod to end, through `pods/eviction`, as far as PodDisruptionBudgets allow it.

        Args:
            name: The pod.
            namespace: Its namespace.
            uid: Its uid.
            grace_seconds: How long it may take; None: as long as the pod itself says. Of a pod that
                is being deleted already the time can only become shorter.
            dry_run: Change nothing.

        Raises:
            NotFoundError: There is no such pod.
            ConflictError: It has another uid.
            TooManyRequestsError: A PodDisruptionBudget does not allow it now.
        """


_MAX_NAME: Final = 253


def find_object(
    api: ClusterApi, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
) -> Object | None:
    """Return one object as it is now; None where there is none.

    That is so without a request where the name, which may be forged, is one that no object has.

    Raises:
        ApiError: It cannot be read.
    """
    place = (name, namespace) if kind.namespaced else (name,)
    if not all(is_path_segment(part) and len(part) <= _MAX_NAME for part in place):
        return None
    try:
        return api.get(kind, name, namespace=namespace, decode=decode)
    except NotFoundError:
        return None
