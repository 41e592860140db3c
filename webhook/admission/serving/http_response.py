"""Answers of the transport itself: what is not a decision is a Status object as JSON.

No answer carries a Retry-After header: the API server would repeat the call inside the same
timeout, and the time would be gone without a trace of the reason.

Source: kubernetes v1.36, client-go/rest/with_retry.go IsNextRetry; apimachinery meta/v1 Status.
"""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from flask import Response
from werkzeug.exceptions import HTTPException

from webhook.jsonfields.encoding import encode_json

JSON: Final = "application/json"

_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    431: "RequestHeaderFieldsTooLarge",
    500: "InternalError",
    503: "ServiceUnavailable",
}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A whole answer: status, body and the headers beside type and length."""

    code: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = JSON

    @property
    def status(self) -> str:
        """Return the status as WSGI wants it: `404 Not Found`."""
        return f"{self.code} {HTTPStatus(self.code).phrase}"

    def header_list(self) -> list[tuple[str, str]]:
        """Return all headers, in a list of its own as WSGI wants it."""
        length = str(len(self.body))
        return [("Content-Type", self.content_type), ("Content-Length", length), *self.headers]

    def wire(self, *, keep: bool = False, with_body: bool = True) -> bytes:
        """Write the answer as HTTP/1.1; without `keep` the connection is closed after it."""
        lines = [f"HTTP/1.1 {self.status}", f"Connection: {'keep-alive' if keep else 'close'}"]
        lines += [f"{name}: {value}" for name, value in self.header_list()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        return head + self.body if with_body else head


def failure(code: int, message: str, *headers: tuple[str, str]) -> HttpResponse:
    """Return why a request was not answered, as a Status object."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": _REASONS.get(code, HTTPStatus(code).phrase.replace(" ", "")),
        "message": message,
    }
    return HttpResponse(code, encode_json(status), headers)


def refusal(error: HTTPException) -> Response:
    """Return what Flask refuses by itself, such as another method, as a Status object."""
    allow = [item for item in error.get_headers() if item[0].lower() == "allow"]
    return flask_response(failure(error.code or 500, error.description or error.name, *allow))


def flask_response(answer: HttpResponse) -> Response:
    """Return an answer in the form of Flask."""
    return Response(answer.body, status=answer.code, headers=answer.header_list())
