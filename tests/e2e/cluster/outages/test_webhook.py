"""The webhook is gone, or hangs."""

from __future__ import annotations

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.outages.alerts import is_firing, scrape
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes

GATED = "e2e-outage-gated"
GATE = [{"name": "deferredquota.io/quota"}]


def test_no_webhook_runs(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    apply_namespace(Api(plane.rest), GATED, gating="always")
    gated = Tenant(plane.rest, GATED)
    gated.quota()
    waits = tenant.pod("waits", "1")
    before = scrape(plane, product.processes)
    for webhook in product.webhooks:
        webhook.kill()
    for answer in (
        tenant.bind("waits", uid=waits.uid),
        tenant.create("assigned", "1", nodeName=NODE),
        tenant.resize("runs", "1500m"),
    ):
        assert (answer.code, "failed calling webhook" in answer.message) == (500, True)
    slipped = gated.pod("slips", "3")  # the gate is put on by an entry that is ignored
    assert "schedulingGates" not in slipped.body["spec"]
    during = scrape(plane, product.processes)
    for alert in (
        "DeferredQuotaWebhookFails",
        "DeferredQuotaWebhookIgnored",
        "DeferredQuotaWebhookAbsent",
    ):
        assert is_firing(alert, before, during), alert
        assert not is_firing(alert, before, before), alert

    for webhook in product.webhooks:
        webhook.start()
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "the answer to a bind")
    becomes(lambda: gated.bind("slips").code, 403, "what slipped through is judged at its bind")
    assert gated.pod("later", "1").body["spec"]["schedulingGates"] == GATE


def test_the_webhook_hangs(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    waits = tenant.pod("waits", "1")
    before = scrape(plane, product.processes)
    for webhook in product.webhooks:
        webhook.pause()
    product.front.cut()
    alerts = ("DeferredQuotaWebhookFails", "DeferredQuotaWebhookSlow")

    def firing() -> dict[str, bool]:
        answer = tenant.bind("waits", uid=waits.uid)
        assert (answer.code, "failed calling webhook" in answer.message) == (500, True)
        during = scrape(plane, product.controllers)
        return {alert: is_firing(alert, before, during) for alert in alerts}

    # a call on a connection that was just cut fails at once, and is not slow
    becomes(firing, dict.fromkeys(alerts, True), "the alerts that fire")
    assert not any(is_firing(alert, before, before) for alert in alerts)
    for webhook in product.webhooks:
        webhook.resume()
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "the answer to a bind")
