"""A namespace without the label, or with another mode, is as it is without the product."""

from __future__ import annotations

from tests.e2e.cluster import objects
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import NODE, REAL, Tenant, marked
from tests.e2e.cluster.waiting import becomes


def test_its_quotas_are_the_api_servers(plain: Tenant, product: Product) -> None:
    before = product.metric("admission_requests_total")
    plain.quota(is_deferred=False, hard={"requests.cpu": "2", "pods": "5"})
    made = plain.pod("web", "1500m", schedulerName=REAL)
    assert plain.native()[1] == {"requests.cpu": "1500m", "pods": "1"}
    becomes(lambda: bool(plain.node_of("web")), True, "the pod is bound")
    assert not marked(plain.seen("web"))
    refused = plain.create("more", "1")
    assert (refused.code, refused.reason, refused.causes) == (403, "Forbidden", [])
    assert refused.message == (
        'pods "more" is forbidden: exceeded quota: p1, requested: requests.cpu=1,'
        " used: requests.cpu=1500m, limited: requests.cpu=2"
    )
    waits = plain.pod("waits", "500m")
    assert plain.bind("waits", uid=waits.uid).code == 201
    assert plain.create("forged", "1", status={"qosClass": "BestEffort"}).code == 403
    assert plain.api.get(objects.ledger(plain.namespace)).code == 404
    assert made.body["spec"].get("schedulingGates") is None
    assert product.metric("admission_requests_total") == before


def test_it_can_opt_in_with_pods_that_are_there(plain: Tenant) -> None:
    plain.quota(is_deferred=False, hard={"requests.cpu": "2", "pods": "5"})
    plain.pod("web", "1", nodeName=NODE)
    plain.pod("waits", "1")
    assert plain.create("more", "1").code == 403
    label = {"metadata": {"labels": {objects.MODE_LABEL: "deferred"}}}
    assert plain.api.patch(f"/api/v1/namespaces/{plain.namespace}", label).ok
    becomes(lambda: set(plain.native()[0]), {"pods"}, "what is enforced at creation")
    becomes(plain.used, {"requests.cpu": "1"}, "what is used")
    becomes(lambda: plain.create("more", "1").code, 201, "the answer to a creation")
    assert plain.bind("waits").code == 201
    assert plain.bind("more").code == 403
