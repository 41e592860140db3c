"""A webhook that answers some clients only, as an installation makes it, keeps it and ends it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.install.manifests import SYSTEM, Manifest, identity
from tests.install.twin import Twin, run
from webhook.install import InstallError, render
from webhook.install.clients import CLIENT_CA, CLIENT_NAME, KnownClients
from webhook.install.kustomizations import add_component
from webhook.install.rendering import MANIFESTS, configured
from webhook.kube.api import CONFIG_MAPS, NotFoundError
from webhook.operations.deployments import DEPLOYMENTS

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
CLIENTS = KnownClients(PEM, ("kube-apiserver", "deferred-quota-system"))
WEBHOOK = "deferred-quota-webhook"
COMPONENT = MANIFESTS / "components/client-auth"


def rendered(**places: Any) -> dict[tuple[str, str, str], Manifest]:
    workloads = cast("tuple[Manifest, ...]", render(**places).workloads)
    return {identity(each): each for each in workloads}


def named(arguments: list[str]) -> list[str]:
    return [each.split("=", 1)[1] for each in arguments if each.startswith("--client-name=")]


def arguments_of(deployment: Any) -> list[str]:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return cast("list[str]", container["args"])


def installed(twin: Twin) -> list[str]:
    return arguments_of(twin.api.get(DEPLOYMENTS, WEBHOOK, namespace=SYSTEM))


def test_the_webhook_gets_the_ca_and_the_names() -> None:
    found = rendered(clients=CLIENTS, namespace="elsewhere")
    webhook = found["Deployment", "elsewhere", WEBHOOK]
    assert named(arguments_of(webhook)) == [*CLIENTS.names], "names are not moved"
    pod = webhook["spec"]["template"]["spec"]
    (mount,) = [
        each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "client-ca"
    ]
    assert f"--client-ca={mount['mountPath']}/ca.crt" in arguments_of(webhook)
    (volume,) = [each for each in pod["volumes"] if each["name"] == "client-ca"]
    authority = found["ConfigMap", "elsewhere", volume["configMap"]["name"]]
    assert authority["data"] == {"ca.crt": PEM}


def test_nothing_else_is_changed() -> None:
    plain, found = rendered(), rendered(clients=CLIENTS)
    others = found.keys() - {("ConfigMap", SYSTEM, CLIENT_CA), ("Deployment", SYSTEM, WEBHOOK)}
    assert found.keys() - plain.keys() == {("ConfigMap", SYSTEM, CLIENT_CA)}
    assert {name: found[name] for name in others} == {name: plain[name] for name in others}


def test_the_ca_is_not_taken_for_the_configuration() -> None:
    parts = render(clients=CLIENTS)
    made = configured((*parts.configuration, *parts.workloads), "text")
    maps = {
        each["metadata"]["name"]: each["data"]
        for each in cast("list[Any]", made)
        if each["kind"] == "ConfigMap"
    }
    assert maps == {CLIENT_CA: {"ca.crt": PEM}, "deferred-quota-config": {"config.yaml": "text"}}


def test_outside_of_the_cluster_there_is_nothing_to_change() -> None:
    assert render(clients=CLIENTS, url="https://192.0.2.7:9443").workloads == ()


def test_the_component_by_itself_names_an_api_server() -> None:
    found = [*cast("tuple[Any, ...]", render().workloads)]
    (webhook,) = [
        each
        for each in add_component(COMPONENT, found)
        if identity(each)[2] == WEBHOOK and each["kind"] == "Deployment"
    ]
    assert named(arguments_of(webhook)) == ["kube-apiserver"]


def test_a_component_that_patches_nothing_is_refused(tmp_path: Path) -> None:
    text = (COMPONENT / "kustomization.yaml").read_text()
    (tmp_path / "kustomization.yaml").write_text(text.replace(f"name: {WEBHOOK}", "name: another"))
    objects = [*cast("tuple[Any, ...]", render().workloads)]
    with pytest.raises(InstallError, match="no object that is there: Deployment another"):
        add_component(tmp_path, objects)
    (tmp_path / "kustomization.yaml").write_text(text.replace("path: /spec/", "path: /other/"))
    with pytest.raises(InstallError, match=r"kustomization\.yaml: "):
        add_component(tmp_path, objects)


def test_an_installation_keeps_its_clients_until_configured_otherwise() -> None:
    twin = Twin()
    _, lines = run(twin, clients=CLIENTS)
    said = "clients: the webhook answers only those with a certificate for kube-apiserver"
    assert [line for line in lines if line.startswith(said)]
    changes, lines = run(twin)
    assert changes == 0
    assert [line for line in lines if line.startswith(said)]
    assert named(installed(twin)) == [*CLIENTS.names]
    _, lines = run(twin, answers_all=True)
    assert f"ConfigMap {SYSTEM}/{CLIENT_CA}: deleted" in lines
    assert not named(installed(twin))
    with pytest.raises(NotFoundError):
        twin.api.get(CONFIG_MAPS, CLIENT_CA, namespace=SYSTEM)
    assert run(twin)[0] == 0


def test_other_names_replace_the_former() -> None:
    twin = Twin()
    run(twin, clients=CLIENTS)
    run(twin, clients=KnownClients(PEM, ("other",)))
    assert named(installed(twin)) == ["other"]


def test_a_ca_that_is_gone_is_named_and_nothing_opened() -> None:
    twin = Twin()
    run(twin, clients=CLIENTS)
    twin.api.delete(CONFIG_MAPS, CLIENT_CA, namespace=SYSTEM)
    with pytest.raises(InstallError, match=r"has no ca\.crt, the CA of the clients"):
        run(twin)
    assert named(installed(twin)) == [*CLIENTS.names]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("kube-apiserver", True),
        ("system:kube-scheduler", True),
        ("API server 1", True),
        ("", False),
        ("$(POD_NAME)", False),
        ("a\nb", False),
        ("a\n", False),
    ],
)
def test_names_that_kubernetes_would_expand_are_none(name: str, is_one: bool) -> None:
    assert (re.fullmatch(CLIENT_NAME, name) is not None) == is_one
