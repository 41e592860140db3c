"""Rotation of the certificates of an installation: which step comes next.

Two Secrets say how far it is. `deferred-quota-ca` has the CA that signs, its key, and the former
CAs that are still trusted; `deferred-quota-tls` has the pair that is served and the bundle of all
trusted CAs. Every step is one write that is conditional on what was read, and what comes after it
follows from what is there then: another process goes on from wherever one stopped.

A CA is changed in three phases, so that no API server ever meets a certificate that it does not
trust, nor a replica loses trust while it still serves the former one:

1. *publish*: a new CA stands before the former one in the bundle, in the Secret and in every
   registration; the served pair stays until every API server has had the time to see it;
2. *switch*: the served pair is signed by the new CA, and the former CA stays trusted until no
   replica can be serving a certificate of it any more;
3. *retire*: the former CA goes from the Secret's bundle, then from the registrations, then from
   the Secret of the CA.

A pair that cannot be served is replaced at once in every phase: nothing is lost by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from cryptography import x509

from webhook.state.well_known import CA_SECRET, TLS_SECRET
from webhook.tls.bundles import bundle_of, read_certificates, trusted
from webhook.tls.issue import (
    CA_LIFETIME,
    LEAF_LIFETIME,
    Issued,
    is_own_ca,
    issue_ca,
    issue_serving,
)
from webhook.tls.pair import certificate_of, is_issued_by, issued_problems, validity_problems

PUBLISH_TIME: Final = timedelta(minutes=10)
"""For how long a CA is in every registration before a certificate of it is served."""


class Phase(StrEnum):
    """Phase of a change of the CA."""

    STEADY = "steady"
    PUBLISH = "publish"
    SWITCH = "switch"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledCertificates:
    """Contents of both Secrets."""

    ca: Issued | None = None
    """The CA that signs; None where there is none."""
    former: bytes = b""
    """Former CAs that are still trusted, PEM."""
    serving: Issued | None = None
    """The pair that is served; None where there is none."""
    bundle: bytes = b""
    """What clients are to trust, PEM."""
    published: datetime | None = None
    """Since when the CA was seen in every registration; None while it was not."""
    former_until: datetime | None = None
    """When the last certificate of a former CA ends that was served."""
    generation: int = 0
    """How many CAs there have been."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationSpec:
    """Specification of the certificates."""

    dns_names: Sequence[str]
    """Names that the served certificate covers."""
    leaf_lifetime: timedelta = LEAF_LIFETIME
    ca_lifetime: timedelta = CA_LIFETIME
    publish_time: timedelta = PUBLISH_TIME


@dataclass(frozen=True, slots=True)
class WriteCa:
    """Write the Secret of the CA."""

    certificates: InstalledCertificates
    reason: str


@dataclass(frozen=True, slots=True)
class WriteServing:
    """Write the Secret of the served pair and the bundle."""

    certificates: InstalledCertificates
    reason: str


@dataclass(frozen=True, slots=True)
class Inject:
    """Write the bundle into the registrations that lack something of it."""

    trusted: bytes
    """What every entry has to have, PEM."""
    retired: bytes
    """What none may have any more, PEM."""
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is to be done before `until`."""

    phase: Phase
    until: datetime


Step: TypeAlias = WriteCa | WriteServing | Inject | Wait


Renewed: TypeAlias = Literal["ca", "leaf"]
"""The CA, or the pair that is served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Surroundings on which a step depends."""

    now: datetime
    bundles: Sequence[bytes] = field(default_factory=tuple)
    """The caBundle of every registered entry that calls our Service, PEM."""
    forces: Renewed | None = None
    """What is wanted anew whatever the present one is like."""


def next_step(held: InstalledCertificates, spec: RotationSpec, around: Surroundings) -> Step:
    """Return what is to be done next, or until when nothing is.

    After a write it is asked again with what is there then, and without what was forced and is
    done.

    Raises:
        IssueError: A name that no certificate can have.
    """
    signing, step = _check_ca(held, spec, around)
    if step is not None or signing is None:
        return step or _new_ca(held, spec, around, "there is no CA")
    kept, retired = _former(held, signing, around.now)
    wanted = bundle_of((signing, *kept))
    if held.bundle != wanted:
        return _new_bundle(held, wanted, spec, around)
    phase = _phase(held, signing, kept)
    registering = _check_registrations(held, wanted, retired, around, phase)
    if registering is not None:
        return registering
    if retired:
        reason = "no certificate of a former CA is served any more"
        return WriteCa(replace(held, former=bundle_of(kept)), reason)
    renewal = _check_pair(held, signing, spec, around)
    if isinstance(renewal, str):
        return WriteServing(_with_new_pair(held, spec, around.now), renewal)
    ends = [each.not_valid_after_utc for each in kept]
    if phase is Phase.SWITCH and held.former_until is not None:
        ends.append(held.former_until)
    return Wait(phase, min([renewal, renewal_of(signing), *ends]))


def _new_bundle(
    held: InstalledCertificates, wanted: bytes, spec: RotationSpec, around: Surroundings
) -> Inject | WriteServing:
    """Return the step that leads to another bundle; a pair that cannot be served goes with it.

    Replicas may serve a pair as soon as it is written: its CA is trusted before.
    """
    if not _broken(held, spec, around.now):
        pair = held
    elif any(_lacks(bundle, wanted, ()) for bundle in around.bundles):
        return Inject(wanted, b"", "a registration lacks the CA of the next certificate")
    else:
        pair = _with_new_pair(held, spec, around.now)
    return WriteServing(
        replace(pair, bundle=wanted), "the bundle is not that of the CAs that are trusted"
    )


def _check_registrations(
    held: InstalledCertificates,
    wanted: bytes,
    retired: Sequence[x509.Certificate],
    around: Surroundings,
    phase: Phase,
) -> WriteCa | Inject | None:
    """Return the step by which the registrations get the bundle, or it is noted that they have it.

    What is noted counts from the moment at which all had it: a process may have stopped between
    the Secret and the registrations for days, and another client may take the bundle out again.
    """
    is_awaited = phase is Phase.PUBLISH
    if any(_lacks(bundle, wanted, retired) for bundle in around.bundles):
        if is_awaited and held.published is not None:
            reason = "the new CA is not in every registration any more"
            return WriteCa(replace(held, published=None), reason)
        return Inject(wanted, bundle_of(retired), "a registration does not have the bundle")
    if is_awaited and held.published is None:
        reason = "the new CA is in every registration"
        return WriteCa(replace(held, published=around.now), reason)
    return None


def phase_of(held: InstalledCertificates, now: datetime) -> Phase:
    """Return how far a change of the CA is."""
    signing = certificate_of(held.ca)
    if signing is None:
        return Phase.PUBLISH
    kept, retired = _former(held, signing, now)
    return Phase.RETIRE if retired else _phase(held, signing, kept)


def _phase(
    held: InstalledCertificates, signing: x509.Certificate, kept: Sequence[x509.Certificate]
) -> Phase:
    if not kept:
        return Phase.STEADY
    leaf = certificate_of(held.serving)
    return Phase.SWITCH if leaf is not None and is_issued_by(leaf, signing) else Phase.PUBLISH


# -- the CA ----------------------------------------------------------------------------------------


def _check_ca(
    held: InstalledCertificates, spec: RotationSpec, around: Surroundings
) -> tuple[x509.Certificate | None, WriteCa | None]:
    """Return the CA that signs, or the step that makes one."""
    if held.ca is None:
        return None, None
    problems = issued_problems(held.ca, now=around.now, serving=False)
    if problems:
        return None, _new_ca(held, spec, around, f"Secret {CA_SECRET}, {problems[0]}")
    signing = read_certificates(held.ca.certificate)[0]
    if around.forces == "ca":
        return None, _new_ca(held, spec, around, "a new CA is asked for")
    if around.now >= renewal_of(signing):
        reason = f"two thirds of the life of the CA in Secret {CA_SECRET} are over"
        return None, _new_ca(held, spec, around, reason)
    return signing, None


def _new_ca(
    held: InstalledCertificates, spec: RotationSpec, around: Surroundings, reason: str
) -> WriteCa:
    """Return the step that lets a new CA sign, and trusts what was trusted before it."""
    lifetime = max(spec.ca_lifetime, spec.leaf_lifetime)
    signing = issue_ca(now=around.now, lifetime=lifetime)
    before = (
        *trusted(b"" if held.ca is None else held.ca.certificate),
        *trusted(held.former),
        *trusted(held.bundle),  # of a Secret that was lost
    )
    if not before:  # both were lost: replicas may still serve by what is registered
        registered = (each for bundle in around.bundles for each in trusted(bundle))
        before = tuple(each for each in registered if is_own_ca(each))
    former = bundle_of(each for each in before if not validity_problems(each, around.now))
    following = replace(
        held, ca=signing, former=former, published=None, generation=held.generation + 1
    )
    return WriteCa(following, reason)


def _former(
    held: InstalledCertificates, signing: x509.Certificate, now: datetime
) -> tuple[list[x509.Certificate], list[x509.Certificate]]:
    """Return the former CAs that stay trusted, and those that do not."""
    former = [each for each in trusted(held.former) if each != signing]
    leaf = certificate_of(held.serving)
    is_switched = leaf is not None and is_issued_by(leaf, signing)
    is_over = is_switched and held.former_until is not None and now >= held.former_until
    retired = [each for each in former if is_over or validity_problems(each, now)]
    return [each for each in former if each not in retired], retired


# -- the served pair -------------------------------------------------------------------------------


def _check_pair(
    held: InstalledCertificates, signing: x509.Certificate, spec: RotationSpec, around: Surroundings
) -> str | datetime:
    """Return why the served pair is to be replaced now, or when it will be."""
    broken = _broken(held, spec, around.now)
    if broken:
        return broken
    leaf = certificate_of(held.serving)
    assert leaf is not None, "a pair without problems has a certificate"  # noqa: S101 - checked
    if not is_issued_by(leaf, signing):
        until = (held.published or around.now) + spec.publish_time
        return "the served certificate is of a former CA" if around.now >= until else until
    if around.forces == "leaf":
        return "a new certificate is asked for"
    if around.now >= renewal_of(leaf):
        return f"two thirds of the life of the certificate in Secret {TLS_SECRET} are over"
    return renewal_of(leaf)


def _broken(held: InstalledCertificates, spec: RotationSpec, now: datetime) -> str:
    """Return why no client can accept the served pair; empty where one can."""
    if held.serving is None:
        return "there is no certificate"
    problems = issued_problems(held.serving, now=now, names=spec.dns_names)
    if problems:
        return f"Secret {TLS_SECRET}, {problems[0]}"
    leaf, signing = certificate_of(held.serving), certificate_of(held.ca)
    authorities = (*([signing] if signing else ()), *trusted(held.former))
    if leaf is None or not any(is_issued_by(leaf, each) for each in authorities):
        return f"Secret {TLS_SECRET}, tls.crt: is not signed by Secret {CA_SECRET}, tls.crt"
    return ""


def _with_new_pair(
    held: InstalledCertificates, spec: RotationSpec, now: datetime
) -> InstalledCertificates:
    """Return what is held, with a new pair; a former one may be served for as long as it lives."""
    if held.ca is None:
        raise ValueError("no CA signs")
    serving = issue_serving(held.ca, dns_names=spec.dns_names, now=now, lifetime=spec.leaf_lifetime)
    until = held.former_until
    leaf, signing = certificate_of(held.serving), certificate_of(held.ca)
    is_switched = leaf is not None and signing is not None and is_issued_by(leaf, signing)
    if held.former and not (is_switched and until):  # what replicas serve may be of a former CA
        until = max(filter(None, (until, _end_of_former(held, leaf) or now + spec.leaf_lifetime)))
    return replace(held, serving=serving, former_until=until)


def _end_of_former(held: InstalledCertificates, leaf: x509.Certificate | None) -> datetime | None:
    """Return when the pair in the Secret ends, if it is of a former CA; else None."""
    if leaf is None or not any(is_issued_by(leaf, each) for each in trusted(held.former)):
        return None
    return leaf.not_valid_after_utc


def renewal_of(certificate: x509.Certificate) -> datetime:
    """Return when two thirds of a certificate's life are over."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _lacks(bundle: bytes, wanted: bytes, retired: Sequence[x509.Certificate]) -> bool:
    """Return whether a registration has to be written."""
    there = set(trusted(bundle))
    return not there.issuperset(trusted(wanted)) or not there.isdisjoint(retired)


def injected(bundle: bytes, step: Inject) -> bytes:
    """Return the bundle of an entry after a step: CAs of others stay, what is retired goes."""
    retired = set(trusted(step.retired))
    return bundle_of(
        [*trusted(step.trusted), *(each for each in trusted(bundle) if each not in retired)]
    )
