"""Programs are started, killed, paused, and do not outlive who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controlplane.process import Process, ProcessError
from tests.controlplane.state import Left

ROOT = Path(__file__).parent.parent.parent
SLEEP = ["/bin/sleep", "600"]


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def a_shell(tmp_path: Path, text: str, ready: Callable[[], str] = lambda: "") -> Process:
    return Process("shell", ["/bin/sh", "-c", text], tmp_path / "log", ready)


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = Process("sleep", SLEEP, tmp_path / "log")
    process.start()
    yield process
    process.kill()


def test_it_runs_until_it_is_killed(sleeper: Process) -> None:
    assert sleeper.is_running
    sleeper.kill()
    assert not sleeper.is_running
    assert sleeper.exit_code == -signal.SIGKILL
    sleeper.kill()  # once more does nothing


def test_a_restart_is_another_process(sleeper: Process) -> None:
    first = sleeper.pid
    sleeper.restart()
    assert sleeper.is_running
    assert sleeper.pid != first


def test_it_is_not_started_twice(sleeper: Process) -> None:
    with pytest.raises(ProcessError, match=f"sleep runs already, as process {sleeper.pid}"):
        sleeper.start()


def test_paused_it_lives_and_does_nothing_until_resumed(sleeper: Process) -> None:
    assert eventually(lambda: state_of(sleeper.pid) == "S")
    sleeper.pause()
    assert eventually(lambda: state_of(sleeper.pid) == "T")
    assert sleeper.is_running
    sleeper.resume()
    assert eventually(lambda: state_of(sleeper.pid) == "S")


def test_paused_it_can_be_ended(sleeper: Process) -> None:
    sleeper.pause()
    sleeper.terminate()
    assert sleeper.exit_code == -signal.SIGTERM


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    text = f"trap '' TERM; touch {ready}; while :; do sleep 600; done"
    process = a_shell(tmp_path, text, lambda: "" if ready.exists() else "no file")
    process.start()
    with pytest.raises(ProcessError, match="shell has not ended after 0 s"):
        process.terminate(seconds=0.2)
    assert not process.is_running


def test_one_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    process = a_shell(tmp_path, "echo unknown flag >&2; exit 3", lambda: "not yet")
    with pytest.raises(ProcessError, match=r"(?s)shell ended with 3:.*log:\nunknown flag"):
        process.start()


def test_one_that_never_gets_ready_says_what_is_missing(tmp_path: Path) -> None:
    process = a_shell(tmp_path, "echo begun; exec sleep 600", lambda: "the port is closed")
    process.start(waits=False)
    assert eventually(lambda: "begun" in process.tail())
    with pytest.raises(ProcessError, match=r"(?s)not ready after 0 s: the port is closed.*begun"):
        process.wait_until_ready(seconds=0.1)
    process.kill()


def test_killing_it_kills_what_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = f"/bin/sleep 600 & echo $! > {child}.part; mv {child}.part {child}; wait"
    process = a_shell(tmp_path, text, lambda: "" if child.exists() else "no child")
    process.start()
    left = Left.of("sleep", int(child.read_text()))
    assert left.is_running
    process.kill()
    assert eventually(lambda: not left.is_running)


def test_it_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    process = Process("sleep", SLEEP, tmp_path / "log")

    def start() -> None:
        process.start()
        # from here on the kernel has been asked for its signal
        assert eventually(lambda: command_of(process.pid) == "sleep")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists())
    # one that is to be killed cannot be stopped any more
    process.pause()
    assert eventually(lambda: not process.is_running or state_of(process.pid) == "T")
    assert process.is_running
    process.kill()


STARTER = """
import sys, time
from pathlib import Path
from tests.controlplane.process import Process

processes = [Process("sleep", ["/bin/sleep", "600"], Path(sys.argv[1]), is_bound=bound)
             for bound in (True, False)]
for process in processes:
    process.start()
print(*(process.pid for process in processes), flush=True)
time.sleep(600)
"""


def test_killed_tests_leave_nothing_running_but_what_was_meant_to_stay(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path / "log")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        bound, free = (Left.of("sleep", int(pid)) for pid in starter.stdout.readline().split())
        assert eventually(lambda: command_of(bound.pid) == "sleep")
        starter.kill()
    try:
        assert eventually(lambda: not bound.is_running)
        assert free.is_running
    finally:
        free.kill()


def test_an_interrupt_at_the_terminal_is_not_for_it(sleeper: Process) -> None:
    assert os.getpgid(sleeper.pid) == sleeper.pid
    assert os.getsid(sleeper.pid) == sleeper.pid
