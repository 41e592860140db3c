"""Several calls at the same time: their results, their errors, and the keyboard."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from webhook.operations.parallel_calls import in_parallel

BOUND_SECONDS = 20.0


def together(call: Callable[[int], int], items: range, workers: int = 4) -> list[int]:
    return in_parallel(call, items, workers=workers, name="side")


def test_results_come_in_the_order_of_the_items() -> None:
    later = threading.Event()

    def call(item: int) -> int:
        if item == 0:
            assert later.wait(BOUND_SECONDS)  # the first ends last
        elif item == 9:
            later.set()
        return item * item

    assert together(call, range(10)) == [item * item for item in range(10)]


def test_nothing_takes_no_thread() -> None:
    assert together(lambda item: item, range(0)) == []


@pytest.mark.parametrize(("items", "at_once"), [(8, 4), (2, 2)], ids=["more", "fewer"])
def test_so_many_are_called_at_the_same_time(items: int, at_once: int) -> None:
    meeting = threading.Barrier(at_once)

    def call(item: int) -> int:
        meeting.wait(BOUND_SECONDS)
        return item

    assert together(call, range(items)) == list(range(items))


def test_an_error_is_raised_when_the_others_have_ended_and_nothing_else_begins() -> None:
    meeting = threading.Barrier(4)
    begun: list[int] = []
    ended: list[int] = []

    def call(item: int) -> int:
        begun.append(item)
        meeting.wait(BOUND_SECONDS)
        ended.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        together(call, range(100))
    assert sorted(begun) == sorted(ended) == [0, 1, 2, 3]


@pytest.mark.timeout(60)
def test_the_keyboard_waits_for_no_call_and_none_begins_after_it() -> None:
    release = threading.Event()
    all_wait = threading.Barrier(4)
    begun: list[int] = []
    threads: list[threading.Thread] = []

    def call(item: int) -> int:
        begun.append(item)
        threads.append(threading.current_thread())
        if all_wait.wait(BOUND_SECONDS) == 0:
            os.kill(os.getpid(), signal.SIGINT)
        release.wait(BOUND_SECONDS)
        return item

    with pytest.raises(KeyboardInterrupt):
        together(call, range(100))
    assert not release.is_set()
    assert all(thread.is_alive() and thread.daemon for thread in threads)
    release.set()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert sorted(begun) == [0, 1, 2, 3]
