"""The controller that leads stands still, or has a wrong clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.outages.changed import with_clock, with_leases
from tests.e2e.cluster.product import SYSTEM, Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.state.well_known import LEADER_LEASE

LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEADER_LEASE}"
HOUR: Final = 3600
MOST: Final = 2**31 - 1
"""What a number of a Lease can be; the API server refuses more."""


def _check_binds(tenant: Tenant) -> None:
    """Bind pods where one runs and there is room for another: the next waits for one to end."""
    tenant.bound("more", "1")
    tenant.pod("much", "1")
    assert tenant.bind("much").code == 403
    tenant.finish("runs")
    becomes(lambda: tenant.bind("much").code, 201, "the answer once there is room")


def test_the_leader_stands_still(product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    former = product.controller
    with product.another_controller() as standby:
        written = former.metric("ledger_writes_total", result="written")
        former.pause()
        becomes(lambda: standby.metric("leader"), 1.0, "the standby leads", seconds=60)
        _check_binds(tenant)
        former.resume()
        becomes(lambda: former.metric("leader"), 0.0, "the former leader knows that it is none")
        tenant.finish("more")
        becomes(lambda: tenant.used()["requests.cpu"], "1", "what is used")
        assert former.metric("ledger_writes_total", result="written") == written
        standby.terminate()
        becomes(lambda: former.metric("leader"), 1.0, "it leads when its turn comes", seconds=60)


def test_clocks_are_wrong_by_an_hour(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    with (
        product.another_controller(lambda server: with_clock(server, HOUR)) as fast,
        product.another_webhook(lambda server: with_clock(server, -HOUR)) as slow,
    ):
        product.front.ports = (slow.port,)
        product.front.cut()
        product.controller.terminate()
        becomes(lambda: fast.metric("leader"), 1.0, "the one that is fast leads", seconds=60)
        renewed = Api(plane.rest).get(LEASE).body["spec"]["renewTime"]
        assert datetime.fromisoformat(renewed) - datetime.now(UTC) > timedelta(seconds=HOUR / 2)
        _check_binds(tenant)
        tenant.settles()
        product.controller.start()
        assert (product.controller.metric("leader"), fast.metric("leader")) == (0, 1)
        fast.terminate()
        becomes(lambda: product.controller.metric("leader"), 1.0, "the other leads", seconds=60)
    becomes(lambda: tenant.used()["requests.cpu"], "2", "what is used")


def test_a_lease_that_was_forged_for_years_is_taken_all_the_same(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    """Whoever has the controller's token for one write."""
    thief = Api(plane.service_account_rest(SYSTEM, "deferred-quota-controller"))
    tenant.quota()
    tenant.bound("runs", "1")
    with product.another_controller(lambda server: with_leases(server, believed=20)) as standby:
        stored = thief.get(LEASE).body
        forged = {
            "holderIdentity": "a thief",
            "leaseDurationSeconds": MOST,
            "leaseTransitions": MOST,
        }

        def forge() -> bool:
            lease = thief.get(LEASE).body  # the leader renews it all the time
            return thief.call("PUT", LEASE, {**lease, "spec": {**lease["spec"], **forged}}).ok

        eventually(forge, "the lease is written")
        becomes(lambda: product.controller.metric("leader"), 0.0, "no controller leads any more")
        becomes(lambda: standby.metric("leader"), 1.0, "the standby leads by the rule", seconds=60)
        spec = thief.get(LEASE).body["spec"]
        assert spec["leaseTransitions"] == MOST
        assert spec["leaseDurationSeconds"] == stored["spec"]["leaseDurationSeconds"]
        _check_binds(tenant)
        standby.terminate()
        becomes(lambda: product.controller.metric("leader"), 1.0, "the other leads", seconds=60)
    assert thief.get(LEASE).body["spec"]["leaseTransitions"] == MOST


def test_a_lease_that_is_as_large_as_can_be_stored_is_taken_all_the_same(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    """Whoever has the controller's token for one write; the next holder has more to say."""
    thief = Api(plane.service_account_rest(SYSTEM, "deferred-quota-controller"))
    tenant.quota()
    tenant.bound("runs", "1")

    def fill(count: int) -> Answer:
        """Write very many labels, and an annotation of so many characters."""
        lease = thief.get(LEASE).body
        metadata = {
            "name": LEADER_LEASE,
            "resourceVersion": lease["metadata"]["resourceVersion"],
            "labels": {f"l{number:05}": "x" * 63 for number in range(18_000)},
            "annotations": {"example.com/filled": "x" * count},
            "managedFields": [{}],  # without those of controllers, which come and go
        }
        spec = {"holderIdentity": "x", "leaseDurationSeconds": 1}
        answer = thief.call("PUT", LEASE, {**lease, "metadata": metadata, "spec": spec})
        return fill(count) if answer.code == 409 else answer  # controllers write it as well

    # the next holder has more to say than that
    count = 16 * most(lambda number: fill(16 * number).ok, 0, 16_000)
    assert (fill(count).ok, fill(count + 16).ok) == (True, False)
    becomes(lambda: product.controller.metric("leader"), 1.0, "a controller leads", seconds=60)
    becomes(lambda: len(str(thief.get(LEASE).body)) < 5000, True, "the lease is small again")
    _check_binds(tenant)


def most(is_taken: Callable[[int], bool], low: int, high: int) -> int:
    """Return the highest number that is taken, by halves; the lowest is."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_taken(middle) else (low, middle)
    return low
