"""Reports of pytest, as a table: a row for each file of tests, a column for each version."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test.

    Attributes:
        file: Its file below `tests/e2e/cluster`, without `test_`.
        name: The test.
        word: `passed`, `failed` or `skipped`.
        reason: Why it was skipped.
    """

    file: str
    name: str
    word: str
    reason: str = ""


def read_report(path: Path) -> list[Outcome]:
    """Read a report in JUnit's format."""
    return [_outcome(case) for case in ET.parse(path).getroot().iter("testcase")]  # noqa: S314


def _outcome(case: ET.Element) -> Outcome:
    # a test that could not even be collected has no class
    place = case.get("classname") or case.get("name") or ""
    file = place.removeprefix("tests.e2e.cluster.").replace(".", "/").replace("/test_", "/")
    name = case.get("name", "")
    if case.find("failure") is not None or case.find("error") is not None:
        return Outcome(file, name, "failed")
    skipped = case.find("skipped")
    if skipped is not None:
        return Outcome(file, name, "skipped", skipped.get("message", ""))
    return Outcome(file, name, "passed")


def as_markdown(found: Mapping[str, Sequence[Outcome]]) -> str:
    """Return the table, and below it what failed and why tests were skipped.

    Args:
        found: By the version of Kubernetes.
    """
    files = sorted({each.file for outcomes in found.values() for each in outcomes})
    lines = [
        " | ".join(["| tests", *found]) + " |",
        "| --- " * (len(found) + 1) + "|",
        *(
            " | ".join([f"| {file}", *(_cell(file, each) for each in found.values())]) + " |"
            for file in files
        ),
    ]
    notes = [*_failures(found), *_reasons(found)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _cell(file: str, outcomes: Sequence[Outcome]) -> str:
    counted = Counter(each.word for each in outcomes if each.file == file)
    words = [f"{counted[word]} {word}" for word in ("passed", "failed", "skipped") if counted[word]]
    return ", ".join(words) or "-"


def _failures(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    return [
        f"- failed on {version}: {each.file}, {each.name}"
        for version, outcomes in found.items()
        for each in outcomes
        if each.word == "failed"
    ]


def _reasons(found: Mapping[str, Sequence[Outcome]]) -> list[str]:
    counted = Counter(
        each.reason for outcomes in found.values() for each in outcomes if each.word == "skipped"
    )
    return [f"- {count} skipped: {reason}" for reason, count in sorted(counted.items())]
