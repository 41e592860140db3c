"""Certificates that the controller keeps, with the rights of its service account."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from cryptography import x509

from tests.e2e.cluster.command_line import printed
from tests.e2e.cluster.installed import Cluster, a_cluster
from tests.e2e.cluster.objects import Api, Object
from tests.e2e.cluster.outages.alerts import is_firing, scraped
from tests.e2e.cluster.product import SYSTEM, Product, apply, wait_for_ledgers
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.install import render
from webhook.state.well_known import CA_SECRET, ISSUED_ANNOTATION, TLS_SECRET
from webhook.tls.bundles import trusted
from webhook.tls.pair import is_issued_by

ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
REGISTRATIONS: Final = (
    f"{ADMISSION}/mutatingwebhookconfigurations/deferred-quota",
    f"{ADMISSION}/mutatingwebhookconfigurations/zz-deferred-quota-jobs",
    f"{ADMISSION}/validatingwebhookconfigurations/deferred-quota",
)
SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"
BACK_SECONDS: Final = 5
TRIES: Final = 4
"""How often it is tried, so that one moment of a busy machine says nothing."""
JSON_PATCH: Final = "application/json-patch+json"


@dataclass
class Installation:
    """An installation as `kubectl apply -k` leaves it: nothing has made certificates yet."""

    cluster: Cluster
    product: Product
    admin: Api
    controller: Api

    def secret(self, name: str) -> dict[str, bytes]:
        data = self.admin.get(f"{SECRETS}/{name}").body.get("data", {})
        return {key: base64.b64decode(value) for key, value in data.items()}

    def bundles(self) -> set[bytes]:
        return {
            base64.b64decode(entry["clientConfig"].get("caBundle", ""))
            for path in REGISTRATIONS
            for entry in self.admin.get(path).body["webhooks"]
        }

    def certs(self, *arguments: str, code: int = 0) -> str:
        return printed(self.cluster.plane, "certs", *arguments, code=code)

    def is_whole(self) -> bool:
        """Return whether every registration trusts what is served."""
        pair, bundles = self.secret(TLS_SECRET), self.bundles()
        if not pair:
            return False
        leaf = x509.load_pem_x509_certificate(pair["tls.crt"])
        return all(any(is_issued_by(leaf, one) for one in trusted(each)) for each in bundles)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    directory = tmp_path_factory.mktemp("rotation")
    with a_cluster(directory) as cluster:
        made = render()
        apply(cluster.plane, (*made.cluster, *made.rotation, *made.identities))
        wait_for_ledgers(cluster.plane)
        apply(cluster.plane, made.registrations)
        product = Product(
            cluster.plane, directory / "product", webhooks=0, controllers=1, configuration={}
        )
        controller = Api(cluster.plane.service_account_rest(SYSTEM, "deferred-quota-controller"))
        try:
            product.controller.start(waits=False)
            yield Installation(cluster, product, Api(cluster.plane.rest), controller)
        finally:
            product.stop()


def test_certificates_are_made_and_registered_without_a_person(
    installation: Installation,
) -> None:
    eventually(installation.is_whole, "there are certificates, and they are registered")
    report = json.loads(installation.certs("status", "-o", "json"))
    assert report["problems"] == []
    assert report["phase"] == "steady"
    assert installation.certs("export").encode() == installation.secret(TLS_SECRET)["ca.crt"]


def seconds_until_back(installation: Installation, bundles: set[bytes]) -> float:
    for path in REGISTRATIONS:
        entries = installation.admin.get(path).body["webhooks"]
        wipe: Any = [
            {"op": "remove", "path": f"/webhooks/{index}/clientConfig/caBundle"}
            for index in range(len(entries))
        ]
        assert installation.admin.call("PATCH", path, wipe, kind=JSON_PATCH).ok
    wiped = time.monotonic()
    becomes(installation.bundles, bundles, "the bundle is back")
    return time.monotonic() - wiped


def test_a_bundle_that_is_taken_away_comes_back(installation: Installation) -> None:
    eventually(installation.is_whole, "there are certificates")
    before = installation.bundles()
    scraped_before = scraped([installation.product.controller])
    seconds_until_back(installation, before)
    # taken away as soon as it is back, so after a whole time between two looks
    tries = (seconds_until_back(installation, before) for _ in range(TRIES))
    assert any(seconds <= BACK_SECONDS for seconds in tries)
    drifts = "tls_bundle_drift_total"
    eventually(lambda: installation.product.controller.metric(drifts), "it is counted")
    during = scraped([installation.product.controller])
    alert = "DeferredQuotaBundleDrifts"  # of what happens every minute
    assert is_firing(alert, scraped_before, during)
    assert not is_firing(alert, scraped_before, scraped_before)


def test_lost_secrets_come_back(installation: Installation) -> None:
    eventually(installation.is_whole, "there are certificates")
    ca = installation.secret(CA_SECRET)
    assert installation.admin.delete(f"{SECRETS}/{TLS_SECRET}").ok
    eventually(installation.is_whole, "the served one is made anew")
    assert installation.secret(CA_SECRET) == ca
    for name in (CA_SECRET, TLS_SECRET):
        assert installation.admin.delete(f"{SECRETS}/{name}").ok
    eventually(
        lambda: installation.is_whole() and installation.secret(CA_SECRET).keys() >= {"tls.key"},
        "all is made anew",
    )
    assert installation.secret(CA_SECRET)["tls.crt"] != ca["tls.crt"]


def test_a_change_of_the_ca_is_begun_by_a_command_and_goes_on(
    installation: Installation,
) -> None:
    eventually(installation.is_whole, "there are certificates")
    installation.product.controller.pause()
    try:
        served = installation.secret(TLS_SECRET)["tls.crt"]
        before = installation.secret(CA_SECRET)["tls.crt"]
        assert "would write Secret" in installation.certs("rotate-ca", "--dry-run")
        assert installation.secret(CA_SECRET)["tls.crt"] == before
        assert "phase publish" in installation.certs("rotate-ca")
    finally:
        installation.product.controller.resume()
    for bundle in installation.bundles():
        assert before in bundle
        assert installation.secret(CA_SECRET)["tls.crt"] in bundle
    assert installation.secret(TLS_SECRET)["tls.crt"] == served
    assert installation.is_whole()


def test_a_registration_without_the_bundle_is_found_and_mended_by_hand(
    installation: Installation,
) -> None:
    eventually(installation.is_whole, "there are certificates")
    installation.product.controller.pause()
    try:
        wipe: Any = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        assert installation.admin.call("PATCH", REGISTRATIONS[2], wipe, kind=JSON_PATCH).ok
        assert "its caBundle lacks a trusted CA" in installation.certs("status", code=1)
        assert "written: caBundle of" in installation.certs("inject")
        assert "all registrations have the caBundle" in installation.certs("inject")
        print(installation.certs("status"))
        print(installation.certs("rotate-ca", "--dry-run"), installation.certs("init"))
    finally:
        installation.product.controller.resume()


def test_the_controllers_token_writes_its_two_secrets_only(installation: Installation) -> None:
    eventually(installation.is_whole, "there are certificates")
    api, body = installation.controller, {"type": "kubernetes.io/tls", "data": {}}
    named = {"apiVersion": "v1", "kind": "Secret", **body}
    pem = {"tls.crt": "", "tls.key": ""}
    for name, kind in (("other", "kubernetes.io/tls"), (CA_SECRET, "Opaque")):
        wanted = {**named, "metadata": {"name": name}, "type": kind, "data": pem}
        answer = api.create(SECRETS, wanted)
        assert answer.code in (403, 409), str(answer)
    assert api.create(SECRETS, {**named, "metadata": {"name": "other"}, "data": pem}).code == 403
    kept = api.get(f"{SECRETS}/{TLS_SECRET}").body
    endless = {**kept, "metadata": {**kept["metadata"], "finalizers": ["example.com/evil"]}}
    refused = api.call("PUT", f"{SECRETS}/{TLS_SECRET}", endless)
    assert (refused.code, "no finalizer" in refused.message) == (403, True), refused
    for_good = api.call("PUT", f"{SECRETS}/{TLS_SECRET}", {**kept, "immutable": True}, dry_run=True)
    assert (for_good.code, "be changed again" in for_good.message) == (403, True), for_good
    notes = {**kept["metadata"]["annotations"], "deferredquota.io/format": "2"}
    newer = {**kept, "metadata": {**kept["metadata"], "annotations": notes}}
    left = api.call("PUT", f"{SECRETS}/{TLS_SECRET}", newer, dry_run=True)
    assert (left.code, "of a newer release" in left.message) == (403, True), left
    metadata = kept["metadata"]
    wanted_otherwise: tuple[Object, ...] = (
        {"labels": {}},
        {"labels": {**metadata["labels"], "example.com/evil": "x"}},
        {"annotations": {**metadata["annotations"], ISSUED_ANNOTATION: "evil"}},
        {"annotations": {**metadata["annotations"], "deferredquota.io/former-until": "x" * 65}},
    )
    for changed in wanted_otherwise:
        odd = {**kept, "metadata": {**metadata, **changed}}
        refused = api.call("PUT", f"{SECRETS}/{TLS_SECRET}", odd, dry_run=True)
        assert (refused.code, "but their own" in refused.message) == (403, True), refused
    assert api.call("PUT", f"{SECRETS}/{TLS_SECRET}", kept, dry_run=True).ok
    assert api.get(SECRETS).code == 403
    assert api.get(f"/api/v1/namespaces/default/secrets/{CA_SECRET}").code == 403
    assert api.delete(f"{SECRETS}/{TLS_SECRET}").code == 403
    other = f"{ADMISSION}/validatingwebhookconfigurations/other"
    assert api.patch(other, {"webhooks": []}).code == 403
    assert api.delete(REGISTRATIONS[2]).code == 403
