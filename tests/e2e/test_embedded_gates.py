"""Gates in the cluster in memory: as on a real API server, with the real webhook behind it."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_binding, a_pod, a_quota
from tests.e2e.embedded import Embedded, serving
from tests.e2e.harness import eventually
from webhook.state.well_known import SCHEDULING_GATE, UNEVALUATED_LABEL, UNGATED_ANNOTATION

SNAPSHOT = (
    a_namespace("team-a"),
    a_namespace("team-b", gating="never"),
    a_namespace("team-c", gating="auto"),
    a_quota("compute", namespace="team-a", uid="a"),
    a_quota("compute", namespace="team-b", uid="b"),
    a_quota("compute", namespace="team-c", uid="c", hard={"requests.cpu": "4"}),
    a_quota("compute", namespace="mentioned", uid="d"),
)
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


def asked(
    server: Embedded, namespace: str, name: str, cpu: str, *, query: str = "", **annotations: str
) -> tuple[int, dict[str, Any]]:
    requests = {"cpu": cpu} if cpu else {"memory": "1Mi"}
    pod = a_pod(name=name, namespace=namespace, requests=requests)
    pod["metadata"] = {"name": name, "annotations": annotations}
    return call(server, "POST", f"{namespace}/pods{query}", pod)


def created(
    server: Embedded, namespace: str, name: str, cpu: str = "3", **annotations: str
) -> dict[str, Any]:
    """Create a pod; unless said otherwise it is larger than the quota and waits for ever."""
    code, made = asked(server, namespace, name, cpu, **annotations)
    assert code == 201, made
    return made


def gates_of(server: Embedded, namespace: str, name: str) -> object:
    _, pod = call(server, "GET", f"{namespace}/pods/{name}", None)
    return pod["spec"].get("schedulingGates")


@pytest.mark.parametrize(
    ("namespace", "gates"),
    [("team-a", [{"name": SCHEDULING_GATE}]), ("team-b", None), ("mentioned", None)],
)
def test_pods_are_gated_where_the_namespace_wants_it(
    server: Embedded, namespace: str, gates: object
) -> None:
    assert created(server, namespace, "web")["spec"].get("schedulingGates") == gates


def test_a_gated_pod_is_not_bound_and_not_every_user_takes_the_gate_off(server: Embedded) -> None:
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


def test_while_there_is_room_pods_need_no_gate(server: Embedded) -> None:
    def has_room() -> bool:
        _, tried = asked(server, "team-c", "first", "1m", query="?dryRun=All")
        return "schedulingGates" not in tried["spec"]

    assert eventually(has_room)
    for name in ("a", "b"):
        made = created(server, "team-c", name, "1")
        assert "schedulingGates" not in made["spec"]
        assert list(made["metadata"]["annotations"]) == [UNGATED_ANNOTATION]
    for name in ("c", "d", "e"):
        made = created(server, "team-c", name, "1", **{UNGATED_ANNOTATION: "true"})
        assert made["spec"]["schedulingGates"] == [{"name": SCHEDULING_GATE}]
        assert not made["metadata"].get("annotations")
    assert eventually(lambda: not gates_of(server, "team-c", "d"))  # the last that fits
    assert gates_of(server, "team-c", "e") == [{"name": SCHEDULING_GATE}]
    for name in ("a", "b", "c", "d"):
        binding = a_binding(name, namespace="team-c")
        code, bound = call(server, "POST", f"team-c/pods/{name}/binding", binding)
        assert code == 201, bound
    finished = {"status": {"phase": "Succeeded"}}
    assert call(server, "PATCH", "team-c/pods/a/status", finished)[0] == 200
    assert eventually(lambda: not gates_of(server, "team-c", "e"))


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": True}


@pytest.mark.parametrize("namespace", ["team-a", "team-b", "team-c"])
@pytest.mark.parametrize("owners", [[], [OWNER]], ids=["a pod", "a controller's"])
def test_a_forged_label_of_the_gate_handler_is_judged_by_what_the_pod_takes(
    server: Embedded, namespace: str, owners: list[dict[str, object]]
) -> None:
    pod = a_pod(name="silent", namespace=namespace, requests={"memory": "1Mi"})
    labels = {UNEVALUATED_LABEL: "no"}
    pod["metadata"] = {"name": "silent", "labels": labels, "ownerReferences": owners}
    code, refused = call(server, "POST", f"{namespace}/pods", pod)
    assert (code, refused["reason"]) == (403, "Forbidden")
    assert "failed quota: compute: must specify requests.cpu for: main" in refused["message"]
