"""Decoded answers: objects, lists, or errors.

Only the identity of an object is read here; the rest stays JSON until it is asked for.

Some answers are not the API server's: a load balancer's page, a proxy's. That such a one says 404
tells nothing about the object: it is read as "cannot answer now".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from webhook.jsonfields.encoding import InvalidJsonError, decode_deep, decode_json
from webhook.kube.api import (
    ApiError,
    BadRequestError,
    Decode,
    ForbiddenError,
    InternalError,
    Kind,
    MethodNotAllowedError,
    NotFoundError,
    Object,
    Page,
    RequestTimeoutError,
    Revision,
    TooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UnsupportedMediaTypeError,
    WatchEvent,
    object_key,
)
from webhook.kube.codec import decode_object
from webhook.kube.rest.http1 import Head
from webhook.kube.rest.transport import Response


class Meta(msgspec.Struct, frozen=True, gc=False):
    """Fields of `metadata` that are read at once."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the field's name in the API


class PartialObject(msgspec.Struct, frozen=True, gc=False):
    """An object, as far as it is read at once."""

    kind: str = ""
    metadata: Meta = Meta()

    @property
    def key(self) -> str:
        """Return "namespace/name", or the name."""
        return object_key(self.metadata.namespace, self.metadata.name)

    @property
    def version(self) -> int:
        """Return the version; 0 for none, or for one that is not a number."""
        text = self.metadata.resourceVersion
        return int(text) if text.isascii() and text.isdecimal() else 0


class ListMeta(msgspec.Struct, frozen=True):
    """The metadata of a list."""

    resourceVersion: str = ""  # noqa: N815 - the field's name in the API
    continue_: str = msgspec.field(default="", name="continue")


class RawList(msgspec.Struct, frozen=True):
    """A list whose items are not decoded."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class WatchLine(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_IDENTIFIED: Final = msgspec.json.Decoder(PartialObject)
_RAW_LIST: Final = msgspec.json.Decoder(RawList)
_LINE: Final = msgspec.json.Decoder(WatchLine)


def revision_of(answer: Response) -> Revision:
    """Read an object that was answered."""
    found = _identify(answer.body)
    return Revision(
        key=found.key,
        uid=found.metadata.uid,
        resource_version=found.version,
        data=answer.body,
    )


def deleted_of(answer: Response, key: str) -> Revision:
    """Read what a deletion answered: the object, or a Status that names what is gone."""
    revision = revision_of(answer)
    if revision.key == key:
        return revision
    details = object_of(answer).get("details")
    uid = details.get("uid") if isinstance(details, Mapping) else None
    return Revision(
        key=key, uid=uid if isinstance(uid, str) else "", resource_version=0, data=answer.body
    )


def object_of(answer: Response, decode: Decode = decode_object) -> Object:
    """Decode an object that was answered."""
    try:
        return decode(answer.body)
    except BadRequestError as err:
        raise UnavailableError(f"the answer cannot be read: {err}") from err


def page_of(answer: Response, kind: Kind) -> tuple[Page, str]:
    """Read a part of a list, and the word with which to ask for the next one; empty at the end.

    Items of built-in kinds come without `apiVersion` and `kind`; they get them here.
    """
    try:
        found = decode_deep(_RAW_LIST, answer.body)
        items = tuple(_item(bytes(raw), kind) for raw in found.items or ())
    except msgspec.MsgspecError as err:
        raise UnavailableError(f"the list of {kind.resource} cannot be read: {err}") from err
    version = found.metadata.resourceVersion
    if not (version.isascii() and version.isdecimal()):
        raise UnavailableError(f"the list of {kind.resource} has no version: {version!r}")
    return Page(items, int(version)), found.metadata.continue_


def _item(data: bytes, kind: Kind) -> Revision:
    found = decode_deep(_IDENTIFIED, data)
    if not found.kind:
        # `{` is the first byte of an object; no client sends an empty one, for it has metadata
        data = b'{"apiVersion":"%s","kind":"%s",%s' % (
            kind.api_version.encode(),
            kind.kind.encode(),
            data[1:],
        )
    return Revision(
        key=found.key, uid=found.metadata.uid, resource_version=found.version, data=data
    )


def event_of(line: bytes) -> WatchEvent:
    """Read one line of a watch.

    Raises:
        UnavailableError: It is none.
    """
    try:
        found = decode_deep(_LINE, line)
        data = bytes(found.object)
        about = decode_deep(_IDENTIFIED, data) if found.type != "ERROR" else PartialObject()
    except msgspec.MsgspecError as err:
        raise UnavailableError(f"a line of the watch cannot be read: {err}") from err
    match found.type:
        case "ADDED" | "MODIFIED" | "DELETED" as kind:
            return WatchEvent(
                type=kind,
                key=about.key,
                uid=about.metadata.uid,
                resource_version=about.version,
                data=data,
            )
        case "BOOKMARK" | "ERROR" as kind:
            return WatchEvent(type=kind, key="", uid="", resource_version=about.version, data=data)
        case other:
            raise UnavailableError(f"the watch sent an event of unknown type {other[:40]!r}")


def _identify(data: bytes) -> PartialObject:
    try:
        return decode_deep(_IDENTIFIED, data)
    except msgspec.MsgspecError as err:
        raise UnavailableError(f"the answer is no object of the API: {err}") from err


def check(answer: Response, *, server: str, source: str) -> Response:
    """Return an answer that says yes.

    Raises:
        ApiError: It says no, or it is not the API server's.
    """
    head = answer.head
    is_json = head.headers.get("content-type", "").partition(";")[0].strip() == "application/json"
    if head.status in (200, 201, 202) and is_json:
        return answer
    status = _status_of(answer) if is_json and head.status >= 400 else None
    if status is None:
        raise _foreign(answer, server)
    raise _of_status(status, head, source)


def _status_of(answer: Response) -> Mapping[str, object] | None:
    """Return the Status that an answer holds; None if it holds something else."""
    try:
        found = decode_json(answer.body)
    except InvalidJsonError:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def _of_status(status: Mapping[str, object], head: Head, source: str) -> ApiError:
    """Return the error of a Status; an unknown one of the server's leaves open what was done."""
    error = ApiError.from_status({"code": head.status, **status})
    if error.retry_after is None:
        error.retry_after = _retry_after(head)
    if type(error) is ApiError and error.code >= 500:
        return UnavailableError(
            error.message, reason=error.reason, details=error.details, retry_after=error.retry_after
        )
    if isinstance(error, UnauthorizedError):
        return UnauthorizedError(f"{error.message}: the API server does not know {source}")
    return error


_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    405: MethodNotAllowedError,
    408: RequestTimeoutError,
    413: TooLargeError,
    415: UnsupportedMediaTypeError,
    429: TooManyRequestsError,
    500: InternalError,
    504: RequestTimeoutError,
}
"""What is believed of an answer that is not a Status: that the request as such was at fault, or
that it is not known what was done. Not that an object is missing, taken or changed."""

_NO_SUCH_PATH: Final = b"404 page not found"
_SHOWN: Final = 200


def _foreign(answer: Response, server: str) -> ApiError:
    """Return the error of an answer that holds no Status."""
    head = answer.head
    if head.status == 404 and answer.body.strip() == _NO_SUCH_PATH:
        return NotFoundError("the server could not find the requested resource")
    detail = f"{server} answered {head.status} {head.reason}".rstrip()
    if 300 <= head.status < 400:
        target = head.headers.get("location", "")
        return ApiError(
            f"{detail}: a redirect to {target[:_SHOWN]!r}, which is not followed", code=head.status
        )
    media_type = head.headers.get("content-type", "no type")
    shown = json.dumps(answer.body[:_SHOWN].decode("utf-8", "replace"))
    error_class = _BY_STATUS.get(head.status, UnavailableError)
    return error_class(
        f"{detail}: {media_type} that is not the API server's: {shown}",
        retry_after=_retry_after(head),
    )


def _retry_after(head: Head) -> int | None:
    text = head.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else None


# -- warnings ------------------------------------------------------------------------------

WarningHandler: TypeAlias = Callable[[str], None]
"""Receives one warning, in the words of its source. Called in the thread of the call."""

_QUOTED: Final = r'"((?:[^"\\]|\\.)*)"'
_WARNING: Final = re.compile(rf"(\d{{3}}) +[^ ,]+ +{_QUOTED}(?: +{_QUOTED})? *(?:,|$)")
_ESCAPED: Final = re.compile(r"\\(.)")
_MEANT_FOR_PEOPLE: Final = "299"


def ignore(_: str) -> None:
    """Drop a warning."""


def warnings_of(head: Head) -> list[str]:
    """Return the texts in the order in which they were sent; what cannot be read is left out."""
    found = _WARNING.finditer(head.headers.get("warning", ""))
    return [_text(each[2]) for each in found if each[1] == _MEANT_FOR_PEOPLE and each[2]]


def _text(quoted: str) -> str:
    # headers are read as latin-1, and the API server writes UTF-8
    raw = _ESCAPED.sub(r"\1", quoted).encode("latin-1")
    return raw.decode("utf-8", "replace")
