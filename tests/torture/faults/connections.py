"""Connections are cut, slowed down, and lose what is said on them."""

from __future__ import annotations

import random

from tests.torture.faults.processes import any_member
from tests.torture.stack import WEBHOOKS
from tests.torture.world import BusyError, Incident, World


def _link(world: World, rng: random.Random, incident: Incident) -> str:
    name = rng.choice([*(member.name for member in world.stack.members), WEBHOOKS])
    incident.detail = name
    return name


def cut_watches(world: World, rng: random.Random, incident: Incident) -> None:
    """Close the connections that have lasted a while: watches, and idle ones."""
    member = any_member(world.stack.members, rng, incident)
    everyone = rng.random() < 0.3
    names = [each.name for each in world.stack.members] if everyone else [member.name]
    cut = sum(world.links.cut(name, older=2.0) for name in names)
    incident.detail = f"{'everyone' if everyone else member.name}: {cut} connections"


def freeze_watches(world: World, rng: random.Random, incident: Incident) -> None:
    """Let watches fall behind while new connections work: what a process knows is old."""
    member = any_member(world.stack.members, rng, incident)
    if rng.random() < 0.5:
        member = world.leader()
    seconds = rng.uniform(3, 25)
    with world.claim(f"link {member.name}"):
        frozen = world.links.freeze(member.name, older=2.0)
        if not frozen:
            raise BusyError(f"{member.name} has no old connections")
        incident.detail = f"{member.name}: {frozen} connections, {seconds:.0f} s"
        try:
            world.wait(seconds)
        finally:
            world.links.thaw(member.name)


def cut_all(world: World, rng: random.Random, incident: Incident) -> None:
    """Close all connections of a link, several times."""
    name = _link(world, rng, incident)
    for _ in range(rng.randrange(1, 6)):
        world.links.cut(name)
        world.wait(0.4)


def drop_answers(world: World, rng: random.Random, incident: Incident) -> None:
    """Let requests through and lose their answers: writes take place that look as if not."""
    name = _link(world, rng, incident)
    with world.claim(f"link {name}"):
        doomed = 0
        for _ in range(rng.randrange(4, 16)):
            doomed += world.links.drop(name)
            world.wait(0.4)
        incident.detail = f"{name}: {doomed} connections"


def delay(world: World, rng: random.Random, incident: Incident) -> None:
    """Make every piece of data late, in both directions."""
    seconds = rng.choice((0.02, 0.1, 0.3, 1.0))
    _set(world, rng, incident, rng.uniform(4, 12), delay=seconds)


def hold(world: World, rng: random.Random, incident: Incident) -> None:
    """Let nothing through and close nothing, as a dead network does."""
    _set(world, rng, incident, rng.uniform(2, 14), hold=True)


def hold_leader(world: World, rng: random.Random, incident: Incident) -> None:
    """Take the leader's network away for longer than its lease lasts; it does not notice."""
    name = world.leader().name
    _set(world, rng, incident, rng.uniform(18, 26), name=name, hold=True)


def refuse(world: World, rng: random.Random, incident: Incident) -> None:
    """Refuse new connections, and close the old ones."""
    name = _link(world, rng, incident)
    with world.claim(f"link {name}"):
        world.links.set(name, refuse=True)
        try:
            world.links.cut(name)
            world.wait(rng.uniform(2, 10))
        finally:
            world.links.set(name, refuse=False)


def _set(
    world: World,
    rng: random.Random,
    incident: Incident,
    seconds: float,
    *,
    name: str = "",
    **fault: float | bool,
) -> None:
    link = name or _link(world, rng, incident)
    incident.detail = f"{link}: {fault}, {seconds:.0f} s"
    with world.claim(f"link {link}"):
        world.links.set(link, **fault)
        try:
            world.wait(seconds)
        finally:
            world.links.set(link, **{what: type(value)(0) for what, value in fault.items()})
