"""`deferred-quota certs`: make and show the certificates of the webhook."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
from cryptography.hazmat.primitives import hashes

from webhook.cli.exit_codes import ExitCode, InputError, printable
from webhook.cli.printing.output import print_json
from webhook.tls.bootstrap import (
    CertificateDirectory,
    CertificateSpec,
    IssuedParts,
    bootstrap,
    serving_problems,
)
from webhook.tls.issue import IssueError, service_names
from webhook.tls.pair import CertificateFileError, names_of, read_chain

LOCAL_NAMES = ("localhost",)
LOCAL_ADDRESSES = ("127.0.0.1", "::1")


def run_bootstrap(
    directory: Path,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[str, ...],
    services: tuple[str, ...],
    days: int,
    force: bool,
) -> None:
    """Make a CA and a serving certificate, unless good ones are there."""
    names = (*dns_names, *(name for service in services for name in _service_names(service)))
    if not names and not ip_addresses:
        names, ip_addresses = LOCAL_NAMES, LOCAL_ADDRESSES
    wanted = CertificateSpec(
        dns_names=names, ip_addresses=ip_addresses, lifetime=timedelta(days=days)
    )
    files = CertificateDirectory(directory)
    try:
        outcome = bootstrap(files, wanted, now=datetime.now(UTC), force=force)
    except OSError as err:
        raise InputError(f"{err.filename or directory}: {err.strerror or err}") from err
    except IssueError as err:
        raise InputError(str(err)) from err
    _tell(files, outcome.made, outcome.reasons)


def run_show(directory: Path, output: str) -> ExitCode:
    """Show what the certificates say, and whether they can be used; exit status 1 if not."""
    files = CertificateDirectory(directory)
    now = datetime.now(UTC)
    try:
        described = [_describe(path, now) for path in (files.ca_certificate, files.certificate)]
        bundle = base64.b64encode(files.ca_certificate.read_bytes()).decode("ascii")
    except CertificateFileError as err:
        raise InputError(str(err)) from err
    problems = serving_problems(files, now=now)
    if output == "json":
        report = {"certificates": described, "caBundle": bundle, "problems": list(problems)}
        print_json({"schemaVersion": 1, **report})
    else:
        click.echo(_text(described, problems))
    return ExitCode.FINDINGS if problems else ExitCode.OK


def _service_names(service: str) -> tuple[str, ...]:
    name, dot, namespace = service.partition(".")
    if not (name and dot and namespace) or "." in namespace:
        raise click.BadParameter(f"{service!r} is not NAME.NAMESPACE", param_hint="--service")
    return service_names(name, namespace)


def _tell(files: CertificateDirectory, made: IssuedParts, reasons: Sequence[str]) -> None:
    for reason in reasons:
        click.echo(f"not kept: {printable(reason)}", err=True)
    kept = made is IssuedParts.NOTHING
    click.echo("kept: all files are valid" if kept else f"made: {made.value}", err=True)
    ends = read_chain(files.certificate)[0].not_valid_after_utc
    click.echo(f"{files.certificate}\n{files.key}\n{files.ca_certificate}")
    click.echo(f"valid until {ends:%Y-%m-%d %H:%M} UTC", err=True)


def _describe(path: Path, now: datetime) -> dict[str, object]:
    certificate = read_chain(path)[0]
    return {
        "file": str(path),
        "subject": certificate.subject.rfc4514_string(),
        "issuer": certificate.issuer.rfc4514_string(),
        "names": list(names_of(certificate)),
        "notBefore": _moment(certificate.not_valid_before_utc),
        "notAfter": _moment(certificate.not_valid_after_utc),
        "daysLeft": (certificate.not_valid_after_utc - now).days,
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(":"),
    }


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(described: Sequence[dict[str, object]], problems: Sequence[str]) -> str:
    lines: list[str] = []
    for facts in described:
        names = facts["names"]
        lines += [
            f"{facts['file']}",
            f"  subject  {facts['subject']}",
            f"  issuer   {facts['issuer']}",
            *([f"  names    {', '.join(names)}"] if isinstance(names, list) and names else []),
            f"  valid    {facts['notBefore']} to {facts['notAfter']}",
            f"  left     {facts['daysLeft']} days",
            f"  sha256   {facts['sha256']}",
        ]
    return "\n".join([*lines, *(f"problem: {problem}" for problem in problems)])
