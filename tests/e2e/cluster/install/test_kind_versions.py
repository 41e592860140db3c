"""Another version of our kinds beside the present one, as `docs/upgrading.md` plans it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.installed import a_cluster, a_product, a_tenant
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.waiting import becomes, eventually

PRESENT: Final = "v1alpha1"
NEXT: Final = "v1beta1"
KINDS: Final = ("quotaledgers", "clusterdeferredquotas", "podgatings")
_RBAC: Final = "rbac.authorization.k8s.io"


def test_quotas_hold_while_the_stored_version_of_our_kinds_changes(tmp_path: Path) -> None:
    with (
        a_cluster(tmp_path) as cluster,
        a_product(cluster, tmp_path / "product") as product,
        a_tenant(cluster) as tenant,
    ):
        cluster.install(url=product.url)
        product.wait_until_asked(is_masked=True)
        api, ledger = Api(cluster.plane.rest), objects.ledger(tenant.namespace)
        following = ledger.replace(PRESENT, NEXT)
        tenant.quota()
        tenant.bound("before", "500m")
        for stored in (PRESENT, NEXT):  # as a release that serves both, and the one after it
            for kind in KINDS:
                serve_both(api, kind, stored)
            eventually(lambda: api.get(following).ok, "it is served")
            tenant.bound(f"with-{stored}", "500m")
            tenant.pod(f"much-{stored}", "3")
            assert tenant.bind(f"much-{stored}").code == 403
            tenant.settles()
        tenant.finish("before")
        becomes(lambda: tenant.used()["requests.cpu"], "1", "what is used")
        assert api.get(following).body["status"] == tenant.ledger()
        # policies and the webhook are asked whatever version a client speaks
        owner = an_owner_of_our_kinds(cluster.plane)
        eventually(lambda: owner.get(following).ok, "the rights are in force")
        refused = owner.patch(following, {"metadata": {"labels": {"a": "b"}}})
        assert (refused.code, "ValidatingAdmissionPolicy" in refused.message) == (403, True)
        refused = api.create(f"/apis/deferredquota.io/{NEXT}/clusterdeferredquotas", POINTLESS)
        assert (refused.code, "spec.hard[pods]" in refused.message) == (422, True), str(refused)
        # what is stored has to be served: there is no way back beyond the release that does both
        assert "status.storedVersions" in cluster.install(url=product.url, code=1)


POINTLESS: Final = {
    "apiVersion": f"deferredquota.io/{NEXT}",
    "kind": "ClusterDeferredQuota",
    "metadata": {"name": "pointless"},
    "spec": {"namespaceSelector": {}, "hard": {"pods": "1"}},
}


def serve_both(api: Api, kind: str, stored: str) -> None:
    """Serve a kind in both versions, with the same fields; what is written is of `stored`."""
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{kind}.deferredquota.io"

    def is_changed() -> bool:
        definition: Any = api.get(path).body
        spec = definition["spec"]
        assert spec["conversion"] == {"strategy": "None"}
        spec["versions"] = [
            {**spec["versions"][0], "name": name, "storage": name == stored}
            for name in (PRESENT, NEXT)
        ]
        return api.call("PUT", path, definition).ok

    eventually(is_changed, "no other client is faster")


def an_owner_of_our_kinds(plane: ControlPlane) -> Api:
    """Return a client that may do all with our kinds, and nothing else."""
    admin, path = Api(plane.rest), f"/apis/{_RBAC}/v1"
    rules = [{"apiGroups": ["deferredquota.io"], "resources": ["*"], "verbs": ["*"]}]
    role = {"metadata": {"name": "owner"}, "rules": rules}
    assert admin.create(f"{path}/clusterroles", role).ok
    binding = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": "owner"},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": "owner"}],
    }
    assert admin.create(f"{path}/clusterrolebindings", binding).ok
    return Api(plane.rest_as("owner", ()))
