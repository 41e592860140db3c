"""Pods wait behind gates while what lets them go is killed, and namespaces are moved under them."""

from __future__ import annotations

import contextlib
import random
from typing import Final

from tests.controlplane.rest import RestError
from tests.torture.load.shapes import Space
from tests.torture.world import BusyError, Incident, World, pick_moved

_MODE: Final = "deferredquota.io/mode"
_GATING: Final = "deferredquota.io/gating"


def kill_leader_amid_releases(world: World, rng: random.Random, incident: Incident) -> None:
    """Make room for many pods that wait, and kill the leader while it lets them go."""
    member = world.leader()
    space = rng.choice([space for space in world.spaces if space.is_paced] or [None])
    if space is None:
        raise BusyError("no namespace for it")
    incident.namespaces = (space.name,)
    with world.claim(member.name):
        pods = world.insist("get", f"{space.path}/pods")["items"]
        names = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
        gone = rng.sample(names, min(len(names), 12))
        incident.detail = f"{member.name}, {len(gone)} pods of {space.name} deleted"
        try:
            for name in gone:
                with contextlib.suppress(RestError, OSError):  # others delete pods too
                    world.rest.delete(f"{space.path}/pods/{name}", grace_seconds=0)
            world.wait(rng.uniform(0.0, 0.4))
            member.process.kill()
        finally:
            world.wait(rng.uniform(0, 4))
            if not member.process.is_running:
                member.process.start()


def switch_gating(world: World, rng: random.Random, incident: Incident) -> None:
    """Let a namespace's pods go without gates for a while, or none of them, several times."""
    space = pick_moved(world, rng)
    others = [gating for gating in ("never", "always", "auto") if gating != space.gating]
    _move(world, rng, incident, space, _GATING, away=rng.choice(others), home=space.gating)


def opt_out_and_in(world: World, rng: random.Random, incident: Incident) -> None:
    """Take a namespace's mode away under load, and give it back."""
    _move(world, rng, incident, pick_moved(world, rng), _MODE, away=None, home="deferred")


def _move(
    world: World,
    rng: random.Random,
    incident: Incident,
    space: Space,
    label: str,
    *,
    away: str | None,
    home: str,
) -> None:
    incident.namespaces, times = (space.name,), rng.randrange(1, 4)
    incident.detail = f"{space.name}, {times} times {away or 'without a mode'}"
    with world.claim(f"labels of {space.name}"):
        for _ in range(times):
            try:
                world.insist("patch", space.path, {"metadata": {"labels": {label: away}}})
                world.wait(rng.choice((0.0, 0.3, rng.uniform(0.5, 4))))
            finally:
                world.insist("patch", space.path, {"metadata": {"labels": {label: home}}})
            world.wait(rng.uniform(0.1, 3))
