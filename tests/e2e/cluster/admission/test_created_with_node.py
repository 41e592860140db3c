"""Pods that are created with a node: charged in the same request."""

from __future__ import annotations

import contextlib
import http.client
import ssl

from tests.admission.handlers.harness import a_review
from tests.builders import a_pod
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import NODE, Tenant, marked
from tests.e2e.harness import post

ASSIGNED = 'admission webhook "assigned.deferredquota.io" denied the request: '


def test_one_is_charged_and_then_counted(tenant: Tenant) -> None:
    tenant.quota()
    pod = tenant.pod("web", "1500m", nodeName=NODE)
    assert tenant.charged() == "1500m"
    tenant.settles()
    assert (tenant.used(), tenant.reserved()) == ({"requests.cpu": "1500m"}, {})
    assert tenant.native() == ({}, {})
    assert not marked(pod)


def test_one_beyond_the_quota_is_refused_in_the_api_servers_words(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "limits.memory": "1Gi"})
    limits = {"memory": "600Mi"}
    tenant.pod("web", "1500m", limits=limits, nodeName=NODE)
    refused = tenant.create("more", "1", limits=limits, nodeName=NODE)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{ASSIGNED}exceeded quota: p1, requested: limits.memory=600Mi,requests.cpu=1,"
        " used: limits.memory=600Mi,requests.cpu=1500m,"
        " limited: limits.memory=1Gi,requests.cpu=2"
    )
    assert refused.causes == [
        ("QuotaExceeded", "p1/limits.memory", "requested=600Mi,used=600Mi,limited=1Gi"),
        ("QuotaExceeded", "p1/requests.cpu", "requested=1,used=1500m,limited=2"),
    ]
    details = refused.body["details"]
    assert (details["name"], details["kind"]) == ("more", "pods")
    assert tenant.seen("more").code == 404
    assert "more" not in tenant.promised()


def test_one_has_to_name_what_a_quota_limits(tenant: Tenant) -> None:
    tenant.quota()
    refused = tenant.create("web", nodeName=NODE)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == f"{ASSIGNED}failed quota: p1: must specify requests.cpu for: main"


def test_a_dry_run_tells_the_truth_and_writes_nothing(tenant: Tenant) -> None:
    tenant.quota()
    tenant.pod("web", "1", nodeName=NODE)
    before = tenant.rests()
    assert tenant.create("fits", "1", nodeName=NODE, dry_run=True).code == 201
    refused = tenant.create("more", "1001m", nodeName=NODE, dry_run=True)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message.startswith(f"{ASSIGNED}exceeded quota: p1, requested: ")
    assert tenant.ledger_version() == before


def test_every_quota_that_applies_is_charged_or_none(tenant: Tenant) -> None:
    tenant.quota("narrow", hard={"requests.cpu": "1"})
    tenant.quota("wide", hard={"requests.cpu": "4"})
    tenant.quota("timed", hard={"requests.cpu": "4"}, scopes=["Terminating"])
    tenant.pod("web", "1", nodeName=NODE)
    assert [tenant.charged(name) for name in ("narrow", "wide", "timed")] == ["1", "1", "0"]
    refused = tenant.create("more", "1", nodeName=NODE)
    assert "exceeded quota: narrow," in refused.message
    assert [tenant.charged(name) for name in ("narrow", "wide", "timed")] == ["1", "1", "0"]


def test_a_pod_without_compute_is_charged_nothing(tenant: Tenant) -> None:
    tenant.quota(scopes=["NotBestEffort"])
    tenant.pod("web", nodeName=NODE)
    assert tenant.charged() == "0"
    assert tenant.promised() == []


def test_a_forged_review_of_less_than_nothing_stops_no_charge(
    product: Product, tenant: Tenant
) -> None:
    """Where the webhook asks clients for no certificate, any pod may send one."""
    tenant.quota()
    tenant.pod("first", "1", nodeName=NODE)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    forged = a_pod(name="forged", namespace=tenant.namespace, node=NODE, requests={"cpu": "-5"})
    review = a_review("CREATE", "pods", forged, namespace=tenant.namespace)
    for server in product.webhooks:  # the second one reads what the first one wrote
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusting)
        with contextlib.closing(connection):
            answer = post(connection, review).json["response"]
        assert answer["auditAnnotations"]["decision"] == "reserved"
    refused = tenant.create("more", "1001m", nodeName=NODE)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    tenant.pod("second", "1", nodeName=NODE)
