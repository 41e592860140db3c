"""Clients of the webhook port that are accepted: those that a CA vouches for, under some names.

The API server shows a client certificate to webhooks where its AdmissionConfiguration says so
(`kubeConfigFile`). A client that shows none passes the handshake, and is refused with words that
the API server hands on; one of another CA does not pass.

Source: kubernetes v1.36, apiserver/pkg/util/webhook/authentication.go.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from cryptography import x509

from webhook.state.well_known import KNOWN_CLIENTS_ONLY
from webhook.tls.bundles import bundle_of
from webhook.tls.pair import CertificateFileError, read_chain, validity_problems

ClientFault: TypeAlias = Literal["", "no_certificate", "other_name", "untrusted"]

_COMMON_NAME: Final = "commonName"
_HOW: Final = (
    f"{KNOWN_CLIENTS_ONLY}: kubeConfigFile in the AdmissionConfiguration of the API server names it"
    " (docs/client-auth.md)"
)


@dataclass(frozen=True, slots=True)
class TrustedClients:
    """Certificates of clients that are accepted."""

    authorities: tuple[Path, ...]
    """PEM files, each with the certificates of one or more CAs."""
    names: tuple[str, ...]
    """Common names, of which a client has one."""

    def file_problems(self, now: datetime) -> tuple[str, ...]:
        """Return why the files as they are now cannot be used; each text begins with the file."""
        return self.checked(now)[0]

    def checked(self, now: datetime) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return why the files cannot be used, or else which CAs are outside their time.

        A CA that has ended is no reason against the others: it is left beside the one that
        replaces it. Where there is no other, no client could be accepted, and it is a problem.
        """
        problems: list[str] = []
        outside: list[str] = []
        count = 0
        for path in self.authorities:
            try:
                found = _authorities(path)
            except CertificateFileError as err:
                problems.append(str(err))
                continue
            count += len(found)
            outside += [each for one in found for each in _outside_its_time(path, one, now)]
        if problems or len(outside) == count:
            return (*problems, *outside), ()
        return (), tuple(outside)

    def apply(self, context: ssl.SSLContext) -> None:
        """Let a server ask its clients for certificates of these CAs.

        Raises:
            CertificateFileError: A file has changed since it was checked.
            OSError: OpenSSL does not take the files.
        """
        # each CA is trusted as it is, also one that another CA has signed
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for path in self.authorities:
            pem = bundle_of(_authorities(path))
            context.load_verify_locations(cadata=pem.decode("ascii"))
        # a client that resumes a session shows no certificate again, and the CA may have ended
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        # with CERT_REQUIRED the API server would say no more than that the handshake failed
        context.verify_mode = ssl.CERT_OPTIONAL

    def refusal(
        self, certificate: Mapping[str, object] | None, now: datetime
    ) -> tuple[ClientFault, str]:
        """Return why a client is refused, for metrics and for people; both empty if it is not.

        Args:
            certificate: What the TLS layer has verified of it (`SSLSocket.getpeercert`): now, or
                when a session of TLS 1.2 began that the client resumes.
            now: The present time.
        """
        if not certificate:
            return "no_certificate", f"the client shows no certificate: {_HOW}"
        end = str(certificate["notAfter"])
        if ssl.cert_time_to_seconds(end) < now.timestamp():
            return "untrusted", f"the client's certificate has ended on {end}: {_HOW}"
        names = _common_names(certificate)
        if len(names) == 1 and names[0] in self.names:
            return "", ""
        shown, accepted = (" and ".join(map(repr, each)) for each in (names, self.names))
        words = f"the client's certificate is for {shown or 'no name'}, not {accepted}: {_HOW}"
        return "other_name", words


def _outside_its_time(path: Path, authority: x509.Certificate, now: datetime) -> list[str]:
    name = authority.subject.rfc4514_string()
    return [f"{path}: {name} {problem}" for problem in validity_problems(authority, now)]


def _authorities(path: Path) -> tuple[x509.Certificate, ...]:
    """Return the CAs of a file.

    Raises:
        CertificateFileError: The file cannot be read, or a certificate in it is of no CA.
    """
    found = read_chain(path)
    others = [each for each in found if not _is_authority(each)]
    if others:
        name = others[0].subject.rfc4514_string()
        detail = f"{name} is the certificate of no CA (basic constraints)"
        raise CertificateFileError(path, detail)
    return found


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _common_names(certificate: Mapping[str, object]) -> list[str]:
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    return [value for part in subject for name, value in part if name == _COMMON_NAME]
