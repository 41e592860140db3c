"""Bundles: the certificates of CAs that a client trusts, as one PEM text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

_NO_VALUE_ERRORS: Final = (
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""What the library raises besides for a certificate that it cannot decode."""


def read_certificates(pem: bytes) -> list[x509.Certificate]:
    """Return the certificates of a PEM text, each of them decoded throughout.

    The library decodes most of a certificate only when it is asked for: what is read here raises
    no error later, in the middle of a rotation.

    Raises:
        ValueError: There is none, or one cannot be decoded.
    """
    try:
        found = x509.load_pem_x509_certificates(pem)
        for each in found:
            _decode(each)
    except _NO_VALUE_ERRORS as err:
        raise ValueError(f"a certificate cannot be decoded: {err}") from err
    return found


def _decode(certificate: x509.Certificate) -> None:
    """Decode what is read of certificates anywhere.

    Raises:
        ValueError: It is not what its encoding says; or one of `_NO_VALUE_ERRORS`.
    """
    certificate.public_key()
    certificate.extensions  # noqa: B018 - read, so that it is decoded
    for each in (certificate.subject, certificate.issuer):
        each.rfc4514_string()
    certificate.not_valid_before_utc, certificate.not_valid_after_utc  # noqa: B018 - as above


def certificates_only(pem: bytes) -> bytes:
    """Return the certificates of a PEM file, and nothing else that is in it, such as a key.

    Raises:
        ValueError: There is none.
    """
    found = read_certificates(pem)
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in found)


def trusted(bundle: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a bundle; none where it cannot be read."""
    try:
        return tuple(read_certificates(bundle))
    except ValueError:
        return ()


def certificate_set(pem: bytes) -> frozenset[bytes]:
    """Return the certificates of a bundle, each as DER; none where it cannot be read."""
    return frozenset(each.public_bytes(serialization.Encoding.DER) for each in trusted(pem))


def joined(*bundles: bytes) -> bytes:
    """Return all certificates of some bundles, each once; what cannot be read is left out."""
    return bundle_of(each for bundle in bundles for each in trusted(bundle))


def bundle_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as one bundle, each once, in their order."""
    found = dict.fromkeys(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    return b"".join(found)
