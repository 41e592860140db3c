"""Ledgers, and the status of quotas, are tampered with by hand."""

from __future__ import annotations

import random
from typing import Any, Final

from tests.controlplane.rest import RestError
from tests.torture.faults.quotas import any_quota
from tests.torture.load import shapes
from tests.torture.world import LEASE, LEDGERS, BusyError, Incident, World, pick_space


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
    made = f"by-hand-{rng.randrange(10**9)} nobody Bind 1 all cpu=1,requests.cpu=1"
    present = [*str(status.get("reservations") or "").split("\n"), made]
    patch = [
        {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": ledger["metadata"]["resourceVersion"],
        },
        {"op": "add", "path": "/status/reservations", "value": "\n".join(present)},
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


def take_lease(world: World, rng: random.Random, incident: Incident) -> None:
    """Delete the controllers' lease by hand, or give it to somebody who is not there."""
    with world.claim("lease"):
        try:
            if rng.random() < 0.5:
                incident.detail = "deleted"
                world.insist("delete", LEASE)
            else:
                incident.detail = "given away"
                world.insist("patch", LEASE, {"spec": {"holderIdentity": "somebody else"}})
        except RestError as err:
            raise BusyError(f"there is no lease: {err}") from err


_POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"


def unmask(world: World, rng: random.Random, incident: Incident) -> None:
    """Take the mask away, write a quota's whole status by hand, and put the mask back."""
    space, name, path = any_quota(world, rng, incident)
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
