"""Ports that stay ours while the program behind them is down.

Test runs side by side choose from ranges of their own: between the look at a port and the start of
its program another run could take it.
"""

from __future__ import annotations

import os
import random
import re
import socket
from pathlib import Path
from typing import Final

_LEAST: Final = 10_000
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS: Final = 200
_RUNS: Final = 8
"""Test runs side by side that have a range each."""
_given: set[int] = set()
"""Ports that this process chose before: their programs may not listen at this moment."""


def free_ports(count: int, *, chance: random.Random | None = None) -> list[int]:
    """Choose ports on 127.0.0.1 on which nothing listens.

    They lie below those that the kernel gives to outgoing connections and to port 0, so that
    nothing takes one between a kill and the next start. None is chosen twice by one process.
    """
    chance = chance or random.SystemRandom()
    candidates = of_run(range(_LEAST, first_ephemeral(_ephemeral_text())))
    found: list[int] = []
    for _ in range(_ATTEMPTS * count):
        port = chance.choice(candidates)
        if port not in _given and is_free(port):
            _given.add(port)
            found.append(port)
            if len(found) == count:
                return found
    raise OSError(f"no {count} free ports on 127.0.0.1 from {candidates[0]} to {candidates[-1]}")


def of_run(ports: range, worker: str | None = None) -> range:
    """Return the part of a range that is this run's: all where pytest runs no others beside it.

    Args:
        ports: All ports.
        worker: Name of the worker of pytest-xdist, such as `gw3`; else that of the environment.
    """
    name = os.environ.get("PYTEST_XDIST_WORKER", "") if worker is None else worker
    number = re.search(r"\d+$", name)
    return ports if number is None else ports[int(number[0]) % _RUNS :: _RUNS]


def first_ephemeral(text: str) -> int:
    """Read the first port of the kernel's range; without room below it, the usual one."""
    words = text.split()
    first = int(words[0]) if words else 0
    return first if first >= _LEAST + 1000 else 32_768


def is_free(port: int) -> bool:
    """Whether a program could listen on the port now."""
    with socket.socket() as probe:
        # as servers do: a port whose last connections are still winding down is free
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _ephemeral_text() -> str:
    try:
        return _EPHEMERAL.read_text()
    except OSError:
        return ""
