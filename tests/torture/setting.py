"""Namespaces and quotas before the load, and the wait until the product knows them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import RestError
from tests.torture.facts import ledger_fact
from tests.torture.shapes import GOLD, Space, binding, quota, quota_specs
from tests.torture.world import LEDGERS

_PATIENCE_SECONDS: Final = 120.0


_OPTED_IN: Final = {"deferredquota.io/mode": "deferred", "deferredquota.io/pacing": "none"}
_PROBE: Final = "mask-probe"


def wait_until_enforced(plane: ControlPlane, *, is_guarded: bool) -> None:
    """Wait until the API server acts by what was registered: it takes a moment to hear of it."""
    path = f"/api/v1/namespaces/{_PROBE}"
    plane.rest.create("/api/v1/namespaces", {"metadata": {"name": _PROBE, "labels": _OPTED_IN}})
    plane.rest.create(f"{path}/resourcequotas", quota("probe", {"hard": {"cpu": "1"}}))
    _wait(lambda: _is_masked(plane, f"{path}/resourcequotas/probe/status"), "status is masked")
    if is_guarded:
        _wait(lambda: _is_guarded(plane, f"{path}/pods/nobody/binding"), "binds are guarded")
    plane.rest.delete(path)


def _is_masked(plane: ControlPlane, path: str) -> bool:
    status = {"status": {"hard": {"cpu": "1"}}}
    return "cpu" not in plane.rest.patch(f"{path}?dryRun=All", status)["status"].get("hard", {})


def _is_guarded(plane: ControlPlane, path: str) -> bool:
    try:
        plane.rest.create(f"{path}?dryRun=All", binding("nobody", "node", uid="of-nobody"))
    except RestError as err:
        return "bind.deferredquota.io" in err.message
    return False


def lay_out(plane: ControlPlane, spaces: Sequence[Space]) -> None:
    """Make the priority class, and the namespaces with their quotas."""
    gold = {"metadata": {"name": GOLD}, "value": 1000, "preemptionPolicy": "Never"}
    plane.rest.create("/apis/scheduling.k8s.io/v1/priorityclasses", gold)
    for space in spaces:
        made = {"metadata": {"name": space.name, "labels": _OPTED_IN}}
        plane.rest.create("/api/v1/namespaces", made)
        for name, spec in quota_specs(space).items():
            plane.rest.create(f"{space.path}/resourcequotas", quota(name, spec))


def wait_until_counted(plane: ControlPlane, spaces: Sequence[Space]) -> None:
    """Wait until pods can be made and every quota with deferred keys has an account."""
    for space in spaces:
        _wait(lambda one=space: _has_account(plane, one), f"{space.name} has a service account")  # type: ignore[misc]
        _wait(lambda one=space: _is_counted(plane, one), f"{space.name} is counted")  # type: ignore[misc]


def _has_account(plane: ControlPlane, space: Space) -> bool:
    plane.rest.get(f"{space.path}/serviceaccounts/default")
    return True


def _is_counted(plane: ControlPlane, space: Space) -> bool:
    ledger = plane.rest.get(f"{LEDGERS.format(space.name)}/ledger")
    deferred = {name for name in quota_specs(space) if name != "idle"}
    return set(ledger_fact(ledger, revision=0, at=0.0).accounts) == deferred


def _wait(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        with contextlib.suppress(RestError, OSError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError(f"after {_PATIENCE_SECONDS:.0f} s still not: {what}")
