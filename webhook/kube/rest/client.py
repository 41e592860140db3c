"""A real API server as a `ClusterApi`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import quote, urlencode

import webhook
from webhook.jsonfields.fields import mapping, sequence
from webhook.kube.api import (
    ALL,
    ANY,
    PODS,
    BadRequestError,
    ConflictError,
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
    UnavailableError,
    is_path_segment,
    object_key,
)
from webhook.kube.codec import encode
from webhook.kube.rest.calls import CallObserver, ignore_calls, observed
from webhook.kube.rest.config import RestConfig
from webhook.kube.rest.http1 import BodyTooLongError
from webhook.kube.rest.responses import (
    WarningHandler,
    check,
    deleted_of,
    ignore,
    object_of,
    page_of,
    revision_of,
    warnings_of,
)
from webhook.kube.rest.transport import Request, Response, Transport
from webhook.kube.rest.watch import RestWatch

__all__ = ["RestClient"]

_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"
_JSON: Final = "application/json"
_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""What a client asks for that only wants to know which version it has made."""
_METADATA_LIST: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
)

_PATCH_ATTEMPTS: Final = 4
"""The API server itself tries five times for each of them."""

_EVICTION_SECONDS: Final = 3.0
"""How long an eviction may take. The API server tries twenty times to write a budget that its owner
writes meanwhile, which takes 10 s."""

PAGE_BYTES: Final = 16 * 2**20
"""How long the JSON of one part of a list may be; 500 usual pods have about 4 MiB."""

SMALL_BYTES: Final = 128 * 2**10
"""How long the JSON of an object may be that is read beside any others; usual pods have 10 kB."""

_LARGE_AT_ONCE: Final = 4
"""Larger objects that are read at a time. They come from tenants, in as many threads as there are,
and one of 3 MB takes twice that while it is received."""

_LEAST_SECONDS: Final = 0.001
"""Zero would be no limit."""

SILENCE_SECONDS: Final = 15.0
"""How long after the end of a watch its end has to be seen."""

WITH_BOOKMARKS_SECONDS: Final = 90.0
"""How long a watch may be silent: bookmarks come every minute, on quiet kinds too."""

MAX_WATCH_SECONDS: Final = 3600.0
"""How long the API server lets a watch last for which no time was asked.

Source: kubernetes v1.36, apiserver/pkg/endpoints/handlers/get.go: up to twice
--min-request-timeout, which is 1800.
"""


class RestClient:
    """A client of an API server: a `ClusterApi`. Safe to use from several threads."""

    def __init__(
        self,
        config: RestConfig,
        *,
        user_agent: str = f"deferred-quota/{webhook.__version__}",
        timeout_seconds: float = 10.0,
        on_warning: WarningHandler = ignore,
        on_call: CallObserver = ignore_calls,
    ) -> None:
        """Connect to nothing yet.

        Args:
            config: Where, and as whom; see `load_config`.
            user_agent: What the API server's audit log calls this client.
            timeout_seconds: The whole time of a call, and of the beginning of a watch.
            on_warning: Receives each warning of an answer, also of an error, before the call
                returns or raises.
            on_call: Receives verb, resource, code and seconds of each call.

        Raises:
            AccessError: A certificate cannot be used.
        """
        self._on_warning = on_warning
        self._on_call = on_call
        self._large_turns = threading.BoundedSemaphore(_LARGE_AT_ONCE)
        self._transport = Transport(config, user_agent=user_agent, timeout_seconds=timeout_seconds)

    @property
    def config(self) -> RestConfig:
        """Return the server and the user of the client."""
        return self._transport.config

    @property
    def idle_connections(self) -> int:
        """Number of open connections that are kept for the next calls."""
        return self._transport.idle_connections

    def close(self) -> None:
        """Close the idle connections; running watches go on."""
        self._transport.close()

    def get(
        self, kind: Kind, name: str, *, namespace: str = "", decode: Decode | None = None
    ) -> Object:
        """Read one object as it is now; see `ClusterApi.get`."""
        request = Request("GET", _object_path(kind, namespace, name))
        if decode is None:
            return object_of(self._ask(request))
        deadline = time.monotonic() + self._transport.timeout_seconds
        try:
            return object_of(self._ask(replace(request, most_bytes=SMALL_BYTES)), decode)
        except BodyTooLongError:
            pass
        if not self._large_turns.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise UnavailableError(f"{request}: other large objects are being read")
        try:
            left = max(_LEAST_SECONDS, deadline - time.monotonic())
            return object_of(self._ask(replace(request, most_seconds=left)), decode)
        finally:
            self._large_turns.release()

    def list(self, kind: Kind, options: ListOptions = ALL) -> ObjectList:
        """Read all objects of a kind in one answer; see `ClusterApi.list`."""
        page, _ = self._page(kind, options.namespace, _selectors(options))
        return ObjectList(tuple(item.object for item in page.items), page.resource_version)

    def pages(
        self, kind: Kind, options: ListOptions = ALL, *, limit: int = 500, is_brief: bool = False
    ) -> Iterator[Page]:
        """Read all objects of a kind in parts; see `ClusterApi.pages`.

        Objects can be large, and tenants make them so: where a part would have more bytes than
        `PAGE_BYTES`, fewer objects are asked for at a time.
        """
        query = _selectors(options)
        asked, more = limit, ""
        while True:
            place = {**query, "limit": str(asked), **({"continue": more} if more else {})}
            try:
                most_bytes = PAGE_BYTES if asked > 1 else 0
                page, more = self._page(
                    kind, options.namespace, place, most_bytes=most_bytes, is_brief=is_brief
                )
            except BodyTooLongError:
                asked = max(1, asked // 4)
                continue
            yield page
            if not more:
                return
            if 4 * sum(len(item.data) for item in page.items) < PAGE_BYTES:
                asked = min(limit, 2 * asked)

    def _page(
        self,
        kind: Kind,
        namespace: str | None,
        query: Mapping[str, str],
        *,
        most_bytes: int = 0,
        is_brief: bool = False,
    ) -> tuple[Page, str]:
        path = _with_query(_collection_path(kind, namespace), query)
        accept = _METADATA_LIST if is_brief else _JSON
        return page_of(self._ask(Request("GET", path, accept=accept, most_bytes=most_bytes)), kind)

    def watch(
        self,
        kind: Kind,
        options: ListOptions = ALL,
        *,
        resource_version: int,
        timeout_seconds: float | None = None,
        bookmarks: bool = True,
    ) -> RestWatch:
        """Follow the changes after a version; see `ClusterApi.watch`.

        `timeout_seconds` is rounded up to whole seconds.
        """
        seconds = 0 if timeout_seconds is None else max(1, math.ceil(timeout_seconds))
        query = {
            "watch": "true",
            "resourceVersion": str(resource_version),
            **_selectors(options),
            "timeoutSeconds": str(seconds or ""),
            "allowWatchBookmarks": "true" if bookmarks else "",
        }
        request = Request("GET", _with_query(_collection_path(kind, options.namespace), query))
        with observed(request, self._on_call) as call:
            head, connection = self._transport.stream(request)
            call.code = str(head.status)
        if head.status != 200:
            answer = self._transport.rest(request, head, connection)
            self._checked(answer)
            raise UnavailableError(f"{request}: answered {head.status} to a watch")
        return RestWatch(
            connection,
            head,
            silence_seconds=min(
                (seconds or MAX_WATCH_SECONDS) + SILENCE_SECONDS,
                WITH_BOOKMARKS_SECONDS if bookmarks else math.inf,
            ),
            name=f"watch of {kind.resource}",
        )

    def create(self, kind: Kind, obj: Object, *, dry_run: bool = False) -> Revision:
        """Create an object; see `ClusterApi.create`."""
        namespace = _text_of(obj, "namespace")
        if kind.namespaced and not namespace:
            raise BadRequestError("an empty namespace may not be set during creation")
        path = _with_query(_collection_path(kind, namespace), _only(dry_run=dry_run))
        return revision_of(self._ask(Request("POST", path, encode(obj))))

    def update(
        self, kind: Kind, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Revision:
        """Replace an object or a part of it; see `ClusterApi.update`."""
        place = _object_path(kind, _text_of(obj, "namespace"), _text_of(obj, "name"), subresource)
        path = _with_query(place, _only(dry_run=dry_run))
        return revision_of(self._ask(Request("PUT", path, encode(obj))))

    def update_status(
        self, kind: Kind, obj: Object, *, is_brief: bool = False, dry_run: bool = False
    ) -> Revision:
        """Replace an object's status; see `ClusterApi.update_status`."""
        place = _object_path(kind, _text_of(obj, "namespace"), _text_of(obj, "name"), "status")
        path = _with_query(place, _only(dry_run=dry_run))
        request = Request("PUT", path, encode(obj), accept=_METADATA if is_brief else _JSON)
        return revision_of(self._ask(request))

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
        place = _object_path(kind, namespace, name, subresource)
        path = _with_query(place, _only(dry_run=dry_run))
        media_type = _MERGE_PATCH if isinstance(patch, Mapping) else _JSON_PATCH
        request = Request("PATCH", path, encode(patch), media_type)
        for _ in range(0 if _names_identity(patch) else _PATCH_ATTEMPTS - 1):
            try:
                return revision_of(self._ask(request))
            except ConflictError:
                continue  # it lost its races, and nothing was written
        return revision_of(self._ask(request))

    def apply(
        self,
        kind: Kind,
        obj: Object,
        *,
        field_manager: str,
        force: bool = False,
        dry_run: bool = False,
    ) -> Revision:
        """Create an object or take over the fields that are given: server-side apply.

        Args:
            obj: The fields that the manager wants; a `resourceVersion` among them has to be the
                object's.
            field_manager: In whose name; fields that it applied before and are missing go.
            force: Take fields over from other managers instead of raising.
            dry_run: Check everything and write nothing.

        Raises:
            ConflictError: Another manager holds a field, or the version is another.
        """
        options = {"fieldManager": field_manager, "force": "true" if force else ""}
        place = _object_path(kind, _text_of(obj, "namespace"), _text_of(obj, "name"))
        path = _with_query(place, {**options, **_only(dry_run=dry_run)})
        return revision_of(self._ask(Request("PATCH", path, encode(obj), _APPLY_PATCH)))

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
        options = _delete_options(preconditions, grace_period_seconds, dry_run=dry_run)
        path = _object_path(kind, namespace, name)
        answer = self._ask(Request("DELETE", path, encode(options)))
        return deleted_of(answer, object_key(namespace, name))

    def bind(self, binding: Object, *, namespace: str = "", dry_run: bool = False) -> None:
        """Assign a pod to a node; see `ClusterApi.bind`."""
        own = _text_of(binding, "namespace")
        if namespace and own not in ("", namespace):
            raise BadRequestError(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        place = _object_path(PODS, own or namespace, _text_of(binding, "name"), "binding")
        self._ask(Request("POST", _with_query(place, _only(dry_run=dry_run)), encode(binding)))

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
        options: dict[str, object] = {"preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        place = _object_path(PODS, namespace, name, "eviction")
        path = _with_query(place, _only(dry_run=dry_run))
        self._ask(Request("POST", path, encode(eviction), most_seconds=_EVICTION_SECONDS))

    def server_version(self) -> Object:
        """Return what the server says of its version: `major`, `minor`, `gitVersion` and more."""
        return self.raw("/version")

    def raw(self, path: str) -> Object:
        """Read a path of the API.

        Raises:
            ApiError: It was refused, or not answered.
        """
        return object_of(self._ask(Request("GET", path)))

    def names(self, kind: Kind, *, namespace: str | None = None, limit: int) -> tuple[str, ...]:
        """Return the names of at most so many objects, and read nothing else of them.

        Raises:
            ApiError: They may not be listed, or the server does not answer.
        """
        # rows of what kubectl shows, whose first cell is the name: a fortieth of the objects
        query = {"limit": str(limit), "includeObject": "None"}
        path = _with_query(_collection_path(kind, namespace), query)
        found = object_of(self._ask(Request("GET", path, accept=_TABLE)))
        if found.get("kind") == "Table":
            rows = (mapping(each, "rows") for each in sequence(found.get("rows"), "rows"))
            return tuple(str(sequence(row.get("cells"), "cells")[0]) for row in rows)
        items = (mapping(each, "items") for each in sequence(found.get("items"), "items"))
        return tuple(str(mapping(item.get("metadata"), "metadata").get("name")) for item in items)

    def _ask(self, request: Request) -> Response:
        with observed(request, self._on_call) as call:
            answer = self._transport.send(request)
            call.code = str(answer.head.status)
        return self._checked(answer)

    def _checked(self, answer: Response) -> Response:
        for text in warnings_of(answer.head):
            self._on_warning(text)
        access = self._transport.config
        return check(answer, server=access.server, source=access.source)


def _only(*, dry_run: bool) -> dict[str, str]:
    return {"dryRun": "All" if dry_run else ""}


def _selectors(options: ListOptions) -> dict[str, str]:
    return {"labelSelector": options.label_selector, "fieldSelector": options.field_selector}


def _delete_options(
    asked: Preconditions, grace_period_seconds: int | None, *, dry_run: bool
) -> Object:
    version = None if asked.resource_version is None else str(asked.resource_version)
    only = {"uid": asked.uid or None, "resourceVersion": version}
    options: dict[str, object] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if any(only.values()):
        options["preconditions"] = {name: value for name, value in only.items() if value}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def _text_of(obj: Object, name: str) -> str:
    """Return a text of an object's metadata; empty if there is none."""
    meta = obj.get("metadata")
    value = meta.get(name) if isinstance(meta, Mapping) else None
    return value if isinstance(value, str) else ""


_IDENTITY: Final = ("resourceVersion", "uid")


def _names_identity(patch: JsonPatch | MergePatch) -> bool:
    """Return whether a patch is meant for one version or one object only."""
    if isinstance(patch, Mapping):
        meta = patch.get("metadata")
        return isinstance(meta, Mapping) and any(name in meta for name in _IDENTITY)
    places = tuple(f"/metadata/{name}" for name in _IDENTITY)
    return any(operation.get("path") in places for operation in patch)


# -- paths and queries ---------------------------------------------------------------------


def _collection_path(kind: Kind, namespace: str | None) -> str:
    """Return the path of the objects of a kind, in one namespace or, if it is empty, in all."""
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if namespace and kind.namespaced:
        return f"{root}/namespaces/{_segment('namespace', namespace)}/{kind.plural}"
    return f"{root}/{kind.plural}"


def _object_path(kind: Kind, namespace: str, name: str, subresource: str = "") -> str:
    """Return the path of one object, or of a part of it.

    Raises:
        BadRequestError: Name or namespace is missing, or cannot be part of a path.
    """
    if kind.namespaced and not namespace:
        raise BadRequestError(f"metadata.namespace: is missing for {kind.resource} {name!r}")
    path = f"{_collection_path(kind, namespace)}/{_segment('name', name)}"
    return f"{path}/{subresource}" if subresource else path


def _with_query(path: str, query: Mapping[str, str]) -> str:
    """Return a path with the parameters that have a value."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def _segment(what: str, text: str) -> str:
    """Return text as one segment of a path.

    Raises:
        BadRequestError: It is missing, or cannot be one.
    """
    if not text:
        raise BadRequestError(f"metadata.{what}: is missing")
    if not is_path_segment(text):
        raise BadRequestError(f"metadata.{what}: Invalid value: {text!r}: cannot stand in a path")
    return quote(text, safe="")
