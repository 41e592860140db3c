"""The API server gives our writes a priority level of their own, where the component is applied."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest
from tests.e2e.cluster import objects
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, apply
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.install.kustomizations import read_directory
from webhook.install.rendering import API_PRIORITY, MANIFESTS

GROUP = "/apis/flowcontrol.apiserver.k8s.io/v1"
SCHEMA = f"{GROUP}/flowschemas/deferred-quota"
LEVEL = f"{GROUP}/prioritylevelconfigurations/deferred-quota"
NOBODYS = f"/apis/deferredquota.io/v1alpha1/namespaces/{SYSTEM}/quotaledgers/ledger"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/deferred-quota-controller"


@pytest.fixture
def schema(plane: ControlPlane) -> Iterator[str]:
    """The uid of the FlowSchema; it and its level are taken away at the end."""
    apply(plane, read_directory(MANIFESTS / API_PRIORITY))
    api = Api(plane.rest)
    becomes(lambda: conditions(api).get("Dangling", ""), "False", "the schema finds its level")
    yield api.get(SCHEMA).uid
    api.delete(SCHEMA)
    api.delete(LEVEL)


def conditions(api: Api) -> dict[str, str]:
    found = api.get(SCHEMA).body.get("status", {}).get("conditions", ())
    return {each["type"]: each["status"] for each in found}


def of_schema(rest: Rest, path: str) -> str:
    """Return which FlowSchema a request is put into."""
    return str(rest.exchange("GET", path).headers.get("X-Kubernetes-PF-FlowSchema-UID"))


def dispatched(plane: ControlPlane) -> float:
    """Count the requests of that level that the API server has begun."""
    text = plane.rest.call("GET", "/metrics")[1].decode()
    name = r"apiserver_flowcontrol_dispatched_requests_total"
    found = re.findall(rf'(?m)^{name}{{flow_schema="deferred-quota".*}} (\S+)$', text)
    return sum(map(float, found))


@pytest.mark.usefixtures("product")
def test_reads_of_one_object_are_in_it_and_nothing_else(plane: ControlPlane, schema: str) -> None:
    webhook = plane.service_account_rest(SYSTEM, "deferred-quota-webhook")
    controller = plane.service_account_rest(SYSTEM, "deferred-quota-controller")
    eventually(lambda: of_schema(webhook, NOBODYS) == schema, "the API server goes by it")
    assert of_schema(controller, LEASE) == schema
    assert of_schema(webhook, objects.pods("default", "nobody")) == schema
    assert of_schema(webhook, "/api/v1/pods") != schema, "a list of all pods can wait"
    assert of_schema(plane.rest, NOBODYS) != schema, "an administrator is somebody else"


@pytest.mark.usefixtures("product", "schema")
def test_binds_are_charged_in_it(plane: ControlPlane, tenant: Tenant) -> None:
    tenant.quota("small", hard={"requests.cpu": "1"})
    eventually(lambda: dispatched(plane) > 0, "the product's calls are in it")
    tenant.pod("first", "1")
    before = dispatched(plane)
    assert tenant.bind("first").ok
    assert dispatched(plane) > before
