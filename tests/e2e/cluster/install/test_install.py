"""scripts/install on a real control plane of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.features import POLICIES, RESIZE, serves
from tests.e2e.cluster import objects
from tests.e2e.cluster.installed import (
    NOWHERE,
    ROOT,
    Cluster,
    a_tenant,
    by_name,
    counted,
    is_counted,
    is_hidden,
    of_an_overlay,
    quota,
    status,
)
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import Tenant, marked
from tests.e2e.cluster.waiting import becomes, eventually
from tests.install.definitions import RARE_LEDGER
from tests.install.manifests import of_cert_manager
from tests.quota.ledger_world.driver import STEPS, random_steps
from tests.quota.ledger_world.world import World
from webhook.install import MANIFESTS, render
from webhook.install.clients import CLIENT_CA, KnownClients
from webhook.install.kustomizations import apply_patches
from webhook.jsonfields.encoding import encode_json
from webhook.kube.files.documents import read_documents
from webhook.quota.ledger.ledger_codec import ledger_status, summary

MASKS = [pytest.param("policy", marks=pytest.mark.needs(POLICIES)), "webhook"]


@pytest.fixture
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """A namespace that has opted in."""
    with a_tenant(cluster) as made:
        yield made


def test_a_dry_run_changes_nothing(clean: Cluster) -> None:
    printed = clean.install("--dry-run")
    named = [line for line in printed.splitlines() if line.endswith(": would be created")]
    assert "ValidatingWebhookConfiguration deferred-quota: would be created" in named
    assert printed.splitlines()[-1] == f"dry run: {len(named)} objects would change"
    assert clean.versions() == {}
    assert "would be created" in clean.run("install", "--dry-run")
    assert clean.versions() == {}


@pytest.mark.parametrize("overlay", ["default", "url"])
def test_kustomize_makes_the_same_objects(cluster: Cluster, overlay: str) -> None:
    url = "https://localhost:9443" if overlay == "url" else ""
    text = cluster.plane.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    made = [each.value for each in read_documents(overlay, text.encode())]
    assert by_name(made) == by_name(of_an_overlay(render(url=url, mask="webhook").objects))


def test_kustomize_adds_what_newer_api_servers_do(cluster: Cluster, tmp_path: Path) -> None:
    """As `manifests/README.md` says it: an overlay of one's own with the components."""
    overlay, stamps, devices = (
        os.path.relpath(MANIFESTS / each, tmp_path.resolve())
        for each in ("overlays/default", "components/stamp-policy", "components/device-claims")
    )
    lines = ("kind: Kustomization", f"resources: [{overlay}]", f"components: [{stamps}, {devices}]")
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines))
    text = cluster.plane.kubectl("kustomize", str(tmp_path))
    made = [each.value for each in read_documents("own", text.encode())]
    assert by_name(made) == by_name(render(mask="webhook", stamps=True).objects)


@pytest.mark.parametrize("overlay", ["ha", "dev"])
def test_kustomize_changes_the_deployments_only(cluster: Cluster, overlay: str) -> None:
    text = cluster.plane.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    made = [each.value for each in read_documents(overlay, text.encode())]
    wanted: list[Any] = json.loads(json.dumps(of_an_overlay(render(mask="webhook").objects)))
    apply_patches(MANIFESTS / "overlays" / overlay, wanted)
    assert by_name(made) == by_name(wanted)


def test_kustomize_asks_cert_manager_for_the_certificates(cluster: Cluster) -> None:
    text = cluster.plane.kubectl("kustomize", str(MANIFESTS / "overlays/cert-manager"))
    made = [each.value for each in read_documents("cert-manager", text.encode())]
    assert by_name(made) == by_name(of_an_overlay(of_cert_manager()))


@pytest.mark.parametrize(
    "overlay", sorted(each.name for each in (MANIFESTS / "overlays").iterdir())
)
def test_pods_of_every_overlay_pass_restricted_pod_security(cluster: Cluster, overlay: str) -> None:
    """As the API server judges them that enforces it in our namespace."""
    made = cluster.plane.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay))
    api = Api(cluster.plane.rest)
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"metadata": {"name": f"restricted-{overlay}", "labels": labels}}
    assert api.create("/api/v1/namespaces", namespace).ok
    account = f"/api/v1/namespaces/restricted-{overlay}/serviceaccounts"
    for each in read_documents(overlay, made.encode()):
        workload: Any = each.value
        if workload["kind"] != "Deployment":
            continue
        template = workload["spec"]["template"]
        name = template["spec"]["serviceAccountName"]
        assert api.create(account, {"metadata": {"name": name}}).ok
        pod = {**template, "metadata": {**template["metadata"], "name": name}}
        answer = api.create(objects.pods(f"restricted-{overlay}"), pod, dry_run=True)
        assert answer.ok, str(answer)
    api.delete(f"/api/v1/namespaces/restricted-{overlay}")


def test_kustomize_names_the_clients(cluster: Cluster, tmp_path: Path) -> None:
    """As `docs/client-auth.md` says it: an overlay with the component, the CA in a ConfigMap."""
    overlay, component = (
        os.path.relpath(MANIFESTS / each, tmp_path.resolve())
        for each in ("overlays/default", "components/client-auth")
    )
    lines = ("kind: Kustomization", f"resources: [{overlay}]", f"components: [{component}]")
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines))
    text = cluster.plane.kubectl("kustomize", str(tmp_path))
    made = [each.value for each in read_documents("own", text.encode())]
    clients = KnownClients("", ("kube-apiserver",))
    wanted = by_name(of_an_overlay(render(mask="webhook", clients=clients).objects))
    del wanted["ConfigMap", CLIENT_CA]
    assert by_name(made) == wanted


def test_installing_again_changes_nothing(clean: Cluster) -> None:
    first = clean.install()
    before = clean.versions()
    second = clean.install()
    assert "created" in first
    assert second.splitlines()[-1] == "unchanged"
    assert clean.versions() == before


def test_another_address_changes_the_registrations_only(cluster: Cluster) -> None:
    cluster.install()
    before = cluster.versions()
    told = cluster.install(url="https://127.0.0.1:2")
    assert f"webhook: moves from {NOWHERE} to https://127.0.0.1:2" in told
    after = cluster.versions()
    assert {name for name in after if before[name] != after[name]} == {
        "MutatingWebhookConfiguration/deferred-quota",
        "MutatingWebhookConfiguration/zz-deferred-quota-jobs",
        "ValidatingWebhookConfiguration/deferred-quota",
    }


@pytest.mark.parametrize("mask", MASKS)
def test_the_mask_leaves_only_counts_to_the_api_server(
    running: Product, cluster: Cluster, tenant: Tenant, mask: str
) -> None:
    cluster.install("--mask", mask, url=running.url)
    running.controller.pause()  # what it repairs must not be taken for the mask's work
    is_hidden(tenant, running)
    quota(tenant, "q", {"requests.cpu": "2", "pods": "3"})
    becomes(lambda: status(tenant, "q"), hidden("0"), "the quota controller has counted")
    for number in range(3):
        tenant.pod(f"p{number}", "5")
    refused = tenant.create("p3", "5")
    assert refused.code == 403
    assert refused.message.endswith(
        "exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3"
    )
    becomes(lambda: status(tenant, "q"), hidden("3"), "only counts are shown")
    before = tenant.api.get(objects.quotas(tenant.namespace, "q")).version
    # the quota controller has been through everything before when it has counted a new quota
    quota(tenant, "later", {"pods": "9"})
    becomes(lambda: counted(tenant, "later"), {"pods"}, "the quota controller goes on")
    assert tenant.api.get(objects.quotas(tenant.namespace, "q")).version == before
    running.controller.resume()


def hidden(pods: str) -> dict[str, Any]:
    return {"hard": {"pods": "3"}, "used": {"pods": pods}}


def test_quotas_that_are_excluded_and_other_namespaces_show_everything(
    cluster: Cluster, tenant: Tenant
) -> None:
    cluster.install()
    cluster.plane.apiserver.restart()  # no cache of what was before
    note = {"deferredquota.io/exclude": "true"}
    quota(tenant, "kept", {"requests.cpu": "2", "pods": "3"}, annotations=note)
    becomes(lambda: counted(tenant, "kept"), {"requests.cpu", "pods"}, "all of it is counted")
    plain = Tenant(cluster.plane.rest, "default")
    quota(plain, "plain", {"requests.cpu": "2"})
    becomes(lambda: counted(plain, "plain"), {"requests.cpu"}, "all of it is counted")
    plain.api.delete(objects.quotas("default", "plain"))


@pytest.mark.parametrize("mask", MASKS)
def test_the_configured_resources_are_hidden_too(
    running: Product, cluster: Cluster, tenant: Tenant, tmp_path: Path, mask: str
) -> None:
    config = tmp_path / "installed.yaml"
    text = (
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
        "deferredResources: [requests.nvidia.com/gpu]\n"
    )
    config.write_text(text)
    (tmp_path / "config.yaml").write_text(text)
    cluster.install("--mask", mask, "--config", config, url=running.url)
    gpu = "requests.nvidia.com/gpu"
    hard = {gpu: "2", "requests.amd.com/gpu": "1"}
    is_hidden(tenant, running)
    quota(tenant, "gpus", hard)
    path = objects.quotas(tenant.namespace, "gpus", "status")
    shown = {"status": {"hard": hard, "used": {gpu: "0"}}}

    def what_stays() -> dict[str, Any]:
        answer = tenant.api.patch(path, shown, dry_run=True).body["status"]
        return {field: set(answer.get(field, {})) for field in ("hard", "used")}

    wanted = {"hard": {"requests.amd.com/gpu"}, "used": {"requests.amd.com/gpu"}}
    becomes(lambda: counted(tenant, "gpus"), {"requests.amd.com/gpu"}, "the gpu is hidden")
    becomes(what_stays, wanted, "the gpu is hidden in every write")


def test_a_webhook_that_is_down_stops_only_what_charges(cluster: Cluster, tenant: Tenant) -> None:
    cluster.install()
    made = tenant.pod("waits", "1")

    def refusal(answer: objects.Answer) -> str:
        return answer.message.partition('webhook "')[2].partition('"')[0]

    def refusal_with_uid() -> str:
        return refusal(tenant.bind("waits", uid=made.uid, dry_run=True))

    becomes(refusal_with_uid, "bind.deferredquota.io", "the guard is asked")
    assert refusal(tenant.bind("waits", dry_run=True)) == "stamp.deferredquota.io"
    assert refusal(tenant.bind("waits", legacy=True, dry_run=True)) == "stamp.deferredquota.io"
    assigned = tenant.create("assigned", "1", nodeName="node-0")
    assert (assigned.code, refusal(assigned)) == (500, "assigned.deferredquota.io")
    assert refusal(tenant.set_deadline("waits", 30)) == "resize.deferredquota.io"
    if serves(cluster.plane.rest, RESIZE):
        assert refusal(tenant.resize("waits", "2")) == "resize.deferredquota.io"
    labelled = tenant.api.patch(
        objects.pods(tenant.namespace, "waits"), {"metadata": {"labels": {"a": "b"}}}
    )
    assert labelled.ok, str(labelled)
    quota(tenant, "q", {"pods": "5"})
    assert tenant.create("another", "1").ok
    # and nobody else's namespaces notice anything
    plain = Tenant(cluster.plane.rest, "default")
    eventually(lambda: plain.create("assigned", "1", nodeName="node-0").ok, "pods are made")
    plain.api.delete(objects.pods("default", "assigned"), grace_seconds=0)


def test_the_scheduler_binds_with_one_call_and_leaves_no_mark(
    running: Product, cluster: Cluster, tenant: Tenant
) -> None:
    cluster.install(url=running.url)
    is_hidden(tenant, running)
    quota(tenant, "q", {"requests.cpu": "2"})
    is_counted(tenant)
    made = tenant.pod("fits", "1", schedulerName="default-scheduler")
    eventually(lambda: tenant.node_of("fits"), "the scheduler binds it")
    seen = tenant.seen("fits")
    assert seen.body["metadata"]["uid"] == made.uid
    assert not marked(seen)
    webhook = running.webhooks[0]
    assert (
        webhook.metric("admission_requests_total", phase="mutating", resource="pods/binding") == 0
    )
    assert webhook.metric("admission_requests_total", phase="validating") > 0


@pytest.mark.needs(POLICIES)
def test_binds_are_marked_where_that_is_wanted(
    running: Product, cluster: Cluster, tenant: Tenant
) -> None:
    policy = "MutatingAdmissionPolicy deferred-quota-stamp"
    assert f"{policy}: created" in cluster.install("--stamps", url=running.url)
    numbers = itertools.count()

    def is_marked() -> bool:
        name = f"p{next(numbers)}"
        made = tenant.pod(name)
        assert tenant.bind(name, uid=made.uid).ok
        return marked(tenant.seen(name))

    eventually(is_marked, "the API server knows the policy")
    webhook = running.webhooks[0]
    assert (
        webhook.metric("admission_requests_total", phase="mutating", resource="pods/binding") == 0
    )
    assert f"{policy}: would be deleted" in cluster.install("--dry-run", url=running.url)
    assert f"{policy}: deleted" in cluster.install(url=running.url)
    assert cluster.install(url=running.url).splitlines()[-1] == "unchanged"
    eventually(lambda: not is_marked(), "nothing marks any more")


def test_a_ledger_is_stored_as_it_is_written(cluster: Cluster) -> None:
    cluster.install()
    path = objects.ledger("default")
    kept = {"metadata": {"name": "ledger"}}
    body = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "QuotaLedger", **kept}
    api = Api(cluster.plane.rest)
    eventually(lambda: api.create(path.removesuffix("/ledger"), body).ok, "ledgers are served")
    world = World()
    ledgers = [RARE_LEDGER]
    for step in random_steps(7, 60):
        STEPS[step.name](world, step)
        known = world.storage.read_ledger()[1]
        ledgers += [] if known is None else [known]
    for ledger in ledgers:
        status = json.loads(encode_json(ledger_status(ledger)))
        stored = api.get(path).body
        answer = api.call("PUT", f"{path}/status", {**stored, "status": status})
        assert answer.ok, str(answer)
        assert answer.body["status"] == status
        assert api.get(path).body["status"] == status
    printed = cluster.plane.kubectl("get", "ql", "-n", "default").splitlines()
    assert printed[0].split() == ["NAME", "USED+RESERVED/HARD", "AGE"]
    assert summary(ledgers[-1]) in printed[1]


@pytest.mark.parametrize("role", ["view", "edit"])
def test_a_user_that_may_view_a_namespace_may_read_its_ledger(
    cluster: Cluster, tenant: Tenant, role: str
) -> None:
    cluster.install()
    bind = ("create", "rolebinding", "-n", tenant.namespace, role)
    cluster.plane.kubectl(*bind, f"--clusterrole={role}", f"--user=who-may-{role}")

    def may(verb: str, subresource: str = "") -> bool:
        attributes = {
            "namespace": tenant.namespace,
            "verb": verb,
            "group": "deferredquota.io",
            "resource": "quotaledgers",
            "subresource": subresource,
        }
        review = {"spec": {"user": f"who-may-{role}", "resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = tenant.api.create(path, review)
        assert answer.ok, str(answer)
        return bool(answer.body["status"]["allowed"])

    eventually(lambda: may("get"), "the role has what is aggregated to it")
    assert not may("update", "status")
    assert not may("create")


def test_without_the_rights_it_says_which_is_missing_and_that_it_can_be_repeated(
    cluster: Cluster,
) -> None:
    access = cluster.plane.service_account_kubeconfig("default", "default")
    done = subprocess.run(
        [ROOT / "scripts" / "install", "--kubeconfig", access],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    missing, again = done.stderr.strip().splitlines()
    assert 'User "system:serviceaccount:default:default" cannot' in missing
    assert again == (
        "Error: not finished: what is as it should be stays; with that right, run it again"
    )
