"""Pods that wait for quota say why, beside what the scheduler says, on a real control plane."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.product import SYSTEM, Product, a_team
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import cli
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import (
    RESERVED,
)
from webhook.state.well_known import LEADER_LEASE

RELEASED = ("True", "Reserved", RESERVED.text)
NUMBERS = (
    "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: requests.cpu=2"
)
GATED = (
    "False",
    "SchedulingGated",
    "Scheduling is blocked due to non-empty scheduling gates",
)

_numbers = itertools.count()


@pytest.fixture
def team(plane: ControlPlane, product: Product) -> Iterator[Tenant]:
    """A namespace whose pods are gated, with a quota of 2 cpu."""
    assert product.webhooks
    with a_team(plane, f"e2e-reasons-{next(_numbers)}", gating="always") as tenant:
        tenant.quota()
        yield tenant


def says(team: Tenant, pod: str) -> tuple[str, str, str]:
    return team.condition(pod, QUOTA_RESERVED)


def conditions(team: Tenant, pod: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = team.seen(pod).body["status"]["conditions"]
    return found


def crowd(team: Tenant, *names: str, **fields: Any) -> None:
    for name in names:
        team.pod(name, "1", **fields)


def test_a_waiting_pod_says_why_and_in_which_place_it_is(team: Tenant) -> None:
    crowd(team, "a", "b", "c", "d")
    becomes(lambda: says(team, "c")[2], f"{NUMBERS}; place 1 of 2", "what the first says")
    assert says(team, "c")[:2] == ("False", "QuotaExceeded")
    behind = f"{NUMBERS}; waits behind pod c, which needs quota p1; place 2 of 2"
    becomes(lambda: says(team, "d"), ("False", "Behind", behind), "what the second says")
    assert team.condition("c") == GATED  # the scheduler's own word
    kinds = [one["type"] for one in conditions(team, "d")]
    assert sorted(kinds) == ["PodScheduled", QUOTA_RESERVED]


def test_one_that_can_never_fit_says_so(team: Tenant) -> None:
    team.pod("large", "3")
    never = (
        "exceeded quota: p1, requested: requests.cpu=3, used: requests.cpu=0,"
        " limited: requests.cpu=2; the pod asks for more than the limit of quota p1 and can never"
        " fit"
    )
    becomes(lambda: says(team, "large"), ("False", "NeverFits", never), "what it says")


def test_every_quota_is_named_and_the_numbers_stand_beside_other_gates(team: Tenant) -> None:
    team.quota("p2", hard={"requests.cpu": "2", "limits.cpu": "2"})
    for name in ("a", "b", "c"):
        team.pod(name, "1", limits={"cpu": "1"})
    second = (
        "exceeded quota: p2, requested: limits.cpu=1,requests.cpu=1,"
        " used: limits.cpu=2,requests.cpu=2, limited: limits.cpu=2,requests.cpu=2"
    )
    words = f"{NUMBERS}; {second}"
    becomes(lambda: says(team, "c")[2], f"{words}; place 1 of 1", "what it says of both quotas")
    team.pod("held", "1", limits={"cpu": "1"}, schedulingGates=[{"name": "example.com/hold"}])
    others = "waits for other scheduling gates first: example.com/hold"
    becomes(lambda: says(team, "held"), ("False", "OtherGates", f"{words}; {others}"), "both")


def test_the_doctor_tells_since_when_nothing_is_renewed(
    team: Tenant, plane: ControlPlane, product: Product
) -> None:
    crowd(team, "a", "b", "c")
    becomes(lambda: says(team, "c")[0], "False", "it waits")
    for controller in product.controllers:
        controller.kill()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/{LEADER_LEASE}"
    renewed = team.api.get(lease).body["spec"]["renewTime"]
    arguments = ["doctor", team.namespace, "--kubeconfig", str(plane.kubeconfig()), "-o", "json"]
    done = CliRunner().invoke(cli, arguments)
    findings = {one["id"]: one for one in json.loads(done.stdout)["findings"]}
    assert "leader.silent" in findings
    stale = findings["conditions.stale"]
    assert f"is not renewed after {renewed}, when the leader last renewed" in stale["message"]
    assert f"{team.namespace}/c" in stale["details"]
    product.restore()
    team.delete("a")
    becomes(lambda: says(team, "c"), RELEASED, "the next leader goes on", 60)


def test_a_released_pod_says_that_quota_is_reserved(team: Tenant) -> None:
    crowd(team, "a", "b", "c")
    becomes(lambda: says(team, "a"), RELEASED, "no node has taken it")
    becomes(lambda: says(team, "c")[0], "False", "there is no room for it")
    (before,) = (one for one in conditions(team, "c") if one["type"] == QUOTA_RESERVED)
    team.delete("a")
    becomes(lambda: says(team, "c"), RELEASED, "there is room for it")
    (after,) = (one for one in conditions(team, "c") if one["type"] == QUOTA_RESERVED)
    assert after["lastTransitionTime"] >= before["lastTransitionTime"]


def test_one_that_has_its_node_does_not_go_on_to_say_that_it_waits(team: Tenant) -> None:
    crowd(team, "a", "b", "c", schedulerName=REAL)
    becomes(lambda: says(team, "c")[0], "False", "there is no room for it")
    team.finish("a")
    eventually(lambda: team.node_of("c"), "it has its node")
    becomes(lambda: says(team, "c"), RELEASED, "what it says on its node")
    assert team.condition("c")[0] == "True"


def test_a_pod_gets_one_event_when_it_waits_and_one_when_it_is_released(team: Tenant) -> None:
    crowd(team, "a", "b", "c")
    eventually(lambda: team.events("QuotaExceeded"), "an event that it waits")
    team.delete("a")
    eventually(lambda: team.events("QuotaReserved"), "an event that it is released")
    assert team.events("QuotaExceeded") == [NUMBERS]
    assert team.events("QuotaReserved") == [RESERVED.text]


def test_a_user_that_takes_the_gate_off_takes_the_condition_off_too(team: Tenant) -> None:
    team.pod("large", "3")
    becomes(lambda: says(team, "large")[0], "False", "it waits")
    gone = {"spec": {"schedulingGates": None}}
    assert team.api.patch(objects.pods(team.namespace, "large"), gone).ok
    becomes(lambda: says(team, "large"), ("", "", ""), "what it says without the gate")
    assert [one["type"] for one in conditions(team, "large")] == ["PodScheduled"]


def test_the_next_leader_keeps_what_is_said(team: Tenant, product: Product) -> None:
    crowd(team, "a", "b", "c")
    becomes(lambda: says(team, "c")[0], "False", "it waits")
    version = team.seen("c").version
    for controller in product.controllers:
        controller.kill()
    product.restore()
    team.pod("d", "1")
    becomes(lambda: says(team, "d")[0], "False", "the next leader writes")
    assert team.seen("c").version == version
    team.delete("a")
    becomes(lambda: says(team, "c"), RELEASED, "it is put right")
