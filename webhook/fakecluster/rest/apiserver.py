"""The fake cluster behind the REST paths of Kubernetes, as a WSGI application.

Enough for kubectl (`get`, `create`, `apply`, `patch`, `delete`, `--watch`, with
`--validate=false`), for clients of the API, and for tests of webhooks against something that
behaves like an API server. JSON only: what kubectl sends as protobuf (`create namespace` and its
like) has to come from a file (`create -f`). No authentication: the user is an administrator, or the
one in the headers `Impersonate-User` and `Impersonate-Group`.

A watch holds a thread of the WSGI server for as long as it lasts.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.wrappers import Request, Response

from webhook.fakecluster.admission.chain import AdmissionChain, AdmissionRun
from webhook.fakecluster.admission.webhook_reviews import UserInfo
from webhook.fakecluster.rest import discovery
from webhook.fakecluster.rest.resources import Call, json_response, respond
from webhook.fakecluster.rest.routes import parse_path
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    ApiError,
    BadRequestError,
    InternalError,
    NotFoundError,
    TooLargeError,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

log = logging.getLogger(__name__)

_TOTAL_LETTERS: Final = 4096
_LETTERS_WHEN_CUT: Final = 256

MAX_BODY_BYTES: Final = 3 * 1024 * 1024
"""The API server's own limit for one object."""

ADMIN: Final = UserInfo("admin", "admin", ("system:masters", "system:authenticated"))

_READS: Final = frozenset({"GET", "HEAD"})


class ApiServer:
    """A WSGI application that serves one cluster through one admission chain."""

    def __init__(self, cluster: FakeCluster, chain: AdmissionChain | None = None) -> None:
        """Serve `cluster`, without a chain unchecked."""
        self._cluster = cluster
        self._chain = chain

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request; whatever fails is answered with a Status."""
        request = Request(environ)
        request.max_content_length = MAX_BODY_BYTES
        try:
            response = self._answer(request)
        except ApiError as error:
            response = _error_response(error)
        except RequestEntityTooLarge:
            limit = f"Request entity too large: limit is {MAX_BODY_BYTES}"
            response = _error_response(TooLargeError(limit))
        except HTTPException as error:
            response = _error_response(BadRequestError(error.description or str(error)))
        except Exception:  # the outermost frame of a request
            log.exception("request failed", extra={"path": request.path})
            response = _error_response(InternalError.of("the embedded API server failed"))
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        kinds = self._cluster.store.kinds()
        about = discovery.about(request.path, kinds) if request.method in _READS else None
        if about is not None:
            return json_response(about)
        route = parse_path(request.path, kinds)
        if route is None:
            raise NotFoundError("the server could not find the requested resource")
        passage = self._admission_run(request)
        call = Call(request, route, FakeClient(self._cluster, admission=passage))
        try:
            response = respond(call)
        except ApiError as error:  # who warned is heard also where it is refused
            response = _error_response(error)
        for header in warning_headers(passage.warnings if passage else ()):
            # a header is latin-1 text to WSGI, and UTF-8 to its reader
            response.headers.add("Warning", header.encode().decode("latin-1"))
        return response

    def _admission_run(self, request: Request) -> AdmissionRun | None:
        if self._chain is None:
            return None
        names = ("fieldManager", "fieldValidation")
        options = {name: request.args[name] for name in names if request.args.get(name)}
        return self._chain.run(_user_of(request), options)


def _user_of(request: Request) -> UserInfo:
    name = request.headers.get("Impersonate-User", "")
    if not name:
        return ADMIN
    groups = tuple(request.headers.getlist("Impersonate-Group"))
    return UserInfo(name, groups=(*groups, "system:authenticated"))


def _error_response(error: ApiError) -> Response:
    response = json_response(error.to_status(), error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def warning_headers(warnings: Iterable[str]) -> list[str]:
    """Return the values of the Warning headers for what webhooks said, in order.

    Repeated and empty warnings are left out, and so are those with control characters. When all
    together pass 4096 letters, each is cut to 256 and no more are added once they pass it again.

    Source: kubernetes v1.36, apiserver/pkg/endpoints/filters/warning.go,
    apimachinery/pkg/util/net/http.go NewWarningHeader.
    """
    told: list[str] = []
    budget_spent, cutting = 0, False
    for text in dict.fromkeys(warning for warning in warnings if warning):
        if cutting and budget_spent >= _TOTAL_LETTERS:
            break
        told.append(text)
        budget_spent += len(text[:_LETTERS_WHEN_CUT] if cutting else text)
        if not cutting and budget_spent > _TOTAL_LETTERS:
            cutting = True
            budget_spent = sum(len(earlier[:_LETTERS_WHEN_CUT]) for earlier in told)
    shown = [text[:_LETTERS_WHEN_CUT] if cutting else text for text in told]
    return [_header(text) for text in shown if not _has_control(text)]


def _has_control(text: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in text)


def _header(text: str) -> str:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'
