"""A replica goes by the names that the registrations call, and by the Secret of its cluster."""

from __future__ import annotations

import json
import shutil
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.certificates.kept_certificates import served_by
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import SYSTEM, Product, Server
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.atomic_file import write_file
from webhook.state.well_known import CA_SECRET, TLS_SECRET
from webhook.tls.bootstrap import CertificateDirectory
from webhook.tls.called_names import REGISTRATIONS
from webhook.tls.files import CERTIFICATE_MODE, KEY_MODE
from webhook.tls.issue import Issued, issue_serving
from webhook.tls.rotation import InstalledCertificates
from webhook.tls.rotation_store import tls_secret

LACKS = "does not cover"
SECRETS: Final = f"/api/v1/namespaces/{SYSTEM}/secrets"
SERVED_SECONDS: Final = 2.0
"""Between the write of the Secret and its service."""


@pytest.fixture
def own(plane: ControlPlane, product: Product, tmp_path: Path) -> Iterator[Product]:
    """A second product of the same CA, which is not asked: registered is what the first one has."""
    shutil.copytree(product.certificates, tmp_path / "certs")
    made = Product(plane, tmp_path, webhooks=1, controllers=0, configuration={})
    assert product.url.startswith("https://127.0.0.1:")
    yield made
    made.stop()


def a_pair(product: Product, name: str = "localhost", address: str = "") -> Issued:
    """Issue a certificate of the same CA for a name, and perhaps an address."""
    files = CertificateDirectory(product.certificates)
    ca = Issued(files.ca_certificate.read_bytes(), files.ca_key.read_bytes())
    addresses = [address] if address else []
    return issue_serving(ca, dns_names=[name], ip_addresses=addresses, now=datetime.now(UTC))


def write_pair(product: Product, name: str = "localhost", address: str = "") -> None:
    """Write such a certificate into the files."""
    files, issued = CertificateDirectory(product.certificates), a_pair(product, name, address)
    write_file(files.key, issued.key, mode=KEY_MODE)
    write_file(files.certificate, issued.certificate, mode=CERTIFICATE_MODE)


def test_a_certificate_for_another_host_makes_no_replica_ready(own: Product) -> None:
    write_pair(own, "elsewhere.example")
    (webhook,) = own.webhooks
    webhook.start(waits=False)
    told = eventually(lambda: [x for x in reasons(own) if LACKS in x], "it says why")
    assert "does not cover 127.0.0.1, by which the API server calls this webhook" in told[0]
    write_pair(own, address="127.0.0.1")
    webhook.wait_until_ready()


def test_a_certificate_for_another_host_is_not_taken_up(own: Product) -> None:
    (webhook,) = own.webhooks
    webhook.start()
    becomes(lambda: webhook.ops("/readyz")[0], 200, "it is ready")
    ends = webhook.metric("tls_certificate_not_after_seconds")
    write_pair(own, "elsewhere.example")
    note = eventually(lambda: [x for x in notes(own) if LACKS in x], "it is refused")[0]
    assert note.startswith("new certificate refused, the former one is served: ")
    assert note.endswith("tls.crt: does not cover the name 127.0.0.1")
    assert webhook.ops("/readyz")[0] == 200
    assert webhook.metric("tls_reloads_total", result="refused") >= 1
    assert webhook.metric("tls_certificate_not_after_seconds") == ends
    assert "certificate refused, the last good one stays" in webhook.log.read_text()
    write_pair(own, address="127.0.0.1")
    becomes(lambda: webhook.metric("tls_reloads_total", result="loaded"), 1.0, "it is repaired")
    assert notes(own) == []


def notes(product: Product) -> list[str]:
    found: list[str] = json.loads(product.webhooks[0].ops("/readyz")[1]).get("notes", [])
    return found


def test_a_replica_may_read_the_registrations_that_call_it(own: Product) -> None:
    (webhook,) = own.webhooks
    webhook.start()
    called = '"message":"called by the API server","names":["127.0.0.1"]'
    eventually(lambda: called in webhook.log.read_text(), "it knows the names that are called")
    assert "is not compared with the cluster" not in webhook.ops("/readyz")[1]


def reasons(product: Product) -> list[str]:
    try:
        status, body = product.webhooks[0].ops("/readyz")
    except OSError:
        return []
    found: list[str] = json.loads(body).get("reasons", []) if status == 503 else []
    return found


# -- the Secret ------------------------------------------------------------------------------------


@pytest.fixture
def admin(plane: ControlPlane) -> Iterator[Api]:
    """What an administrator calls; there is no Secret of certificates before and after."""
    api = Api(plane.rest)
    yield api
    api.delete(f"{SECRETS}/{TLS_SECRET}")


@pytest.fixture
def watching(own: Product, plane: ControlPlane, tmp_path: Path) -> Iterator[Server]:
    """A replica that watches the Secret, which is not there yet, beside the files of `own`."""
    serving = ("--certs-secret", TLS_SECRET)
    made = Product(plane, tmp_path, webhooks=1, controllers=0, configuration={}, serving=serving)
    assert made.certificates == own.certificates
    (webhook,) = made.webhooks
    webhook.start()
    yield webhook
    made.stop()


def write_secret(admin: Api, pair: Issued) -> None:
    secret = tls_secret(InstalledCertificates(serving=pair), SYSTEM)
    path = f"{SECRETS}/{TLS_SECRET}"
    known = admin.get(path).code == 200
    assert (admin.call("PUT", path, secret) if known else admin.create(SECRETS, secret)).ok


def becomes_served(replica: Server, pair: Issued) -> None:
    der = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
    eventually(lambda: served_by(replica) == der, "it is served", SERVED_SECONDS, growth=1)


def test_a_pair_in_the_secret_is_served_at_once_while_the_files_are_old(
    own: Product, admin: Api, watching: Server
) -> None:
    old = (own.certificates / "tls.crt").read_bytes()
    first, renewed = (a_pair(own, address="127.0.0.1") for _ in range(2))
    for pair in (first, renewed):
        write_secret(admin, pair)
        becomes_served(watching, pair)
    assert (own.certificates / "tls.crt").read_bytes() == old
    key = (own.certificates / "tls.key").read_bytes()
    for name, data in (("tls.key", key), ("tls.crt", old)):  # mounted anew, and late
        write_file(own.certificates / name, data, mode=KEY_MODE)
    becomes_served(watching, renewed)
    assert admin.delete(f"{SECRETS}/{TLS_SECRET}").ok
    becomes(lambda: watching.ops("/readyz"), (200, '{"status":"ok"}'), "it is ready")
    becomes_served(watching, renewed)


def test_a_pair_in_the_secret_that_cannot_be_served_is_refused(
    own: Product, admin: Api, watching: Server
) -> None:
    good, other = (a_pair(own, address="127.0.0.1") for _ in range(2))
    write_secret(admin, good)
    becomes_served(watching, good)
    write_secret(admin, Issued(other.certificate, good.key))
    words = f"Secret {SYSTEM}/{TLS_SECRET}, tls.key: does not belong to the certificate"
    eventually(lambda: words in watching.ops("/readyz")[1], "it is refused")
    assert watching.ops("/readyz")[0] == 200
    becomes_served(watching, good)
    write_secret(admin, a_pair(own, "elsewhere.example"))
    eventually(lambda: "cover the name 127.0.0.1" in watching.ops("/readyz")[1], "and so is this")
    becomes_served(watching, good)


def test_the_webhooks_token_reads_that_secret_and_no_other(
    plane: ControlPlane, own: Product, admin: Api
) -> None:
    write_secret(admin, a_pair(own))
    webhook = Api(plane.service_account_rest(SYSTEM, "deferred-quota-webhook"))

    def listed(path: str, name: str = "") -> int:
        query = f"?fieldSelector=metadata.name%3D{name}" if name else ""
        return webhook.get(f"{path}{query}").code

    assert listed(SECRETS, TLS_SECRET) == 200
    assert listed(SECRETS, CA_SECRET) == listed(SECRETS) == 403
    assert listed("/api/v1/namespaces/default/secrets", TLS_SECRET) == 403
    assert webhook.get(f"{SECRETS}/{TLS_SECRET}").code == 403
    assert webhook.delete(f"{SECRETS}/{TLS_SECRET}").code == 403
    for kind, name in REGISTRATIONS:
        path = f"/apis/{kind.group}/{kind.version}/{kind.plural}"
        assert listed(path, name) == 200
        assert listed(path) == listed(path, "other") == 403
