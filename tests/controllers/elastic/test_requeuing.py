"""What has all elastic quotas and all labels looked at again."""

from __future__ import annotations

from tests.admission.handlers.harness import new_cluster
from tests.quota.cluster_quotas import a_cluster_quota
from webhook.config import ElasticSettings
from webhook.controllers.elastic.controller import ElasticQuotaController
from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.runtime.context import ControllerContext
from webhook.fakecluster.storage import FakeClient
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS
from webhook.quota.amounts.quantity import Quantity
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
