"""Documents that are written from the code, or name its files; docstrings that name code."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from webhook.cli.app import COMMANDS
from webhook.quota.queue.queued_pods import PendingReason
from webhook.telemetry.metrics import Metrics

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "manifests" / "README.md",
    ROOT / "charts" / "deferred-quota" / "README.md",
    ROOT / "certs" / "README.md",
]


def test_the_page_of_the_configuration_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from configuration_page import PAGE, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"


@pytest.mark.parametrize(
    "field",
    ["limits.bodyBytes", "limits.threads", "page", "timeouts.expireReservationSeconds"],
)
def test_what_is_read_once_is_noted_on_the_page_of_the_configuration(field: str) -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    section = re.search(rf"^##+ `{re.escape(field)}`.*?(?=^##)", page, re.DOTALL | re.MULTILINE)
    assert section is not None
    assert "A change takes a restart." in " ".join(section[0].split())


def test_the_page_of_the_logs_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from log_page import FIELDS, PAGE, lines, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"
    assert len(lines()) > 80
    assert {field for line in lines() for field in line.fields} == FIELDS.keys()


def test_the_alerts_of_the_operator_are_those_of_the_plain_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from monitoring_rules import RULE, prometheus_rule  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert RULE.read_text() == prometheus_rule(), "run scripts/docs"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    text = (ROOT / "manifests/components/monitoring/rules.yaml").read_text()
    alerts = re.findall(r"alert: (\w+)", text)
    page = "docs/operations/runbooks.md"
    assert re.findall(r"runbook_url: (\S+)", text) == [f"{page}#{one.lower()}" for one in alerts]
    assert re.findall(r"(?m)^## (\w+)$", (ROOT / page).read_text()) == alerts


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


def test_the_page_of_the_commands_is_their_help() -> None:
    """In a process of its own: a command keeps the help option of the first context it is in."""
    program = "import command_page as it; print(it.page() == it.PAGE.read_text(), end=it.page())"
    path = os.pathsep.join([str(ROOT), str(ROOT / "scripts")])
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert ran.stdout.startswith("True"), "run scripts/docs"
    assert set(COMMANDS) <= {line.split()[2] for line in titles(ran.stdout) if " " in line[3:]}


def test_the_page_of_the_kinds_is_that_of_their_definitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from kinds_page import PAGE, definitions, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"
    kinds = [each["spec"]["names"]["kind"] for each in definitions()]
    assert len(kinds) == 5
    assert titles(page()) == [f"## {kind}" for kind in kinds]


def test_the_page_of_the_findings_is_that_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "scripts")])
    from findings_page import PAGE, page  # type: ignore[import-not-found, unused-ignore] # noqa: PLC0415

    assert PAGE.read_text() == page(), "run scripts/docs"


def test_every_id_of_a_finding_is_on_the_page_once_and_has_one_meaning() -> None:
    page = (ROOT / "docs/findings.md").read_text()
    ids = re.findall(r"(?m)^### `(.+)`$", page)
    assert len(ids) > 120
    assert len({each.replace(".", "") for each in ids}) == len(ids), "two have the same anchor"
    for section in re.split(r"(?m)^## ", page):
        lines = re.findall(r"(?m)^- .*", section)
        assert sorted(set(lines)) == sorted(lines), "two ids of a check say the same"
    groups = "|".join(sorted({each.partition(".")[0] for each in ids}))
    written = rf"(?:{groups})\.(?!yaml|md)[a-z]+(?:-[a-z]+)*"
    for path in (ROOT / "webhook/operations").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and re.fullmatch(written, str(node.value)):
                assert node.value in ids, path
    settings = (ROOT / "docs/configuration.md").read_text()
    for document in DOCUMENTS:
        for name in re.findall(rf"[`\[]({written})[`\]]", document.read_text()):
            assert name in ids or f"`{name}`" in settings, document


def test_every_outage_is_a_test_and_every_alert_of_it_fires_there() -> None:
    cluster = ROOT / "tests/e2e/cluster"
    known = re.findall(
        r"alert: (\w+)", (ROOT / "manifests/components/monitoring/rules.yaml").read_text()
    )
    page = (ROOT / "docs/operations/outages.md").read_text()
    rows = [line for line in page.splitlines() if line.endswith("` |")]
    named = [re.findall(r"`(\S+)::(test_\w+)`", row)[0] for row in rows]
    for row, (file, test) in zip(rows, named, strict=True):
        (body,) = re.findall(
            rf"(?s)^def {test}\(.*?(?=^def |\Z)", (cluster / file).read_text(), re.MULTILINE
        )
        alerts = set(re.findall(r"`(DeferredQuota\w+)`", row))
        assert alerts <= set(known)
        assert alerts == set(re.findall(r'"(DeferredQuota\w+)"', body)), test
    written = {
        (f"outages/{path.name}", test)
        for path in (cluster / "outages").glob("test_*.py")
        if path.name != "test_under_load.py"  # where several tests are about one row
        for test in re.findall(r"(?m)^def (test_\w+)", path.read_text())
    }
    assert written <= set(named)


def test_every_case_of_certificates_is_numbered_and_a_test() -> None:
    page = (ROOT / "docs/certificates.md").read_text()
    _, _, section = page.partition("## What can go wrong")
    rows = re.findall(r"(?m)^\| (\d+) \| .* \| ([^|]+) \|$", section.partition("\n## ")[0])
    assert [int(number) for number, _ in rows] == list(range(1, 19))
    for number, tests in rows:
        named = re.findall(r"`(\S+)::(test_\w+)`", tests)
        assert named, number
        for file, test in named:
            assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), (number, test)


def test_every_reason_why_a_pod_is_queued_has_a_row() -> None:
    rows = re.findall(r"(?m)^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "docs/queueing.md").read_text())
    assert {f"`{reason}`" for reason in PendingReason} <= set(", ".join(rows).split(", "))


def test_docstrings_name_code_that_exists() -> None:
    sources = {path: ast.parse(path.read_text()) for path in (ROOT / "webhook").rglob("*.py")}
    modules = {name for path in sources for name in (path.stem, path.parent.name)}
    names, quoted = set(modules), list[tuple[Path, str]]()
    for path, tree in sources.items():
        docstrings = {
            id(node.value): str(node.value.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            for attribute in ("id", "attr", "arg", "name", "value"):
                name = getattr(node, attribute, None)
                if isinstance(name, str) and id(node) not in docstrings:
                    names.update(re.findall(r"\w+", name))
        for text in docstrings.values():
            found = re.findall(r"`(?:([a-z_]+)\.)?([a-z]+(?:_[a-z]+)+)`", text)
            quoted += [(path, name) for _, name in found]
            quoted += [(path, f"{module}.") for module, _ in found if module not in {"", *modules}]
            heads = re.findall(r"(?m)^- ((?:`[a-z_]+`(?:, | and )?)+):", text)
            if path.name == "__init__.py":
                quoted += [(path, name) for head in heads for name in re.findall(r"\w{4,}", head)]
    assert [f"{path}: {name}" for path, name in quoted if name not in names] == []


def titles(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("##")]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
