"""Calls of a scheduler over HTTP: a POST in, an answer out.

What cannot be read gets what a review would get: 405, 415, 413, 400. Whatever can be read is
answered with 200, however late: a scheduler whose extender is `ignorable` goes on after any other
answer as if it had not asked, and would evict. For the same reason a fault of this program lets
nobody be evicted; where nodes are asked for it is 500, and `ignorable` decides.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from webhook.admission.deadline import Deadline, deadline_of
from webhook.admission.extender.decisions import Doors, Trial, may_evict, trial_of, why_no_node
from webhook.admission.extender.wire import (
    FilterCall,
    MalformedCallError,
    PreemptCall,
    all_candidates,
    all_nodes,
    no_candidate,
    no_node,
    read_filter,
    read_preempt,
)
from webhook.admission.serving.bodies import RefusedError, read_json
from webhook.admission.serving.http import HttpAnswer, failure
from webhook.admission.serving.records import Records

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment


class Verb(StrEnum):
    """What a scheduler asks; also the door in logs and metrics."""

    FILTER = "filter"
    PREEMPT = "preempt"


EXTENDER_PATHS: Final[Mapping[str, Verb]] = {
    "/scheduler/filter": Verb.FILTER,
    "/scheduler/preempt": Verb.PREEMPT,
}

_SCHEDULERS_TIMEOUT: Final = "timeout=5s"
"""A scheduler does not say how long it waits; this is its default.

Source: kubernetes v1.36, pkg/scheduler/extender.go DefaultExtenderTimeout.
"""


class ExtenderEndpoint:
    """One POST of a scheduler: read, decided, written, counted and logged."""

    def __init__(self, doors: Doors, records: Records, body_bytes: int) -> None:
        self._trial = Trial(doors)
        self._records = records
        self._body_bytes = body_bytes

    def answer(self, environ: WSGIEnvironment, received: float, *, verb: Verb) -> HttpAnswer:
        """Answer one request, whatever it is."""
        query = environ.get("QUERY_STRING", "") or _SCHEDULERS_TIMEOUT
        deadline = deadline_of(query, received=received)
        try:
            body = read_json(environ, self._body_bytes, what="calls of a scheduler")
            call = _read(body, verb)
        except RefusedError as refused:
            self._records.refused(refused)
            return refused.answer
        if isinstance(call, FilterCall):
            return self._filter(call, deadline, received)
        return self._preempt(call, deadline, received)

    def _filter(self, call: FilterCall, deadline: Deadline, received: float) -> HttpAnswer:
        request = trial_of(call.pod)
        try:
            answer = self._trial.of_filter(request, deadline)
            why = why_no_node(answer)
            body = no_node(call, why) if why else all_nodes(call)
        except Exception as err:  # noqa: BLE001 - outermost frame: logged and counted, and answered so
            self._records.failed(request, Verb.FILTER, err, time.monotonic() - received)
            return failure(500, f"internal error while looking at pod {request.key}")
        answer = replace(answer, door=Verb.FILTER)
        self._records.decided(request, answer, time.monotonic() - received)
        return HttpAnswer(200, body)

    def _preempt(self, call: PreemptCall, deadline: Deadline, received: float) -> HttpAnswer:
        request = trial_of(call.pod)
        try:
            answer = self._trial.of_preempt(request, deadline)
            body = all_candidates(call) if may_evict(answer) else no_candidate(call)
        except Exception as err:  # noqa: BLE001 - outermost frame: logged and counted, nobody is evicted
            self._records.failed(request, Verb.PREEMPT, err, time.monotonic() - received)
            return HttpAnswer(200, no_candidate(call))
        answer = replace(answer, door=Verb.PREEMPT)
        self._records.decided(request, answer, time.monotonic() - received)
        return HttpAnswer(200, body)


def _read(body: bytes, verb: Verb) -> FilterCall | PreemptCall:
    try:
        return read_filter(body) if verb is Verb.FILTER else read_preempt(body)
    except MalformedCallError as err:
        raise RefusedError(400, err.reason, err.detail) from err
