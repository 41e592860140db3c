"""Pods without a node: counted and shaped by the API server, never compared with compute quota."""

from __future__ import annotations

import pytest

from tests.builders import a_container
from tests.e2e.cluster.tenant import Tenant

UNGATED = 'admission webhook "ungated.deferredquota.io" denied the request: '


def test_they_are_charged_their_number_and_nothing_else(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "3"})
    for number in range(3):
        tenant.pod(f"web-{number}", "8")
    assert tenant.native() == ({"pods": "3"}, {"pods": "3"})
    assert tenant.used() == {"requests.cpu": "0"}
    assert tenant.promised() == []


def test_the_api_server_still_enforces_their_number(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "1"})
    tenant.pod("web-0", "8")
    refused = tenant.create("web-1", "1")
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        'pods "web-1" is forbidden: exceeded quota: p1, requested: pods=1, used: pods=1,'
        " limited: pods=1"
    )


NATIVE = {
    "ephemeral storage": ("requests.ephemeral-storage", "1Gi", {"ephemeral-storage": "1Gi"}),
    "extended resources": ("requests.nvidia.com/gpu", "1", {"nvidia.com/gpu": "1"}),
    "huge pages": ("requests.hugepages-2Mi", "4Mi", {"hugepages-2Mi": "4Mi"}),
}


@pytest.mark.parametrize(("key", "amount", "requests"), NATIVE.values(), ids=NATIVE.keys())
def test_what_is_not_deferred_is_enforced_at_creation(
    tenant: Tenant, key: str, amount: str, requests: dict[str, str]
) -> None:
    tenant.quota(hard={"requests.cpu": "2", key: amount})
    amounts = {"cpu": "8", **requests}
    limits = {name: text for name, text in amounts.items() if name != "ephemeral-storage"}
    tenant.pod("web-0", requests=amounts, limits=limits)
    assert tenant.native()[1] == {key: amount}
    refused = tenant.create("web-1", requests=amounts, limits=limits)
    assert refused.code == 403
    assert refused.message == (
        f'pods "web-1" is forbidden: exceeded quota: p1, requested: {key}={amount},'
        f" used: {key}={amount}, limited: {key}={amount}"
    )


def test_they_have_to_name_what_a_quota_limits(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "limits.memory": "1Gi"})
    containers = [a_container("b", requests={"memory": "1"}), a_container("a", requests={"cpu": 1})]
    refused = tenant.create("web", "", *containers)
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{UNGATED}failed quota: p1: must specify limits.memory for: a,b; requests.cpu for: b"
    )


def test_a_pod_with_resources_as_a_whole_need_not_name_them(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2"})
    assert tenant.create("web", resources={"requests": {"memory": "1Gi"}}).code == 201


def test_a_forged_quality_of_service_is_refused(tenant: Tenant) -> None:
    tenant.quota(scopes=["NotBestEffort"])
    refused = tenant.create("web", "5", status={"qosClass": "BestEffort"})
    assert (refused.code, refused.reason) == (403, "Forbidden")
    assert refused.message == (
        f"{UNGATED}status.qosClass: BestEffort is not what the pod's resources make it: Burstable"
    )
    assert tenant.create("web", "5", status={"qosClass": "Burstable"}).code == 201


def test_one_that_can_never_fit_is_admitted_with_a_warning(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2"})
    assert tenant.pod("web", "3").warnings == (
        "can never fit quota p1: requested requests.cpu=3, limited requests.cpu=2",
    )
    assert tenant.pod("fits", "2").warnings == ()
    refused = tenant.bind("web")
    assert refused.code == 403
    assert refused.message.endswith(
        "requested: requests.cpu=3, used: requests.cpu=0, limited: requests.cpu=2"
    )
