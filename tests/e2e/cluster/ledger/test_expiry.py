"""What ends only after the time that a request can take.

All that has to wait is begun at once, so that it is waited for once.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.cluster.waiting_webhook import HoldingWebhook

LONG = 120.0
"""Far more seconds than a reservation is kept in these tests."""
EXPIRE_SECONDS: Final = 35
"""As the product's configuration has it."""


@dataclass(frozen=True)
class Leaving:
    """A namespace that is being deleted, whose ledger is gone and whose quota stays.

    Attributes:
        since: When its ledger was seen to be gone, on the monotonic clock.
        before: What was logged of it above info until it was deleted.
    """

    tenant: Tenant
    since: float
    before: list[str]


@pytest.fixture(scope="module")
def leaving(plane: ControlPlane, _product: Product) -> Leaving:
    tenant = Tenant(plane.rest, "e2e-leaving")
    apply_namespace(Api(plane.rest), tenant.namespace)
    tenant.quota()
    quota = objects.quotas(tenant.namespace, "p1")
    assert tenant.api.patch(quota, {"metadata": {"finalizers": ["example.com/stays"]}}).ok
    tenant.bound("web", "1500m")
    pod = tenant.pod("late", "1")
    assert tenant.bind("late", uid=pod.uid).code == 403
    tenant.settles()
    before = loud(_product, tenant.namespace)

    assert tenant.api.delete(f"/api/v1/namespaces/{tenant.namespace}").ok
    tenant.delete("web")
    tenant.delete("late")
    eventually(lambda: tenant.api.get(objects.ledger(tenant.namespace)).code == 404, "no ledger")
    return Leaving(tenant, time.monotonic(), before)


def loud(product: Product, namespace: str) -> list[str]:
    """What the controller and the webhooks logged of a namespace above info."""
    return [
        line
        for process in product.processes
        for line in process.log.read_text().splitlines()
        if namespace in line and '"level":"info"' not in line
    ]


@pytest.fixture(scope="module")
def begun(
    plane: ControlPlane,
    _product: Product,
    leaving: Leaving,  # noqa: ARG001 - begins with the others
) -> Iterator[Mapping[str, Tenant]]:
    """Namespaces in which something has begun to wait, by what it is."""
    numbers = itertools.count()

    def new(**quota: Any) -> Tenant:
        name = f"e2e-expiry-{next(numbers)}"
        apply_namespace(Api(plane.rest), name)
        tenant = Tenant(plane.rest, name)
        tenant.quota(**quota)
        return tenant

    with ThreadPoolExecutor(1) as pool:
        yield {
            "unkept": begin_unkept(new()),
            "refused natively": begin_refused_natively(
                new(hard={"requests.cpu": "2", "pods": "1"})
            ),
            "deleted": begin_deleted(new()),
            "lost ledger": begin_lost_ledger(new(), _product, pool),
            "unreadable ledger": begin_unreadable_ledger(new()),
            "last serial": begin_last_serial(new()),
        }


def begin_unkept(tenant: Tenant) -> Tenant:
    pod = tenant.pod("web", "1500m")
    assert tenant.bind("web", uid=pod.uid, version="1").code == 409
    assert tenant.charged() == "1500m"
    return tenant


def begin_refused_natively(tenant: Tenant) -> Tenant:
    tenant.pod("web", "500m", nodeName=NODE)
    refused = tenant.create("more", "1500m", nodeName=NODE)
    assert refused.message.startswith(
        'pods "more" is forbidden: exceeded quota: p1, requested: pods'
    )
    assert tenant.charged() == "2"
    return tenant


def begin_deleted(tenant: Tenant) -> Tenant:
    pod = tenant.pod("web", "1500m")
    assert tenant.bind("web", uid=pod.uid, version="1").code == 409
    tenant.delete("web")
    return tenant


def begin_lost_ledger(tenant: Tenant, product: Product, pool: ThreadPoolExecutor) -> Tenant:
    """Delete the ledger while a bind is between our approval and storage."""
    tenant.bound("runs", "500m")
    pod = tenant.pod("web", "1500m")
    with HoldingWebhook(tenant, "validating", product.certificates) as holding:
        answer: Future[Answer] = pool.submit(tenant.bind, "web", uid=pod.uid)
        holding.wait()
        becomes(tenant.charged, "2", "what is charged")
        assert tenant.api.delete(objects.ledger(tenant.namespace)).ok
        undecided = tenant.create("more", "1", nodeName=NODE)
        assert (undecided.code, undecided.reason) == (429, "TooManyRequests"), str(undecided)
        holding.may_answer.set()
        assert answer.result().code == 201
    return tenant


def begin_unreadable_ledger(tenant: Tenant) -> Tenant:
    tenant.bound("runs", "500m")
    accounts = [{**one, "used": {"requests.cpu": "many"}} for one in tenant.ledger()["quotas"]]
    path = f"{objects.ledger(tenant.namespace)}/status"
    assert tenant.api.patch(path, {"status": {"quotas": accounts}}).ok
    return tenant


def begin_last_serial(tenant: Tenant) -> Tenant:
    """Let the serial of a ledger come to its end."""
    tenant.bound("web", "1")
    path = f"{objects.ledger(tenant.namespace)}/status"
    assert tenant.api.patch(path, {"status": {"serial": 2**63 - 1}}).ok
    pod = tenant.pod("more", "1")
    assert tenant.bind("more", uid=pod.uid).code == 429
    return tenant


@pytest.mark.timeout(300)
def test_while_a_lost_ledger_is_waited_for_nothing_is_admitted(
    begun: Mapping[str, Tenant],
) -> None:
    tenant = begun["lost ledger"]
    answers = set()

    def is_back() -> bool:
        answers.add(tenant.create("more", "1m", nodeName=NODE).code)
        return "p1" in tenant.accounts()

    eventually(is_back, "the ledger is back", LONG, growth=1)
    assert answers <= {429, 403}
    assert tenant.used() == {"requests.cpu": "2"}
    assert tenant.create("more", "1m", nodeName=NODE).code == 403
    assert eventually(lambda: tenant.events("LedgerLost"), "the loss is reported")


@pytest.mark.timeout(300)
def test_an_unreadable_ledger_is_replaced(begun: Mapping[str, Tenant]) -> None:
    tenant = begun["unreadable ledger"]
    answers = set()

    def is_back() -> bool:
        answers.add(tenant.create("more", "9", nodeName=NODE).code)
        return tenant.used() == {"requests.cpu": "500m"}

    eventually(is_back, "the ledger is readable", LONG, growth=1)
    assert answers <= {429, 403}
    assert tenant.create("more", "1500m", nodeName=NODE).code == 201
    assert eventually(lambda: tenant.events("LedgerUnreadable"), "the fault is reported")


@pytest.mark.timeout(300)
def test_a_ledger_whose_serial_has_come_to_its_end_is_made_anew(
    begun: Mapping[str, Tenant],
) -> None:
    tenant = begun["last serial"]
    uid = tenant.seen("more").uid
    eventually(
        lambda: tenant.bind("more", uid=uid).ok, "a ledger that was counted from the pods", LONG
    )
    assert tenant.create("beyond", "1m", nodeName=NODE).code == 403


UNKEPT = ("unkept", "refused natively", "deleted")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", UNKEPT)
def test_a_promise_that_was_not_kept_ends(begun: Mapping[str, Tenant], case: str) -> None:
    tenant = begun[case]
    becomes(lambda: len(tenant.promised()), 0, "the number of reservations", LONG)
    taken = "500m" if case == "refused natively" else "0"
    assert (tenant.charged(), str(tenant.taken_by_pods())) == (taken, taken)


@pytest.mark.timeout(300)
def test_what_was_promised_in_vain_can_be_had_again(begun: Mapping[str, Tenant]) -> None:
    tenant = begun["unkept"]
    becomes(lambda: len(tenant.promised()), 0, "the number of reservations", LONG)
    assert tenant.create("more", "2", nodeName=NODE).code == 201
    assert tenant.bind("web").code == 403


@pytest.mark.timeout(300)
def test_a_namespace_that_is_deleted_is_no_fault(product: Product, leaving: Leaving) -> None:
    """The quota stays, so a new ledger would be due when requests that were admitted are over.

    Nothing can be created in a namespace that is being deleted.
    """
    tenant = leaving.tenant
    time.sleep(max(0.0, leaving.since + EXPIRE_SECONDS + 12 - time.monotonic()))
    quota = objects.quotas(tenant.namespace, "p1")
    assert tenant.api.patch(quota, {"metadata": {"finalizers": None}}).ok
    namespace = f"/api/v1/namespaces/{tenant.namespace}"
    eventually(lambda: tenant.api.get(namespace).code == 404, "no namespace")
    time.sleep(2)
    assert loud(product, tenant.namespace) == leaving.before
