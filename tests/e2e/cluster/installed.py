"""A cluster into which an administrator installs, and what people see of its quotas."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.controlplane.features import POLICIES, serves
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product, a_team
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.harness import make_certificates
from webhook.operations.names import DEVICE_CLAIMS_POLICY
from webhook.state.well_known import DEFAULT_NAMESPACE

ROOT: Final = Path(__file__).parents[3]
NOWHERE: Final = "https://127.0.0.1:1"
OURS: Final = "app.kubernetes.io/part-of=deferred-quota"
KINDS: Final = (
    "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings,roles,rolebindings,"
    "serviceaccounts,secrets,configmaps,services,jobs,deployments,poddisruptionbudgets,resourcequotas,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,"
    "validatingadmissionpolicybindings"
)
POLICY_KINDS: Final = "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
"""What not every version of Kubernetes has."""

_NUMBERS: Final = itertools.count()


class Cluster:
    """A control plane, and what an administrator calls."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.directory = directory
        self.ca = make_certificates(directory / "certs") / "ca.crt"

    def run(self, script: str, *arguments: str | Path, code: int = 0) -> str:
        """Run a script; return all that it printed."""
        command = [str(ROOT / "scripts" / script), "--kubeconfig", str(self.plane.kubeconfig())]
        done = subprocess.run(
            [*command, *(str(each) for each in arguments)],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        text = done.stdout + done.stderr
        assert done.returncode == code, text
        return text

    def install(self, *arguments: str | Path, url: str = NOWHERE, code: int = 0) -> str:
        """Install for a webhook that runs at an address."""
        return self.run("install", "--url", url, "--ca", self.ca, *arguments, code=code)

    def uninstall(self, *arguments: str, code: int = 0) -> str:
        """Take everything out."""
        return self.run("uninstall", "--yes", *arguments, code=code)

    def emptied(self) -> Cluster:
        """Take everything out, if there is something, with the labels of namespaces.

        They go first: to opt out takes two pauses for each namespace that has one, and those of a
        test may be hundreds.
        """
        api = Api(self.plane.rest)
        ours = {objects.MODE_LABEL: None, objects.GATING_LABEL: None}
        for each in api.get("/api/v1/namespaces").body["items"]:
            if ours.keys() & each["metadata"].get("labels", {}).keys():  # it may be gone by now
                path = f"/api/v1/namespaces/{each['metadata']['name']}"
                api.patch(path, {"metadata": {"labels": ours}})
        if self.versions():
            self.uninstall("--remove-labels")
        assert self.versions() == {}
        return self

    def versions(self) -> dict[str, str]:
        """Return the versions of everything that an installation consists of.

        Of policies whose types the platform's controllers check and note in their status, those of
        what is wanted.
        """
        kinds = with_policies(self.plane, KINDS)
        command = ("get", kinds, "-A", "-l", OURS, "-o", "json", "--show-managed-fields")
        found = json.loads(self.plane.kubectl(*command))
        return {
            f"{each['kind']}/{each['metadata']['name']}": _version(each) for each in found["items"]
        }


def with_policies(plane: ControlPlane, kinds: str) -> str:
    """Return kinds as kubectl takes them, with mutating policies where the API server has them."""
    return f"{kinds},{POLICY_KINDS}" if serves(plane.rest, POLICIES) else kinds


def _version(obj: Mapping[str, Any]) -> str:
    is_checked = obj["kind"] == "ValidatingAdmissionPolicy"
    return str(obj["metadata"]["generation" if is_checked else "resourceVersion"])


@contextmanager
def a_cluster(directory: Path, *, apiserver_flags: Sequence[str] = ()) -> Iterator[Cluster]:
    """Give a cluster of its own, in an empty directory."""
    with ControlPlane.start(directory / "plane", apiserver_flags=apiserver_flags) as plane:
        plane.add_nodes(2)
        yield Cluster(plane, directory)


@contextmanager
def a_tenant(cluster: Cluster) -> Iterator[Tenant]:
    """Give a namespace that has opted in."""
    with a_team(cluster.plane, f"tenant-{next(_NUMBERS)}") as made:
        yield made


@contextmanager
def a_product(
    cluster: Cluster, directory: Path, namespace: str = DEFAULT_NAMESPACE
) -> Iterator[Product]:
    """Give a webhook and a controller with the rights of an installation that asks nobody yet."""
    cluster.install("--namespace", namespace)
    # what is registered trusts the cluster's CA: of another one it would not get ready
    shutil.copytree(cluster.ca.parent, directory / "certs", dirs_exist_ok=True)
    product = Product(
        cluster.plane,
        directory,
        webhooks=1,
        controllers=1,
        configuration={},
        namespace=namespace,
    )
    cluster.ca = product.certificates / "ca.crt"
    try:
        product.start_processes()
        # namespaces that opt in from here on are new to it, and get their ledgers at once
        leads = "leadership begins"
        eventually(lambda: leads in product.controller.log.read_text(), "the controller leads")
        yield product
    finally:
        product.stop()


def quota(tenant: Tenant, name: str, hard: Mapping[str, str], **metadata: Any) -> None:
    wanted = {"metadata": {"name": name, **metadata}, "spec": {"hard": dict(hard)}}
    answer = tenant.api.create(objects.quotas(tenant.namespace), wanted)
    assert answer.ok, str(answer)


def status(tenant: Tenant, name: str) -> dict[str, Any]:
    found = tenant.api.get(objects.quotas(tenant.namespace, name)).body.get("status", {})
    return {field: found.get(field, {}) for field in ("hard", "used")}


def counted(tenant: Tenant, name: str) -> set[str]:
    """Return what the quota controller has counted so far."""
    return set(status(tenant, name)["used"])


def is_hidden(tenant: Tenant, product: Product) -> None:
    """Wait until the API server acts on a mask that was just installed."""
    quota(tenant, "first", {"pods": "1k"})
    path = objects.quotas(tenant.namespace, "first", "status")
    shown = {"status": {"hard": {"pods": "1k", "cpu": "1"}, "used": {"pods": "0", "cpu": "0"}}}
    eventually(
        lambda: "cpu" not in tenant.api.patch(path, shown, dry_run=True).body["status"]["hard"],
        f"{product.url} or a policy hides",
    )


def is_counted(tenant: Tenant) -> None:
    path = objects.ledger(tenant.namespace)
    becomes(lambda: tenant.api.get(path).code, 200, "there is a ledger")


def of_an_overlay(objects_made: Any) -> list[Any]:
    """Return the objects but for those that are in no overlay, as not every version serves them."""
    return [one for one in objects_made if one["metadata"]["name"] != DEVICE_CLAIMS_POLICY]


def by_name(objects_made: Any) -> dict[tuple[str, str], Any]:
    """Return the objects by what they are, with webhooks in one order."""
    found = {}
    for each in json.loads(json.dumps(list(objects_made))):
        if "webhooks" in each:
            each["webhooks"].sort(key=lambda entry: entry["name"])
        found[each["kind"], each["metadata"]["name"]] = each
    return found
