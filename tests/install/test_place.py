"""The namespace of an installation: chosen once, found again, and never somebody else's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.install.manifests import MASKS
from tests.install.twin import Twin
from tests.install.twin import run as run_install
from webhook.install import InstallError, render
from webhook.install.place import chosen_namespace
from webhook.install.rendering import Mask
from webhook.kube.api import CONFIG_MAPS, NAMESPACES, SECRETS, VALIDATING_WEBHOOKS
from webhook.operations.deployments import system_namespace_of
from webhook.operations.names import CLUSTER_ROLE_BINDINGS
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION, controller_user

HOME = "quota-home"
ROOT = Path(__file__).parents[2]


def run(twin: Twin, **wish: Any) -> list[str]:
    return run_install(twin, **wish)[1]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("url", ["", "https://192.0.2.7:9443"])
def test_every_object_names_the_chosen_namespace_where_it_names_one(mask: Mask, url: str) -> None:
    shipped = json.dumps(render(mask=mask, stamps=mask == "policy", url=url).objects)
    moved = render(namespace=HOME, mask=mask, stamps=mask == "policy", url=url).objects
    assert json.loads(shipped.replace(DEFAULT_NAMESPACE, HOME)) == json.loads(json.dumps(moved))
    assert DEFAULT_NAMESPACE in shipped
    assert controller_user(HOME) in json.dumps(moved)


def test_one_module_names_the_default_namespace() -> None:
    named = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "webhook").rglob("*.py"))
        if re.search(rf'"{DEFAULT_NAMESPACE}', path.read_text(encoding="utf-8"))
    ]
    assert named == ["webhook/state/well_known.py"]


@pytest.mark.parametrize("url", ["", "https://192.0.2.7:9443"])
def test_an_installation_stays_where_it_is(url: str) -> None:
    twin = Twin()
    run(twin, namespace=HOME, url=url)
    assert system_namespace_of(twin.api) == HOME
    before = list(twin.written)
    run(twin, url=url)
    assert twin.written == before
    with pytest.raises(InstallError, match=f"it is installed in {HOME}"):
        run(twin, namespace="other", url=url)
    assert twin.written == before


def test_certificates_and_configuration_are_kept_there() -> None:
    twin = Twin()
    run(twin, namespace=HOME)
    found = {
        (each["metadata"]["namespace"], each["metadata"]["name"])
        for kind in (SECRETS, CONFIG_MAPS)
        for each in cast("list[Any]", twin.api.list(kind).items)
    }
    assert found == {
        (HOME, "deferred-quota-ca"),
        (HOME, "deferred-quota-tls"),
        (HOME, "deferred-quota-config"),
    }
    entry = cast("Any", twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION))["webhooks"][0]
    assert entry["clientConfig"]["service"]["namespace"] == HOME


def test_an_entry_that_was_led_elsewhere_does_not_say_where_it_is() -> None:
    twin = Twin()
    run(twin, namespace=HOME)
    raw = json.loads(json.dumps(twin.api.get(VALIDATING_WEBHOOKS, REGISTRATION)))
    raw["webhooks"][0]["clientConfig"]["service"]["namespace"] = "mine"
    twin.api.update(VALIDATING_WEBHOOKS, raw)
    assert system_namespace_of(twin.api) == HOME


def a_namespace(**labels: str) -> dict[str, Any]:
    metadata = {"name": HOME, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def test_a_namespace_with_other_things_in_it_is_refused() -> None:
    twin = Twin()
    twin.api.create(NAMESPACES, a_namespace())
    with pytest.raises(InstallError, match="is there already"):
        chosen_namespace(twin.api, HOME)
    twin.api.delete(NAMESPACES, HOME)
    twin.api.create(NAMESPACES, a_namespace(**{"app.kubernetes.io/name": "deferred-quota"}))
    assert chosen_namespace(twin.api, HOME) == HOME


OWN_LABELS = {
    "app.kubernetes.io/name": "deferred-quota",
    "app.kubernetes.io/component": "namespace",
}


def test_a_namespace_that_only_says_so_gets_no_installation() -> None:
    """Its tenants could read the key of the CA there."""
    twin = Twin()
    twin.api.create(NAMESPACES, a_namespace(**OWN_LABELS))
    with pytest.raises(InstallError, match=f"go on there with --namespace {HOME}"):
        run(twin)
    assert twin.written == []
    run(twin, namespace=DEFAULT_NAMESPACE)
    assert system_namespace_of(twin.api) == DEFAULT_NAMESPACE


@pytest.mark.parametrize("home", [HOME, DEFAULT_NAMESPACE])
def test_the_label_of_another_namespace_does_not_hide_an_installation(home: str) -> None:
    twin = Twin()
    run(twin, namespace=home, url="https://192.0.2.7:9443")
    other = a_namespace(**OWN_LABELS)
    other["metadata"]["name"] = "tenant"
    twin.api.create(NAMESPACES, other)
    assert system_namespace_of(twin.api) == home
    assert chosen_namespace(twin.api, "") == home
    twin.api.delete(VALIDATING_WEBHOOKS, REGISTRATION)  # as an interrupted uninstallation leaves it
    assert chosen_namespace(twin.api, "") == home


@pytest.mark.parametrize("name", ["kube-system", "default", "Not/A-Name", "-a", "a" * 64])
def test_what_cannot_be_a_namespace_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(InstallError, match="a namespace of its own"):
        chosen_namespace(Twin().api, name)


def test_nothing_installed_means_the_default_namespace() -> None:
    assert chosen_namespace(Twin().api, "") == DEFAULT_NAMESPACE
    assert system_namespace_of(Twin().api) == DEFAULT_NAMESPACE


def test_an_installation_that_helm_keeps_is_named() -> None:
    twin = Twin()
    assert "helm:" not in str(run(twin))
    assert "helm:" not in str(run(twin))
    rights = "deferred-quota-webhook"
    note = {"metadata": {"annotations": {"meta.helm.sh/release-name": "quota"}}}
    twin.api.patch(CLUSTER_ROLE_BINDINGS, rights, note)
    (line,) = [line for line in run(twin) if line.startswith("helm:")]
    assert line.endswith("use helm upgrade instead, or give that --force-conflicts")
