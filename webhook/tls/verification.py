"""Whether an API server that calls by the registrations accepts what is served here.

Every call is made as the API server makes it, as far as the TLS handshake goes: on the port of this
process, with the name that the entry calls, trusting its `caBundle` and nothing else.

An entry without a `caBundle` lets the API server trust the CAs of its own machine, which are not
known here. It is tried with those of this machine, and what comes of it is only noted: no other
certificate of a replica would mend an entry whose bundle was taken away.

Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go, client-go/transport.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.tls.called_names import GUARD, RegisteredCall

_SECONDS: Final = 5.0
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

Handshake: TypeAlias = Callable[[str, bytes], str]
"""Calls this process by a name, trusting a bundle; returns why it was refused, empty if it was not.
Raises OSError where neither came out."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of calls by every entry."""

    problems: tuple[str, ...] = ()
    """Why no bind is decided, where another certificate would let calls succeed."""
    notes: tuple[str, ...] = ()
    """Why other calls fail, or all whatever is served here."""
    refusing: int = 0
    """How many entries have a caBundle that does not verify the certificate."""


def verify(calls: Iterable[RegisteredCall], handshake: Handshake) -> Verification:
    """Call by every entry; those that call and trust the same share a handshake.

    Raises:
        OSError: A handshake did not come to an end.
    """
    refusals: dict[tuple[str, bytes], str] = {}
    refused: dict[tuple[str, str, bytes], list[str]] = {}
    is_trusted = False
    for call in calls:
        how = call.name, call.bundle
        if how not in refusals:
            refusals[how] = handshake(*how)
        is_trusted |= call.registration == GUARD and bool(call.bundle) and not refusals[how]
        if refusals[how]:
            refused.setdefault((call.registration, *how), []).append(call.entry)
    problems, notes, refusing = list[str](), list[str](), 0
    for (registration, name, bundle), entries in refused.items():
        why = refusals[name, bundle]
        where = f"{registration}, {_some(entries)}"
        if bundle:
            refusing += len(entries)
            # while binds are decided here: without this replica they would fail as well
            (notes if is_trusted else problems).append(
                f"{where}: the caBundle there does not verify the serving certificate for {name}:"
                f" {why}"
            )
        else:
            notes.append(
                f"{where}: has no caBundle, and the CAs of this machine do not verify the serving"
                f" certificate for {name}: {why}"
            )
    return Verification(tuple(problems), tuple(notes), refusing)


def handshake_with(address: tuple[str, int]) -> Handshake:
    """Return what makes handshakes with the server at an address."""

    def handshake(name: str, bundle: bytes) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.hostname_checks_common_name = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each is trusted as it is
        context.set_alpn_protocols(["http/1.1"])
        try:
            if bundle:
                _trust(context, bundle)
            else:
                context.load_default_certs()
        except ssl.SSLError:
            return "it cannot be read"
        try:  # a name that no certificate has is found without a socket, which would stay open
            context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
        except ValueError:
            return "no certificate can be for that name"
        try:
            with (
                socket.create_connection(address, timeout=_SECONDS) as sock,
                context.wrap_socket(sock, server_hostname=name),
            ):
                return ""
        except ssl.SSLCertVerificationError as err:
            return err.verify_message

    return handshake


def _trust(context: ssl.SSLContext, bundle: bytes) -> None:
    """Trust what an API server takes of a bundle: each certificate that can be read.

    Raises:
        SSLError: None can.
    """
    failure: ssl.SSLError | None = None
    blocks = _PEM.findall(bundle.decode("ascii", "ignore"))
    for block in blocks:
        try:
            context.load_verify_locations(cadata=block)
        except ssl.SSLError as err:
            failure = err
    if not context.cert_store_stats()["x509"]:
        raise failure or ssl.SSLError("no certificate in it")


def _some(entries: list[str]) -> str:
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"{entries[0]}{more}"
