"""Whether the certificate that the webhook serves with ends soon."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import SECRETS, VALIDATING_WEBHOOKS
from webhook.operations.deployments import asked_at
from webhook.operations.doctor.check_context import CheckContext
from webhook.operations.doctor.errors import NoRightError, ResourceAttributes
from webhook.operations.findings import Finding, Severity, Subject, error, warning
from webhook.state.well_known import REGISTRATION, TLS_SECRET

_SOON: Final = timedelta(days=7)
_AT_URL: Final = "Write a new one where it serves; it is read again without a restart."
_IN_CLUSTER: Final = "Run scripts/install, which renews it."


def certificates(scene: CheckContext) -> Iterator[Finding]:
    """Look at the certificate in the Secret, or at that which is served outside of the cluster.

    Raises:
        NoRightError: The Secret may not be read.
    """
    if scene.settings.is_offline:
        return  # a snapshot has no Secrets
    raw = scene.find(VALIDATING_WEBHOOKS, REGISTRATION)
    place = None if raw is None else asked_at(raw)
    if place is None:
        return
    if not place:
        subject = Subject(SECRETS.kind, TLS_SECRET, scene.settings.system_namespace)
        yield from _judged(scene, subject, _stored(scene), _IN_CLUSTER)
    else:
        subject = Subject(VALIDATING_WEBHOOKS.kind, REGISTRATION)
        yield from _judged(scene, subject, scene.settings.served_at(place), _AT_URL)


def _stored(scene: CheckContext) -> bytes:
    """Return the certificate of the webhook in the cluster; nothing where there is none."""
    try:
        secret = scene.find(SECRETS, TLS_SECRET, namespace=scene.settings.system_namespace)
    except NoRightError as err:
        # a right that few have, and that is granted for more than this
        place = scene.settings.system_namespace
        attributes = ResourceAttributes("get", SECRETS, place)
        raise NoRightError(attributes, str(err), severity=Severity.INFO) from err
    text = "" if secret is None else FieldReader(secret).child("data").text("tls.crt")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return text.encode()  # is no certificate, which is said


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
