"""A replica serves what the Secret has, and is ready where the registrations accept that."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from tests.e2e.cluster.waiting import becomes, eventually
from tests.reactions import ReactiveClient, forbid, unreachable
from tests.tls.certificates import written
from tests.tls.listening import listening
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS, Object
from webhook.runtime.certificate_watch import CertificateSources, CertificateWatch
from webhook.state.well_known import DEFAULT_NAMESPACE, REGISTRATION, TLS_SECRET
from webhook.telemetry.metrics import Metrics
from webhook.tls.bundles import joined
from webhook.tls.files import CertificateFiles
from webhook.tls.issue import Issued, issue_ca, issue_serving, service_names
from webhook.tls.rotation import InstalledCertificates
from webhook.tls.rotation_store import SERVICE, tls_secret

NOW = datetime.now(UTC)
CA, NEXT_CA, FOREIGN = (issue_ca(now=NOW) for _ in range(3))
NAME = f"{SERVICE}.{DEFAULT_NAMESPACE}.svc"
GUARDS = len(cast("Any", render().registrations[-1])["webhooks"])
GUARD = f"ValidatingWebhookConfiguration {REGISTRATION}"


def a_leaf(ca: Issued = CA, *, minutes: int = 0, names: tuple[str, ...] = ()) -> Issued:
    """A pair that was issued some minutes later than others."""
    now = NOW - timedelta(minutes=30 - minutes)
    dns_names = names or service_names(SERVICE, DEFAULT_NAMESPACE)
    return issue_serving(ca, dns_names=dns_names, now=now)


FIRST, SECOND, THIRD = a_leaf(), a_leaf(minutes=1), a_leaf(NEXT_CA, minutes=2)


class World:
    """A cluster, and the server of one replica whose files have the first pair."""

    def __init__(self, directory: Path, *, pair: Issued = FIRST) -> None:
        self.api = ReactiveClient(FakeCluster())
        self.admin = FakeClient(self.api.cluster)
        self.directory = directory
        self.metrics = Metrics()
        self.files = CertificateFiles(*written(directory, pair))
        self.files.observe(self.metrics)
        assert self.files.file_problems() == ()
        self.sources = CertificateSources(files=self.files, secret=TLS_SECRET)
        self.address = ("127.0.0.1", 0)

    def a_watch(self) -> CertificateWatch:
        return CertificateWatch(
            self.api,
            self.sources,
            self.metrics,
            url=f"https://127.0.0.1:{self.address[1]}",
            namespace=DEFAULT_NAMESPACE,
            is_in_pod=True,
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[CertificateWatch]:
        with listening(self.files.context) as self.address:
            watch = self.a_watch()
            watch.start()
            try:
                yield watch
            finally:
                watch.stop()

    def register(self, bundle: bytes = CA.certificate) -> None:
        for one in render(ca_pem=bundle).registrations:
            kind = MUTATING_WEBHOOKS if str(one["kind"]).startswith("M") else VALIDATING_WEBHOOKS
            self.admin.create(kind, one)

    def trust(self, bundle: bytes) -> None:
        """Write a bundle into every entry of the guard's registration; empty takes it away."""
        found = cast("Any", self.admin.get(VALIDATING_WEBHOOKS, REGISTRATION))
        for entry in found["webhooks"]:
            entry["clientConfig"].pop("caBundle", None)
            if bundle:
                entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        self.admin.update(VALIDATING_WEBHOOKS, found)

    def write(self, pair: Issued) -> None:
        self.write_secret(tls_secret(InstalledCertificates(serving=pair), DEFAULT_NAMESPACE))

    def write_secret(self, secret: Object) -> None:
        if self.admin.list(SECRETS).items:
            self.admin.update(SECRETS, secret)
        else:
            self.admin.create(SECRETS, secret)

    def shown(self) -> bytes:
        """Return what a new client is shown, DER."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(self.address, timeout=5) as sock,
            context.wrap_socket(sock) as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    def serves(self, pair: Issued) -> None:
        wanted = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
        becomes(self.shown, wanted, "it is served")

    def unverified(self) -> float | None:
        name = "deferred_quota_tls_unverified_entries"
        return self.metrics.registry.get_sample_value(name)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def is_ready(watch: CertificateWatch) -> None:
    eventually(lambda: not watch.readiness_problems(), "it is ready")


def is_not_ready(watch: CertificateWatch, *words: str) -> str:
    def problem() -> str:
        return next((x for x in watch.readiness_problems() if all(one in x for one in words)), "")

    return eventually(problem, f"it is not ready: {words}")


# -- the registrations -----------------------------------------------------------------------------


def test_it_is_not_ready_before_the_registrations_are_read(world: World) -> None:
    assert world.a_watch().readiness_problems() == ["registrations: not read yet"]


def test_without_registrations_it_is_ready(world: World) -> None:
    """As at a first installation, whose registrations wait for it."""
    with world.running() as watch:
        is_ready(watch)
        assert watch.warnings() == []
        world.register()
        eventually(lambda: world.api.calls_of("watch", VALIDATING_WEBHOOKS), "it watches")
        is_ready(watch)


def test_registrations_that_call_another_place_are_none_of_its_business(world: World) -> None:
    """As while the webhook moves into the cluster."""
    for one in render(url="https://outside.example", ca_pem=FOREIGN.certificate).registrations:
        kind = MUTATING_WEBHOOKS if str(one["kind"]).startswith("M") else VALIDATING_WEBHOOKS
        world.admin.create(kind, one)
    with world.running() as watch:
        is_ready(watch)


@pytest.mark.parametrize("is_foreign_at_first", [True, False])
def test_a_foreign_bundle_makes_it_not_ready_until_it_is_mended(
    world: World, caplog: pytest.LogCaptureFixture, *, is_foreign_at_first: bool
) -> None:
    world.register()
    if is_foreign_at_first:
        world.trust(FOREIGN.certificate)
    with world.running() as watch:
        if not is_foreign_at_first:
            is_ready(watch)
            world.trust(FOREIGN.certificate)
        problem = is_not_ready(watch, GUARD, NAME)
        assert problem.endswith(
            f" and {GUARDS - 1} more: the caBundle there does not verify the serving certificate"
            f" for {NAME}: unable to get local issuer certificate"
        )
        assert len(watch.readiness_problems()) == 1  # the other two registrations are well
        assert world.unverified() == GUARDS
        said = [one for one in caplog.records if one.message == "certificate not verified"]
        assert [vars(one)["problems"] for one in said] == [(problem,)]
        world.trust(joined(FOREIGN.certificate, CA.certificate))
        is_ready(watch)
        assert world.unverified() == 0


def test_a_bundle_that_is_wiped_is_noted_and_leaves_it_ready(world: World) -> None:
    world.register()
    with world.running() as watch:
        is_ready(watch)
        world.trust(b"")
        note = eventually(lambda: [x for x in watch.warnings() if GUARD in x], "it is noted")[0]
        assert "has no caBundle" in note
        assert watch.readiness_problems() == ()
        world.trust(CA.certificate)
        eventually(lambda: not watch.warnings(), "it is back")


def test_a_name_that_is_not_covered_makes_it_not_ready(tmp_path: Path) -> None:
    world = World(tmp_path, pair=a_leaf(names=("elsewhere.example",)))
    world.register()
    with world.running() as watch:
        is_not_ready(watch, f"for {NAME}: Hostname mismatch")
        assert NAME in world.files.serving_problems()[0]
        world.write(SECOND)
        is_ready(watch)


def test_given_names_are_those_that_count(world: World) -> None:
    world.register(FOREIGN.certificate)
    world.sources = replace(world.sources, names=("elsewhere.example",))
    with world.running() as watch:
        is_ready(watch)
    world.sources = replace(world.sources, names=(NAME,))
    with world.running() as watch:
        is_not_ready(watch, NAME)


def test_a_change_of_the_ca_leaves_it_ready_in_every_phase(world: World) -> None:
    world.register()
    both = joined(NEXT_CA.certificate, CA.certificate)
    problems: list[str] = []
    steps: list[Callable[[], None]] = [
        lambda: world.trust(both),
        lambda: world.write(THIRD),
        lambda: world.trust(NEXT_CA.certificate),
    ]
    with world.running() as watch:
        is_ready(watch)
        for registration in ("deferred-quota", "zz-deferred-quota-jobs"):
            world.admin.delete(MUTATING_WEBHOOKS, registration)
        for step in steps:
            step()
            lasts = datetime.now(UTC) + timedelta(seconds=0.5)
            while datetime.now(UTC) < lasts:
                problems += watch.readiness_problems()
        world.serves(THIRD)
    assert problems == []


# -- without an API server, or rights --------------------------------------------------------------


def test_without_an_api_server_at_its_start_it_serves_its_files(world: World) -> None:
    world.register(FOREIGN.certificate)
    with world.running() as watch, world.api.on("*", "*", unreachable):
        watched = world.a_watch()
        watched.start()
        is_ready(watched)
        world.serves(FIRST)
        assert "is not compared with the cluster" in str(watched.warnings())
        watched.stop()
        is_not_ready(watch, GUARD)


def test_what_was_known_last_stays_while_the_api_server_is_away(world: World) -> None:
    world.register()
    with world.running() as watch:
        is_ready(watch)
        with world.api.on("*", "*", unreachable):
            written(world.directory, a_leaf(FOREIGN, minutes=3))
            is_not_ready(watch, GUARD, NAME)


def test_what_may_be_of_the_past_takes_no_replica_out(world: World) -> None:
    """The registrations may trust by now what they did not when they were read last."""
    world.register(FOREIGN.certificate)
    with world.api.on("watch", "*", unreachable), world.running() as watch:
        refused = "the caBundle there does not verify the serving certificate"
        eventually(lambda: refused in str(watch.warnings()), "it is noted")
        assert watch.readiness_problems() == ()


def test_without_the_rights_it_goes_on_as_before(world: World) -> None:
    """As where a release before this one made the rights."""
    world.register(FOREIGN.certificate)
    world.api.on("*", VALIDATING_WEBHOOKS, forbid)
    world.api.on("*", MUTATING_WEBHOOKS, forbid)
    world.api.on("*", SECRETS, forbid)
    with world.running() as watch:
        is_ready(watch)
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations", "secrets")
        unread = "what is served is not compared with the cluster"
        assert watch.warnings() == [
            f"{unread}: {kind} is forbidden: no right to list" for kind in kinds
        ]


def test_a_port_that_does_not_answer_is_not_verified(world: World) -> None:
    world.register()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        world.address = closed.getsockname()
    watch = world.a_watch()
    watch.start()
    is_not_ready(watch, "not verified yet", "refused")
    watch.stop()


# -- the Secret ------------------------------------------------------------------------------------


def test_a_pair_in_the_secret_is_served_while_the_files_stay(world: World) -> None:
    with world.running() as watch:
        world.serves(FIRST)
        world.write(SECOND)
        world.serves(SECOND)
        written(world.directory, FIRST)  # as it is mounted anew, late
        world.serves(SECOND)
        is_ready(watch)


def test_a_broken_or_deleted_secret_leaves_the_last_good_pair(world: World) -> None:
    with world.running():
        world.write(SECOND)
        world.serves(SECOND)
        world.write(Issued(SECOND.certificate, THIRD.key))
        refused = eventually(world.files.refusals, "it is refused")
        place = f"Secret {DEFAULT_NAMESPACE}/{TLS_SECRET}, tls.key"
        assert refused == (f"{place}: does not belong to the certificate",)
        world.serves(SECOND)
        odd = tls_secret(InstalledCertificates(serving=FIRST), DEFAULT_NAMESPACE)
        world.write_secret({**odd, "data": {"tls.crt": "?", "tls.key": None}})
        eventually(lambda: "holds no PEM" in str(world.files.refusals()), "garbage is refused")
        world.admin.delete(SECRETS, TLS_SECRET, namespace=DEFAULT_NAMESPACE)
        world.serves(SECOND)
        world.write(THIRD)
        world.serves(THIRD)
        assert world.files.refusals() == ()


def test_another_secret_is_not_looked_at(world: World) -> None:
    world.sources = replace(world.sources, secret="")
    world.write(SECOND)
    with world.running() as watch:
        is_ready(watch)
        assert world.api.calls_of("list", SECRETS) == []
        world.serves(FIRST)
