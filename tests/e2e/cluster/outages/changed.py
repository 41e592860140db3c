"""Processes of the product with other surroundings: a wrong clock, short lives, a network."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import Server
from tests.torture.links import Links

_MODULE: Final = ("-m", "webhook")
_SHIFTED: Final = "tests.e2e.cluster.outages.shifted_clock"
_SHORT_LIVES: Final = "tests.e2e.cluster.outages.short_lives"
_SHORT_LEASES: Final = "tests.e2e.cluster.outages.short_leases"


def with_clock(server: Server, seconds: int) -> Server:
    """Return a server that is not started yet with a clock that is so much fast."""
    return _by(_SHIFTED, server, seconds)


def with_lives(server: Server, *, leaf: int, ca: int, publish: int) -> Server:
    """Return a controller that is not started yet and makes certificates that live for seconds."""
    return _by(_SHORT_LIVES, server, leaf, ca, publish)


def with_leases(server: Server, *, believed: int) -> Server:
    """Return a controller that is not started yet and believes a lease for so many seconds."""
    return _by(_SHORT_LEASES, server, believed)


def _by(program: str, server: Server, *given: int) -> Server:
    python, *module = server.command[:3]
    assert (python, tuple(module)) == (sys.executable, _MODULE)
    return replace(server, command=[python, "-m", program, *map(str, given), *server.command[3:]])


def behind_link(server: Server, links: Links, plane: ControlPlane) -> Server:
    """Return a server that is not started yet, and reaches the API server by a link of its name."""
    port = links.open(server.name, [("127.0.0.1", plane.ports.apiserver)])
    at = server.command.index("--kubeconfig") + 1
    given = Path(server.command[at])
    own = server.log.with_suffix(".kubeconfig")
    own.touch(mode=0o600)
    own.write_text(given.read_text().replace(plane.url, f"https://127.0.0.1:{port}"))
    return replace(server, command=[*server.command[:at], own, *server.command[at + 1 :]])
