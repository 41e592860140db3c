"""The TLS side of an access: the CAs to trust, and the certificate to show."""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.kube.rest.identity import AccessError, Pem


@dataclass(frozen=True, slots=True)
class Trust:
    """Identity of the server."""

    authority: Pem | None = None
    """The certificates that may sign the server's; None takes those of the system."""
    server_name: str = ""
    """The name that its certificate has to have; empty for the host of its address."""
    is_verified: bool = True
    """False trusts any server."""


class ContextCache:
    """The TLS context of one access, made again only when a certificate has changed."""

    def __init__(self, trust: Trust) -> None:
        """Make nothing yet."""
        self._trust: Final = trust
        self._lock = threading.Lock()
        self._made: tuple[object, ssl.SSLContext] | None = None

    def context(self, certificate: tuple[Pem, Pem] | None) -> ssl.SSLContext:
        """Return the context for a client certificate.

        Raises:
            AccessError: A certificate or key cannot be read or used.
        """
        pems = (self._trust.authority, *(certificate or ()))
        stamp = tuple(pem and pem.stamp() for pem in pems)
        with self._lock:
            if self._made is None or self._made[0] != stamp:
                self._made = (stamp, _make_context(self._trust, certificate))
            return self._made[1]


def _make_context(trust: Trust, certificate: tuple[Pem, Pem] | None) -> ssl.SSLContext:
    context = _trusting_context(trust)
    # As Go's clients verify: certificates need no key identifiers, each one listed is trusted
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not trust.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    if certificate is not None:
        _show_certificate(context, *certificate)
    return context


def _trusting_context(trust: Trust) -> ssl.SSLContext:
    if trust.authority is None:
        return ssl.create_default_context()
    text = trust.authority.read()
    try:
        return ssl.create_default_context(cadata=text.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError) as err:
        place = trust.authority.path or "certificate-authority-data"
        raise AccessError(f"{place}: holds no certificate in PEM: {err}") from err


def _show_certificate(context: ssl.SSLContext, chain: Pem, key: Pem) -> None:
    import tempfile  # noqa: PLC0415 - a command that has a token needs none of it

    with tempfile.TemporaryDirectory(prefix="deferred-quota-") as directory:
        # OpenSSL reads both from files only; they are gone before the first connection
        chain_file = _as_file(chain, Path(directory), "chain")
        key_file = _as_file(key, Path(directory), "key")
        try:
            # a key with a passphrase is an error, not a question on a terminal
            context.load_cert_chain(chain_file, key_file, password=lambda: b"")
        except (ssl.SSLError, OSError, ValueError) as err:
            places = f"{chain.path or 'client-certificate-data'}, {key.path or 'client-key-data'}"
            raise AccessError(f"{places}: no certificate and its key in PEM: {err}") from err


def _as_file(pem: Pem, directory: Path, name: str) -> Path:
    if pem.path is not None:
        return pem.path
    path = directory / name
    path.touch(mode=0o600)
    path.write_bytes(pem.data)
    return path
