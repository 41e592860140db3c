"""Ledgers that somebody changes, and quotas that go while something is promised."""

from __future__ import annotations

import time
from typing import Any, Final

from tests.e2e.cluster import objects
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

EXPIRE_SECONDS: Final = 35
"""As the product's configuration has it."""


def edit(tenant: Tenant, **fields: Any) -> None:
    """Change fields of the ledger's only account, as somebody with too many rights would."""
    accounts = [{**account, **fields} for account in tenant.ledger()["quotas"]]
    path = f"{objects.ledger(tenant.namespace)}/status"
    answer = tenant.api.patch(path, {"status": {"quotas": accounts}})
    assert answer.ok, str(answer)


def test_usage_that_was_edited_is_counted_again_and_reported(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    for wrong in ("0", "50"):
        edit(tenant, used={"requests.cpu": wrong})
        becomes(tenant.used, {"requests.cpu": "2"}, f"what is used, edited to {wrong}")
    told = eventually(lambda: tenant.events("LedgerRepaired"), "the repair is reported")
    assert "quota p1" in told[0]
    assert tenant.create("more", "1m", nodeName=NODE).code == 403


def test_a_limit_that_was_edited_is_put_right(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    edit(tenant, hard={"requests.cpu": "9"})
    becomes(lambda: tenant.accounts()["p1"]["hard"], {"requests.cpu": "2"}, "the limit")
    assert tenant.create("more", "1", nodeName=NODE).code == 403


def test_an_account_that_was_taken_out_is_put_back(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    path = f"{objects.ledger(tenant.namespace)}/status"
    assert tenant.api.patch(path, {"status": {"quotas": []}}).ok
    refused = tenant.create("more", "1", nodeName=NODE)
    assert refused.code in (403, 429), str(refused)
    becomes(tenant.used, {"requests.cpu": "2"}, "what is used")
    assert tenant.create("more", "1", nodeName=NODE).code == 403


def test_a_ledger_whose_serial_has_come_to_its_end_is_made_anew(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    edit_serial = {"status": {"serial": 2**63 - 1}}
    path = f"{objects.ledger(tenant.namespace)}/status"
    assert tenant.api.patch(path, edit_serial).ok
    pod = tenant.pod("more", "1")
    assert tenant.bind("more", uid=pod.uid).code == 429

    def is_bound() -> bool:
        return tenant.bind("more", uid=pod.uid).ok

    eventually(is_bound, "a ledger that was counted from the pods", 60.0)
    assert tenant.create("beyond", "1m", nodeName=NODE).code == 403


def test_a_condition_that_fills_the_ledger_goes_with_the_next_write(tenant: Tenant) -> None:
    """Every write brought it along, and no bind had room beside it."""
    tenant.quota()
    path = f"{objects.ledger(tenant.namespace)}/status"
    long = {"type": "Evil", "status": "True", "message": "x" * 1_400_000}
    assert tenant.api.patch(path, {"status": {"conditions": [long]}}).ok
    tenant.pod("web", "1")
    becomes(lambda: tenant.bind("web").code, 201, "the bind")
    assert "Evil" not in [one["type"] for one in tenant.ledger().get("conditions", [])]


def test_a_promise_outlives_its_quota(tenant: Tenant) -> None:
    tenant.quota()
    pod = tenant.pod("web", "1500m")
    assert tenant.bind("web", uid=pod.uid, version="1").code == 409  # promised, not stored
    assert tenant.api.delete(objects.quotas(tenant.namespace, "p1")).ok
    eventually(lambda: "p1" not in tenant.accounts(), "the quota has left the ledger")
    assert tenant.promised() == ["web"]
    tenant.quota()
    assert tenant.charged() == "1500m"
    assert tenant.create("more", "501m", nodeName=NODE).code == 403
    assert tenant.bind("web", uid=pod.uid).code == 201
    tenant.settles()
    assert tenant.used() == {"requests.cpu": "1500m"}


def test_the_ledger_goes_with_its_namespace_and_is_new_in_the_next(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "1", terminationGracePeriodSeconds=0)
    tenant.api.delete(f"/api/v1/namespaces/{tenant.namespace}")
    tenant.delete("web")
    path = f"/api/v1/namespaces/{tenant.namespace}"
    becomes(lambda: tenant.api.get(path).code, 404, "the namespace", seconds=60)
    assert tenant.api.get(objects.ledger(tenant.namespace)).code == 404


def test_what_people_read_of_it(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "limits.memory": "1Gi"})
    limits = {"memory": "256Mi"}
    tenant.bound("web", "500m", limits=limits)
    tenant.pod("waits", "1", limits=limits)
    becomes(
        lambda: tenant.accounts()["p1"]["pending"],
        {"pods": "1", "requests.cpu": "1", "limits.memory": "256Mi"},
        "what is pending",
    )
    summary = str(tenant.ledger()["summary"])
    assert "p1" in summary
    assert "requests.cpu 500m/2" in summary


def loud(product: Product, namespace: str) -> list[str]:
    """What the controller and the webhooks logged of a namespace above info."""
    return [
        line
        for process in product.processes
        for line in process.log.read_text().splitlines()
        if namespace in line and '"level":"info"' not in line
    ]


def test_a_namespace_that_is_deleted_is_no_fault(product: Product, tenant: Tenant) -> None:
    tenant.quota()
    quota = objects.quotas(tenant.namespace, "p1")
    assert tenant.api.patch(quota, {"metadata": {"finalizers": ["example.com/stays"]}}).ok
    tenant.bound("web", "1500m")
    pod = tenant.pod("late", "1")
    assert tenant.bind("late", uid=pod.uid).code == 403
    tenant.settles()
    before = loud(product, tenant.namespace)

    namespace = f"/api/v1/namespaces/{tenant.namespace}"
    assert tenant.api.delete(namespace).ok
    tenant.delete("web")
    tenant.delete("late")
    eventually(lambda: tenant.api.get(objects.ledger(tenant.namespace)).code == 404, "no ledger")
    # the quota stays: when requests that were admitted are over a new ledger would be due, and
    # nothing can be created in a namespace that is being deleted
    time.sleep(EXPIRE_SECONDS + 12)
    assert tenant.api.patch(quota, {"metadata": {"finalizers": None}}).ok
    eventually(lambda: tenant.api.get(namespace).code == 404, "no namespace")
    time.sleep(2)
    assert loud(product, tenant.namespace) == before
