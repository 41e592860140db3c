"""Administrators opt namespaces in and out, and look the cluster over."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.command_line import run
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.cli import ExitCode, cli
from webhook.quota.amounts.quantity import Quantity
from webhook.state.well_known import SCHEDULING_GATE

HARD = {"requests.cpu": "4", "pods": "999"}
GATED = [{"name": SCHEDULING_GATE}]


def status(team: Tenant) -> dict[str, Any]:
    found = team.api.get(f"/api/v1/namespaces/{team.namespace}/resourcequotas/p1").body
    return dict(found.get("status", {}))


@pytest.fixture
def team(plain: Tenant) -> Tenant:
    """A namespace that has not opted in, with a quota that the platform has counted."""
    plain.quota(hard=HARD, is_deferred=False)
    return plain


def test_a_namespace_goes_in_and_out(plane: ControlPlane, product: Product, team: Tenant) -> None:
    team.pod("runs", "1")
    assert team.bind("runs").ok
    team.pod("waits", "3")
    assert "exceeded quota" in team.create("too-much", "1").message

    planned = run(plane, "enable", team.namespace, "--dry-run", "-o", "json")
    assert planned.exit_code == ExitCode.OK, planned.output
    (entry,) = json.loads(planned.stdout)["namespaces"]
    numbers = entry["quotas"][0]["deferred"]["requests.cpu"]
    assert numbers == {"hard": "4", "usedNow": "4", "usedAtBind": "1", "freed": "3"}
    assert set(status(team)["hard"]) == set(HARD)

    enabled = run(plane, "enable", team.namespace)
    assert enabled.exit_code == ExitCode.OK, enabled.output
    assert set(status(team)["hard"]) == {"pods"}
    team.pod("more", "3")  # the platform lets it wait
    assert team.bind("waits").ok
    assert "exceeded quota: p1" in team.bind("more").message
    again = run(plane, "enable", team.namespace)
    assert "was opted in already, and is in force" in again.stdout, again.output

    team.pod("gated", "1", schedulingGates=GATED)
    disabled = run(plane, "disable", team.namespace)
    assert disabled.exit_code == ExitCode.OK, disabled.output
    assert "over quota now: p1: used: requests.cpu=8, limited: requests.cpu=4" in disabled.stdout
    assert status(team) == {"hard": HARD, "used": {"requests.cpu": "8", "pods": "4"}}
    assert not team.seen("gated").body["spec"].get("schedulingGates")
    assert "exceeded quota: p1" in team.create("native", "1").message
    assert product.webhooks


def test_a_pod_that_should_be_gone_is_counted_as_the_platform_counts_it(
    plane: ControlPlane, product: Product, team: Tenant
) -> None:
    """Its kubelet does not end it; twice its grace period later it is charged no more."""
    assert run(plane, "enable", team.namespace).exit_code == ExitCode.OK
    team.bound("runs", "1")
    team.bound("stuck", "3")
    product.controller.pause()  # which counts too, and would be faster
    team.delete("stuck", grace_seconds=1)
    metadata = team.seen("stuck").body["metadata"]
    ended = datetime.fromisoformat(metadata["deletionTimestamp"])
    charged_until = ended + timedelta(seconds=metadata["deletionGracePeriodSeconds"])
    eventually(lambda: datetime.now(UTC) > charged_until + timedelta(seconds=1), "it is stuck")
    planned = run(plane, "enable", team.namespace, "--dry-run", "--force", "-o", "json")
    (entry,) = json.loads(planned.stdout)["namespaces"]
    assert entry["quotas"][0]["deferred"]["requests.cpu"]["usedAtBind"] == "1"
    disabled = run(plane, "disable", team.namespace)
    assert disabled.exit_code == ExitCode.OK, disabled.output
    assert status(team)["used"]["requests.cpu"] == "1"
    assert team.create("more", "3").ok


def test_under_load_nothing_is_left_behind(plane: ControlPlane, team: Tenant) -> None:
    """Pods that wait behind our gate come all the time; some of them after the label went."""
    assert run(plane, "enable", team.namespace).exit_code == ExitCode.OK
    stop = threading.Event()
    created: list[str] = []
    refused: list[str] = []

    def create(worker: int) -> None:
        turn = 0
        while not stop.is_set():
            name = f"pod-{worker}-{turn}"
            is_late = turn > 15
            answer = team.create(name, "10m", schedulingGates=None if is_late else GATED)
            (created if answer.ok else refused).append(name)
            turn += 1

    workers = [threading.Thread(target=create, args=(number,)) for number in range(3)]
    for worker in workers:
        worker.start()
    try:
        becomes(lambda: len(created) > 10, True, "pods are being created")
        result = run(plane, "disable", team.namespace)
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert result.exit_code == ExitCode.OK, result.output
    pods = team.api.get(objects.pods(team.namespace)).body["items"]
    assert [one["metadata"]["name"] for one in pods if one["spec"].get("schedulingGates")] == []
    used = status(team)["used"]
    assert Quantity.parse(used["requests.cpu"]) >= Quantity.parse(f"{10 * len(pods)}m")
    assert int(used["pods"]) >= len(pods)


def test_the_doctor_finds_nothing_wrong(
    plane: ControlPlane, product: Product, namespace: str
) -> None:
    tenant = Tenant(plane.rest, namespace)
    tenant.quota(hard=HARD)
    tenant.pod("web", "1")
    becomes(lambda: tenant.bind("web").ok, True, "the pod is bound")
    tenant.settles()
    result = run(plane, "doctor", namespace, "-o", "json")
    assert (tenant.charged(), tenant.promised()) == ("1", []), "what it tries charges nothing"
    found = json.loads(result.stdout)
    serious = [one for one in found["findings"] if one["severity"] != "info"]
    assert serious == []
    assert result.exit_code == ExitCode.OK
    assert found["skipped"] == []

    where = f"--namespace={namespace}"
    plane.kubectl("create", "role", "binder", "--verb=create", "--resource=pods/binding", where)
    plane.kubectl("create", "rolebinding", "binder", "--role=binder", "--user=eve", where)
    product.controller.pause()
    for webhook in product.webhooks:
        webhook.kill()
    sick = run(plane, "doctor", namespace, "-o", "json")
    told = {one["id"]: one["message"] for one in json.loads(sick.stdout)["findings"]}
    assert {"leader.silent", "rights.bind", "webhooks.silent"} <= told.keys()
    begins = (
        "bind.deferredquota.io does not answer: Internal error occurred: failed calling webhook"
    )
    assert told["webhooks.silent"].startswith(begins)
    assert sick.exit_code == ExitCode.FINDINGS


def test_a_user_that_may_read_nothing_learns_which_rights_are_missing(
    plane: ControlPlane, namespace: str
) -> None:
    kubeconfig = str(plane.kubeconfig("alice", groups=("devs",)))
    result = CliRunner().invoke(cli, ["doctor", "--kubeconfig", kubeconfig, "-o", "json"])
    found = json.loads(result.stdout)
    told = {one["message"] for one in found["findings"] if one["id"] == "check.forbidden"}
    assert any(words.endswith("you may not list namespaces") for words in told)
    assert not [one for one in found["findings"] if one["id"] == "check.failed"]
    for command in ("enable", "disable"):
        refused = CliRunner().invoke(cli, [command, "--kubeconfig", kubeconfig, namespace])
        assert refused.exit_code in {ExitCode.FINDINGS, ExitCode.DRIFT}, refused.output
        assert "namespaces" in refused.output
