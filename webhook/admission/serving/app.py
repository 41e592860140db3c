"""The WSGI application: reviews on a thin path, everything else through Flask.

A review is the hot path: it is answered by a plain callable in front of Flask's routing. Both are
one application, so a test or another server can run it as it is.

What a review gets, in order: 405 for another method, 415 for another content type or any content
encoding, 413 beyond the body limit however the length was given, 400 for what cannot be read, 503
when its time is over before it was looked at, and then the decision of the handler. A fault of
this program is HTTP 500, never an answer: the failure policy of the registration decides then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from flask import Flask, Response, jsonify
from werkzeug.exceptions import HTTPException

from webhook import __version__
from webhook.admission.deadline import Deadline, deadline_of
from webhook.admission.review import (
    AdmissionRequest,
    Allowed,
    Answer,
    MalformedReviewError,
    Phase,
    decode_review,
    encode_review,
)
from webhook.admission.serving.http import JSON, HttpAnswer, failure
from webhook.telemetry.metrics import DOORS, OPERATIONS, OTHER, Metrics, bounded

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ReviewHandler: TypeAlias = Callable[[AdmissionRequest, Deadline], Answer]
"""Decides one review. It may block until the deadline; what it raises becomes HTTP 500."""

MAX_BODY_BYTES: Final = 7 * 1024 * 1024
"""Two objects of the API server's own limit of 3 MiB, the new one and the old one, and room."""

REVIEW_PATHS: Final[Mapping[str, Phase]] = {
    "/mutate": Phase.MUTATING,
    "/validate": Phase.VALIDATING,
}

RECEIVED: Final = "deferred_quota.received"
"""Key of the WSGI environment: when the request was complete, on the monotonic clock. The server
sets it, so that the time a request waits for a thread counts."""

_DOORS: Final[Mapping[tuple[str, str], str]] = {
    ("", "pods"): "pods",
    ("", "pods/binding"): "bind",
    ("", "bindings"): "bind",
    ("", "pods/resize"): "resize",
    ("batch", "jobs"): "jobs",
    ("", "resourcequotas"): "quotas",
    ("", "resourcequotas/status"): "mask",
    ("deferredquota.io", "clusterdeferredquotas"): "quotas",
    ("nos.nebuly.com", "elasticquotas"): "quotas",
    ("nos.nebuly.com", "compositeelasticquotas"): "quotas",
}

log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request that is answered without being decided; `reason` is for the metric."""

    def __init__(self, code: int, reason: str, detail: str, *headers: tuple[str, str]) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.answer = failure(code, detail, *headers)


def create_app(
    handler: ReviewHandler,
    *,
    metrics: Metrics | None = None,
    paths: Mapping[str, Phase] = REVIEW_PATHS,
    body_bytes: int = MAX_BODY_BYTES,
) -> Flask:
    """Make the application that answers reviews with `handler`.

    Args:
        handler: Decides one review.
        metrics: Where requests are counted; without, nobody sees the counts.
        paths: Path of the URL → phase of the reviews that are posted there.
        body_bytes: The largest body that is read.
    """
    app = Flask("webhook.admission", static_folder=None)
    _add_pages(app, tuple(paths))
    review = _ReviewEndpoint(handler, metrics or Metrics(), body_bytes)
    app.wsgi_app = _thin_path(review, paths, app.wsgi_app)  # type: ignore[method-assign, assignment]
    return app


def _thin_path(
    review: _ReviewEndpoint, paths: Mapping[str, Phase], pages: WSGIApplication
) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        phase = paths.get(environ.get("PATH_INFO", ""))
        if phase is None:
            return pages(environ, start_response)
        answer = review.answer(environ, phase)
        start_response(answer.status, answer.header_list())
        return [answer.body]

    return application


class _ReviewEndpoint:
    """One POSTed review: read, decided, written, counted and logged."""

    def __init__(self, handler: ReviewHandler, metrics: Metrics, body_bytes: int) -> None:
        self._handler = handler
        self._metrics = metrics.admission
        self._body_bytes = body_bytes

    def answer(self, environ: WSGIEnvironment, phase: Phase) -> HttpAnswer:
        """Answer one request, whatever it is."""
        received = environ.get(RECEIVED) or time.monotonic()
        deadline = deadline_of(environ.get("QUERY_STRING", ""), received=received)
        try:
            request = self._read(environ, phase)
        except RefusedError as refused:
            return self._refuse(refused)
        if deadline.expired:
            return self._too_late(request)
        return self._decide(request, deadline, received)

    def _read(self, environ: WSGIEnvironment, phase: Phase) -> AdmissionRequest:
        _check_headers(environ)
        body = _read_body(environ, self._body_bytes)
        try:
            return decode_review(body, phase)
        except MalformedReviewError as err:
            raise RefusedError(400, err.reason, err.detail) from err

    def _refuse(self, refused: RefusedError) -> HttpAnswer:
        self._metrics.malformed.labels(refused.reason).inc()
        log.info("refused", extra={"reason": refused.reason, "detail": refused.detail})
        return refused.answer

    def _too_late(self, request: AdmissionRequest) -> HttpAnswer:
        self._metrics.turned_away.labels("too_late").inc()
        log.warning("turned away", extra={"reason": "too_late", "uid": request.uid})
        return failure(503, "the time for this request was over before it could be looked at")

    def _decide(self, request: AdmissionRequest, deadline: Deadline, received: float) -> HttpAnswer:
        try:
            answer = self._handler(request, deadline)
            body = encode_review(request, answer)
        except Exception:
            log.exception("review failed", extra={"uid": request.uid, "key": request.key})
            self._count(request, door_of(request), "error", time.monotonic() - received)
            return failure(500, f"internal error while reviewing the request {request.uid!r}")
        seconds = time.monotonic() - received
        self._count(request, answer.door or door_of(request), outcome_of(answer), seconds)
        _log_decision(request, answer, seconds)
        return HttpAnswer(200, body)

    def _count(self, request: AdmissionRequest, door: str, outcome: str, seconds: float) -> None:
        known, phase = bounded(door, DOORS), request.phase.value
        operation = bounded(request.operation, OPERATIONS)
        dry_run = "true" if request.dry_run else "false"
        self._metrics.requests.labels(known, phase, operation, outcome, dry_run).inc()
        self._metrics.seconds.labels(known, phase).observe(seconds)


def door_of(request: AdmissionRequest) -> str:
    """Name the door that a request is at, as far as its resource tells."""
    return _DOORS.get((request.group, request.path), OTHER)


def outcome_of(answer: Answer) -> str:
    """Sort an answer: allowed, patched, denied, undecided (try again) or error."""
    if isinstance(answer, Allowed):
        return "patched" if answer.patch else "allowed"
    return {429: "undecided", 500: "error"}.get(answer.code, "denied")


def _log_decision(request: AdmissionRequest, answer: Answer, seconds: float) -> None:
    """Write the one line of a decision; `audit` holds the quota and the numbers."""
    if not log.isEnabledFor(logging.INFO):
        return
    facts: dict[str, object] = {
        "uid": request.uid,
        "key": request.key,
        "door": answer.door or door_of(request),
        "phase": request.phase.value,
        "operation": request.operation,
        "resource": request.path,
        "user": request.username,
        "dry_run": request.dry_run,
        "outcome": outcome_of(answer),
        "decision": answer.decision,
        "audit": dict(answer.audit),
        "duration_ms": round(seconds * 1000, 3),
    }
    if not isinstance(answer, Allowed):
        facts |= {"code": answer.code, "detail": answer.message}
    log.info("decided", extra=facts)


def _check_headers(environ: WSGIEnvironment) -> None:
    method = environ.get("REQUEST_METHOD", "")
    if method != "POST":
        raise RefusedError(405, "method", "reviews are sent with POST", ("Allow", "POST"))
    encoding = environ.get("HTTP_CONTENT_ENCODING", "").strip().lower()
    if encoding not in ("", "identity"):
        raise RefusedError(415, "content_encoding", "encoded bodies are not read")
    media_type = environ.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise RefusedError(415, "content_type", f"the content type has to be {JSON}")


def _read_body(environ: WSGIEnvironment, limit: int) -> bytes:
    """Read a body of at most `limit` bytes, whatever its length is said to be."""
    declared = _content_length(environ)
    if declared is not None and declared > limit:
        raise RefusedError(413, "too_large", f"the body is larger than {limit} bytes")
    if declared is None and not environ.get("wsgi.input_terminated"):
        return b""
    wanted = limit + 1 if declared is None else declared
    body: bytes = environ["wsgi.input"].read(wanted)
    if len(body) > limit:
        raise RefusedError(413, "too_large", f"the body is larger than {limit} bytes")
    if declared is not None and len(body) < declared:
        raise RefusedError(400, "json", f"the body ends after {len(body)} of {declared} bytes")
    return body


def _content_length(environ: WSGIEnvironment) -> int | None:
    text = environ.get("CONTENT_LENGTH") or ""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise RefusedError(400, "http", "the content length is not a number")
    return int(text)


def _add_pages(app: Flask, paths: tuple[str, ...]) -> None:
    @app.get("/")
    def index() -> Response:
        return jsonify(name="deferred-quota", version=__version__, reviews=list(paths))

    @app.errorhandler(HTTPException)
    def http_error(error: HTTPException) -> Response:
        code = error.code or 500
        allow = [item for item in error.get_headers() if item[0].lower() == "allow"]
        return _flask_response(failure(code, error.description or error.name, *allow))

    @app.errorhandler(Exception)
    def fault(error: Exception) -> Response:
        log.error("page failed", exc_info=error)
        return _flask_response(failure(500, "internal error"))


def _flask_response(answer: HttpAnswer) -> Response:
    return Response(answer.body, status=answer.code, headers=answer.header_list())
