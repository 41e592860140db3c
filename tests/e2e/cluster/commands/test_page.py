"""The page of a controller on a real control plane: users by tokens of service accounts."""

from __future__ import annotations

import http.client
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.controlplane.ports import free_ports
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product, Server, apply, apply_namespace, is_ready
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.config import PageSettings
from webhook.install import render
from webhook.page.access import REVIEW_SECONDS

LIST: Final = "/api/namespaces"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


class Stage:
    """A product whose controller serves the page, and two namespaces."""

    def __init__(self, plane: ControlPlane, product: Product, port: int) -> None:
        self.plane, self.product, self.port = plane, product, port
        self.api = Api(plane.rest)
        self.teams = []
        for name in ("team-a", "team-b"):
            apply_namespace(self.api, name, gating="always")
            self.teams.append(Tenant(plane.rest, name))

    def token(self, name: str, *, views: str = "", everywhere: bool = False) -> str:
        """Make a service account that may view a namespace, or all; return a token of it."""
        made = self.api.create(
            "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}}
        )
        assert made.code in (201, 409), str(made)
        subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
        if everywhere:
            assert self.api.create(f"{RBAC}/clusterrolebindings", binding).ok
        if views:
            assert self.api.create(f"{RBAC}/namespaces/{views}/rolebindings", binding).ok
        return self.plane.kubectl("create", "token", name, "--namespace", "default").strip()

    def get(self, path: str, token: str = "") -> tuple[int, Any]:
        """Get values of the page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with closing(connection):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())

    def names(self, token: str) -> list[str]:
        code, values = self.get(LIST, token)
        assert code == 200, values
        return [one["name"] for one in values["namespaces"]]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    (port,) = free_ports(1)
    settings = PageSettings(enabled=True, port=port)
    directory: Path = tmp_path_factory.mktemp("page")
    with ControlPlane.start(directory / "plane") as plane:
        plane.add_nodes(2)
        apply(plane, render(url="https://127.0.0.1:1").cluster)
        apply(plane, render(url="https://127.0.0.1:1", page=settings).page)
        with Product.start(
            plane,
            directory / "product",
            configuration={"page": {"enabled": True, "port": port}},
        ) as product:
            yield Stage(plane, product, port)


@pytest.fixture(scope="module")
def team(stage: Stage) -> Tenant:
    """A quota of 2 cpu of which a pod takes one, and a pod that waits for two."""
    team = stage.teams[0]
    team.quota()
    assert team.pod("runs", "1").ok
    eventually(lambda: team.bind("runs").ok, "its gate is off")
    assert team.pod("waits", "2").ok
    condition = "deferredquota.io/QuotaReserved"
    becomes(lambda: team.condition("waits", condition)[1], "QuotaExceeded", "the condition")
    team.settles()
    return team


def test_users_see_the_namespaces_that_they_may_view(stage: Stage, team: Tenant) -> None:
    assert stage.names(stage.token("of-a", views="team-a")) == [team.namespace]
    assert stage.names(stage.token("of-none")) == []
    everything = stage.names(stage.token("of-all", everywhere=True))
    assert everything == sorted(everything)
    assert {"team-a", "team-b"} <= {*everything}


def test_what_is_not_shown_is_answered_as_what_is_not_there(stage: Stage, team: Tenant) -> None:
    token = stage.token("of-b", views="team-b")
    for path in ("team-a", "missing", "kube-system", "team-a/pods/waits"):
        assert stage.get(f"{LIST}/{path}", token)[0] == 404
    assert team.namespace not in str(stage.get(LIST, token))


@pytest.mark.parametrize("token", ["", "unknown", "eyJhbGciOiJub25lIn0.e30."])
def test_tokens_that_the_api_server_does_not_know_get_nothing(stage: Stage, token: str) -> None:
    for path in (LIST, f"{LIST}/team-a", f"{LIST}/team-a/pods/waits"):
        code, values = stage.get(path, token)
        assert code == 401
        assert values["message"] == "a bearer token that the API server knows is needed"


def test_a_token_for_others_than_the_api_server_gets_nothing(stage: Stage) -> None:
    command = ("create", "token", "default", "--namespace", "default", "--audience", "others")
    assert stage.get(LIST, stage.plane.kubectl(*command).strip())[0] == 401


def test_a_namespace_shows_what_the_ledger_and_the_conditions_say(
    stage: Stage, team: Tenant
) -> None:
    code, values = stage.get(f"{LIST}/{team.namespace}", stage.token("reader", views="team-a"))
    assert code == 200
    (quota,) = values["quotas"]
    (cpu,) = [one for one in quota["resources"] if one["resource"] == "requests.cpu"]
    assert (cpu["used"], cpu["pending"], cpu["hard"]) == ("1", "2", "2")
    (queued,) = values["queue"]["pods"]
    _, reason, message = team.condition("waits", "deferredquota.io/QuotaReserved")
    assert (queued["pod"], queued["reason"], queued["place"]) == ("waits", reason, 1)
    assert message.startswith(queued["message"])
    assert [one["pod"] for one in values["consumers"]] == ["runs"]


def test_a_pod_is_explained_by_what_its_user_may_read(stage: Stage, team: Tenant) -> None:
    path = f"{LIST}/{team.namespace}/pods/waits"
    code, values = stage.get(path, stage.token("narrow", views="team-a"))
    assert code == 200
    assert values["cause"] == "quota"
    (shortage, *_) = values["causes"][0]["resources"]
    assert (shortage["requested"], shortage["used"], shortage["missing"]) == ("2", "1", "1")
    assert values["nodes"] is None
    assert "nodes: no right to read" in values["unknown"]
    assert stage.get(f"{LIST}/{team.namespace}/pods/missing", stage.token("narrow"))[0] == 404


def test_a_right_that_is_taken_away_ends_what_is_shown(stage: Stage, team: Tenant) -> None:
    token = stage.token("leaver", views="team-a")
    assert stage.names(token) == [team.namespace]
    stage.api.delete(f"{RBAC}/namespaces/team-a/rolebindings/leaver")
    eventually(lambda: not stage.names(token), "the namespace is not shown", 3 * REVIEW_SECONDS)


def test_the_page_writes_nothing_and_is_reached_from_its_own_machine_only(stage: Stage) -> None:
    assert f"http://127.0.0.1:{stage.port}" in stage.product.controller.log.read_text()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", stage.port), timeout=5)
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=30)
    with closing(connection):
        connection.request("POST", LIST, b"{}")
        assert connection.getresponse().status == 405


def test_a_replica_that_does_not_lead_shows_the_same(
    stage: Stage, team: Tenant, tmp_path: Path
) -> None:
    page_port, port, ops_port = free_ports(3)
    configuration = json.loads(stage.product.configuration_file.read_text())
    configuration["page"]["port"] = page_port
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(configuration))
    command: list[str | Path] = [sys.executable, "-m", "webhook", "serve", "--with-controller"]
    command += ["--kubeconfig", stage.plane.kubeconfig(), "--certs", stage.product.certificates]
    command += ["--listen", f"127.0.0.1:{port}", "--ops", f"127.0.0.1:{ops_port}"]
    standby = Server(
        "standby",
        [*command, "--config", file],
        tmp_path / "standby.log",
        is_ready(ops_port),
        {"POD_NAME": "standby", "POD_NAMESPACE": stage.product.namespace},
    )
    token = stage.token("double", views="team-a")
    standby.start()
    try:
        other = Stage(stage.plane, stage.product, page_port)
        assert stage.get(LIST, token)[1]["isLeader"] is True
        assert other.get(LIST, token)[1]["isLeader"] is False
        for part in ("quotas", "queue", "consumers"):
            path = f"{LIST}/{team.namespace}"
            assert other.get(path, token)[1][part] == stage.get(path, token)[1][part]
    finally:
        standby.kill()


def test_without_its_rights_the_page_names_what_gives_them(stage: Stage) -> None:
    token = stage.token("late", views="team-a")
    stage.api.delete(f"{RBAC}/clusterrolebindings/deferred-quota-page")
    eventually(lambda: stage.get(LIST, token)[0] == 503, "it may not review tokens", 60)
    assert "manifests/components/page" in stage.get(LIST, token)[1]["message"]
