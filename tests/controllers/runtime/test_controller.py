"""What a reconciler returns decides when its key comes again."""

from __future__ import annotations

import pytest

from tests.admission.handlers.harness import eventually
from webhook.controllers.runtime.controller import (
    DONE,
    RATE_LIMITED,
    Controller,
    Postponed,
    RequeueAfter,
    Result,
)
from webhook.controllers.runtime.rate_limit import ExponentialBackoff
from webhook.controllers.runtime.workqueue import WorkQueue

RESULTS = {
    "nothing is left to do": (DONE, float("inf"), 0),
    "it comes again": (RequeueAfter(7.0), 7.0, 0),
    "it failed": (RATE_LIMITED, 3.0, 1),
}


def a_queue() -> WorkQueue[str]:
    return WorkQueue(ExponentialBackoff(3.0, 60.0), clock=lambda: 0.0)


@pytest.mark.parametrize(("result", "seconds", "failures"), RESULTS.values(), ids=RESULTS.keys())
def test_a_result_decides_when_the_key_comes_again(
    result: Result, seconds: float, failures: int
) -> None:
    controller = Controller("test", a_queue(), lambda _key: result)
    controller.queue.add("one")
    assert controller.step()
    assert controller.queue.seconds_to_next() == seconds
    assert controller.queue.failures("one") == failures
    assert not controller.step()


def test_a_key_that_is_postponed_keeps_its_failures() -> None:
    results: list[Result] = [RATE_LIMITED, Postponed(7.0)]
    controller = Controller("test", a_queue(), lambda _key: results.pop(0))
    for seconds in (3.0, 7.0):
        controller.queue.add("one")
        assert controller.step()
        assert controller.queue.seconds_to_next() == seconds
    assert controller.queue.failures("one") == 1


def test_what_is_raised_is_a_failure_and_goes_to_the_caller() -> None:
    def fail(_key: str) -> Result:
        raise ValueError("no")

    controller = Controller("test", a_queue(), fail)
    controller.queue.add("one")
    with pytest.raises(ValueError, match="no"):
        controller.step()
    assert controller.queue.seconds_to_next() == 3.0


def test_draining_reconciles_each_key_once() -> None:
    seen: list[str] = []

    def again(key: str) -> Result:
        seen.append(key)
        return RequeueAfter(0.0)

    controller = Controller("test", a_queue(), again)
    for key in ("a", "b"):
        controller.queue.add(key)
    controller.drain()
    assert seen == ["a", "b"]


def test_workers_log_what_is_raised_and_go_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    is_ready = [False]

    def fail(key: str) -> Result:
        seen.append(key)
        raise ValueError("this one")

    controller: Controller[str] = Controller(
        "test", WorkQueue(ExponentialBackoff(0.01, 0.01)), fail, workers=2, poll=lambda: is_ready[0]
    )
    controller.queue.add("one")
    controller.start()
    try:
        assert seen == []
        is_ready[0] = True
        eventually(lambda: len(seen) > 2, "it is tried again and again")
    finally:
        controller.stop(5)
    assert "this one" in caplog.text
