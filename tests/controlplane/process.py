"""A program that tests start, kill, pause and start again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals
from typing import Final

GUARD: Final = Path(__file__).with_name("guard.py")
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1
_TAIL_LINES: Final = 25

# The kernel's "parent" is the thread that started a program: a thread of a test may end long before
# the test does, so this one starts them all.
_STARTER: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")


class ProcessError(Exception):
    """A program did not start or did not stop; the message has the end of its log."""


def _always() -> str:
    return ""


@dataclass(eq=False)
class Process:
    """One program with a log of its own, in a process group of its own.

    Attributes:
        name: For messages.
        command: The program and its arguments; the same at every start.
        log: Where its output goes; later starts append.
        ready: Says what is still missing, nothing when it is ready. An OSError counts as missing.
        environment: Variables besides those of this process.
        is_bound: Whether it ends with this process, even if that is killed.
    """

    name: str
    command: Sequence[str | Path]
    log: Path
    ready: Callable[[], str] = _always
    environment: Mapping[str, str] = field(default_factory=dict)
    is_bound: bool = True
    _popen: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        """The id of the process, also after its end."""
        if self._popen is None:
            raise ProcessError(f"{self.name} was never started")
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives, be it paused."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None while it lives."""
        return None if self._popen is None else self._popen.poll()

    def start(self, *, waits: bool = True) -> None:
        """Start it and wait until it is ready.

        Raises:
            ProcessError: It runs already, ends early, or is not ready in START_SECONDS.
        """
        if self.is_running:
            raise ProcessError(f"{self.name} runs already, as process {self.pid}")
        self._popen = _STARTER.submit(self._spawn).result()
        if waits:
            self.wait_until_ready()

    def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until it is ready.

        Raises:
            ProcessError: It ended, or the time is over.
        """
        give_up = time.monotonic() + seconds
        while missing := self._missing():
            if not self.is_running:
                raise ProcessError(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > give_up:
                raise ProcessError(
                    f"{self.name} is not ready after {seconds:.0f} s: {missing}\n{self.tail()}"
                )
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill it and what it started (SIGKILL), and wait for its end."""
        if self.is_running:
            self._signal_group(SIGKILL)
            self._wait(STOP_SECONDS)

    def terminate(self, seconds: float = STOP_SECONDS) -> None:
        """Ask it to end (SIGTERM) and wait; kill it when it does not.

        Raises:
            ProcessError: It had to be killed.
        """
        if not self.is_running:
            return
        self.signal(SIGTERM)
        self.resume()
        try:
            self._wait(seconds)
        except ProcessError:
            self.kill()
            raise

    def restart(self) -> None:
        """Kill it, if it lives, and start it again with the same arguments."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it where it is (SIGSTOP): connections stay open and nothing answers."""
        self._signal_group(SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal_group(SIGCONT)

    def signal(self, number: Signals) -> None:
        """Send a signal to the process alone, not to what it started."""
        if self.is_running and self._popen is not None:
            self._popen.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end, and give the exit code."""
        return self._wait(seconds)

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """The end of the log."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError as err:
            return f"{self.log}: {err}"
        return f"-- end of {self.log}:\n" + "\n".join(text.splitlines()[-lines:])

    # -- inside ----------------------------------------------------------------------------

    def _missing(self) -> str:
        if not self.is_running:
            return "it does not run"
        try:
            return self.ready()
        except OSError as err:
            return str(err) or type(err).__name__

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [str(part) for part in self.command]
        if self.is_bound:
            command = [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *command]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                # a session of its own: Ctrl-C at the terminal is for us, who then end it in order
                start_new_session=True,
            )

    def _signal_group(self, number: Signals) -> None:
        if self.is_running:
            os.killpg(self.pid, number)

    def _wait(self, seconds: float) -> int:
        if self._popen is None:
            raise ProcessError(f"{self.name} was never started")
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProcessError(
                f"{self.name} has not ended after {seconds:.0f} s:\n{self.tail()}"
            ) from None
