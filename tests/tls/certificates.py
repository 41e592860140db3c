"""Certificates for tests, good ones and bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from webhook.tls.issue import Issued, issue_ca, issue_serving

NOW = datetime(2026, 1, 5, 8, 0, tzinfo=UTC)
CA = issue_ca(now=NOW)
OTHER_CA = issue_ca(now=NOW)


def a_serving_certificate(
    *,
    ca: Issued = CA,
    names: Sequence[str] = ("localhost",),
    ips: Sequence[str] = ("127.0.0.1",),
    now: datetime = NOW,
    lifetime: timedelta = timedelta(days=90),
) -> Issued:
    """A serving certificate for this machine."""
    return issue_serving(ca, dns_names=names, ip_addresses=ips, now=now, lifetime=lifetime)


def written(directory: Path, pair: Issued) -> tuple[Path, Path]:
    """The paths of a pair that is written to a directory."""
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return certificate, key


def a_ca_of(root: Issued, name: str, *, now: datetime = NOW) -> Issued:
    """A CA that another one has signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(root.certificate)
    signing = serialization.load_pem_private_key(root.key, password=None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    return _issued(certificate, key)


def a_foreign_certificate(
    *, names: Sequence[str] = (), usages: Sequence[ObjectIdentifier] = ()
) -> Issued:
    """A self-signed certificate as other tools make them, without what is not given."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
    )
    if names:
        san = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(san, critical=False)
    if usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return _issued(builder.sign(key, hashes.SHA256()), key)


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


CLIENT_ONLY = a_foreign_certificate(names=["localhost"], usages=[ExtendedKeyUsageOID.CLIENT_AUTH])
NO_NAMES = a_foreign_certificate()
