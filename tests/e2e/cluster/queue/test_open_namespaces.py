"""Namespaces whose gating is `auto`: open while there is plenty, closed when it gets scarce.

Policies decide about new pods, so no webhook is asked when they are created.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.admission.creation import is_gated
from tests.e2e.cluster.elastic.pools import Pool
from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.over_and_over import OverAndOver
from tests.e2e.cluster.product import Product, a_team
from tests.e2e.cluster.shared.sharing import Team
from tests.e2e.cluster.tenant import REAL, Tenant, edited_by_alice
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.state.well_known import CAPACITY_LABEL, GUARDED_ANNOTATION, POD_GATING

GROUP: Final = "/apis/deferredquota.io/v1alpha1"
CPU: Final = "requests.cpu"
PODS: Final = 2000
_SEED: Final = 18

_numbers = itertools.count()


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Product]]:
    """A control plane on which policies decide about new pods, with two controllers."""
    with ControlPlane.start(tmp_path_factory.mktemp("plane")) as plane:
        plane.add_nodes(2, cpu="64", pods=1000)
        directory = tmp_path_factory.mktemp("product")
        with Product.start(plane, directory, controllers=2, creation="policy") as product:
            yield plane, product


@pytest.fixture
def tenant(opened: tuple[ControlPlane, Product]) -> Iterator[Tenant]:
    """A namespace whose gating is `auto`; nothing is left of it at the end."""
    plane, product = opened
    with a_team(plane, f"open-{next(_numbers)}", gating="auto") as tenant:
        yield tenant
        product.restore()


def gating(tenant: Tenant) -> Any:
    """Return what the PodGating of a namespace says; nothing where there is none."""
    path = f"{GROUP}/namespaces/{tenant.namespace}/podgatings/{POD_GATING}"
    return tenant.api.get(path).body.get("spec", {})


def becomes_open(tenant: Tenant, cpu: str) -> None:
    """Wait until pods up to a size go ungated, and the API server knows."""
    becomes(lambda: gating(tenant).get("requests"), {"cpu": cpu}, "the most that goes ungated")
    if Quantity.parse(cpu) > ZERO:
        eventually(lambda: not is_new_gated(tenant, cpu), "the API server goes by it")
    above = str(Quantity.parse(cpu) + Quantity.parse("1m"))
    eventually(lambda: is_new_gated(tenant, above), "the API server gates what is larger")


def is_new_gated(tenant: Tenant, cpu: str = "", *containers: Any, **fields: Any) -> bool:
    """Return whether a pod would be gated."""
    answer = tenant.create("tried", cpu, *containers, dry_run=True, **fields)
    assert answer.ok, str(answer)
    return is_gated(answer.body)


def test_a_pod_goes_ungated_up_to_a_part_of_what_its_quota_leaves(
    opened: tuple[ControlPlane, Product], tenant: Tenant
) -> None:
    _, product = opened
    asked = product.metric("admission_requests_total", phase="mutating")
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    assert is_new_gated(
        tenant,
        "",
        a_container("a", requests={"cpu": "1"}),
        a_container("b", requests={"cpu": "1001m"}),
    )
    assert not is_new_gated(
        tenant, "", a_container("a", requests={"cpu": "1"}), a_container("b", requests={"cpu": "1"})
    )
    assert is_new_gated(tenant, "1", schedulingGates=[{"name": "example.com/hold"}])
    named = {"memory": "1Mi", "ephemeral-storage": "1Mi", "example.com/a": "1"}
    assert not is_new_gated(tenant, "1m", requests=named, limits={"example.com/a": "1"})
    named["example.com/b"] = "1"
    extended = {"example.com/a": "1", "example.com/b": "1"}
    assert is_new_gated(tenant, "1m", requests=named, limits=extended)
    assert is_new_gated(tenant, "1m", limits={"memory": "2e18"}, requests={"memory": "1"})
    many = [a_container(f"c{number}", requests={"cpu": "1m"}) for number in range(9)]
    assert is_new_gated(tenant, "", *many)
    assert not is_new_gated(tenant, "", *many[1:])
    assert product.metric("admission_requests_total", phase="mutating") == asked


def test_a_deadline_brings_no_pod_to_where_its_bind_is_refused_for_good(
    opened: tuple[ControlPlane, Product], tenant: Tenant
) -> None:
    """A scheduler has it, and would evict pods of others for it as long as it stands."""
    plane, _ = opened
    tenant.quota("long", hard={CPU: "8"}, scopes=["NotTerminating"])
    tenant.quota("short", hard={"requests.memory": "8Gi"}, scopes=["Terminating"])
    eventually(lambda: not is_new_gated(tenant, "1"), "the API server goes by the room there is")
    role = ("--clusterrole=edit", "--user=bob", f"--namespace={tenant.namespace}")
    plane.kubectl("create", "rolebinding", "bob", *role)
    bob = Tenant(plane.rest_as("bob", ("devs",)), tenant.namespace)
    eventually(lambda: bob.create("tried", "1", dry_run=True).ok, "bob may create pods")
    assert not is_gated(bob.create("web", "1").body)
    refused = bob.set_deadline("web", 600)
    assert refused.code == 403, str(refused)
    words = "failed quota: short: must specify requests.memory for: "
    assert words in refused.message
    assert is_gated(bob.create("gated", "3").body)  # its gate may be going just now
    assert bob.set_deadline("gated", 600).code == 403
    named = bob.create("named", "1", requests={"memory": "1Mi"})
    assert named.ok, str(named)
    assert bob.set_deadline("named", 600).ok


def test_marks_that_a_tenant_writes_are_taken_away(
    opened: tuple[ControlPlane, Product], tenant: Tenant
) -> None:
    plane, _ = opened
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    alice = edited_by_alice(plane, tenant)
    marks = {
        "annotations": {GUARDED_ANNOTATION: "true", "example.com/own": "true"},
        "labels": {CAPACITY_LABEL: "in-quota", "app": "web"},
    }
    made = alice.create("marked", "1", metadata=marks, dry_run=True)
    assert not is_gated(made.body)
    assert made.body["metadata"]["annotations"] == {"example.com/own": "true"}
    assert made.body["metadata"]["labels"] == {"app": "web"}


def test_a_large_pod_is_gated_and_released_where_it_fits(tenant: Tenant) -> None:
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    large = tenant.pod("large", "5")
    assert is_gated(large.body)
    eventually(lambda: not is_gated(tenant.seen("large").body), "the gate is taken off")
    assert tenant.bind("large", uid=large.uid).ok


def test_a_pod_that_never_fits_closes_nothing_for_others(tenant: Tenant) -> None:
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    assert is_gated(tenant.pod("never", "9").body)
    eventually(lambda: "can never fit" in str(tenant.seen("never").body), "its condition says so")
    assert gating(tenant)["state"] == "Open"
    assert not is_new_gated(tenant, "2")


@pytest.mark.parametrize("amount", ["1e37", "1e400"])
def test_what_cannot_be_counted_waits_where_no_quota_is_deferred(
    tenant: Tenant, amount: str
) -> None:
    becomes(lambda: gating(tenant).get("state"), "Open", "that the namespace is open")
    odd: dict[str, Any] = {"requests": {"cpu": "1"}, "limits": {"cpu": amount}}
    eventually(lambda: is_new_gated(tenant, "", **odd), "the API server gates it")
    assert not is_new_gated(tenant, "1")
    tenant.pod("odd", "", **odd)
    eventually(lambda: "too large to be counted" in str(tenant.seen("odd").body), "it says why")
    assert is_gated(tenant.seen("odd").body)


def test_pods_of_an_elastic_pool_are_gated(opened: tuple[ControlPlane, Product]) -> None:
    """Others may borrow all of it before a pod has its node; reclaim is for gated pods only."""
    plane, _ = opened
    pool = Pool(plane, {"a": {"min": {"cpu": 16}}, "b": {"min": {"cpu": 1}}}, gating="auto")
    try:
        owner = pool.teams["a"]
        becomes_open(owner, "0")
        assert gating(owner)["reason"] == f"elastic pool {pool.name}: its owners come first"
        assert is_gated(owner.pod("a0", "100m").body)
        eventually(lambda: not is_gated(owner.seen("a0").body), "there is room for it")
        assert not is_new_gated(owner, "", requests={"memory": "1Gi"})
    finally:
        pool.close()


def test_a_quota_of_nothing_gates_only_those_that_ask_for_it(tenant: Tenant) -> None:
    tenant.quota(hard={CPU: "8", "requests.memory": "0"})
    becomes(lambda: gating(tenant).get("requests"), {"cpu": "2", "memory": "0"}, "the limits")
    eventually(lambda: not is_new_gated(tenant, "1", requests={"memory": "0"}), "none is asked for")
    eventually(lambda: is_new_gated(tenant, "1", requests={"memory": "1"}), "some is asked for")


def test_a_namespace_that_is_gated_otherwise_loses_what_is_said(tenant: Tenant) -> None:
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    path = f"/api/v1/namespaces/{tenant.namespace}"
    label = {"metadata": {"labels": {objects.GATING_LABEL: "always"}}}
    assert tenant.api.patch(path, label).ok
    becomes(lambda: gating(tenant), {}, "what was said is gone")
    eventually(lambda: is_new_gated(tenant, "1"), "all pods are gated")


def test_what_people_or_others_write_is_written_again(tenant: Tenant) -> None:
    tenant.quota(hard={CPU: "8"})
    becomes_open(tenant, "2")
    path = f"{GROUP}/namespaces/{tenant.namespace}/podgatings/{POD_GATING}"
    assert tenant.api.patch(path, {"spec": {"requests": {"cpu": "8"}}}).ok
    becomes_open(tenant, "2")
    assert tenant.api.delete(path).ok
    becomes_open(tenant, "2")


def test_cluster_quotas_open_and_close_too(opened: tuple[ControlPlane, Product]) -> None:
    plane, _ = opened
    team = Team(plane, 2, gating="auto")
    try:
        team.share("16")
        first, second = team.tenants
        for one in team.tenants:
            becomes_open(one, "2")
        taken = first.pod("taken", "15")
        eventually(lambda: not is_gated(first.seen("taken").body), "it is released")
        assert first.bind("taken", uid=taken.uid).ok
        for one in team.tenants:
            becomes_open(one, "0")
        assert gating(second)["state"] == "Closed"
        first.api.delete(objects.pods(first.namespace, "taken"), grace_seconds=0)
        for one in team.tenants:
            becomes_open(one, "2")
    finally:
        team.close()


# -- a namespace fills, closes, empties and opens ---------------------------------------------


class Filling(OverAndOver):
    """Creates pods of 250m for the real scheduler."""

    def __init__(self, tenant: Tenant) -> None:
        self.made: list[Answer] = []
        self._tenant = tenant
        super().__init__([self._create])

    def _create(self) -> None:
        name = f"pod-{len(self.made)}"
        made = self._tenant.create(name, "250m", schedulerName=REAL)
        assert made.ok, str(made)
        self.made.append(made)

    @property
    def gated(self) -> int:
        """How many were created with a gate."""
        return sum(is_gated(one.body) for one in self.made)


def bound(tenant: Tenant) -> list[str]:
    """Return the names of the pods that have a node and have not ended."""
    found = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return [
        one["metadata"]["name"]
        for one in found
        if one["spec"].get("nodeName") and one["status"].get("phase") != "Succeeded"
    ]


@pytest.mark.timeout(300)
def test_a_namespace_fills_closes_empties_and_opens_while_leaders_change(
    opened: tuple[ControlPlane, Product], tenant: Tenant
) -> None:
    _, product = opened
    tenant.quota(hard={CPU: "8"})  # 32 pods
    becomes_open(tenant, "2")
    with Filling(tenant) as filling:
        eventually(lambda: gating(tenant)["state"] == "Closed", "the namespace closes")
        product.controller.kill()  # it may lead, or the other one does
        eventually(lambda: filling.gated > 10, "new pods are gated")
        eventually(lambda: len(bound(tenant)) == 32, "the quota is taken", 60)
    assert filling.gated < len(filling.made)
    for name in bound(tenant):
        tenant.api.delete(objects.pods(tenant.namespace, name), grace_seconds=0)
    left = len(filling.made) - 32
    eventually(lambda: len(bound(tenant)) == min(left, 32), "what waited is bound", 60)
    tenant.clear()
    becomes_open(tenant, "2")


# -- the policy and the rule ------------------------------------------------------------------


def _random_pod(chance: random.Random, number: int) -> dict[str, Any]:
    amounts = ["0", "1m", "100m", "0.25", "500m", "1", "1500m", "2"]
    memory = ["0", "1Mi", "64Mi", "1e8", "256Mi"]
    count = chance.choice([1, 1, 2, 3, 8, 9])

    def container(name: str, **fields: Any) -> dict[str, Any]:
        requests = {"cpu": chance.choice(amounts), "memory": chance.choice(memory)}
        limits = {"cpu": "2"} if chance.random() < 0.3 else {}
        return {
            "name": name,
            "image": "i",
            "resources": {"requests": requests, "limits": limits},
            **fields,
        }

    spec: dict[str, Any] = {
        "schedulerName": "nobody",
        "containers": [container(f"c{each}") for each in range(count)],
    }
    if chance.random() < 0.3:
        spec["initContainers"] = [container("init")]
    if chance.random() < 0.1:
        spec["schedulingGates"] = [{"name": "example.com/hold"}]
    return {"metadata": {"name": f"random-{number}"}, "spec": spec}


def _is_large(pod: dict[str, Any], most: dict[str, str]) -> bool:
    spec = pod["spec"]
    every = [*spec["containers"], *spec.get("initContainers", [])]
    asked = {
        name: sum((Quantity.parse(one["resources"]["requests"][name]) for one in every), ZERO)
        for name in most
    }
    exceeds = any(asked[name] > Quantity.parse(amount) for name, amount in most.items())
    return exceeds or len(every) > 8 or bool(spec.get("schedulingGates"))


@pytest.mark.timeout(300)
def test_the_policy_sums_as_it_says(tenant: Tenant, capsys: pytest.CaptureFixture[str]) -> None:
    tenant.quota(hard={CPU: "8", "requests.memory": "1Gi"})
    most = {"cpu": "2", "memory": "256Mi"}
    becomes(lambda: gating(tenant).get("requests"), most, "the limits")
    eventually(lambda: not is_new_gated(tenant, "2", requests={"memory": "0"}), "they hold")
    chance = random.Random(_SEED)  # noqa: S311 - the same cases at every run
    pods = [_random_pod(chance, number) for number in range(PODS)]
    path = objects.pods(tenant.namespace)
    found = [tenant.api.create(path, pod, dry_run=True) for pod in pods]
    wrong = [
        f"{pod}: {answer}"
        for pod, answer in zip(pods, found, strict=True)
        if not answer.ok or is_gated(answer.body) != _is_large(pod, most)
    ]
    gated = sum(is_gated(one.body) for one in found if one.ok)
    with capsys.disabled():
        print(f"\n{len(pods)} random pods, {gated} of them gated, {len(wrong)} differences")
    assert not wrong, wrong[:3]
    assert PODS / 10 < gated < PODS * 9 / 10
