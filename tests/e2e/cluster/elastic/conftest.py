"""A control plane of a module's own, on which what is borrowed is reclaimed at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.elastic.teams import Teams, a_pool, edited_by_mallory
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant

SETTINGS: Final = {
    "elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0, "maxEvictionsPerMinute": 1000}},
    "timeouts": {"gateReleaseSeconds": 5, "expireReservationSeconds": 35},
}


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("reclaim-plane")) as plane:
        plane.add_nodes(2, cpu="50")
        yield plane


@pytest.fixture(scope="module")
def acting(own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    directory = tmp_path_factory.mktemp("reclaim-product")
    with Product.start(
        own_plane, directory, webhooks=2, controllers=2, configuration=SETTINGS
    ) as product:
        yield product


@pytest.fixture
def teams(own_plane: ControlPlane, acting: Product) -> Iterator[Teams]:
    with a_pool(own_plane) as made:
        yield made
    acting.restore()


@pytest.fixture
def editor(own_plane: ControlPlane, teams: Teams) -> Tenant:
    """Team b's namespace, as a user with the role `edit` in it."""
    return edited_by_mallory(own_plane, teams, own_plane.rest_as("mallory"))
