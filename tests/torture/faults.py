"""What is broken on purpose: processes, connections, and objects under the product's hands.

Every fault breaks one thing, waits, mends it and says what it was. Which one, and for how long,
comes from a seeded chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.controlplane.process import Process
from tests.controlplane.rest import RestError
from tests.torture import shapes
from tests.torture.shapes import Space
from tests.torture.stack import DOORS, Member
from tests.torture.world import LEDGERS, BusyError, Incident, World, pick_space

Act: TypeAlias = Callable[[World, random.Random, Incident], None]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault.

    Attributes:
        weight: How often, against the others.
        act: Does it, from beginning to end.
        seconds: How long it lasts at most, mending included.
    """

    name: str
    weight: float
    act: Act
    seconds: float = 15.0


# -- processes ---------------------------------------------------------------------------------


def _kill(process: Process, world: World, seconds: float, *, asks: bool = False) -> None:
    if asks:
        process.terminate()
    else:
        process.kill()
    world.wait(seconds)
    process.start()


def _member(members: Sequence[Member], rng: random.Random, incident: Incident) -> Member:
    member = rng.choice(members)
    incident.detail = member.name
    return member


def kill_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill a webhook and start it again."""
    member = _member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _kill(member.process, world, rng.uniform(0, 3))


def end_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Ask a webhook to end, as a rollout does."""
    member = _member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _kill(member.process, world, 0.0, asks=True)


def kill_controller(world: World, rng: random.Random, incident: Incident) -> None:
    """Kill a controller, the leader most of the time."""
    member = _member(world.stack.controllers, rng, incident)
    if rng.random() < 0.6:
        member = world.leader()
        incident.detail = f"{member.name}, the leader"
    with world.claim(member.name):
        _kill(member.process, world, rng.uniform(0, 6))


def pause_webhook(world: World, rng: random.Random, incident: Incident) -> None:
    """Stop a webhook where it is: its connections stay open and nothing answers."""
    member = _member(world.stack.webhooks, rng, incident)
    with world.claim(member.name):
        _pause(member, world, rng.uniform(1, 9))


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


# -- connections -------------------------------------------------------------------------------


def _link(world: World, rng: random.Random, incident: Incident) -> str:
    name = rng.choice([*(member.name for member in world.stack.members), DOORS])
    incident.detail = name
    return name


def cut_watches(world: World, rng: random.Random, incident: Incident) -> None:
    """Close the connections that have lasted a while: watches, and idle ones."""
    member = _member(world.stack.members, rng, incident)
    everyone = rng.random() < 0.3
    names = [each.name for each in world.stack.members] if everyone else [member.name]
    cut = sum(world.links.cut(name, older=2.0) for name in names)
    incident.detail = f"{'everyone' if everyone else member.name}: {cut} connections"


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


# -- quotas ------------------------------------------------------------------------------------


def _quota(
    world: World, rng: random.Random, incident: Incident, names: Sequence[str] = ()
) -> tuple[Space, str, str]:
    space = pick_space(world, rng)
    name = rng.choice(names or ("all", "busy", "gold", "long", "other", "short"))
    incident.namespaces, incident.detail = (space.name,), f"{space.name}/{name}"
    return space, name, f"{space.path}/resourcequotas/{name}"


def edit_hard(world: World, rng: random.Random, incident: Incident) -> None:
    """Raise a quota's limits, or lower them, also below what is used; then restore them."""
    space, name, path = _quota(world, rng, incident)
    factor = rng.choice((0.2, 0.5, 0.8, 1.3, 2.0))
    incident.detail += f" times {factor}"
    spec = shapes.quota_specs(space)[name]
    with world.claim(path):
        for _ in range(rng.randrange(1, 4)):
            world.insist("patch", path, {"spec": {"hard": _scaled(spec["hard"], factor)}})
            world.wait(rng.uniform(0.05, 4))
            world.insist("patch", path, {"spec": {"hard": spec["hard"]}})
            world.wait(rng.uniform(0.05, 2))


def _scaled(hard: dict[str, str], factor: float) -> dict[str, str]:
    from tests.torture.amounts import NANO, billionths  # noqa: PLC0415

    return {
        key: text if key == "pods" else f"{int(billionths(text) * factor) // (NANO // 1000)}m"
        for key, text in hard.items()
    }


def edit_selector(world: World, rng: random.Random, incident: Incident) -> None:
    """Let a quota select other pods, and then the former ones again."""
    space, name, path = _quota(world, rng, incident, ("gold", "other"))
    spec = shapes.quota_specs(space)[name]
    changed = rng.choice([each for each in shapes.SCOPED_ANEW if "scopeSelector" in each])
    with world.claim(path):
        world.insist("patch", path, {"spec": changed})
        world.wait(rng.uniform(0.05, 5))
        world.insist("patch", path, {"spec": {"scopeSelector": spec["scopeSelector"]}})


def remake_quota(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete a quota and make it anew with other scopes; then with its own."""
    space, name, path = _quota(world, rng, incident, ("gold", "long", "short"))
    spec = shapes.quota_specs(space)[name]
    other = {"hard": spec["hard"], **rng.choice(shapes.SCOPED_ANEW)}
    with world.claim(path):
        for each in (other, spec):
            _remake(world, space, name, each, rng.choice((0.0, 0.0, 0.5, 3.0)))
            world.wait(rng.uniform(0.1, 4))


def take_quota_away(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete a quota and make it anew as it was."""
    space, name, path = _quota(world, rng, incident)
    with world.claim(path):
        _remake(world, space, name, shapes.quota_specs(space)[name], rng.choice((0.0, 1.0, 6.0)))


def _remake(world: World, space: Space, name: str, spec: dict[str, Any], pause: float) -> None:
    collection = f"{space.path}/resourcequotas"
    try:
        world.insist("delete", f"{collection}/{name}")
    except RestError as err:
        if err.status != 404:
            raise
    world.wait(pause)
    try:
        world.insist("create", collection, shapes.quota(name, spec))
    except RestError as err:
        if err.status != 409:
            raise


# -- ledgers and the mask ----------------------------------------------------------------------


def _ledger(world: World, rng: random.Random, incident: Incident) -> tuple[str, dict[str, Any]]:
    space = pick_space(world, rng, wild=True)
    incident.namespaces, incident.detail = (space.name,), space.name
    path = f"{LEDGERS.format(space.name)}/ledger"
    try:
        return path, world.insist("get", path)
    except RestError as err:
        raise BusyError(f"{space.name} has no ledger") from err


def delete_ledger(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete a ledger by hand, with everything that is reserved in it."""
    path, _ = _ledger(world, rng, incident)
    with world.claim(path):
        world.insist("delete", path)


def empty_ledger(world: World, rng: random.Random, incident: Incident) -> None:
    """Take all of a ledger's status away by hand."""
    path, _ = _ledger(world, rng, incident)
    with world.claim(path):
        world.insist("patch", f"{path}/status", [{"op": "remove", "path": "/status"}], "json")


def inflate_ledger(world: World, rng: random.Random, incident: Incident) -> None:
    """Write by hand that more is used than is."""
    path, ledger = _ledger(world, rng, incident)
    accounts = ledger.get("status", {}).get("quotas") or []
    if not accounts:
        raise BusyError("the ledger counts nothing")
    number = rng.randrange(len(accounts))
    used = dict.fromkeys(accounts[number].get("used") or {"cpu": ""}, "900G")
    patch = [{"op": "add", "path": f"/status/quotas/{number}/used", "value": used}]
    incident.detail += f" {accounts[number]['name']}"
    with world.claim(path):
        world.insist("patch", f"{path}/status", patch, "json")


def promise_by_hand(world: World, rng: random.Random, incident: Incident) -> None:
    """Write a reservation by hand for a pod that is not there."""
    path, ledger = _ledger(world, rng, incident)
    status = ledger.get("status", {})
    if not status.get("quotas"):
        raise BusyError("the ledger counts nothing")
    made = {
        "uid": f"by-hand-{rng.randrange(10**9)}",
        "pod": "nobody",
        "door": "Bind",
        "usage": {"cpu": "1", "requests.cpu": "1"},
        "quotas": ["all"],
        "serial": 1,
    }
    present = [*(status.get("reservations") or []), made]
    patch = [
        {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": ledger["metadata"]["resourceVersion"],
        },
        {"op": "add", "path": "/status/reservations", "value": present},
    ]
    with world.claim(path):
        _once(world, f"{path}/status", patch)


def garble_ledger(world: World, rng: random.Random, incident: Incident) -> None:
    """Write an amount into a ledger by hand that nobody can read."""
    path, ledger = _ledger(world, rng, incident)
    if not ledger.get("status", {}).get("quotas"):
        raise BusyError("the ledger counts nothing")
    patch = [{"op": "add", "path": "/status/quotas/0/used", "value": {"cpu": "many"}}]
    with world.claim(path):
        world.insist("patch", f"{path}/status", patch, "json")


def _once(world: World, path: str, patch: list[dict[str, Any]]) -> None:
    try:
        world.insist("patch", path, patch, "json")
    except RestError as err:
        raise BusyError(f"the ledger has changed: {err}") from err


_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"


def unmask(world: World, rng: random.Random, incident: Incident) -> None:
    """Take the mask away, write a quota's whole status by hand, and put the mask back."""
    space, name, path = _quota(world, rng, incident)
    with world.claim("mask"):
        mask = _without_version(world.insist("get", f"{_POLICIES}/deferred-quota-mask"))
        world.insist("delete", f"{_POLICIES}/deferred-quota-mask")
        try:
            world.wait(rng.uniform(0.5, 2.5))
            hard = shapes.quota_specs(space)[name]["hard"]
            used = dict.fromkeys(hard, "0")
            world.insist("patch", f"{path}/status", {"status": {"hard": hard, "used": used}})
            world.wait(rng.uniform(0.5, 2.5))
        finally:
            world.insist("create", _POLICIES, mask)


def _without_version(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: obj["metadata"][key] for key in ("name", "labels") if key in obj["metadata"]}
    return {**{key: obj[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata}


CATALOGUE: Final[tuple[Kind, ...]] = (
    Kind("webhook killed", 5, kill_webhook),
    Kind("webhook asked to end", 2, end_webhook, 35),
    Kind("webhook paused", 4, pause_webhook),
    Kind("controller killed", 6, kill_controller),
    Kind("leader paused past its lease", 4, pause_leader, 28),
    Kind("leader without network past its lease", 3, hold_leader, 28),
    Kind("API server restarted", 4, kill_apiserver, 30),
    Kind("etcd restarted", 2, kill_etcd, 30),
    Kind("scheduler killed", 2, kill_scheduler, 20),
    Kind("controller manager killed", 1, kill_controller_manager, 20),
    Kind("watches cut", 6, cut_watches, 1),
    Kind("connections cut", 4, cut_all, 3),
    Kind("answers dropped", 8, drop_answers, 8),
    Kind("data delayed", 5, delay, 13),
    Kind("network dead", 5, hold),
    Kind("connections refused", 4, refuse, 11),
    Kind("quota raised or lowered", 9, edit_hard, 20),
    Kind("quota selector edited", 4, edit_selector, 6),
    Kind("quota made anew with other scopes", 5, remake_quota, 15),
    Kind("quota taken away", 3, take_quota_away, 7),
    Kind("ledger deleted by hand", 1.5, delete_ledger, 46),
    Kind("ledger emptied by hand", 1, empty_ledger, 46),
    Kind("ledger inflated by hand", 2, inflate_ledger, 11),
    Kind("promise written by hand", 2, promise_by_hand, 46),
    Kind("ledger garbled by hand", 1, garble_ledger, 46),
    Kind("mask taken away and status written full", 3, unmask, 6),
)
