"""What servers under test serve. A review's name says what is to happen to it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.admission.deadline import Deadline
from webhook.admission.patch_builder import add
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied, Phase
from webhook.admission.serving.server_settings import ServerParts

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MARKER_VARIABLE = "DEFERRED_QUOTA_TEST_MARKER"
"""Environment variable with a path: the file is made at the start and removed at the stop."""

OUT_OF_ORDER_VARIABLE = "DEFERRED_QUOTA_TEST_OUT_OF_ORDER"
"""Environment variable with a path: while the file exists, the server is not ready."""


def decide(request: AdmissionRequest, _deadline: Deadline) -> AdmissionResponse:
    """Answer at once, or do what the name says: `sleep-SECONDS`, `long-KIB`, `deny`, `fail`."""
    word, _, rest = request.name.partition("-")
    if word == "sleep":
        time.sleep(float(rest))
    if word == "fail":
        raise RuntimeError("told to")
    if word == "deny":
        return Denied(code=403, reason="Forbidden", message="told to")
    if word == "long":
        audit = {f"k{number}": "x" * 1024 for number in range(int(rest))}
        return Allowed(decision="long", audit=audit)
    if request.phase is Phase.MUTATING:
        return Allowed(decision="patched", patch=(add(("metadata", "labels"), {"a": "b"}),))
    return Allowed(decision="none")


def plain(_urls: Mapping[str, str]) -> ServerParts:
    """Decide, and nothing else."""
    return ServerParts(review_handler=decide)


def observed(_urls: Mapping[str, str]) -> ServerParts:
    """Decide, leave a marker while running, and be ready or not as a file says."""
    marker = Path(os.environ[MARKER_VARIABLE])
    out_of_order = Path(os.environ[OUT_OF_ORDER_VARIABLE])
    return ServerParts(
        review_handler=decide,
        start=marker.touch,
        stop=marker.unlink,
        readiness=lambda: ["caches are not synced"] if out_of_order.exists() else [],
    )


def with_api(_urls: Mapping[str, str]) -> ServerParts:
    """Decide, and serve a second application that streams."""
    return ServerParts(review_handler=decide, extra_wsgi={"api": stream})


def broken(_urls: Mapping[str, str]) -> ServerParts:
    """Fail to be built."""
    raise ValueError("cannot be built")


def stream(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    """Answer in two parts, the second one late."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    yield f"path {environ['PATH_INFO']}\n".encode()
    time.sleep(0.2)
    yield b"end\n"
