"""Our own helper processes: modules of the tests that end with this process, however it ends."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from tests.controlplane.process import GUARD

ROOT: Final = Path(__file__).parents[2]


def command_of(module: str, *arguments: str) -> list[str]:
    """Give the command that runs a module; start it from ROOT, on a thread that lasts."""
    program = [sys.executable, "-m", module, *arguments]
    return [sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), *program]
