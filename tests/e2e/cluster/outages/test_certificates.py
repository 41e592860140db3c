"""The certificates are over."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.behind_service import behind_service
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.outages.alerts import is_firing, scrape, scraped
from tests.e2e.cluster.outages.changed import with_lives
from tests.e2e.cluster.product import Product, apply, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.e2e.harness import WANTED
from webhook.atomic_file import write_file
from webhook.install import render
from webhook.tls.bootstrap import CertificateDirectory
from webhook.tls.called_names import REGISTRATIONS
from webhook.tls.files import CERTIFICATE_MODE, KEY_MODE
from webhook.tls.issue import CA_LIFETIME, issue_ca, issue_serving

LEFT: Final = timedelta(seconds=20)
"""What is left of the life of a CA when it is taken up."""
EXPIRED: Final = "certificate has expired"
LIFE: Final = 45
"""Seconds for which a CA lives; it is replaced after two thirds of them."""


def change_ca(plane: ControlPlane, product: Product, *, left: timedelta) -> float:
    """Let a CA with so much left of its life sign what is served; return the end as a timestamp."""
    now = datetime.now(UTC)
    ca = issue_ca(now=now + left - CA_LIFETIME)
    leaf = issue_serving(ca, dns_names=WANTED.dns_names, ip_addresses=WANTED.ip_addresses, now=now)
    files = CertificateDirectory(product.certificates)
    write_file(files.ca_key, ca.key, mode=KEY_MODE)
    write_file(files.ca_certificate, ca.certificate, mode=CERTIFICATE_MODE)
    write_file(files.key, leaf.key, mode=KEY_MODE)
    write_file(files.certificate, leaf.certificate, mode=CERTIFICATE_MODE)
    apply(plane, render(url=product.url, ca_pem=ca.certificate).registrations)
    return int((now + left).timestamp())


def test_the_ca_has_expired(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    waits = tenant.pod("waits", "1")
    before = scrape(plane, product.processes)
    try:
        ends = change_ca(plane, product, left=LEFT)
        for webhook in product.webhooks:
            becomes(
                lambda: webhook.metric("tls_certificate_not_after_seconds"),  # noqa: B023
                ends,
                "what is served",
            )
        soon = scraped(product.webhooks)
        eventually(lambda: datetime.now(UTC).timestamp() > ends, "it is over")
        product.front.cut()
        eventually(
            lambda: EXPIRED in tenant.bind("waits", uid=waits.uid).message,
            "the API server trusts it no more",
        )
        for webhook in product.webhooks:
            assert "the serving certificate ended at" in str(webhook.reasons())
        during = scrape(plane, product.processes)
    finally:
        change_ca(plane, product, left=CA_LIFETIME)
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind", seconds=60)
    for webhook in product.webhooks:
        webhook.wait_until_ready(60)
    assert is_firing("DeferredQuotaWebhookFails", before, during)
    assert is_firing("DeferredQuotaCertificateEnds", before, soon)
    assert not is_firing("DeferredQuotaCertificateEnds", {}, scraped(product.webhooks))


def test_the_bundle_is_of_another_ca(plane: ControlPlane, product: Product, tenant: Tenant) -> None:
    tenant.quota()
    waits = tenant.pod("waits", "1")
    before = scrape(plane, product.processes)
    own = (product.certificates / "ca.crt").read_bytes()

    def trust(*authorities: bytes) -> None:
        apply(plane, render(url=product.url, ca_pem=b"".join(authorities)).registrations)

    foreign = issue_ca(now=datetime.now(UTC)).certificate
    try:
        trust(foreign)
        for webhook in product.webhooks:
            found = eventually(webhook.reasons, "it is not ready")
            assert len(found) == len(REGISTRATIONS)
            for each in found:
                assert "deferred-quota" in each
                assert "the caBundle there does not verify the serving certificate for" in each
            assert webhook.ops("/livez")[0] == 200
            assert webhook.metric("tls_unverified_entries") > len(REGISTRATIONS)
        eventually(
            lambda: "unknown authority" in tenant.bind("waits", uid=waits.uid).message,
            "the API server does not trust it either",
        )
        during = scrape(plane, product.processes)
        trust(foreign, own)
        for webhook in product.webhooks:
            webhook.wait_until_ready(10)
            assert webhook.metric("tls_unverified_entries") == 0
    finally:
        trust(own)
    becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind", seconds=60)
    for alert in ("DeferredQuotaWebhookFails", "DeferredQuotaCertificateNotVerified"):
        assert is_firing(alert, before, during), alert
        assert not is_firing(alert, before, before), alert


def test_the_rotation_replaces_a_ca_that_has_expired(tmp_path: Path) -> None:
    lives = partial(with_lives, leaf=LIFE, ca=LIFE, publish=1)
    with (
        ControlPlane.start(tmp_path / "plane", apiserver_flags=LOOPBACK_SERVICES) as plane,
        behind_service(plane, tmp_path / "product", lives) as product,
    ):
        plane.add_nodes(1)
        apply_namespace(Api(plane.rest), "team-a")
        tenant = Tenant(plane.rest, "team-a")
        tenant.quota()
        tenant.bound("runs", "1")
        waits = tenant.pod("waits", "1")
        before = scrape(plane, product.processes)
        product.controller.pause()
        (webhook,) = product.webhooks
        eventually(
            lambda: "the serving certificate ended at" in str(webhook.reasons()), "it is over", 60
        )
        product.front.cut()
        eventually(
            lambda: EXPIRED in tenant.bind("waits", uid=waits.uid).message,
            "the API server trusts it no more",
        )
        during = scrape(plane, product.webhooks)
        product.controller.resume()
        becomes(lambda: tenant.bind("waits", uid=waits.uid).code, 201, "a bind", seconds=60)
        webhook.wait_until_ready(60)
    assert is_firing("DeferredQuotaWebhookFails", before, during)
    for alert in ("DeferredQuotaCertificateEnds", "DeferredQuotaCertificateAuthorityEnds"):
        assert is_firing(alert, {}, before), alert
