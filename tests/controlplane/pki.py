"""The keys of a cluster: its CA, the API server's certificate, users' certificates.

One CA signs all of them. Users are client certificates: the common name is the user, the
organizations are its groups.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from webhook.tls.issue import BACKDATE, Issued, issue_ca, issue_serving, service_names

_LIFETIME: Final = timedelta(days=30)
_CLUSTER: Final = "controlplane"


@dataclass(frozen=True, slots=True)
class Pki:
    """The files of a cluster's keys, and its CA."""

    directory: Path
    ca: Issued

    @property
    def ca_file(self) -> Path:
        """The CA's certificate."""
        return self.directory / "ca.crt"

    @property
    def serving(self) -> tuple[Path, Path]:
        """Certificate and key of the API server."""
        return self.directory / "apiserver.crt", self.directory / "apiserver.key"

    @property
    def service_accounts(self) -> tuple[Path, Path]:
        """The key that signs the tokens of service accounts, and its public half."""
        return self.directory / "service-accounts.key", self.directory / "service-accounts.pub"

    @classmethod
    def make(cls, directory: Path, *, service_address: str) -> Pki:
        """Make everything anew.

        Args:
            directory: Where files go.
            service_address: The address of the `kubernetes` Service.
        """
        directory.mkdir(parents=True, exist_ok=True)
        now = datetime.now(UTC)
        ca = issue_ca(now=now)
        pki = cls(directory, ca)
        serving = issue_serving(
            ca,
            dns_names=["localhost", *service_names("kubernetes", "default")],
            ip_addresses=["127.0.0.1", service_address],
            now=now,
            lifetime=_LIFETIME,
        )
        certificate, key = pki.serving
        _write(pki.ca_file, ca.certificate)
        _write(certificate, serving.certificate)
        _write(key, serving.key)
        tokens = ec.generate_private_key(ec.SECP256R1())
        signing, checking = pki.service_accounts
        _write(signing, _key_pem(tokens))
        _write(checking, _public_pem(tokens))
        return pki

    def issue_client(
        self, user: str, groups: Sequence[str], *, end: datetime | None = None
    ) -> Issued:
        """Make the certificate of a user, which lasts for long unless `end` is given."""
        now = datetime.now(UTC)
        ca = x509.load_pem_x509_certificate(self.ca.certificate)
        ca_key = serialization.load_pem_private_key(self.ca.key, password=None)
        assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        names.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(ca.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACKDATE)
            .not_valid_after(end or now + _LIFETIME)
            .add_extension(usage, critical=False)
            .sign(ca_key, hashes.SHA256())
        )
        return Issued(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))


def kubeconfig_of_certificate(url: str, ca: bytes, user: str, client: Issued) -> str:
    """Write a kubeconfig that needs no other file, with a client certificate."""
    credentials = {
        "client-certificate-data": _base64(client.certificate),
        "client-key-data": _base64(client.key),
    }
    return _kubeconfig(url, ca, user, credentials)


def kubeconfig_of_token(url: str, ca: bytes, user: str, token: str) -> str:
    """Write a kubeconfig that needs no other file, with a token."""
    return _kubeconfig(url, ca, user, {"token": token})


def _kubeconfig(url: str, ca: bytes, user: str, credentials: dict[str, str]) -> str:
    cluster = {"server": url, "certificate-authority-data": _base64(ca)}
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": user}}],
        "current-context": _CLUSTER,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner reads."""
    _write(path, text.encode())


def _write(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _public_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
