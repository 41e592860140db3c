"""Shadow mode in the cluster in memory: the real webhook behind it, and nothing that it changes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_binding, a_pod, a_quota
from tests.cli.clusters import write_kubeconfig
from tests.e2e.embedded import Embedded, serving
from tests.e2e.harness import ROOT, eventually

SNAPSHOT = (a_namespace("team-a", mode="shadow"), a_quota("compute", used={"requests.cpu": "2"}))
LEDGER = "/apis/deferredquota.io/v1alpha1/namespaces/team-a/quotaledgers/ledger"
PODS = "/api/v1/namespaces/team-a/pods"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with serving(tmp_path_factory.mktemp("shadow"), SNAPSHOT) as running:
        yield running


def call(server: Embedded, method: str, path: str, body: object = None) -> tuple[int, Any, Any]:
    reply = server.api(method, path, body)
    return reply.status, json.loads(reply.body), reply.headers


def ledger(server: Embedded) -> dict[str, Any]:
    code, found, _ = call(server, "GET", LEDGER)
    return dict(found.get("status", {})) if code == 200 else {}


def test_pods_are_watched_and_left_alone(server: Embedded, tmp_path: Path) -> None:
    assert eventually(lambda: "shadow" in ledger(server), 10)
    assert ledger(server)["summary"] == "shadow: compute requests.cpu 0/2 (charged 2)"
    for name in ("one", "two"):
        pod = a_pod(name=name, namespace="team-a", requests={"cpu": "2"})
        pod["metadata"] = {"name": name}
        code, made, headers = call(server, "POST", PODS, pod)
        assert (code, headers.get_all("Warning")) == (201, None)
        assert made["spec"].get("schedulingGates") is None
        binding = a_binding(name, namespace="team-a")
        assert call(server, "POST", f"{PODS}/{name}/binding", binding)[0] == 201
        stored = call(server, "GET", f"{PODS}/{name}")[1]
        assert stored["spec"]["nodeName"]
        assert not stored["metadata"].get("annotations")
        conditions = [one["type"] for one in stored["status"].get("conditions", ())]
        assert conditions == ["PodScheduled"]

    def counts() -> dict[str, int]:
        return {key: value for key, value in ledger(server)["shadow"]["counts"].items() if value}

    # the fake cluster has no quota check of its own: the second bind goes too far
    wanted = {"created": 2, "bound": 2, "boundOver": 1, "attempts": 2, "stored": 2}
    assert eventually(lambda: {**wanted, **counts()} == counts(), 30), counts()
    assert "podsResourceVersion" not in ledger(server)

    port = server.webhook.announcement["listeners"]["api"]["port"]
    kubeconfig = write_kubeconfig(tmp_path, f"http://127.0.0.1:{port}")
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "shadow", "report", "--kubeconfig", str(kubeconfig)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "1 of those bound were above quota" in done.stdout
    assert "last: two: exceeded quota: compute" in done.stdout
