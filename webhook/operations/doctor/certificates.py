"""Whether the certificate that the webhook serves with ends soon, and has one owner."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import SECRETS, VALIDATING_WEBHOOKS, Object
from webhook.kube.kinds import Kind
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, ResourceAttributes
from webhook.operations.emergency_state import GUARDS, OTHERS
from webhook.operations.findings import Finding, Severity, Subject, error, warning
from webhook.state.well_known import (
    INJECTED_ANNOTATIONS,
    ISSUED_ANNOTATION,
    REGISTRATION,
    TLS_SECRET,
)

Refusal: TypeAlias = Callable[[bytes], str]
"""Says why a bundle does not verify the certificate; empty if it does."""

_SOON: Final = timedelta(days=7)
_AT_URL: Final = "Write a new one where it serves; it is read again without a restart."
_IN_CLUSTER: Final = "Run scripts/install, which renews it."
_ISSUED: Final = "See why cert-manager does not renew it: kubectl describe certificate."
_TRUST: Final = (
    "In the cluster run deferred-quota certs inject, and see which program writes the caBundle; for"
    " a URL run scripts/install --url URL --ca FILE with the CA that has signed what is served."
)
_NOT_READY: Final = "a replica that serves it is not ready"
_FAILING: Final = "calls of these entries fail"
_OWNERS: Final = (
    "Keep one: with certificates.rotate: false and the annotations, as"
    " manifests/overlays/cert-manager has both, cert-manager; without its Certificates and"
    " annotations, the controller."
)


def certificates(scene: CheckContext) -> Iterator[Finding]:
    """Look at the certificate in the Secret, or at that which is served outside of the cluster.

    Raises:
        NoRightError: The Secret may not be read.
    """
    if scene.settings.is_offline:
        return  # a snapshot has no Secrets
    place = scene.asked_at()
    if place is None:
        return
    if not place:
        injected = dict(_injected(scene))
        if scene.settings.rotates:
            yield from _both(subject for subject, note in injected.items() if note)
        subject = Subject(SECRETS.kind, TLS_SECRET, scene.settings.system_namespace)
        secret = _secret(scene)
        is_issued = secret is not None and ISSUED_ANNOTATION in _annotations(secret)
        if secret is not None:
            yield from _owned(scene, subject, injected, is_issued=is_issued)
        remedy, pem = _ISSUED if is_issued else _IN_CLUSTER, _stored(secret)
        yield from _judged(scene, subject, pem, remedy)
        refusal = partial(scene.settings.refusal, pem)
        yield from _not_trusted(scene, pem, refusal, f"of {subject}", is_url=False)
    else:
        subject = Subject(VALIDATING_WEBHOOKS.kind, REGISTRATION)
        pem = scene.settings.served_at(place)
        yield from _judged(scene, subject, pem, _AT_URL)
        refusal = partial(scene.settings.refusal_at, place)
        yield from _not_trusted(scene, pem, refusal, f"that is served at {place}", is_url=True)


def _injected(scene: CheckContext) -> Iterator[tuple[Subject, str]]:
    """Yield our registrations, and the annotation by which cert-manager writes their `caBundle`."""
    for kind, name in (*OTHERS, GUARDS):
        raw = scene.find(kind, name)
        if raw is not None:
            notes = _annotations(raw)
            note = next((note for note in INJECTED_ANNOTATIONS if note in notes), "")
            yield Subject(kind.kind, name), note


def _annotations(raw: Object) -> Mapping[str, str]:
    return FieldReader(raw).child("metadata").string_map("annotations")


def _both(written: Iterable[Subject]) -> Iterator[Finding]:
    """Yield that the controller is to write what cert-manager writes: it refuses."""
    for subject in written:
        message = (
            "is written by cert-manager, and the configuration has the controller keep the"
            " certificates (certificates.rotate): it refuses, and changes nothing"
        )
        yield error("certificate.two-owners", subject, message, _OWNERS)


def _owned(
    scene: CheckContext, secret: Subject, injected: Mapping[Subject, str], *, is_issued: bool
) -> Iterator[Finding]:
    """Compare the owner of the Secret with those of the registrations."""
    if is_issued and scene.settings.rotates and not any(injected.values()):
        yield from _both([secret])
    for subject, note in injected.items():
        if is_issued and not note:
            message = (
                f"has no annotation {INJECTED_ANNOTATIONS[0]}, and cert-manager issues"
                f" {secret}: its caBundle does not follow"
            )
            # a CA of years may be given by hand, as the chart's `ca`
            find = error if scene.settings.rotates else warning
            yield find("certificate.two-owners", subject, message, _OWNERS)
        elif note == INJECTED_ANNOTATIONS[0] and not is_issued:  # the other one may name ours
            message = (
                f"has its caBundle from cert-manager, which does not issue {secret}: the API"
                " server does not trust what is served"
            )
            yield error("certificate.two-owners", subject, message, _OWNERS)


def _secret(scene: CheckContext) -> Object | None:
    """Return the Secret of the webhook in the cluster."""
    try:
        return scene.find(SECRETS, TLS_SECRET, namespace=scene.settings.system_namespace)
    except NoRightError as err:
        # a right that few have, and that is granted for more than this
        place = scene.settings.system_namespace
        attributes = ResourceAttributes("get", SECRETS, place)
        raise NoRightError(attributes, str(err), severity=Severity.INFO) from err


def _stored(secret: Object | None) -> bytes:
    """Return the certificate in a Secret; nothing where there is none."""
    text = "" if secret is None else FieldReader(secret).child("data").text("tls.crt")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()  # is no certificate, which is said


@dataclass(frozen=True, slots=True)
class _Call:
    """An entry that calls a place."""

    entry: str
    bundle: bytes
    """What it trusts."""
    fails_open: bool
    """Whether requests pass where its call fails."""


def _not_trusted(
    scene: CheckContext, pem: bytes, refusal: Refusal, which: str, *, is_url: bool
) -> Iterator[Finding]:
    """Yield each registration whose `caBundle` does not verify the certificate.

    Where no entry of the guard verifies it, that makes replicas not ready (`tls.verification`). An
    entry without a `caBundle`, or with one that cannot be read, is said by the check of the
    registrations.
    """
    if not _is_readable(scene, pem):
        return
    called = {
        (kind, name): list(_called(scene, kind, name, is_url=is_url))
        for kind, name in (*OTHERS, GUARDS)
    }
    refusals = {call.bundle: refusal(call.bundle) for calls in called.values() for call in calls}
    is_ready = any(not refusals[call.bundle] for call in called[GUARDS])
    for (kind, name), calls in called.items():
        refusing = [call for call in calls if refusals[call.bundle]]
        if refusing:
            first, *others = refusing
            more = f" and {len(others)} more" if others else ""
            message = (
                f"webhook {first.entry}{more}: clientConfig.caBundle does not verify the"
                f" certificate {which}, {refusals[first.bundle]}:"
                f" {_FAILING if is_ready else _NOT_READY}"
            )
            is_open = all(call.fails_open for call in refusing)
            find = warning if is_ready and is_open else error
            yield find("certificate.not-trusted", Subject(kind.kind, name), message, _TRUST)


def _is_readable(scene: CheckContext, pem: bytes) -> bool:
    try:
        return bool(scene.settings.read_bundle(pem))
    except ValueError:
        return False


def _called(scene: CheckContext, kind: Kind, name: str, *, is_url: bool) -> Iterator[_Call]:
    """Yield the entries of a registration that call such a place."""
    for entry in scene.entries(kind, name):
        client = entry.child("clientConfig")
        try:
            bundle = base64.b64decode(client.text("caBundle"), validate=True)
        except binascii.Error:
            continue
        if client.has("url") == is_url and _is_readable(scene, bundle):
            yield _Call(entry.text("name"), bundle, entry.text("failurePolicy") == "Ignore")


def _judged(scene: CheckContext, subject: Subject, pem: bytes, remedy: str) -> Iterator[Finding]:
    if not pem:
        return  # that nothing serves is said by the checks of Deployments and of answers
    try:
        found = scene.settings.read_bundle(pem)
    except ValueError:
        found = ()
    if not found:
        yield error("certificate.unreadable", subject, "holds no certificate in PEM", remedy)
        return
    now, (begin, end) = scene.settings.now(), found[0]
    if not begin <= now < end:
        words = "ended" if end <= now else "begins"
        moment = end if end <= now else begin
        message = f"the webhook's certificate {words} at {moment:%Y-%m-%d %H:%M} UTC"
        yield error("certificate.ended", subject, f"{message}: no bind is allowed", remedy)
    elif end - now < _SOON:
        message = f"the webhook's certificate ends at {end:%Y-%m-%d %H:%M} UTC"
        yield warning("certificate.ends", subject, message, remedy)
