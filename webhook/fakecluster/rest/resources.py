"""Requests for resources, method by method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from werkzeug.wrappers import Request, Response

from webhook.fakecluster.rest.routes import Route
from webhook.fakecluster.rest.strategic_merge import apply_strategic
from webhook.fakecluster.storage import FakeClient
from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.fakecluster.storage.watch import FakeWatch
from webhook.jsonfields.encoding import InvalidJsonError, decode_json
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    BINDINGS,
    PODS,
    BadRequestError,
    ListOptions,
    MethodNotAllowedError,
    NotFoundError,
    Object,
    Preconditions,
    Revision,
    UnsupportedMediaTypeError,
    WatchEvent,
)
from webhook.kube.codec import decode_object, encode
from webhook.kube.errors import resource_details
from webhook.kube.metadata import parse_version
from webhook.kube.patches import apply_patch

_JSON_PATCH: Final = "application/json-patch+json"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
_SUCCESS: Final[Mapping[str, object]] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
}
_UNKNOWN_FORMAT: Final = (
    "the body of the request was in an unknown format - accepted media types include: {}"
)


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource, and the client that carries it out."""

    request: Request
    route: Route
    client: FakeClient

    @property
    def dry_run(self) -> bool:
        """Return whether nothing shall be written."""
        asked = self.request.args.getlist("dryRun")
        if any(value != "All" for value in asked):
            raise BadRequestError(f'dryRun: Unsupported value: {asked}: supported values: "All"')
        return bool(asked)

    def body(self) -> dict[str, object]:
        """Return the object that was sent."""
        kind = self.request.mimetype
        if kind not in ("application/json", ""):
            raise UnsupportedMediaTypeError(_UNKNOWN_FORMAT.format("application/json"))
        return decode_object(self.request.get_data())

    def flag(self, name: str) -> bool:
        """Return whether a parameter of the query is set."""
        return self.request.args.get(name, "") in ("1", "true", "True")


def _decoded(request: Request) -> object:
    try:
        return decode_json(request.get_data())
    except InvalidJsonError as err:
        raise BadRequestError(f"the body is not JSON: {err}") from err


def _as_object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadRequestError("the body is not a JSON object")
    return value


def respond(call: Call) -> Response:
    """Carry out a request.

    Raises:
        ApiError: It cannot be carried out.
    """
    shape = "object" if call.route.name else "collection"
    method = "GET" if call.request.method == "HEAD" else call.request.method
    handler = _HANDLERS.get((method, shape))
    if handler is None:
        raise _not_allowed()
    return handler(call)


def _not_allowed() -> MethodNotAllowedError:
    return MethodNotAllowedError("the server does not allow this method on the requested resource")


def _get(call: Call) -> Response:
    route = call.route
    if route.subresource not in ("", "status", "resize"):
        raise NotFoundError("the server could not find the requested resource")
    return _raw(call.client.cluster.get(route.kind, route.namespace, route.name).data())


def _list_or_watch(call: Call) -> Response:
    if call.route.kind == BINDINGS:
        raise _not_allowed()
    return _watch(call) if call.flag("watch") else _list(call)


def _list(call: Call) -> Response:
    chosen, version = _select(call)
    kind = call.route.kind
    head = {
        "kind": f"{kind.kind}List",
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": str(version)},
    }
    items = b",".join(stored.data() for stored in chosen)
    return _raw(b'%s,"items":[%s]}' % (encode(head)[:-1], items))


def _watch(call: Call) -> Response:
    asked = call.request.args.get("resourceVersion", "")
    initial: list[WatchEvent] = []
    version = parse_version(asked)
    if not version:
        chosen, version = _select(call)
        initial = [stored.event("ADDED") for stored in chosen]
    stream = call.client.watch(
        call.route.kind,
        _options(call),
        resource_version=version,
        timeout_seconds=_seconds(call.request.args.get("timeoutSeconds", "")),
        bookmarks=call.flag("allowWatchBookmarks"),
    )
    return Response(_Lines(initial, stream), content_type="application/json")


def _select(call: Call) -> tuple[list[StoredObject], int]:
    return call.client.cluster.select(call.route.kind, _options(call))


def _options(call: Call) -> ListOptions:
    arguments = call.request.args
    return ListOptions(
        call.route.namespace,
        arguments.get("labelSelector", ""),
        arguments.get("fieldSelector", ""),
    )


def _seconds(text: str) -> float | None:
    """Return how long a watch shall last; None if the server chooses, as it does for 0."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise BadRequestError(f"timeoutSeconds: {text!r} is not a number of seconds")
    return float(text) or None


class _Lines:
    """A watch as lines of JSON. Closing it, as a WSGI server does, ends the watch."""

    def __init__(self, initial: Iterable[WatchEvent], stream: FakeWatch) -> None:
        self._initial = initial
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        # nothing yet, but the headers go out, so that the client knows the watch stands
        yield b""
        for event in self._initial:
            yield _line(event)
        for event in self._stream:
            yield _line(event)

    def close(self) -> None:
        self._stream.close()


def _line(event: WatchEvent) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event.type.encode(), event.data)


def _create(call: Call) -> Response:
    route, body = call.route, call.body()
    if route.kind == BINDINGS:
        return _bind(call, body, legacy=True)
    revision = call.client.create(route.kind, _placed(route, body), dry_run=call.dry_run)
    return _revision(revision, 201)


def _create_below(call: Call) -> Response:
    """Create a subresource: the binding of a pod, or its eviction."""
    route = call.route
    if route.kind != PODS or route.subresource not in ("binding", "eviction"):
        raise _not_allowed()
    body = call.body()
    if route.subresource == "eviction":
        return _evict(call, body)
    if _metadata(body).get("name") != route.name:
        raise BadRequestError("name in URL does not match name in Binding object")
    return _bind(call, body, legacy=False)


def _evict(call: Call, body: Object) -> Response:
    route = call.route
    if _metadata(body).get("name") != route.name:
        raise BadRequestError("name in URL does not match name in Eviction object")
    options = FieldReader(body).child("deleteOptions")
    call.client.evict(
        route.name,
        namespace=route.namespace,
        uid=options.child("preconditions").text("uid"),
        grace_seconds=options.integer("gracePeriodSeconds"),
        dry_run=call.dry_run,
    )
    return json_response({**_SUCCESS, "code": 201}, 201)


def _bind(call: Call, body: Object, *, legacy: bool) -> Response:
    call.client.bind(body, namespace=call.route.namespace, legacy=legacy, dry_run=call.dry_run)
    return json_response({**_SUCCESS, "code": 201}, 201)


def _put(call: Call) -> Response:
    route, body = call.route, call.body()
    name = _metadata(body).get("name")
    if name != route.name:
        raise BadRequestError(
            f"the name of the object ({name}) does not match the name on the URL ({route.name})"
        )
    revision = call.client.update(
        route.kind, _placed(route, body), subresource=route.subresource, dry_run=call.dry_run
    )
    return _revision(revision)


def _patch(call: Call) -> Response:
    route, change = call.route, _change(call)
    revision = call.client.change(
        route.kind,
        route.name,
        change,
        namespace=route.namespace,
        subresource=route.subresource,
        dry_run=call.dry_run,
    )
    return _revision(revision)


def _change(call: Call) -> Callable[[dict[str, object]], Object]:
    """Return what the patch that was sent does to an object."""
    patch, media_type = _decoded(call.request), call.request.mimetype
    if media_type == _JSON_PATCH:
        if not isinstance(patch, list):
            raise BadRequestError("a JSON Patch must be a list of operations")
        return lambda document: apply_patch(document, patch)
    if media_type not in (_MERGE_PATCH, _STRATEGIC_PATCH):
        accepted = f"{_JSON_PATCH}, {_MERGE_PATCH}, {_STRATEGIC_PATCH}"
        raise UnsupportedMediaTypeError(_UNKNOWN_FORMAT.format(accepted))
    fields = _as_object(patch)
    if media_type == _STRATEGIC_PATCH:
        return lambda document: apply_strategic(document, fields)
    return lambda document: apply_patch(document, fields)


def _delete(call: Call) -> Response:
    route = call.route
    options = call.body() if call.request.content_length else {}
    grace = options.get("gracePeriodSeconds", call.request.args.get("gracePeriodSeconds"))
    preconditions = options.get("preconditions")
    only = preconditions if isinstance(preconditions, Mapping) else {}
    version = only.get("resourceVersion")
    revision = call.client.delete(
        route.kind,
        route.name,
        namespace=route.namespace,
        preconditions=Preconditions(
            str(only.get("uid") or ""), parse_version(str(version)) if version else None
        ),
        grace_period_seconds=None if grace is None else _whole_number(grace),
        dry_run=call.dry_run or options.get("dryRun") == ["All"],
    )
    return _deleted(route, revision)


def _deleted(route: Route, revision: Revision) -> Response:
    """Answer with the object for pods and for what is still there, else that all went well.

    Source: kubernetes v1.36, apiserver/pkg/endpoints/handlers/delete.go, and the
    ReturnDeletedObject of pkg/registry/core/pod/storage/storage.go.
    """
    if route.kind == PODS or "deletionTimestamp" in _metadata(revision.object):
        return _revision(revision)
    details = {**resource_details(route.kind, route.name), "uid": revision.uid}
    return json_response({**_SUCCESS, "details": details})


def _whole_number(value: object) -> int:
    try:
        return int(str(value))
    except ValueError as err:
        raise BadRequestError(f"gracePeriodSeconds: {value!r} is not a number") from err


def _metadata(body: Object) -> Mapping[str, object]:
    meta = body.get("metadata")
    if not isinstance(meta, Mapping):
        raise BadRequestError("metadata: must be an object")
    return meta


def _placed(route: Route, body: Object) -> Object:
    """Return an object with the namespace of the path it was sent to."""
    meta = _metadata(body)
    if not route.kind.namespaced:
        return body
    if meta.get("namespace") not in (None, "", route.namespace):
        raise BadRequestError(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return {**body, "metadata": {**meta, "namespace": route.namespace}}


_HANDLERS: Final[Mapping[tuple[str, str], Callable[[Call], Response]]] = {
    ("GET", "object"): _get,
    ("GET", "collection"): _list_or_watch,
    ("POST", "collection"): _create,
    ("POST", "object"): _create_below,
    ("PUT", "object"): _put,
    ("PATCH", "object"): _patch,
    ("DELETE", "object"): _delete,
}


def _revision(revision: Revision, status: int = 200) -> Response:
    return _raw(revision.data, status)


def json_response(value: Mapping[str, object], status: int = 200) -> Response:
    """Return a value as a JSON response."""
    return _raw(encode(value), status)


def _raw(data: bytes, status: int = 200) -> Response:
    return Response(data, status=status, content_type="application/json")
