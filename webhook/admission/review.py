"""The wire format of admission: bytes to AdmissionRequest, an answer to bytes.

Rule 1: what cannot be read is refused as a whole (`MalformedReviewError`, HTTP 400). Nothing is
guessed, and nothing but this error leaves `decode_review`, whatever the bytes are.

Rule 2: an answer that the API server would take for a failed call cannot be built or encoded
(`AnswerError`): a patch in the validating phase, a status code that is not an HTTP error, an
audit key that is not a qualified name.

Rule 3: what people typed comes back escaped. Names may hold any character in the mutating phase,
because the API server validates objects only afterwards.

Source: kubernetes v1.36, api/admission/v1/types.go; apiserver/pkg/admission/plugin/webhook/request
VerifyAdmissionResponse and apiserver/pkg/admission/plugin/webhook/errors ToStatusErr.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeAlias

from webhook.admission.patch_builder import PatchOperation, encode_patch
from webhook.admission.review_types import (
    API_VERSION,
    ENCODER,
    KIND,
    MALFORMED_REASONS,
    MalformedReviewError,
    ResponseReview,
    ReviewKind,
    ReviewRequest,
    ReviewResource,
    ReviewResponse,
    ReviewStatus,
    ReviewUserInfo,
    StatusDetails,
    parse,
)
from webhook.quota.charging.denials import Cause
from webhook.quota.objects.names import MAX_NAME_BYTES

__all__ = [
    "MALFORMED_REASONS",
    "STATUS_CODES",
    "AdmissionRequest",
    "AdmissionResponse",
    "Allowed",
    "AnswerError",
    "Denied",
    "GroupVersionKind",
    "MalformedReviewError",
    "Phase",
    "clean_warnings",
    "decode_review",
    "encode_review",
]

STATUS_CODES: Final = frozenset({400, 403, 404, 409, 413, 422, 429, 500})
"""HTTP codes of a denial. The API server crashes the answer of a code above 999 and turns one
below 400 into 400, so the set is closed."""

MAX_WARNING_CHARACTERS: Final = 120
"""Longest warning; the API server's own advice. Beyond a shared budget it cuts or drops them."""

MAX_WARNINGS: Final = 16
"""Most warnings of one answer: all hooks of a request share 4096 characters."""

MAX_MESSAGE_CHARACTERS: Final = 32 * 1024
"""Longest text of a denial; longer text is cut. Pods and quotas may have any number of parts, and
clients of the port may send any text as a name; what waits for a client has to stay small."""

MAX_CAUSES: Final = 128
"""Most causes of a denial; each of their texts is cut like an audit annotation."""

MAX_AUDIT_CHARACTERS: Final = 1024
"""Longest value of an audit annotation; longer text is cut."""

Object: TypeAlias = Mapping[str, object]


class AnswerError(ValueError):
    """An answer that the API server would take for a failed call: a fault of this program."""


class Phase(StrEnum):
    """One of the two calls of a request, by the path of the URL."""

    MUTATING = "mutating"
    VALIDATING = "validating"
    SHADOW = "shadow"
    """A validating call of a namespace in shadow mode: nothing is decided."""


@dataclass(frozen=True, slots=True)
class GroupVersionKind:
    """The type of an object; the core group is empty."""

    group: str
    version: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """One request as the API server sent it; texts that were absent are empty.

    `uid` is new for every call, also for a repeated one, and so is no key for anything.
    """

    uid: str
    phase: Phase
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    group: str
    version: str
    resource: str
    """Plural, as `pods`; also for subresources."""
    subresource: str = ""
    kind: GroupVersionKind
    """Type of `object`: a Binding where the resource is `pods` and the subresource `binding`."""
    name: str = ""
    """Empty in the mutating phase of a create with `generateName`."""
    namespace: str = ""
    username: str = ""
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    object: Object | None = None
    """The new object; None for DELETE."""
    old_object: Object | None = None
    """The stored object; None for CREATE and CONNECT."""
    options: Object | None = None

    @property
    def key(self) -> str:
        """Return "namespace/name"."""
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Return "resource" or "resource/subresource"."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """A request that may go on."""

    decision: str
    """What was done, in a word, as `reserved`; becomes the audit annotation `decision`."""
    patch: tuple[PatchOperation, ...] = ()
    """Only in the mutating phase; empty is no patch."""
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    """Audit annotations; the API server puts the webhook's name before each key, a word of ours."""
    handler: str = ""
    """For logs and metrics: the handler that decided, when the resource alone does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """A request that is refused; the user reads `message` after the name of the webhook.

    Raises:
        AnswerError: The code is not in `STATUS_CODES`.
    """

    code: int
    reason: str
    """The Status reason, as `Forbidden`."""
    message: str
    """Without the `pods "web-1" is forbidden: ` that the API server adds itself."""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int | None = None
    """When the client may try again; the API server makes a Retry-After header of it."""
    warnings: tuple[str, ...] = ()
    audit: Mapping[str, str] = field(default_factory=dict)
    decision: str = "denied"
    handler: str = ""

    def __post_init__(self) -> None:
        if self.code not in STATUS_CODES:
            raise AnswerError(f"code: {self.code} is not one of {sorted(STATUS_CODES)}")


AdmissionResponse: TypeAlias = Allowed | Denied


_NO_KIND: Final = ReviewKind()
_NO_RESOURCE: Final = ReviewResource()
_NO_USER: Final = ReviewUserInfo()


def decode_review(data: bytes, phase: Phase) -> AdmissionRequest:
    """Read the request of an AdmissionReview.

    Unknown fields are ignored, of repeated keys the last one stands, and null is the same as
    absent, as in the API server's decoder. Numbers in objects are never floats.

    Raises:
        MalformedReviewError: The data cannot be answered; the reason says why.
    """
    review = parse(data)
    if review.kind != KIND:
        raise MalformedReviewError("kind", f"kind: must be {KIND}, not {_shown(review.kind)}")
    if review.api_version != API_VERSION:
        version = _shown(review.api_version)
        raise MalformedReviewError("version", f"apiVersion: must be {API_VERSION}, not {version}")
    if review.request is None:
        raise MalformedReviewError("request", "request: must be present")
    return _admission_request(review.request, phase)


def encode_review(request: AdmissionRequest, answer: AdmissionResponse) -> bytes:
    """Write the AdmissionReview that answers `request`.

    Raises:
        AnswerError: The answer carries a patch, but the request is in the validating phase.
    """
    if isinstance(answer, Allowed):
        response = _allowed(request, answer)
    else:
        response = _denied(request, answer)
    return ENCODER.encode(ResponseReview(API_VERSION, KIND, response))


def clean_warnings(warnings: Iterable[str]) -> list[str]:
    """Make warnings fit to be headers: printable ASCII, short, few, each only once.

    A character that a header cannot hold becomes `?`; the API server would drop the warning.
    """
    lines = dict.fromkeys(_clean_warning(warning) for warning in warnings)
    kept = [line for line in lines if line]
    if len(kept) > MAX_WARNINGS:
        left_out = len(kept) - MAX_WARNINGS + 1
        return [*kept[: MAX_WARNINGS - 1], f"{left_out} more warnings are not shown"]
    return kept


def _admission_request(raw: ReviewRequest, phase: Phase) -> AdmissionRequest:
    kind, resource = raw.kind or _NO_KIND, raw.resource or _NO_RESOURCE
    user = raw.user_info or _NO_USER
    if not raw.uid:
        raise MalformedReviewError("uid", "request.uid: must not be empty")
    if not resource.resource:
        raise MalformedReviewError("request", "request.resource.resource: must not be empty")
    if not raw.operation:
        raise MalformedReviewError("request", "request.operation: must not be empty")
    _check_lengths(raw, kind, resource)
    return AdmissionRequest(
        uid=raw.uid,
        phase=phase,
        operation=raw.operation,
        group=resource.group or "",
        version=resource.version or "",
        resource=resource.resource,
        subresource=raw.sub_resource or "",
        kind=GroupVersionKind(kind.group or "", kind.version or "", kind.kind or ""),
        name=raw.name or "",
        namespace=raw.namespace or "",
        username=user.username or "",
        groups=tuple(user.groups or ()),
        dry_run=raw.dry_run or False,
        object=raw.object,
        old_object=raw.old_object,
        options=raw.options,
    )


def _check_lengths(raw: ReviewRequest, kind: ReviewKind, resource: ReviewResource) -> None:
    """Refuse what no API server names so; only `name` and the user are written by people."""
    for path, text in (
        ("uid", raw.uid),
        ("namespace", raw.namespace),
        ("operation", raw.operation),
        ("subResource", raw.sub_resource),
        ("resource.group", resource.group),
        ("resource.version", resource.version),
        ("resource.resource", resource.resource),
        ("kind.group", kind.group),
        ("kind.version", kind.version),
        ("kind.kind", kind.kind),
    ):
        if text and len(text) > MAX_NAME_BYTES:
            rule = f"must be no more than {MAX_NAME_BYTES} characters"
            raise MalformedReviewError("request", f"request.{path}: {rule}")


def _allowed(request: AdmissionRequest, answer: Allowed) -> ReviewResponse:
    if not answer.patch:
        patch_type = patch = None
    elif request.phase is Phase.MUTATING:
        patch_type, patch = "JSONPatch", b64encode(encode_patch(answer.patch)).decode("ascii")
    else:
        raise AnswerError("patch: the validating phase must not change the object")
    return ReviewResponse(
        uid=request.uid,
        allowed=True,
        patch_type=patch_type,
        patch=patch,
        audit_annotations=_audit(answer),
        warnings=clean_warnings(answer.warnings) if answer.warnings else None,
    )


def _denied(request: AdmissionRequest, answer: Denied) -> ReviewResponse:
    details = StatusDetails(
        name=_cut(request.name, MAX_AUDIT_CHARACTERS),
        group=request.group,
        # as the API server has it: the resource, and the kind for 422
        kind=request.kind.kind if answer.code == 422 else request.resource,
        causes=tuple(map(_cut_cause, answer.causes[:MAX_CAUSES])),
        retry_after_seconds=answer.retry_after_seconds,
    )
    message = _cut(answer.message, MAX_MESSAGE_CHARACTERS)
    return ReviewResponse(
        uid=request.uid,
        allowed=False,
        status=ReviewStatus("Failure", answer.code, answer.reason, message, details),
        audit_annotations=_audit(answer),
        warnings=clean_warnings(answer.warnings) if answer.warnings else None,
    )


def _audit(answer: AdmissionResponse) -> dict[str, str]:
    audit = {"decision": answer.decision}
    for key, text in answer.audit.items():
        audit[key] = _cut(text, MAX_AUDIT_CHARACTERS)
    return audit


_NOT_PRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


def _clean_warning(text: str) -> str:
    return _cut(_NOT_PRINTABLE.sub("?", text).strip(), MAX_WARNING_CHARACTERS)


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else f"{text[: size - 3]}..."


def _cut_cause(cause: Cause) -> Cause:
    field, message = (_cut(text, MAX_AUDIT_CHARACTERS) for text in (cause.field, cause.message))
    return replace(cause, field=field, message=message)


def _shown(text: str | None) -> str:
    return repr(_cut(text, 64)) if text else "absent"
