from __future__ import annotations

import pytest

from tests.operations.healthy import Pulse
from webhook.kube.api import (
    ApiError,
    ForbiddenError,
    InternalError,
    TooManyRequestsError,
    UnreachableError,
)
from webhook.operations.retry import RetryPolicy, RetryTimer


def a_wait(pulse: Pulse, seconds: float = 10.0) -> RetryTimer:
    return RetryPolicy(
        seconds=seconds, pause_seconds=1.0, clock=pulse.clock, sleep=pulse.sleep
    ).begin()


def answering(*answers: ApiError | str) -> tuple[list[int], object]:
    calls: list[int] = []

    def call() -> str:
        calls.append(1)
        answer = answers[min(len(calls), len(answers)) - 1]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    return calls, call


@pytest.mark.parametrize("error", [UnreachableError("gone"), InternalError.of("hook")])
def test_what_can_pass_is_repeated(error: ApiError) -> None:
    pulse = Pulse()
    calls, call = answering(error, error, "done")
    assert a_wait(pulse).retry(call) == "done"  # type: ignore[arg-type]
    assert (len(calls), pulse.slept) == (3, [1.0, 1.0])


def test_the_api_server_says_how_long_to_wait() -> None:
    pulse = Pulse()
    _, call = answering(TooManyRequestsError("slow down", retry_after=4), "done")
    assert a_wait(pulse).retry(call) == "done"  # type: ignore[arg-type]
    assert pulse.slept == [4.0]


def test_the_first_failure_of_a_call_is_reported() -> None:
    pulse = Pulse()
    reports: list[str] = []
    policy = RetryPolicy(
        seconds=9.0, pause_seconds=1.0, clock=pulse.clock, sleep=pulse.sleep, report=reports.append
    )
    _, call = answering(UnreachableError("gone"), UnreachableError("gone"), "done")
    assert policy.begin().retry(call) == "done"  # type: ignore[arg-type]
    assert reports == ["retrying for up to 9 s: gone"]


def test_what_is_final_is_not_repeated() -> None:
    calls, call = answering(ForbiddenError("no"))
    with pytest.raises(ForbiddenError):
        a_wait(Pulse()).retry(call)  # type: ignore[arg-type]
    assert len(calls) == 1


def test_when_the_time_is_up_the_last_failure_is_reported() -> None:
    pulse = Pulse()
    calls, call = answering(UnreachableError("gone"))
    with pytest.raises(UnreachableError):
        a_wait(pulse, 3.0).retry(call)  # type: ignore[arg-type]
    assert len(calls) == 3
    assert sum(pulse.slept) == 3.0
