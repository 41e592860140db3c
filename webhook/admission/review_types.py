"""The JSON of admission: typed records that bytes are read into and written from.

What a record does not name is skipped, unread; null is the same as absent; of repeated keys the
last one stands. Objects stay plain data without floats.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from webhook.jsonfields.encoding import NumberText, decode_tolerant
from webhook.quota.charging.denials import Cause

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

MALFORMED_REASONS: Final = ("json", "nesting", "type", "kind", "version", "request", "uid")
"""Every `MalformedReviewError.reason`."""


class MalformedReviewError(ValueError):
    """Bytes that are not an AdmissionReview which can be answered.

    Attributes:
        reason: One of `MALFORMED_REASONS`.
        detail: What is wrong, with the path of the field where there is one.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class ReviewKind(msgspec.Struct, frozen=True, gc=False):
    """`request.kind`."""

    group: str | None = ""
    version: str | None = ""
    kind: str | None = ""


class ReviewResource(msgspec.Struct, frozen=True, gc=False):
    """`request.resource`."""

    group: str | None = ""
    version: str | None = ""
    resource: str | None = ""


class ReviewUserInfo(msgspec.Struct, frozen=True, gc=False):
    """`request.userInfo`, as far as it is read."""

    username: str | None = ""
    groups: list[str] | None = None


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """`request`, as far as it is read."""

    uid: str | None = ""
    kind: ReviewKind | None = None
    resource: ReviewResource | None = None
    sub_resource: str | None = ""
    name: str | None = ""
    namespace: str | None = ""
    operation: str | None = ""
    user_info: ReviewUserInfo | None = None
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None
    dry_run: bool | None = False
    options: dict[str, Any] | None = None


class RequestReview(msgspec.Struct, frozen=True, rename="camel"):
    """An AdmissionReview that asks."""

    api_version: str | None = ""
    kind: str | None = ""
    request: ReviewRequest | None = None


class StatusDetails(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`response.status.details`; what is empty is left out."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int | None = None


class ReviewStatus(msgspec.Struct, frozen=True, gc=False):
    """`response.status`."""

    status: str
    code: int
    reason: str
    message: str
    details: StatusDetails


class ReviewResponse(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """`response`; what is empty is left out."""

    uid: str
    allowed: bool
    status: ReviewStatus | None = None
    patch_type: str | None = None
    patch: str | None = None
    audit_annotations: dict[str, str] | None = None
    warnings: list[str] | None = None


class ResponseReview(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """An AdmissionReview that answers."""

    api_version: str
    kind: str
    response: ReviewResponse


_DECODER: Final = msgspec.json.Decoder(RequestReview, float_hook=NumberText)
ENCODER: Final = msgspec.json.Encoder()


def parse(data: bytes) -> RequestReview:
    """Read a review, whatever the bytes are.

    Raises:
        MalformedReviewError: They are not JSON, or a field has the wrong type.
    """
    try:
        return decode_tolerant(_DECODER, data)
    except RecursionError as err:
        raise MalformedReviewError("nesting", "the JSON text nests too deep") from err
    except msgspec.ValidationError as err:
        raise MalformedReviewError("type", _type_error(str(err))) from err
    except msgspec.DecodeError as err:
        raise MalformedReviewError("json", f"the body is not JSON: {err}") from err


def _type_error(text: str) -> str:
    """Put the path of the field first: `request.uid: expected str, got int`."""
    detail, _, path = text.replace("`", "").replace(" | null", "").partition(" - at ")
    if not path:
        return f"the body is not an AdmissionReview: {detail}"
    return f"{path.removeprefix('$.')}: {detail[:1].lower()}{detail[1:]}"
