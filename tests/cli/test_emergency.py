"""`deferred-quota emergency`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from tests.cli.clusters import kubeconfig_of, write_kubeconfig
from tests.operations.healthy import edit, healthy
from tests.operations.scenes import a_gated_pod, a_namespace, load, status_of
from webhook.cli import ExitCode, cli
from webhook.cli.emergency import running
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import LEASES, NAMESPACES, QUOTA_LEDGERS, VALIDATING_WEBHOOKS
from webhook.operations.retry import RetryPolicy
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE, REGISTRATION


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def run(cluster: FakeCluster, directory: Path, *args: str) -> Done:
    with kubeconfig_of(cluster, directory) as kubeconfig:
        command = [*args[:1], "--kubeconfig", str(kubeconfig), *args[1:]]
        done = CliRunner().invoke(cli, ["emergency", *command])
        return Done(done.exit_code, done.stdout, done.stderr)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for caches of the API server, of which a fake one has none, for a moment only."""
    monkeypatch.setattr(running, "RetryPolicy", partial(RetryPolicy, settle_seconds=0.01))


def since(cluster: FakeCluster) -> str:
    registration: Any = FakeClient(cluster).get(VALIDATING_WEBHOOKS, REGISTRATION)
    found = registration["metadata"]["annotations"].get("deferredquota.io/emergency-since", "")
    return str(found)


def test_it_says_what_it_does_before_it_does_it(tmp_path: Path) -> None:
    cluster = healthy()
    load(cluster, a_gated_pod("waits"))
    done = run(cluster, tmp_path, "open")
    assert done.exit_code == ExitCode.OK
    told = done.stderr.splitlines()
    assert told[0].startswith("disable webhooks and mask: bind.deferredquota.io, assigned.")
    names = told[0].partition("mask: ")[2].split(", ")
    assert len(set(names)) == len(names)
    assert told[1] == "complete the status of all quotas in the opted-in namespaces: team-a"
    assert told[2].startswith("quotas of several namespaces are not enforced")
    assert told[3] == "ValidatingWebhookConfiguration deferred-quota: selects no namespace"
    assert done.stdout == (
        "team-a: its quotas are native; status completed: p1\n"
        "  pods that stay gated: 1; they count in the quotas; a controller or --release-gates"
        " removes their gates\n"
        f"the emergency is open since {since(cluster)}; end it with: deferred-quota emergency"
        " close\n"
    )


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    cluster = healthy()
    before = cluster.resource_version
    done = run(cluster, tmp_path, "open", "--dry-run")
    assert done.exit_code == ExitCode.OK
    assert done.stderr.startswith("would disable webhooks and mask: bind.deferredquota.io")
    assert done.stdout == (
        "team-a: its quotas are native; status would be completed: p1\n"
        "dry run: nothing was changed\n"
    )
    assert cluster.resource_version == before
    run(cluster, tmp_path, "open")
    before = cluster.resource_version
    done = run(cluster, tmp_path, "close", "--dry-run", "--force")
    assert "would delete and recount the ledgers of: team-a" in done.stderr
    assert cluster.resource_version == before


def test_to_open_twice_is_no_error(tmp_path: Path) -> None:
    cluster = healthy()
    run(cluster, tmp_path, "open")
    done = run(cluster, tmp_path, "open", "-o", "json")
    assert done.exit_code == ExitCode.OK
    found = json.loads(done.stdout)
    assert (found["changed"], found["since"]) == (0, since(cluster))
    assert f"the emergency is open since {since(cluster)}" in done.stderr


def test_guards_stay_away_while_nothing_would_count(tmp_path: Path) -> None:
    cluster = healthy()
    run(cluster, tmp_path, "open")
    FakeClient(cluster).delete(LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    done = run(cluster, tmp_path, "close", "--dry-run")
    assert done.exit_code == ExitCode.FINDINGS
    assert "[leader.missing]" in done.stderr
    assert since(cluster)
    assert FakeClient(cluster).list(QUOTA_LEDGERS).items


def test_with_force_it_closes_with_the_api_server_alone(tmp_path: Path) -> None:
    cluster = healthy()
    run(cluster, tmp_path, "open")
    assert cast("Any", status_of(FakeClient(cluster)))["hard"]["requests.cpu"] == "4"
    done = run(cluster, tmp_path, "close", "--force")
    assert done.exit_code == ExitCode.OK
    assert done.stdout.startswith("the webhooks are enabled; nothing is bound")
    assert not since(cluster)
    assert not FakeClient(cluster).list(QUOTA_LEDGERS).items


def test_to_close_what_is_not_open_only_looks(tmp_path: Path) -> None:
    cluster = healthy()
    before = cluster.resource_version
    done = run(cluster, tmp_path, "close", "-o", "json")
    assert done.exit_code == ExitCode.OK
    assert "the emergency is not open" in done.stderr
    assert json.loads(done.stdout)["recounted"] == 0
    assert cluster.resource_version == before


@pytest.mark.parametrize(
    ("args", "namespaces"), [((), "team-a: counted, and its quotas masked\n"), (("--force",), "")]
)
def test_what_was_not_open_is_not_closed(
    tmp_path: Path, args: tuple[str, ...], namespaces: str
) -> None:
    """Nothing is said of binds: whether the webhook is reached was not looked at."""
    done = run(healthy(), tmp_path, "close", *args)
    assert done.exit_code == ExitCode.OK
    assert done.stdout == (
        f"{namespaces}the emergency was not open, nothing was changed; to check the webhook,"
        " run: deferred-quota doctor\n"
    )


def test_where_nothing_is_registered_nothing_is_opened(tmp_path: Path) -> None:
    cluster = FakeCluster()
    load(cluster, a_namespace("default", mode=""))
    done = run(cluster, tmp_path, "open")
    assert done.exit_code == ExitCode.FINDINGS
    assert "no webhook of deferred-quota is registered" in done.stderr
    assert "default" in str(FakeClient(cluster).get(NAMESPACES, "default"))


def test_a_registration_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    cluster = healthy()

    def odd(registration: Any) -> None:
        registration["webhooks"] = [{"name": "bind.deferredquota.io", "namespaceSelector": "x"}]

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, odd)
    done = run(cluster, tmp_path, "open")
    assert done.exit_code == ExitCode.FINDINGS
    assert "namespaceSelector: must be an object" in done.stderr


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    command = ["emergency", "open", "--kubeconfig", str(kubeconfig), "--wait", "0"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == ExitCode.UNREACHABLE
