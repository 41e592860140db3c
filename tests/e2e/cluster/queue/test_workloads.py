"""Jobs and ReplicaSets whose pods do not all fit: they wait, and go on as quota becomes free."""

from __future__ import annotations

import pytest

from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Object, a_template
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.amounts.quantity import Quantity

TEXT = (
    'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied the'
    " request: exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
    " limited: requests.cpu=2"
)
HARD = Quantity.parse("2")


def pods(tenant: Tenant) -> dict[str, Object]:
    found = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return {pod["metadata"]["name"]: pod for pod in found}


def running(tenant: Tenant) -> set[str]:
    return {
        name
        for name, pod in pods(tenant).items()
        if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending"
    }


def waiting(tenant: Tenant) -> set[str]:
    return {name for name, pod in pods(tenant).items() if not pod["spec"].get("nodeName")}


@pytest.mark.timeout(240)
def test_a_job_larger_than_the_quota_is_done_bit_by_bit(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "10"})
    job = {
        "metadata": {"name": "train"},
        "spec": {"parallelism": 5, "completions": 5, "template": a_template(restartPolicy="Never")},
    }
    path = f"/apis/batch/v1/namespaces/{tenant.namespace}/jobs"
    assert tenant.api.create(path, job).ok
    becomes(lambda: len(running(tenant)), 2, "the number of pods with a node")
    becomes(lambda: len(waiting(tenant)), 3, "the number of pods that wait")
    for name in waiting(tenant):
        said = ("False", "SchedulerError", TEXT)
        becomes(lambda name=name: tenant.condition(name), said, f"why {name} waits")  # type: ignore[misc]

    def is_done() -> bool:
        assert tenant.taken_by_pods() <= HARD
        for name in running(tenant):
            tenant.finish(name)
        return bool(tenant.api.get(f"{path}/train").body["status"].get("completionTime"))

    eventually(is_done, "the Job is done", 120)
    assert tenant.api.get(f"{path}/train").body["status"]["succeeded"] == 5
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.native()[1] == {"pods": "0"}


@pytest.mark.timeout(240)
def test_a_replica_set_gets_its_next_pod_when_one_goes(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "10"})
    labels = {"app": "web"}
    replicas = {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": a_template()},
    }
    path = f"/apis/apps/v1/namespaces/{tenant.namespace}/replicasets"
    assert tenant.api.create(path, replicas).ok
    becomes(lambda: (len(running(tenant)), len(waiting(tenant))), (2, 1), "pods with and without")
    gone = min(running(tenant))
    tenant.delete(gone)  # its replacement and the pod that waits both want its place
    becomes(lambda: (len(running(tenant)), len(waiting(tenant))), (2, 1), "pods with and without")
    tenant.edit_quota("p1", {"hard": {"requests.cpu": "3", "pods": "10"}})
    becomes(lambda: len(running(tenant)), 3, "the number of pods with a node")
    tenant.settles()
    assert tenant.charged() == "3"
