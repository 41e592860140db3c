"""An installation in a namespace of the administrator's choice, on a control plane of its own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controlplane.features import POLICIES, serves
from tests.e2e.cluster import objects
from tests.e2e.cluster.command_line import doctor
from tests.e2e.cluster.installed import (
    Cluster,
    a_product,
    a_tenant,
    by_name,
    of_an_overlay,
    quota,
    with_policies,
)
from tests.e2e.cluster.objects import a_namespace
from tests.e2e.cluster.product import apply
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.install.manifests import of_cert_manager
from webhook.install import MANIFESTS, render
from webhook.install.kustomizations import read_directory
from webhook.kube.files.documents import read_documents
from webhook.state.well_known import DEFAULT_NAMESPACE, SCHEDULING_GATE

HOME: Final = "quota-home"
KINDS: Final = "mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterrolebindings"


def test_an_installation_elsewhere_guards_reports_and_goes(
    cluster: Cluster, tmp_path: Path
) -> None:
    with a_product(cluster, tmp_path, HOME) as running:
        # where it is installed is found again
        stamps = ["--stamps"] if serves(cluster.plane.rest, POLICIES) else []
        cluster.install(*stamps, url=running.url)
        assert "it is installed in quota-home" in cluster.install(
            "--namespace", "other", url=running.url, code=1
        )
        with a_tenant(cluster) as tenant:
            guarded(tenant)
            found = doctor(cluster.plane)
            assert found["summary"]["error"] == 0, found
            assert found["summary"]["warn"] == 0, found
            assert "rights" in found["checked"]
            assert not found["skipped"]
            kinds = with_policies(cluster.plane, KINDS)
            everything = cluster.plane.kubectl("get", kinds, "-o", "json")
            assert DEFAULT_NAMESPACE not in everything
            api = tenant.api
            assert api.get(f"/api/v1/namespaces/{DEFAULT_NAMESPACE}").code == 404
            # its own namespace is left out, whatever its label says
            opted_in = {"metadata": {"labels": {objects.MODE_LABEL: "deferred"}}}
            assert api.patch(f"/api/v1/namespaces/{HOME}", opted_in).ok
            ids = [one["id"] for one in doctor(cluster.plane)["findings"]]
            assert "namespace.own" in ids
            assert api.get(objects.ledger(HOME)).code == 404
            gone = {"metadata": {"labels": {objects.MODE_LABEL: None}}}
            assert api.patch(f"/api/v1/namespaces/{HOME}", gone).ok
            running.stop()
            printed = cluster.uninstall("--remove-labels")
            assert printed.splitlines()[-1] == "uninstalled"
            assert cluster.versions() == {}
            assert api.get(f"/api/v1/namespaces/{HOME}").code == 404


def guarded(tenant: Tenant) -> None:
    """See that pods wait at a gate, are let go by the controller, and are charged at the bind."""
    label = {"metadata": {"labels": {"deferredquota.io/gating": "always"}}}
    place = f"/api/v1/namespaces/{tenant.namespace}"
    assert tenant.api.patch(place, label).ok
    quota(tenant, "q", {"requests.cpu": "2"})
    ledger = objects.ledger(tenant.namespace)
    becomes(lambda: tenant.api.get(ledger).code, 200, "there is a ledger")
    eventually(lambda: gated(tenant, "first"), "new pods are gated")
    eventually(lambda: not gates(tenant, "first"), "the controller takes the gate off")
    eventually(lambda: tenant.bind("first").ok, "the bind is admitted")
    # a gate that a tenant takes off is put back by nobody, and the guard stands at the bind
    assert tenant.create("second", "1").ok
    refused = tenant.bind("second")
    eventually(lambda: not tenant.bind("second").ok, "the bind is refused")
    assert not refused.ok


def gated(tenant: Tenant, name: str) -> bool:
    made = tenant.create(name, "2")
    if not made.ok:
        return False
    if made.body["spec"].get("schedulingGates"):
        return True
    tenant.api.call("DELETE", objects.pods(tenant.namespace, name), {"gracePeriodSeconds": 0})
    return False


def gates(tenant: Tenant, name: str) -> list[str]:
    found = tenant.api.get(objects.pods(tenant.namespace, name)).body["spec"]
    return [
        one["name"] for one in found.get("schedulingGates", ()) if one["name"] == SCHEDULING_GATE
    ]


def test_a_namespace_of_others_is_left_alone(cluster: Cluster) -> None:
    api = cluster.plane.rest
    tenant = Tenant(api, "team-a")
    assert tenant.api.create("/api/v1/namespaces", a_namespace("team-a")).ok
    for name in ("team-a", "kube-system"):
        assert "--namespace" in cluster.install("--namespace", name, code=1)
        assert "--namespace" in cluster.uninstall("--namespace", name, code=1)
    assert cluster.versions() == {}
    assert tenant.api.get("/api/v1/namespaces/team-a").ok


@pytest.mark.parametrize("component", ["", "api-priority", "device-claims"])
def test_kustomize_moves_it_with_the_overlay_of_the_readme(
    cluster: Cluster, tmp_path: Path, component: str
) -> None:
    overlay = MANIFESTS / "overlays/another-namespace"
    mine = tmp_path / "mine"
    mine.mkdir()
    text = (overlay / "kustomization.yaml").read_text()
    base = os.path.relpath(MANIFESTS / "overlays/default", mine.resolve())
    text = re.sub(r"namespace: quota-system\b", f"namespace: {HOME}", text)
    text = text.replace("../default", base)
    added: list[Any] = []
    if component:
        path = os.path.relpath(MANIFESTS / "components" / component, mine.resolve())
        text = text.replace("replacements:", f"components: [{path}]\nreplacements:")
        added = list(read_directory(MANIFESTS / "components" / component))
    (mine / "kustomization.yaml").write_text(text)
    printed = cluster.plane.kubectl("kustomize", str(mine))
    made = [each.value for each in read_documents("mine", printed.encode())]
    moved = json.loads(json.dumps(added).replace(DEFAULT_NAMESPACE, HOME))
    wanted = of_an_overlay(render(namespace=HOME, mask="webhook").objects)
    assert by_name(made) == by_name([*wanted, *moved])


def test_kustomize_moves_the_certificates_of_cert_manager(cluster: Cluster, tmp_path: Path) -> None:
    text = (MANIFESTS / "overlays/another-namespace/kustomization.yaml").read_text()
    base = os.path.relpath(MANIFESTS / "overlays/cert-manager", tmp_path.resolve())
    text = re.sub(r"namespace: quota-system\b", f"namespace: {HOME}", text)
    (tmp_path / "kustomization.yaml").write_text(text.replace("../default", base))
    printed = cluster.plane.kubectl("kustomize", str(tmp_path))
    made = [each.value for each in read_documents("mine", printed.encode())]
    assert by_name(made) == by_name(of_an_overlay(of_cert_manager(HOME)))


def test_of_a_prefix_to_the_names_doctor_says_that_nothing_finds_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The chart has no value for another name; its RBAC follows the namespace of the release."""
    base = os.path.relpath(MANIFESTS / "overlays/default", tmp_path.resolve())
    lines = ("kind: Kustomization", "namePrefix: my-", f"resources: [{base}]")
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines))
    printed = cluster.plane.kubectl("kustomize", str(tmp_path))
    apply(cluster.plane, [each.value for each in read_documents("mine", printed.encode())])
    try:
        (finding,) = [
            each
            for each in doctor(cluster.plane)["findings"]
            if each["id"] == "installation.renamed"
        ]
        assert finding["severity"] == "error"
        assert finding["object"]["name"] == "my-deferred-quota"
        assert "namePrefix" in finding["remedy"]
    finally:
        cluster.plane.kubectl("delete", "--filename", "-", "--wait=false", stdin=printed)
