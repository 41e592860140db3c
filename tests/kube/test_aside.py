"""Work that a forked process does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from webhook.kube.files.aside import can_fork, done_aside

needs_two = pytest.mark.skipif(not can_fork(), reason="there is one processor")


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize("answer", [True, False])
@needs_two
def test_another_process_answers(answer: bool) -> None:
    own = os.getpid()

    def ask() -> bool:
        return answer and os.getpid() != own

    with done_aside(ask, is_large=True) as asked:
        assert asked() is answer


def test_small_work_is_done_here() -> None:
    own = os.getpid()
    with done_aside(lambda: os.getpid() == own, is_large=False) as done:
        assert done()


@needs_two
def test_a_result_may_be_larger_than_a_pipe_holds() -> None:
    with done_aside(lambda: list(range(10**5)), is_large=True) as done:
        assert done() == list(range(10**5))


@needs_two
def test_a_process_that_ends_without_an_answer_is_none() -> None:
    own = os.getpid()

    def ask() -> bool:
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    with done_aside(ask, is_large=True) as asked:
        assert asked()


@needs_two
def test_what_fails_there_fails_here() -> None:
    def ask() -> bool:
        raise ValueError("unreadable")

    with done_aside(ask, is_large=True) as asked, pytest.raises(ValueError, match="unread"):
        asked()


@needs_two
def test_the_process_is_gone_when_the_block_is_left() -> None:
    before = children()

    def ask() -> bool:
        signal.pause()
        return True

    with done_aside(ask, is_large=True):
        assert len(children()) == len(before) + 1
    assert children() == before
