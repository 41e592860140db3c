"""The page's application: three files for every client, and values for users who show a token.

Every answer forbids a browser what the page does not need: scripts, styles and calls of other
origins, inline code, frames. Nothing is kept in cookies, so no other page can ask in a user's name.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from webhook.admission.serving.http_response import (
    HttpResponse,
    failure,
    flask_response,
    refusal,
)
from webhook.controllers.overview import ClusterOverview
from webhook.jsonfields.encoding import encode_json
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError, ForbiddenError, NotFoundError, UnauthorizedError
from webhook.operations.explain.explaining import NotThereError
from webhook.page.access import (
    Authenticator,
    Authorizer,
    NewestValues,
    NotInstalledError,
    TooManyReviewsError,
    User,
)
from webhook.page.entries import Entry, snapshot_entry, summary_entry
from webhook.page.explaining import BusyError, PodExplainer
from webhook.page.history import UsageHistory
from webhook.quota.objects.names import object_name_errors
from webhook.telemetry.metrics import OTHER, PageMetrics

_DIRECTIVES: Final = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
_HEADERS: Final = {
    "Content-Security-Policy": "; ".join(_DIRECTIVES),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
_STATIC: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_AT_ONCE: Final = 8
"""Requests for values that are answered at the same time; others are asked to come again."""
_SNAPSHOT_SECONDS: Final = 1.0
"""How long a snapshot of a namespace is shown, however many users look at it."""
_MOST_SNAPSHOTS: Final = 256
_NO_NAMESPACE: Final = "there is no such namespace, or it is not shown to this user"
_NO_TOKEN: Final = "a bearer token that the API server knows is needed"  # noqa: S105 - a message

_log = logging.getLogger(__name__)


class _RefusedError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.response = failure(code, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """Sources of the page, and its users."""

    overview: ClusterOverview
    history: UsageHistory
    authenticator: Authenticator
    authorizer: Authorizer
    explainer: PodExplainer
    is_leader: Callable[[], bool]
    """Returns whether this process writes the ledgers."""
    metrics: PageMetrics
    clock: Callable[[], float] = time.monotonic


def create_page(parts: PageParts) -> Flask:
    """Make the application."""
    app = Flask("webhook.page", static_folder=None)
    _add_files(app)
    _add_values(app, parts)
    _add_errors(app)

    @app.after_request
    def add_headers(response: Response) -> Response:
        parts.metrics.requests.labels(request.endpoint or OTHER, str(response.status_code)).inc()
        for name, value in _HEADERS.items():
            response.headers[name] = value
        return response

    return app


def _add_files(app: Flask) -> None:
    folder = files("webhook.page").joinpath("static")
    for path, (name, content_type) in _STATIC.items():
        body = folder.joinpath(name).read_bytes()
        answer = HttpResponse(200, body, (), content_type)
        app.add_url_rule(path, name, lambda answer=answer: flask_response(answer))


def _add_values(app: Flask, parts: PageParts) -> None:
    values = _Values(parts)
    path = "/api/namespaces"
    for name, rule, view in (
        ("namespaces", path, values.namespaces),
        ("namespace", f"{path}/<namespace>", values.namespace),
        ("pod", f"{path}/<namespace>/pods/<name>", values.pod),
    ):
        app.add_url_rule(rule, name, view, methods=["GET"])


class _Values:
    """Answers to users with a token."""

    def __init__(self, parts: PageParts) -> None:
        self._parts = parts
        self._snapshots: NewestValues[Entry] = NewestValues(
            parts.clock, _MOST_SNAPSHOTS, _SNAPSHOT_SECONDS
        )
        self._turns = threading.BoundedSemaphore(_AT_ONCE)

    def namespaces(self) -> Response:
        """Answer with the namespaces that the user may see."""
        overview = self._parts.overview

        def make(user: User, _token: str) -> Entry:
            shown = self._parts.authorizer.visible(user, overview.namespaces())
            entries = [
                summary_entry(name, overview.ledger(name), overview.queued_count(name))
                for name in shown
            ]
            return {"isLeader": self._parts.is_leader(), "namespaces": entries}

        return self._answer(make)

    def namespace(self, namespace: str) -> Response:
        """Answer with one namespace."""

        def make(user: User, _token: str) -> Entry:
            self._check_shown(user, namespace)
            return self._snapshots.get(namespace) or self._snapshot(namespace)

        return self._answer(make)

    def _snapshot(self, namespace: str) -> Entry:
        snapshot = self._parts.overview.snapshot(namespace)
        if snapshot is None:
            raise _RefusedError(404, _NO_NAMESPACE)
        history = self._parts.history
        entry = snapshot_entry(snapshot, history.series(namespace), history.now)
        self._snapshots.put(namespace, entry)
        return entry

    def pod(self, namespace: str, name: str) -> Response:
        """Answer with the explanation of a pod."""

        def make(user: User, token: str) -> Entry:
            self._check_shown(user, namespace)
            if object_name_errors(name):  # in a path it may mean another object
                raise _RefusedError(404, f"Pod {namespace}/{name} does not exist")
            return self._parts.explainer.explain(token, namespace, name)

        return self._answer(make)

    def _answer(self, make: Callable[[User, str], Entry]) -> Response:
        """Answer the user of the request's token."""
        if not self._turns.acquire(blocking=False):
            raise _RefusedError(503, "too many requests at the same time; try again")
        try:
            user, token = _signed_in(self._parts.authenticator)
            entry = {"user": user.name, **make(user, token)}
            return flask_response(HttpResponse(200, encode_json(entry)))
        finally:
            self._turns.release()

    def _check_shown(self, user: User, namespace: str) -> None:
        """Refuse a namespace that is not shown in the same words as one that is not there."""
        is_managed = namespace in self._parts.overview.namespaces()
        if not is_managed or not self._parts.authorizer.may_see(user, namespace):
            raise _RefusedError(404, _NO_NAMESPACE)


def _signed_in(authenticator: Authenticator) -> tuple[User, str]:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    user = authenticator.user(token) if scheme.lower() == "bearer" else None
    if user is None:
        raise _RefusedError(401, _NO_TOKEN)
    return user, token


def _add_errors(app: Flask) -> None:
    @app.errorhandler(_RefusedError)
    def refused(error: _RefusedError) -> Response:
        return flask_response(error.response)

    app.register_error_handler(HTTPException, refusal)

    @app.errorhandler(Exception)
    def fault(error: Exception) -> Response:
        known = _failure_of(error)
        if known is None:
            _log.error("page failed", exc_info=error)
            known = failure(500, "internal error")
        return flask_response(known)


_FAILURES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (NotThereError, 404, "{}"),
    (NotFoundError, 404, "{}"),
    (UnauthorizedError, 401, _NO_TOKEN),
    (ForbiddenError, 403, "{}"),
    (TooManyReviewsError, 429, "{}"),
    (BusyError, 503, "other pods are being explained; try again"),
    (NotInstalledError, 503, "{}"),
    (InvalidFieldError, 502, "an object of the API server cannot be read: {}"),
    (ApiError, 503, "the API server does not answer as it should: {}"),
)
"""Class of an error → status code, and message with the error's own text."""


def _failure_of(error: Exception) -> HttpResponse | None:
    """Return the answer to an error that is not this program's fault; None for any other."""
    for kind, code, text in _FAILURES:
        if isinstance(error, kind):
            return failure(code, text.format(error))
    return None
