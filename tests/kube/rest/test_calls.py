"""Calls of the API server as metrics name them, and how each ended."""

from __future__ import annotations

import pytest

from tests.kube.rest.scripted_server import ScriptedServer, ServerConnection, a_note
from tests.kube.rest.served import plain_access, served
from webhook.controllers.runtime.lease import LeaseSpec, lease_object
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import CONFIG_MAPS, LEASES, NAMESPACES, PODS, ApiError, NotFoundError
from webhook.kube.rest import RestClient
from webhook.kube.rest.calls import verb_and_resource
from webhook.kube.rest.transport import Request

CASES = {
    "an object": ("GET", "/api/v1/namespaces/team-a/pods/web", ("get", "pods")),
    "all of a namespace": ("GET", "/api/v1/namespaces/team-a/pods?limit=500", ("list", "pods")),
    "all": ("GET", "/apis/batch/v1/jobs?limit=500", ("list", "jobs")),
    "a watch": ("GET", "/api/v1/pods?watch=true&resourceVersion=7", ("watch", "pods")),
    "a namespace": ("GET", "/api/v1/namespaces/team-a", ("get", "namespaces")),
    "all namespaces": ("GET", "/api/v1/namespaces", ("list", "namespaces")),
    "a pod that is called watch": ("GET", "/api/v1/namespaces/watch/pods/watch", ("get", "pods")),
    "a subresource": (
        "PUT",
        "/apis/deferredquota.io/v1alpha1/namespaces/team-a/quotaledgers/ledger/status",
        ("update", "quotaledgers/status"),
    ),
    "a creation": ("POST", "/api/v1/namespaces/team-a/pods?dryRun=All", ("create", "pods")),
    "a bind": ("POST", "/api/v1/namespaces/a/pods/web/binding", ("create", "pods/binding")),
    "a patch": ("PATCH", "/api/v1/namespaces/a/pods/web", ("patch", "pods")),
    "an end": ("DELETE", "/api/v1/namespaces/a/pods/web", ("delete", "pods")),
    "no object": ("GET", "/version", ("get", "other")),
    "a group": ("GET", "/apis/batch/v1", ("get", "other")),
    "nothing": ("GET", "/", ("get", "other")),
}


@pytest.mark.parametrize(("method", "target", "expected"), CASES.values(), ids=CASES.keys())
def test_a_call_is_named_by_its_path(method: str, target: str, expected: tuple[str, str]) -> None:
    assert verb_and_resource(Request(method, target)) == expected


def test_a_server_side_apply_is_no_other_patch() -> None:
    path = "/api/v1/namespaces/a/configmaps/notes"
    request = Request("PATCH", path, b"{}", "application/apply-patch+yaml")
    assert verb_and_resource(request) == ("apply", "configmaps")


class Observed(list[tuple[str, str, str]]):
    """The calls that were observed, without their time."""

    def __call__(self, verb: str, resource: str, code: str, seconds: float) -> None:
        assert seconds > 0
        self.append((verb, resource, code))


def test_each_call_is_observed_with_the_status_of_its_answer() -> None:
    calls = Observed()
    with served(FakeCluster()) as plain:
        client = RestClient(plain.config, on_call=calls)
        client.create(LEASES, lease_object("default", "one", LeaseSpec(holder="a")))
        with pytest.raises(NotFoundError):
            client.get(PODS, "web", namespace="default")
        listed = client.list(NAMESPACES)
        client.watch(NAMESPACES, resource_version=listed.resource_version).close()
    assert calls == [
        ("create", "leases", "201"),
        ("get", "pods", "404"),
        ("list", "namespaces", "200"),
        ("watch", "namespaces", "200"),
    ]


def test_a_call_without_an_answer_is_observed_with_why() -> None:
    calls = Observed()
    nowhere = RestClient(plain_access(1), on_call=calls)
    with pytest.raises(ApiError):
        nowhere.get(CONFIG_MAPS, "notes", namespace="team-a")

    def silent(peer: ServerConnection) -> None:
        peer.read()
        peer.read()

    with ScriptedServer(silent) as server:
        client = RestClient(plain_access(server.port), timeout_seconds=0.05, on_call=calls)
        with pytest.raises(ApiError):
            client.update(CONFIG_MAPS, a_note())
    assert calls == [("get", "configmaps", "unreachable"), ("update", "configmaps", "timeout")]
