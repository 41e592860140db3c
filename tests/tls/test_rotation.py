"""Rotation of certificates: no API server ever meets one that it does not trust."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from webhook.tls import rotation
from webhook.tls.bundles import trusted
from webhook.tls.issue import LEAF_LIFETIME, Issued, issue_ca, issue_serving, service_names
from webhook.tls.pair import covers, is_issued_by
from webhook.tls.rotation import (
    Inject,
    InstalledCertificates,
    Phase,
    Renewed,
    RotationSpec,
    Step,
    Surroundings,
    Wait,
    WriteCa,
    WriteServing,
    injected,
    next_step,
    phase_of,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
SPEC = RotationSpec(dns_names=service_names("deferred-quota-webhook", "deferred-quota-system"))
CALLED = "deferred-quota-webhook.deferred-quota-system.svc"
LAG: Final = 5 * MINUTE
"""How late an API server sees a registration, and a replica its Secret, at most."""


@dataclass
class Installation:
    """Secrets, three registered entries, and what of them was there a moment ago."""

    held: InstalledCertificates = field(default_factory=InstalledCertificates)
    bundles: list[bytes] = field(default_factory=lambda: [b"", b"", b""])
    now: datetime = NOW
    leaves: deque[tuple[datetime, bytes]] = field(default_factory=deque)
    seen: deque[tuple[datetime, bytes]] = field(default_factory=deque)
    reasons: list[str] = field(default_factory=list)
    decide: Callable[[InstalledCertificates, RotationSpec, Surroundings], Step] = next_step

    def step(self, *, forces: Renewed | None = None) -> Wait | None:
        """Take one step; return what is waited for, if nothing was to be done."""
        around = Surroundings(now=self.now, bundles=self.bundles, forces=forces)
        step = self.decide(self.held, SPEC, around)
        match step:
            case Wait():
                return step
            case Inject():
                for index, bundle in enumerate(self.bundles):
                    self.seen.append((self.now, bundle))
                    self.bundles[index] = injected(bundle, step)
            case WriteCa():
                self.held = replace(step.certificates, serving=self.held.serving)
            case WriteServing():
                if self.held.serving is not None:
                    self.leaves.append((self.now, self.held.serving.certificate))
                self.held = step.certificates
        self.reasons.append(step.reason)
        return None

    def rest(self) -> Wait:
        """Take all steps that can be taken now."""
        for _ in range(12):
            waits = self.step()
            if waits is not None:
                return waits
        raise AssertionError(f"no rest: {self.reasons}")

    def check(self) -> None:
        """Check that whatever a replica may still serve is trusted wherever it may be called."""
        for seen in (self.leaves, self.seen):
            while seen and seen[0][0] < self.now - LAG:
                seen.popleft()
        assert self.held.serving is not None
        served = [self.held.serving.certificate, *(one for _, one in self.leaves)]
        bundles = [*self.bundles, *(one for _, one in self.seen)]
        for leaf in (x509.load_pem_x509_certificate(one) for one in served):
            assert is_valid(leaf, self.now), "a certificate outside its time is served"
            assert covers(leaf, CALLED)
            for bundle in bundles:
                live = [one for one in trusted(bundle) if is_valid(one, self.now)]
                assert any(is_issued_by(leaf, one) for one in live), "a served one is not trusted"


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def installed() -> Installation:
    installation = Installation()
    assert installation.rest().phase is Phase.STEADY
    installation.leaves.clear()
    installation.seen.clear()
    return installation


def live(installation: Installation, seed: int, years: int = 4) -> set[Phase]:
    """Let time pass, in which a controller takes a step now and then; return the phases seen."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    phases: set[Phase] = set()
    end = NOW + years * 365 * DAY
    while installation.now < end:
        waits = installation.step()
        installation.check()
        phases.add(phase_of(installation.held, installation.now))
        if waits is None:  # the process may end, or another lead, between any two steps
            pause = chance.choice([timedelta(), MINUTE, 7 * MINUTE, DAY])
        else:
            assert waits.until > installation.now, "nothing to do, and no time at which there is"
            pause = waits.until - installation.now + chance.choice([timedelta(), DAY, 9 * DAY])
            pause = min(pause, chance.choice([DAY, 20 * DAY, 100 * DAY]))
        installation.now += pause
        installation.check() if pause < 10 * DAY or waits is not None else None
    return phases


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_served_is_trusted_for_years(seed: int) -> None:
    installation = installed()
    assert live(installation, seed) >= {Phase.STEADY, Phase.PUBLISH, Phase.SWITCH}
    assert installation.held.generation > 2
    for phrase in ("life of the CA", "life of the certificate", "of a former CA is served"):
        assert any(phrase in reason for reason in installation.reasons), phrase


@pytest.mark.parametrize("seed", range(4))
def test_a_ca_that_is_asked_for_again_and_again_never_breaks_trust(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    installation = installed()
    for _ in range(150):
        forced = chance.random()
        installation.step(forces="ca" if forced < 0.1 else "leaf" if forced < 0.2 else None)
        installation.check()
        installation.now += chance.choice([timedelta(), MINUTE, 11 * MINUTE, 2 * DAY])
        installation.check()
    assert installation.held.generation > 5


_Step: TypeAlias = Callable[[InstalledCertificates, RotationSpec, Surroundings], Step]


def _publish_for_no_time(
    held: InstalledCertificates, spec: RotationSpec, around: Surroundings
) -> Step:
    return next_step(held, replace(spec, publish_time=timedelta()), around)


def _forget_former(held: InstalledCertificates, spec: RotationSpec, around: Surroundings) -> Step:
    step = next_step(held, spec, around)
    if isinstance(step, WriteCa) and step.certificates.ca is not held.ca:
        return replace(step, certificates=replace(step.certificates, former=b""))
    return step


def _retire_at_once(held: InstalledCertificates, spec: RotationSpec, around: Surroundings) -> Step:
    step = next_step(held, spec, around)
    if isinstance(step, WriteServing) and step.certificates.former:
        return replace(step, certificates=replace(step.certificates, former_until=around.now))
    return step


@pytest.mark.parametrize("decide", [_publish_for_no_time, _forget_former, _retire_at_once])
def test_a_broken_phase_is_noticed(decide: _Step) -> None:
    with pytest.raises(AssertionError):
        _live_often(decide)


def test_certificates_that_are_never_renewed_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "renewal_of", lambda one: one.not_valid_after_utc)
    with pytest.raises(AssertionError):
        _live_often(next_step)


def _live_often(decide: _Step) -> None:
    for seed in range(12):
        installation = installed()
        installation.decide = decide
        live(installation, seed)


def _ca_of_another_program() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "proxy CA")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + 365 * DAY)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


# -- damage ----------------------------------------------------------------------------------------


def _stranger() -> Issued:
    return issue_serving(issue_ca(now=NOW), dns_names=SPEC.dns_names, now=NOW)


def _of(ca: Issued | None, now: datetime) -> Issued:
    assert ca is not None
    return issue_serving(ca, dns_names=SPEC.dns_names, now=now)


def _misnamed(held: InstalledCertificates) -> Issued:
    assert held.ca is not None
    return issue_serving(held.ca, dns_names=["other.example"], now=NOW)


DAMAGE: dict[str, Callable[[InstalledCertificates], InstalledCertificates]] = {
    "the served Secret is gone": lambda held: replace(held, serving=None, bundle=b""),
    "the CA's Secret is gone": lambda held: replace(held, ca=None, former=b"", published=None),
    "both are gone": lambda _held: InstalledCertificates(),
    "the CA's key is another's": lambda held: replace(
        held, ca=Issued(held.ca.certificate if held.ca else b"", issue_ca(now=NOW).key)
    ),
    "the CA's key is gone": lambda held: replace(
        held, ca=Issued(held.ca.certificate if held.ca else b"", b"")
    ),
    "the CA is garbage": lambda held: replace(held, ca=Issued(b"x", b"y")),
    "the CA has ended": lambda held: replace(
        held, ca=issue_ca(now=NOW - 9 * DAY, lifetime=8 * DAY)
    ),
    "the CA begins later": lambda held: replace(held, ca=issue_ca(now=NOW + 2 * DAY)),
    "the pair begins later": lambda held: replace(held, serving=_of(held.ca, NOW + 2 * DAY)),
    "the pair has ended": lambda held: replace(held, serving=_of(held.ca, NOW - 91 * DAY)),
    "the pair is garbage": lambda held: replace(held, serving=Issued(b"x", b"y")),
    "the key is empty": lambda held: replace(
        held, serving=Issued(held.serving.certificate if held.serving else b"", b"")
    ),
    "the pair is a stranger's": lambda held: replace(held, serving=_stranger()),
    "the pair has other names": lambda held: replace(held, serving=_misnamed(held)),
    "the bundle is empty": lambda held: replace(held, bundle=b""),
    "the bundle is garbage": lambda held: replace(held, bundle=b"garbage"),
    "the bundle is a stranger's": lambda held: replace(held, bundle=issue_ca(now=NOW).certificate),
    "the bundle has strangers": lambda held: replace(
        held, bundle=held.bundle + b"".join(issue_ca(now=NOW).certificate for _ in range(200))
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_damaged_is_mended_at_once(
    damage: Callable[[InstalledCertificates], InstalledCertificates],
) -> None:
    installation = installed()
    installation.held = damage(installation.held)
    installation.rest()
    installation.leaves.clear()
    installation.seen.clear()
    installation.check()
    installation.now += 11 * MINUTE
    installation.rest()
    installation.check()
    assert installation.step() is not None


@pytest.mark.parametrize("is_first", [True, False], ids=["at first", "all is lost"])
def test_a_ca_is_registered_before_a_certificate_of_it_is_there(is_first: bool) -> None:
    """Replicas that watch the Secret serve it at once, and API servers trust the former CA, too."""
    installation = Installation() if is_first else installed()
    before = list(installation.bundles)
    installation.held = InstalledCertificates()
    while installation.held.serving is None:
        assert installation.step() is None
    (leaf,) = trusted(installation.held.serving.certificate)
    for bundle, former in zip(installation.bundles, before, strict=True):
        assert any(is_issued_by(leaf, one) for one in trusted(bundle))
        assert set(trusted(former)) <= set(trusted(bundle))
    reasons = list(installation.reasons)
    installation.rest()
    assert installation.reasons == reasons


@pytest.mark.parametrize("bundle", [b"", b"garbage", issue_ca(now=NOW).certificate])
def test_a_registration_that_lost_the_bundle_gets_it_back(bundle: bytes) -> None:
    installation = installed()
    wanted = installation.held.bundle
    installation.bundles[1] = bundle
    installation.rest()
    assert installation.bundles[0] == installation.bundles[2] == wanted
    assert set(trusted(installation.bundles[1])) >= set(trusted(wanted))
    assert installation.reasons[-1] == "a registration does not have the bundle"


def test_the_ca_of_another_place_stays_registered() -> None:
    """As while the webhook moves between a URL and the cluster."""
    installation = installed()
    other = issue_ca(now=NOW).certificate
    installation.bundles[0] += other
    installation.step(forces="ca")
    installation.rest()
    assert set(trusted(other)) < set(trusted(installation.bundles[0]))


def test_after_the_loss_of_both_secrets_the_former_ca_is_retired_when_nothing_is_served_by_it() -> (
    None
):
    """One of another program stays: the name says which is ours."""
    installation = installed()
    other = _ca_of_another_program()
    installation.bundles = [each + other for each in installation.bundles]
    former = set(trusted(installation.bundles[0])) - set(trusted(other))
    installation.held = InstalledCertificates()
    assert installation.rest().phase is Phase.SWITCH
    assert all(former <= set(trusted(each)) for each in installation.bundles)
    installation.now += LEAF_LIFETIME
    assert installation.rest().phase is Phase.STEADY
    wanted = {*trusted(installation.held.bundle), *trusted(other)}
    assert all(set(trusted(each)) == wanted for each in installation.bundles)
    assert not former & wanted


@pytest.mark.parametrize("damage", [None, Issued(b"garbage", b""), _stranger()])
def test_a_pair_that_is_damaged_in_a_second_change_leaves_the_former_ca_trusted(
    damage: Issued | None,
) -> None:
    """Replicas go on with what they had, and the first change was over long ago."""
    installation = installed()
    for _ in range(2):
        installation.step(forces="ca")
        while installation.held.generation and installation.held.published is None:
            installation.step()
        if installation.held.former_until is None:
            while (waits := installation.rest()).phase is not Phase.STEADY:
                installation.now = waits.until
    assert installation.held.serving is not None
    former = set(trusted(installation.held.former))
    assert former
    installation.held = replace(installation.held, serving=damage)
    assert installation.rest().phase is Phase.SWITCH
    assert all(former <= set(trusted(each)) for each in installation.bundles)
    installation.now += LEAF_LIFETIME
    assert installation.rest().phase is Phase.STEADY


def test_a_lost_served_secret_comes_back_without_a_change_of_trust() -> None:
    installation = installed()
    before = installation.held
    installation.held = replace(before, serving=None, bundle=b"")
    installation.rest()
    assert (installation.held.ca, installation.held.bundle) == (before.ca, before.bundle)


def test_a_renewed_certificate_changes_no_registration() -> None:
    installation = installed()
    bundles = list(installation.bundles)
    installation.now += 61 * DAY
    installation.rest()
    assert installation.bundles == bundles
    assert installation.reasons[-1].startswith("two thirds of the life of the certificate")


def test_an_older_installation_without_phases_is_kept() -> None:
    """Its Secrets have no times, and its bundle a CA that nothing else knows of."""
    installation = installed()
    held = installation.held
    old = issue_ca(now=NOW).certificate
    installation.held = replace(held, generation=0, bundle=held.bundle + old)
    installation.rest()
    assert (installation.held.ca, installation.held.serving) == (held.ca, held.serving)


def test_a_leaf_never_outlives_its_ca_and_a_ca_is_there_long_before() -> None:
    installation = installed()
    while installation.held.generation < 3:
        installation.now = max(installation.rest().until, installation.now + MINUTE)
        assert installation.held.ca is not None
        assert installation.held.serving is not None
        (ca,) = trusted(installation.held.ca.certificate)
        (leaf,) = trusted(installation.held.serving.certificate)
        if is_issued_by(leaf, ca):
            assert leaf.not_valid_after_utc <= ca.not_valid_after_utc
