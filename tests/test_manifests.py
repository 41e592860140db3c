"""The manifests fit together, and say what the program is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from tests.install.manifests import Manifest, everything, identity, of_kind
from webhook import __version__
from webhook.install import MANIFESTS
from webhook.install.kustomizations import read_file
from webhook.install.rendering import Mask
from webhook.operations.names import LEDGER_CRD, MASK_POLICY, STAMP_POLICY
from webhook.state.well_known import DEFAULT_NAMESPACE, LAST_REGISTRATION, REGISTRATION

FILES: Final = sorted(MANIFESTS.rglob("*.yaml"))
KUSTOMIZATIONS: Final = [path for path in FILES if path.name == "kustomization.yaml"]
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
    (overlay,) = cast(
        "list[Manifest]", read_file(MANIFESTS / "overlays/default/kustomization.yaml")
    )
    (image,) = overlay["images"]
    assert (image["name"], image["newTag"]) == ("deferred-quota", __version__)


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
