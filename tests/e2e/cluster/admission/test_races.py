"""Requests that meet: at two replicas, or with another pod of the same name in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.cluster.waiting_webhook import HoldingWebhook, Phase
from webhook.quota.amounts.quantity import Quantity

T = TypeVar("T")

ROUNDS = 12
NOBODY = "11111111-2222-3333-4444-555555555555"


def decided(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is a decision: 429 says that there is none yet."""

    def final() -> list[Answer]:
        answer = ask()
        return [] if answer.code == 429 else [answer]

    return eventually(final, "a decision", growth=1)[0]


def together(asks: Sequence[Callable[[], T]]) -> list[T]:
    """Ask everything at the same moment."""
    barrier = threading.Barrier(len(asks))

    def one(ask: Callable[[], T]) -> T:
        barrier.wait()
        return ask()

    with ThreadPoolExecutor(len(asks)) as pool:
        return list(pool.map(one, asks))


def bind_asks(tenant: Tenant, names: Sequence[str]) -> list[Callable[[], Answer]]:
    return [lambda name=name: decided(lambda: tenant.bind(name)) for name in names]  # type: ignore[misc]


def test_of_two_binds_that_fit_alone_one_passes(tenant: Tenant, product: Product) -> None:
    tenant.quota()
    before = [one.metric("admission_requests_total", handler="bind") for one in product.webhooks]
    for number in range(ROUNDS):
        names = [f"one-{number}", f"two-{number}"]
        for name in names:
            tenant.pod(name, "1500m")
        product.front.cut()  # the next connections go to the replicas in turn
        for uid in ("", NOBODY):  # the one is answered by the stamp, the other by the bind
            becomes(
                lambda uid=uid: tenant.bind("nobody", uid=uid).code,  # type: ignore[misc]
                404,
                "the answer on a new connection",
            )
        answers = together(bind_asks(tenant, names))
        assert sorted(answer.code for answer in answers) == [201, 403]
        assert tenant.taken_by_pods() == Quantity.parse("1500m")
        for name in names:
            tenant.delete(name)
        becomes(tenant.charged, "0", "what is charged after the deletion")
    after = [one.metric("admission_requests_total", handler="bind") for one in product.webhooks]
    assert all(new > old for new, old in zip(after, before, strict=True)), "one replica had no say"


def test_many_at_once_fill_the_quota_and_no_more(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "4"})
    names = [f"web-{number}" for number in range(24)]
    for name in names:
        tenant.pod(name, "500m")
    answers = together(bind_asks(tenant, names))
    assert sorted(answer.code for answer in answers) == [201] * 8 + [403] * 16
    tenant.settles()
    assert (tenant.charged(), tenant.taken_by_pods()) == ("4", Quantity.parse("4"))


def test_all_requests_at_once_fill_the_quota_and_no_more(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "4"})
    tenant.bound("grows", "1")
    tenant.bound("stays", "1")
    tenant.pod("bound", "1")
    answers = together(
        [
            lambda: decided(lambda: tenant.resize("grows", "2")),
            lambda: decided(lambda: tenant.bind("bound")),
            lambda: decided(lambda: tenant.bind("bound", legacy=True)),
            lambda: decided(lambda: tenant.create("made", "1", nodeName="node-0")),
            lambda: decided(lambda: tenant.create("also", "1", nodeName="node-1")),
        ]
    )
    assert all(answer.code in (200, 201, 403, 409) for answer in answers), [*map(str, answers)]
    assert tenant.taken_by_pods() == Quantity.parse("4")
    tenant.settles()
    becomes(tenant.charged, "4", "what is charged")


@pytest.mark.parametrize("phase", ["mutating", "validating"])
@pytest.mark.parametrize("legacy", [False, True], ids=["pods/binding", "bindings"])
def test_another_pod_of_the_name_is_not_bound_uncharged(
    tenant: Tenant, product: Product, phase: Phase, legacy: bool
) -> None:
    tenant.quota()
    tenant.pod("web", "1m")
    with (
        HoldingWebhook(tenant, phase, product.certificates) as holding,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(tenant.bind, "web", legacy=legacy)  # without uid, as people do
        holding.wait()
        if phase == "validating":  # ours is asked at the same time, and has decided
            becomes(tenant.charged, "1m", "what is charged for the first pod")
        tenant.delete("web")
        tenant.pod("web", "9")
        holding.may_answer.set()
        refused = answer.result()
    assert (refused.code, refused.reason) == (409, "Conflict"), str(refused)
    assert tenant.node_of("web") == ""


def test_a_pod_whose_gate_goes_in_the_middle_is_not_bound_uncharged(
    tenant: Tenant, product: Product
) -> None:
    tenant.quota()
    gate = "example.com/later"
    pod = tenant.pod("web", "9", schedulingGates=[{"name": gate}])
    path = f"/api/v1/namespaces/{tenant.namespace}/pods/web"
    with (
        HoldingWebhook(tenant, "validating", product.certificates) as holding,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(tenant.bind, "web", uid=pod.uid)
        holding.wait()
        assert tenant.api.patch(path, {"spec": {"schedulingGates": None}}).ok
        holding.may_answer.set()
        refused = answer.result()
    assert refused.code in (403, 409), str(refused)  # as it was, or as it is
    assert tenant.node_of("web") == ""


def test_a_pod_that_grows_while_it_is_bound_is_charged_its_new_size(
    tenant: Tenant, product: Product
) -> None:
    tenant.quota()
    pod = tenant.pod("web", "1")
    with (
        HoldingWebhook(tenant, "validating", product.certificates) as holding,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(tenant.bind, "web", uid=pod.uid)
        holding.wait()
        becomes(tenant.charged, "1", "what is charged for the bind")
        refused = tenant.resize("web", "3")
        assert refused.code == 403, str(refused)
        assert tenant.resize("web", "2").code == 200
        assert tenant.charged() == "2"
        holding.may_answer.set()
        assert answer.result().code == 201
    tenant.settles()
    assert (tenant.charged(), tenant.taken_by_pods()) == ("2", Quantity.parse("2"))
