"""A directory with a CA and a serving certificate, made once and then kept.

Files: `ca.crt` (what clients trust), `ca.key` (signs the next serving certificate), `tls.crt` and
`tls.key` (what the server serves). Keys can be read by their owner only.

What is still good is kept, so that running it again changes nothing: a serving certificate that
covers the names and is signed by the CA; else the CA alone, so that clients go on trusting it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from webhook.atomic_file import write_file
from webhook.tls.files import CERTIFICATE_MODE, KEY_MODE
from webhook.tls.issue import CA_LIFETIME, Issued, issue_ca, issue_serving
from webhook.tls.pair import (
    CertificateFileError,
    is_issued_by,
    pair_problems,
    read_chain,
    validity_problems,
)


@dataclass(frozen=True, slots=True)
class CertificateDirectory:
    """The paths of one directory of certificates."""

    path: Path

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the paths of all files."""
        return self.ca_certificate, self.ca_key, self.certificate, self.key

    @property
    def ca_certificate(self) -> Path:
        """Return the path of what clients trust."""
        return self.path / "ca.crt"

    @property
    def ca_key(self) -> Path:
        """Return the path of the key that signs."""
        return self.path / "ca.key"

    @property
    def certificate(self) -> Path:
        """Return the path of what the server shows."""
        return self.path / "tls.crt"

    @property
    def key(self) -> Path:
        """Return the path of the server's key."""
        return self.path / "tls.key"


class IssuedParts(StrEnum):
    """Parts that a bootstrap had to make."""

    NOTHING = "nothing"
    SERVING = "serving certificate"
    CA = "CA"
    EVERYTHING = "CA and serving certificate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSpec:
    """Specification of the serving certificate."""

    dns_names: Sequence[str]
    ip_addresses: Sequence[str]
    lifetime: timedelta

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names that it has to cover."""
        return (*self.dns_names, *self.ip_addresses)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result: what was made, and why the files that were there did not do, if there were any."""

    made: IssuedParts
    reasons: tuple[str, ...]


def bootstrap(
    directory: CertificateDirectory, wanted: CertificateSpec, *, now: datetime, force: bool = False
) -> Outcome:
    """See to it that the directory has what is wanted.

    Args:
        directory: Made if it is missing.
        wanted: Names and lifetime; a certificate that has to be made ends no later than its CA.
        now: The time.
        force: Make everything anew, the CA too: clients have to learn of it.

    Raises:
        OSError: The directory cannot be made or written.
        IssueError: A name that cannot be in a certificate.
    """
    directory.path.mkdir(parents=True, exist_ok=True)
    with _locked(directory.path):
        fresh = not any(file.exists() for file in directory.files)
        reasons = serving_problems(directory, wanted.names, now=now)
        if not (force or reasons):
            return Outcome(IssuedParts.NOTHING, ())
        ca = None if force else _usable_ca(directory, now)
        made = IssuedParts.SERVING if ca else IssuedParts.EVERYTHING
        if ca is None:
            ca = issue_ca(now=now, lifetime=max(CA_LIFETIME, wanted.lifetime))
        serving = issue_serving(
            ca,
            dns_names=wanted.dns_names,
            ip_addresses=wanted.ip_addresses,
            now=now,
            lifetime=wanted.lifetime,
        )
        if made is IssuedParts.EVERYTHING:
            write_file(directory.ca_key, ca.key, mode=KEY_MODE)
            write_file(directory.ca_certificate, ca.certificate, mode=CERTIFICATE_MODE)
        write_file(directory.key, serving.key, mode=KEY_MODE)
        write_file(directory.certificate, serving.certificate, mode=CERTIFICATE_MODE)
    return Outcome(made, () if fresh else reasons)


def serving_problems(
    directory: CertificateDirectory, names: Sequence[str] = (), *, now: datetime
) -> tuple[str, ...]:
    """Return why the directory's pair cannot be served, or not be trusted through its CA."""
    problems = pair_problems(directory.certificate, directory.key, now=now, names=names)
    try:
        ca = read_chain(directory.ca_certificate)[0]
        leaf = read_chain(directory.certificate)[0]
    except CertificateFileError as err:
        return tuple(dict.fromkeys((*problems, str(err))))
    ca_problems = [f"{directory.ca_certificate}: {found}" for found in validity_problems(ca, now)]
    if not is_issued_by(leaf, ca):
        ca_problems.append(f"{directory.certificate}: is not signed by {directory.ca_certificate}")
    return (*problems, *ca_problems)


def _usable_ca(directory: CertificateDirectory, now: datetime) -> Issued | None:
    """Return the CA of the directory if it can sign; None if there is none that can."""
    if pair_problems(directory.ca_certificate, directory.ca_key, now=now, serving=False):
        return None
    return Issued(directory.ca_certificate.read_bytes(), directory.ca_key.read_bytes())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time work on a directory."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
