"""AdmissionReview v1 as the API server writes and reads it.

Source: kubernetes v1.36, apiserver/pkg/admission/plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from webhook.fakecluster.storage.admission_hook import WriteRequest
from webhook.jsonfields.encoding import decode_json
from webhook.kube.api import Kind
from webhook.kube.codec import encode

Phase = Literal["mutating", "validating"]

API_VERSION: Final = "admission.k8s.io/v1"


class InvalidAnswerError(ValueError):
    """The answer of a webhook is no usable AdmissionReview; counts as a failed call."""


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The user of the request."""

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the user as in `request.userInfo`; what is empty is left out."""
        fields: dict[str, object] = {
            "username": self.username,
            "uid": self.uid,
            "groups": self.groups,
            "extra": self.extra,
        }
        return {name: value for name, value in fields.items() if value}


@dataclass(frozen=True, slots=True)
class WebhookResponse:
    """Answer of a webhook."""

    allowed: bool
    """Whether the write may go on."""
    status: Mapping[str, object]
    """Why not; empty when nothing was said."""
    patch: tuple[Mapping[str, object], ...]
    """Operations to apply; empty for none."""
    warnings: tuple[str, ...]
    """For the client."""
    audit: Mapping[str, str]
    """Audit annotations, keys as the webhook named them."""


def write_review(request: WriteRequest, *, uid: str, user: UserInfo) -> bytes:
    """Write the AdmissionReview for one call of one webhook."""
    body: dict[str, object] = {
        "uid": uid,
        "kind": _kind(request.kind),
        "resource": _resource(request.resource),
        "subResource": request.subresource,
        "requestKind": _kind(request.kind),
        "requestResource": _resource(request.resource),
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request.namespace,
    }
    present = {name: value for name, value in body.items() if value}
    present |= {
        "operation": request.operation,
        "userInfo": user.to_json(),
        "object": request.new,
        "oldObject": request.old,
        "dryRun": request.dry_run,
        "options": request.options,
    }
    return encode({"kind": "AdmissionReview", "apiVersion": API_VERSION, "request": present})


def _kind(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _resource(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


class _Response(msgspec.Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: dict[str, object] | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] | None = None
    audit_annotations: dict[str, str] | None = None


class _Review(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_DECODER: Final = msgspec.json.Decoder(_Review)


def read_response(data: bytes, *, uid: str, phase: Phase) -> WebhookResponse:
    """Read and check what a webhook answered to the call `uid`.

    Raises:
        InvalidAnswerError: The API server would not take it; the text is the API server's.
    """
    response = _parse_response(data, uid)
    return WebhookResponse(
        allowed=response.allowed,
        status=response.status or {},
        patch=_read_patch(response) if phase == "mutating" else _no_patch(response),
        warnings=response.warnings or (),
        audit=response.audit_annotations or {},
    )


def _parse_response(data: bytes, uid: str) -> _Response:
    try:
        review = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        raise InvalidAnswerError(f"couldn't get version/kind; json parse error: {err}") from err
    _check_version(review)
    if review.response is None:
        raise _invalid("webhook response was absent")
    if review.response.uid != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{review.response.uid}"')
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        found = f"{review.api_version}, Kind={review.kind}"
        raise _invalid(
            f"expected webhook response of {API_VERSION}, Kind=AdmissionReview, got {found}"
        )
    return review.response


def _check_version(review: _Review) -> None:
    """Refuse another version outright; one that is missing fails later, at the uid."""
    group, _, version = review.api_version.rpartition("/")
    if review.api_version and review.api_version != API_VERSION:
        if group == "admission.k8s.io":
            raise InvalidAnswerError(
                f"converting ({version}.AdmissionReview) to (v1.AdmissionReview): "
                "unknown conversion"
            )
        raise InvalidAnswerError(
            f'no kind "{review.kind}" is registered for "{review.api_version}"'
        )


def _invalid(detail: str) -> InvalidAnswerError:
    return InvalidAnswerError(f"received invalid webhook response: {detail}")


def _no_patch(response: _Response) -> tuple[Mapping[str, object], ...]:
    if response.patch:
        raise _invalid("validating webhook may not return response.patch")
    if response.patch_type is not None:
        raise _invalid("validating webhook may not return response.patchType")
    return ()


def _read_patch(response: _Response) -> tuple[Mapping[str, object], ...]:
    if response.patch and response.patch_type is None:
        raise _invalid("webhook returned response.patch but not response.patchType")
    if response.patch_type is not None and not response.patch:
        raise _invalid("webhook returned response.patchType but not response.patch")
    if response.patch_type == "":
        raise _invalid('webhook returned invalid response.patchType of ""')
    if not response.patch:
        return ()
    if response.patch_type != "JSONPatch":
        raise _invalid(f'unsupported patch type "{response.patch_type}"')
    return _operations(response.patch)


def _operations(patch: str) -> tuple[Mapping[str, object], ...]:
    try:
        operations = decode_json(b64decode(patch, validate=True))
    except (binascii.Error, ValueError) as err:
        raise _invalid(f"response.patch cannot be read: {err}") from err
    if operations is None:
        return ()
    if not isinstance(operations, list) or not all(isinstance(one, dict) for one in operations):
        raise _invalid("response.patch is not a list of operations")
    return tuple(operations)
