"""Everything starts at once, the API server and what it stores in too."""

from __future__ import annotations

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.outages.alerts import is_firing, scrape
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually


def test_everything_starts_at_once_with_registrations_in_etcd(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    waits = tenant.pod("waits", "1m")
    for process in (*product.processes, plane.apiserver, plane.etcd):
        process.kill()
    for process in product.processes:
        process.start(waits=False)
    for webhook in product.webhooks:
        webhook.pause()  # it starts, and the API server is there sooner
    plane.etcd.start()
    plane.apiserver.start()
    eventually(
        lambda: "failed calling webhook" in tenant.bind("waits", uid=waits.uid).message,
        "a bind gets no answer",
        60,
    )
    assert is_firing("DeferredQuotaWebhookFails", {}, scrape(plane, []))
    for webhook in product.webhooks:
        webhook.resume()
    for process in product.processes:
        process.wait_until_ready(60)
    for name, code in (("more", 201), ("much", 403)):
        eventually(lambda: tenant.create(name, "1").ok, "pods are made again", 60)  # noqa: B023
        becomes(lambda: tenant.bind(name).code, code, "the answer to a bind", seconds=60)  # noqa: B023
    # a namespace that opts in before there is a leader has to wait for its ledger: none may be lost
    becomes(lambda: product.controller.metric("leader"), 1.0, "the controller leads", seconds=60)
