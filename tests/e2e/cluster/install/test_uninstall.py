"""scripts/uninstall, and scripts/install where something was, on a control plane of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.e2e.cluster import objects
from tests.e2e.cluster.installed import (
    NOWHERE,
    Cluster,
    a_tenant,
    counted,
    is_counted,
    is_hidden,
    quota,
    status,
)
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """A namespace that has opted in."""
    with a_tenant(cluster) as made:
        yield made


def test_uninstalling_leaves_nothing_and_quotas_hold(
    running: Product, cluster: Cluster, tenant: Tenant
) -> None:
    cluster.install(url=running.url)
    is_hidden(tenant, running)
    quota(tenant, "q", {"requests.cpu": "2", "pods": "5"})
    becomes(lambda: counted(tenant, "q"), {"pods"}, "the quota controller has counted")
    for number in range(3):
        tenant.pod(f"p{number}", "5")
    is_counted(tenant)
    running.stop()  # nobody answers any more, and the registrations are Fail
    printed = cluster.uninstall()
    assert tenant.namespace in printed.splitlines()[1]
    assert cluster.versions() == {}
    assert tenant.api.get(f"/api/v1/namespaces/{SYSTEM}").code == 404
    assert status(tenant, "q") == {
        "hard": {"requests.cpu": "2", "pods": "5"},
        "used": {"requests.cpu": "15", "pods": "3"},
    }
    refused = tenant.create("p3", "1")
    over = "requested: requests.cpu=1, used: requests.cpu=15, limited: requests.cpu=2"
    assert refused.message.endswith(f"exceeded quota: q, {over}")
    labels = tenant.api.get(f"/api/v1/namespaces/{tenant.namespace}").body["metadata"]["labels"]
    assert labels[objects.MODE_LABEL] == "deferred"
    assert cluster.uninstall().splitlines()[-1] == "uninstalled"


def test_a_controller_that_runs_beside_the_cluster_has_to_stop_first(
    running: Product, cluster: Cluster, tenant: Tenant
) -> None:
    cluster.install(url=running.url)
    is_hidden(tenant, running)
    quota(tenant, "q", {"requests.cpu": "2", "pods": "5"})
    becomes(lambda: counted(tenant, "q"), {"pods"}, "the quota controller has counted")
    before, began = cluster.versions(), time.monotonic()
    printed = cluster.uninstall(code=1)
    assert time.monotonic() - began < 30
    assert f"leads, and is no pod of {SYSTEM}" in printed
    assert f"in the opted-in namespaces {tenant.namespace}. Stop it first" in printed
    assert "stopped here: nothing was changed" in printed
    assert cluster.versions() == before
    assert "this would stop here" in cluster.uninstall("--dry-run")
    running.stop()
    assert cluster.uninstall().splitlines()[-1] == "uninstalled"
    assert status(tenant, "q")["hard"] == {"requests.cpu": "2", "pods": "5"}


def test_uninstalling_finishes_what_was_begun(cluster: Cluster, tenant: Tenant) -> None:
    cluster.install()
    quota(tenant, "q", {"requests.cpu": "2"})
    delete = ("delete", "--wait=true")
    for kind in ("quotaledgers", "clusterdeferredquotas"):
        cluster.plane.kubectl(*delete, "customresourcedefinition", f"{kind}.deferredquota.io")
    cluster.plane.kubectl(*delete, "namespace", SYSTEM)
    cluster.plane.kubectl(*delete, "mutatingwebhookconfiguration", "deferred-quota")
    cluster.uninstall("--remove-labels")
    assert cluster.versions() == {}
    assert (
        objects.MODE_LABEL
        not in (tenant.api.get(f"/api/v1/namespaces/{tenant.namespace}").body["metadata"]["labels"])
    )
    assert status(tenant, "q")["hard"] == {"requests.cpu": "2"}


def test_ledgers_can_be_kept(cluster: Cluster, tenant: Tenant) -> None:
    cluster.install()
    kept = {"metadata": {"name": "ledger"}}
    body = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "QuotaLedger", **kept}
    path = objects.ledger(tenant.namespace).removesuffix("/ledger")
    eventually(lambda: tenant.api.create(path, body).ok, "ledgers are served")
    cluster.uninstall("--keep-crds")
    assert tenant.api.get(objects.ledger(tenant.namespace)).ok
    kept_kinds = {
        "deferredquota.io": ("quotaledgers", "clusterdeferredquotas"),
        "nos.nebuly.com": ("elasticquotas", "compositeelasticquotas"),
    }
    assert set(cluster.versions()) == {
        f"CustomResourceDefinition/{kind}.{group}"
        for group, kinds in kept_kinds.items()
        for kind in kinds
    }


DEPLOYED: Final = {
    f"{kind}/deferred-quota-{name}"
    for kind in ("Deployment", "PodDisruptionBudget")
    for name in ("webhook", "controller")
} | {"ResourceQuota/deferred-quota-critical-pods"}


def test_in_the_cluster_certificates_are_made_once(clean: Cluster) -> None:
    printed = clean.run("install", "--no-wait")
    assert "certificates: new CA and serving certificate" in printed
    deployments = ("get", "deployments", "-n", SYSTEM, "-o", "jsonpath={.items[*].status.replicas}")
    # each pod was taken by the namespace's Pod Security and by the quota of its priority class
    becomes(lambda: clean.plane.kubectl(*deployments), "2 3", "the pods are made")
    before = clean.versions()
    again = clean.run("install", "--no-wait")
    assert "certificates: kept" in again
    assert again.splitlines()[-1] == "unchanged"
    changed = {name for name, version in clean.versions().items() if before[name] != version}
    assert changed <= DEPLOYED, "the API server's own controllers write the status of these"
    late = clean.run("install", "--timeout", "2", code=1)
    assert "0 of 3 replicas are available" in late
    end_pods(clean)


def end_pods(cluster: Cluster) -> None:
    """Do what kubelets would: let the pods of the Deployments end."""
    scale = ("scale", "deployment", "-n", SYSTEM, "--all", "--replicas=0")
    cluster.plane.kubectl(*scale)
    delete = ("delete", "pods", "-n", SYSTEM, "--all", "--force", "--grace-period=0")
    cluster.plane.kubectl(*delete)


def test_an_installation_begins_when_the_one_before_is_gone(clean: Cluster) -> None:
    api = Api(clean.plane.rest)
    clean.plane.kubectl("create", "namespace", SYSTEM)
    held = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    metadata = {"name": "held", "finalizers": ["example.com/held"]}
    assert api.create(held, {"metadata": metadata}).ok
    clean.plane.kubectl("delete", "namespace", SYSTEM, "--wait=false")
    early = clean.install("--dry-run", code=1)
    assert f"Namespace {SYSTEM}: is being deleted; run this again when it is gone" in early
    late = clean.install("--timeout", "2", code=1)
    assert f"Namespace {SYSTEM}: waiting until it is gone" in late
    assert "is deleted, but not gone yet" in late
    assert clean.versions() == {}
    assert api.patch(f"{held}/held", {"metadata": {"finalizers": None}}).ok
    assert "created" in clean.install()


def test_that_it_would_move_into_the_cluster_is_said(clean: Cluster) -> None:
    clean.install()
    before = clean.versions()
    told = clean.run("install", "--dry-run")
    inside = f"the cluster (Service {SYSTEM}/deferred-quota-webhook)"
    assert f"webhook: would move from {NOWHERE} to {inside}" in told
    assert f"Deployment {SYSTEM}/deferred-quota-webhook: would be created" in told
    assert clean.versions() == before


def test_a_secret_of_another_owner_is_not_touched(clean: Cluster) -> None:
    clean.plane.kubectl("create", "namespace", SYSTEM)
    secret = ("create", "secret", "generic", "-n", SYSTEM, "deferred-quota-tls")
    clean.plane.kubectl(*secret, "--from-literal=tls.crt=mine")
    refused = clean.run("install", "--no-wait", code=1)
    assert f"Secret {SYSTEM}/deferred-quota-tls was not made by deferred-quota" in refused
    assert not any("Webhook" in name or "Deployment" in name for name in clean.versions())
