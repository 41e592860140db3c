"""`deferred-quota enable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_quota
from tests.cli.clusters import kubeconfig_of
from tests.cli.many import (
    IMPATIENT,
    MANY,
    a_client,
    a_cluster_with_a_candidate,
    changes_meet,
    opting,
)
from tests.operations.healthy import (
    a_controller,
    edit,
    healthy,
    remove,
)
from tests.operations.scenes import (
    NAMESPACE,
    a_namespace,
    a_terminating_namespace,
    labels_of,
    load,
)
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import fail, for_name
from webhook.cli import ExitCode, cli
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    LEASES,
    NAMESPACES,
    QUOTA_LEDGERS,
    VALIDATING_WEBHOOKS,
    ApiError,
    ForbiddenError,
    UnauthorizedError,
    UnreachableError,
)
from webhook.state.well_known import DEFAULT_NAMESPACE, LEADER_LEASE, MODE_LABEL, REGISTRATION

PLAN = """\
NAMESPACE  QUOTA  RESOURCE       HARD  USED NOW  AT THE BIND  FREED
team-b     p1     requests.cpu      4         3            1      2
team-b     p1     pods          stays
"""


@pytest.mark.parametrize("mode", ["", "deferred"])
def test_a_namespace_that_is_being_deleted_is_not_waited_for(
    mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = healthy()
    load(cluster, a_terminating_namespace("team-b", mode), a_quota("p1", namespace="team-b"))
    api = a_client(cluster)
    api.on("patch", NAMESPACES, fail(AssertionError("the label is set")))
    code = opting(cluster, api=api).run(["team-b"], dry_run=False, force=False, output="text")
    output = "".join(capsys.readouterr())
    assert code == (ExitCode.DRIFT if mode else ExitCode.FINDINGS)
    assert "is being terminated" in output
    assert "waiting" not in output


def test_a_namespace_is_opted_in_and_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    with a_controller(cluster):
        code = opting(cluster).run(["team-b"], dry_run=False, force=False, output="text")
        first = capsys.readouterr()
        again = opting(cluster).run(["team-b"], dry_run=False, force=False, output="text")
        second = capsys.readouterr()
    assert (code, again) == (ExitCode.OK, ExitCode.OK)
    assert first.out == PLAN + "team-b: opted in\n"
    assert first.err == ""
    assert second.out.endswith("team-b: was opted in already, and is in force\n")
    assert labels_of(FakeClient(cluster), "team-b")[MODE_LABEL] == "deferred"


def test_a_dry_run_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    code = opting(cluster).run(["team-b"], dry_run=True, force=False, output="text")
    assert code == ExitCode.OK
    assert capsys.readouterr().out == PLAN + "team-b: would be opted in\n"
    assert MODE_LABEL not in labels_of(FakeClient(cluster), "team-b")


def test_a_controller_that_is_slow_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    code = opting(cluster, IMPATIENT).run(["team-b"], dry_run=False, force=False, output="text")
    assert code == ExitCode.DRIFT
    told = capsys.readouterr()
    assert told.out.endswith("team-b: opted in, but not in force yet; run this again to check\n")
    assert "team-b: quota p1: its status still shows requests.cpu\n" in told.err


def test_a_missing_controller_stands_in_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    code = opting(cluster).run(["team-b"], dry_run=False, force=False, output="text")
    told = capsys.readouterr()
    assert code == ExitCode.FINDINGS
    assert "[leader.missing]" in told.err
    assert "kubectl get pods -n deferred-quota-system" in told.err
    assert told.out.endswith("not opted in, because of the errors above\n")
    assert MODE_LABEL not in labels_of(FakeClient(cluster), "team-b")
    forced = opting(cluster, IMPATIENT).run(["team-b"], dry_run=False, force=True, output="text")
    assert forced == ExitCode.DRIFT
    assert labels_of(FakeClient(cluster), "team-b")[MODE_LABEL] == "deferred"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_namespace_that_has_the_label_is_not_said_to_be_not_opted_in(
    capsys: pytest.CaptureFixture[str], dry_run: bool
) -> None:
    cluster = a_cluster_with_a_candidate()
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    opting(cluster, IMPATIENT).run(["team-b"], dry_run=False, force=True, output="text")
    capsys.readouterr()
    code = opting(cluster).run(["team-b"], dry_run=dry_run, force=False, output="text")
    told = capsys.readouterr()
    assert code == ExitCode.DRIFT
    assert "Start a controller" in told.err
    assert told.out.endswith(
        "team-b: opted in (the label is set), but not in force: fix the errors above and run this"
        " again, or run: deferred-quota disable team-b\n"
    )


def test_one_refused_namespace_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_cluster_with_a_candidate()
    load(cluster, a_namespace("kube-public", mode=""))
    code = opting(cluster, IMPATIENT).run(
        ["kube-public", "team-b"], dry_run=False, force=True, output="json"
    )
    found: Any = json.loads(capsys.readouterr().out)
    assert code == ExitCode.FINDINGS
    assert [(one["namespace"], one["refused"]) for one in found["namespaces"]] == [
        ("kube-public", True),
        ("team-b", False),
    ]
    assert MODE_LABEL not in labels_of(FakeClient(cluster), "kube-public")


def run(cluster: FakeCluster, directory: Path, *args: str) -> Result:
    with kubeconfig_of(cluster, directory) as kubeconfig:
        return CliRunner().invoke(cli, ["enable", "--kubeconfig", str(kubeconfig), *args])


def test_over_http_programs_get_all_of_it(tmp_path: Path) -> None:
    cluster = a_cluster_with_a_candidate()
    remove(cluster, LEASES, LEADER_LEASE, namespace=DEFAULT_NAMESPACE)
    result = run(cluster, tmp_path, "team-b", "--dry-run", "--force", "-o", "yaml")
    assert result.exit_code == ExitCode.OK, result.output
    found: Any = yaml.safe_load(result.stdout)
    assert "leader.missing" in [one["id"] for one in found["installation"]]
    (entry,) = found["namespaces"]
    assert entry["quotas"] == [
        {
            "name": "p1",
            "excluded": False,
            "stays": ["pods"],
            "deferred": {
                "requests.cpu": {
                    "hard": "4",
                    "usedNow": "3",
                    "usedAtBind": "1",
                    "freed": "2",
                }
            },
        }
    ]
    assert (entry["labelSet"], entry["missing"], entry["findings"]) == (False, [], [])


def test_remedies_follow_the_configuration(tmp_path: Path) -> None:
    cluster = a_cluster_with_a_candidate()
    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, lose_ca)
    config = tmp_path / "config.yaml"
    head = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    config.write_text(f"{head}certificates: {{rotate: false}}\n", encoding="utf-8")
    result = run(cluster, tmp_path, "team-b", "--dry-run", "--config", str(config))
    assert "[webhooks.ca]" in result.stderr
    assert "Run scripts/install, which writes the CA" in result.stderr
    assert "The controller that leads writes it" not in result.stderr


def lose_ca(registration: dict[str, Any]) -> None:
    for entry in registration["webhooks"]:
        del entry["clientConfig"]["caBundle"]


def test_a_snapshot_can_be_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    objects = [a_namespace(mode=""), a_quota("p1", used={"requests.cpu": "0"})]
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    arguments = ["enable", NAMESPACE, "--snapshot", str(path)]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "add --dry-run" in refused.stderr
    result = CliRunner().invoke(cli, [*arguments, "--dry-run"])
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stdout.endswith("team-a: would be opted in\n")


def test_many_are_opted_in_side_by_side_and_reported_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = healthy()
    load(cluster, *(a_namespace(name, mode="") for name in MANY))
    code = opting(cluster, api=changes_meet(a_client(cluster))).run(
        MANY[::-1], dry_run=False, force=False, output="text"
    )
    assert code == ExitCode.OK
    assert capsys.readouterr().out == "".join(f"{name}: opted in\n" for name in MANY[::-1])


REFUSALS: dict[str, tuple[Any, bool, ExitCode | type[Exception], str]] = {
    "that may not be opted in": (
        ForbiddenError("hands off"),
        False,
        ExitCode.FINDINGS,
        "not opted in: hands off",
    ),
    "that could not be": (
        ForbiddenError("hands off"),
        True,
        ExitCode.FINDINGS,
        "cannot be opted in: hands off",
    ),
    "of which nobody answers": (
        UnreachableError("gone"),
        False,
        UnreachableError,
        "not opted in: gone",
    ),
    "as nobody that the cluster knows": (
        UnauthorizedError("who?"),
        False,
        UnauthorizedError,
        "not opted in: who?",
    ),
}


@pytest.mark.parametrize(("error", "dry_run", "end", "words"), REFUSALS.values(), ids=REFUSALS)
def test_one_namespace(
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    dry_run: bool,
    end: ExitCode | type[Exception],
    words: str,
) -> None:
    cluster = healthy()
    load(cluster, *(a_namespace(name, mode="") for name in MANY[:2]))
    api = a_client(cluster)
    api.on("patch", "*", for_name("team-01", fail(error)))
    try:
        found: object = opting(cluster, api=api).run(
            MANY[:2], dry_run=dry_run, force=False, output="text"
        )
    except ApiError as err:
        found = type(err)
    assert found == end
    first = "would be opted in" if dry_run else "opted in"
    assert capsys.readouterr().out == f"team-00: {first}\nteam-01: {words}\n"


def test_what_cannot_be_seen_after_the_label_is_set_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = a_cluster_with_a_candidate()
    api = a_client(cluster)
    api.on("get", QUOTA_LEDGERS, fail(ForbiddenError("you cannot get ledgers")))
    code = opting(cluster, IMPATIENT, api=api).run(
        ["team-b"], dry_run=False, force=False, output="json"
    )
    (entry,) = json.loads(capsys.readouterr().out)["namespaces"]
    assert (code, entry["labelSet"]) == (ExitCode.FINDINGS, True)
    assert entry["error"] == "you cannot get ledgers"


def test_namespaces_that_opt_in_together_share_with_each_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = healthy()
    load(cluster, a_cluster_quota(selector={}), *(a_namespace(name, mode="") for name in MANY[:2]))
    opting(cluster).run(MANY[:2], dry_run=True, force=False, output="text")
    told = [line.partition(" with ")[2] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        "team-01, opted in together with it  [enable.cluster-quota]",
        "team-00, opted in together with it  [enable.cluster-quota]",
    ]


def test_a_user_that_may_not_see_cluster_quotas_learns_so_for_each_namespace(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = healthy()
    load(cluster, *(a_namespace(name, mode="") for name in MANY[:2]))
    api = a_client(cluster)
    api.on("list", CLUSTER_DEFERRED_QUOTAS, fail(ForbiddenError("you cannot list cluster quotas")))
    code = opting(cluster, api=api).run(MANY[:2], dry_run=False, force=False, output="text")
    assert code == ExitCode.FINDINGS
    assert capsys.readouterr().out == "".join(
        f"{name}: not opted in: you cannot list cluster quotas\n" for name in MANY[:2]
    )
