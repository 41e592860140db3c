"""A replica goes by the names that the registrations of its cluster call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import Product
from tests.e2e.cluster.waiting import becomes, eventually
from webhook.tls.bootstrap import CertificateDirectory
from webhook.tls.files import CERTIFICATE_MODE, KEY_MODE, write_file
from webhook.tls.issue import Issued, issue_serving

LACKS = "does not cover"


@pytest.fixture
def own(plane: ControlPlane, product: Product, tmp_path: Path) -> Iterator[Product]:
    """A second product, which nobody asks: registered is what the first one has."""
    made = Product(plane, tmp_path, webhooks=1, controllers=0, configuration={})
    assert product.url.startswith("https://127.0.0.1:")
    yield made
    made.stop()


def write_pair(product: Product, name: str = "localhost", address: str = "") -> None:
    """Write a certificate of the same CA for a name, and perhaps an address."""
    files = CertificateDirectory(product.certificates)
    ca = Issued(files.ca_certificate.read_bytes(), files.ca_key.read_bytes())
    addresses = [address] if address else []
    issued = issue_serving(ca, dns_names=[name], ip_addresses=addresses, now=datetime.now(UTC))
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


def test_a_replica_may_read_who_calls_it(own: Product) -> None:
    (webhook,) = own.webhooks
    webhook.start()
    called = '"message":"called by the API server","names":["127.0.0.1"]'
    eventually(lambda: called in webhook.log.read_text(), "it knows the names that are called")
    assert "registrations cannot be looked at" not in webhook.log.read_text()


def reasons(product: Product) -> list[str]:
    try:
        status, body = product.webhooks[0].ops("/readyz")
    except OSError:
        return []
    found: list[str] = json.loads(body).get("reasons", []) if status == 503 else []
    return found
