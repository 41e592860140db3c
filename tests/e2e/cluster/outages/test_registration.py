"""The registration that guards binds is gone."""

from __future__ import annotations

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.outages.alerts import is_firing, scrape
from tests.e2e.cluster.product import Product, apply
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.install import render

REGISTRATION = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/deferred-quota"
)
LATE = {"metadata": {"name": "late"}, "spec": {"hard": {"requests.cpu": "9"}}}


def unguarded(product: Product) -> float:
    return product.metric("quota_status_repairs_total", result="unguarded")


def test_the_registration_of_the_guard_is_deleted(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    product.wait_until_asked(is_masked=True)
    tenant.quota()
    tenant.bound("runs", "1")
    much, more = tenant.pod("much", "5"), tenant.pod("more", "1m")
    assert tenant.bind("much", uid=much.uid).code == 403
    before = scrape(plane, product.processes)
    unguarded_before = unguarded(product)
    own = (product.certificates / "ca.crt").read_bytes()
    assert tenant.api.delete(REGISTRATION).ok
    try:
        eventually(lambda: product.controller.metric("guard_missing"), "the leader misses it")
        # the quota of before may have been met while the guard of a former test was new
        assert tenant.api.create(objects.quotas(tenant.namespace), LATE).ok
        eventually(lambda: unguarded(product) > unguarded_before, "a quota is not guarded")
        eventually(lambda: tenant.events("NotGuarded"), "its event")
        becomes(lambda: tenant.bind("much", uid=much.uid).code, 201, "a bind that is not reviewed")
        during = scrape(plane, product.processes)
    finally:
        apply(plane, render(url=product.url, ca_pem=own).registrations)
    for alert in ("DeferredQuotaNotGuarded", "DeferredQuotaGuardMissing"):
        assert is_firing(alert, before, during), alert
        assert not is_firing(alert, before, before), alert
    product.wait_until_asked(is_masked=True)
    becomes(tenant.charged, "6", "what was bound meanwhile is counted")
    becomes(lambda: tenant.bind("more", uid=more.uid).code, 403, "the guard is back")
    tenant.quota("later")  # is hidden from the API server's own check, and charged
