"""`deferred-quota disable`."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_pod
from tests.cli.clusters import kubeconfig_of, write_kubeconfig
from tests.cli.many import MANY, changes_meet
from tests.kube.rest.served import served
from tests.operations.scenes import (
    NAMESPACE,
    QUICK,
    a_cluster,
    a_gated_pod,
    a_masked_quota,
    a_namespace,
    gates_of,
    labels_of,
    load,
    status_of,
)
from tests.quota.cluster_quotas import a_cluster_quota
from tests.reactions import Reaction, ReactiveClient, fail, for_name, forbid, unavailable
from webhook.cli import ExitCode, cli
from webhook.cli.disable import announce_released, disable_on
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES, PODS, ForbiddenError, InternalError, UnreachableError
from webhook.operations.namespaces_at_once import AT_ONCE
from webhook.operations.retry import RetryPolicy
from webhook.state.well_known import MODE_LABEL


def a_deferred_cluster() -> FakeCluster:
    return a_cluster(
        a_namespace(), a_masked_quota(hard={"requests.cpu": "1"}), a_gated_pod("web-1", cpu="2")
    )


def run(cluster: FakeCluster, directory: Path, *args: str) -> Result:
    with kubeconfig_of(cluster, directory) as kubeconfig:
        return CliRunner().invoke(cli, ["disable", "--kubeconfig", str(kubeconfig), *args])


def test_a_namespace_is_opted_out_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_deferred_cluster()
    with served(cluster) as client:
        code = disable_on(client, [NAMESPACE], dry_run=False, output="text", patience=QUICK)
    assert code == ExitCode.OK
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out == (
        "team-a: opted out\n"
        "  scheduling gates removed: 1\n"
        "  status of quotas completed: p1\n"
        "  over quota now: p1: used: requests.cpu=2, limited: requests.cpu=1; existing pods"
        " stay, new ones are denied\n"
    )
    api = FakeClient(cluster)
    assert MODE_LABEL not in labels_of(api)
    assert gates_of(api, "web-1") == []
    assert status_of(api) == {"hard": {"requests.cpu": "1"}, "used": {"requests.cpu": "2"}}


WARNING = (
    "warning: team-a: 2 waiting pods start at once, within quota or not; quota p1: requested"
    " requests.cpu=5, free requests.cpu=1\n"
)


def a_cluster_with_a_rush() -> FakeCluster:
    """Of 4 cpus 3 are taken, and pods that ask for 5 wait."""
    return a_cluster(
        a_namespace(),
        a_masked_quota(hard={"requests.cpu": "4"}),
        a_pod(name="web-0", namespace=NAMESPACE, node="node-1", requests={"cpu": "3"}),
        a_gated_pod("web-1", cpu="2"),
        a_gated_pod("web-2", cpu="3"),
    )


def test_pods_that_will_start_are_named_before_and_scripts_go_on(tmp_path: Path) -> None:
    cluster = a_cluster_with_a_rush()
    result = run(cluster, tmp_path, NAMESPACE)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, WARNING)
    assert "scheduling gates removed: 2" in result.stdout


def test_a_dry_run_names_the_pods_that_would_start_and_asks_nothing(tmp_path: Path) -> None:
    cluster = a_cluster_with_a_rush()
    result = run(cluster, tmp_path, NAMESPACE, "--dry-run")
    warning = WARNING.replace("pods start at once", "pods would start at once")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, warning)


@pytest.mark.parametrize(
    "arguments",
    [("disable", "a", "--wait"), ("doctor", "--pause"), ("job", "resize", "j", "--timeout")],
    ids=" ".join,
)
def test_a_time_that_is_no_number_is_refused(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(cli, [*arguments, "nan"])
    assert done.exit_code == ExitCode.BAD_INPUT
    assert "'nan' is not a number of seconds." in done.stderr


def test_a_namespace_without_waiting_pods_is_opted_out_without_a_warning(tmp_path: Path) -> None:
    cluster = a_cluster(a_namespace(), a_masked_quota(hard={"requests.cpu": "4"}))
    result = run(cluster, tmp_path, NAMESPACE)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")


LOOKS: dict[str, tuple[Reaction, int | None, str]] = {
    "fails once": (unavailable, 1, WARNING),
    "not allowed": (
        forbid,
        None,
        "warning: team-a: cannot list the waiting pods: pods is forbidden: no right to list\n",
    ),
}


@pytest.mark.parametrize(("reaction", "times", "warning"), LOOKS.values(), ids=LOOKS.keys())
def test_a_look_for_waiting_pods_that_fails_does_not_count_as_none(
    capsys: pytest.CaptureFixture[str], reaction: Reaction, times: int | None, warning: str
) -> None:
    api = ReactiveClient(a_cluster_with_a_rush())
    api.on("list", PODS, reaction, times=times)
    assert announce_released(api, [NAMESPACE], dry_run=False, patience=QUICK)
    assert capsys.readouterr().err == warning


def test_looks_for_waiting_pods_take_no_longer_together_than_is_waited(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    api = ReactiveClient(a_cluster_with_a_rush())
    api.on("list", PODS, fail(InternalError("a webhook does not answer")))
    patience = RetryPolicy(seconds=10.0, clock=lambda: now, sleep=sleep)
    names = [NAMESPACE] * 5
    assert announce_released(api, names, dry_run=False, patience=patience)
    assert now <= 10.0
    assert capsys.readouterr().err.count("cannot list the waiting pods") == 5


ANSWERS: dict[str, tuple[list[str], str, ExitCode, bool]] = {
    "yes": ([], "y\n", ExitCode.OK, False),
    "no": ([], "n\n", ExitCode.FINDINGS, True),
    "not asked": (["--yes"], "", ExitCode.OK, False),
    "dry run": (["--dry-run"], "", ExitCode.OK, True),
}


@pytest.mark.parametrize(
    ("arguments", "answer", "code", "is_in"), ANSWERS.values(), ids=ANSWERS.keys()
)
def test_on_a_terminal_it_is_asked_whether_waiting_pods_may_start(
    tmp_path: Path, arguments: list[str], answer: str, code: ExitCode, is_in: bool
) -> None:
    cluster = a_cluster_with_a_rush()
    main, terminal = pty.openpty()
    try:
        with kubeconfig_of(cluster, tmp_path) as kubeconfig:
            os.write(main, answer.encode())
            done = subprocess.run(
                [
                    sys.executable, "-m", "webhook", "disable", "--kubeconfig", str(kubeconfig),
                    NAMESPACE, *arguments,
                ],
                stdin=terminal, capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip
    finally:
        os.close(main)
        os.close(terminal)
    api = FakeClient(cluster)
    assert done.returncode == code, done.stderr
    assert (MODE_LABEL in labels_of(api), bool(gates_of(api, "web-1"))) == (is_in, is_in)
    assert ("Opt out and start these pods?" in done.stderr) == (not arguments)


def test_cluster_quotas_that_were_shared_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = a_deferred_cluster()
    held = [{"name": NAMESPACE, "granted": {"requests.cpu": "1"}}]
    for name in ("both", "all"):
        quota = a_cluster_quota(selector={})
        load(cluster, {**quota, "metadata": {"name": name}, "status": {"namespaces": held}})
    for dry_run, words in ((True, "would no longer be charged"), (False, "no longer charged")):
        api = FakeClient(cluster)
        disable_on(api, [NAMESPACE], dry_run=dry_run, output="text", patience=QUICK)
        assert (
            f"  {words} to shared quotas: all, both; other namespaces get its share\n"
        ) in capsys.readouterr().out


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    cluster = a_deferred_cluster()
    before = cluster.resource_version
    result = run(cluster, tmp_path, NAMESPACE, "--dry-run")
    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines()[:3] == [
        "team-a: would be opted out",
        "  scheduling gates would be removed: 1",
        "  status of quotas would be completed: p1",
    ]
    assert cluster.resource_version == before


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_all_of_it(tmp_path: Path, output: str) -> None:
    result = run(a_deferred_cluster(), tmp_path, NAMESPACE, "--dry-run", "-o", output)
    found: Any = json.loads(result.stdout) if output == "json" else yaml.safe_load(result.stdout)
    assert found == {
        "schemaVersion": 1,
        "dryRun": True,
        "namespaces": [
            {
                "namespace": "team-a",
                "exists": True,
                "wasOptedIn": True,
                "gatesRemoved": 1,
                "quotasCompleted": ["p1"],
                "overQuota": [
                    {"quota": "p1", "used": {"requests.cpu": "2"}, "hard": {"requests.cpu": "1"}}
                ],
                "clusterQuotasLeft": [],
                "problems": [],
            }
        ],
    }


def test_a_namespace_that_is_not_there_is_a_finding(tmp_path: Path) -> None:
    result = run(a_deferred_cluster(), tmp_path, "nowhere", NAMESPACE, "--dry-run")
    assert result.exit_code == ExitCode.FINDINGS
    assert result.stdout.startswith("nowhere: there is no such namespace\nteam-a: would be")


def test_what_is_left_to_do_is_drift(capsys: pytest.CaptureFixture[str]) -> None:
    api = ReactiveClient(a_deferred_cluster())
    api.on("patch", PODS, fail(ForbiddenError("not you")))
    code = disable_on(api, [NAMESPACE], dry_run=False, output="text", patience=QUICK)
    assert code == ExitCode.DRIFT
    out = capsys.readouterr().out
    assert out.startswith("team-a: not opted out completely; run this again\n")
    assert "  not done: pod team-a/web-1 keeps its scheduling gate: not you\n" in out


def test_one_namespace_that_may_not_be_changed_stops_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = a_cluster(a_namespace("team-b"), a_namespace())
    api, error = ReactiveClient(cluster), ForbiddenError("hands off team-b")
    api.on("patch", NAMESPACES, for_name("team-b", fail(error)))
    code = disable_on(api, ["team-b", NAMESPACE], dry_run=False, output="text", patience=QUICK)
    assert code == ExitCode.DRIFT
    assert capsys.readouterr().out == (
        "team-b: not opted out: a permission is missing; grant it and run this again\n"
        "  not done: hands off team-b\n"
        "team-a: opted out\n"
    )
    assert MODE_LABEL not in labels_of(FakeClient(cluster))


def test_a_cluster_that_is_waited_for_is_named_at_once(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    arguments = ["disable", "--kubeconfig", str(kubeconfig), NAMESPACE, "--wait", "1"]
    first, *_ = CliRunner().invoke(cli, arguments).stderr.splitlines()
    assert first.startswith("note: retrying for up to 1 s: ")
    assert "http://127.0.0.1:9" in first


def test_a_kubeconfig_that_is_missing_ends_with_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["disable", "--kubeconfig", str(tmp_path / "no"), NAMESPACE])
    assert result.exit_code == ExitCode.BAD_INPUT
    assert str(tmp_path / "no") in result.stderr


def test_many_are_opted_out_side_by_side_and_reported_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = a_cluster(*(a_namespace(name) for name in MANY))
    wanted = MANY[::-1]
    api = changes_meet(ReactiveClient(cluster))
    code = disable_on(api, wanted, dry_run=False, output="text", patience=QUICK)
    assert code == ExitCode.OK
    assert capsys.readouterr().out == "".join(f"{name}: opted out\n" for name in wanted)
    assert not any(MODE_LABEL in labels_of(FakeClient(cluster), name) for name in MANY)


def test_what_was_done_is_reported_although_the_cluster_went_away(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = ReactiveClient(a_cluster(*(a_namespace(name) for name in MANY[:3])))
    api.on("patch", "*", for_name("team-01", fail(UnreachableError("connection refused"))))
    patience = RetryPolicy(seconds=0.1, pause_seconds=0.01, settle_seconds=0.01)
    with pytest.raises(UnreachableError):
        disable_on(api, MANY[:3], dry_run=False, output="text", patience=patience)
    assert capsys.readouterr().out == (
        "team-00: opted out\n"
        "team-01: not opted out completely; run this again\n"
        "  not done: connection refused\n"
        "team-02: opted out\n"
    )


def test_a_namespace_that_may_not_be_read_cannot_be_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    api = ReactiveClient(a_cluster(a_namespace()))
    api.on("get", "*", forbid)
    code = disable_on(api, [NAMESPACE], dry_run=True, output="text", patience=QUICK)
    assert code == ExitCode.DRIFT
    assert capsys.readouterr().out == (
        'team-a: cannot be read\n  not done: namespaces "team-a" is forbidden: no right to get\n'
    )


@pytest.mark.timeout(60)
def test_the_keyboard_ends_it_at_once_and_it_says_what_is_left(tmp_path: Path) -> None:
    """The first namespaces wait for the API server's caches then, the others were not begun."""
    cluster = a_cluster(*(a_namespace(name) for name in MANY))
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        command = [sys.executable, "-m", "webhook", "disable", "--kubeconfig", str(kubeconfig)]
        running = subprocess.Popen(
            [*command, *MANY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            api = FakeClient(cluster)
            while any(MODE_LABEL in labels_of(api, name) for name in MANY[:AT_ONCE]):
                assert running.poll() is None
                time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=30)
        finally:
            running.kill()
            running.wait()
    assert running.returncode == ExitCode.INTERRUPTED
    assert err.strip() == "Interrupted"
    heads = [line for line in out.splitlines() if not line.startswith(" ")]
    assert heads == [f"{name}: not opted out completely; run this again" for name in MANY]
    assert out.count("  not done: not begun\n") == AT_ONCE
    assert out.count("  not done: interrupted\n") == AT_ONCE
