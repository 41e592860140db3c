"""The webhook moves while pods are bound all the time, and no bind fails for it."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.e2e.cluster.command_line import doctor
from tests.e2e.cluster.installed import (
    ROOT,
    Cluster,
    a_cluster,
    a_product,
    a_tenant,
    is_counted,
    is_hidden,
    quota,
)
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, Kubelet
from tests.e2e.cluster.objects import Answer, Api
from tests.e2e.cluster.product import SYSTEM, Product
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import eventually
from tests.e2e.harness import make_certificates
from webhook.state.well_known import CA_SECRET, LEADER_LEASE, TLS_SECRET
from webhook.tls.bundles import certificate_set

KINDS = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
INSIDE = "the cluster (Service deferred-quota-system/deferred-quota-webhook)"
WAITING = "Deployment deferred-quota-system/deferred-quota-webhook: waiting"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with a_cluster(tmp_path_factory.mktemp("moving"), apiserver_flags=LOOPBACK_SERVICES) as made:
        yield made


@pytest.fixture
def product(cluster: Cluster, tmp_path: Path) -> Iterator[Product]:
    """A webhook and a controller outside of the cluster, which the API server asks."""
    with Kubelet(cluster.plane, tmp_path / "emptying", is_serving=False):
        cluster.emptied()
    with a_product(cluster, tmp_path) as made:
        cluster.install(url=made.url)
        yield made


@pytest.fixture
def tenant(cluster: Cluster, product: Product) -> Iterator[Tenant]:
    with a_tenant(cluster) as made:
        is_hidden(made, product)
        quota(made, "p1", {"requests.cpu": "1k"})
        is_counted(made)
        yield made


class Binds:
    """Binds pods one after the other, and keeps what was answered and should not have been."""

    def __init__(self, tenant: Tenant) -> None:
        self.failed: list[Answer] = []
        self.done = 0
        self._tenant = Tenant(tenant.api.rest, tenant.namespace)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="binds")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if kind is None:
            self.go_on()
            assert self.done > 0

    def go_on(self) -> None:
        """See that no bind has failed until now."""
        assert [str(each) for each in self.failed] == []

    def _run(self) -> None:
        while not self._stopping.is_set():
            time.sleep(0.02)
            name = f"bound-{next(_NUMBERS)}"
            made = self._tenant.pod(name, "1m")
            answer = self._tenant.bind(name, uid=made.uid)
            while answer.code == 429 and not self._stopping.is_set():
                answer = self._tenant.bind(name, uid=made.uid)  # as a scheduler would
            if answer.ok:
                self.done += 1
                self._tenant.delete(name)
            else:
                self.failed.append(answer)


def registered(cluster: Cluster) -> list[dict[str, Any]]:
    found = json.loads(cluster.plane.kubectl("get", KINDS, "-o", "json"))["items"]
    return [entry for each in found for entry in each["webhooks"]]


def asked(cluster: Cluster) -> set[str]:
    """Return where the API server asks: addresses, and names of Services."""
    clients = [each["clientConfig"] for each in registered(cluster)]
    return {
        each["url"].rpartition("/")[0] if "url" in each else each["service"]["name"]
        for each in clients
    }


def trusted(cluster: Cluster) -> set[frozenset[bytes]]:
    """Return what the entries trust."""
    return {
        certificate_set(base64.b64decode(each["clientConfig"].get("caBundle", "")))
        for each in registered(cluster)
    }


def ca_inside(cluster: Cluster) -> frozenset[bytes]:
    secret = cluster.plane.kubectl("get", "secret", "-n", SYSTEM, CA_SECRET, "-o", "json")
    return certificate_set(base64.b64decode(json.loads(secret)["data"]["tls.crt"]))


def lose_secrets(cluster: Cluster, product: Product) -> None:
    """Delete both Secrets with certificates, while no controller makes them anew."""
    product.controller.kill()
    for name in (CA_SECRET, TLS_SECRET):
        cluster.plane.kubectl("delete", "secret", "-n", SYSTEM, name)


@contextmanager
def renewing(cluster: Cluster) -> Iterator[None]:
    """Renew the Lease as a controller that leads does, do nothing else, and give it back."""
    api, path = Api(cluster.plane.rest), f"{LEASES}/{LEADER_LEASE}"
    stopping = threading.Event()

    def renew() -> None:
        while not stopping.wait(1):
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            assert api.patch(path, {"spec": {"renewTime": now}}).ok
        assert api.patch(path, {"spec": {"holderIdentity": ""}}).ok

    with ThreadPoolExecutor() as threads:
        renewed = threads.submit(renew)
        try:
            yield
        finally:
            stopping.set()
        renewed.result()


def of_deployments(cluster: Cluster) -> set[str]:
    """Return what doctor finds about Deployments."""
    found = {each["id"] for each in doctor(cluster.plane)["findings"]}
    return {each for each in found if each.startswith("deployment.")}


def test_binds_go_on_while_the_webhook_moves_in_and_out(
    cluster: Cluster, product: Product, tenant: Tenant, tmp_path: Path
) -> None:
    outside = certificate_set(cluster.ca.read_bytes())
    with Binds(tenant) as binds, Kubelet(cluster.plane, tmp_path / "kubelet") as kubelet:
        told = cluster.run("install")
        assert f"webhook: moves from {product.url} to {INSIDE}" in told
        assert f"trusts the CA of {INSIDE}, too" in told
        assert asked(cluster) == {"deferred-quota-webhook"}
        inside = ca_inside(cluster)
        assert trusted(cluster) == {inside}
        binds.go_on()
        before = binds.done
        product.webhooks[0].kill()
        eventually(lambda: binds.done > before + 5, "the new one is asked alone")
        binds.go_on()
        assert cluster.run("install").splitlines()[-1] == "unchanged"
        lose_secrets(cluster, product)
        with renewing(cluster):
            cluster.run("install")
        assert trusted(cluster) == {inside | ca_inside(cluster)}
        assert not inside & ca_inside(cluster)
        binds.go_on()
        product.controller.start(waits=False)
        product.webhooks[0].start()
        told = cluster.install(url=product.url)
        assert asked(cluster) == {product.url}
        assert trusted(cluster) == {outside}
        assert kubelet.server is not None
        kubelet.server.kill()
        before = binds.done
        eventually(lambda: binds.done > before + 5, "the former one is asked alone")
        cluster.plane.kubectl("scale", "deployment", "-n", SYSTEM, "--all", "--replicas=0")
        unused = {"deployment.unasked", "deployment.unneeded"}
        eventually(lambda: of_deployments(cluster) == unused, "one outside leads")


def test_a_deployment_that_never_gets_ready_leaves_what_worked(
    cluster: Cluster, product: Product, tenant: Tenant, tmp_path: Path
) -> None:
    outside = certificate_set(cluster.ca.read_bytes())
    with Binds(tenant) as binds:
        for _ in range(2):  # another try makes nothing worse
            told = cluster.run("install", "--timeout", "3", code=1)
            binds.go_on()
            assert "0 of 3 replicas are available" in told
            assert f"not finished: the API server asks {product.url}, as before" in told
            assert asked(cluster) == {product.url}
            assert trusted(cluster) == {outside | ca_inside(cluster)}
            before = binds.done
            eventually(lambda: binds.done > before + 5, "binds go on")  # noqa: B023
            binds.go_on()
        # pods that say they are ready are not enough
        with Kubelet(cluster.plane, tmp_path / "nothing", is_serving=False):
            told = cluster.run("install", "--timeout", "10", code=1)
        assert f"Error: {INSIDE}: " in told
        assert "connection refused" in told
        assert asked(cluster) == {product.url}
        binds.go_on()
        # whoever wants it back as it was installs that
        cluster.install(url=product.url)
        assert trusted(cluster) == {outside}


def test_a_move_that_is_interrupted_goes_on_from_there(
    cluster: Cluster, product: Product, tenant: Tenant, tmp_path: Path
) -> None:
    with ExitStack() as later, Binds(tenant) as binds:
        for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
            ended, told = interrupted(cluster, number)
            assert ended == code, told
            assert number == signal.SIGKILL or "not finished: the API server asks" in told
            assert asked(cluster) == {product.url}
            before = binds.done
            eventually(lambda: binds.done > before + 5, "binds go on")  # noqa: B023
            binds.go_on()
        later.enter_context(Kubelet(cluster.plane, tmp_path / "kubelet"))  # outlives the binds
        cluster.run("install")
        assert asked(cluster) == {"deferred-quota-webhook"}
        before = binds.done
        eventually(lambda: binds.done > before + 5, "binds go on")


def interrupted(cluster: Cluster, number: signal.Signals) -> tuple[int, str]:
    """Install, and end that while it waits; return how it ended, and what it said."""
    program = [str(ROOT / ".venv/bin/python"), "-u", str(ROOT / "scripts/installation.py")]
    command = [*program, "install", "--kubeconfig", str(cluster.plane.kubeconfig())]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        told = ""
        for line in running.stdout:
            told += line
            if line.startswith(WAITING):
                time.sleep(0.5)  # it waits by then
                running.send_signal(number)
        return running.wait(), told


def test_another_ca_is_trusted_alone_only_when_it_is_served_with(
    cluster: Cluster, product: Product, tenant: Tenant, tmp_path: Path
) -> None:
    old = certificate_set(cluster.ca.read_bytes())
    other = make_certificates(tmp_path / "other")
    new = certificate_set((other / "ca.crt").read_bytes())
    with Binds(tenant) as binds:
        told = cluster.run(
            "install", "--url", product.url, "--ca", other / "ca.crt", "--timeout", "3", code=1
        )
        assert "certificate signed by unknown authority" in told
        assert trusted(cluster) == {old | new}
        binds.go_on()
        for name in ("ca.crt", "tls.key", "tls.crt"):
            shutil.copy(other / name, product.certificates / name)
        told = cluster.install(url=product.url)
        assert trusted(cluster) == {new}
