"""`deferred-quota doctor`."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_quota
from tests.cli.clusters import kubeconfig_of
from tests.operations.healthy import (
    NOW,
    Guard,
    Pulse,
    guarded,
    healthy,
    renewing,
    shipped_objects,
)
from tests.operations.scenes import Crowd, a_namespace, load
from webhook.cli import ExitCode, cli
from webhook.cli.cluster_context import read_bundle
from webhook.cli.doctor import examine_and_print
from webhook.cli.exit_codes import InputError
from webhook.cli.files.configuration import configuration_of
from webhook.fakecluster.admission.chain import AdmissionChain
from webhook.fakecluster.rest.apiserver import ApiServer
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import CONFIG_MAPS
from webhook.operations.doctor.check_context import Settings
from webhook.operations.doctor.runner import CHECKS
from webhook.state.well_known import CONFIG_MAP, DEFAULT_NAMESPACE


def judge(cluster: FakeCluster, *, fail_on: str = "error", output: str = "text") -> ExitCode:
    pulse = Pulse(renewing(cluster))
    settings = Settings(
        read_bundle=read_bundle, now=lambda: NOW, clock=pulse.clock, sleep=pulse.sleep
    )
    return examine_and_print(guarded(cluster), settings, fail_on=fail_on, output=output)


def test_a_healthy_cluster_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(healthy(), fail_on="warn") == ExitCode.OK
    told = capsys.readouterr()
    number = len(CHECKS)
    assert told.err == f"{number} of {number} checks made; error: 0, warn: 0, info: 1\n"
    assert told.out.splitlines()[0].endswith("[control-plane.limited-resources]")


def test_errors_end_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = healthy()
    load(cluster, a_quota("p2", uid="uid-p2", used={"requests.cpu": "0"}))
    assert judge(cluster) == ExitCode.FINDINGS
    out = capsys.readouterr().out
    assert "error  ResourceQuota team-a/p2: its status shows requests.cpu" in out
    assert "       The controller repairs this at once" in out


def test_warnings_end_with_3_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode="defferred"))
    assert judge(cluster) == ExitCode.OK
    assert judge(cluster, fail_on="warn") == ExitCode.DRIFT
    assert "[namespace.mode]" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_get_all_of_it(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = healthy()
    load(cluster, a_namespace("team-b", mode="x"))
    judge(cluster, output=output)
    text = capsys.readouterr().out
    found: Any = json.loads(text) if output == "json" else yaml.safe_load(text)
    assert found["schemaVersion"] == 1
    assert found["summary"] == {"error": 0, "warn": 1, "info": 1}
    assert found["findings"][0] == {
        "id": "namespace.mode",
        "severity": "warn",
        "object": {"kind": "Namespace", "namespace": "", "name": "team-b"},
        "message": "deferredquota.io/mode is 'x', which means nothing: it is not opted in",
        "remedy": "Run: deferred-quota enable team-b (or disable).",
        "details": [],
    }
    assert found["checked"] == [check.name for check in CHECKS]
    assert found["skipped"] == []


def test_over_http_everything_is_read(tmp_path: Path) -> None:
    cluster = healthy()
    renew, guard = renewing(cluster), Guard()

    def lead(_: int) -> None:
        threading.Event().wait(0.05)
        renew()

    def guarding(cluster: FakeCluster) -> ApiServer:
        return ApiServer(cluster, cast("AdmissionChain", SimpleNamespace(run=passage)))

    def passage(*_: object) -> Guard:
        return guard

    with kubeconfig_of(cluster, tmp_path, guarding) as kubeconfig, Crowd(lead):
        arguments = ["doctor", "--kubeconfig", str(kubeconfig), "--pause", "0", "-o", "json"]
        result = CliRunner().invoke(cli, arguments)
    found: Any = json.loads(result.stdout)
    serious = {one["id"] for one in found["findings"] if one["severity"] != "info"}
    assert serious <= {"webhooks.ca"}  # which is judged by the clock of this machine
    assert result.exit_code == (ExitCode.FINDINGS if serious else ExitCode.OK)
    assert found["checked"] == [check.name for check in CHECKS]
    assert [each.dry_run for each in guard.asked] == [True]


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, ["doctor", *args])


def test_a_snapshot_is_examined(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    objects = [a_namespace(), a_quota("p1", used={"requests.cpu": "0"})]
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")
    result = run("--snapshot", str(path))
    assert result.exit_code == ExitCode.FINDINGS
    assert "its status shows requests.cpu" in result.stdout
    assert "of ledgers and of cluster quotas: the snapshot has no custom" in result.stderr


@pytest.mark.parametrize("unread", [[], ["Deployment.apps/v1", "Pod.v1"]], ids=["read", "unread"])
def test_a_snapshot_tells_what_there_is_none_of_from_what_it_does_not_have(
    tmp_path: Path, unread: list[str]
) -> None:
    path = tmp_path / "cluster.json"
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1}
    head |= {"taken": "2026-11-30T06:00:00Z", "unread": unread}
    path.write_text(json.dumps({**head, "items": [a_namespace(), a_quota("p1")]}), "utf-8")
    skipped: Any = json.loads(run("--snapshot", str(path), "-o", "json").stdout)["skipped"]
    reasons = {one["check"]: one["reason"] for one in skipped}
    lacked = {"workloads": "the snapshot has no deployments.apps"}
    lacked |= dict.fromkeys(("guarded", "gates", "other-gates"), "the snapshot has no pods")
    assert {name: reasons.get(name) for name in lacked} == (
        lacked if unread else dict.fromkeys(lacked)
    )


def written_manifests(path: Path, **edited: Any) -> None:
    """Write what `helm template` prints: no Namespace, no CA yet, and nothing runs."""
    objects: list[Any] = [one for one in shipped_objects() if one["kind"] != "Namespace"]
    for one in objects:
        one.pop("status", None)
        for entry in one.get("webhooks", ()):
            del entry["clientConfig"]["caBundle"]
            if entry["name"] == "bind.deferredquota.io":
                entry.update(edited)
    path.write_text(yaml.safe_dump_all(objects), encoding="utf-8")


def test_manifests_are_compared_as_far_as_they_go(tmp_path: Path) -> None:
    path = tmp_path / "rendered.yaml"
    written_manifests(path)
    result = run("--snapshot", str(path), "-o", "json")
    found: Any = json.loads(result.stdout)
    assert [one for one in found["findings"] if one["severity"] != "info"] == []
    assert result.exit_code == ExitCode.OK
    reasons = {one["check"]: one["reason"] for one in found["skipped"]}
    lacked = {
        "webhooks": "namespaces and no caBundle of webhooks",
        "mask": "namespaces",
        "workloads": "status of Deployments",
    }
    for name, lack in lacked.items():
        assert reasons[name] == f"in part, as the snapshot has no {lack}"
    assert reasons["quotas"] == "the snapshot has no namespaces"


def test_faults_of_manifests_are_named(tmp_path: Path) -> None:
    path = tmp_path / "rendered.yaml"
    written_manifests(path, failurePolicy="Ignore", namespaceSelector={})
    result = run("--snapshot", str(path))
    assert result.exit_code == ExitCode.FINDINGS
    assert "[webhooks.failure-policy]" in result.stdout
    assert "[registration.widened]" in result.stdout


def test_what_the_webhook_trusts_stands_in_the_configuration(tmp_path: Path) -> None:
    snapshot, config = tmp_path / "cluster.yaml", tmp_path / "config.yaml"
    labels = {
        "app.kubernetes.io/name": "deferred-quota",
        "app.kubernetes.io/component": "controller",
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mine", "namespace": DEFAULT_NAMESPACE, "labels": labels},
        "spec": {"template": {"spec": {"serviceAccountName": "mine"}}},
    }
    snapshot.write_text(yaml.safe_dump(deployment), encoding="utf-8")
    head = "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
    user = f"system:serviceaccount:{DEFAULT_NAMESPACE}:mine"
    trusting = (
        "",
        f"trustedUsers: [{user}]",
        "breakGlassGroups: [system:serviceaccounts]",
    )
    told = []
    for line in trusting:
        config.write_text(head + line, encoding="utf-8")
        result = run("--snapshot", str(snapshot), "--config", str(config))
        told.append("[deployment.untrusted]" in result.stdout)
    assert told == [True, False, False]


def test_a_snapshot_that_cannot_be_read_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("kind: [", encoding="utf-8")
    result = run("--snapshot", str(path))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert str(path) in result.stderr


def test_the_configuration_of_the_cluster_is_read() -> None:
    cluster = healthy()
    api = FakeClient(cluster)
    text = (
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
        "deferredResources: [requests.nvidia.com/gpu]\n"
    )
    patch = {"data": {"config.yaml": text}}
    api.patch(CONFIG_MAPS, CONFIG_MAP, patch, namespace=DEFAULT_NAMESPACE)
    assert configuration_of(api, None, DEFAULT_NAMESPACE).deferred_resources == (
        "requests.nvidia.com/gpu",
    )
    patch = {"data": {"config.yaml": "kind: Nonsense"}}
    api.patch(CONFIG_MAPS, CONFIG_MAP, patch, namespace=DEFAULT_NAMESPACE)
    with pytest.raises(InputError, match="ConfigMap deferred-quota-system/deferred-quota-config"):
        configuration_of(api, None, DEFAULT_NAMESPACE)
    api.delete(CONFIG_MAPS, CONFIG_MAP, namespace=DEFAULT_NAMESPACE)
    assert configuration_of(api, None, DEFAULT_NAMESPACE).deferred_resources == ()


def test_doctor_goes_on_where_the_installed_configuration_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    installed = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": DEFAULT_NAMESPACE},
        "data": {"config.yaml": "kind: Nonsense"},
    }
    path.write_text(yaml.safe_dump_all([a_namespace(), installed]), encoding="utf-8")
    result = run("--snapshot", str(path))
    assert result.exit_code == ExitCode.FINDINGS
    assert "[configuration.rejected]" in result.stdout
    assert "apiVersion" in result.stdout


def test_a_configuration_file_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\nexemptNamespaces: [x]\n",
        encoding="utf-8",
    )
    api = FakeClient(healthy())
    assert configuration_of(api, path, DEFAULT_NAMESPACE).exempt_namespaces == frozenset({"x"})
