"""`deferred-quota certs`."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.clusters import kubeconfig_of
from webhook.cli import ExitCode, cli
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION, TLS_SECRET


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["certs", *args])


def test_bootstrap_makes_a_pair_for_this_machine(tmp_path: Path) -> None:
    result = run("bootstrap", "--dir", str(tmp_path))
    assert result.exit_code == ExitCode.OK
    assert result.stdout.splitlines() == [
        str(tmp_path / name) for name in ("tls.crt", "tls.key", "ca.crt")
    ]
    assert "made: CA and serving certificate" in result.stderr
    shown = json.loads(run("show", "--dir", str(tmp_path), "-o", "json").stdout)
    assert shown["certificates"][1]["names"] == ["localhost", "127.0.0.1", "::1"]
    assert shown["certificates"][1]["daysLeft"] == 364
    assert base64.b64decode(shown["caBundle"]) == (tmp_path / "ca.crt").read_bytes()
    assert shown["problems"] == []


def test_bootstrap_again_keeps_everything(tmp_path: Path) -> None:
    run("bootstrap", "--dir", str(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = run("bootstrap", "--dir", str(tmp_path))
    assert result.exit_code == ExitCode.OK
    assert "kept: all files are valid" in result.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_service_stands_for_all_its_names(tmp_path: Path) -> None:
    run("bootstrap", "--dir", str(tmp_path), "--service", "hook.quota", "--ip", "10.0.0.7")
    shown = json.loads(run("show", "--dir", str(tmp_path), "-o", "json").stdout)
    assert shown["certificates"][1]["names"] == [
        "hook",
        "hook.quota",
        "hook.quota.svc",
        "hook.quota.svc.cluster.local",
        "10.0.0.7",
    ]


def test_what_is_not_kept_is_reported(tmp_path: Path) -> None:
    run("bootstrap", "--dir", str(tmp_path))
    result = run("bootstrap", "--dir", str(tmp_path), "--dns-name", "hook.example")
    assert f"not kept: {tmp_path}/tls.crt: does not cover the name hook.example" in result.stderr
    assert "made: serving certificate" in result.stderr


def test_show_is_read_by_people(tmp_path: Path) -> None:
    run("bootstrap", "--dir", str(tmp_path), "--days", "10")
    result = run("show", "--dir", str(tmp_path))
    assert result.exit_code == ExitCode.OK
    assert f"{tmp_path}/tls.crt\n  subject  CN=localhost\n" in result.stdout
    assert "  names    localhost, 127.0.0.1, ::1\n" in result.stdout
    assert "  left     9 days\n" in result.stdout


def test_show_ends_with_findings_when_the_pair_cannot_be_used(tmp_path: Path) -> None:
    run("bootstrap", "--dir", str(tmp_path))
    other = tmp_path / "other"
    run("bootstrap", "--dir", str(other))
    (tmp_path / "tls.key").write_bytes((other / "tls.key").read_bytes())
    result = run("show", "--dir", str(tmp_path))
    assert result.exit_code == ExitCode.FINDINGS
    assert f"problem: {tmp_path}/tls.key: does not belong" in result.stdout


BAD = {
    "no directory": (("show", "--dir", "/nonexistent"), "/nonexistent/ca.crt: No such file"),
    "a directory that cannot be made": (("bootstrap", "--dir", "/dev/null/x"), "/dev/null/x"),
    "a name": (("bootstrap", "--dns-name", "a b"), "'a b' is not a DNS name"),
    "an address": (("bootstrap", "--ip", "localhost"), "'localhost' is not an IP address"),
    "a service without namespace": (("bootstrap", "--service", "hook"), "NAME.NAMESPACE"),
    "a service with too much": (("bootstrap", "--service", "a.b.svc"), "NAME.NAMESPACE"),
    "no days": (("bootstrap", "--days", "0"), "--days"),
    "too many days": (("bootstrap", "--days", "99999"), "--days"),
}


@pytest.mark.parametrize(("args", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_2_with_the_reason(
    args: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert message in result.stderr
    assert result.stdout == ""


def test_a_disk_that_is_full_is_reported_with_the_file(tmp_path: Path) -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0));"
        "from webhook.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "certs", "bootstrap", "--dir", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr == f"Error: {tmp_path / 'ca.key'}: File too large\n"
    assert list(tmp_path.iterdir()) == []


# -- those of an installation ----------------------------------------------------------------------


def installed(url: str = "") -> tuple[FakeCluster, FakeClient]:
    cluster = FakeCluster()
    api = FakeClient(cluster)
    for one in render(url=url).registrations:
        kind = MUTATING_WEBHOOKS if str(one["kind"]).startswith("M") else VALIDATING_WEBHOOKS
        api.create(kind, one)
    return cluster, api


def test_the_certificates_of_a_webhook_outside_of_the_cluster_are_no_secrets(
    tmp_path: Path,
) -> None:
    cluster, _ = installed("https://quota.example:8443")
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        access = ("--kubeconfig", str(kubeconfig))
        status, check, renew = (run(one, *access) for one in ("status", "check", "renew"))
        entry = json.loads(run("status", *access, "-o", "json").stdout)
    words = "the webhook is at https://quota.example:8443, outside of the cluster"
    assert status.exit_code == check.exit_code == ExitCode.OK
    assert status.stdout.startswith(words)
    assert check.stdout == ""
    assert entry == {"schemaVersion": 1, "url": "https://quota.example:8443", "problems": []}
    assert renew.exit_code == ExitCode.FINDINGS
    assert words in renew.stderr


def test_check_names_what_is_wrong_with_an_installation_and_nothing_else(tmp_path: Path) -> None:
    cluster, api = installed()
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        access = ("--kubeconfig", str(kubeconfig))
        missing = run("check", *access)
        assert missing.exit_code == ExitCode.FINDINGS
        assert f"Secret {DEFAULT_NAMESPACE}/{TLS_SECRET}: missing or empty" in missing.stdout
        assert run("init", *access).exit_code == ExitCode.OK
        well = run("check", *access)
        assert (well.exit_code, well.stdout) == (ExitCode.OK, "")
        wipe: Any = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        api.patch(VALIDATING_WEBHOOKS, REGISTRATION, wipe)
        wiped = run("check", *access)
    assert wiped.exit_code == ExitCode.FINDINGS
    assert wiped.stdout == (
        f"problem: ValidatingWebhookConfiguration {REGISTRATION}, bind.deferredquota.io: its"
        " caBundle lacks a trusted CA\n"
    )


@pytest.mark.parametrize("command", ["check", "status"])
def test_no_answer_of_the_cluster_is_no_verdict_on_certificates(
    command: str, tmp_path: Path
) -> None:
    cluster = FakeCluster()
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        access = ("--kubeconfig", str(kubeconfig))
    assert run(command, *access).exit_code == ExitCode.UNREACHABLE  # it is away by now
    assert (
        f"{int(ExitCode.UNREACHABLE)}  the cluster does not answer" in run(command, "--help").stdout
    )
