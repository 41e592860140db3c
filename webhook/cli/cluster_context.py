"""How `enable` and `doctor` judge a cluster: its configuration, and its certificates."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from webhook.cli.exit_codes import InputError, printable
from webhook.config import Configuration, ConfigurationError, load_configuration
from webhook.kube.api import CONFIG_MAPS, ClusterApi, ForbiddenError, NotFoundError
from webhook.operations.doctor.check_context import Validity
from webhook.operations.findings import Finding, Severity
from webhook.operations.names import CONFIG_KEY
from webhook.state.well_known import CONFIG_MAP

_F = TypeVar("_F", bound=Callable[..., Any])
_SECONDS: Final = 3.0
_COLORS: Final[Mapping[Severity, str]] = {Severity.ERROR: "red", Severity.WARN: "yellow"}


def configuration_of(api: ClusterApi, path: Path | None, namespace: str) -> Configuration:
    """Return the configuration of a file, or of the cluster as installed in `namespace`.

    Raises:
        InputError: It cannot be used; the text has the field.
        ApiError: The cluster does not answer.
    """
    # imported late: the engine is slow to import, and help must not wait for it
    from webhook.cli.files.snapshots import read_configuration  # noqa: PLC0415
    from webhook.runtime import check_configuration  # noqa: PLC0415

    if path is not None:
        given = read_configuration(path)
        return Configuration() if given is None else given.current
    try:
        raw = api.get(CONFIG_MAPS, CONFIG_MAP, namespace=namespace)
    except (NotFoundError, ForbiddenError):
        return Configuration()
    data = raw.get("data")
    text = data.get(CONFIG_KEY) if isinstance(data, Mapping) else None
    if not isinstance(text, str):
        return Configuration()
    source = f"ConfigMap {namespace}/{CONFIG_MAP}, {CONFIG_KEY}"
    try:
        return load_configuration(text, source, check=check_configuration)
    except ConfigurationError as err:
        raise InputError(f"{err} (--config reads another one)") from err


def read_bundle(pem: bytes) -> Sequence[Validity]:
    """Return from when to when the certificates of a bundle are valid.

    Raises:
        ValueError: It is no bundle of certificates.
    """
    from webhook.tls.bundles import read_certificates  # noqa: PLC0415 - slow to import
    from webhook.tls.pair import facts_of  # noqa: PLC0415 - as above

    found = map(facts_of, read_certificates(pem))
    return [(facts.not_before, facts.not_after) for facts in found]


def answers_anybody(url: str) -> bool:
    """Return whether a server answers a client that shows no certificate; False if none answers.

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
            connection.getresponse()
        except (OSError, http.client.HTTPException):
            return False
    return True


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
