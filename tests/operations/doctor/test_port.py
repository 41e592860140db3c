"""What doctor says of who may send reviews to the webhook."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operations.healthy import MANIFESTS, edit, examined, healthy, ids, remove, the
from tests.operations.scenes import load
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import VALIDATING_WEBHOOKS
from webhook.kube.files.documents import read_documents
from webhook.operations.deployments import DEPLOYMENTS
from webhook.operations.names import NETWORK_POLICIES
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION

URL = "https://192.0.2.7:9443"
API_SERVERS = [{"ipBlock": {"cidr": "192.0.2.1/32"}}]


def reachable() -> FakeCluster:
    """A cluster in which nothing says who may connect to the webhook."""
    cluster = healthy()
    remove(cluster, NETWORK_POLICIES, "deferred-quota-webhook", namespace=DEFAULT_NAMESPACE)
    return cluster


def with_policies(cluster: FakeCluster) -> FakeCluster:
    """The same with the policies of the component, as they are shipped."""
    path = MANIFESTS / "components/network-policy/policies.yaml"
    for document in read_documents(str(path), path.read_bytes()):
        load(cluster, document.value)  # type: ignore[arg-type]
    return cluster


def outside(cluster: FakeCluster) -> FakeCluster:
    def change(raw: Any) -> None:
        for entry in raw["webhooks"]:
            entry["clientConfig"] = {**entry["clientConfig"], "url": f"{URL}/validate"}
            del entry["clientConfig"]["service"]

    edit(cluster, VALIDATING_WEBHOOKS, REGISTRATION, change)
    return cluster


@pytest.mark.parametrize(
    "cluster", [reachable(), with_policies(reachable())], ids=["none", "shipped"]
)
def test_a_port_that_every_client_reaches_is_named(cluster: FakeCluster) -> None:
    found = the(examined(cluster), "webhooks.open")
    assert found.severity == "info"
    assert "reserve quota" in found.message
    assert "network-policy" in found.remedy


def test_a_port_that_only_api_servers_reach_is_not() -> None:
    def close(raw: Any) -> None:
        raw["spec"]["ingress"][0]["from"] = API_SERVERS

    cluster = with_policies(reachable())
    name = "deferred-quota-webhook"
    edit(cluster, NETWORK_POLICIES, name, close, namespace=DEFAULT_NAMESPACE)
    assert "webhooks.open" not in ids(examined(cluster))


def test_a_policy_about_other_pods_closes_nothing() -> None:
    def move(raw: Any) -> None:
        raw["spec"]["podSelector"] = {"matchLabels": {"app": "another"}}

    cluster = with_policies(reachable())
    for name in ("deferred-quota-webhook", "deferred-quota-metrics"):
        edit(cluster, NETWORK_POLICIES, name, move, namespace=DEFAULT_NAMESPACE)
    assert "webhooks.open" in ids(examined(cluster))


def test_where_no_webhook_runs_there_is_no_port() -> None:
    cluster = reachable()
    remove(cluster, DEPLOYMENTS, "deferred-quota-webhook", namespace=DEFAULT_NAMESPACE)
    assert "webhooks.open" not in ids(examined(cluster))


@pytest.mark.parametrize("answers", [True, False])
def test_a_port_outside_of_the_cluster_is_tried(answers: bool) -> None:
    asked: list[str] = []

    def try_it(url: str) -> bool:
        asked.append(url)
        return answers

    found = examined(outside(healthy()), answers_all=try_it)
    assert asked == [URL]
    assert ("webhooks.open" in ids(found)) == answers
    if answers:
        assert the(found, "webhooks.open").message.startswith(f"{URL} answered without a client")


@pytest.mark.parametrize(
    ("arguments", "is_open"),
    [
        (["--client-ca=/etc/client-ca/ca.crt", "--client-name=kube-apiserver"], False),
        (["--client-ca", "/etc/client-ca/ca.crt", "--client-name", "kube-apiserver"], False),
        (["--client-name=--client-ca"], True),
    ],
    ids=["with =", "two words", "only in a name"],
)
def test_a_webhook_that_knows_its_clients_is_not_named(arguments: list[str], is_open: bool) -> None:
    def ask(raw: Any) -> None:
        raw["spec"]["template"]["spec"]["containers"][0]["args"] += arguments

    cluster = reachable()
    edit(cluster, DEPLOYMENTS, "deferred-quota-webhook", ask, namespace=DEFAULT_NAMESPACE)
    assert ("webhooks.open" in ids(examined(cluster))) == is_open
