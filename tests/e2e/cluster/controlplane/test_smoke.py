"""The scheduler of Kubernetes binds what fits into the quota, and nothing else."""

from __future__ import annotations

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually


def assigned(api: Api, namespace: str) -> set[str]:
    pods = api.get(objects.pods(namespace)).body["items"]
    return {pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}


def test_the_scheduler_binds_pods_within_quota_only(
    plane: ControlPlane, product: Product, namespace: str
) -> None:
    tenant = Tenant(plane.rest, namespace)
    tenant.quota(hard={"requests.cpu": "2"})
    names = {f"pod-{number}" for number in range(6)}
    for name in names:
        tenant.pod(name, "500m", schedulerName=REAL)

    becomes(lambda: len(assigned(tenant.api, namespace)), 4, "four of six pods fit")
    waiting = names - assigned(tenant.api, namespace)
    refusal = "exceeded quota: p1, requested: requests.cpu=500m"
    eventually(
        lambda: all(refusal in tenant.condition(name)[2] for name in waiting), "both say why"
    )

    first, *_ = sorted(assigned(tenant.api, namespace))
    tenant.delete(first)
    becomes(
        lambda: len(assigned(tenant.api, namespace) & waiting), 1, "a waiting pod takes its place"
    )
    assert product.metric("admission_requests_total", handler="bind", outcome="denied") > 0


def test_an_outage_of_the_webhooks_is_nothing_to_other_namespaces(
    plane: ControlPlane, product: Product
) -> None:
    for webhook in product.webhooks:
        webhook.kill()
    plane.kubectl("run", "plain", "--image=example", "--restart=Never")
    api = Api(plane.rest)
    becomes(lambda: assigned(api, "default"), {"plain"}, "the pod is bound")
    api.delete(objects.pods("default", "plain"), grace_seconds=0)
