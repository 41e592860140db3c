"""A webhook that answers API servers by their certificate, and API servers that show none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.pki import Pki
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.command_line import findings
from tests.e2e.cluster.objects import Answer
from tests.e2e.cluster.product import Product, Server, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.tls.issue import issue_ca

NAME = "kube-apiserver"


@dataclass(frozen=True, slots=True)
class Clients:
    """A CA of client certificates, and an API server's."""

    pki: Pki

    @classmethod
    def make(cls, directory: Path) -> Clients:
        directory.mkdir(parents=True, exist_ok=True)
        pki = Pki(directory, issue_ca(now=datetime.now(UTC)))
        pki.ca_file.write_bytes(pki.ca.certificate)
        return cls(pki)

    @property
    def serving(self) -> tuple[str | Path, ...]:
        """Return the arguments of a webhook that answers these clients only."""
        return "--client-ca", self.pki.ca_file, "--client-name", NAME

    def apiserver_flags(self, name: str = NAME) -> list[str]:
        """Return flags of an API server that shows a certificate to every webhook."""
        issued, directory = self.pki.issue_client(name, ()), self.pki.directory
        certificate, key = directory / "client.crt", directory / "client.key"
        certificate.write_bytes(issued.certificate)
        key.write_bytes(issued.key)
        user = {"client-certificate": str(certificate), "client-key": str(key)}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "*", "user": user}],
        }
        shown = directory / "webhooks.kubeconfig"
        shown.write_text(yaml.safe_dump(kubeconfig))
        plugins = [
            {
                "name": plugin,
                "configuration": {
                    "apiVersion": "apiserver.config.k8s.io/v1",
                    "kind": "WebhookAdmissionConfiguration",
                    "kubeConfigFile": str(shown),
                },
            }
            for plugin in ("ValidatingAdmissionWebhook", "MutatingAdmissionWebhook")
        ]
        admission = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        }
        file = directory / "admission.yaml"
        file.write_text(yaml.safe_dump(admission))
        return [f"--admission-control-config-file={file}"]


def strict(clients: Clients) -> Any:
    """Return what makes a webhook one that answers these clients only."""
    return lambda server: replace(server, command=[*server.command, *clients.serving])


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    return Clients.make(tmp_path_factory.mktemp("clients"))


@pytest.fixture(scope="module")
def shown(clients: Clients, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose API server shows its certificate to webhooks."""
    directory = tmp_path_factory.mktemp("shown")
    with ControlPlane.start(directory, apiserver_flags=clients.apiserver_flags()) as running:
        running.add_nodes(1)
        yield running


def told(plane: ControlPlane) -> dict[str, str]:
    """Return what `doctor` finds."""
    return {each["id"]: each["message"] for each in findings(plane)}


def a_tenant(plane: ControlPlane, name: str) -> Tenant:
    tenant = Tenant(plane.rest, name)
    apply_namespace(tenant.api, name)
    tenant.quota("small", hard={"requests.cpu": "1"})
    return tenant


def bound(tenant: Tenant, name: str) -> Answer:
    tenant.pod(name, "1")
    return tenant.bind(name)


def test_an_api_server_that_shows_its_certificate_is_answered(
    shown: ControlPlane, clients: Clients, tmp_path: Path
) -> None:
    with Product.start(shown, tmp_path, webhooks=2, serving=clients.serving) as product:
        tenant = a_tenant(shown, "certified")
        tenant.bound("first", "1")
        refused = bound(tenant, "second")
        assert "exceeded quota: small" in refused.message
        assert product.metric("clients_refused_total") == 0
        found = told(shown)
        assert not {"webhooks.silent", "webhooks.client-refused", "webhooks.open"} & found.keys()


def test_an_api_server_with_a_certificate_of_another_ca_is_not(
    shown: ControlPlane, tmp_path: Path
) -> None:
    others = Clients.make(tmp_path / "others")
    with Product.start(shown, tmp_path, webhooks=1) as product:
        tenant = a_tenant(shown, "of-another-ca")
        with product.another_webhook(strict(others)) as server:
            only(product, server)
            answer = bound(tenant, "first")
            assert "failed calling webhook" in answer.message
            assert "tls: unknown certificate authority" in answer.message
            assert server.metric("clients_refused_total", reason="untrusted") >= 1
            assert "unknown certificate authority" in told(shown)["webhooks.client-refused"]


def test_an_api_server_without_a_certificate_gets_the_reason(
    plane: ControlPlane, product: Product, tenant: Tenant, clients: Clients
) -> None:
    tenant.quota("small", hard={"requests.cpu": "1"})
    with product.another_webhook(strict(clients)) as server:
        assert server.ops("/readyz")[0] == 200
        only(product, server)
        answer = bound(tenant, "first")
        assert answer.code == 500
        assert "failed calling webhook" in answer.message
        assert "the client shows no certificate: this webhook answers only" in answer.message
        assert "kubeConfigFile" in answer.message
        assert server.metric("clients_refused_total", reason="no_certificate") >= 1
        assert "the client shows no certificate" in told(plane)["webhooks.client-refused"]
        assert '"message":"client refused"' in server.log.read_text()
    product.restore()
    eventually(lambda: tenant.bind("first").ok, "the other webhooks are asked again")


def only(product: Product, server: Server) -> None:
    """Let the API server reach one webhook only, on connections that are new."""
    others = [each for each in product.webhooks if each is not server]
    product.front.ports = (server.port,)
    for each in others:
        each.kill()
    becomes(lambda: [each.is_running for each in others], [False] * len(others), "only one runs")
