"""Ledgers that somebody changes, and quotas that go while something is promised."""

from __future__ import annotations

from typing import Any

from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually


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
