"""Context of `enable` and `doctor` on a cluster: its certificates, and findings in words."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import click

from webhook.cli.exit_codes import printable
from webhook.operations.doctor.check_context import Validity
from webhook.operations.findings import Finding, Severity

_SECONDS: Final = 3.0
_COLORS: Final[Mapping[Severity, str]] = {Severity.ERROR: "red", Severity.WARN: "yellow"}


def read_bundle(pem: bytes) -> Sequence[Validity]:
    """Return from when to when the certificates of a bundle are valid.

    Raises:
        ValueError: It is no bundle of certificates.
    """
    from webhook.tls.bundles import read_certificates  # noqa: PLC0415 - slow to import

    found = read_certificates(pem)
    return [(each.not_valid_before_utc, each.not_valid_after_utc) for each in found]


def refusal(chain: bytes, bundle: bytes) -> str:
    """Return why a bundle does not verify a certificate, with the CAs behind it; empty if it does.

    What cannot be read is not verified. Times and names are said by other checks.
    """
    from webhook.tls.bundles import trusted  # noqa: PLC0415 - slow to import
    from webhook.tls.pair import is_issued_by  # noqa: PLC0415 - as above

    leaf, between = trusted(chain)[:1], list(trusted(chain)[1:])
    reached, anchors = list(leaf), trusted(bundle)
    for each in reached:  # which grows by what has signed it
        if any(each == anchor or is_issued_by(each, anchor) for anchor in anchors):
            return ""
        signers = [one for one in between if one not in reached and is_issued_by(each, one)]
        reached.extend(signers)
    return "no CA in it has signed it"


def refusal_at(url: str, bundle: bytes) -> str:
    """Return why a bundle does not verify what a server shows; empty if it does, or none answers.

    It is the handshake by which a replica finds out whether it is ready.
    """
    from webhook.tls.verification import handshake_with  # noqa: PLC0415 - as above

    place = urlsplit(url)
    host = place.hostname or ""
    try:
        return handshake_with((host, place.port or 443))(host, bundle)
    except OSError:
        return ""


def answers_all(url: str) -> bool:
    """Return whether a server answers a client that shows no certificate; False if none does.

    Only the method is asked about, so nothing is trusted, and nothing sent that means anything.
    """
    place = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        place.hostname or "", place.port, timeout=_SECONDS, context=context
    )
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/validate")
            response = connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
    return response.status != http.HTTPStatus.FORBIDDEN


def served_at(url: str) -> bytes:
    """Return the certificate that a server shows, as PEM, trusted or not; empty if none answers."""
    place = urlsplit(url)
    try:
        found = ssl.get_server_certificate(
            (place.hostname or "", place.port or 443), timeout=_SECONDS
        )
    except OSError:
        return b""
    return found.encode()


def finding_lines(finding: Finding) -> list[str]:
    """Put a finding into lines for a person."""
    label = click.style(f"{finding.severity:<5}", fg=_COLORS.get(finding.severity), bold=True)
    about = f"{finding.subject}: " if finding.subject else ""
    lines = [f"{label}  {printable(about + finding.message)}  [{finding.id}]"]
    if finding.remedy:
        lines.append(f"       {printable(finding.remedy)}")
    return lines


def finding_entry(finding: Finding) -> dict[str, object]:
    """Put a finding into plain values for a program."""
    subject = finding.subject
    return {
        "id": finding.id,
        "severity": finding.severity.value,
        "object": None
        if subject is None
        else {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name},
        "message": finding.message,
        "remedy": finding.remedy,
        "details": list(finding.details),
    }
