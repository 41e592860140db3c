"""Certificates of cert-manager, as `overlays/cert-manager` asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.e2e.cluster import objects
from tests.e2e.cluster.certificates.cert_manager import CertManager
from tests.e2e.cluster.command_line import doctor, run
from tests.e2e.cluster.installed import Cluster, a_cluster, a_tenant, quota
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, Kubelet
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Product, apply, wait_for_ledgers
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.install import MANIFESTS
from webhook.install.kustomizations import read_directory
from webhook.kube.files.documents import read_documents
from webhook.state.well_known import CA_SECRET, TLS_SECRET

OVERLAY: Final = MANIFESTS / "overlays/cert-manager"
CA, LEAF = "deferred-quota-ca", "deferred-quota-webhook"
OWN: Final[Any] = {"certificates": {"rotate": False}}


@dataclass
class Installation:
    """An installation whose certificates are cert-manager's."""

    cluster: Cluster
    cert_manager: CertManager
    kubelet: Kubelet
    product: Product

    def owners(self) -> list[str]:
        """Return the objects of which `doctor` says that they have two owners."""
        found = doctor(self.cluster.plane)
        assert "certificates" in found["checked"]
        return sorted(
            f"{each['object']['kind']} {each['object']['name']}"
            for each in found["findings"]
            if each["id"] == "certificate.two-owners"
        )


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("cert-manager")
    with a_cluster(directory, apiserver_flags=LOOPBACK_SERVICES) as cluster:
        plane, cert_manager = cluster.plane, CertManager(cluster.plane)
        cert_manager.install()
        text = plane.kubectl("kustomize", str(OVERLAY))
        made: list[Any] = [each.value for each in read_documents("overlay", text.encode())]
        late = ("Deployment", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        apply(plane, [each for each in made if each["kind"] == "Namespace"])
        apply(plane, [each for each in made if each["kind"] not in late])
        wait_for_ledgers(plane)
        for name in (CA, LEAF):
            cert_manager.issue(name)
        kubelet = Kubelet(plane, directory / "kubelet")
        product = Product(plane, directory / "own", webhooks=0, controllers=1, configuration=OWN)
        try:
            with kubelet:
                apply(plane, [each for each in made if each["kind"] == "Deployment"])
                eventually(lambda: kubelet.server is not None, "the webhook runs", 120)
                apply(plane, [each for each in made if each["kind"] in late[1:]])
                cert_manager.inject()
                product.controller.start()
                # a namespace that opts in before waits 45 s for its ledger, as if it had lost one
                leads = "leadership begins"
                log = product.controller.log
                eventually(lambda: leads in log.read_text(), "the controller leads")
                yield Installation(cluster, cert_manager, kubelet, product)
        finally:
            product.stop()


@pytest.fixture
def tenant(installation: Installation) -> Iterator[Tenant]:
    with a_tenant(installation.cluster) as made:
        quota(made, "compute", {"requests.cpu": "2"})
        path = objects.ledger(made.namespace)
        # longer than the 45 s that a leader waits where one may have been lost
        becomes(lambda: made.api.get(path).code, 200, "there is a ledger", 60)
        made.pod("large", "3")
        yield made


def is_asked(tenant: Tenant) -> None:
    """See that a bind is charged: what does not fit is refused by the webhook itself."""
    eventually(
        lambda: "exceeded quota" in tenant.bind("large").message, "the API server asks the webhook"
    )


def served(installation: Installation) -> float:
    assert installation.kubelet.server is not None
    return installation.kubelet.server.metric("tls_certificate_not_after_seconds")


def test_what_cert_manager_issues_is_served_and_trusted(
    installation: Installation, tenant: Tenant
) -> None:
    is_asked(tenant)
    tenant.pod("small", "1")
    eventually(lambda: tenant.bind("small").ok, "a bind that fits")
    assert installation.owners() == []
    rights = installation.cluster.plane.kubectl("get", "clusterroles", "-o", "name")
    assert "deferred-quota-rotation" not in rights


def test_a_renewed_certificate_is_taken_up(installation: Installation, tenant: Tenant) -> None:
    is_asked(tenant)
    before = served(installation)
    installation.cert_manager.issue(LEAF)
    eventually(lambda: served(installation) > before, "the new one is served")
    is_asked(tenant)


def test_what_was_issued_before_is_trusted_after_the_ca_was_renewed(
    installation: Installation, tenant: Tenant
) -> None:
    """As its key is kept."""
    is_asked(tenant)
    before, ends = installation.cert_manager.secret(CA_SECRET), served(installation)
    installation.cert_manager.issue(CA)
    after = installation.cert_manager.secret(CA_SECRET)
    assert after["tls.key"] == before["tls.key"]
    assert after["tls.crt"] != before["tls.crt"]
    is_asked(tenant)  # of the former CA in the caBundle
    installation.cert_manager.inject()
    webhook = installation.kubelet.server
    assert webhook is not None
    webhook.wait_until_ready()
    is_asked(tenant)
    assert served(installation) == ends
    installation.cert_manager.issue(LEAF)
    eventually(lambda: served(installation) > ends, "one of the renewed CA is served")
    is_asked(tenant)


def test_of_two_owners_the_controller_refuses_and_doctor_names_them(
    installation: Installation,
) -> None:
    plane, product = installation.cluster.plane, installation.product
    api = Api(plane.rest)
    rotation = read_directory(MANIFESTS / "components/rotation")
    configuration = f"/api/v1/namespaces/{SYSTEM}/configmaps/deferred-quota-config"
    before = api.get(configuration).body["data"]
    secrets = {name: installation.cert_manager.secret(name) for name in (CA_SECRET, TLS_SECRET)}
    own = json.loads(product.configuration_file.read_text())
    try:
        apply(plane, rotation)
        rotates = {"config.yaml": before["config.yaml"].replace("rotate: false", "rotate: true")}
        assert api.patch(configuration, {"data": rotates}).ok
        product.configuration_file.write_text(json.dumps({**own, "certificates": {}}))
        told = "certificates are not kept"
        eventually(lambda: told in product.controller.log.read_text(), "the controller refuses")
        # and one that is started so
        product.controller.kill()
        before_start = product.controller.log.read_text().count(told)
        product.controller.start()
        eventually(
            lambda: product.controller.log.read_text().count(told) > before_start,
            "one that starts refuses",
            60,
        )
        assert "cert-manager writes its caBundle. Only one of both may" in (
            product.controller.log.read_text()
        )
        assert installation.owners() == [
            "MutatingWebhookConfiguration deferred-quota",
            "MutatingWebhookConfiguration zz-deferred-quota-jobs",
            "ValidatingWebhookConfiguration deferred-quota",
        ]
        # and by hand, and by an installation
        done = run(plane, "certs", "renew")
        assert done.exit_code != 0
        assert "cert-manager" in done.output
        refused = installation.cluster.run("install", code=1)
        assert "is written by cert-manager, for its Certificate deferred-quota-" in refused
        for name, data in secrets.items():
            assert installation.cert_manager.secret(name) == data
    finally:
        product.configuration_file.write_text(json.dumps(own))
        assert api.patch(configuration, {"data": before}).ok
