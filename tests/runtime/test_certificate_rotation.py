"""The leading controller keeps the certificates of its installation."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from cryptography import x509

from tests.install.recording import granted, used_objects, used_rights
from tests.reactions import (
    Call,
    Proceed,
    Reaction,
    ReactiveClient,
    Verb,
    conflict,
    fail,
    forbid,
    preceded_by,
    unavailable,
)
from webhook.cli import cluster_certs
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import ObjectReference
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.install import render
from webhook.kube.api import (
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    InvalidError,
    NotFoundError,
)
from webhook.runtime.certificate_rotation import CertificateRotation
from webhook.state.well_known import CA_SECRET, DEFAULT_NAMESPACE, REGISTRATION, TLS_SECRET
from webhook.telemetry.metrics import Metrics
from webhook.tls.issue import issue_ca
from webhook.tls.pair import is_issued_by

NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
DAY: Final = timedelta(days=1)
REGISTERED: Final = (
    (MUTATING_WEBHOOKS, "deferred-quota"),
    (MUTATING_WEBHOOKS, "zz-deferred-quota-jobs"),
    (VALIDATING_WEBHOOKS, "deferred-quota"),
)

CHANGED: Final = fail(InvalidError("it is another one by now"))


class World:
    """A cluster with the registrations of an installation, and one controller."""

    def __init__(self, *, url: str = "") -> None:
        self.now, self.skew = NOW, timedelta()
        self.cluster = FakeCluster(clock=lambda: self.now + self.skew)
        self.api = FakeClient(self.cluster)
        self.client = ReactiveClient(self.cluster)
        for one in render(url=url).registrations:
            kind = MUTATING_WEBHOOKS if one["kind"].startswith("M") else VALIDATING_WEBHOOKS  # type: ignore[attr-defined]
            self.api.create(kind, one)
        self.epoch = 1
        self.is_enabled = True
        self.metrics = Metrics()
        self.events: list[tuple[str, str, str]] = []
        self.rotation = self.controller()

    def controller(self) -> CertificateRotation:
        context = ControllerContext(
            api=self.client, leader_epoch=lambda: self.epoch, events=self, metrics=self.metrics
        )
        return CertificateRotation(
            context,
            DEFAULT_NAMESPACE,
            is_enabled=lambda: self.is_enabled,
            now=lambda: self.now,
        )

    def normal(self, regarding: ObjectReference, reason: str, message: str) -> None:
        assert regarding.name == TLS_SECRET
        self.events.append(("Normal", reason, message))

    def warning(self, regarding: ObjectReference, reason: str, message: str) -> None:
        assert regarding.name == TLS_SECRET
        self.events.append(("Warning", reason, message))

    def secret(self, name: str) -> dict[str, bytes]:
        found = cast("Any", self.api.get(SECRETS, name, namespace=DEFAULT_NAMESPACE))
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    def certificate(self, name: str) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.secret(name)["tls.crt"])

    def bundles(self) -> set[bytes]:
        return {
            base64.b64decode(entry["clientConfig"].get("caBundle", ""))
            for kind, name in REGISTERED
            for entry in cast("Any", self.api.get(kind, name))["webhooks"]
        }

    def edit_registration(self, change: Callable[[dict[str, Any]], None]) -> None:
        found = cast("Any", self.api.get(VALIDATING_WEBHOOKS, REGISTRATION))
        change(found)
        self.api.update(VALIDATING_WEBHOOKS, found)

    def registered(self) -> list[dict[str, Any]]:
        """Return the entries of the guard's registration."""
        found: list[dict[str, Any]] = cast("Any", self.api.get(VALIDATING_WEBHOOKS, REGISTRATION))[
            "webhooks"
        ]
        return found

    def writes(self) -> int:
        return self.cluster.resource_version

    def has_secrets(self) -> bool:
        try:
            return bool(self.secret(CA_SECRET) and self.secret(TLS_SECRET))
        except NotFoundError:
            return False


def test_it_makes_what_is_not_there_and_registers_it() -> None:
    world = World()
    world.rotation.reconcile()
    assert is_issued_by(world.certificate(TLS_SECRET), world.certificate(CA_SECRET))
    assert world.bundles() == {world.secret(TLS_SECRET)["ca.crt"]}
    assert {reason for _, reason, _ in world.events} == {"CertificatesChanged"}
    sample = world.metrics.registry.get_sample_value
    assert sample("deferred_quota_tls_rotation_phase", {"phase": "steady"}) == 1
    end = world.certificate(TLS_SECRET).not_valid_after_utc.timestamp()
    assert sample("deferred_quota_tls_secret_not_after_seconds", {"role": "leaf"}) == end
    end = world.certificate(CA_SECRET).not_valid_after_utc.timestamp()
    for role in ("ca", "bundle"):
        assert sample("deferred_quota_tls_secret_not_after_seconds", {"role": role}) == end


def test_what_is_good_is_written_by_nothing() -> None:
    world = World()
    world.rotation.reconcile()
    before, said = world.writes(), list(world.events)
    for _ in range(3):
        world.now += DAY
        world.rotation.reconcile()
    assert (world.writes(), world.events) == (before, said)


def test_a_ca_is_changed_in_three_phases() -> None:
    world = World()
    world.rotation.reconcile()
    while world.now < NOW + 490 * DAY:
        world.now += 10 * DAY
        world.rotation.reconcile()
    old_leaf = world.certificate(TLS_SECRET)
    new = world.certificate(CA_SECRET)
    assert not is_issued_by(old_leaf, new)
    (bundle,) = world.bundles()
    assert len(x509.load_pem_x509_certificates(bundle)) == 2
    world.now += timedelta(minutes=11)
    world.rotation.reconcile()
    assert is_issued_by(world.certificate(TLS_SECRET), new)
    assert world.bundles() == {bundle}
    world.now = old_leaf.not_valid_after_utc
    world.rotation.reconcile()
    assert world.bundles() == {world.secret(CA_SECRET)["tls.crt"]}
    assert "former.crt" not in world.secret(CA_SECRET)


def test_a_bundle_that_was_taken_away_is_written_again() -> None:
    world = World()
    world.rotation.reconcile()
    bundles = world.bundles()

    def wipe(registration: dict[str, Any]) -> None:
        for entry in registration["webhooks"]:
            entry["clientConfig"].pop("caBundle")

    world.edit_registration(wipe)
    drift = "deferred_quota_tls_bundle_drift_total"
    assert world.metrics.registry.get_sample_value(drift) == 0
    assert world.rotation.reconcile() <= 5
    assert world.bundles() == bundles
    assert world.metrics.registry.get_sample_value(drift) == 1


def test_nothing_else_of_a_registration_is_changed() -> None:
    world = World()
    before = [cast("Any", world.api.get(kind, name))["webhooks"] for kind, name in REGISTERED]
    world.rotation.reconcile()
    after = [cast("Any", world.api.get(kind, name))["webhooks"] for kind, name in REGISTERED]
    for entries in after:
        for entry in entries:
            del entry["clientConfig"]["caBundle"]
    assert after == before


def test_an_entry_that_came_between_is_not_taken_for_ours() -> None:
    """Entries are patched by their place, in which another one may stand by now."""
    world = World()
    world.rotation.reconcile()
    world.edit_registration(lambda one: one["webhooks"][0]["clientConfig"].pop("caBundle"))

    def come_between(registration: dict[str, Any]) -> None:
        client = {"url": "https://other.example"}
        other = {**registration["webhooks"][0], "name": "other.example.com", "clientConfig": client}
        registration["webhooks"].insert(0, other)

    meanwhile = preceded_by(lambda _: world.edit_registration(come_between))
    world.client.on("patch", VALIDATING_WEBHOOKS, meanwhile, times=1)
    assert world.rotation.reconcile() == 1
    assert world.rotation.reconcile() <= 5
    other, *ours = world.registered()
    assert other["clientConfig"] == {"url": "https://other.example"}
    bundle = base64.b64encode(world.secret(TLS_SECRET)["ca.crt"]).decode()
    assert {one["clientConfig"].get("caBundle") for one in ours} == {bundle}


def test_what_another_client_adds_to_a_bundle_meanwhile_stays() -> None:
    world = World()
    world.rotation.reconcile()
    added = [issue_ca(now=NOW).certificate for _ in range(2)]

    def trust(bundle: bytes) -> None:
        def write(registration: dict[str, Any]) -> None:
            client = registration["webhooks"][0]["clientConfig"]
            client["caBundle"] = base64.b64encode(bundle).decode()

        world.edit_registration(write)

    trust(added[0])
    meanwhile = preceded_by(lambda _: trust(b"".join(added)))
    world.client.on("patch", VALIDATING_WEBHOOKS, meanwhile, times=1)
    assert world.rotation.reconcile() == 1
    assert world.rotation.reconcile() <= 5
    bundle = base64.b64decode(world.registered()[0]["clientConfig"]["caBundle"])
    for one in (*added, world.secret(TLS_SECRET)["ca.crt"]):
        assert one in bundle


def test_without_the_lead_or_the_setting_nothing_is_done() -> None:
    world = World()
    world.epoch = 0
    world.rotation.reconcile()
    world.epoch, world.is_enabled = 1, False
    world.rotation.reconcile()
    assert not world.has_secrets()


def test_where_the_webhook_runs_elsewhere_nothing_is_kept() -> None:
    world = World(url="https://192.0.2.7:9443")
    world.rotation.reconcile()
    assert not world.has_secrets()
    assert world.events == []


def test_certificates_of_another_program_are_left_alone_and_reported_once() -> None:
    world = World()
    stranger = base64.b64encode(issue_ca(now=NOW).certificate).decode()
    data = {"tls.crt": stranger, "tls.key": stranger}
    world.api.create(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": TLS_SECRET, "namespace": DEFAULT_NAMESPACE},
            "data": data,
        },
    )
    before = world.writes()
    assert world.rotation.reconcile() >= 30
    world.rotation.reconcile()
    assert world.writes() == before
    ((level, reason, message),) = world.events
    assert (level, reason) == ("Warning", "CertificatesNotKept")
    assert message.startswith(f"Secret {DEFAULT_NAMESPACE}/{TLS_SECRET} was not made by")


@pytest.mark.parametrize("name", [CA_SECRET, TLS_SECRET])
def test_a_secret_of_another_type_is_left_alone_and_reported_once(name: str) -> None:
    """The API server changes no type: a write would be refused again and again."""
    world = World()
    world.rotation.reconcile()
    former: Any = world.api.get(SECRETS, name, namespace=DEFAULT_NAMESPACE)
    world.api.delete(SECRETS, name, namespace=DEFAULT_NAMESPACE)
    metadata = {**former["metadata"], "resourceVersion": "", "uid": ""}
    world.api.create(SECRETS, {**former, "type": "Opaque", "metadata": metadata, "data": {}})
    before, reported = world.writes(), len(world.events)
    assert world.rotation.reconcile() >= 30
    world.rotation.reconcile()
    assert world.writes() == before
    ((level, reason, message),) = world.events[reported:]
    assert (level, reason) == ("Warning", "CertificatesNotKept")
    assert message == (
        f"Secret {DEFAULT_NAMESPACE}/{name} is of the type Opaque, not kubernetes.io/tls: a type"
        " cannot be changed. Delete it, and run this again"
    )


def test_secrets_that_cert_manager_took_over_are_left_alone_and_reported_once() -> None:
    """It writes into what is there: labels of ours stay."""
    world = World()
    world.rotation.reconcile()
    taken: Any = dict(world.api.get(SECRETS, TLS_SECRET, namespace=DEFAULT_NAMESPACE))
    taken["metadata"]["annotations"]["cert-manager.io/certificate-name"] = "deferred-quota-webhook"
    world.api.update(SECRETS, taken)
    world.now += timedelta(days=80)
    before, told = world.writes(), len(world.events)
    assert world.rotation.reconcile() >= 30
    world.rotation.reconcile()
    assert world.writes() == before
    ((level, reason, message),) = world.events[told:]
    assert (level, reason) == ("Warning", "CertificatesNotKept")
    assert "is written by cert-manager, for its Certificate deferred-quota-webhook" in message


def test_the_refusal_of_a_secret_of_cert_manager_names_its_owner() -> None:
    world = World()
    note = {"cert-manager.io/certificate-name": "deferred-quota-webhook"}
    metadata = {"name": TLS_SECRET, "namespace": DEFAULT_NAMESPACE, "annotations": note}
    world.api.create(
        SECRETS,
        {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata},
    )
    world.rotation.reconcile()
    ((_, _, message),) = world.events
    assert "is written by cert-manager, for its Certificate deferred-quota-webhook" in message


def test_a_registration_that_cert_manager_writes_into_is_left_alone() -> None:
    world = World()

    def annotate(registration: dict[str, Any]) -> None:
        notes = registration["metadata"].setdefault("annotations", {})
        notes["cert-manager.io/inject-ca-from"] = "deferred-quota-system/ca"

    world.edit_registration(annotate)
    world.rotation.reconcile()
    assert not world.has_secrets()
    assert "cert-manager" in world.events[0][2]


def test_without_the_right_to_look_it_is_quiet() -> None:
    world = World()
    world.client.on("get", MUTATING_WEBHOOKS, forbid)
    world.rotation.reconcile()
    assert world.events == []


def test_without_the_right_to_write_it_says_so_once() -> None:
    world = World()
    world.client.on("create", SECRETS, forbid)
    world.rotation.reconcile()
    world.rotation.reconcile()
    assert [reason for _, reason, _ in world.events] == ["CertificatesNotKept"]


@pytest.mark.parametrize("failing", range(1, 9))
@pytest.mark.parametrize("fault", [conflict, unavailable], ids=["conflict", "unavailable"])
def test_a_process_that_ends_between_two_writes_is_followed_by_another(
    fault: Reaction, failing: int
) -> None:
    """The n-th write fails, and a controller that knows nothing goes on from what is stored."""
    world = World()
    count = 0

    def nth(call: Call, proceed: Proceed) -> Any:
        nonlocal count
        is_write = call.verb in {"create", "update", "patch"} and not call.dry_run
        count += is_write
        return fault(call, proceed) if is_write and count == failing else proceed()

    world.client.on("*", "*", nth)
    for _ in range(3):
        world.controller().reconcile()
        world.now += timedelta(seconds=1)
    assert world.bundles() == {world.secret(TLS_SECRET)["ca.crt"]}
    assert is_issued_by(world.certificate(TLS_SECRET), world.certificate(CA_SECRET))


def test_a_registration_that_is_applied_again_meanwhile_is_read_anew(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World()
    world.now = datetime.now(UTC)  # by which the command goes
    world.rotation.reconcile()
    monkeypatch.setattr(cluster_certs, "live_cluster", lambda *_: nullcontext(world.client))

    def apply_again(_call: Call) -> None:
        def drop(registration: dict[str, Any]) -> None:
            for entry in registration["webhooks"]:
                del entry["clientConfig"]["caBundle"]

        world.edit_registration(drop)

    world.client.on("patch", VALIDATING_WEBHOOKS, preceded_by(apply_again), times=1)
    cluster_certs.run_rotation(None, None, DEFAULT_NAMESPACE, dry_run=False, forces="ca")
    assert capsys.readouterr().out.count("a new CA") == 1
    assert world.bundles() == {world.secret(TLS_SECRET)["ca.crt"]}


@pytest.mark.parametrize("fault", [conflict, CHANGED], ids=["conflict", "changed"])
@pytest.mark.parametrize("verb", ["create", "update"])
def test_conflicts_of_half_a_minute_are_few_tries_and_one_line(
    verb: Verb, fault: Reaction, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    if verb == "update":
        world.rotation.reconcile()
        world.now += timedelta(days=61)
    before, begun = len(world.client.calls_of(verb, SECRETS)), world.now
    with world.client.on(verb, SECRETS, fault):
        while world.now < begun + timedelta(seconds=30):
            pause = world.rotation.reconcile()
            assert pause >= 1
            world.now += timedelta(seconds=pause)
    assert 4 <= len(world.client.calls_of(verb, SECRETS)) - before <= 8
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert record.message == "certificates are not written: another client is first"
    reason = {"reason": "conflict" if fault is conflict else "changed"}
    failures = "deferred_quota_tls_rotation_failures_total"
    assert (world.metrics.registry.get_sample_value(failures, reason) or 0) >= 4
    world.rotation.reconcile()
    assert is_issued_by(world.certificate(TLS_SECRET), world.certificate(CA_SECRET))
    assert world.certificate(TLS_SECRET).not_valid_before_utc > world.now - DAY
    # and the next one is tried as soon as the first
    world.api.delete(SECRETS, TLS_SECRET, namespace=DEFAULT_NAMESPACE)
    with world.client.on("create", SECRETS, fault):
        assert world.rotation.reconcile() == 1


def test_a_process_that_stood_still_past_a_renewal_makes_up_for_it_in_one_round() -> None:
    world = World()
    world.rotation.reconcile()
    world.now += timedelta(days=85)
    world.rotation.reconcile()
    assert world.certificate(TLS_SECRET).not_valid_before_utc > world.now - DAY
    # past its end, and that of the CA
    world.now += timedelta(days=1000)
    world.rotation.reconcile()
    ca, leaf = world.certificate(CA_SECRET), world.certificate(TLS_SECRET)
    assert is_issued_by(leaf, ca)
    assert min(ca.not_valid_after_utc, leaf.not_valid_after_utc) > world.now + 80 * DAY
    for bundle in world.bundles():
        assert ca in x509.load_pem_x509_certificates(bundle)


def test_by_a_wrong_clock_no_certificate_is_made() -> None:
    world = World()
    world.skew = timedelta(minutes=-31)
    world.rotation.reconcile()
    assert not world.has_secrets()
    ((level, reason, message),) = world.events
    assert (level, reason) == ("Warning", "CertificatesNotKept")
    assert message == (
        "the clock here says 2026-03-01T00:00:00Z, that of the API server 2026-02-28T23:29:00Z: no"
        " certificate is written by it"
    )
    world.skew = timedelta(minutes=29)
    world.rotation.reconcile()
    assert world.has_secrets()


def test_by_a_clock_that_is_years_ahead_none_is_replaced() -> None:
    """An update says when it would be written in `managedFields`, which the fake does not have."""
    world = World()
    world.rotation.reconcile()
    before = (world.secret(CA_SECRET), world.secret(TLS_SECRET), world.bundles())

    def owned(_call: Call, proceed: Proceed) -> Any:
        answer = proceed()
        obj = answer.object
        fields = [
            {"manager": "m", "time": "2025-01-01T00:00:00Z"},
            {"time": "2026-03-01T00:00:00Z"},
        ]
        changed = {**obj, "metadata": {**obj["metadata"], "managedFields": fields}}
        return SimpleNamespace(object=changed)

    world.client.on("update", SECRETS, owned)
    world.now += 3650 * DAY
    assert world.rotation.reconcile() >= 30
    assert (world.secret(CA_SECRET), world.secret(TLS_SECRET), world.bundles()) == before


def test_two_controllers_at_once_make_one_ca() -> None:
    world = World()
    other = world.controller()
    raced: list[float] = []

    def race(_call: Call, proceed: Proceed) -> Any:
        if not raced:
            raced.append(0)
            raced[0] = other.reconcile()
        return proceed()

    world.client.on("create", SECRETS, race)
    world.rotation.reconcile()
    ca = world.secret(CA_SECRET)
    world.rotation.reconcile()
    assert world.secret(CA_SECRET) == ca
    assert world.bundles() == {world.secret(TLS_SECRET)["ca.crt"]}


def test_the_rights_of_the_component_are_those_that_it_uses() -> None:
    world = World()
    world.rotation.reconcile()
    world.edit_registration(lambda one: one["webhooks"][0]["clientConfig"].pop("caBundle"))
    while world.now < NOW + 600 * DAY:  # certificates are renewed, and the CA is changed
        world.now += 10 * DAY
        world.rotation.reconcile()
    for name in (TLS_SECRET, CA_SECRET):
        world.api.delete(SECRETS, name, namespace=DEFAULT_NAMESPACE)
        world.rotation.reconcile()
    rules: list[Any] = [
        rule
        for one in cast("list[Any]", render().rotation)
        for rule in one.get("rules", ())
        if one["kind"] in {"ClusterRole", "Role"}
    ]
    assert set(granted(rules)) == used_rights(world.client)
    named = {
        (resource, name)
        for rule in rules
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    used = used_objects(world.client, "")
    assert named == {(resource, name) for resource, _, name in used}
    assert {namespace for resource, namespace, _ in used if resource == "secrets"} == {
        DEFAULT_NAMESPACE
    }
