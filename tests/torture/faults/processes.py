"""Processes are killed, asked to end, and paused."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.controlplane.process import Process
from tests.torture.stack import Member
from tests.torture.world import Incident, World


def _kill(process: Process, world: World, seconds: float, *, asks: bool = False) -> None:
    try:
        if asks:
            process.terminate()
        else:
            process.kill()
    finally:
        world.wait(seconds)
        process.start()


def any_member(members: Sequence[Member], rng: random.Random, incident: Incident) -> Member:
    """Choose a process of the product, and say which."""
    member = rng.choice(members)
    incident.detail = member.name
    return member


def kill_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill a webhook and start it again."""
    member = any_member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _kill(member.process, world, rng.uniform(0, 3))


def end_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Ask a webhook to end, as a rollout does."""
    member = any_member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _kill(member.process, world, 0.0, asks=True)


def kill_controller(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill a controller, the leader most of the time."""
    member = any_member(world.stack.controllers, rng, incident)
    if rng.random() < 0.6:
        member = world.leader()
        incident.detail = f"{member.name}, the leader"
    with world.claim(member.name):
        _kill(member.process, world, rng.uniform(0, 6))


def pause_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop a webhook where it is: its connections stay open and nothing answers."""
    member = any_member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _pause(member, world, rng.uniform(1, 9))


def pause_one_and_kill_the_others(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop a webhook for four seconds, and kill all others and the leader meanwhile."""
    paused, *others = rng.sample(world.stack.webhooks, len(world.stack.webhooks))
    killed = [*others, world.leader()]
    incident.detail = f"{paused.name} paused, {', '.join(each.name for each in killed)} killed"
    with world.claim(paused.name, *(each.name for each in killed)):
        paused.process.pause()
        try:
            for member in killed:
                world.wait(rng.uniform(0, 0.5))
                member.process.kill()
            world.wait(4.0)
        finally:
            paused.process.resume()
            dead = [member for member in killed if not member.process.is_running]
            for member in dead:
                member.process.start(waits=False)
        for member in dead:
            member.process.wait_until_ready()


def pause_leader(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop the leader for longer than its lease lasts; then it goes on where it was."""
    member = world.leader()
    incident.detail = member.name
    with world.claim(member.name):
        _pause(member, world, rng.uniform(18, 26))


def _pause(member: Member, world: World, seconds: float) -> None:
    member.process.pause()
    try:
        world.wait(seconds)
    finally:
        member.process.resume()


def kill_apiserver(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill the API server, or ask it to end, and start it again."""
    asks = rng.random() < 0.4
    incident.detail = "asked to end" if asks else "killed"
    with world.claim("apiserver"):
        _kill(world.plane.apiserver, world, rng.uniform(0, 2), asks=asks)


def kill_etcd(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill etcd and start it again."""
    incident.detail = "killed"
    with world.claim("apiserver"):
        _kill(world.plane.etcd, world, rng.uniform(0, 1))


def pause_apiserver(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop the API server where it is, sometimes for longer than a request may last."""
    with world.claim("apiserver"):
        _pause_part(world, world.plane.apiserver, rng, incident)


def pause_etcd(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop etcd where it is: what was sent to it before may be stored long after."""
    with world.claim("apiserver"):
        _pause_part(world, world.plane.etcd, rng, incident)


def _pause_part(world: World, process: Process, rng: random.Random, incident: Incident) -> None:
    seconds = rng.choice((rng.uniform(1, 8), rng.uniform(1, 8), rng.uniform(34, 50)))
    incident.detail = f"{seconds:.0f} s"
    process.pause()
    try:
        world.wait(seconds)
    finally:
        process.resume()


def kill_scheduler(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill the scheduler and start it again."""
    incident.detail = "killed"
    with world.claim("scheduler"):
        _kill(world.plane.scheduler, world, rng.uniform(0, 2))


def kill_controller_manager(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill the controller manager, which writes the quotas' status, and start it again."""
    incident.detail = "killed"
    with world.claim("controller-manager"):
        _kill(world.plane.controller_manager, world, rng.uniform(0, 2))
