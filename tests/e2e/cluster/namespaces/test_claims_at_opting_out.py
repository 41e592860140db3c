"""Devices that a namespace has by ResourceClaims stay charged when it opts in and out.

A user with the role `edit` makes claims while nothing is deferred; the label of the namespace is
changed over and over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane.features import Gate
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import NODE, REAL, Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually

pytestmark = pytest.mark.needs(Gate("DRAExtendedResource"))

GROUP: Final = "/apis/resource.k8s.io/v1"
KEY: Final = "requests.example.com/gpu"
GPU: Final = {"example.com/gpu": "1"}


@pytest.fixture
def people(tmp_path: Path) -> Iterator[tuple[Tenant, Tenant]]:
    """An administrator, and a user with the role `edit` in a namespace that is not opted in."""
    with ControlPlane.start(tmp_path / "plane") as plane:
        plane.add_nodes(1)
        admin = Api(plane.rest)
        fast = {"metadata": {"name": "fast"}, "spec": {"extendedResourceName": "example.com/gpu"}}
        assert admin.create(f"{GROUP}/deviceclasses", fast).ok
        devices = {
            "driver": "gpu.example.com",
            "nodeName": NODE,
            "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"d{number}"} for number in range(8)],
        }
        made = {"metadata": {"name": "devices"}, "spec": devices}
        assert admin.create(f"{GROUP}/resourceslices", made).ok
        configuration = {"deferredResources": [KEY]}
        with Product.start(plane, tmp_path / "product", configuration=configuration):
            apply_namespace(admin, "team", mode="")
            owner = Tenant(plane.rest, "team")
            owner.quota(hard={KEY: "3", "pods": "9"}, is_deferred=False)
            yield owner, edited_by_alice(plane, owner)


def claim(tenant: Tenant, name: str, *, dry_run: bool = False) -> Answer:
    request: Any = {"name": "d", "exactly": {"deviceClassName": "fast"}}
    made = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    path = f"{GROUP}/namespaces/{tenant.namespace}/resourceclaims"
    return tenant.api.create(path, made, dry_run=dry_run)


def set_mode(owner: Tenant, mode: str | None) -> None:
    label = {"metadata": {"labels": {objects.MODE_LABEL: mode}}}
    assert owner.api.patch(f"/api/v1/namespaces/{owner.namespace}", label).ok


def is_enforced(owner: Tenant, editor: Tenant) -> None:
    """See that the API server charges what there is, and refuses one device more."""
    becomes(lambda: owner.native()[1].get(KEY, ""), "3", "what is used")
    eventually(lambda: not claim(editor, "more", dry_run=True).ok, "the API server knows")
    answer = claim(editor, "more")
    assert answer.code == 403, str(answer)
    assert f"exceeded quota: p1, requested: {KEY}=1, used: {KEY}=3" in answer.message


def test_no_turn_of_the_label_gives_devices_twice(people: tuple[Tenant, Tenant]) -> None:
    """One device is a pod's, for which a scheduler makes a claim: it is charged once."""
    owner, editor = people
    assert all(claim(editor, name).ok for name in ("first", "second"))
    becomes(lambda: owner.native()[1].get(KEY, ""), "2", "what is used")
    for turn in range(3):
        set_mode(owner, "deferred")
        becomes(lambda: set(owner.native()[0]), {"pods"}, "what is enforced at creation")
        if not turn:
            eventually(lambda: KEY in owner.used(), "the ledger counts")
            assert editor.create("runs", requests=GPU, limits=GPU, schedulerName=REAL).ok
            eventually(lambda: owner.node_of("runs"), "it gets a device")
        set_mode(owner, None)
        is_enforced(owner, editor)
    hard = {KEY: "4", "pods": "9"}
    owner.edit_quota("p1", {"hard": hard})  # the quota controller counts anew
    becomes(owner.native, (hard, {KEY: "3", "pods": "1"}), "what is used")
