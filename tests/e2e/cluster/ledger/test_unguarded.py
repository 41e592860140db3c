"""A pod that gets its node past the webhook is told, and no pod of a busy namespace is.

What is told is told by a ledger that has counted the same for longer than a request lasts, so the
namespaces are busy for that time before one of them is left unguarded.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, a_template
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import NODE, REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually

BIND: Final = "bind.deferredquota.io"
REGISTRATION: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/deferred-quota"
)
EXPIRE_SECONDS: Final = 35.0
"""As the product is configured here."""
TOLD: Final = "unguarded_binds_total"


class Busy(OverAndOver):
    """Lets pods of all kinds come and go in some namespaces until the block is left."""

    def __init__(self, tenants: list[Tenant]) -> None:
        super().__init__([lambda one=one: self._work(one) for one in tenants])  # type: ignore[misc]
        self._numbers = itertools.count()

    def _work(self, tenant: Tenant) -> None:
        number = next(self._numbers)
        tenant.create(f"scheduled-{number}", "100m", schedulerName=REAL)
        if number % 3 == 0:
            tenant.create(f"placed-{number}", "100m", nodeName=NODE)
        if number % 5 == 0:
            spec = {
                "parallelism": 2,
                "completions": 2,
                "template": a_template(restartPolicy="Never"),
            }
            path = f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs"
            tenant.api.create(path, {"metadata": {"name": f"job-{number}"}, "spec": spec})
        for index, pod in enumerate(tenant.api.get(objects.pods(tenant.namespace)).body["items"]):
            if pod["spec"].get("nodeName"):
                self._end(tenant, pod["metadata"]["name"], (number + index) % 4)
        self.rest(0.3)

    @staticmethod
    def _end(tenant: Tenant, name: str, how: int) -> None:
        """Let a pod finish or go, at once or as its kubelet would; some run a while longer."""
        if how == 0:
            path = objects.pods(tenant.namespace, name, "status")
            tenant.api.patch(path, {"status": {"phase": "Succeeded"}})
        elif how < 3:
            path = objects.pods(tenant.namespace, name)
            tenant.api.delete(path, grace_seconds=0 if how == 1 else None)


@contextmanager
def left_out(tenant: Tenant) -> Iterator[None]:
    """Let nobody be asked about binds of a namespace until the block is left."""
    found = tenant.api.get(REGISTRATION).body["webhooks"]
    (selector,) = (one["namespaceSelector"] for one in found if one["name"] == BIND)

    def select(wanted: Any) -> None:
        patch = {"webhooks": [{"name": BIND, "namespaceSelector": wanted}]}
        answer = tenant.api.patch_strategic(REGISTRATION, patch)
        assert answer.ok, str(answer)

    out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [tenant.namespace]}
    select({"matchExpressions": [*selector["matchExpressions"], out]})
    try:
        yield
    finally:
        select(selector)


@pytest.mark.timeout(240)
def test_only_a_pod_that_was_not_reviewed_is_reported(
    plane: ControlPlane, product: Product
) -> None:
    api = Api(plane.rest)
    tenants: list[Tenant] = []
    before = product.metric(TOLD)
    for gating in ("always", "auto", "never"):
        name = f"e2e-unguarded-{gating}"
        apply_namespace(api, name, gating=gating)
        tenants.append(Tenant(plane.rest, name))
        tenants[-1].quota(hard={"requests.cpu": "4", "pods": "60"})
    with Busy(tenants) as busy:
        counted = time.monotonic()
        eventually(lambda: time.monotonic() - counted > EXPIRE_SECONDS + 10, "it is watched", 90)
        assert product.metric(TOLD) == before
    assert busy.problems == []
    tenant = tenants[-1]
    numbers = itertools.count()

    def comes_past() -> list[str]:
        name = f"past-{next(numbers)}"
        made = tenant.pod(name, "1m")
        assert tenant.bind(name, uid=made.uid).ok
        return [one for one in tenant.events("UnguardedBind") if one.startswith("pod past-")]

    with left_out(tenant):
        told = eventually(comes_past, "a pod that came past is told", growth=1)
    assert "it is counted all the same" in told[0]
    assert product.metric(TOLD) > before
    much = tenant.pod("much", "90")
    becomes(lambda: tenant.bind("much", uid=much.uid, dry_run=True).code, 403, "the guard is back")
    for one in tenants:
        assert one is tenant or one.events("UnguardedBind") == []
        one.clear()
        one.api.delete(f"/api/v1/namespaces/{one.namespace}")
