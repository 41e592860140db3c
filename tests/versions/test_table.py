"""The table of several versions."""

from __future__ import annotations

from pathlib import Path

from tests.versions.run import CLUSTER, STORIES
from tests.versions.table import Outcome, as_markdown, read_report

REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.cluster.test_binds" name="test_fits"/>
<testcase classname="tests.e2e.cluster.test_binds" name="test_is_full"><failure/></testcase>
<testcase classname="tests.e2e.cluster.test_mask" name="test_hides"><error/></testcase>
<testcase classname="tests.e2e.cluster.test_resizes" name="test_grows">
<skipped message="Kubernetes v1.30.14 does not have pods/resize"/></testcase>
</testsuite></testsuites>"""
NOT = "Kubernetes v1.30.14 does not have pods/resize"


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert read_report(path) == [
        Outcome("binds", "test_fits", "passed"),
        Outcome("binds", "test_is_full", "failed"),
        Outcome("mask", "test_hides", "failed"),
        Outcome("resizes", "test_grows", "skipped", NOT),
    ]


def test_versions_stand_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    newest = [Outcome("binds", "test_fits", "passed"), Outcome("resizes", "test_grows", "passed")]
    assert as_markdown({"v1.30.14": read_report(path), "v1.36.3": newest}) == (
        "| tests | v1.30.14 | v1.36.3 |\n"
        "| --- | --- | --- |\n"
        "| binds | 1 passed, 1 failed | 1 passed |\n"
        "| mask | 1 failed | - |\n"
        "| resizes | 1 skipped | 1 passed |\n"
        "\n"
        "- failed on v1.30.14: binds, test_is_full\n"
        "- failed on v1.30.14: mask, test_hides\n"
        f"- 1 skipped: {NOT}"
    )


def test_every_story_is_there() -> None:
    assert [name for name in STORIES if not (CLUSTER / f"test_{name}.py").is_file()] == []
