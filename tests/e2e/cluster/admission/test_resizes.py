"""Pods whose size changes in place."""

from __future__ import annotations

import pytest

from tests.controlplane.features import RESIZE as RESIZES
from tests.controlplane.features import Gate
from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes

pytestmark = pytest.mark.needs(RESIZES)

RESIZE = 'admission webhook "resize.deferredquota.io" denied the request: '


def size_of(tenant: Tenant, name: str) -> str:
    (container,) = tenant.seen(name).body["spec"]["containers"]
    return str(container["resources"]["requests"]["cpu"])


def test_an_assigned_pod_grows_within_the_quota_and_is_charged_at_once(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "500m")
    assert tenant.resize("web", "2").code == 200
    assert tenant.charged() == "2"
    becomes(lambda: len(tenant.promised()), 0, "the growth is counted")
    assert tenant.used() == {"requests.cpu": "2"}


def test_growth_beyond_the_quota_is_refused_by_the_growth(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    refused = tenant.resize("web", "3")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{RESIZE}exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=1,"
        " limited: requests.cpu=2"
    )
    assert refused.causes == [("QuotaExceeded", "p1/requests.cpu", "requested=2,used=1,limited=2")]
    assert (tenant.charged(), size_of(tenant, "web")) == ("1", "1")


def test_a_pod_that_waits_may_grow_and_is_charged_its_new_size_at_the_bind(tenant: Tenant) -> None:
    tenant.quota()
    for name, cpu in (("large", "3"), ("small", "2")):
        tenant.pod(name, "1")
        assert tenant.resize(name, cpu).code == 200
    assert tenant.charged() == "0"
    refused = tenant.bind("large")
    assert "requested: requests.cpu=3, used: requests.cpu=0," in refused.message
    assert tenant.bind("small").code == 201
    assert tenant.charged() == "2"


def test_shrinking_is_free_even_above_the_limit(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.edit_quota("p1", {"hard": {"requests.cpu": "1"}})
    becomes(lambda: tenant.accounts()["p1"]["hard"], {"requests.cpu": "1"}, "the limit counts")
    assert tenant.resize("web", "1500m").code == 200
    becomes(tenant.used, {"requests.cpu": "1500m"}, "what the pod gave back")
    assert tenant.resize("web", "1501m").code == 403


def test_a_dry_run_tells_the_truth_and_writes_nothing(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    before = tenant.rests()
    assert tenant.resize("web", "2", dry_run=True).code == 200
    refused = tenant.resize("web", "2001m", dry_run=True)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message.startswith(f"{RESIZE}exceeded quota: p1, requested: requests.cpu=1001m,")
    assert (tenant.ledger_version(), size_of(tenant, "web")) == (before, "1")


def test_a_namespace_that_has_not_opted_in_is_left_to_the_api_server(plain: Tenant) -> None:
    plain.quota(is_deferred=False)
    plain.pod("web", "1", nodeName=NODE)
    assert plain.resize("web", "3").message == (
        'pods "web" is forbidden: exceeded quota: p1, requested: requests.cpu=2,'
        " used: requests.cpu=1, limited: requests.cpu=2"
    )


@pytest.mark.needs(Gate("InPlacePodLevelResourcesVerticalScaling"))
def test_a_pod_as_a_whole_gives_back_what_its_node_has_given_back(tenant: Tenant) -> None:
    declared = {"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}}
    assert tenant.api.patch(f"/api/v1/nodes/{NODE}/status", declared).ok  # as its kubelet does
    overhead = {"cpu": "250m", "memory": "128Mi"}
    heavy = {"metadata": {"name": tenant.namespace}, "handler": "x"}
    made = tenant.api.create(
        "/apis/node.k8s.io/v1/runtimeclasses", {**heavy, "overhead": {"podFixed": overhead}}
    )
    assert made.ok, str(made)
    tenant.quota(hard={"requests.cpu": "3", "requests.memory": "3Gi"})
    resources = {"requests": {"cpu": "1750m", "memory": "1920Mi"}}
    tenant.bound("web", resources=resources, runtimeClassName=tenant.namespace)
    path = objects.pods(tenant.namespace, "web")

    def report(cpu: str, memory: str) -> None:
        """Write what a 1.36 kubelet does: all with the overhead but the memory that it keeps."""
        allocated = {"cpu": cpu, "memory": memory}
        in_force = {"requests": {"cpu": cpu, "memory": "1920Mi"}}
        status = {"phase": "Running", "resources": in_force, "allocatedResources": allocated}
        assert tenant.api.patch(f"{path}/status", {"status": status}).ok
        assert tenant.seen("web").body["status"]["allocatedResources"] == allocated

    report("2", "2Gi")
    smaller = {"spec": {"resources": {"requests": {"cpu": "250m", "memory": "896Mi"}}}}
    resized = tenant.api.patch(f"{path}/resize", smaller)
    assert resized.ok, str(resized)
    tenant.bound("later", "1m", requests={"memory": "0"})  # counted after the resize
    more = tenant.pod("more", "1", requests={"memory": "2Gi"})
    refused = tenant.bind("more", uid=more.uid)
    assert (
        "requested: requests.cpu=1,requests.memory=2Gi, used: requests.cpu=2001m,"
        "requests.memory=2Gi, limited"
    ) in refused.message
    report("500m", "1Gi")
    given_back = {"requests.cpu": "501m", "requests.memory": "1Gi"}
    becomes(tenant.used, given_back, "what the node has given back")
    assert tenant.bind("more", uid=more.uid).code == 201
