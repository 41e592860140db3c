"""Findings, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from webhook.kube.api import Object
from webhook.kube.kinds import Kind


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """Something is not enforced, or does not work."""
    WARN = "warn"
    """It works, and an administrator should look at it."""
    INFO = "info"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that a finding is about."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else self._short

    @property
    def _short(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found."""

    id: str
    """Which kind of finding, the same in every version."""
    severity: Severity
    subject: Subject | None
    """About which object; None when it is about the whole cluster."""
    message: str
    """What was found, naming the field where there is one."""
    remedy: str = ""
    details: tuple[str, ...] = ()
    """One line for each of many things that the message sums up."""


def error(
    name: str, subject: Subject | None, message: str, remedy: str, details: tuple[str, ...] = ()
) -> Finding:
    """Make a finding of what is not enforced or does not work."""
    return Finding(name, Severity.ERROR, subject, message, remedy, details)


def warning(
    name: str, subject: Subject | None, message: str, remedy: str, details: tuple[str, ...] = ()
) -> Finding:
    """Return a finding that an administrator should look at."""
    return Finding(name, Severity.WARN, subject, message, remedy, details)


def information(
    name: str,
    subject: Subject | None,
    message: str,
    remedy: str = "",
    details: tuple[str, ...] = (),
) -> Finding:
    """Make a finding of what is worth knowing."""
    return Finding(name, Severity.INFO, subject, message, remedy, details)


def first_of(names: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first of some names, and of how many more there are the number."""
    more = len(names) - most
    rest = f"{separator.strip(', ')} and {more} more" if more > 0 else ""
    return separator.join(names[:most]) + rest


def subject_of(kind: Kind, raw: Object) -> Subject:
    """Name an object, however odd it is."""
    metadata = raw.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    name, namespace = found.get("name"), found.get("namespace")
    return Subject(
        kind.kind,
        name if isinstance(name, str) else "(without name)",
        namespace if isinstance(namespace, str) else "",
    )
