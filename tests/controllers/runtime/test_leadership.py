"""A leadership is begun once, before anything is done under it, by however many threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from webhook.controllers.runtime.leadership import Leadership


def test_each_is_begun_once_and_its_beginning_and_its_end_are_reported() -> None:
    epoch, begun, told = [0], list[int](), list[int]()
    criteria = Leadership(lambda: epoch[0], lambda: begun.append(epoch[0]), told.append)
    seen = []
    for epoch[0] in (0, 3, 3, 0, 0, 5, 7):
        seen.append(criteria.current_epoch())
    assert seen == [0, 3, 3, 0, 0, 5, 7]
    assert begun == [3, 5, 7]
    assert told == [3, 0, 5, 7]


def test_one_that_cannot_be_begun_has_not_begun() -> None:
    is_there = [False]

    def begin() -> None:
        if not is_there[0]:
            raise LookupError("not yet")

    criteria = Leadership(lambda: 4, begin)
    for _ in range(2):
        with pytest.raises(LookupError):
            criteria.current_epoch()
        assert not criteria.is_leader()
    is_there[0] = True
    assert criteria.current_epoch() == 4
    assert criteria.is_leader()


def test_of_many_threads_one_begins_it_and_the_others_wait() -> None:
    begun: list[bool] = []

    def begin() -> None:
        time.sleep(0.02)
        begun.append(True)

    criteria = Leadership(lambda: 2, begin)
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: (criteria.current_epoch(), list(begun)), range(8)))
    assert seen == [(2, [True])] * 8


def test_one_that_has_ended_leads_no_more_before_that_is_noticed() -> None:
    epoch = [2]
    criteria = Leadership(lambda: epoch[0], lambda: None)
    assert not criteria.is_leader()
    criteria.current_epoch()
    assert criteria.is_leader()
    assert criteria.is_current(2)
    epoch[0] = 3
    assert not criteria.is_leader()
    assert not criteria.is_current(2)
