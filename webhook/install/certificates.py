"""The certificates of an installation: what its two Secrets have to hold now (`tls.rotation`).

What is good and stays good for a while is kept, so that repeating an installation changes nothing.
A new CA is trusted beside the former one; a certificate of it is served once every API server has
had the time to see it, by the controller or by the next installation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from webhook.install.kustomizations import InstallError
from webhook.kube.api import Object
from webhook.tls.bootstrap import IssuedParts
from webhook.tls.rotation import (
    Inject,
    InstalledCertificates,
    Surroundings,
    Wait,
    WriteCa,
    WriteServing,
    injected,
    next_step,
)
from webhook.tls.rotation_store import (
    ForeignCertificatesError,
    ca_secret,
    parse_secrets,
    spec_for,
    tls_secret,
)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Both Secrets as they have to be."""

    ca: Object
    """The Secret with the CA."""
    tls: Object
    """The Secret that the webhook mounts."""
    bundle: bytes
    """What the API server has to trust, PEM."""
    made: IssuedParts
    """What is new."""
    reasons: tuple[str, ...] = ()
    """Why what was there did not do."""


def certificates(
    ca: Object | None,
    tls: Object | None,
    *,
    namespace: str,
    now: datetime,
    registered: Sequence[bytes] = (),
) -> Certificates:
    """Return the Secrets for the webhook's Service; those that are there if they are good.

    Args:
        ca: The Secret with the CA as it is; None when there is none.
        tls: The Secret of the webhook as it is; None when there is none.
        namespace: Namespace of the installation.
        now: The time.
        registered: What the registered entries that call the Service trust, PEM. It is written
            there before what is served.

    Raises:
        InstallError: A Secret of that name is not ours.
    """
    try:
        before = parse_secrets(ca, tls).held
    except ForeignCertificatesError as err:
        raise InstallError(str(err)) from err
    spec, held, reasons = spec_for(namespace), before, list[str]()
    around = Surroundings(now=now, bundles=registered)
    while not isinstance(step := next_step(held, spec, around), Wait):
        match step:
            case Inject():
                bundles = [injected(one, step) for one in around.bundles]
                around = Surroundings(now=now, bundles=bundles)
            case WriteCa() | WriteServing():
                held = step.certificates
                reasons.append(step.reason)
    return Certificates(
        ca=ca_secret(held, namespace),
        tls=tls_secret(held, namespace),
        bundle=held.bundle,
        made=_made(before, held),
        reasons=tuple(reasons) if ca is not None or tls is not None else (),
    )


def _made(before: InstalledCertificates, held: InstalledCertificates) -> IssuedParts:
    if held.serving is before.serving:
        return IssuedParts.NOTHING if held.ca is before.ca else IssuedParts.CA
    return IssuedParts.SERVING if held.ca is before.ca else IssuedParts.EVERYTHING


def bundle_of(tls: Object) -> bytes:
    """Return what the API server has to trust, as the webhook's Secret says."""
    return parse_secrets(None, tls).held.bundle
