"""The certificates of an installation, kept in two Secrets.

`deferred-quota-ca` has the CA and its key, which nothing in the cluster reads. `deferred-quota-tls`
has what the webhook serves and, as `ca.crt`, what is to be trusted: the CA, and for as long as it
lives the one before it, so that a replica that still serves the former certificate is trusted while
its files follow.

What is good and stays good for a while is kept, so that repeating an installation changes nothing.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from webhook.install.kustomizations import InstallError
from webhook.jsonfields.fields import mapping, string_map
from webhook.kube.api import Object
from webhook.operations.names import TLS_SECRET
from webhook.tls.bootstrap import CertificateDirectory, CertificateSpec, IssuedParts, bootstrap
from webhook.tls.files import KEY_MODE, write_file
from webhook.tls.issue import service_names
from webhook.tls.pair import CertificateFileError, read_chain, validity_problems

SERVICE: Final = "deferred-quota-webhook"
CA_SECRET: Final = "deferred-quota-ca"  # noqa: S105 - a name
LEAF_LIFETIME: Final = timedelta(days=365)

_OWNER: Final = {
    "app.kubernetes.io/name": "deferred-quota",
    "app.kubernetes.io/part-of": "deferred-quota",
    "app.kubernetes.io/component": "certificates",
}


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
    ca: Object | None, tls: Object | None, *, namespace: str, now: datetime
) -> Certificates:
    """Return the Secrets for the webhook's Service; those that are there if they are good.

    Args:
        ca: The Secret with the CA as it is; None when there is none.
        tls: The Secret of the webhook as it is; None when there is none.
        namespace: Namespace of the installation.
        now: The time.

    Raises:
        InstallError: A Secret of that name is not ours.
    """
    wanted = CertificateSpec(
        dns_names=service_names(SERVICE, namespace), ip_addresses=(), lifetime=LEAF_LIFETIME
    )
    held, served = _data_of(ca, CA_SECRET), _data_of(tls, TLS_SECRET)
    with tempfile.TemporaryDirectory(prefix="deferred-quota-certs-") as made:
        files = CertificateDirectory(Path(made))
        _lay_out(files, held, served)
        reasons = _remove_outdated(files, now)
        outcome = bootstrap(files, wanted, now=now)
        bundle = _bundle(files.ca_certificate.read_bytes(), served.get("ca.crt", b""), now)
        return Certificates(
            ca=_secret(
                CA_SECRET,
                namespace,
                {"tls.crt": files.ca_certificate.read_bytes(), "tls.key": _read(files.ca_key)},
            ),
            tls=_secret(
                TLS_SECRET,
                namespace,
                {
                    "ca.crt": bundle,
                    "tls.crt": files.certificate.read_bytes(),
                    "tls.key": files.key.read_bytes(),
                },
            ),
            bundle=bundle,
            made=outcome.made,
            reasons=reasons or tuple(_in_secrets(reason, files) for reason in outcome.reasons),
        )


def bundle_of(tls: Object) -> bytes:
    """Return what the API server has to trust, as the webhook's Secret says."""
    return _data_of(tls, TLS_SECRET).get("ca.crt", b"")


def _data_of(secret: Object | None, name: str) -> Mapping[str, bytes]:
    if secret is None:
        return {}
    metadata = mapping(secret.get("metadata"), "metadata")
    labels = mapping(metadata.get("labels"), "metadata.labels")
    if any(labels.get(label) != value for label, value in _OWNER.items()):
        raise InstallError(
            f"Secret {metadata.get('namespace')}/{name} was not made by deferred-quota (it lacks"
            f" the label app.kubernetes.io/component=certificates): it is not touched. Delete it,"
            " and run this again"
        )
    data = string_map(secret.get("data"), "data")
    return {key: base64.b64decode(value) for key, value in data.items()}


def _lay_out(
    files: CertificateDirectory, held: Mapping[str, bytes], served: Mapping[str, bytes]
) -> None:
    contents = {
        files.ca_certificate: held.get("tls.crt"),
        files.ca_key: held.get("tls.key"),
        files.certificate: served.get("tls.crt"),
        files.key: served.get("tls.key"),
    }
    for path, content in contents.items():
        if content:
            write_file(path, content, mode=KEY_MODE)


def _remove_outdated(files: CertificateDirectory, now: datetime) -> tuple[str, ...]:
    """Remove what is to be made anew although it still does; return why."""
    if _is_outdated(files.ca_certificate, now):
        for path in files.files:
            path.unlink(missing_ok=True)
        return (f"two thirds of the life of the CA in Secret {CA_SECRET} are over",)
    if _is_outdated(files.certificate, now):
        files.certificate.unlink()
        return (f"two thirds of the life of the certificate in Secret {TLS_SECRET} are over",)
    return ()


def _is_outdated(path: Path, now: datetime) -> bool:
    try:
        certificate = read_chain(path)[0]
    except CertificateFileError:
        return False  # missing, or of no use: nothing that could be outdated
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * 2 / 3


def certificates_only(pem: bytes) -> bytes:
    """Return the certificates of a PEM file, and nothing else that is in it, such as a key.

    Raises:
        ValueError: There is none.
    """
    found = x509.load_pem_x509_certificates(pem)
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def certificate_set(pem: bytes) -> frozenset[bytes]:
    """Return the certificates of a bundle, each as DER; none where it cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return frozenset()
    return frozenset(each.public_bytes(serialization.Encoding.DER) for each in found)


def joined(*bundles: bytes) -> bytes:
    """Return all certificates of some bundles, each once; what cannot be read is left out."""
    found: dict[bytes, None] = {}
    for bundle in bundles:
        with contextlib.suppress(ValueError):
            for each in x509.load_pem_x509_certificates(bundle):
                found[each.public_bytes(serialization.Encoding.PEM)] = None
    return b"".join(found)


def _bundle(ca: bytes, former: bytes, now: datetime) -> bytes:
    """Return the CA, and behind it what was trusted before and has not ended."""
    trusted = x509.load_pem_x509_certificates(ca)[:1]
    with contextlib.suppress(ValueError):
        trusted += [
            each
            for each in x509.load_pem_x509_certificates(former)
            if each not in trusted and not validity_problems(each, now)
        ]
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in trusted)


def _secret(name: str, namespace: str, data: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(_OWNER)},
        "data": {key: base64.b64encode(value).decode("ascii") for key, value in data.items()},
    }


def _read(path: Path) -> bytes:
    """Read a key that an incomplete Secret may lack."""
    return path.read_bytes() if path.exists() else b""


def _in_secrets(reason: str, files: CertificateDirectory) -> str:
    """Name the Secrets where a problem names the files they were laid out in."""
    places = {
        files.ca_certificate: f"Secret {CA_SECRET}, tls.crt",
        files.ca_key: f"Secret {CA_SECRET}, tls.key",
        files.certificate: f"Secret {TLS_SECRET}, tls.crt",
        files.key: f"Secret {TLS_SECRET}, tls.key",
    }
    for path, place in places.items():
        reason = reason.replace(str(path), place)
    return reason
