"""Pods that are resized by an update, as up to Kubernetes 1.31 with a feature gate that is off."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.controlplane import features
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes

GATE: Final = "InPlacePodVerticalScaling"
TEAM: Final = "team"
PLAIN: Final = "plain"


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    """A namespace where the API server lets a pod be resized by an update."""
    usual = features.usual()
    if usual.gates.get(GATE, True):
        pytest.skip(f"Kubernetes {usual.version} resizes pods by a subresource only")
    directory = tmp_path_factory.mktemp("update")
    with ControlPlane.start(directory / "plane", feature_gates={GATE: True}) as plane:
        plane.add_nodes(1)
        with Product.start(plane, directory / "product"):
            apply_namespace(Api(plane.rest), PLAIN, mode="")
            apply_namespace(Api(plane.rest), TEAM)
            plain = Tenant(plane.rest, PLAIN)
            plain.pod("web", "1", nodeName=NODE)
            if not update(plain, "web", "2").ok:
                pytest.skip(f"Kubernetes {usual.version} resizes pods by a subresource only")
            yield Tenant(plane.rest, TEAM)


def update(tenant: Tenant, name: str, cpu: str) -> Answer:
    containers: list[dict[str, Any]] = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    path = objects.pods(tenant.namespace, name)
    return tenant.api.patch_strategic(path, {"spec": {"containers": containers}})


def test_growth_is_charged_or_refused_and_other_updates_pass(team: Tenant) -> None:
    team.quota()
    team.bound("web", "500m")
    refused = update(team, "web", "3")
    assert refused.code == 403, str(refused)
    assert refused.message == (
        'admission webhook "resize.deferredquota.io" denied the request: exceeded quota: p1,'
        " requested: requests.cpu=2500m, used: requests.cpu=500m, limited: requests.cpu=2"
    )
    assert update(team, "web", "2").ok
    assert team.charged() == "2"
    becomes(lambda: len(team.promised()), 0, "the growth is counted")
    assert team.used() == {"requests.cpu": "2"}
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert team.api.patch(objects.pods(team.namespace, "web"), labels).ok
