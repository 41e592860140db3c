"""The errors of the API, each both an exception and a `metav1.Status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from webhook.kube.kinds import Kind


class ApiError(Exception):
    """Answer of an API server that does not do what was asked.

    Attributes:
        code: HTTP status code.
        reason: Machine-readable word: "NotFound", "Conflict", ...
        message: What is shown to the user.
        details: The Status' `details`; empty when there are none.
        retry_after: Seconds after which the same request may be repeated; None if not said.
    """

    default_code: ClassVar[int] = 500
    default_reason: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        reason: str | None = None,
        details: Mapping[str, object] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = self.default_code if code is None else code
        self.reason = self.default_reason if reason is None else reason
        self.details: Mapping[str, object] = details or {}
        self.retry_after = _retry_seconds(self.details) if retry_after is None else retry_after

    def to_status(self) -> dict[str, object]:
        """Return the error as a `metav1.Status` object."""
        details = dict(self.details)
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        status: dict[str, object] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details:
            status["details"] = details
        return {**status, "code": self.code}

    @staticmethod
    def from_status(status: Mapping[str, object]) -> ApiError:
        """Make the error that a Status stands for, of the class of its reason or else its code.

        Fields of another type than they should have count as absent.
        """
        code, reason = _integer(status.get("code")), _text(status.get("reason"))
        message, details = _text(status.get("message")), status.get("details")
        error_class = _BY_REASON.get(reason) or _BY_CODE.get(code or 0) or ApiError
        return error_class(
            message or reason or f"status {code or error_class.default_code}",
            code=code,
            reason=reason,
            details=details if isinstance(details, Mapping) else None,
        )


class BadRequestError(ApiError):
    """The request cannot be read, or contradicts itself."""

    default_code = 400
    default_reason = "BadRequest"


class UnauthorizedError(ApiError):
    """The caller is not known."""

    default_code = 401
    default_reason = "Unauthorized"


class ForbiddenError(ApiError):
    """The caller may not do this, or an admission step refused it."""

    default_code = 403
    default_reason = "Forbidden"


def is_namespace_terminating(err: ApiError) -> bool:
    """Return whether nothing can be created because the namespace is being deleted.

    Source: kubernetes v1.36, apiserver/pkg/admission/plugin/namespace/lifecycle/admission.go.
    """
    causes = err.details.get("causes")
    return isinstance(err, ForbiddenError) and any(
        isinstance(cause, Mapping) and cause.get("reason") == "NamespaceTerminating"
        for cause in (causes if isinstance(causes, list) else ())
    )


class NotFoundError(ApiError):
    """There is no such object, or no such path."""

    default_code = 404
    default_reason = "NotFound"

    @classmethod
    def of(cls, kind: Kind, name: str) -> Self:
        """Return the error of an object that is not there, in the API server's words."""
        return cls(f'{kind.resource} "{name}" not found', details=resource_details(kind, name))


class MethodNotAllowedError(ApiError):
    """The path does not know this method."""

    default_code = 405
    default_reason = "MethodNotAllowed"


class ConflictError(ApiError):
    """The write does not fit the object as it is now: read again and decide again."""

    default_code = 409
    default_reason = "Conflict"

    @classmethod
    def of(cls, kind: Kind, name: str, detail: str, *, subresource: str = "") -> Self:
        """Return why the object as it is now cannot be changed, in the API server's words."""
        suffix = f"/{subresource}" if subresource else ""
        return cls(
            f'Operation cannot be fulfilled on {kind.resource}{suffix} "{name}": {detail}',
            details=resource_details(kind, name, suffix),
        )

    @classmethod
    def stale(cls, kind: Kind, name: str) -> Self:
        """Return the error of a write whose resourceVersion is no longer the newest."""
        return cls.of(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version "
            "and try again",
        )


class AlreadyExistsError(ApiError):
    """An object of that name is there already."""

    default_code = 409
    default_reason = "AlreadyExists"

    @classmethod
    def of(cls, kind: Kind, name: str) -> Self:
        """Return the error of a name that is taken, in the API server's words."""
        return cls(f'{kind.resource} "{name}" already exists', details=resource_details(kind, name))


class ExpiredError(ApiError):
    """The resourceVersion is older than the history that is kept: list again."""

    default_code = 410
    default_reason = "Expired"


class TooLargeError(ApiError):
    """The body, or what it asks for, is too large."""

    default_code = 413
    default_reason = "RequestEntityTooLarge"


class UnsupportedMediaTypeError(ApiError):
    """The body is of a type that this path does not read."""

    default_code = 415
    default_reason = "UnsupportedMediaType"


class InvalidError(ApiError):
    """The object breaks a rule of its kind; `details.causes` names the fields."""

    default_code = 422
    default_reason = "Invalid"

    @classmethod
    def of(cls, kind: Kind, name: str, causes: Sequence[FieldCause]) -> Self:
        """Return which fields are wrong, in the API server's words."""
        texts = [f"{cause.field}: {cause.message}" for cause in causes]
        listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        return cls(
            f'{kind.qualified_kind} "{name}" is invalid: {listed}',
            details={
                **_named(name),
                **_grouped(kind),
                "kind": kind.kind,
                "causes": [cause.to_json() for cause in causes],
            },
        )


class TooManyRequestsError(ApiError):
    """It cannot be done now; the same request may be repeated after `retry_after` seconds."""

    default_code = 429
    default_reason = "TooManyRequests"


class InternalError(ApiError):
    """The API server, or something it calls, failed."""

    default_code = 500
    default_reason = "InternalError"

    @classmethod
    def of(cls, detail: str) -> Self:
        """Return what failed, in the API server's words."""
        return cls(f"Internal error occurred: {detail}", details={"causes": [{"message": detail}]})


class UnavailableError(ApiError):
    """The API server cannot answer now. A write may or may not have taken place."""

    default_code = 503
    default_reason = "ServiceUnavailable"


class UnreachableError(UnavailableError):
    """No answer came at all. A write may or may not have taken place."""


class RequestTimeoutError(ApiError):
    """The request took too long. A write may or may not have taken place."""

    default_code = 504
    default_reason = "Timeout"


@dataclass(frozen=True, slots=True)
class FieldCause:
    """One field that breaks a rule: the cause's reason, the YAML path, the text."""

    reason: str
    field: str
    message: str

    def to_json(self) -> dict[str, object]:
        """Return the cause as in `details.causes`."""
        return {"reason": self.reason, "message": self.message, "field": self.field}


def forbidden_field(field: str, detail: str) -> FieldCause:
    """Return the error of a field that may not be set or changed like this."""
    return FieldCause("FieldValueForbidden", field, f"Forbidden: {detail}")


def required_field(field: str, detail: str = "") -> FieldCause:
    """Return the error of a field that is missing."""
    return FieldCause("FieldValueRequired", field, f"Required value{detail and f': {detail}'}")


def invalid_field(field: str, value: str, detail: str) -> FieldCause:
    """Return the error of a field whose value breaks a rule; `value` is the value as JSON text."""
    return FieldCause("FieldValueInvalid", field, f"Invalid value: {value}: {detail}")


def resource_details(kind: Kind, name: str, suffix: str = "") -> dict[str, object]:
    """Return `details` that name an object by its resource."""
    return {**_named(name), **_grouped(kind), "kind": f"{kind.plural}{suffix}"}


def _named(name: str) -> dict[str, object]:
    return {"name": name} if name else {}


def _grouped(kind: Kind) -> dict[str, object]:
    return {"group": kind.group} if kind.group else {}


def _retry_seconds(details: Mapping[str, object]) -> int | None:
    return _integer(details.get("retryAfterSeconds"))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_CLASSES: Final[tuple[type[ApiError], ...]] = (
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    NotFoundError,
    MethodNotAllowedError,
    ConflictError,
    AlreadyExistsError,
    ExpiredError,
    TooLargeError,
    UnsupportedMediaTypeError,
    InvalidError,
    TooManyRequestsError,
    InternalError,
    UnavailableError,
    RequestTimeoutError,
)
_BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    **{error_class.default_reason: error_class for error_class in _CLASSES},
    "Gone": ExpiredError,
    "ServerTimeout": RequestTimeoutError,
}
_BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    error_class.default_code: error_class
    for error_class in _CLASSES
    if error_class is not AlreadyExistsError
}
