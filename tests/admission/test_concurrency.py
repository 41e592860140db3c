"""How many requests may wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from webhook.admission.serving.concurrency import ConcurrencyLimiter, DeadlineQueue


def busy(gate: ConcurrencyLimiter, requests: int) -> ConcurrencyLimiter:
    for _ in range(requests):
        assert gate.enter(1000.0)
    return gate


def slow(threads: int, seconds: float) -> ConcurrencyLimiter:
    """A gate that has seen a few requests of this length, and no other."""
    gate = busy(ConcurrencyLimiter(threads), 3)
    for _ in range(3):
        gate.leave(seconds)
    return gate


def test_a_free_thread_takes_a_request_however_slow_others_were() -> None:
    gate = busy(slow(threads=2, seconds=100.0), 1)
    assert gate.enter(0.1)


def test_a_request_that_would_wait_for_too_long_does_not_get_in() -> None:
    gate = busy(slow(threads=2, seconds=1.0), 2)
    assert not gate.enter(1.9)
    assert gate.enter(2.1)


def test_each_round_of_requests_ahead_costs_one_service_time() -> None:
    gate = busy(slow(threads=2, seconds=1.0), 6)
    assert not gate.enter(3.9)
    assert gate.enter(4.1)


def test_a_request_that_is_not_let_in_is_not_counted() -> None:
    gate = busy(slow(threads=1, seconds=1.0), 1)
    assert not gate.enter(0.5)
    assert gate.inside == 1


def test_quick_requests_bring_the_expectation_down_again() -> None:
    gate = busy(slow(threads=1, seconds=10.0), 1)
    assert not gate.enter(1.0)
    for _ in range(200):
        gate.leave(0.001)
        gate = busy(gate, 1)
    assert gate.enter(1.0)


@given(services=st.lists(st.floats(min_value=0, max_value=60), max_size=50))
def test_after_all_have_left_none_is_inside(services: list[float]) -> None:
    gate = busy(ConcurrencyLimiter(4), len(services))
    for seconds in services:
        gate.leave(seconds)
    assert gate.inside == 0


@given(deadlines=st.lists(st.integers(min_value=0, max_value=3)))
def test_the_earliest_deadline_is_next_and_equal_ones_keep_their_order(
    deadlines: list[int],
) -> None:
    queue: DeadlineQueue[object] = DeadlineQueue()
    items = [(deadline, number) for number, deadline in enumerate(deadlines)]
    for item in items:
        queue.push(item, item[0])
    assert [queue.pop() for _ in items] == sorted(items)


def test_items_of_equal_deadlines_are_not_compared() -> None:
    queue: DeadlineQueue[object] = DeadlineQueue()
    first, second = object(), object()
    queue.push(first, 1.0)
    queue.push(second, 1.0)
    assert (queue.pop(), queue.pop()) == (first, second)
