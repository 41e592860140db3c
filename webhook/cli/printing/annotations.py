"""A report as lines for other programs: annotations of GitHub Actions, and TAP.

Source: GitHub, "Workflow commands for GitHub Actions"; Test Anything Protocol, version 13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import note_lines
from webhook.operations.check.values import CheckFinding, Report
from webhook.operations.findings import Severity

_COMMANDS: Final = {Severity.ERROR: "error", Severity.WARN: "warning", Severity.INFO: "notice"}
_MESSAGE: Final[Mapping[str, str]] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Final[Mapping[str, str]] = {**_MESSAGE, ":": "%3A", ",": "%2C"}


def github_text(report: Report) -> str:
    """Return one annotation for each finding, and one without a place for each note."""
    notes = (
        f"::notice title=deferred-quota: note::{_escaped(printable(note), _MESSAGE)}"
        for note in report.notes
    )
    return "\n".join((*map(_annotation, report.findings), *notes))


def _annotation(found: CheckFinding) -> str:
    finding, place = found.finding, found.location
    about = "" if finding.subject is None else f"{finding.subject}: "
    properties = {
        "file": printable(place.file),
        "line": str(place.line),
        "col": str(place.column),
        "title": f"deferred-quota {finding.id}",
    }
    listed = ",".join(f"{name}={_escaped(value, _PROPERTY)}" for name, value in properties.items())
    message = printable(f"{about}{finding.message}")
    if finding.remedy:
        message += f"\nfix: {printable(finding.remedy)}"
    return f"::{_COMMANDS[finding.severity]} {listed}::{_escaped(message, _MESSAGE)}"


def _escaped(text: str, table: Mapping[str, str]) -> str:
    return "".join(table.get(each, each) for each in text)


def tap_text(report: Report) -> str:
    """Return one test for each object and each thing that cannot be read; notes are comments."""
    tests: list[tuple[str, tuple[CheckFinding, ...]]]
    tests = [(str(one.location), (one.finding,)) for one in report.problems]
    tests += [(one.label, one.findings) for one in report.objects]
    lines = ["TAP version 13", f"1..{len(tests)}"]
    for number, (name, findings) in enumerate(tests, 1):
        bad = [one for one in findings if one.finding.severity is not Severity.INFO]
        lines.append(f"{'not ok' if bad else 'ok'} {number} - {_description(name)}")
        for found in findings:
            lines += _diagnostics(found)
    lines += [f"# {line}" for line in note_lines(report.notes)]
    return "\n".join(lines)


def _description(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace("#", "\\#")


def _diagnostics(found: CheckFinding) -> Iterator[str]:
    yield f"# {printable(f'{found.location}: {found.finding.id}: {found.finding.message}')}"
    if found.finding.remedy:
        yield f"# fix: {printable(found.finding.remedy)}"
