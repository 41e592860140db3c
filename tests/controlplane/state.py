"""What `scripts/controlplane up` leaves behind, so that `down` and `status` find it again."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

_END_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.02
_STARTED_FIELD: Final = 22  # of /proc/PID/stat, counted from 1


class StateError(Exception):
    """A state file that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Left:
    """A process that was left running.

    Attributes:
        name: The program.
        pid: Its process id.
        started: When it started, in the kernel's ticks since boot: ids are used again.
    """

    name: str
    pid: int
    started: int

    @classmethod
    def of(cls, name: str, pid: int) -> Self:
        """Describe a process that runs."""
        return cls(name, pid, started_at(pid))

    @property
    def is_running(self) -> bool:
        """Whether this very process still lives."""
        return self.started != 0 and started_at(self.pid) == self.started

    def kill(self) -> None:
        """Kill it and its group, if it still is this process."""
        if self.is_running:
            os.killpg(self.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class State:
    """A control plane that was left running."""

    url: str
    kubeconfig: str
    processes: tuple[Left, ...]

    def to_json(self) -> str:
        """Write it as text."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the text of `to_json`.

        Raises:
            StateError: It is not such a text.
        """
        try:
            raw: dict[str, Any] = json.loads(text)
            processes = tuple(Left(**one) for one in raw["processes"])
            return cls(str(raw["url"]), str(raw["kubeconfig"]), processes)
        except (ValueError, KeyError, TypeError) as err:
            raise StateError(f"not the state of a control plane: {err!r}") from err

    @property
    def is_running(self) -> bool:
        """Whether all of its processes live."""
        return all(process.is_running for process in self.processes)


def read_state(path: Path) -> State | None:
    """Read a state file; None when there is none.

    Raises:
        StateError: It cannot be understood; the message has its path.
    """
    try:
        return State.from_json(path.read_text())
    except FileNotFoundError:
        return None
    except StateError as err:
        raise StateError(f"{path}: {err}; end its processes by hand and delete it") from err


def write_state(path: Path, state: State) -> None:
    """Write a state file as a whole."""
    part = path.with_suffix(".part")
    part.write_text(state.to_json())
    part.replace(path)


def end(processes: Iterable[Left]) -> list[Left]:
    """Kill processes and wait for their end; return those that still live."""
    waiting = list(processes)
    for process in waiting:
        process.kill()
    give_up = time.monotonic() + _END_SECONDS
    while (waiting := [one for one in waiting if one.is_running]) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)
    return waiting


def started_at(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return parse_started(text)


def parse_started(text: str) -> int:
    """Read the start time from /proc/PID/stat; the name in it may hold anything."""
    fields = text.rpartition(")")[2].split()  # from field 3, the state, on
    return 0 if not fields or fields[0] in "ZX" else int(fields[_STARTED_FIELD - 3])
