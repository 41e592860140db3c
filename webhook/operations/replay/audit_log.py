"""Requests about pods out of an audit log: `Event` of `audit.k8s.io/v1`, one to a line.

Of each request the last stage is read. Creations need the level `RequestResponse`: only the answer
has the name that the API server made up, and what its admission filled in.

Source: kubernetes v1.36, apiserver/pkg/apis/audit/v1/types.go Event.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from webhook.jsonfields.encoding import InvalidJsonError, decode_json
from webhook.jsonfields.fields import InvalidFieldError, mapping
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import Object
from webhook.kube.metadata import object_name

API_VERSION: Final = "audit.k8s.io/v1"
_LAST_STAGE: Final = "ResponseComplete"
_FORBIDDEN: Final = 403
_BY_QUOTA: Final = "exceeded quota"
_TERMINAL: Final = frozenset({"Succeeded", "Failed"})


class AuditLogError(ValueError):
    """A line that cannot be read; the text has file and line."""


class RequestKind(StrEnum):
    """Effect of a request."""

    CREATED = "created"
    REFUSED = "refused"
    """The creation of a pod, for want of quota."""
    BOUND = "bound"
    ENDED = "ended"
    """The status of the pod says so."""
    DELETED = "deleted"
    """One of several requests, where the pod is given time to end."""


_KINDS: Final = {
    ("create", "pods", ""): RequestKind.CREATED,
    ("create", "pods", "binding"): RequestKind.BOUND,
    ("create", "bindings", ""): RequestKind.BOUND,
    ("create", "pods", "eviction"): RequestKind.DELETED,
    ("delete", "pods", ""): RequestKind.DELETED,
    ("patch", "pods", "status"): RequestKind.ENDED,
    ("update", "pods", "status"): RequestKind.ENDED,
}
"""Verb, resource and subresource → what such a request does if it is answered with success."""
_PATHS: Final = frozenset((resource, subresource) for _, resource, subresource in _KINDS)


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One request about a pod."""

    at: int
    """Milliseconds since 1970."""
    kind: RequestKind
    namespace: str
    name: str
    pod: Object | None = None
    """The pod as it was stored then; of a refused creation as it was sent."""


@dataclass(slots=True)
class AuditLog:
    """Facts of a log besides its requests."""

    lines: int = 0
    without_pod: int = 0
    """Creations whose line has no pod: the level of the log is too low."""
    collections: int = 0
    """Requests that delete all pods of a selector: which ones the log does not say."""
    requests: list[PodRequest] = field(default_factory=list)


def read_audit_log(file: str, lines: Iterable[bytes], log: AuditLog) -> None:
    """Add the requests of a file to a log.

    Raises:
        AuditLogError: A line is no audit event.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        log.lines += 1
        try:
            log.requests.extend(_requests(_event(line), log))
        except (InvalidFieldError, InvalidJsonError) as err:
            raise AuditLogError(f"{file}: line {number}: {err}") from err


def _event(line: bytes) -> Object:
    raw = decode_json(line)
    if not isinstance(raw, dict):
        raise InvalidFieldError("", "must be an object")
    kind, version = raw.get("kind"), raw.get("apiVersion")
    if (kind, version) != ("Event", API_VERSION):
        found = " of ".join(str(text)[:40] for text in (kind, version) if text is not None)
        missing = [name for name in ("kind", "apiVersion") if raw.get(name) is None]
        detail = f"{found or 'an object'} without {' and '.join(missing)}" if missing else found
        raise InvalidFieldError("kind", f"must be an Event of {API_VERSION}, not {detail}")
    return raw


def _requests(raw: Object, log: AuditLog) -> Iterator[PodRequest]:
    event = FieldReader(raw)
    if event.text("stage") != _LAST_STAGE or "dryRun=All" in event.text("requestURI"):
        return
    about, verb = event.child("objectRef"), event.text("verb")
    path = about.text("resource"), about.text("subresource")
    if path not in _PATHS:
        return
    if verb == "deletecollection":
        log.collections += 1
        return
    kind, at = _kind(verb, path, raw), event.timestamp("stageTimestamp")
    if kind is None or at is None:
        return
    sent, pod = _object(raw, "requestObject"), _pod(raw, kind)
    if pod is None and kind in {RequestKind.CREATED, RequestKind.REFUSED}:
        log.without_pod += 1
        return
    name = about.text("name") or _name_in(pod) or _name_in(sent)
    yield PodRequest(int(at.timestamp() * 1000), kind, about.text("namespace"), name, pod)


def _kind(verb: str, path: tuple[str, str], raw: Object) -> RequestKind | None:
    """Return what a request did to a pod; None of one that changed nothing here."""
    status = FieldReader(raw).child("responseStatus")
    code = status.integer("code") or 0
    if verb == "create" and path == ("pods", "") and code == _FORBIDDEN:
        return RequestKind.REFUSED if _BY_QUOTA in status.text("message") else None
    if not 200 <= code < 300:
        return None
    kind = _KINDS.get((verb, *path))
    if kind is RequestKind.ENDED and not _has_ended(raw):
        return None
    return None if kind is RequestKind.DELETED and _is_dry_run(raw) else kind


def _has_ended(raw: Object) -> bool:
    pod = _object(raw, "responseObject") or _object(raw, "requestObject") or {}
    return FieldReader(pod).child("status").text("phase") in _TERMINAL


def _is_dry_run(raw: Object) -> bool:
    """Return whether a deletion or an eviction is one: it has its options in what is sent."""
    sent = FieldReader(_object(raw, "requestObject") or {})
    return any("All" in one.strings("dryRun") for one in (sent, sent.child("deleteOptions")))


def _pod(raw: Object, kind: RequestKind) -> Object | None:
    """Return the pod of a request: as it is stored, or as its creation was refused."""
    if kind is RequestKind.REFUSED:
        return _sent(raw)
    answer = _object(raw, "responseObject")
    return answer if answer is not None and answer.get("kind") == "Pod" else None


def _sent(raw: Object) -> Object | None:
    """Return the pod as it was sent, in the namespace of its request: controllers send none."""
    pod = _object(raw, "requestObject")
    if pod is None:
        return None
    namespace = FieldReader(raw).child("objectRef").text("namespace")
    metadata = mapping(pod.get("metadata"), "requestObject.metadata")
    return {**pod, "metadata": {**metadata, "namespace": namespace}}


def _object(raw: Object, name: str) -> Object | None:
    value = raw.get(name)
    return value if isinstance(value, dict) else None


def _name_in(raw: Object | None) -> str:
    return "" if raw is None else object_name(raw)
