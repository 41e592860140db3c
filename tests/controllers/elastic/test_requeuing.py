"""What has all elastic quotas and all labels looked at again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, new_cluster, wait_until_seen
from tests.controllers.elastic.objects import an_elastic_quota
from tests.counting import calls_of
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.config import ElasticSettings
from webhook.controllers.elastic.controller import ElasticQuotaController
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.controller import DONE
from webhook.fakecluster.storage import FakeClient
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, ELASTIC_QUOTAS, NAMESPACES
from webhook.kube.informer import Informer
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.elastic import derived_quotas
from webhook.quota.objects.names import DEFERRED_KEYS
from webhook.quota.shared.grants import with_raised
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_cache import SharedQuotaCache
from webhook.state.shared_quotas import SharedQuotaStore

POOL = "epool.default"


def test_an_edit_of_a_pool_does_and_a_bind_that_takes_of_it_does_not() -> None:
    cluster = new_cluster()
    api = FakeClient(cluster)
    api.create(CLUSTER_DEFERRED_QUOTAS, {**a_cluster_quota(), "metadata": {"name": POOL}})
    store = SharedQuotaStore(api)
    shared = SharedQuotaCache(api, store)
    quotas = QuotaCache(api, lambda: DEFERRED_KEYS, shared=shared)
    changes: list[str] = []
    ElasticQuotaController(
        ControllerContext(api=api),
        ManagedNamespaces(quotas=quotas, namespaces=NamespaceCache(api)),
        store,
        ElasticSettings,
        lambda: changes.append(POOL),
    )
    shared.informer.start()
    try:
        assert shared.informer.wait_for_sync(30)
        changes.clear()
        version = store.fetch(f"cdq/{POOL}")
        assert version is not None
        store.write(
            version, with_raised(version.grants, "team-a", {"requests.cpu": Quantity.parse("1")})
        )
        assert shared.informer.wait_for_version(cluster.resource_version, 30)
        assert changes == []
        api.patch(CLUSTER_DEFERRED_QUOTAS, POOL, {"spec": {"hard": {"requests.cpu": "9"}}})
        assert shared.informer.wait_for_version(cluster.resource_version, 30)
        assert changes == [POOL]
    finally:
        shared.informer.stop()


def test_what_a_quota_holds_is_summed_of_what_it_is_charged_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = 20
    cluster = new_cluster()
    api = FakeClient(cluster)
    for each in range(number):
        api.create(NAMESPACES, a_namespace(f"team-{each}x"))
        quota = an_elastic_quota(f"team-{each}x", {"cpu": "1"}, {"cpu": "2"})
        api.create(ELASTIC_QUOTAS, quota)
    store = SharedQuotaStore(api)
    shared = SharedQuotaCache(api, store)
    namespaces = NamespaceCache(api)
    quotas = QuotaCache(api, lambda: DEFERRED_KEYS, shared=shared, labels=namespaces.labels)
    managed = ManagedNamespaces(quotas=quotas, namespaces=namespaces)
    made = ElasticQuotaController(
        ControllerContext(api=api),
        managed,
        store,
        lambda: ElasticSettings(enabled=True),
        lambda: None,
    )
    informers: list[Informer[Any]] = [
        *made.informers.values(),
        shared.informer,
        quotas.informer,
        namespaces.informer,
    ]
    for one in informers:
        one.start()
    try:
        assert all(one.wait_for_sync(30) for one in informers)
        sums = calls_of(monkeypatch, derived_quotas, "_sum")
        assert made.reconcile("") is DONE
        wait_until_seen(cluster, informers)
        for name in (f"cdq/{POOL}", *(f"cdq/eq.team-{each}x.q" for each in range(number))):
            version = store.fetch(name)
            assert version is not None
            grants = version.grants
            for each in range(number):
                if name in (f"cdq/{POOL}", f"cdq/eq.team-{each}x.q"):
                    cpu = Quantity.parse(str(1 + each))
                    grants = with_raised(grants, f"team-{each}x", {"requests.cpu": cpu})
            store.write(version, grants)
        sums.clear()
        assert made.reconcile("") is DONE
        assert len(sums) == 2 * number
        for each in range(number):
            stored = api.get(ELASTIC_QUOTAS, "q", namespace=f"team-{each}x")
            assert FieldReader(stored).child("status").child("used").text("cpu") == str(1 + each)
    finally:
        for one in informers:
            one.stop()
