"""Memory, descriptors and threads of a process and those that it started, as the kernel counts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.soak.slopes import Sample

_PROC: Final = Path("/proc")
_KIB: Final = 1024


def sample(group: int) -> Sample:
    """Return what the processes of a group take together; one that ends meanwhile takes nothing."""
    memory = descriptors = threads = 0
    for place in _members(group):
        with contextlib.suppress(OSError):
            found = (_own_memory(place), _entries(place / "fd"), _entries(place / "task"))
            memory += found[0]
            descriptors += found[1]
            threads += found[2]
    return Sample(time.monotonic(), memory, descriptors, threads)


def _members(group: int) -> Iterator[Path]:
    for place in _PROC.iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.getpgid(int(place.name)) == group:
                    yield place


def _own_memory(place: Path) -> int:
    for line in (place / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * _KIB
    return 0


def _entries(place: Path) -> int:
    return sum(1 for _ in place.iterdir())
