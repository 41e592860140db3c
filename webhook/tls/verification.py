"""Whether an API server that calls by the registrations accepts what is served here.

Every call is made as the API server makes it, as far as the TLS handshake goes: on the port of this
process, with the name that the entry calls, trusting its `caBundle` and nothing else.

An entry without a `caBundle` lets the API server trust the CAs of its own machine, which are not
known here. It is tried with those of this machine, and what comes of it is only noted: no other
certificate of a replica would mend an entry whose bundle was taken away.

Source: kubernetes v1.36, apiserver/pkg/util/webhook/client.go, client-go/transport.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from webhook.tls.called_names import RegisteredCall

_SECONDS: Final = 5.0

Handshake: TypeAlias = Callable[[str, bytes], str]
"""Calls this process by a name, trusting a bundle; returns why it was refused, empty if it was not.
Raises OSError where neither came out."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of calling by every entry."""

    problems: tuple[str, ...] = ()
    """Why calls fail that another certificate would let succeed."""
    notes: tuple[str, ...] = ()
    """Why calls fail whatever is served here."""
    refusing: int = 0
    """Of how many entries the problems are."""


def verify(calls: Iterable[RegisteredCall], handshake: Handshake) -> Verification:
    """Call by every entry; those that call and trust the same share a handshake.

    Raises:
        OSError: A handshake did not come to an end.
    """
    refusals: dict[tuple[str, bytes], str] = {}
    refused: dict[tuple[str, str, bytes], list[str]] = {}
    for call in calls:
        how = call.name, call.bundle
        if how not in refusals:
            refusals[how] = handshake(*how)
        if refusals[how]:
            refused.setdefault((call.registration, *how), []).append(call.entry)
    problems, notes, refusing = list[str](), list[str](), 0
    for (registration, name, bundle), entries in refused.items():
        why = refusals[name, bundle]
        where = f"{registration}, {_some(entries)}"
        if bundle:
            refusing += len(entries)
            problems.append(
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
                context.load_verify_locations(cadata=bundle.decode("ascii"))
            else:
                context.load_default_certs()
        except (ssl.SSLError, ValueError):
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


def _some(entries: list[str]) -> str:
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"{entries[0]}{more}"
