"""What finishes or goes gives its quota back."""

from __future__ import annotations

import pytest

from tests.controlplane.features import Gate
from tests.e2e.cluster import objects
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import becomes


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ends_is_used_no_more(tenant: Tenant, phase: str) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.pod("next", "1500m")
    assert tenant.bind("next").code == 403
    tenant.finish("web", phase)
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.bind("next").code == 201
    assert tenant.charged() == "1500m"


def test_a_pod_that_is_deleted_is_used_no_more(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.delete("web")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.pod("next", "2", nodeName=NODE).code == 201


def test_a_pod_that_is_asked_to_end_is_used_until_it_has(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.delete("web", grace_seconds=600)
    tenant.bound("other", "0")  # by now the deletion is seen
    assert tenant.used() == {"requests.cpu": "2"}
    assert tenant.create("next", "1", nodeName=NODE).code == 403
    tenant.delete("web")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")


def test_a_pod_that_is_stuck_terminating_is_used_until_its_time_is_over(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    tenant.delete("web", grace_seconds=1)
    deleting = tenant.seen("web").body
    assert deleting["metadata"]["deletionGracePeriodSeconds"] == 1
    assert tenant.create("next", "1", nodeName=NODE).code == 403
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.seen("web").body == deleting  # time alone did it
    assert tenant.create("next", "2", nodeName=NODE).code == 201


def test_a_pod_that_only_its_finalizer_keeps_is_used_until_its_time_is_over(
    tenant: Tenant,
) -> None:
    tenant.quota()
    tenant.bound("web", "2", metadata={"finalizers": ["example.com/wait"]})
    tenant.delete("web")
    kept = tenant.seen("web").body
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.seen("web").body == kept
    path = objects.pods(tenant.namespace, "web")
    assert tenant.api.patch(path, {"metadata": {"finalizers": None}}).ok


def test_a_pod_without_a_node_that_goes_changes_nothing(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "1")
    tenant.pod("other", "1")
    tenant.delete("other")
    tenant.finish("web")
    becomes(tenant.used, {"requests.cpu": "0"}, "what is used")
    assert tenant.promised() == []


def test_what_the_node_reports_counts_until_a_smaller_size_is_real(tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("web", "2")
    reported = {
        "name": "main",
        "image": "registry.example/app:1",
        "imageID": "",
        "ready": True,
        "restartCount": 0,
        "resources": {"requests": {"cpu": "2"}},
        "allocatedResources": {"cpu": "2"},
    }
    status = objects.pods(tenant.namespace, "web", "status")
    running = {"phase": "Running", "containerStatuses": [reported]}
    assert tenant.api.patch(status, {"status": running}).ok
    assert tenant.resize("web", "1").code == 200
    tenant.bound("other", "0")  # by now the new size is seen
    assert tenant.used() == {"requests.cpu": "2"}
    smaller = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1"}}
    shrunk = {"containerStatuses": [{**reported, **smaller}]}
    assert tenant.api.patch(status, {"status": shrunk}).ok
    becomes(tenant.used, {"requests.cpu": "1"}, "what is used")


@pytest.mark.needs(Gate("InPlacePodVerticalScalingInitContainers"))
def test_an_init_container_counts_until_a_smaller_size_is_real(tenant: Tenant) -> None:
    declared = {"status": {"declaredFeatures": ["InPlacePodVerticalScalingInitContainers"]}}
    assert tenant.api.patch(f"/api/v1/nodes/{NODE}/status", declared).ok  # as its kubelet does
    tenant.quota()
    init = {"name": "init", "image": "registry.example/app:1"}
    tenant.bound("web", "0", initContainers=[{**init, "resources": {"requests": {"cpu": "2"}}}])
    path = objects.pods(tenant.namespace, "web")

    def report(cpu: str) -> None:
        amounts = {"cpu": cpu}
        reported = {
            **init,
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "resources": {"requests": amounts},
            "allocatedResources": amounts,
        }
        status = {"phase": "Pending", "initContainerStatuses": [reported]}
        assert tenant.api.patch(f"{path}/status", {"status": status}).ok

    report("2")
    smaller = {"initContainers": [{"name": "init", "resources": {"requests": {"cpu": "1m"}}}]}
    resized = tenant.api.patch_strategic(f"{path}/resize", {"spec": smaller})
    assert resized.ok, str(resized)
    tenant.bound("other", "0")  # by now the new size is seen
    assert tenant.used() == {"requests.cpu": "2"}
    assert tenant.create("next", "1", nodeName=NODE).code == 403
    report("1m")
    becomes(tenant.used, {"requests.cpu": "1m"}, "what is used")
