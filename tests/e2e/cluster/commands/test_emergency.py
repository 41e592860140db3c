"""The emergency on a real control plane: with the API server alone, and back with a recount."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.cluster.command_line import findings, printed
from tests.e2e.cluster.installed import (
    Cluster,
    a_tenant,
    is_hidden,
    status,
    with_policies,
)
from tests.e2e.cluster.outages.alerts import is_firing, scraped
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.shared.sharing import Team
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually


@pytest.fixture
def team(running: Product, cluster: Cluster) -> Iterator[Team]:
    """Two namespaces that share a quota, without gates."""
    cluster.install(url=running.url)
    with closing(Team(cluster.plane, 2)) as made:
        made.share("3")
        yield made


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    with a_tenant(cluster) as made:
        yield made


def emergencies(cluster: Cluster) -> list[str]:
    """Return what the doctor finds of the emergency."""
    found = [one["id"] for one in findings(cluster.plane)]
    return [one for one in found if one.startswith("emergency")]


def selectors(cluster: Cluster) -> list[Any]:
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    kinds = with_policies(cluster.plane, kinds)
    found = json.loads(cluster.plane.kubectl("get", kinds, "-o", "json"))["items"]
    return [
        [entry["namespaceSelector"] for entry in each["webhooks"]]
        if "webhooks" in each
        else each["spec"]["matchResources"]
        for each in found
        if each["kind"] != "MutatingAdmissionPolicy"
    ]


def test_binds_pass_with_the_api_server_alone_and_are_counted_before_they_are_guarded(
    running: Product, cluster: Cluster, team: Team, tenant: Tenant
) -> None:
    is_hidden(tenant, running)
    tenant.quota(hard={"requests.cpu": "2", "pods": "9"})
    tenant.bound("counted", "1")
    for name in ("slips", "waits"):
        tenant.pod(name, "1")
    before = selectors(cluster)
    for process in running.processes:
        process.kill()
    assert "failed calling webhook" in tenant.bind("slips").message
    told = printed(cluster.plane, "emergency", "open", "--yes")
    assert "over quota: p1: used: requests.cpu=3, limited: requests.cpu=2" in told
    assert tenant.bind("slips").code == 201
    assert tenant.bind("waits").code == 201
    first, second = team.tenants
    second.bound("slips", "3")
    hard = {"requests.cpu": "2", "pods": "9"}
    assert status(tenant, "p1") == {"hard": hard, "used": {"requests.cpu": "3", "pods": "3"}}
    assert "exceeded quota: p1" in tenant.create("more", "1").message
    assert emergencies(cluster) == ["emergency.open"]
    assert "the emergency is open since 20" in printed(cluster.plane, "emergency", "open", "--yes")
    refused = printed(cluster.plane, "emergency", "close", "--yes", "--wait", "5", code=1)
    assert "leader." in refused
    assert tenant.ledger()  # nothing was begun

    running.restore()
    becomes(lambda: running.controller.metric("leader"), 1.0, "the controller leads again")
    since = "emergency_since_seconds"
    eventually(lambda: running.controller.metric(since) > 0, "it shows that the emergency is open")
    assert is_firing("DeferredQuotaEmergencyOpen", {}, scraped(running.processes))
    tenant.delete("waits")
    closed = printed(cluster.plane, "emergency", "close", "--yes")
    assert f"{tenant.namespace}: counted, and in force" in closed
    assert f"ClusterDeferredQuota {team.name}: its namespaces are counted anew" in closed
    assert emergencies(cluster) == []
    team.is_counted(team.tenants)
    first.pod("late", "1")
    assert f"exceeded quota: {team.account}" in first.bind("late").message
    becomes(lambda: running.controller.metric(since), 0.0, "it shows that it is closed")
    assert json.dumps(selectors(cluster)) == json.dumps(before)
    becomes(lambda: tenant.used()["requests.cpu"], "2", "what is used")
    tenant.pod("late", "1")
    refused_bind = tenant.bind("late")
    assert (refused_bind.code, "exceeded quota: p1" in refused_bind.message) == (403, True)
    assert "requests.cpu" not in status(tenant, "p1")["hard"]
    tenant.finish("counted")
    becomes(lambda: tenant.bind("late").code, 201, "the answer once there is room")
