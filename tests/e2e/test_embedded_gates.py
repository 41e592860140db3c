"""Gates in the cluster in memory: as on a real API server, with the real webhook behind it."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.builders import a_binding, a_pod
from tests.e2e.embedded import Embedded, serving
from webhook.state.names import GATE

SNAPSHOT = """\
apiVersion: v1
kind: Namespace
metadata: {name: team-a, labels: {deferredquota.io/mode: deferred}}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-b, labels: {deferredquota.io/mode: deferred, deferredquota.io/pacing: none}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team-a}
spec: {hard: {requests.cpu: "2"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: team-b}
spec: {hard: {requests.cpu: "2"}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: mentioned}
spec: {hard: {requests.cpu: "2"}}
"""
TAKE_OFF = {"spec": {"schedulingGates": None}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with serving(tmp_path_factory.mktemp("gates"), SNAPSHOT) as running:
        yield running


def call(
    server: Embedded, method: str, path: str, body: object, *, user: str = ""
) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    if method == "PATCH":
        headers["Content-Type"] = "application/merge-patch+json"
    if user:
        headers["Impersonate-User"] = user
    port = server.webhook.announcement["listeners"]["api"]["port"]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request(method, f"/api/v1/namespaces/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def created(server: Embedded, namespace: str, name: str) -> dict[str, Any]:
    """Create a pod that is larger than the quota, so that it waits for ever."""
    pod = a_pod(name=name, namespace=namespace, requests={"cpu": "3"})
    pod["metadata"] = {"name": name}
    code, made = call(server, "POST", f"{namespace}/pods", pod)
    assert code == 201, made
    return made


@pytest.mark.parametrize(
    ("namespace", "gates"), [("team-a", [{"name": GATE}]), ("team-b", None), ("mentioned", None)]
)
def test_pods_are_gated_where_the_namespace_wants_it(
    server: Embedded, namespace: str, gates: object
) -> None:
    assert created(server, namespace, "web")["spec"].get("schedulingGates") == gates


def test_a_gated_pod_is_not_bound_and_not_everybody_takes_the_gate_off(server: Embedded) -> None:
    created(server, "team-a", "held")
    binding = a_binding("held", namespace="team-a")
    code, refused = call(server, "POST", "team-a/pods/held/binding", binding)
    assert (code, refused["reason"]) == (409, "Conflict")
    assert refused["message"].endswith("pod held has non-empty .spec.schedulingGates")

    code, refused = call(server, "PATCH", "team-a/pods/held", TAKE_OFF, user="alice")
    assert (code, refused["reason"]) == (403, "Forbidden")
    words = (
        "denied the request: spec.schedulingGates: deferredquota.io/quota may only be removed by"
    )
    assert words in refused["message"]
    labels = {"metadata": {"labels": {"app": "web"}}}
    assert call(server, "PATCH", "team-a/pods/held", labels, user="alice")[0] == 200

    assert call(server, "PATCH", "team-a/pods/held", TAKE_OFF)[0] == 200  # an administrator
    code, refused = call(server, "POST", "team-a/pods/held/binding", binding)
    assert code == 403
    assert "exceeded quota: compute, requested: requests.cpu=3" in refused["message"]
