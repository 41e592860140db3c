"""A namespace becomes exempt, or a resource is dropped: the mask goes first, the guard last."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota, an_expression
from tests.install.twin import QUICK, Twin
from tests.install.twin import run as run_install
from tests.reactions import Call, Proceed, ReactiveClient
from webhook.fakecluster.storage import FakeCluster
from webhook.install import InstallError
from webhook.install.exemption import wait_until_enforced
from webhook.install.rendering import excluded_namespaces
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS, VALIDATING_WEBHOOKS
from webhook.kube.kinds import kind_of
from webhook.operations.retry import RetryPolicy, silent
from webhook.state.well_known import REGISTRATION

EXEMPT = (
    "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    "exemptNamespaces: [kube-system, team-a]\n"
)
PLAIN = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
GPU = "requests.nvidia.com/gpu"
DEFERRING = f"{PLAIN}deferredResources: [{GPU}]\n"
URL = "https://192.0.2.7:9443"


def run(twin: Twin, **wish: Any) -> list[str]:
    return run_install(twin, **wish)[1]


def is_guarded(twin: Twin) -> bool:
    return "team-a" not in excluded_namespaces(twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION))


def policy_of(twin: Twin) -> str:
    """Return what holds our service accounts to what they need."""
    kind = kind_of("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", namespaced=False)
    policies = twin.api.list(kind).items
    return str([one for one in policies if "service-accounts" in str(one["metadata"])])


@pytest.mark.parametrize("url", ["", URL])
def test_the_guard_stays_until_the_api_server_enforces(url: str) -> None:
    twin = Twin()
    run(twin, url=url)
    twin.api.create(NAMESPACES, a_namespace())
    quota: Any = a_quota("q", hard={"requests.cpu": "2", "pods": "3"})
    deferred = {"hard": {"pods": "3"}, "used": {"pods": "0"}}
    twin.api.create(RESOURCE_QUOTAS, {**quota, "status": deferred})
    twin.written.clear()
    with pytest.raises(InstallError, match=r"ResourceQuota team-a/q: .* stays guarded"):
        run(twin, url=url, configuration=EXEMPT)
    assert is_guarded(twin)
    assert "'team-a'" not in policy_of(twin), "our service accounts are needed there until then"
    assert any("deferred-quota-mask" in line for line in twin.written)
    with pytest.raises(InstallError, match=r"team-a: is to be exempt.* without --no-wait"):
        run(twin, url=url, configuration=EXEMPT, waits=False)
    assert is_guarded(twin)

    whole = {"hard": {"requests.cpu": "2", "pods": "3"}, "used": {"requests.cpu": "0", "pods": "0"}}
    found = twin.api.get(RESOURCE_QUOTAS, "q", namespace="team-a")
    twin.api.update(RESOURCE_QUOTAS, {**found, "status": whole}, subresource="status")
    run(twin, url=url, configuration=EXEMPT)
    assert not is_guarded(twin)
    assert "'team-a'" in policy_of(twin)


def test_a_namespace_that_has_not_opted_in_is_exempt_at_once() -> None:
    twin = Twin()
    run(twin)
    twin.api.create(NAMESPACES, a_namespace(mode=""))
    twin.api.create(RESOURCE_QUOTAS, a_quota("q"))
    run(twin, configuration=EXEMPT)
    assert not is_guarded(twin)


@pytest.mark.parametrize(
    ("exempt", "dropped", "incomplete", "listed"),
    [
        ({"team-a"}, {GPU}, ["a/cpu", "a/gpu", "b/gpu", "c/gpu"], ""),
        (set(), {GPU}, ["a/gpu", "b/gpu", "c/gpu"], ""),
        ({"team-a", "team-c"}, set(), ["a/cpu", "a/gpu", "c/cpu", "c/gpu"], ""),
        ({"team-b"}, set(), ["b/cpu", "b/gpu"], "team-b"),
    ],
)
def test_one_list_reads_the_quotas_of_however_many_namespaces(
    exempt: set[str], dropped: set[str], incomplete: list[str], listed: str
) -> None:
    twin = Twin()
    twin.api = api = ReactiveClient(FakeCluster())
    run(twin)
    for team in ("team-a", "team-b", "team-c", "team-d"):
        api.create(NAMESPACES, a_namespace(team, mode="" if team == "team-d" else "deferred"))
        for name, key in (("cpu", "requests.cpu"), ("gpu", GPU)):
            api.create(RESOURCE_QUOTAS, a_quota(name, namespace=team, hard={key: "2"}, used={}))
    lists: list[str] = []

    def note(call: Call, proceed: Proceed) -> Any:
        lists.append(call.namespace)
        return proceed()

    api.on("list", RESOURCE_QUOTAS, note)
    with pytest.raises(InstallError) as refused:
        wait_until_enforced(api, exempt, dropped, RetryPolicy(seconds=0), silent)
    names = [f"ResourceQuota team-{one}" for one in incomplete]
    assert str(refused.value).startswith(f"{', '.join(names)}: the controller")
    assert lists == [listed] * 2, "before the wait, and in it"


def test_a_quota_that_our_controller_cannot_count_is_named_with_the_reason() -> None:
    twin = Twin()
    run(twin)
    twin.api.create(NAMESPACES, a_namespace())
    bad = an_expression("PriorityClass", "In", "bad value!")
    for name, expressions in (("odd", [bad]), ("q", [])):
        quota = a_quota(name, hard={GPU: "2"}, expressions=expressions)
        twin.api.create(RESOURCE_QUOTAS, quota)
    with pytest.raises(InstallError) as refused:
        wait_until_enforced(twin.api, frozenset(), {GPU}, QUICK, silent)
    odd, other, _ = str(refused.value).partition(", ResourceQuota team-a/q: the controller")
    assert odd.startswith("ResourceQuota team-a/odd (its scopes cannot be evaluated: mend or")
    assert other


@pytest.mark.parametrize("url", ["", URL])
def test_a_dropped_resource_is_charged_until_the_api_server_enforces(url: str) -> None:
    twin = Twin()
    run(twin, url=url, configuration=DEFERRING)
    twin.api.create(NAMESPACES, a_namespace())
    for name, hard in (("q", {GPU: "2", "requests.cpu": "2"}), ("other", {"pods": "3"})):
        twin.api.create(RESOURCE_QUOTAS, a_quota(name, hard=hard))
    twin.written.clear()
    with pytest.raises(InstallError, match=rf"ResourceQuota team-a/q: .* {GPU} stays guarded"):
        run(twin, url=url, configuration=PLAIN)
    assert is_named(twin)
    assert f"'{GPU}'" in policy_of(twin), "our service accounts write it until then"
    assert any("deferred-quota-mask" in line for line in twin.written), "it is hidden no more"
    with pytest.raises(InstallError, match=rf"{GPU}: is to be .* without --no-wait"):
        run(twin, url=url, configuration=PLAIN, waits=False)
    assert is_named(twin)

    found = twin.api.get(RESOURCE_QUOTAS, "q", namespace="team-a")
    whole = {"hard": {GPU: "2"}, "used": {GPU: "0"}}
    twin.api.update(RESOURCE_QUOTAS, {**found, "status": whole}, subresource="status")
    run(twin, url=url, configuration=PLAIN)
    assert not is_named(twin)
    assert f"'{GPU}'" not in policy_of(twin)


def is_named(twin: Twin) -> bool:
    """Return whether the registration names the resource, so that it is charged."""
    return GPU in str(twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION)["metadata"])
