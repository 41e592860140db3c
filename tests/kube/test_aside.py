"""Questions that a forked process answers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from webhook.kube.files.aside import LARGE_BYTES, answered_aside, can_fork

needs_two = pytest.mark.skipif(not can_fork(), reason="there is one processor")


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.parametrize("answer", [True, False])
@needs_two
def test_another_process_answers(answer: bool) -> None:
    own = os.getpid()

    def ask() -> bool:
        return answer and os.getpid() != own

    with answered_aside(ask, size=LARGE_BYTES) as asked:
        assert asked() is answer


@pytest.mark.parametrize("size", [0, LARGE_BYTES - 1])
def test_a_small_question_is_answered_here(size: int) -> None:
    own = os.getpid()
    with answered_aside(lambda: os.getpid() == own, size=size) as asked:
        assert asked()


@needs_two
def test_a_process_that_ends_without_an_answer_is_none() -> None:
    own = os.getpid()

    def ask() -> bool:
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    with answered_aside(ask, size=LARGE_BYTES) as asked:
        assert asked()


@needs_two
def test_what_fails_there_fails_here() -> None:
    def ask() -> bool:
        raise ValueError("unreadable")

    with answered_aside(ask, size=LARGE_BYTES) as asked, pytest.raises(ValueError, match="unread"):
        asked()


@needs_two
def test_the_process_is_gone_when_the_block_is_left() -> None:
    before = children()

    def ask() -> bool:
        signal.pause()
        return True

    with answered_aside(ask, size=LARGE_BYTES):
        assert len(children()) == len(before) + 1
    assert children() == before
