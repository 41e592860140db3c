"""The API server, etcd, or the network to them is away."""

from __future__ import annotations

from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.outages.alerts import is_firing, scrape, scraped
from tests.e2e.cluster.outages.changed import behind_link
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.torture.links import Links

DELAY: Final = 0.6
"""Seconds by which all that the API server is sent, and all that it sends, is late."""


def test_the_api_server_is_down_at_the_start(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    waits, more = tenant.pod("waits", "1"), tenant.pod("more", "1")
    before = scrape(plane, product.processes)
    plane.apiserver.kill()
    for process in product.processes:
        process.kill()
    for process in product.processes:
        process.start(waits=False)
    for process in product.processes:
        eventually(process.reasons, "it says why it is not ready")
        assert process.ops("/livez")[0] == 200
    during = scraped(product.processes)
    for alert in ("DeferredQuotaApiCallsFail", "DeferredQuotaNoLeader"):
        assert is_firing(alert, {}, during), alert
        assert not is_firing(alert, before, before), alert

    plane.apiserver.start()
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind", seconds=60)
    becomes(lambda: tenant.bind("more", uid=more.uid).code, 403, "one too many", seconds=60)
    for process in product.processes:
        process.wait_until_ready(60)
    # the lease of the one that was killed has to end first, and new namespaces wait for it
    becomes(lambda: product.controller.metric("leader"), 1.0, "the controller leads", seconds=60)


def test_etcd_is_restarted(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    waits, more = tenant.pod("waits", "1"), tenant.pod("more", "1")
    before = scraped(product.processes)
    plane.etcd.kill()
    answer = tenant.bind("waits", uid=waits.uid)
    assert answer.code in (429, 500, 504), str(answer)  # by who gives up first
    assert all(process.ops("/livez")[0] == 200 for process in product.processes)
    eventually(
        lambda: is_firing("DeferredQuotaApiCallsFail", before, scraped(product.processes)),
        "calls fail for as long as it is away",
        60,
    )
    plane.etcd.start()
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind", seconds=60)
    becomes(lambda: tenant.bind("more", uid=more.uid).code, 403, "one too many", seconds=60)
    tenant.finish("runs")
    becomes(lambda: tenant.bind("more", uid=more.uid).code, 201, "room is counted", seconds=60)


def test_the_api_server_is_slow(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    waits, more = tenant.pod("waits", "1"), tenant.pod("more", "2")
    with (
        Links() as links,
        product.another_webhook(lambda server: behind_link(server, links, plane)) as third,
    ):
        before = scrape(plane, product.processes)
        links.set(third.name, delay=DELAY)
        product.front.ports = (third.port,)
        product.front.cut()  # the next connections go to the one that has to wait
        becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind")
        becomes(lambda: tenant.bind("more", uid=more.uid).code, 403, "one too many")
        during = scrape(plane, product.processes)
        links.set(third.name, delay=0.0)
        assert tenant.bind("more", uid=more.uid).code == 403
        assert third.reasons() == []
    for alert in ("DeferredQuotaReviewsSlow", "DeferredQuotaWebhookSlow"):
        assert is_firing(alert, before, during), alert
        assert not is_firing(alert, before, before), alert


def test_one_of_three_webhooks_is_cut_off(
    plane: ControlPlane, product: Product, tenant: Tenant
) -> None:
    tenant.quota()
    waits, more = tenant.pod("waits", "1"), tenant.pod("more", "2")
    with (
        Links() as links,
        product.another_webhook(lambda server: behind_link(server, links, plane)) as third,
    ):
        ports = product.front.ports
        before = scrape(plane, product.processes)
        links.set(third.name, hold=True)
        product.front.ports = (third.port,)
        product.front.cut()  # the next connections go to the one that is cut off
        answer = tenant.bind("waits", uid=waits.uid)
        assert (answer.code, "failed calling webhook" in answer.message) == (500, True)
        during = scrape(plane, product.processes)
        product.front.ports = ports
        product.front.cut()
        becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "the others decide")
        tenant.settles()
        links.set(third.name, hold=False)
        product.front.ports = (third.port,)
        product.front.cut()
        becomes(lambda: tenant.bind("more", uid=more.uid).code, 403, "it has seen it", seconds=60)
        third.wait_until_ready()
    assert is_firing("DeferredQuotaWebhookFails", before, during)
