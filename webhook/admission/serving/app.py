"""The WSGI application: reviews on a thin path, everything else through Flask.

A review is the hot path: it is answered by a plain callable in front of Flask's routing. Both are
one application, so a test or another server can run it as it is. Schedulers are answered in the
same way, at `EXTENDER_PATHS`, while that is switched on.

What a review gets, in order: 405 for another method, 415 for another content type or any content
encoding, 413 beyond the body limit however the length was given, 400 for what cannot be read,
"not decided" when its time is over before it was looked at, and then the decision of the handler. A
fault of this program is HTTP 500, never an answer: the failure policy of the registration decides
then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from flask import Flask, Response, jsonify
from werkzeug.exceptions import HTTPException

from webhook import __version__
from webhook.admission.deadline import Deadline, deadline_of
from webhook.admission.extender.endpoint import EXTENDER_PATHS, ExtenderEndpoint
from webhook.admission.handlers.dispatch import handler_name
from webhook.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    MalformedReviewError,
    Phase,
    decode_review,
    encode_review,
)
from webhook.admission.serving.http_response import (
    HttpResponse,
    failure,
    flask_response,
    refusal,
)
from webhook.admission.serving.request_body import RejectedRequestError, read_json
from webhook.admission.serving.request_log import RequestRecorder
from webhook.admission.serving.undecided import REVIEW_PATHS, not_decided, refused_response
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.trace import read_trace, under

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

ReviewHandler: TypeAlias = Callable[[AdmissionRequest, Deadline], AdmissionResponse]
"""Decides one review. It may block until the deadline; what it raises becomes HTTP 500."""

MAX_BODY_BYTES: Final = 7 * 1024 * 1024
"""Two objects of the API server's own limit of 3 MiB, the new one and the old one, and room."""

RECEIVED: Final = "deferred_quota.received"
"""Key of the WSGI environment: when the request was complete, on the monotonic clock. The server
sets it, so that the time a request waits for a thread counts."""

_Endpoint: TypeAlias = Callable[["WSGIEnvironment", float], HttpResponse]
"""Answers a request that was complete at a moment of the monotonic clock."""

log = logging.getLogger(__name__)


def create_app(
    handler: ReviewHandler,
    *,
    metrics: Metrics | None = None,
    body_bytes: int = MAX_BODY_BYTES,
    serves_extender: Callable[[], bool] = lambda: False,
    log_allowed_every: Callable[[], int] = lambda: 1,
) -> Flask:
    """Make the application that answers reviews with `handler`.

    Args:
        handler: Decides one review.
        metrics: Where requests are counted; without, the counts are not shown.
        body_bytes: The largest body that is read.
        serves_extender: Says whether schedulers are answered now (`EXTENDER_PATHS`); while they
            are not, there are no such pages.
        log_allowed_every: Returns of how many allowed decisions one is logged now; 0 for none.
    """
    app = Flask("webhook.admission", static_folder=None)
    _add_pages(app)
    records = RequestRecorder((metrics or Metrics()).admission, log_allowed_every)
    review = _ReviewEndpoint(handler, records, body_bytes)
    endpoints: dict[str, _Endpoint] = {
        path: partial(review.answer, phase=phase) for path, phase in REVIEW_PATHS.items()
    }
    extender = ExtenderEndpoint(handler, records, body_bytes)
    schedulers: dict[str, _Endpoint] = {
        path: partial(extender.answer, verb=verb) for path, verb in EXTENDER_PATHS.items()
    }

    def endpoint_of(path: str) -> _Endpoint | None:
        found = endpoints.get(path)
        if found is None and path in schedulers and serves_extender():
            return schedulers[path]
        return found

    app.wsgi_app = _review_middleware(endpoint_of, app.wsgi_app)  # type: ignore[method-assign, assignment]
    return app


def _review_middleware(
    endpoint_of: Callable[[str], _Endpoint | None], pages: WSGIApplication
) -> WSGIApplication:
    def application(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        endpoint = endpoint_of(environ.get("PATH_INFO", ""))
        if endpoint is None:
            return pages(environ, start_response)
        with under(read_trace(environ.get("HTTP_TRACEPARENT", ""))):
            answer = endpoint(environ, environ.get(RECEIVED) or time.monotonic())
        start_response(answer.status, answer.header_list())
        return [answer.body]

    return application


class _ReviewEndpoint:
    """One POSTed review: read, decided, written, counted and logged."""

    def __init__(self, handler: ReviewHandler, recorder: RequestRecorder, body_bytes: int) -> None:
        self._handler = handler
        self._recorder = recorder
        self._body_bytes = body_bytes

    def answer(self, environ: WSGIEnvironment, received: float, *, phase: Phase) -> HttpResponse:
        """Answer one request, whatever it is."""
        deadline = deadline_of(environ.get("QUERY_STRING", ""), received=received)
        try:
            request = self._read(environ, phase)
        except RejectedRequestError as refused:
            self._recorder.rejected(refused, environ.get("REMOTE_ADDR", ""))
            return refused.response
        if deadline.expired:
            self._recorder.expired(request)
            return not_decided(
                request, "the time for this request was over before it could be looked at"
            )
        return self._decide(request, deadline, received)

    def _read(self, environ: WSGIEnvironment, phase: Phase) -> AdmissionRequest:
        body = read_json(environ, self._body_bytes, what="reviews")
        try:
            return decode_review(body, phase)
        except MalformedReviewError as err:
            refused = RejectedRequestError(400, err.reason, err.detail)
            if err.reason in ("nesting", "json"):  # where an error would let the request pass
                refused.response = refused_response(phase, body, err.detail, 400)
            raise refused from err

    def _decide(
        self, request: AdmissionRequest, deadline: Deadline, received: float
    ) -> HttpResponse:
        try:
            answer = self._handler(request, deadline)
            body = encode_review(request, answer)
        except Exception as err:  # noqa: BLE001 - outermost frame: logged and counted, and answered so
            self._recorder.failed(request, handler_name(request), err, time.monotonic() - received)
            return failure(500, f"internal error while reviewing the request {request.uid!r}")
        self._recorder.decided(request, answer, time.monotonic() - received)
        return HttpResponse(200, body)


def _add_pages(app: Flask) -> None:
    @app.get("/")
    def index() -> Response:
        return jsonify(name="deferred-quota", version=__version__, reviews=list(REVIEW_PATHS))

    app.register_error_handler(HTTPException, refusal)

    @app.errorhandler(Exception)
    def fault(error: Exception) -> Response:
        log.error("page failed", exc_info=error)
        return flask_response(failure(500, "internal error"))
