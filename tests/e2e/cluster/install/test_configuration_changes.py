"""A configuration file that changes under running processes: quota is enforced at every moment."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.cluster import objects
from tests.e2e.cluster.installed import (
    Cluster,
    a_cluster,
    a_product,
    a_tenant,
    is_counted,
    is_hidden,
    quota,
)
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.tenant import NODE, Tenant
from tests.e2e.cluster.waiting import eventually

HEAD = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "Configuration"}
GPU = "requests.nvidia.com/gpu"


Parts = tuple[Cluster, Product, Tenant]


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    """A cluster, the product beside it, and a tenant."""
    with (
        a_cluster(tmp_path) as cluster,
        a_product(cluster, tmp_path / "product") as product,
        a_tenant(cluster) as tenant,
    ):
        yield cluster, product, tenant


def is_refused(tenant: Tenant, name: str) -> bool:
    """Return whether a pod beyond quota is refused, when it is created or when it is bound."""
    if not tenant.create(name, "5").ok:
        return True
    is_bound = tenant.bind(name).ok
    tenant.api.call("DELETE", objects.pods(tenant.namespace, name), {"gracePeriodSeconds": 0})
    return not is_bound


def numbers_for(seconds: float) -> Iterator[int]:
    """Count until some seconds are over."""
    give_up = time.monotonic() + seconds
    return itertools.takewhile(lambda _: time.monotonic() < give_up, itertools.count())


def test_an_exempt_namespace_is_guarded_until_the_api_server_enforces_its_quotas(
    parts: Parts,
) -> None:
    cluster, product, tenant = parts
    cluster.install(url=product.url)
    is_hidden(tenant, product)
    quota(tenant, "q", {"requests.cpu": "2"})
    is_counted(tenant)
    eventually(lambda: tenant.create("fits", "1").ok, "pods are not judged when created")
    eventually(lambda: tenant.bind("fits").ok, "the ledger counts")
    assert is_refused(tenant, "before")

    file = product.configuration_file
    exempt = ["kube-system", "kube-public", "kube-node-lease", "sandbox"]
    file.write_text(json.dumps({**HEAD, "exemptNamespaces": exempt}))
    cluster.install("--config", file, url=product.url)
    for number in numbers_for(8):  # the controller looks every few seconds
        tenant.pod(f"waits-{number}", "5")
        tenant.delete(f"waits-{number}")
    assert not tenant.events("NotGuarded")

    file.write_text(json.dumps({**HEAD, "exemptNamespaces": [*exempt, tenant.namespace]}))
    waits = f"exemptNamespaces: {tenant.namespace}"
    for process in product.processes:
        eventually(lambda p=process: waits in p.ops("/readyz")[1], "it is held back")  # type: ignore[misc]
    for number in numbers_for(10):
        assert is_refused(tenant, f"held-{number}")
    for process in product.processes:  # what starts by itself is no installation
        process.kill()
        process.start()
    eventually(lambda: waits in product.controller.ops("/readyz")[1], "it is held back again")
    for number in range(5):
        assert is_refused(tenant, f"again-{number}")

    cluster.install("--config", file, url=product.url)
    for number in range(20):
        assert is_refused(tenant, f"then-{number}")
    for process in product.processes:
        eventually(lambda p=process: waits not in p.ops("/readyz")[1], "it is in force")  # type: ignore[misc]
    eventually(
        lambda: "exceeded quota" in tenant.create("late", "5").message,
        "the API server enforces it",
    )


def is_refused_with_its_node(tenant: Tenant, name: str) -> bool:
    """Return whether a pod of 3 GPUs that names its node is refused when it is created."""
    gpus = {"nvidia.com/gpu": "3"}
    answer = tenant.create(name, requests=gpus, limits=gpus, node=NODE)
    if answer.ok:
        tenant.delete(name)
    return not answer.ok


def test_a_resource_that_is_dropped_is_enforced_at_every_moment(parts: Parts) -> None:
    cluster, product, tenant = parts
    file = product.configuration_file
    file.write_text(json.dumps({**HEAD, "deferredResources": [GPU]}))
    cluster.install("--config", file, url=product.url)
    quota(tenant, "q", {GPU: "2", "requests.cpu": "2"})
    eventually(lambda: tenant.native("q")[0] == {}, "nothing is enforced at creation")
    eventually(lambda: GPU in tenant.used("q"), "the ledger counts")
    assert is_refused_with_its_node(tenant, "before")

    file.write_text(json.dumps(HEAD))
    waits = f"deferredResources: {GPU}"
    for process in product.processes:
        eventually(lambda p=process: waits in p.ops("/readyz")[1], "it is held back")  # type: ignore[misc]
    refused: list[bool] = []
    with ThreadPoolExecutor() as pool:
        installed = pool.submit(cluster.install, "--config", file, url=product.url)
        while not (
            installed.done()
            and all(waits not in each.ops("/readyz")[1] for each in product.processes)
        ):
            refused.append(is_refused_with_its_node(tenant, f"meanwhile-{len(refused)}"))
    assert installed.exception() is None
    assert all(refused), refused.index(False)
    assert GPU in tenant.native("q")[0]
    assert tenant.events("NotEnforced") == []
