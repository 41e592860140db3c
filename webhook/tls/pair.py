"""Requirements of a certificate and its key, so that an API server accepts them.

An API server refuses a certificate without a subject alternative name, one that is not meant for
servers, one outside its time, and of course a key that is another's. gunicorn would start with
all of them, and every request would fail; so they are looked for here first.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from webhook.tls.bundles import read_certificates, trusted
from webhook.tls.issue import Issued

_PUBLIC_FORM: Final = (
    serialization.Encoding.DER,
    serialization.PublicFormat.SubjectPublicKeyInfo,
)


class CertificateFileError(ValueError):
    """A certificate or key file that cannot be used.

    Attributes:
        path: The file.
        detail: What is wrong with it.
    """

    def __init__(self, path: Path, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


def read_chain(path: Path) -> tuple[x509.Certificate, ...]:
    """Read the certificates of a PEM file, the server's own first.

    Raises:
        CertificateFileError: The file cannot be read, or holds no certificate.
    """
    try:
        return tuple(read_certificates(_read(path)))
    except ValueError as err:
        if isinstance(err, CertificateFileError):
            raise
        raise CertificateFileError(path, "holds no PEM certificate that can be read") from err


def certificate_of(pair: Issued | None) -> x509.Certificate | None:
    """Return the certificate of a pair; None where there is none that can be read."""
    return next(iter(trusted(b"" if pair is None else pair.certificate)), None)


def pair_problems(
    certificate: Path,
    key: Path,
    *,
    now: datetime,
    names: Sequence[str] = (),
    serving: bool = True,
) -> tuple[str, ...]:
    """Return why a pair cannot be served to an API server; each text begins with the file.

    Args:
        certificate: PEM file, the server's own certificate first.
        key: PEM file, not encrypted.
        now: The time at which it has to be valid.
        names: What the certificate has to cover besides.
        serving: False for a CA, which needs no names and is not for servers.
    """
    try:
        chain = read_chain(certificate)
        public_key = _public_half(_read(key))
    except CertificateFileError as err:
        return (str(err),)
    except ValueError as err:
        return (f"{key}: {err}",)
    found = _certificate_problems(chain, now=now, names=names, serving=serving)
    problems = [f"{certificate}: {problem}" for problem in found]
    if not _is_key_of(public_key, chain[0]):
        problems.append(f"{key}: does not belong to the certificate in {certificate}")
    return tuple(problems)


def issued_problems(
    pair: Issued, *, now: datetime, names: Sequence[str] = (), serving: bool = True
) -> tuple[str, ...]:
    """Return why a pair cannot be used, as `pair_problems` does; each text begins with a key.

    The keys are those of a Secret for TLS: `tls.crt` and `tls.key`.
    """
    try:
        chain = read_certificates(pair.certificate)
    except ValueError:
        return ("tls.crt: holds no PEM certificate that can be read",)
    try:
        public_key = _public_half(pair.key)
    except ValueError as err:
        return (f"tls.key: {err}",)
    found = _certificate_problems(chain, now=now, names=names, serving=serving)
    problems = [f"tls.crt: {problem}" for problem in found]
    if not _is_key_of(public_key, chain[0]):
        problems.append("tls.key: does not belong to the certificate")
    return tuple(problems)


def _certificate_problems(
    chain: Sequence[x509.Certificate], *, now: datetime, names: Sequence[str], serving: bool
) -> list[str]:
    leaf = chain[0]
    return [
        *validity_problems(leaf, now),
        *_chain_problems(chain),
        *(_purpose_problems(leaf) if serving else ()),
        *(f"does not cover the name {name}" for name in names if not covers(leaf, name)),
    ]


def _is_key_of(public_key: bytes, certificate: x509.Certificate) -> bool:
    return certificate.public_key().public_bytes(*_PUBLIC_FORM) == public_key


def covers(certificate: x509.Certificate, name: str) -> bool:
    """Return whether a client that calls `name` accepts the certificate."""
    try:
        accepted = {str(ipaddress.ip_address(name))}
    except ValueError:
        wanted = name.lower()
        accepted = {wanted, f"*.{wanted.partition('.')[2]}"}
    return not accepted.isdisjoint(known.lower() for known in names_of(certificate))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise CertificateFileError(path, err.strerror or str(err)) from err


def _public_half(data: bytes) -> bytes:
    """Return the public half of a private key, as DER.

    Raises:
        ValueError: It cannot be read; the text says why.
    """
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except TypeError as err:
        raise ValueError("the private key is encrypted") from err
    except (ValueError, UnsupportedAlgorithm) as err:
        raise ValueError("holds no PEM private key that can be read") from err
    return key.public_key().public_bytes(*_PUBLIC_FORM)


def validity_problems(certificate: x509.Certificate, now: datetime) -> list[str]:
    """Return whether a certificate is outside its time."""
    if now >= certificate.not_valid_after_utc:
        return [f"ended at {certificate.not_valid_after_utc.isoformat()}"]
    if now < certificate.not_valid_before_utc:
        return [f"begins at {certificate.not_valid_before_utc.isoformat()}, which is not yet"]
    return []


def _chain_problems(chain: Sequence[x509.Certificate]) -> list[str]:
    return [
        f"certificate {place} of the file is not signed by the one behind it"
        for place, (child, parent) in enumerate(pairwise(chain), start=1)
        if not is_issued_by(child, parent)
    ]


def is_issued_by(child: x509.Certificate, parent: x509.Certificate) -> bool:
    """Return whether `parent` has signed `child`."""
    try:
        child.verify_directly_issued_by(parent)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _purpose_problems(leaf: x509.Certificate) -> list[str]:
    problems = []
    if not names_of(leaf):
        problems.append("has no subject alternative name, and clients read no other")
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except (x509.ExtensionNotFound, ValueError):
        return problems
    allowed = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    if not allowed.intersection(usages):
        problems.append("is not meant for servers (extended key usage)")
    return problems


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the DNS names and IP addresses of the SAN."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return (*names.get_values_for_type(x509.DNSName), *addresses)
