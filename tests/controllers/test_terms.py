"""A leadership is begun once, before anything is done under it, by however many threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from webhook.controllers.terms import Terms


def test_each_is_begun_once_and_its_beginning_and_its_end_are_told() -> None:
    term, begun, told = [0], list[int](), list[int]()
    terms = Terms(lambda: term[0], lambda: begun.append(term[0]), told.append)
    seen = []
    for term[0] in (0, 3, 3, 0, 0, 5, 7):
        seen.append(terms.notice())
    assert seen == [0, 3, 3, 0, 0, 5, 7]
    assert begun == [3, 5, 7]
    assert told == [3, 0, 5, 7]


def test_one_that_cannot_be_begun_has_not_begun() -> None:
    is_there = [False]

    def begin() -> None:
        if not is_there[0]:
            raise LookupError("not yet")

    terms = Terms(lambda: 4, begin)
    for _ in range(2):
        with pytest.raises(LookupError):
            terms.notice()
        assert not terms.leads()
    is_there[0] = True
    assert terms.notice() == 4
    assert terms.leads()


def test_of_many_threads_one_begins_it_and_the_others_wait() -> None:
    begun: list[bool] = []

    def begin() -> None:
        time.sleep(0.02)
        begun.append(True)

    terms = Terms(lambda: 2, begin)
    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(lambda _: (terms.notice(), list(begun)), range(8)))
    assert seen == [(2, [True])] * 8


def test_one_that_has_ended_leads_no_more_before_that_is_noticed() -> None:
    term = [2]
    terms = Terms(lambda: term[0], lambda: None)
    assert not terms.leads()
    terms.notice()
    assert terms.leads()
    assert terms.lasts(2)
    term[0] = 3
    assert not terms.leads()
    assert not terms.lasts(2)
