"""The manifests fit together, and say what the program is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

import pytest

from tests.install.manifests import Manifest, everything, identity, of_cert_manager, of_kind
from webhook import __version__
from webhook.config import load_configuration
from webhook.install import MANIFESTS
from webhook.install.kustomizations import read_file
from webhook.install.rendering import Mask
from webhook.operations.names import CLUSTER_QUOTA_CRD, LEDGER_CRD, MASK_POLICY, STAMP_POLICY
from webhook.quota.ledger import ledger_codec
from webhook.quota.shared import grants
from webhook.state.well_known import (
    CA_SECRET,
    DEFAULT_NAMESPACE,
    LAST_REGISTRATION,
    REGISTRATION,
    TLS_SECRET,
)
from webhook.tls.rotation_store import FORMAT, spec_for

FILES: Final = sorted(MANIFESTS.rglob("*.yaml"))
KUSTOMIZATIONS: Final = [path for path in FILES if path.name == "kustomization.yaml"]
OVERLAYS: Final = sorted((MANIFESTS / "overlays").iterdir())
NO_OBJECTS: Final = {
    MANIFESTS / "scheduler" / "configuration.yaml",
    MANIFESTS / "components" / "monitoring" / "rules.yaml",
}
"""What other programs read as a file, and no API server."""


def test_every_file_is_named_by_a_kustomization() -> None:
    named = {(path.parent / name).resolve() for path in KUSTOMIZATIONS for name in references(path)}
    assert {path for path in FILES if path.name != "kustomization.yaml"} - NO_OBJECTS == {
        path for path in named if path.is_file()
    }
    for path in KUSTOMIZATIONS:
        is_for_people = path.parent.parent.name in ("overlays", "components")
        assert is_for_people or path.parent in named or path.parent == MANIFESTS / "base", path


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_a_kustomization_names_what_is_there(path: Path) -> None:
    for name in references(path):
        target = path.parent / name
        assert target.is_file() or (target / "kustomization.yaml").is_file(), target


def references(path: Path) -> Iterator[str]:
    (kustomization,) = cast("list[Manifest]", read_file(path))
    yield from kustomization.get("resources", ())
    yield from kustomization.get("components", ())
    yield from (each["path"] for each in kustomization.get("patches", ()) if "path" in each)


@pytest.mark.parametrize("mask", ["policy", "webhook"])
def test_every_object_is_there_once_and_labelled(mask: Mask) -> None:
    objects = everything(mask)
    assert len({identity(each) for each in objects}) == len(objects)
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "deferred-quota"
        assert labels["app.kubernetes.io/part-of"] == "deferred-quota"
        assert labels["app.kubernetes.io/component"], identity(each)


def test_nothing_has_to_be_filled_in() -> None:
    for path in FILES:
        text = re.sub(r"(?m)#.*$", "", path.read_text())
        assert not re.search(r"(?i)todo|changeme|placeholder|<[a-z]|\$\{|caBundle", text), path


def test_the_version_is_that_of_the_program() -> None:
    for each in of_kind("Deployment", everything()):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"deferred-quota:{__version__}"
    for name in ("default", "cert-manager"):
        (overlay,) = cast(
            "list[Manifest]", read_file(MANIFESTS / "overlays" / name / "kustomization.yaml")
        )
        (image,) = overlay["images"]
        assert (image["name"], image["newTag"]) == ("deferred-quota", __version__)


def test_no_format_of_a_newer_release_is_stored() -> None:
    for name, newest in ((LEDGER_CRD, ledger_codec.FORMAT), (CLUSTER_QUOTA_CRD, grants.FORMAT)):
        (crd,) = (one for one in everything() if one["metadata"]["name"] == name)
        (version,) = crd["spec"]["versions"]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert (status["format"]["minimum"], status["format"]["maximum"]) == (1, newest)
    policy = (MANIFESTS / "components" / "identity-policy" / "own-namespace.yaml").read_text()
    assert f"annotations[?'deferredquota.io/format'].orValue('1') == '{FORMAT}'" in policy


def test_names_are_those_that_the_commands_look_for() -> None:
    found = {(each["kind"], each["metadata"]["name"]) for each in everything("policy")}
    assert {
        ("Namespace", DEFAULT_NAMESPACE),
        ("MutatingWebhookConfiguration", REGISTRATION),
        ("MutatingWebhookConfiguration", LAST_REGISTRATION),
        ("ValidatingWebhookConfiguration", REGISTRATION),
        ("MutatingAdmissionPolicy", MASK_POLICY),
        ("MutatingAdmissionPolicyBinding", MASK_POLICY),
        ("MutatingAdmissionPolicy", STAMP_POLICY),
        ("MutatingAdmissionPolicyBinding", STAMP_POLICY),
        ("CustomResourceDefinition", LEDGER_CRD),
    } <= found


def test_a_webhook_elsewhere_needs_nothing_that_runs_in_the_cluster() -> None:
    kinds = {each["kind"] for each in everything("policy", url="https://192.0.2.7:9443")}
    assert not kinds & {"Deployment", "Service", "Secret", "PodDisruptionBudget"}
    (overlay,) = cast("list[Manifest]", read_file(MANIFESTS / "overlays/url/kustomization.yaml"))
    registered = {
        (each["kind"], each["metadata"]["name"]): len(each["webhooks"])
        for each in everything("webhook")
        if "webhooks" in each
    }
    patched = {
        (patch["target"]["kind"], patch["target"]["name"]): len(patch["patch"].splitlines())
        for patch in overlay["patches"]
    }
    assert patched == registered, "one for each entry"


def certificate(name: str) -> Manifest:
    (found,) = [
        each["spec"]
        for each in of_kind("Certificate", of_cert_manager())
        if each["metadata"]["name"] == name
    ]
    return cast("Manifest", found)


def test_cert_manager_issues_what_the_webhook_serves_for_the_names_that_are_called() -> None:
    leaf, ca = certificate("deferred-quota-webhook"), certificate("deferred-quota-ca")
    assert (leaf["secretName"], ca["secretName"]) == (TLS_SECRET, CA_SECRET)
    wanted = spec_for(DEFAULT_NAMESPACE)
    assert tuple(leaf["dnsNames"]) == wanted.dns_names
    called = {
        f"{client['service']['name']}.{client['service']['namespace']}.svc"
        for each in of_cert_manager()
        for entry in each.get("webhooks", ())
        for client in [entry["clientConfig"]]
    }
    assert called <= set(leaf["dnsNames"])
    assert leaf["duration"] == f"{wanted.leaf_lifetime // timedelta(hours=1)}h"
    assert ca["duration"] == f"{wanted.ca_lifetime // timedelta(hours=1)}h"
    # what was issued before it is renewed has to be trusted after it
    assert (ca["isCA"], ca["privateKey"]["rotationPolicy"]) == (True, "Never")


def test_cert_manager_writes_the_ca_into_every_registration() -> None:
    objects = of_cert_manager()
    noted = {
        each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        for each in objects
        if "webhooks" in each
    }
    assert noted == {f"{DEFAULT_NAMESPACE}/deferred-quota-ca"}
    issuers = {each["metadata"]["name"] for each in of_kind("Issuer", objects)}
    for each in of_kind("Certificate", objects):
        assert each["spec"]["issuerRef"]["name"] in issuers
    assert "deferred-quota-rotation" not in {each["metadata"]["name"] for each in objects}
    (configuration,) = of_kind("ConfigMap", objects)
    text = configuration["data"]["config.yaml"]
    assert not load_configuration(text, "overlay").certificates.rotate


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda path: path.name)
def test_an_overlay_for_every_version_has_no_policy_about_what_not_every_version_serves(
    path: Path,
) -> None:
    """An API server refuses all that such a policy is about where it does not serve the kind."""
    found = [one for one in objects_of(path) if "paramKind" in one.get("spec", {})]
    assert found == []


def objects_of(directory: Path) -> Iterator[Manifest]:
    for name in references(directory / "kustomization.yaml"):
        target = (directory / name).resolve()
        yield from objects_of(target) if target.is_dir() else read_file(target)


def test_the_overlay_of_cert_manager_is_the_default_one_but_for_the_certificates() -> None:
    components = {}
    for name in ("default", "cert-manager"):
        (overlay,) = cast(
            "list[Manifest]", read_file(MANIFESTS / "overlays" / name / "kustomization.yaml")
        )
        components[name] = {Path(each).name for each in overlay["components"]}
    assert components["cert-manager"] == components["default"] - {"rotation"} | {"cert-manager"}
