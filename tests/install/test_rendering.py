"""Manifests with an address, a CA, an image and a configuration written in."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.install.manifests import MASKS, Manifest
from webhook.install import InstallError, render
from webhook.install.kustomizations import add_component, read_directory
from webhook.install.rendering import Mask, Rendered

URL = "https://192.0.2.7:9443"


def clients(objects: list[Any]) -> Iterator[tuple[str, Manifest]]:
    for each in objects:
        for entry in each.get("webhooks", ()):
            yield each["kind"], entry["clientConfig"]


@pytest.mark.parametrize("url", [URL, f"{URL}/"])
def test_every_entry_is_called_at_the_address(url: str) -> None:
    found = list(clients(render(url=url, mask="webhook").objects))
    assert len(found) == 13
    *others, (_, watching) = found
    for kind, client in others:
        path = "mutate" if kind.startswith("Mutating") else "validate"
        assert client == {"url": f"{URL}/{path}"}
    assert watching == {"url": f"{URL}/shadow"}


def test_every_entry_trusts_the_ca() -> None:
    for _, client in clients(render(ca_pem=b"pem").objects):
        assert base64.b64decode(client["caBundle"]) == b"pem"
        assert client["service"]["name"] == "deferred-quota-webhook"


def test_every_deployment_runs_the_image() -> None:
    workloads = cast("list[Any]", render(image="registry.example/dq:1").workloads)
    images = [
        container["image"]
        for each in workloads
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
    ]
    assert images == ["registry.example/dq:1"] * 2


@pytest.mark.parametrize("mask", MASKS)
def test_the_mask_names_the_configured_resources(mask: Mask) -> None:
    gpu = "requests.nvidia.com/gpu"
    plain = render(mask=mask)
    extended = render(mask=mask, deferred_resources=[gpu, "cpu"])
    assert "gpu" not in str(plain)
    assert str(extended).count(f"'limits.memory', '{gpu}']") == (4 if mask == "policy" else 3)
    assert str(extended).replace(f", '{gpu}'", "").replace(f"'{gpu}'", "''") == str(plain)


@pytest.mark.parametrize("mask", MASKS)
def test_exempt_namespaces_are_left_out_by_every_selector(mask: Mask) -> None:
    shipped = "['kube-system', 'kube-public', 'kube-node-lease', 'deferred-quota-system'"
    plain = selecting(render(mask=mask, stamps=True))
    count = plain.count(f"{shipped}]")
    exempt = {"b", "a", "kube-public"}
    extended = selecting(render(mask=mask, stamps=True, exempt_namespaces=exempt))
    assert count == plain.count("'namespaceSelector'") > 0
    assert extended.count(f"{shipped}, 'a', 'b']") == count
    shipped_only = render(mask=mask, stamps=True, exempt_namespaces={"kube-system"})
    assert selecting(shipped_only) == plain


def selecting(rendered: Rendered) -> str:
    """What selects namespaces, as text."""
    return str((rendered.stamps, rendered.registrations, rendered.masks))


@pytest.mark.parametrize("mask", MASKS)
def test_without_gating_only_namespaces_that_ask_for_gates_get_them(mask: Mask) -> None:
    spares = {"key": "deferredquota.io/gating", "operator": "NotIn", "values": ["never"]}
    asks = {"key": "deferredquota.io/gating", "operator": "In", "values": ["always", "auto"]}
    ungated, not_asking = {**spares, "operator": "In"}, {**asks, "operator": "NotIn"}
    plain, changed = str(render(mask=mask)), str(render(mask=mask, gating="never"))
    assert (plain.count(str(spares)), plain.count(str(ungated))) == (1, 1)
    wanted = plain.replace(str(ungated), str(not_asking)).replace(str(spares), str(asks))
    assert changed == wanted
    assert str(render(mask=mask, gating="always")) == str(render(mask=mask, gating="auto")) == plain


def test_the_order_is_one_in_which_objects_can_be_applied() -> None:
    kinds = [each["kind"] for each in render(mask="policy").objects]
    first = {kind: kinds.index(kind) for kind in kinds}
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert first["Deployment"] < first["MutatingWebhookConfiguration"]
    names = [cast("Any", each)["metadata"]["name"] for each in render(mask="policy").objects]
    assert names[-1] == "deferred-quota-mask"


@pytest.mark.parametrize("mask", MASKS)
def test_bindings_are_marked_only_where_that_is_wanted(mask: Mask) -> None:
    plain, marking = render(mask=mask), render(mask=mask, stamps=True)
    assert plain.stamps == ()
    assert [each["kind"] for each in marking.stamps] == [
        "MutatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
    ]
    assert [each for each in marking.objects if each not in marking.stamps] == plain.objects


def test_what_is_rendered_belongs_to_the_caller() -> None:
    changed = cast("Any", render().cluster[0])
    changed["metadata"]["name"] = "other"
    assert cast("Any", render().cluster[0])["metadata"]["name"] == "deferred-quota-system"


def test_missing_manifests_are_named(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"nowhere: the manifests are missing"):
        render(manifests=tmp_path / "nowhere")


BAD = {
    "a file that is missing": (
        "resources: [other.yaml]",
        r"other\.yaml: No such file or directory",
    ),
    "what only kustomize reads": (
        "namePrefix: my-",
        r"kustomization\.yaml: namePrefix: is read by kustomize only",
    ),
    "resources that are no list": ("resources: here", r"resources: must be a list"),
    "a broken file": ("resources: [", r"kustomization\.yaml.*line"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_a_kustomization_that_cannot_be_read_is_named(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "kustomization.yaml"
    path.write_text(f"apiVersion: v1\nkind: Kustomization\n{text}\n")
    with pytest.raises(InstallError, match=message):
        read_directory(tmp_path)


def test_a_patch_has_to_have_something_to_change(tmp_path: Path) -> None:
    kind = "apiVersion: v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: x}\nwebhooks: []\n"
    (tmp_path / "entry.yaml").write_text(kind)
    text = "apiVersion: v1\nkind: Component\npatches: [{path: entry.yaml}]\n"
    (tmp_path / "kustomization.yaml").write_text(text)
    with pytest.raises(InstallError, match=r"entry\.yaml: patches no webhook configuration"):
        add_component(tmp_path, [])
