"""Body of a POST, before its review is decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.admission.serving.http_response import JSON, failure

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class RejectedRequestError(Exception):
    """A request that is answered without being decided; `reason` is for the metric."""

    def __init__(self, code: int, reason: str, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.response = failure(code, detail, *headers)


def read_json(environ: WSGIEnvironment, limit: int, *, what: str) -> bytes:
    """Read the body of a POST of JSON, of at most `limit` bytes.

    Args:
        limit: The most bytes that are read.
        what: What is sent to this path, for messages: `reviews`.

    Raises:
        RejectedRequestError: 405 for another method, 415 for another content type or any content
            encoding, 413 beyond the limit however the length was given, 400 for a body that ends
            early.
    """
    _check_headers(environ, what)
    return _read_body(environ, limit)


def _check_headers(environ: WSGIEnvironment, what: str) -> None:
    method = environ.get("REQUEST_METHOD", "")
    if method != "POST":
        raise RejectedRequestError(405, "method", f"{what} are sent with POST", ("Allow", "POST"))
    encoding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if encoding not in ("", "identity"):
        raise RejectedRequestError(415, "content_encoding", "encoded bodies are not read")
    media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise RejectedRequestError(415, "content_type", f"the content type has to be {JSON}")


def _read_body(environ: WSGIEnvironment, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever its length is said to be."""
    declared = _content_length(environ)
    if declared is not None and declared > limit:
        raise RejectedRequestError(413, "too_large", f"the body is larger than {limit} bytes")
    if declared is None and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = limit + 1 if declared is None else declared
    body: bytes = environ["wsgi.input"].read(wanted)
    if len(body) > limit:
        raise RejectedRequestError(413, "too_large", f"the body is larger than {limit} bytes")
    if declared is not None and len(body) < declared:
        raise RejectedRequestError(
            400, "json", f"the body ends after {len(body)} of {declared} bytes"
        )
    return body


def _content_length(environ: WSGIEnvironment) -> int | None:
    text = environ.get("CONTENT_LENGTH") or ""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise RejectedRequestError(400, "http", "the content length is not a number")
    return int(text)
