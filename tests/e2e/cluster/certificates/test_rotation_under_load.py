"""Certificates that change behind the Service while pods are bound through it."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.behind_service import behind_service
from tests.e2e.cluster.certificates.kept_certificates import (
    KeptCertificates,
    kept_certificates,
    served_by,
)
from tests.e2e.cluster.kubelet import LOOPBACK_SERVICES, mount
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.outages.alerts import is_firing, scraped
from tests.e2e.cluster.outages.changed import with_lives
from tests.e2e.cluster.product import Product, Server, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import eventually
from tests.e2e.cluster.waiting_load import Load
from webhook.tls.rotation import Phase

LEAF: Final = 51
"""Seconds for which a certificate is served; it is renewed after two thirds of them.

In the last third another leader takes over, and renews it in time."""
PUBLISH: Final = 3
_NUMBERS: Final = itertools.count()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeptCertificates]:
    """Those of three replicas and two controllers that started at once, without any Secret."""
    directory = tmp_path_factory.mktemp("rotating")
    lives = partial(with_lives, leaf=LEAF, ca=3600, publish=PUBLISH)
    with (
        ControlPlane.start(
            directory / "plane", scheduler=False, apiserver_flags=LOOPBACK_SERVICES
        ) as plane,
        behind_service(plane, directory / "product", lives, webhooks=3, controllers=2) as product,
    ):
        plane.add_nodes(1)
        with kept_certificates(plane, product) as kept:
            yield kept


@pytest.fixture
def load(certificates: KeptCertificates) -> Iterator[Load]:
    """Binds that may be refused for quota, and for nothing else."""
    tenant = Tenant(certificates.plane.rest, f"team-{next(_NUMBERS)}")
    apply_namespace(Api(certificates.plane.rest), tenant.namespace)
    tenant.quota()
    with Load(tenant, "250m") as load:
        goes_on(load)
        yield load
        goes_on(load)
    assert load.problems == []


def goes_on(load: Load) -> None:
    wanted = load.bound + 10
    eventually(lambda: load.bound >= wanted, "pods are bound", 60)


def frozen(server: Server, directory: Path) -> Server:
    """Return a server that is not started yet: it has files of its own, and watches no Secret."""
    command = list(server.command)
    command[command.index("--certs") + 1] = directory
    at = command.index("--certs-secret")
    return replace(server, command=command[:at] + command[at + 2 :])


def test_replicas_that_start_at_once_serve_the_chain_of_one_ca(
    certificates: KeptCertificates,
) -> None:
    assert certificates.held.generation == 1
    assert len(certificates.product.webhooks) == 3
    certificates.wait_until_served()


def test_a_certificate_is_renewed_without_a_failed_request(
    certificates: KeptCertificates, load: Load
) -> None:
    bundles = certificates.bundles()
    certificates.wait_for_renewal(2 * LEAF)
    certificates.wait_until_served()
    goes_on(load)
    assert certificates.bundles() == bundles
    assert certificates.held.generation == 1


def test_a_ca_is_changed_without_a_failed_request_though_leaders_are_killed(
    certificates: KeptCertificates, load: Load
) -> None:
    before = certificates.bundles()
    certificates.begin_ca_change()
    phases = []
    for phase in certificates.kill_leaders():
        phases.append(phase)
        goes_on(load)
    assert phases[0] is Phase.PUBLISH
    assert phases[-1] is Phase.STEADY
    assert certificates.held.generation == 2
    assert certificates.bundles() != before
    assert len(certificates.bundles()) == 1


def test_lost_secrets_are_made_anew_without_a_failed_request(
    certificates: KeptCertificates, load: Load
) -> None:
    """A new CA is trusted before it signs, and the former one stays in the registrations."""
    trusted = certificates.trusted()
    certificates.lose_secrets(LEAF)
    certificates.wait_until_served()
    goes_on(load)
    assert certificates.held.generation == 1
    for bundle in certificates.trusted():
        assert all(former in bundle for former in trusted)


def test_a_replica_that_never_sees_the_new_certificate_is_trusted_until_its_own_ends(
    certificates: KeptCertificates, tmp_path: Path
) -> None:
    product: Product = certificates.product
    certificates.replace_pair(LEAF)
    certificates.wait_until_served()
    mount(Api(certificates.plane.rest), tmp_path)
    with product.another_webhook(lambda server: frozen(server, tmp_path)) as replica:
        own = served_by(replica)
        certificates.begin_ca_change()
        eventually(lambda: certificates.phase is Phase.SWITCH, "a new one is served", 2 * LEAF)
        assert served_by(replica) == own != certificates.pair
        for bundle in certificates.trusted():
            assert served_by(replica, ssl.create_default_context(cadata=bundle)) == own
        assert replica.reasons() == []
        ended = "the serving certificate ended at"
        eventually(lambda: ended in str(replica.reasons()), "it is not ready", 2 * LEAF)
        assert is_firing("DeferredQuotaCertificateEnds", {}, scraped([replica]))
        eventually(lambda: certificates.phase is Phase.STEADY, "the former CA goes", 2 * LEAF)
