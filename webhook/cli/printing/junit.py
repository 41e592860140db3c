"""A report as JUnit XML, which servers for continuous integration read: one case per object.

Source: the schema of the Jenkins plug-in xUnit, junit-10.xsd.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from xml.etree import ElementTree as ET

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import note_lines
from webhook.operations.check.values import CheckedObject, CheckFinding, Problem, Report
from webhook.operations.findings import Severity

_SUITE: Final = "deferred-quota check"


def junit_text(report: Report) -> str:
    """Return a report as an XML document.

    Warnings are the output of their case, notes that of the suite.
    """
    failures = sum(any(map(_fails, one.findings)) for one in report.objects)
    total = len(report.objects) + len(report.problems)
    counts = {
        "name": _SUITE,
        "tests": str(total),
        "failures": str(failures),
        "errors": str(len(report.problems)),
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {**counts, "skipped": "0"})
    for problem in report.problems:
        _add_problem(suite, problem)
    for one in report.objects:
        _add_object(suite, one)
    if report.notes:
        output = ET.SubElement(suite, "system-out")
        output.text = "\n".join(note_lines(report.notes))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _add_problem(suite: ET.Element, problem: Problem) -> None:
    place = problem.location
    case = _case(suite, str(place), place.file)
    error = ET.SubElement(
        case, "error", {"type": problem.finding.rule.value, "message": printable(problem.text)}
    )
    error.text = printable(f"{place}: {place.field}: {problem.text}")


def _add_object(suite: ET.Element, one: CheckedObject) -> None:
    case = _case(suite, one.label, one.location.file)
    for found in filter(_fails, one.findings):
        failure = ET.SubElement(
            case,
            "failure",
            {"type": found.rule.value, "message": printable(found.finding.message)},
        )
        failure.text = "\n".join(map(printable, _lines(found)))
    warnings = [found for found in one.findings if not _fails(found)]
    if warnings:
        output = ET.SubElement(case, "system-out")
        output.text = "\n".join(printable(line) for found in warnings for line in _lines(found))


def _case(suite: ET.Element, name: str, file: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", {"name": printable(name), "classname": printable(file)})


def _fails(found: CheckFinding) -> bool:
    return found.finding.severity is not Severity.INFO


def _lines(found: CheckFinding) -> Iterable[str]:
    yield f"{found.location}: {found.verdict}: {found.finding.message}"
    if found.finding.remedy:
        yield f"fix: {found.finding.remedy}"
