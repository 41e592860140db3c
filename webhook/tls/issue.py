"""A CA and serving certificates as PEM bytes; no files, no clock of its own.

Choices, with their reasons:

- ECDSA P-256: made in microseconds, small in every handshake, accepted by every API server.
- `notBefore` lies one hour back: clocks of nodes are off by minutes, sometimes by half an hour,
  and a certificate that is "not yet valid" stops every request. Backdating a new key costs nothing.
- Serials are random and names of CAs carry their date, so that two CAs are never mixed up.
- The CA may sign leaves only (path length 0), and a leaf never outlives its CA: a client that
  trusts the bundle would refuse a leaf that still looks fine.
- Names go into the SAN: API servers do not read the common name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.tls.bundles import read_certificates

BACKDATE: Final = timedelta(hours=1)
CA_LIFETIME: Final = timedelta(days=730)
LEAF_LIFETIME: Final = timedelta(days=90)

_CA_NAME: Final = "deferred-quota CA"
_COMMON_NAME_CHARACTERS: Final = 64
IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class IssueError(ValueError):
    """A certificate that cannot be issued as asked for."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


def issue_ca(*, now: datetime, lifetime: timedelta = CA_LIFETIME) -> Issued:
    """Make a new CA that may sign serving certificates.

    Raises:
        IssueError: The lifetime is not positive.
    """
    _check_lifetime(lifetime)
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"{_CA_NAME} {now.astimezone(UTC):%Y-%m-%d %H:%M:%S}")
    builder = (
        _builder(subject=name, issuer=name, key=key, now=now, not_after=now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    return Issued(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def is_own_ca(certificate: x509.Certificate) -> bool:
    """Return whether a certificate is, by its name, a CA that `issue_ca` has made."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return any(str(name.value).startswith(f"{_CA_NAME} ") for name in names)


def issue_serving(
    ca: Issued,
    *,
    dns_names: Sequence[str] = (),
    ip_addresses: Sequence[str] = (),
    now: datetime,
    lifetime: timedelta = LEAF_LIFETIME,
) -> Issued:
    """Make a serving certificate, signed by `ca` and ending no later than it.

    Args:
        ca: The CA with its key.
        dns_names: Host names; `*.example` stands for one label.
        ip_addresses: Addresses as text.
        now: The time; validity begins BACKDATE before it.
        lifetime: From `now` on.

    Raises:
        IssueError: No name at all, a name that cannot be in a certificate, a CA that cannot be
            read, or one that ends before the certificate would begin.
    """
    _check_lifetime(lifetime)
    ca_certificate, ca_key = _load_ca(ca)
    not_after = min(now + lifetime, ca_certificate.not_valid_after_utc)
    if not_after <= now:
        raise IssueError("the CA has ended")
    names = _alternative_names(dns_names, ip_addresses)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(
            subject=_name(_common_name((*dns_names, *ip_addresses))),
            issuer=ca_certificate.subject,
            key=key,
            now=now,
            not_after=not_after,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(_authority(ca_certificate), critical=False)
    )
    return Issued(_pem(builder.sign(ca_key, hashes.SHA256())), _key_pem(key))


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the names under which a Service is called; the API server uses the third."""
    return (
        service,
        f"{service}.{namespace}",
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
    )


def _check_lifetime(lifetime: timedelta) -> None:
    if lifetime <= timedelta(0):
        raise IssueError("the lifetime must be positive")


def _builder(
    *,
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    not_after: datetime,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - BACKDATE)
        .not_valid_after(not_after.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _common_name(names: Sequence[str]) -> str:
    """Return the first name that fits; the common name is for people, clients read the SAN."""
    fitting = [name for name in names if len(name) <= _COMMON_NAME_CHARACTERS]
    return fitting[0] if fitting else "deferred-quota"


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(
    dns_names: Sequence[str], ip_addresses: Sequence[str]
) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName(_dns_name(name)) for name in dns_names]
    names += [x509.IPAddress(_ip_address(text)) for text in ip_addresses]
    if not names:
        raise IssueError("at least one DNS name or IP address is needed")
    return x509.SubjectAlternativeName(names)


def _dns_name(name: str) -> str:
    labels = name.removeprefix("*.").split(".")
    if len(name) > 253 or not all(_is_dns_label(label) for label in labels):
        raise IssueError(f"{name!r} is not a DNS name")
    return name.lower()


def _is_dns_label(label: str) -> bool:
    inner = label.replace("-", "")
    fits = 0 < len(label) <= 63 and label[0] != "-" != label[-1]
    return fits and inner.isascii() and inner.isalnum()


def _ip_address(text: str) -> IpAddress:
    try:
        return ipaddress.ip_address(text)
    except ValueError as err:
        raise IssueError(f"{text!r} is not an IP address") from err


def _authority(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        subject = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        # one that another program made, or a damaged one; it signs all the same
        key = cast("ec.EllipticCurvePublicKey", ca.public_key())
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(subject)


def _load_ca(ca: Issued) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = read_certificates(ca.certificate)[0]
        key = serialization.load_pem_private_key(ca.key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        raise IssueError(f"the CA cannot be read: {err}") from err
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IssueError("the key of the CA is not an ECDSA key")
    if key.public_key() != certificate.public_key():
        raise IssueError("certificate and key of the CA do not belong together")
    return certificate, key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
