"""Bundles: the certificates of CAs that a client trusts, as one PEM text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from cryptography import x509
from cryptography.hazmat.primitives import serialization


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


def trusted(bundle: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a bundle; none where it cannot be read."""
    try:
        return tuple(x509.load_pem_x509_certificates(bundle))
    except ValueError:
        return ()


def bundle_of(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as one bundle, each once, in their order."""
    found = dict.fromkeys(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    return b"".join(found)
