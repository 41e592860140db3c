"""A namespace loses its label while pods are created and bound in it."""

from __future__ import annotations

from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.cluster.waiting_load import Load
from webhook.quota.amounts.quantity import Quantity

HARD = {"requests.cpu": "2", "pods": "500"}


def set_mode(tenant: Tenant, mode: str | None) -> None:
    label = {"metadata": {"labels": {objects.MODE_LABEL: mode}}}
    assert tenant.api.patch(f"/api/v1/namespaces/{tenant.namespace}", label).ok


def test_the_api_server_enforces_everything_again(tenant: Tenant) -> None:
    tenant.quota(hard=HARD)
    tenant.bound("web", "1")
    tenant.pod("waits", "3")
    set_mode(tenant, None)
    wanted = (HARD, {"requests.cpu": "4", "pods": "2"})
    becomes(tenant.native, wanted, "the status of the quota")
    refused = eventually(
        lambda: [one for one in [tenant.create("more", "1")] if not one.ok], "the quota is enforced"
    )[0]
    assert refused.code == 403
    assert refused.message.startswith(
        'pods "more" is forbidden: exceeded quota: p1, requested: req'
    )
    assert tenant.bind("waits").code == 201  # charged natively when it was created
    becomes(lambda: "p1" in tenant.accounts(), False, "the quota in the ledger")


def test_under_load_and_back_again(tenant: Tenant) -> None:
    tenant.quota(hard=HARD)
    with Load(tenant, "250m") as load:
        eventually(lambda: load.bound > 10, "pods are bound")
        set_mode(tenant, None)
        becomes(lambda: set(tenant.native()[0]), set(HARD), "what is enforced at creation")
        set_mode(tenant, "deferred")
        becomes(lambda: set(tenant.native()[0]), {"pods"}, "what is enforced at creation")
        wanted = load.bound + 10
        eventually(lambda: load.bound > wanted, "pods are bound", 90)
    # the API server's own way to say that a quota was written by two at once
    assert [one for one in load.problems if "409 Conflict" not in one] == []
    tenant.settles()
    taken = str(tenant.taken_by_pods())
    becomes(lambda: tenant.used().get("requests.cpu", ""), taken, "what is used")
    assert Quantity.parse(taken) <= Quantity.parse("2")
    assert tenant.create("much", "2001m", nodeName=NODE).code == 403
