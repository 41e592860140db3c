"""`replay` of the audit log of a real API server, with stock quota and the real scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.builders import a_container
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.tenant import REAL, Tenant
from tests.e2e.cluster.waiting import eventually
from webhook.cli import cli

POLICY = Path("docs/examples/audit-policy.yaml").resolve()
TEAM = "team-a"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def own_plane(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    flags = [
        f"--audit-policy-file={POLICY}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
    ]
    directory = tmp_path_factory.mktemp("replay-plane")
    with ControlPlane.start(directory, apiserver_flags=flags) as plane:
        plane.add_nodes(1, cpu="8", pods=40)
        yield plane


def a_job(name: str, **spec: Any) -> Object:
    container = a_container(requests={"cpu": "2"})
    pod = {"schedulerName": REAL, "restartPolicy": "Never", "containers": [container], **spec}
    pod["terminationGracePeriodSeconds"] = 0
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}}}


def story(plane: ControlPlane) -> None:
    """Let a Job wait for quota that another one holds, for which there is no node."""
    api = Api(plane.rest)
    assert api.create("/api/v1/namespaces", {"metadata": {"name": TEAM}}).ok
    tenant, jobs = Tenant(plane.rest, TEAM), f"/apis/batch/v1/namespaces/{TEAM}/jobs"
    made = {"metadata": {"name": "compute"}, "spec": {"hard": {"requests.cpu": "2"}}}
    assert api.create(objects.quotas(TEAM), made).ok
    eventually(
        lambda: api.get(objects.quotas(TEAM, "compute")).body.get("status", {}).get("used"),
        "the quota is counted",
    )
    assert api.create(jobs, a_job("train", nodeSelector={"gpu": "yes"})).ok
    eventually(lambda: names(tenant, "train"), "a pod that no node takes")
    assert api.create(jobs, a_job("report")).ok
    events = f"/api/v1/namespaces/{TEAM}/events"
    eventually(
        lambda: [
            one
            for one in api.get(events).body["items"]
            if one["reason"] == "FailedCreate" and one["involvedObject"]["name"] == "report"
        ],
        "its creation is refused",
    )
    api.call("DELETE", f"{jobs}/train", {"propagationPolicy": "Foreground"})
    eventually(
        lambda: [one for one in names(tenant, "report") if tenant.node_of(one)], "it runs", 60
    )
    (report,) = names(tenant, "report")
    tenant.finish(report, "Succeeded")


def names(tenant: Tenant, job: str) -> list[str]:
    items = tenant.api.get(objects.pods(tenant.namespace)).body["items"]
    return [
        one["metadata"]["name"]
        for one in items
        if one["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job
    ]


def test_what_waited_behind_a_pod_without_a_node_would_have_run(
    own_plane: ControlPlane, log: Path, tmp_path: Path
) -> None:
    story(own_plane)
    snapshot = tmp_path / "cluster.json.gz"
    ours = ["snapshot", str(snapshot), "--kubeconfig", str(own_plane.kubeconfig())]
    assert CliRunner().invoke(cli, ours).exit_code == 0
    ran = CliRunner().invoke(cli, ["replay", str(log), "--snapshot", str(snapshot), "-o", "json"])
    assert ran.exit_code == 0, ran.output
    by_name = {one["workload"]: one for one in json.loads(ran.stdout)["workloads"]}
    report, train = by_name[f"{TEAM}/Job/report"], by_name[f"{TEAM}/Job/train"]
    assert (report["pods"], train["pods"]) == (1, 1)
    assert report["recorded"]["started"] == 1
    assert report["recorded"]["refused"] >= 1
    assert report["recorded"]["waitP50"] > 0
    assert report["native"]["refused"] >= 1
    for mode in ("deferred", "gated"):
        assert train[mode]["started"] == 0
    assert report["deferred"] == {"started": 1, "refused": 0, "waitP50": 0, "waitP99": 0}
