"""Calls of a scheduler over HTTP: a POST in, an answer out.

What cannot be read gets what a review would get: 405, 415, 413, 400. Whatever can be read is
answered with 200, however late: a scheduler whose extender is `ignorable` goes on after any other
answer as if it had not asked, and would evict. For the same reason a fault of this program, or that
there is no time for the call (`serving.undecided`), lets no pod be evicted; where nodes are asked
for it is 500 or 503, and `ignorable` decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from webhook.admission.deadline import Deadline, deadline_of
from webhook.admission.extender.decisions import (
    BindTrial,
    ReviewHandler,
    bind_request,
    failure_message,
    may_evict,
)
from webhook.admission.extender.protocol import (
    NO_CANDIDATE,
    FilterCall,
    MalformedCallError,
    PreemptCall,
    all_candidates,
    all_nodes,
    no_node,
    read_filter,
    read_preempt,
)
from webhook.admission.serving.http_response import HttpResponse, failure
from webhook.admission.serving.request_body import RejectedRequestError, read_json
from webhook.admission.serving.request_log import RequestRecorder

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class Verb(StrEnum):
    """Question of a scheduler; also the handler in logs and metrics."""

    FILTER = "filter"
    PREEMPT = "preempt"


EXTENDER_PATHS: Final[Mapping[str, Verb]] = {
    "/scheduler/filter": Verb.FILTER,
    "/scheduler/preempt": Verb.PREEMPT,
}

_SCHEDULER_TIMEOUT: Final = "timeout=5s"
"""A scheduler does not say how long it waits; this is its default.

Source: kubernetes v1.36, pkg/scheduler/extender.go DefaultExtenderTimeout.
"""


class ExtenderEndpoint:
    """One POST of a scheduler: read, decided, written, counted and logged."""

    def __init__(self, handler: ReviewHandler, recorder: RequestRecorder, body_bytes: int) -> None:
        self._trial = BindTrial(handler)
        self._recorder = recorder
        self._body_bytes = body_bytes

    def answer(self, environ: WSGIEnvironment, received: float, *, verb: Verb) -> HttpResponse:
        """Answer one request, whatever it is."""
        query = environ.get("QUERY_STRING", "") or _SCHEDULER_TIMEOUT
        deadline = deadline_of(query, received=received)
        try:
            body = read_json(environ, self._body_bytes, what="calls of a scheduler")
            call = _read(body, verb)
        except RejectedRequestError as refused:
            self._recorder.rejected(refused, environ.get("REMOTE_ADDR", ""))
            return refused.response
        if isinstance(call, FilterCall):
            return self._filter(call, deadline, received)
        return self._preempt(call, deadline, received)

    def _filter(self, call: FilterCall, deadline: Deadline, received: float) -> HttpResponse:
        request = bind_request(call.pod)
        try:
            answer = self._trial.for_filter(request, deadline)
            why = failure_message(answer)
            body = no_node(call, why) if why else all_nodes(call)
        except Exception as err:  # noqa: BLE001 - outermost frame: logged and counted, and answered so
            self._recorder.failed(request, Verb.FILTER, err, time.monotonic() - received)
            return failure(500, f"internal error while looking at pod {request.key}")
        answer = replace(answer, handler=Verb.FILTER)
        self._recorder.decided(request, answer, time.monotonic() - received)
        return HttpResponse(200, body)

    def _preempt(self, call: PreemptCall, deadline: Deadline, received: float) -> HttpResponse:
        request = bind_request(call.pod, dry_run=False)
        try:
            answer = self._trial.for_preempt(request, deadline)
            body = all_candidates(call) if may_evict(answer) else NO_CANDIDATE
        except Exception as err:  # noqa: BLE001 - outermost frame: logged and counted, no pod is evicted
            self._recorder.failed(request, Verb.PREEMPT, err, time.monotonic() - received)
            return HttpResponse(200, NO_CANDIDATE)
        answer = replace(answer, handler=Verb.PREEMPT)
        self._recorder.decided(request, answer, time.monotonic() - received)
        return HttpResponse(200, body)


def _read(body: bytes, verb: Verb) -> FilterCall | PreemptCall:
    try:
        return read_filter(body) if verb is Verb.FILTER else read_preempt(body)
    except MalformedCallError as err:
        raise RejectedRequestError(400, err.reason, err.detail) from err
