"""Parts of the product that die, hang or come back, while pods are bound."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.outages.alerts import is_firing, scraped
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.cluster.waiting_load import Load
from webhook.quota.amounts.quantity import Quantity

HARD = Quantity.parse("2")


def goes_on(load: Load, seconds: float = 30) -> None:
    """Wait until more pods have been bound."""
    wanted = load.bound + 10
    eventually(lambda: load.bound >= wanted, "pods are bound", seconds)


def decided(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is a decision, not an excuse."""
    found: list[Answer] = []

    def is_final() -> bool:
        found.append(ask())
        return found[-1].code not in (429, 500)

    eventually(is_final, "a decision", growth=1)
    return found[-1]


@contextlib.contextmanager
def unwatchable_quotas(api: Api, product: Product) -> Iterator[None]:
    """Let webhooks list quotas, but not watch them, until the block is left."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/deferred-quota-webhook"
    rules = api.get(path).body["rules"]
    kept = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "watch"]}
        if "resourcequotas" in rule["resources"]
        else rule
        for rule in rules
    ]
    try:
        assert api.patch(path, {"rules": kept}).ok
        for webhook in product.webhooks:
            webhook.kill()
            webhook.start(waits=False)
        yield
    finally:
        assert api.patch(path, {"rules": rules}).ok
        for webhook in product.webhooks:
            webhook.kill()
            webhook.start()


def is_exact(tenant: Tenant) -> None:
    """Wait until the ledger says what the pods take, and is at peace."""
    tenant.settles()
    taken = str(tenant.taken_by_pods())
    becomes(lambda: tenant.used()["requests.cpu"], taken, "what is used")


def test_without_a_controller_the_quota_fills_and_does_not_overflow(
    tenant: Tenant, product: Product
) -> None:
    tenant.quota()
    with Load(tenant, "250m") as load:
        goes_on(load)
        shown = scraped(product.processes)
        product.controller.kill()
        before = load.refused
        eventually(lambda: load.refused > before + 20, "the quota is full of what is not counted")
        assert tenant.charged() == "2"
        assert is_firing("DeferredQuotaNoLeader", shown, scraped(product.processes))
        assert not is_firing("DeferredQuotaNoLeader", shown, shown)
        product.controller.start(waits=False)
        goes_on(load, seconds=90)
    assert (load.problems, load.most <= HARD) == ([], True), load.most
    is_exact(tenant)


def test_one_webhook_of_two_is_enough(tenant: Tenant, product: Product) -> None:
    tenant.quota()
    with Load(tenant, "250m", may_fail=True) as load:
        goes_on(load)
        product.webhooks[0].kill()
        goes_on(load)
        product.webhooks[0].start()
        product.webhooks[1].kill()
        goes_on(load)
    assert (load.problems, load.most <= HARD) == ([], True), load.most
    is_exact(tenant)


def test_a_webhook_that_hangs_admits_nothing_by_accident(tenant: Tenant, product: Product) -> None:
    tenant.quota()
    with Load(tenant, "250m", may_fail=True) as load:
        goes_on(load)
        ports = product.front.ports
        product.webhooks[0].pause()
        product.front.ports = ports[:1]
        product.front.cut()  # the next connections go to the one that hangs
        before = load.undecided
        eventually(lambda: load.undecided > before, "a bind got no answer in time")
        product.webhooks[0].resume()
        product.front.ports = ports
        goes_on(load)
    assert (load.problems, load.most <= HARD) == ([], True), load.most
    is_exact(tenant)


def test_without_webhooks_nothing_takes_resources_where_that_is_guarded(
    tenant: Tenant, plain: Tenant, product: Product
) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "5"})
    tenant.bound("runs", "1")
    pod = tenant.pod("waits", "1")
    for webhook in product.webhooks:
        webhook.kill()
    for answer in (
        tenant.bind("waits", uid=pod.uid),
        tenant.bind("waits"),
        tenant.create("web", "1", nodeName=NODE),
        tenant.resize("runs", "1500m"),
    ):
        assert (answer.code, answer.reason) == (500, "InternalError"), str(answer)
        assert "failed calling webhook" in answer.message
    assert tenant.create("more", "1").code == 201  # it takes nothing yet
    assert tenant.native()[1] == {"pods": "3"}
    assert tenant.create("label", "1", metadata={"labels": {"a": "b"}}).code == 201
    plain.pod("web", "1", nodeName=NODE)
    for webhook in product.webhooks:
        webhook.start()
    becomes(lambda: tenant.bind("waits", uid=pod.uid).code, 201, "the answer to a bind")
    assert tenant.bind("more").code == 403


def _is_there(tenant: Tenant, name: str) -> bool:
    return tenant.create(name, "1").code in {201, 409}


def test_all_goes_on_after_the_api_server_was_away(
    tenant: Tenant, plane: ControlPlane, product: Product
) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    before = scraped(product.processes)
    plane.apiserver.kill()
    eventually(
        lambda: is_firing("DeferredQuotaApiCallsFail", before, scraped(product.processes)),
        "calls fail for as long as it is away",
        60,
    )
    assert not is_firing("DeferredQuotaApiCallsFail", before, before)
    plane.apiserver.start()
    for name in ("more", "much"):  # "try again", while storage is being initialized
        eventually(partial(_is_there, tenant, name), "it is created", 60)
    becomes(lambda: tenant.bind("more").code, 201, "the answer to a bind", seconds=60)
    becomes(lambda: tenant.bind("much").code, 403, "the answer to another", seconds=60)
    tenant.finish("web")
    becomes(lambda: tenant.bind("much").code, 201, "the answer once there is room", seconds=60)
    is_exact(tenant)


def test_a_first_quota_counts_although_no_webhook_can_watch_quotas(
    tenant: Tenant, product: Product
) -> None:
    with unwatchable_quotas(tenant.api, product):
        assert decided(lambda: tenant.create("before", "1", nodeName=NODE)).code == 201
        tenant.quota()
        assert decided(lambda: tenant.create("web", "1", nodeName=NODE)).code == 201
        refused = decided(lambda: tenant.create("more", "1m", nodeName=NODE))
        assert refused.code == 403, str(refused)
    assert tenant.charged() == "2"
