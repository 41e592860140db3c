"""Answers to reviews that are not decided: for their size, or because there is no time.

Where an HTTP error answers a review, the API server goes on as the failure policy of the
registration says. With `Ignore` it lets the request pass: right in an outage. But the creator of a
pod chooses its size, and so would choose to have no gate. What is too large
is denied, whatever the policy: a review says what it is about before its user, and that much is
read of it; what is known of a user can be large, and have keys like those of a review. So is, for
now, a change of a pod that there is no time for: the entry about our gate is only asked where the
change may take it off.

A scheduler that asks which pods to evict, and whose extender is `ignorable`, would evict them after
an error: where there is no time, it evicts none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from webhook.admission.extender.endpoint import EXTENDER_PATHS, Verb
from webhook.admission.extender.protocol import NO_CANDIDATE
from webhook.admission.handlers.dispatch import denies_undecided, may_deny
from webhook.admission.handlers.responses import refused, try_again
from webhook.admission.review import (
    AdmissionRequest,
    MalformedReviewError,
    Phase,
    decode_review,
    encode_review,
)
from webhook.admission.serving.concurrency import SMALL_BYTES
from webhook.admission.serving.http_response import HttpResponse, failure

REVIEW_PATHS: Final[Mapping[str, Phase]] = {
    "/mutate": Phase.MUTATING,
    "/validate": Phase.VALIDATING,
    "/shadow": Phase.SHADOW,
}
OVERLOAD: Final = 503
"""The HTTP status of what is not decided now."""

USER: Final = b',"userInfo":{'
"""Where the API server begins with the user; within a text its quotation marks are escaped."""


def turned_away_response(target: str, body: bytes, detail: str, code: int) -> HttpResponse:
    """Return the answer to a request that no thread will decide, see `refused_response`.

    Args:
        target: Path and query of the URL.
    """
    if code == OVERLOAD and EXTENDER_PATHS.get(target.partition("?")[0]) is Verb.PREEMPT:
        return HttpResponse(200, NO_CANDIDATE)
    return refused_response(phase_of(target), body, detail, code)


def refused_response(phase: Phase | None, body: bytes, detail: str, code: int) -> HttpResponse:
    """Return the answer to a review that is turned away for what it is made of.

    Args:
        phase: As the path of the URL says; None for another page.
        body: The body as it was sent, or how it begins.
        detail: Why it is not decided.
        code: The HTTP status where it is not known what the review is about, or it is about
            something that nothing here may ever fail.
    """
    request = _about(body, phase)
    if request is None or not may_deny(request):
        return failure(code, detail)
    if code == OVERLOAD:
        return HttpResponse(200, encode_review(request, try_again(detail)))
    reason = "RequestEntityTooLarge" if code == 413 else "BadRequest"
    return HttpResponse(200, encode_review(request, refused(code, reason, detail)))


def overload_response(target: str, body: bytes, detail: str) -> HttpResponse:
    """Return the answer to a request that no thread will decide; quick enough for the event loop.

    Args:
        target: Path and query of the URL.
        body: The body as it was sent; of a large one only the beginning is read.
        detail: Why it is not decided.
    """
    phase = phase_of(target)
    if phase is None or len(body) > SMALL_BYTES:
        return turned_away_response(target, body[:SMALL_BYTES], detail, OVERLOAD)
    try:
        return not_decided(decode_review(body, phase), detail)
    except MalformedReviewError:
        return failure(OVERLOAD, detail)


def not_decided(request: AdmissionRequest, detail: str) -> HttpResponse:
    """Return a denial for now, or an error where the API server goes on without an answer.

    With the failure policy `Fail` it would make an error 500 of any HTTP error, and a scheduler
    takes the pod back; a bind that is denied with 429 is sent again by the client itself.
    """
    if not denies_undecided(request):
        return failure(OVERLOAD, detail)
    return HttpResponse(200, encode_review(request, try_again(detail)))


def phase_of(target: str) -> Phase | None:
    """Return the phase of the reviews that are posted to a path; None for another page."""
    return REVIEW_PATHS.get(target.partition("?")[0])


def _about(body: bytes, phase: Phase | None) -> AdmissionRequest | None:
    """Return a review's request without user and object; None where that cannot be read."""
    end = body.find(USER)
    if phase is None or end < 0:
        return None
    try:
        return decode_review(body[:end] + b"}}", phase)
    except MalformedReviewError:
        return None
