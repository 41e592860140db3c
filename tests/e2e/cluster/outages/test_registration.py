"""The registration that guards binds is gone."""

from __future__ import annotations

import time

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.outages.alerts import is_firing, scrape, scraped
from tests.e2e.cluster.product import Product, apply
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually, stays
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


def test_the_registration_comes_back_without_a_leader(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    """It was deleted while nothing ran, and pods were bound unasked."""
    product.wait_until_asked(is_masked=True)
    tenant.quota()
    tenant.bound("runs", "1")
    unasked, later = tenant.pod("unasked", "4"), tenant.pod("later", "1")
    eventually(lambda: "Guarded" in conditions(tenant), "all is counted under the registration")
    own = (product.certificates / "ca.crt").read_bytes()
    before = scraped(product.processes)
    for process in product.processes:
        process.kill()
    assert tenant.api.delete(REGISTRATION).ok
    try:
        becomes(lambda: tenant.bind("unasked", uid=unasked.uid).code, 201, "it is not reviewed")
    finally:
        apply(plane, render(url=product.url, ca_pem=own).registrations)
    for webhook in product.webhooks:
        webhook.start()
    eventually(lambda: is_awaiting_count(tenant, later.uid), "the bind waits for a leader")
    read_again = time.monotonic() + 5
    stays(
        lambda: is_awaiting_count(tenant, later.uid),
        True,
        "the bind waits for a leader",
        lambda: time.monotonic() > read_again,
    )
    assert is_firing("DeferredQuotaNoLeader", before, scraped(product.processes))
    assert not is_firing("DeferredQuotaNoLeader", before, before)
    product.restore()
    becomes(lambda: tenant.bind("later", uid=later.uid).code, 403, "it is judged by numbers", 60)
    assert tenant.charged() == "5"
    tenant.delete("unasked")
    becomes(lambda: tenant.bind("later", uid=later.uid).code, 201, "there is room")
    product.wait_until_asked(is_masked=True)


def is_awaiting_count(tenant: Tenant, uid: str) -> bool:
    """Try to bind a pod; return whether the answer is that it was not counted yet."""
    answer = tenant.bind("later", uid=uid)
    assert answer.code != 201
    return answer.code == 429 and "was registered anew" in answer.message


def conditions(tenant: Tenant) -> list[str]:
    """Return the types of the conditions of the ledger."""
    return [one["type"] for one in tenant.ledger().get("conditions", [])]
