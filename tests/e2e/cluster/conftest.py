"""A real control plane and the product on it, for all tests below this directory.

`scripts/e2e` runs them. Without the variable that it sets they are not collected, because they take
minutes and a control plane that is built first.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane import features
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import Process
from tests.e2e.cluster.installed import Cluster, a_cluster, a_product
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.order import place
from tests.e2e.cluster.product import Product, a_team, apply_namespace
from tests.e2e.cluster.tenant import Tenant

RUN: Final = "DEFERRED_QUOTA_E2E"
NODES: Final = 3
_HERE: Final = Path(__file__).parent

collect_ignore_glob = [] if os.environ.get(RUN) else ["*"]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with nodes `node-0` and on, shared by all tests."""
    with ControlPlane.start(tmp_path_factory.mktemp("plane")) as running:
        running.add_nodes(NODES)
        yield running


@pytest.fixture(scope="session")
def _product(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    with Product.start(
        plane,
        tmp_path_factory.mktemp("product"),
        webhooks=2,
        configuration={"timeouts": {"expireReservationSeconds": 35}},
    ) as running:
        yield running


@pytest.fixture
def product(plane: ControlPlane, _product: Product) -> Iterator[Product]:
    """Two webhooks behind one address and a controller, shared by all tests.

    What a test kills, pauses or takes out runs again when it ends.
    """
    yield _product
    for process in plane.processes:
        process.resume()
        if not process.is_running:
            process.start()
    _product.restore()


@pytest.fixture
def namespace(plane: ControlPlane, product: Product) -> Iterator[str]:  # noqa: ARG001 - has to run
    """The name of a new namespace that has opted in; it is deleted at the end."""
    with a_team(plane, f"e2e-{next(_numbers)}") as team:
        yield team.namespace


@pytest.fixture
def tenant(plane: ControlPlane, namespace: str) -> Tenant:
    """That namespace, and what its people do in it."""
    return Tenant(plane.rest, namespace)


@pytest.fixture
def plain(plane: ControlPlane, product: Product) -> Tenant:
    """A new namespace that has not opted in, while product is there."""
    assert product.webhooks
    name = f"e2e-plain-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{next(_numbers)}"
    apply_namespace(Api(plane.rest), name, mode="")
    return Tenant(plane.rest, name)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of a module's own, into which an administrator installs."""
    with a_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def clean(cluster: Cluster) -> Cluster:
    """That cluster with nothing of ours in it."""
    return cluster.emptied()


@pytest.fixture
def running(cluster: Cluster, tmp_path: Path) -> Iterator[Product]:
    """A webhook and a controller with the rights of an installation that does not ask them yet."""
    with a_product(cluster, tmp_path) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files into the order in which they are run best."""
    items.sort(key=lambda item: place(item.path) if item.path.is_relative_to(_HERE) else -1)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark of tests that not every version of Kubernetes can run."""
    text = "needs(*features): skipped where the API server does not have one of them"
    config.addinivalue_line("markers", text)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test out before anything is started for it, if the API server cannot run it."""
    wanted = [feature for mark in item.iter_markers("needs") for feature in mark.args]
    for feature in wanted:
        if sentence := features.usual().missing(feature):
            pytest.skip(sentence)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure how the logs of all processes end."""
    report = yield
    if report.failed and call.when == "call":
        values: dict[str, Any] = getattr(item, "funcargs", {})
        for name in ("plane", "product"):
            for process in _processes(values.get(name)):
                report.sections.append((f"log of {process.name}", process.tail()))
    return report


def _processes(part: ControlPlane | Product | None) -> list[Process]:
    return [] if part is None else list(part.processes)
