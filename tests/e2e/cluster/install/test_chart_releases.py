"""Releases of the chart on a control plane: installed, upgraded, rolled back, removed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane.features import POLICIES, serves
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import command_line, objects
from tests.e2e.cluster.install.chart import Release, Values
from tests.e2e.cluster.installed import a_cluster, a_product, a_tenant
from tests.e2e.cluster.installed import quota as a_quota
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually

NOWHERE: Final = "https://127.0.0.1:1"
GPU: Final = "requests.nvidia.com/gpu"
COMPUTE: Final = [
    "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"
]  # fmt: skip
SHIPPED: Final = ["kube-system", "kube-public", "kube-node-lease", "deferred-quota-system"]
_NUMBERS: Final = itertools.count()
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"


@pytest.fixture(scope="module")
def plane_of_releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("releases")) as running:
        yield running


@pytest.fixture
def release(plane_of_releases: ControlPlane) -> Iterator[Release]:
    """A release that is not there yet; it is removed at the end."""
    made = Release(plane_of_releases)
    yield made
    made.run("uninstall", "--ignore-not-found")


def get(release: Release, path: str) -> Any:
    return Api(release.plane.rest).get(path).body


def registrations(release: Release) -> list[Any]:
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return [each for kind in kinds for each in get(release, f"{_ADMISSION}/{kind}")["items"]]


def trust(release: Release) -> dict[str, str]:
    """Return the caBundle of every entry."""
    return {
        f"{each['metadata']['name']} {entry['name']}": entry["clientConfig"].get("caBundle", "")
        for each in registrations(release)
        for entry in each["webhooks"]
    }


def test_upgrades_and_rollbacks_leave_the_trust_as_it_is(release: Release) -> None:
    asked = {"creation": "webhook"}
    release.install(asked)
    assert set(trust(release).values()) == {""}
    command_line.printed(release.plane, "certs", "init")
    before = trust(release)
    assert "" not in before.values()
    assert len(before) == (12 if serves(release.plane.rest, POLICIES) else 13)
    image = {"image": {"tag": "2"}, "webhook": {"replicas": 2}}
    release.upgrade({**asked, **image, "configuration": {"gating": "never"}})
    assert asks_for_gates(release) == ["always", "auto"]
    assert trust(release) == before
    # by a merge of what was, what is and what is wanted, as Helm 3 does
    release.upgrade({**asked, "configuration": {"gating": "auto"}}, "--server-side=false")
    assert asks_for_gates(release) == ["never"]
    assert trust(release) == before
    release.run("rollback", "2")
    assert asks_for_gates(release) == ["always", "auto"]
    assert trust(release) == before


def asks_for_gates(release: Release) -> list[str]:
    """Return the values of the gating label by which the gating handler is called, if it is."""
    found = get(release, f"{_ADMISSION}/mutatingwebhookconfigurations/deferred-quota")
    return [
        value
        for entry in found["webhooks"]
        if entry["name"] == "gate.deferredquota.io"
        for each in entry["namespaceSelector"]["matchExpressions"]
        if each["key"].endswith("/gating")
        for value in each["values"]
    ]


@pytest.mark.needs(POLICIES)
def test_policies_decide_before_the_entries_go(release: Release) -> None:
    policy = f"{_ADMISSION}/mutatingadmissionpolicies/deferred-quota-gate"
    release.install({"creation": "webhook"})
    assert asks_for_gates(release) == ["never"]
    assert get(release, policy)["code"] == 404
    assert "creation waits" in release.upgrade({"creation": "policy"})
    assert asks_for_gates(release) == ["never"]  # beside the policies
    assert get(release, policy)["spec"]
    assert "waits" not in release.upgrade({"creation": "policy"})
    assert asks_for_gates(release) == []
    by_need = f"{_ADMISSION}/mutatingadmissionpolicybindings/deferred-quota-gate-auto"
    assert get(release, by_need)["spec"]["paramRef"]["name"] == "gating"
    release.upgrade({"creation": "webhook"})
    assert asks_for_gates(release) == ["never"]
    assert get(release, policy)["code"] == 404


@pytest.mark.needs(POLICIES)
def test_the_api_server_takes_all_that_a_release_can_have(release: Release) -> None:
    odd = ["it's", 'a"b', "a\\b", "<a&b>", "{{ x }}", "Ünal", "on"]
    printed = release.install(
        {
            "stamps": True,
            "mask": "policy",
            "networkPolicy": {"enabled": True, "webhookFrom": [{"ipBlock": {"cidr": "::/0"}}]},
            "configuration": {
                "deferredResources": [GPU],
                "exemptNamespaces": ["a", "b"],
                "trustedUsers": odd,
                "breakGlassGroups": odd,
                "page": {"enabled": True, "port": 9000},
            },
        }
    )
    assert "STATUS: deployed" in printed
    assert state(release) == State(
        hidden=[*COMPUTE, GPU],
        not_hidden_in=[*SHIPPED, "a", "b"],
        charged=[GPU],
        not_guarded=[*SHIPPED, "a", "b"],
    )


def test_a_release_in_another_namespace_is_called_there(tmp_path: Path) -> None:
    with ControlPlane.start(tmp_path, controller_manager=False, scheduler=False) as plane:
        release = Release(plane, "quota-home")
        release.install({})
        command_line.printed(plane, "certs", "init", "--system-namespace", release.home)
        assert "" not in trust(release).values()
        entries = [entry for each in registrations(release) for entry in each["webhooks"]]
        places = {entry["clientConfig"]["service"]["namespace"] for entry in entries}
        assert places == {release.home}
        release.run("uninstall")
        assert registrations(release) == []


# -- changes that take two upgrades --------------------------------------------------------


@dataclass(frozen=True)
class State:
    """What the mask and the guards say."""

    hidden: list[str] = field(default_factory=lambda: COMPUTE)
    """Resources that the mask hides."""
    not_hidden_in: list[str] = field(default_factory=lambda: SHIPPED)
    """Namespaces that the mask leaves out."""
    charged: list[str] = field(default_factory=list)
    """Resources that are charged besides compute."""
    not_guarded: list[str] = field(default_factory=lambda: SHIPPED)
    """Namespaces that the guards leave out."""


def state(release: Release) -> State:
    hidden, not_hidden_in = mask(release)
    guard = get(release, f"{_ADMISSION}/validatingwebhookconfigurations/deferred-quota")
    note = guard["metadata"]["annotations"]["deferredquota.io/deferred-resources"]
    not_guarded, *others = [left_out(entry) for entry in guard["webhooks"]]
    assert all(other == not_guarded for other in others)
    return State(
        hidden=hidden,
        not_hidden_in=not_hidden_in,
        charged=[name for name in note.split(",") if name],
        not_guarded=not_guarded,
    )


def mask(release: Release) -> tuple[list[str], list[str]]:
    """Return the resources that the mask hides, whatever its form, and where it does not."""
    policy = get(release, f"{_ADMISSION}/mutatingadmissionpolicies/deferred-quota-mask")
    if "spec" in policy:
        binding = get(release, f"{_ADMISSION}/mutatingadmissionpolicybindings/deferred-quota-mask")
        (keys,) = [each for each in policy["spec"]["variables"] if each["name"] == "keys"]
        return listed(keys), left_out(binding["spec"]["matchResources"])
    entries = get(release, f"{_ADMISSION}/mutatingwebhookconfigurations/deferred-quota")["webhooks"]
    (entry,) = [each for each in entries if each["name"] == "mask.deferredquota.io"]
    *_, shows = entry["matchConditions"]
    return listed(shows), left_out(entry)


def listed(item: Any) -> list[str]:
    return re.findall(r"'([^']+)'", item["expression"])


def left_out(holder: Any) -> list[str]:
    """Return the namespaces that the selector of an entry or a binding leaves out by name."""
    expressions = holder["namespaceSelector"]["matchExpressions"]
    by_name = [each for each in expressions if each["key"] == "kubernetes.io/metadata.name"]
    ((operator, names),) = [(each["operator"], each["values"]) for each in by_name]
    assert operator == "NotIn"
    return names  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Incomplete:
    """A quota for a resource whose status nothing completes but the test."""

    api: Api
    namespace: str

    def complete(self) -> None:
        """Write what the quota controller would write."""
        status = {"status": {"hard": {GPU: "4"}, "used": {GPU: "0"}}}
        assert self.api.patch(objects.quotas(self.namespace, "q", "status"), status).ok


@pytest.fixture
def quota(release: Release) -> Iterator[Incomplete]:
    made = Incomplete(Api(release.plane.rest), f"team-{next(_NUMBERS)}")
    release.plane.controller_manager.pause()
    try:
        # not opted in: no mask takes anything out of the status that the test writes
        place = {"metadata": {"name": made.namespace}}
        assert made.api.create("/api/v1/namespaces", place).ok
        wanted = {"metadata": {"name": "q"}, "spec": {"hard": {GPU: "4"}}}
        assert made.api.create(objects.quotas(made.namespace), wanted).ok
        yield made
    finally:
        release.plane.controller_manager.resume()
        made.api.delete(objects.quotas(made.namespace, "q"))


def values(**configuration: Any) -> Values:
    return {"url": NOWHERE, "configuration": configuration}


def waits(printed: str) -> bool:
    return "Then run the same upgrade again." in printed


def test_a_resource_that_is_deferred_is_charged_before_it_is_hidden(release: Release) -> None:
    release.install(values())
    deferred = values(deferredResources=[GPU])
    assert waits(release.upgrade(deferred))
    assert state(release) == State(charged=[GPU])
    assert not waits(release.upgrade(deferred))
    assert state(release) == State(charged=[GPU], hidden=[*COMPUTE, GPU])


def test_a_resource_is_charged_until_every_quota_shows_it(
    release: Release, quota: Incomplete
) -> None:
    release.install(values(deferredResources=[GPU]))
    for _ in range(2):
        assert waits(release.upgrade(values()))
        assert state(release) == State(charged=[GPU])
    quota.complete()
    assert not waits(release.upgrade(values()))
    assert state(release) == State()


def test_a_namespace_is_guarded_until_its_quotas_are_complete(
    release: Release, quota: Incomplete
) -> None:
    release.install(values())
    exempt = values(exemptNamespaces=[quota.namespace])
    spared = [*SHIPPED, quota.namespace]
    for _ in range(2):
        assert waits(release.upgrade(exempt))
        assert state(release) == State(not_hidden_in=spared)
    quota.complete()
    assert not waits(release.upgrade(exempt))
    assert state(release) == State(not_hidden_in=spared, not_guarded=spared)


def test_a_namespace_is_guarded_before_something_is_hidden_in_it(release: Release) -> None:
    release.install(values(exemptNamespaces=["b"]))
    assert waits(release.upgrade(values()))
    assert state(release) == State(not_hidden_in=[*SHIPPED, "b"])
    assert not waits(release.upgrade(values()))
    assert state(release) == State()


# -- removal -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [["--force-conflicts"], ["--server-side=false"]], ids=["as Helm 4", "as Helm 3"]
)
def test_an_upgrade_does_not_end_an_emergency(release: Release, options: list[str]) -> None:
    release.install({})
    command_line.printed(release.plane, "emergency", "open", "--yes")
    before = registrations(release)
    refused = release.upgrade({"image": {"tag": "2"}}, *options, code=1)
    assert "the emergency is open, and guards would be back without a recount" in refused
    assert registrations(release) == before
    command_line.printed(release.plane, "emergency", "close", "--yes", "--force")
    release.upgrade({"image": {"tag": "2"}}, *options)


def test_ledgers_outlive_a_release_and_are_taken_up_again(release: Release) -> None:
    api, place = Api(release.plane.rest), objects.ledger("default")
    release.install(values())
    ledger = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "QuotaLedger"}
    wanted = {**ledger, "metadata": {"name": "ledger"}}
    kind = place.rsplit("/", 1)[0]
    eventually(lambda: api.create(kind, wanted).ok, "the definition is served")
    uid = api.get(place).uid
    assert "quotaledgers.deferredquota.io" in release.run("uninstall")
    assert registrations(release) == []
    assert api.get(place).uid == uid
    release.install(values())
    assert api.get(place).uid == uid
    assert api.delete(place).ok


def test_waiting_as_helm_3_does_is_not_for_a_job_that_never_runs(release: Release) -> None:
    assert "STATUS: deployed" in release.install(values(), "--wait=legacy", "--timeout", "100s")


def test_a_definition_that_another_program_brought_is_left_alone(release: Release) -> None:
    name, group = "elasticquotas.nos.nebuly.com", "nos.nebuly.com"
    api, path = Api(release.plane.rest), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.delete(f"{path}/{name}")
    becomes(lambda: api.get(f"{path}/{name}").code, 404, "it is not there")
    names = {"kind": "ElasticQuota", "plural": "elasticquotas"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    theirs = {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}
    assert api.create(path, {"metadata": {"name": name}, "spec": theirs}).ok
    try:
        release.install(values())
        release.upgrade(values(gating="never"))
        assert f" {name}\n" not in release.run("uninstall")
        assert "labels" not in api.get(f"{path}/{name}").body["metadata"]
    finally:
        api.delete(f"{path}/{name}")


# -- beside scripts/install ----------------------------------------------------------------


def test_a_release_takes_up_what_a_script_installed_and_guards(tmp_path: Path) -> None:
    with a_cluster(tmp_path) as cluster, a_product(cluster, tmp_path / "product") as running:
        release = Release(cluster.plane)
        asked = {"url": running.url, "ca": cluster.ca.read_text()}
        assert "cannot be imported into the current release" in release.install(asked, code=1)
        release.install(asked, "--take-ownership", "--force-conflicts")
        with a_tenant(cluster) as tenant:
            a_quota(tenant, "q", {"requests.cpu": "2"})
            ledger = objects.ledger(tenant.namespace)
            becomes(lambda: tenant.api.get(ledger).code, 200, "there is a ledger")
            for name in ("first", "second"):
                eventually(partial(created, tenant, name), "pods are created above the quota")
            eventually(lambda: tenant.bind("first").ok, "the bind is admitted")
            denial = "exceeded quota: q, requested: requests.cpu=2"
            eventually(lambda: denial in tenant.bind("second").message, "the bind is denied")
            assert tenant.node_of("first")
            assert not tenant.node_of("second")
            assert [
                each for each in command_line.findings(cluster.plane) if each["severity"] != "info"
            ] == []


def created(tenant: Tenant, name: str) -> bool:
    return tenant.create(name, "2").ok
