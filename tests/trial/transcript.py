"""What an administrator types, and what it answers, as Markdown."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_PAUSE_SECONDS: Final = 0.5
_PORTS: Final = re.compile(r"(?<=127\.0\.0\.1:)\d+")


class TrialError(Exception):
    """A command that did not do what it has to; the message has what it printed."""


@dataclass
class Transcript:
    """Runs commands, and keeps them with their output.

    Args:
        environment: Variables of the commands, besides those of this process.
        say: Called with each command as it begins.
    """

    environment: Mapping[str, str]
    say: Callable[[str], None]
    lines: list[str] = field(default_factory=list)
    _is_open: bool = False

    def title(self, text: str, level: int = 2) -> None:
        """Begin a section."""
        self._close()
        self.lines += [f"{'#' * level} {text}", ""]

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._close()
        self.lines += [text, ""]

    def run(self, command: str, *, code: int = 0) -> str:
        """Run a command, which ends with a status; return what it printed.

        Raises:
            TrialError: It ends with another one.
        """
        self.say(command)
        found, output = self._result(command)
        if found != code:
            raise TrialError(f"{command}: ended with {found}: {output}")
        self._show(command, output)
        return output

    def until(self, command: str, pattern: str, seconds: float = 180.0) -> float:
        """Repeat a command until its output matches; show that, and how long it took."""
        self.say(f"{command}   # until {pattern}")
        began = time.monotonic()
        while True:
            _, output = self._result(command)
            if re.search(pattern, output):
                break
            if time.monotonic() - began > seconds:
                raise TrialError(f"{command}: does not print {pattern!r}: {output}")
            time.sleep(_PAUSE_SECONDS)
        took = time.monotonic() - began
        self._show(command, output, f"    # after {took:.0f} s")
        return took

    def whole(self) -> str:
        """Return all of it."""
        self._close()
        return "\n".join(self.lines)

    def _result(self, command: str) -> tuple[int, str]:
        ran = subprocess.run(
            ["/bin/bash", "-c", command],
            cwd=ROOT,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=300,
        )
        return ran.returncode, ran.stdout

    def _show(self, command: str, output: str, note: str = "") -> None:
        if not self._is_open:
            self.lines.append("```console")
            self._is_open = True
        shown = _PORTS.sub("PORT", output.rstrip())
        self.lines += [f"$ {command}{note}", *([shown] if shown else [])]

    def _close(self) -> None:
        if self._is_open:
            self.lines += ["```", ""]
            self._is_open = False
