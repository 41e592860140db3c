"""What bad input gets from the running server, with everything real behind it.

What each handler says of it is in tests/admission; here is one of a kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.builders import a_quota, an_expression
from tests.e2e.embedded import Embedded, serving

BAD = [an_expression("PriorityClass", "In", "bad value!")]
SNAPSHOT = (
    a_namespace("team-a"),
    a_namespace("broken"),
    a_quota("compute"),
    a_quota("unmatchable", namespace="broken", uid="u", expressions=BAD),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with serving(tmp_path_factory.mktemp("bad-input"), SNAPSHOT) as running:
        yield running


def a_pod(cpu: object = "1", **changes: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team-a", "uid": "uid-p"},
        "spec": {"nodeName": "node-1", "containers": [container]},
        **changes,
    }


def review(obj: object, **changes: Any) -> dict[str, Any]:
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": "bad-input",
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p",
        "namespace": "team-a",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": obj,
        **changes,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def answer(server: Embedded, sent: object) -> dict[str, Any]:
    reply = server.webhook.post(sent)
    assert reply.status == 200, reply.body
    response = reply.json["response"]
    assert response["uid"] == "bad-input"
    return dict(response)


def test_what_cannot_be_read_is_422_with_its_path(server: Embedded) -> None:
    denied = answer(server, review(a_pod("2x")))
    assert not denied["allowed"]
    assert (denied["status"]["code"], denied["status"]["reason"]) == (422, "Invalid")
    field = "spec.containers[0].resources.requests.cpu"
    assert denied["status"]["details"]["causes"][0]["field"] == field
    assert denied["status"]["message"].startswith(f"{field}: ")


def test_control_characters_in_a_name_stay_inside_their_texts(server: Embedded) -> None:
    name = "a\x1b[31m\nb\x00"
    pod = a_pod("9", metadata={"name": name, "uid": "u"})
    reply = server.webhook.post(review(pod, name=name))
    assert reply.json["response"]["status"]["code"] == 422
    assert reply.json["response"]["status"]["details"]["name"] == name
    assert all(byte >= 0x20 for byte in reply.body)
    assert server.webhook.ops("/readyz").status == 200


def test_a_quota_that_cannot_be_read_holds_up_its_namespace_and_no_other(
    server: Embedded,
) -> None:
    pod = a_pod(metadata={"name": "p", "namespace": "broken", "uid": "u"})
    held_up = answer(server, review(pod, namespace="broken", dryRun=True))
    assert held_up["status"]["code"] == 429
    assert held_up["status"]["details"]["retryAfterSeconds"] == 1
    assert "unmatchable" in held_up["status"]["message"]
    assert answer(server, review(a_pod(), dryRun=True))["allowed"]


def test_a_request_whose_time_is_over_is_refused_for_now(server: Embedded) -> None:
    reply = server.webhook.post(review(a_pod()), "/validate?timeout=1us")
    assert reply.status == 200
    assert reply.json["response"]["status"]["code"] == 429


def test_the_api_server_in_memory_refuses_a_bad_amount_in_its_own_words(
    server: Embedded,
) -> None:
    refused = server.api("POST", "/api/v1/namespaces/team-a/pods", a_pod("2x"))
    assert refused.status == 400
    assert "quantities must match the regular expression" in refused.json["message"]
