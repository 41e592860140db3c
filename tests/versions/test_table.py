"""The table of several versions."""

from __future__ import annotations

from pathlib import Path

from tests.versions.run import CLUSTER, STORIES
from tests.versions.table import Outcome, as_markdown, read_report

REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.cluster.admission.test_binds" name="test_fits"/>
<testcase classname="tests.e2e.cluster.admission.test_binds" name="test_is_full">
<failure/></testcase>
<testcase classname="tests.e2e.cluster.namespaces.test_mask" name="test_hides"><error/></testcase>
<testcase classname="tests.e2e.cluster.admission.test_resizes" name="test_grows">
<skipped message="Kubernetes v1.30.14 does not have pods/resize"/></testcase>
</testsuite></testsuites>"""
NOT = "Kubernetes v1.30.14 does not have pods/resize"


def test_a_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert read_report(path) == [
        Outcome("admission/binds", "test_fits", "passed"),
        Outcome("admission/binds", "test_is_full", "failed"),
        Outcome("namespaces/mask", "test_hides", "failed"),
        Outcome("admission/resizes", "test_grows", "skipped", NOT),
    ]


def test_versions_stand_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    newest = [
        Outcome("admission/binds", "test_fits", "passed"),
        Outcome("admission/resizes", "test_grows", "passed"),
    ]
    assert as_markdown({"v1.30.14": read_report(path), "v1.36.3": newest}) == (
        "| tests | v1.30.14 | v1.36.3 |\n"
        "| --- | --- | --- |\n"
        "| admission/binds | 1 passed, 1 failed | 1 passed |\n"
        "| admission/resizes | 1 skipped | 1 passed |\n"
        "| namespaces/mask | 1 failed | - |\n"
        "\n"
        "- failed on v1.30.14: admission/binds, test_is_full\n"
        "- failed on v1.30.14: namespaces/mask, test_hides\n"
        f"- 1 skipped: {NOT}"
    )


def test_every_story_is_there() -> None:
    assert [story for story in STORIES if not (CLUSTER / story).is_file()] == []
