"""Dry runs of binds, and how their responses are read; by handlers that a test scripts."""

from __future__ import annotations

import pytest

from webhook.admission.deadline import Deadline
from webhook.admission.extender.decisions import (
    NOT_OPTED_IN_SECONDS,
    BindTrial,
    bind_request,
    failure_message,
    may_evict,
)
from webhook.admission.extender.protocol import PodIdentity
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied

LATER = Deadline(10.0)
UNTOUCHED = Allowed(decision="not-opted-in")
ALLOWED = Allowed(decision="would-reserve")


class FakeHandler:
    """A handler that remembers what it was asked."""

    def __init__(self, answer: AdmissionResponse) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def __call__(self, request: AdmissionRequest, _deadline: Deadline) -> AdmissionResponse:
        self.asked.append(request.namespace)
        return self.answer


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def a_bind(namespace: str = "team-a") -> AdmissionRequest:
    return bind_request(PodIdentity(namespace, "web-1", "uid-1"))


def denied(code: int, message: str = "no", **audit: str) -> Denied:
    return Denied(code=code, reason="", message=message, audit=audit)


def test_the_trial_is_a_dry_run_of_the_pods_own_bind() -> None:
    request = a_bind()
    assert request.dry_run
    assert (request.operation, request.path, request.key) == (
        "CREATE",
        "pods/binding",
        "team-a/web-1",
    )
    assert (request.object or {})["metadata"] == {
        "namespace": "team-a",
        "name": "web-1",
        "uid": "uid-1",
    }


def test_a_namespace_that_has_not_opted_in_is_asked_about_once_in_a_while() -> None:
    handlers, clock = FakeHandler(UNTOUCHED), Clock()
    trial = BindTrial(handlers, clock)
    for _ in range(3):
        assert trial.for_filter(a_bind(), LATER) == UNTOUCHED
    trial.for_filter(a_bind("team-b"), LATER)
    assert handlers.asked == ["team-a", "team-b"]
    clock.now += NOT_OPTED_IN_SECONDS
    handlers.answer = denied(403)
    assert trial.for_filter(a_bind(), LATER) == denied(403)


@pytest.mark.parametrize("answer", [ALLOWED, denied(403), denied(429)])
def test_any_other_answer_is_never_given_twice(answer: AdmissionResponse) -> None:
    handlers = FakeHandler(answer)
    trial = BindTrial(handlers, Clock())
    for _ in range(3):
        assert trial.for_filter(a_bind(), LATER) == answer
    assert len(handlers.asked) == 3


def test_before_an_eviction_the_handlers_are_always_asked() -> None:
    handlers = FakeHandler(UNTOUCHED)
    trial = BindTrial(handlers, Clock())
    trial.for_filter(a_bind(), LATER)
    trial.for_preempt(a_bind(), LATER)
    assert len(handlers.asked) == 2


def test_namespaces_that_come_and_go_leave_little_behind() -> None:
    handler = FakeHandler(UNTOUCHED)
    trial = BindTrial(handler, Clock())
    for number in (*range(4097), 4096):
        trial.for_filter(a_bind(f"team-{number}"), LATER)
    assert len(handler.asked) == 4097
    trial.for_filter(a_bind("team-0"), LATER)
    assert len(handler.asked) == 4098  # the first ones are forgotten


NUMBERS = {"quota": "p1", "requested": "cpu=1", "used": "cpu=2", "limited": "cpu=2"}
TEXTS: dict[str, tuple[AdmissionResponse, str]] = {
    "allowed": (ALLOWED, ""),
    "not opted in": (UNTOUCHED, ""),
    "over quota": (
        denied(403, "exceeded quota: p1, ...", **NUMBERS),
        "quota exceeded: p1, requested: cpu=1, used: cpu=2, limited: cpu=2",
    ),
    "refused for another reason": (denied(403, "failed quota: p1", reason="x"), "failed quota: p1"),
    "a pod that cannot be read": (
        denied(422, "spec: must be an object"),
        "spec: must be an object",
    ),
    "undecided": (denied(429, "busy"), ""),
    "gone": (denied(404, 'pods "web-1" not found'), ""),
    "gated": (denied(409), ""),
    "a fault": (denied(500), ""),
}


@pytest.mark.parametrize(("answer", "text"), TEXTS.values(), ids=TEXTS.keys())
def test_only_refusals_that_stand_leave_no_node(answer: AdmissionResponse, text: str) -> None:
    assert failure_message(answer) == text


def test_a_long_reason_is_cut_because_it_is_given_for_every_node() -> None:
    text = failure_message(denied(403, "x" * 5000))
    assert len(text) == 1024
    assert text.endswith("...")


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (ALLOWED, True),
        (UNTOUCHED, True),
        (Allowed(decision="nothing-charged"), True),
        (Allowed(decision="passthrough"), False),
        *((denied(code), False) for code in (403, 404, 409, 422, 429, 500)),
    ],
)
def test_only_for_a_pod_that_can_be_bound_pods_are_evicted(
    answer: AdmissionResponse, *, wanted: bool
) -> None:
    assert may_evict(answer) is wanted
