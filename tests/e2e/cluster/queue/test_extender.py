"""The scheduler of Kubernetes asks the product, configured as `manifests/scheduler` says.

It runs on a control plane of its own: the scheduler gets its configuration at its start, after the
product. Namespaces have no gates here, so that pods over quota do come to the scheduler.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually, stays
from webhook.controllers.requeue.controller import REQUEUED_ANNOTATION
from webhook.install import MANIFESTS

NODES = 3
CPUS = 4
"""Of each node."""
HIGH = "above-all"

_numbers = itertools.count()


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("extender-plane")
    with ControlPlane.start(directory, scheduler=False) as plane:
        plane.add_nodes(NODES, cpu=str(CPUS))
        high = {"metadata": {"name": HIGH}, "value": 1_000_000}
        assert Api(plane.rest).create("/apis/scheduling.k8s.io/v1/priorityclasses", high).ok
        yield plane


@pytest.fixture(scope="module")
def asked(own_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The product with its extender on, and a scheduler that asks it."""
    directory = tmp_path_factory.mktemp("extender-product")
    settings = {"extender": {"enabled": True}, "timeouts": {"expireReservationSeconds": 35}}
    with Product.start(own_plane, directory, webhooks=2, configuration=settings) as product:
        own_plane.start_scheduler(adapted(product, directory))
        yield product


def adapted(product: Product, directory: Path) -> Path:
    """Set in the configuration of `manifests/scheduler` what its comments say is to be set."""
    text = (MANIFESTS / "scheduler" / "configuration.yaml").read_text()
    configuration: dict[str, Any] = yaml.safe_load(text)
    (extender,) = configuration["extenders"]
    extender["urlPrefix"] = f"{product.url}/scheduler"
    extender["tlsConfig"] = {"caFile": str(product.certificates / "ca.crt")}
    path = directory / "scheduler.yaml"
    path.write_text(yaml.safe_dump(configuration))
    return path


@pytest.fixture
def team(own_plane: ControlPlane, asked: Product) -> Iterator[Tenant]:
    """A namespace that has opted in, without gates; its pods go when the test ends."""
    assert asked.webhooks
    tenant = Tenant(own_plane.rest, a_namespace(own_plane, mode="deferred"))
    yield tenant
    tenant.clear()


@pytest.fixture
def neighbour(own_plane: ControlPlane, asked: Product) -> Iterator[Tenant]:
    """A namespace that has not opted in."""
    assert asked.webhooks
    tenant = Tenant(own_plane.rest, a_namespace(own_plane, mode=""))
    yield tenant
    tenant.clear()


def a_namespace(plane: ControlPlane, *, mode: str) -> str:
    api, name = Api(plane.rest), f"extender-{next(_numbers)}"
    apply_namespace(api, name, mode=mode)
    labels = {"metadata": {"labels": {"deferredquota.io/gating": "never"}}}
    assert api.patch(f"/api/v1/namespaces/{name}", labels).ok
    return name


def scheduled(tenant: Tenant, name: str, cpu: str, **fields: Any) -> None:
    """Create a pod and wait until the scheduler has bound it and the ledger knows it."""
    tenant.pod(name, cpu, schedulerName=REAL, **fields)
    eventually(lambda: tenant.node_of(name), f"{name} has a node")
    tenant.settles()


def says(tenant: Tenant, name: str, status: str, reason: str, text: str) -> None:
    becomes(lambda: tenant.condition(name), (status, reason, text), f"what {name} says")


def over(tenant: Tenant, name: str, cpu: str, **fields: Any) -> None:
    """Create a pod that is over quota, and wait until the scheduler has been told."""
    tenant.pod(name, cpu, schedulerName=REAL, **fields)
    eventually(lambda: tenant.condition(name)[1] == "Unschedulable", f"{name} is unschedulable")


def woken(tenant: Tenant, *names: str) -> set[str]:
    """Say which of these pods the leader has touched."""
    return {
        name
        for name in names
        if REQUEUED_ANNOTATION in tenant.seen(name).body["metadata"].get("annotations", {})
    }


def test_a_pod_over_quota_says_so_in_the_words_of_a_scheduler(team: Tenant) -> None:
    team.quota(hard={"cpu": "2"})
    scheduled(team, "first", "2")
    team.pod("second", "1", schedulerName=REAL)
    says(
        team,
        "second",
        "False",
        "Unschedulable",
        "0/3 nodes are available: 3 quota exceeded: p1, requested: cpu=1, used: cpu=2, limited:"
        " cpu=2. no new claims to deallocate, preemption: 0/3 nodes are available:"
        " 3 Preemption is not helpful for scheduling.",
    )
    assert team.promised() == []


def test_a_pod_binds_after_quota_is_free(team: Tenant, asked: Product) -> None:
    team.quota()
    scheduled(team, "first", "2")
    over(team, "second", "2")
    binds = asked.metric("admission_requests_total", handler="bind", outcome="denied")
    team.finish("first")  # a scheduler that hears of it late enough needs no waking
    eventually(lambda: team.node_of("second"), "the second pod has a node")
    assert asked.metric("admission_requests_total", handler="bind", outcome="denied") == binds


def test_a_raised_quota_lets_a_pod_bind(team: Tenant) -> None:
    team.quota(hard={"requests.cpu": "1"})
    over(team, "large", "3")
    team.edit_quota("p1", {"hard": {"requests.cpu": "3"}})
    eventually(lambda: team.node_of("large"), "the pod has a node")  # no scheduler hears of quotas
    assert woken(team, "large")


def test_as_many_are_woken_as_fit_in_the_order_of_the_line(team: Tenant) -> None:
    team.quota(hard={"requests.cpu": "1"})
    scheduled(team, "first", "1")
    names = ["a", "b", "c", "d"]
    for name in names:
        over(team, name, "1")
    over(team, "high", "1", priorityClassName=HIGH)
    assert woken(team, *names, "high") == set()
    team.edit_quota("p1", {"hard": {"requests.cpu": "3"}})
    becomes(lambda: woken(team, *names, "high"), {"high", "a"}, "who is woken")
    everybody = (*names, "high")
    becomes(lambda: sum(team.node_of(name) != "" for name in everybody), 2, "who has a node")
    team.settles()
    assert team.node_of("high")
    assert woken(team, *names, "high") == {"high", "a"}


def test_a_pod_over_quota_is_woken_when_its_namespace_opts_out(
    team: Tenant, own_plane: ControlPlane
) -> None:
    team.quota(hard={"requests.cpu": "1"})
    over(team, "large", "2")
    team.pod("elsewhere", "1", schedulerName=REAL, nodeSelector={"kubernetes.io/os": "none"})
    eventually(lambda: "affinity" in team.condition("elsewhere")[2], "no node has its label")
    until = time.monotonic() + 2  # the leader has seen that it waits
    stays(lambda: woken(team, "large"), set[str](), "it waits", lambda: time.monotonic() > until)
    labels = {"metadata": {"labels": {"deferredquota.io/mode": None}}}
    assert Api(own_plane.rest).patch(f"/api/v1/namespaces/{team.namespace}", labels).ok
    eventually(lambda: team.node_of("large"), "the pod has a node")
    assert woken(team, "large", "elsewhere") == {"large"}


def test_a_pod_that_waits_for_a_node_is_not_woken(team: Tenant, neighbour: Tenant) -> None:
    team.quota(hard={"requests.cpu": "1"})
    fill(neighbour, own=0)
    team.pod("web", "1", schedulerName=REAL)
    eventually(lambda: "Insufficient cpu" in team.condition("web")[2], "no node has room for it")
    team.edit_quota("p1", {"hard": {"requests.cpu": "2"}})
    eventually(
        lambda: team.accounts()["p1"]["hard"] == {"requests.cpu": "2"}, "the ledger knows it"
    )
    over(team, "large", "2", nodeSelector={"kubernetes.io/os": "none"})
    assert woken(team, "web", "large") == set()


def test_a_pod_of_high_priority_over_quota_evicts_no_pod(
    team: Tenant, neighbour: Tenant, asked: Product
) -> None:
    team.quota()
    scheduled(team, "own", "2")
    names = fill(neighbour, own=2)
    denied = asked.metric("admission_requests_total", handler="preempt", outcome="denied")
    team.pod("high", "2", schedulerName=REAL, priorityClassName=HIGH)
    eventually(
        lambda: (
            asked.metric("admission_requests_total", handler="preempt", outcome="denied") > denied
        ),
        "the scheduler has asked whom it may evict",
    )
    eventually(lambda: team.condition("high")[1] == "Unschedulable", "the pod says that it waits")
    assert "nominatedNodeName" not in team.seen("high").body["status"]
    evicted = {name for name in names if not lives(neighbour, name)}
    assert (evicted, lives(team, "own")) == (set(), True)


def test_a_pod_of_high_priority_within_quota_evicts_as_ever(
    team: Tenant, neighbour: Tenant
) -> None:
    team.quota()
    names = fill(neighbour, own=0)
    team.pod("high", "2", schedulerName=REAL, priorityClassName=HIGH)
    eventually(lambda: team.node_of("high"), "the pod has a node")
    assert any(not lives(neighbour, name) for name in names)


def test_no_more_is_evicted_for_pods_at_once_than_the_quota_has_room_for(
    team: Tenant, neighbour: Tenant
) -> None:
    """The first waits for its victim, and what it will take is not free for the others."""
    team.quota()
    names = fill(neighbour, own=0, grace_seconds=30)
    for number in range(4):
        team.pod(f"high-{number}", "2", schedulerName=REAL, priorityClassName=HIGH)
    until = time.monotonic() + 10

    def evicted() -> int:
        return sum(not lives(neighbour, name) for name in names)

    eventually(lambda: evicted() == 1, "the victim of the first pod")
    stays(evicted, 1, "no other is evicted", lambda: time.monotonic() > until)
    assert len(team.promised()) == 1


def test_namespaces_that_have_not_opted_in_are_scheduled_as_ever(neighbour: Tenant) -> None:
    neighbour.quota(hard={"requests.cpu": "2"}, is_deferred=False)
    scheduled_at_once = [f"pod-{number}" for number in range(2)]
    for name in scheduled_at_once:
        neighbour.pod(name, "1", schedulerName=REAL)
    for name in scheduled_at_once:
        eventually(lambda name=name: neighbour.node_of(name), f"{name} has a node")  # type: ignore[misc]


def test_without_webhooks_other_pods_are_scheduled_and_none_goes_beyond_quota(
    team: Tenant, neighbour: Tenant, asked: Product
) -> None:
    team.quota()
    scheduled(team, "first", "2")
    for webhook in asked.webhooks:
        webhook.kill()
    try:
        team.pod("second", "1", schedulerName=REAL)
        neighbour.pod("other", "1", schedulerName=REAL)
        stays(
            lambda: team.node_of("second"),
            "",
            "the node of the pod over quota",
            until=lambda: neighbour.node_of("other"),
        )
    finally:
        asked.restore()


def fill(tenant: Tenant, *, own: int, grace_seconds: int = 0) -> list[str]:
    """Take all the room of all nodes, but for `own` cpu that are taken already.

    These pods end as soon as they are evicted, as there is no kubelet that would end them; with
    a grace period they do not end.
    """
    names = [f"filler-{number}" for number in range((NODES * CPUS - own) // 2)]
    for name in names:
        tenant.pod(name, "2", schedulerName=REAL, terminationGracePeriodSeconds=grace_seconds)
    for name in names:
        eventually(lambda name=name: tenant.node_of(name), f"{name} has a node")  # type: ignore[misc]
    return names


def lives(tenant: Tenant, name: str) -> bool:
    """Say whether a pod is there and not being deleted."""
    seen = tenant.seen(name)
    return seen.ok and "deletionTimestamp" not in seen.body["metadata"]
