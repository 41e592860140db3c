"""What the API server's own check is shown of a quota."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICY_BINDING = f"{_ADMISSION}/mutatingadmissionpolicybindings/deferred-quota-mask"
REGISTRATION = f"{_ADMISSION}/mutatingwebhookconfigurations/deferred-quota"

REPAIR_SECONDS = 15.0
"""It takes about as long as the news of a write; the rest is for machines that are busy."""


@contextlib.contextmanager
def without_mask(tenant: Tenant) -> Iterator[None]:
    """Take the mask out of the API server, and put it back in the end."""
    taken_out = _without_policy if tenant.api.get(POLICY_BINDING).ok else _without_entry
    with taken_out(tenant.api):
        becomes(lambda: is_masked(tenant), False, "the mask")
        yield
    becomes(lambda: is_masked(tenant), True, "the mask")


@contextlib.contextmanager
def _without_policy(api: Api) -> Iterator[None]:
    found = api.get(POLICY_BINDING)
    metadata = {"name": "deferred-quota-mask", "labels": found.body["metadata"].get("labels", {})}
    assert api.delete(POLICY_BINDING).ok
    try:
        yield
    finally:
        binding = {**found.body, "metadata": metadata}
        assert api.create(POLICY_BINDING.rpartition("/")[0], binding).ok


@contextlib.contextmanager
def _without_entry(api: Api) -> Iterator[None]:
    entries = api.get(REGISTRATION).body["webhooks"]
    others = [each for each in entries if each["name"] != "mask.deferredquota.io"]
    assert len(others) < len(entries)
    assert api.patch(REGISTRATION, {"webhooks": others}).ok
    try:
        yield
    finally:
        assert api.patch(REGISTRATION, {"webhooks": entries}).ok


def is_masked(tenant: Tenant) -> bool:
    """Try whether a deferred resource can be written into the status of `p1`."""
    return "requests.cpu" not in write_status(tenant.api, tenant.namespace, dry_run=True)


def write_status(api: Api, namespace: str, *, dry_run: bool = False) -> dict[str, str]:
    """Write the full status as the quota controller would; give what is stored of `hard`."""
    full = {"hard": {"requests.cpu": "2"}, "used": {"requests.cpu": "0"}}
    path = objects.quotas(namespace, "p1", "status")
    answer = api.patch(path, {"status": full}, dry_run=dry_run)
    assert answer.ok, str(answer)
    hard: dict[str, str] = answer.body["status"]["hard"]
    return hard


def test_the_spec_stays_as_its_owner_wrote_it(tenant: Tenant) -> None:
    hard = {"requests.cpu": "2", "memory": "1Gi", "pods": "3"}
    made = tenant.quota(hard=hard)
    found = tenant.api.get(objects.quotas(tenant.namespace, "p1"))
    assert found.body["spec"] == made.body["spec"] == {"hard": hard}
    assert found.body["status"]["hard"] == {"pods": "3"}


def test_a_full_status_is_masked_as_it_is_written(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "3"})
    assert write_status(tenant.api, tenant.namespace) == {"pods": "3"}
    assert tenant.native()[0] == {"pods": "3"}


def test_a_status_that_says_all_it_may_is_not_written(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "3"})
    tenant.bound("web", "1")
    before = tenant.api.get(objects.quotas(tenant.namespace, "p1")).version
    # by the time that another quota is masked and counted, all writers have had their turn
    tenant.quota("other", hard={"requests.memory": "1Gi", "services": "1"})
    assert tenant.api.get(objects.quotas(tenant.namespace, "p1")).version == before


def test_a_status_that_was_not_masked_is_repaired(tenant: Tenant) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "9"})
    with without_mask(tenant):
        assert "requests.cpu" in write_status(tenant.api, tenant.namespace)
        # the quota controller would look again after minutes only
        becomes(lambda: tenant.native()[0], {"pods": "9"}, "the status", REPAIR_SECONDS)
    becomes(lambda: tenant.create("web", "9").code, 201, "the answer to a creation")


def test_without_the_mask_the_api_server_is_as_strict_as_ever_until_the_repair(
    tenant: Tenant,
) -> None:
    tenant.quota(hard={"requests.cpu": "2", "pods": "9"})
    with without_mask(tenant):
        for number in range(5):
            write_status(tenant.api, tenant.namespace)
            answer = tenant.create(f"web-{number}", "9")
            assert answer.code in (201, 403, 409), str(answer)
        becomes(lambda: tenant.native()[0], {"pods": "9"}, "the repaired status")
    becomes(lambda: tenant.create("web", "9").code, 201, "the answer to a creation")
