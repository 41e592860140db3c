"""Documents that are written from the code, or name its files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "manifests" / "README.md",
    ROOT / "charts" / "deferred-quota" / "README.md",
    ROOT / "certs" / "README.md",
]


def test_the_page_of_the_configuration_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from configuration_page import PAGE, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"


def test_the_page_of_the_metrics_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from metrics_page import PAGE, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"
    names = {line.split("`")[1] for line in page().splitlines() if line.startswith("| `")}
    shown = {
        f"{one.name}_total" if one.type == "counter" else one.name
        for one in Metrics().registry.collect()
        if not one.name.startswith("process_")
    }
    assert names == shown


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
