"""Questions to `check`, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.kube.files.documents import Document
from webhook.operations.findings import Finding, Severity
from webhook.quota.checking.rollouts import Rollout
from webhook.quota.checking.subjects import ManifestObject
from webhook.quota.checking.template_paths import TemplatePath
from webhook.quota.checking.values import Rule, Verdict
from webhook.quota.explaining.values import Shortage


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Options by which manifests are judged."""

    rollout: Rollout = Rollout.SURGE
    rollouts: int | None = None
    """How many rollouts there may be at the same time; None: all of them."""
    paths: tuple[TemplatePath, ...] = ()
    nodes: int | None = None
    """On how many nodes a DaemonSet runs; None: those that are known, or one."""
    ignored: tuple[Ignore, ...] = ()


@dataclass(frozen=True, slots=True)
class Ignore:
    """Findings that are left out."""

    rule: str
    """A rule; `*` is every one."""
    pattern: str = "*"
    """A glob on `namespace/Kind/name`, `Kind/name` or the name."""


class FailOn(StrEnum):
    """The least that makes the command fail."""

    REFUSE = "refuse"
    WAIT = "wait"
    WARN = "warn"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Entry:
    """An object of the manifests, and where it is."""

    object: ManifestObject
    document: Document
    earlier: Entry | None = None
    """An object before it in the input, of the same kind, namespace and name."""

    @property
    def key(self) -> str:
        """The object as `--ignore` names it."""
        one = self.object
        return f"{one.namespace}/{one.kind}/{one.name}"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file."""

    file: str
    line: int
    column: int = 1
    field: str = ""
    """YAML path in the document."""

    @property
    def sort_key(self) -> tuple[str, int, int]:
        """Return what locations are sorted by: file, line and column."""
        return self.file, self.line, self.column

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding about an object, with its place in the manifests."""

    finding: Finding
    """Its `id` is the rule, its remedy a command."""
    verdict: Verdict
    """What it makes of the object; of a warning ADMITTED."""
    location: Location
    quota: str = ""
    shortages: tuple[Shortage, ...] = ()

    @property
    def rule(self) -> Rule:
        """Which rule it is about."""
        return Rule(self.finding.id)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something of the input that cannot be read."""

    location: Location
    text: str

    @property
    def finding(self) -> CheckFinding:
        """It as a finding."""
        found = Finding(Rule.BAD_INPUT, Severity.ERROR, None, self.text)
        return CheckFinding(found, Verdict.REFUSED, self.location)


@dataclass(frozen=True, slots=True)
class CheckedObject:
    """The answer about one object."""

    kind: str
    namespace: str
    name: str
    location: Location
    verdict: Verdict
    pods: int = 0
    surge: int = 0
    """How many more pods there are during a rollout."""
    findings: tuple[CheckFinding, ...] = ()

    @property
    def label(self) -> str:
        """Kind, namespace and name."""
        where = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {where}{self.name}"


@dataclass(frozen=True, slots=True)
class Report:
    """The answer about all objects."""

    objects: tuple[CheckedObject, ...] = ()
    problems: tuple[Problem, ...] = ()
    """What could not be read."""
    notes: tuple[str, ...] = ()
    """Facts that could not be read, and what is taken instead."""

    @property
    def findings(self) -> tuple[CheckFinding, ...]:
        """All findings, with those about what could not be read, by file and line."""
        unread = [one.finding for one in self.problems]
        found = (*unread, *(found for one in self.objects for found in one.findings))
        return tuple(sorted(found, key=lambda one: one.location.sort_key))

    def counts(self) -> Mapping[Verdict, int]:
        """Return how many objects there are of each verdict."""
        counts = dict.fromkeys(Verdict, 0)
        for one in self.objects:
            counts[one.verdict] += 1
        return counts


SEVERITIES: Final[Mapping[Verdict, Severity]] = {
    Verdict.ADMITTED: Severity.INFO,
    Verdict.WAITS: Severity.WARN,
    Verdict.NO_NODE_FITS: Severity.ERROR,
    Verdict.NEVER_FITS: Severity.ERROR,
    Verdict.REFUSED: Severity.ERROR,
}
"""Verdict of an issue → how bad its finding is."""
