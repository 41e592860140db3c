"""The emergency on a real control plane: with the API server alone, and back with a recount."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.e2e.cluster.installed import (
    Cluster,
    a_cluster,
    a_product,
    a_tenant,
    is_hidden,
    status,
    with_policies,
)
from tests.e2e.cluster.outages.alerts import is_firing, scraped
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import cli


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("emergency")) as made:
        yield made


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    with a_tenant(cluster) as made:
        yield made


@pytest.fixture
def running(cluster: Cluster, tmp_path: Path) -> Iterator[Product]:
    with a_product(cluster, tmp_path) as made:
        yield made


def command(cluster: Cluster, *arguments: str, code: int = 0) -> str:
    """Run a command as an administrator; return all that it printed."""
    access = ("--kubeconfig", str(cluster.plane.kubeconfig()))
    done = CliRunner().invoke(cli, [*arguments, *access])
    assert done.exit_code == code, done.output
    return done.output


def emergencies(cluster: Cluster) -> list[str]:
    """Return what the doctor finds of the emergency."""
    access = ("--kubeconfig", str(cluster.plane.kubeconfig()))
    done = CliRunner().invoke(cli, ["doctor", "--pause", "0", "-o", "json", *access])
    found = json.loads(done.stdout)["findings"]
    return [one["id"] for one in found if one["id"].startswith("emergency")]


def holder(tenant: Tenant) -> str:
    """Return the controller that holds the Lease."""
    place = "/apis/coordination.k8s.io/v1/namespaces/deferred-quota-system/leases"
    return str(tenant.api.get(f"{place}/deferred-quota-controller").body["spec"]["holderIdentity"])


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
    running: Product, cluster: Cluster, tenant: Tenant
) -> None:
    cluster.install(url=running.url)
    is_hidden(tenant, running)
    tenant.quota(hard={"requests.cpu": "2", "pods": "9"})
    tenant.bound("counted", "1")
    for name in ("slips", "waits"):
        tenant.pod(name, "1")
    before = selectors(cluster)
    leader = holder(tenant)
    for process in running.processes:
        process.kill()
    assert "failed calling webhook" in tenant.bind("slips").message
    printed = command(cluster, "emergency", "open", "--yes")
    assert "over quota: p1: used: requests.cpu=3, limited: requests.cpu=2" in printed
    assert tenant.bind("slips").code == 201
    assert tenant.bind("waits").code == 201
    hard = {"requests.cpu": "2", "pods": "9"}
    assert status(tenant, "p1") == {"hard": hard, "used": {"requests.cpu": "3", "pods": "3"}}
    assert "exceeded quota: p1" in tenant.create("more", "1").message
    assert emergencies(cluster) == ["emergency.open"]
    assert "the emergency is open since 20" in command(cluster, "emergency", "open", "--yes")
    refused = command(cluster, "emergency", "close", "--yes", "--wait", "20", code=1)
    assert "leader." in refused
    assert tenant.ledger()  # nothing was begun

    running.restore()
    eventually(lambda: holder(tenant) != leader, "the controller leads that was started")
    since = "emergency_since_seconds"
    eventually(lambda: running.controller.metric(since) > 0, "it shows that the emergency is open")
    assert is_firing("DeferredQuotaEmergencyOpen", {}, scraped(running.processes))
    tenant.delete("waits")
    closed = command(cluster, "emergency", "close", "--yes")
    assert f"{tenant.namespace}: counted, and in force" in closed
    assert emergencies(cluster) == []
    becomes(lambda: running.controller.metric(since), 0.0, "it shows that it is closed")
    assert json.dumps(selectors(cluster)) == json.dumps(before)
    becomes(lambda: tenant.used()["requests.cpu"], "2", "what is used")
    tenant.pod("late", "1")
    refused_bind = tenant.bind("late")
    assert (refused_bind.code, "exceeded quota: p1" in refused_bind.message) == (403, True)
    assert "requests.cpu" not in status(tenant, "p1")["hard"]
    tenant.finish("counted")
    becomes(lambda: tenant.bind("late").code, 201, "the answer once there is room")
