"""Calls of an API server, as metrics name them: verb, resource and how each ended.

The words are those of the API server's own metrics and audit log, so that both can be laid side by
side. A path that is none of an object is `other`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.kube.api import ApiError, RequestTimeoutError, UnreachableError
from webhook.kube.rest.transport import Request

CallObserver: TypeAlias = Callable[[str, str, str, float], None]
"""Receives verb, resource, code and seconds of each call that has ended."""

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OTHER: Final = "other"
_ENDS: Final[tuple[tuple[type[ApiError], str], ...]] = (
    (RequestTimeoutError, "timeout"),
    (UnreachableError, "unreachable"),
)
"""What ends a call without an answer → what stands for its code."""


def ignore_calls(_verb: str, _resource: str, _code: str, _seconds: float) -> None:
    """Observe nothing."""


@dataclass(slots=True)
class Call:
    """A call that is under way."""

    code: str = "failed"
    """The status of its answer; set when that is there."""


@contextmanager
def observed(request: Request, observe: CallObserver) -> Iterator[Call]:
    """Observe a call from here to the end of the block."""
    call, began = Call(), time.monotonic()
    try:
        yield call
    except ApiError as err:
        call.code = next((code for kind, code in _ENDS if isinstance(err, kind)), call.code)
        raise
    finally:
        observe(*verb_and_resource(request), call.code, time.monotonic() - began)


def verb_and_resource(request: Request) -> tuple[str, str]:
    """Return what a request does to what: ("update", "quotaledgers/status")."""
    path, _, query = request.target.partition("?")
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        parts = parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        parts = parts[3:]
    else:
        return _verb(request, query, has_name=True), _OTHER
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource = "/".join((parts[0], *parts[2:]))
    return _verb(request, query, has_name=len(parts) > 1), resource


def _verb(request: Request, query: str, *, has_name: bool) -> str:
    if request.method == "GET":
        if query.startswith("watch="):
            return "watch"
        return "get" if has_name else "list"
    if request.media_type == "application/apply-patch+yaml":
        return "apply"
    return _VERBS.get(request.method, _OTHER)
