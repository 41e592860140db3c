"""The answer of `check`, in every format, to standard output and to files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import msgspec

from webhook.cli.exit_codes import printable
from webhook.cli.printing.annotations import github_text, tap_text
from webhook.cli.printing.junit import junit_text
from webhook.cli.printing.output import note_lines, table_text
from webhook.cli.printing.sarif import sarif_log
from webhook.jsonfields.encoding import encode_json
from webhook.operations.check.values import CheckedObject, CheckFinding, Location, Report
from webhook.operations.explain.entry import shortage_entries
from webhook.operations.findings import Severity
from webhook.quota.amounts.resources import ResourceList, render
from webhook.quota.checking.values import Verdict
from webhook.quota.explaining.values import Shortage

SCHEMA_VERSION: Final = 1
"""Of `webhook/schemas/check.schema.json`."""

_COLORS: Final[Mapping[Severity, str]] = {Severity.ERROR: "red", Severity.WARN: "yellow"}
_WORDS: Final[Mapping[Verdict, str]] = {
    Verdict.ADMITTED: "admitted",
    Verdict.WAITS: "wait",
    Verdict.NO_NODE_FITS: "fit no node",
    Verdict.NEVER_FITS: "never fit",
    Verdict.REFUSED: "refused",
}
_HEAD: Final = ("NAMESPACE", "OBJECT", "PODS", "SURGE", "VERDICT", "QUOTA", "MISSING", "PLACE")


@dataclass(frozen=True, slots=True)
class Output:
    """A format, and the file that it goes to."""

    format: str
    file: str = ""
    """Empty is standard output."""

    @classmethod
    def parse(cls, text: str) -> Output:
        """Read `FORMAT` or `FORMAT=FILE`."""
        name, _, file = text.partition("=")
        return cls(name, file)


def write_report(report: Report, outputs: Iterable[Output]) -> None:
    """Write a report in every format that is asked for."""
    for one in outputs:
        text = _WRITERS[one.format](report)
        if one.file:
            Path(one.file).write_text(f"{click.unstyle(text)}\n", encoding="utf-8")
        elif text:
            click.echo(text)


def _text(report: Report) -> str:
    lines = [line for one in report.findings for line in _finding_lines(one)]
    return "\n".join((*lines, *note_lines(report.notes), summary(report)))


def _finding_lines(found: CheckFinding) -> Iterator[str]:
    finding = found.finding
    is_warning = finding.severity is Severity.INFO
    label = "warning" if is_warning else found.verdict.value
    if finding.subject is None:
        label = "error"
    color = _COLORS.get(finding.severity)
    about = "" if finding.subject is None else f"{finding.subject}: "
    field = f"{found.location.field}: " if finding.subject is None and found.location.field else ""
    place = printable(str(found.location))
    words = printable(f"{about}{field}{finding.message}")
    yield f"{place}: {click.style(label, fg=color, bold=True)}: {words} [{finding.id}]"
    if found.shortages:
        missing = render(_missing(found.shortages))
        yield f"    missing: {printable(missing)}"
    if finding.remedy:
        yield f"    fix: {printable(finding.remedy)}"


def summary(report: Report) -> str:
    """Return how many objects there are of each verdict, in a sentence."""
    counts = [
        f"{number} {_WORDS[verdict]}" for verdict, number in report.counts().items() if number
    ]
    unread = len(report.problems)
    counts += [f"{unread} not readable"] if unread else []
    total = len(report.objects)
    return f"{total} object{'' if total == 1 else 's'}: {', '.join(counts) or 'none'}"


def _table(report: Report) -> str:
    lines = [table_text(_HEAD, [_row(one) for one in report.objects], right=(2, 3))]
    lines += [line for one in report.problems for line in _finding_lines(one.finding)]
    return "\n".join((*lines, *note_lines(report.notes), summary(report)))


def _row(one: CheckedObject) -> tuple[str, ...]:
    worst = [found for found in one.findings if found.verdict is one.verdict]
    short = next((found for found in worst if found.shortages), None)
    missing = "" if short is None else render(_missing(short.shortages))
    quota = worst[0].quota if short is None and worst else "" if short is None else short.quota
    name = f"{one.kind}/{one.name}"
    pods = str(one.pods) if one.pods else ""
    surge = str(one.surge) if one.surge else ""
    place = worst[0].location if worst else one.location
    return one.namespace, name, pods, surge, one.verdict.value, quota, missing, str(place)


def _missing(shortages: Sequence[Shortage]) -> ResourceList:
    return {one.resource: one.missing for one in shortages}


def _json(report: Report) -> str:
    return msgspec.json.format(encode_json(report_entry(report)), indent=2).decode()


def report_entry(report: Report) -> dict[str, object]:
    """Return a report as plain values, as the schema has them."""
    return {
        "schemaVersion": SCHEMA_VERSION,
        "summary": {
            "objects": len(report.objects),
            "unreadable": len(report.problems),
            **{verdict.value: number for verdict, number in report.counts().items()},
        },
        "objects": [_object_entry(one) for one in report.objects],
        "problems": [{**_place_entry(one.location), "text": one.text} for one in report.problems],
        "notes": list(report.notes),
    }


def _object_entry(one: CheckedObject) -> dict[str, object]:
    return {
        "kind": one.kind,
        "namespace": one.namespace,
        "name": one.name,
        "verdict": one.verdict.value,
        "pods": one.pods,
        "surge": one.surge,
        **_place_entry(one.location),
        "findings": [finding_entry(found) for found in one.findings],
    }


def _place_entry(place: Location) -> dict[str, object]:
    return {"file": place.file, "line": place.line, "column": place.column, "field": place.field}


def finding_entry(found: CheckFinding) -> dict[str, object]:
    """Return a finding as plain values."""
    entry: dict[str, object] = {
        "rule": found.finding.id,
        "verdict": found.verdict.value,
        "level": found.finding.severity.value,
        "text": found.finding.message,
        **_place_entry(found.location),
    }
    if found.quota:
        entry["quota"] = found.quota
    if found.shortages:
        entry["resources"] = shortage_entries(found.shortages)
    if found.finding.remedy:
        entry["fix"] = found.finding.remedy
    return entry


def _sarif(report: Report) -> str:
    return msgspec.json.format(encode_json(sarif_log(report)), indent=2).decode()


_WRITERS: Final[Mapping[str, Callable[[Report], str]]] = {
    "text": _text,
    "table": _table,
    "json": _json,
    "sarif": _sarif,
    "junit": junit_text,
    "github": github_text,
    "tap": tap_text,
}
