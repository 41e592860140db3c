"""Namespaces and quotas before the load, and the wait until the product knows them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import RestError
from tests.torture.load.shapes import (
    GOLD,
    TEAM,
    Space,
    binding,
    cluster_quota,
    elastic_quota,
    elastic_quotas,
    quota,
    quota_specs,
)
from tests.torture.observer.facts import CLUSTER_PREFIX, ledger_fact
from tests.torture.world import LEDGERS

_PATIENCE_SECONDS: Final = 120.0


_OPTED_IN: Final = {"deferredquota.io/mode": "deferred", "deferredquota.io/gating": "never"}
_GATING: Final = "deferredquota.io/gating"
CLUSTER_QUOTAS: Final = "/apis/deferredquota.io/v1alpha1/clusterdeferredquotas"
ELASTIC_QUOTAS: Final = "/apis/nos.nebuly.com/v1alpha1/elasticquotas"
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
    """Make the priority class, the namespaces with their quotas, and what they share.

    Cluster quotas and elastic quotas are made where the API server has the kinds.
    """
    gold = {"metadata": {"name": GOLD}, "value": 1000, "preemptionPolicy": "Never"}
    plane.rest.create("/apis/scheduling.k8s.io/v1/priorityclasses", gold)
    for space in spaces:
        labels = {
            **_OPTED_IN,
            _GATING: space.gating,
            **(TEAM if space.shares_cluster_quota else {}),
        }
        made = {"metadata": {"name": space.name, "labels": labels}}
        plane.rest.create("/api/v1/namespaces", made)
        for name, spec in quota_specs(space).items():
            plane.rest.create(f"{space.path}/resourcequotas", quota(name, spec))
    if is_served(plane, CLUSTER_QUOTAS):
        plane.rest.create(CLUSTER_QUOTAS, cluster_quota())
    if is_served(plane, ELASTIC_QUOTAS):
        for space in spaces:
            if space.shares_cluster_quota:
                plane.rest.create(elastic_quotas(space), elastic_quota())


def is_served(plane: ControlPlane, path: str) -> bool:
    """Return whether the API server has a kind."""
    try:
        plane.rest.get(path)
    except RestError as err:
        if err.status == 404:
            return False
        raise
    return True


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
    accounts = ledger_fact(ledger, revision=0, at=0.0).accounts
    return {name for name in accounts if not name.startswith(CLUSTER_PREFIX)} == deferred


def _wait(condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < give_up:
        with contextlib.suppress(RestError, OSError):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError(f"after {_PATIENCE_SECONDS:.0f} s still not: {what}")
