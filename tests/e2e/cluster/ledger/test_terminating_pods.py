"""Pods that are being deleted and do not go: until when they are charged."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

from tests.e2e.cluster import objects
from tests.e2e.cluster.configured import configured
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually, stays

LONG_OVER_SECONDS: Final = 6.0
"""Twice a grace period of a second, and what the controller takes to notice that."""

STUCK: dict[str, tuple[int, dict[str, Any]]] = {
    "no kubelet ends it": (1, {}),
    "a finalizer keeps it": (0, {"metadata": {"finalizers": ["example.com/held"]}}),
}


def takes_everything(tenant: Tenant, name: str) -> bool:
    """Try to bind a pod for which there is room only beside nothing."""
    answer = tenant.bind(name)
    assert answer.code in (201, 403, 429), str(answer)
    return answer.code == 201


def counts_held_pods(tenant: Tenant) -> bool:
    """Return whether the ledger is counted so that stuck pods are held."""
    spec_hash: str = tenant.accounts()["p1"]["observed"]["specHash"]
    return spec_hash.endswith("-hold")


def remove(tenant: Tenant, name: str) -> None:
    """Let a pod be gone from the API server."""
    path = objects.pods(tenant.namespace, name)
    assert tenant.api.patch(path, {"metadata": {"finalizers": None}}).ok
    tenant.api.delete(path, grace_seconds=0)
    becomes(lambda: tenant.seen(name).code, 404, f"{name} is gone")


@pytest.mark.parametrize(("grace", "fields"), STUCK.values(), ids=STUCK)
def test_a_stuck_pod_gives_its_quota_back_by_default(
    grace: int, fields: dict[str, Any], tenant: Tenant
) -> None:
    tenant.quota()
    tenant.bound("stuck", "2", **fields)
    tenant.pod("next", "2")
    tenant.delete("stuck", grace_seconds=grace)
    becomes(tenant.charged, "0", "what is charged for a pod past its grace period")
    assert tenant.seen("stuck").ok
    eventually(lambda: takes_everything(tenant, "next"), "the other pod is bound")
    remove(tenant, "stuck")


@pytest.mark.parametrize(("grace", "fields"), STUCK.values(), ids=STUCK)
def test_a_stuck_pod_that_is_held_keeps_its_quota_until_it_is_gone(
    grace: int, fields: dict[str, Any], tenant: Tenant, product: Product
) -> None:
    tenant.quota()
    with configured(product, terminatingPods="Hold"):
        eventually(lambda: counts_held_pods(tenant), "the ledger is counted so")
        tenant.bound("stuck", "2", **fields)
        tenant.pod("next", "2")
        tenant.delete("stuck", grace_seconds=grace)
        over = time.monotonic() + LONG_OVER_SECONDS
        stays(tenant.charged, "2", "what is charged", lambda: time.monotonic() > over)
        refused = tenant.bind("next")
        assert refused.code == 403
        assert "exceeded quota: p1, requested: requests.cpu=2, used: requests.cpu=2" in (
            refused.message
        )
        remove(tenant, "stuck")
        eventually(lambda: takes_everything(tenant, "next"), "the other pod is bound")


def test_what_is_configured_takes_effect_for_pods_that_are_stuck_already(
    tenant: Tenant, product: Product
) -> None:
    tenant.quota()
    tenant.bound("stuck", "2")
    tenant.pod("next", "2")
    tenant.delete("stuck", grace_seconds=1)
    becomes(tenant.charged, "0", "what is charged for a pod past its grace period")
    with configured(product, terminatingPods="Hold"):
        # from here on no replica decides by what was counted before
        refused = tenant.bind("next")
        assert refused.code in (403, 429), str(refused)
        becomes(tenant.charged, "2", "what is charged for a pod that is held")
        assert tenant.bind("next").code == 403
    eventually(lambda: takes_everything(tenant, "next"), "the other pod is bound")
    assert tenant.seen("stuck").ok
