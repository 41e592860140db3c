"""What was left running is found again, and nothing else."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.state import (
    Left,
    State,
    StateError,
    end,
    parse_started,
    read_state,
    write_state,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["/bin/sleep", "600"], start_new_session=True) as process:
        yield process
        process.kill()


def test_a_state_reads_back_as_itself(tmp_path: Path) -> None:
    state = State("https://127.0.0.1:1", "/k", (Left("etcd", 7, 9), Left("kube-apiserver", 8, 9)))
    path = tmp_path / "state.json"
    assert read_state(path) is None
    write_state(path, state)
    assert read_state(path) == state


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url":"u","kubeconfig":"k","processes":[1]}'])
def test_a_state_that_cannot_be_understood_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(StateError, match=r"state\.json"):
        read_state(path)


def test_what_was_left_is_ended(sleeper: subprocess.Popen[bytes]) -> None:
    left = Left.of("sleep", sleeper.pid)
    assert left.is_running
    assert end([left]) == []
    assert not left.is_running
    assert sleeper.wait(10) == -signal.SIGKILL


def test_another_process_with_the_same_id_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    started = Left.of("sleep", sleeper.pid).started
    former = Left("etcd", sleeper.pid, started - 1)
    assert not former.is_running
    assert end([former]) == []
    assert sleeper.poll() is None


def test_the_start_is_read_behind_a_name_that_holds_anything() -> None:
    tail = " ".join(["S", *map(str, range(4, 22)), "4711", "23"])
    assert parse_started(f"42 (a) b (c)) {tail}") == 4711
    assert parse_started(f"42 (a) Z {tail[2:]}") == 0
    assert parse_started("") == 0
