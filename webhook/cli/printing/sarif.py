"""Findings as a log of SARIF 2.1.0, for services that show the results of analyses.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final
from urllib.parse import quote

from webhook import __version__
from webhook.cli.exit_codes import printable
from webhook.operations.check.values import CheckFinding, Report
from webhook.operations.findings import Severity
from webhook.quota.checking.values import RULES, Rule

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS: Final = {Severity.ERROR: "error", Severity.WARN: "warning", Severity.INFO: "note"}
_RULES: Final = list(Rule)


def sarif_log(report: Report) -> dict[str, object]:
    """Return a log with one run; findings are its results, notes its notifications."""
    driver = {
        "name": "deferred-quota",
        "version": __version__,
        "rules": [{"id": rule, "shortDescription": {"text": RULES[rule]}} for rule in _RULES],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification(note) for note in report.notes],
            }
        ],
        "results": [_result(found) for found in report.findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _notification(note: str) -> dict[str, object]:
    return {"level": "note", "message": {"text": printable(note)}}


def _result(found: CheckFinding) -> dict[str, object]:
    finding, place = found.finding, found.location
    about = "" if finding.subject is None else str(finding.subject)
    parts = [f"{about}: {finding.message}" if about else finding.message]
    parts += [f"Fix: {finding.remedy}"] if finding.remedy else []
    location: dict[str, object] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote("stdin" if place.file == "-" else place.file)},
            "region": {"startLine": place.line, "startColumn": place.column},
        }
    }
    if about:
        location["logicalLocations"] = [{"fullyQualifiedName": printable(about)}]
    properties = {"verdict": found.verdict.value, "field": place.field, "quota": found.quota}
    return {
        "ruleId": finding.id,
        "ruleIndex": _RULES.index(found.rule),
        "level": _LEVELS[finding.severity],
        "message": {"text": "\n".join(map(printable, parts))},
        "locations": [location],
        "partialFingerprints": {"finding/v1": _fingerprint(found, about)},
        "properties": {
            **{name: value for name, value in properties.items() if value},
            "resources": [
                {
                    "resource": one.resource,
                    "requested": str(one.requested),
                    "used": str(one.used),
                    "hard": str(one.hard),
                    "missing": str(one.missing),
                }
                for one in found.shortages
            ],
        },
    }


def _fingerprint(found: CheckFinding, about: str) -> str:
    """Return what makes a finding the same one in another run: not its line, not its numbers."""
    parts = (found.finding.id, found.location.file, found.location.field, about, found.quota)
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
