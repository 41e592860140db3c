"""Pods that get a deadline, which moves them between quotas."""

from __future__ import annotations

from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes

UPDATE = 'admission webhook "resize.deferredquota.io" denied the request: '


def with_quotas(tenant: Tenant) -> None:
    """Make quotas of 2 cpu for pods with a deadline, and of 4 for those without."""
    tenant.quota("short", hard={"requests.cpu": "2"}, scopes=["Terminating"])
    tenant.quota("long", hard={"requests.cpu": "4"}, scopes=["NotTerminating"])


def test_an_assigned_pod_moves_with_all_it_uses(tenant: Tenant) -> None:
    with_quotas(tenant)
    tenant.bound("web", "1500m")
    assert (tenant.charged("short"), tenant.charged("long")) == ("0", "1500m")
    assert tenant.set_deadline("web", 600).code == 200
    assert tenant.charged("short") == "1500m"
    becomes(lambda: tenant.charged("long"), "0", "what the pod left")
    tenant.settles()
    assert tenant.charged("short") == "1500m"


def test_a_move_that_does_not_fit_is_refused(tenant: Tenant) -> None:
    with_quotas(tenant)
    tenant.bound("job", "1", activeDeadlineSeconds=60)
    tenant.bound("web", "1500m")
    refused = tenant.set_deadline("web", 600)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{UPDATE}exceeded quota: short, requested: requests.cpu=1500m, used: requests.cpu=1,"
        " limited: requests.cpu=2"
    )
    assert refused.causes == [
        ("QuotaExceeded", "short/requests.cpu", "requested=1500m,used=1,limited=2")
    ]
    assert (tenant.charged("short"), tenant.charged("long")) == ("1", "1500m")


def test_a_dry_run_tells_the_truth_and_writes_nothing(tenant: Tenant) -> None:
    with_quotas(tenant)
    tenant.bound("web", "2")
    tenant.bound("more", "2")
    before = tenant.rests("long")
    assert tenant.set_deadline("web", 600, dry_run=True).code == 200
    assert tenant.ledger_version() == before
    assert tenant.set_deadline("web", 600).code == 200
    becomes(lambda: tenant.charged("long"), "2", "what the pod left")
    before = tenant.rests("long")
    refused = tenant.set_deadline("more", 600, dry_run=True)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert tenant.ledger_version() == before


def test_a_pod_that_waits_is_charged_where_it_belongs_at_its_bind(tenant: Tenant) -> None:
    with_quotas(tenant)
    tenant.pod("web", "3")
    assert tenant.set_deadline("web", 600).code == 200
    refused = tenant.bind("web")
    assert "exceeded quota: short, requested: requests.cpu=3," in refused.message


def test_other_changes_of_a_pod_are_not_asked_about(tenant: Tenant) -> None:
    with_quotas(tenant)
    tenant.bound("web", "1", activeDeadlineSeconds=600)
    before = tenant.rests("short")
    assert tenant.set_deadline("web", 300).code == 200
    assert tenant.ledger_version() == before
