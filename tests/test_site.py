"""The documentation as a site: every page is in its navigation, and broken links are noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parent.parent
CHECK: Final = ROOT / "scripts" / "site_check.py"


def pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            ((_, target),) = entry.items()
            yield from pages([target] if isinstance(target, str) else target)


def checked(site: Path) -> tuple[int, list[str]]:
    ran = subprocess.run([sys.executable, CHECK, site], capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout.splitlines()


def test_every_page_is_in_the_navigation() -> None:
    with (ROOT / "zensical.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    parts = ("manifests", "charts", "certs", "docs")
    written = [
        *ROOT.glob("*.md"),
        *(each for part in parts for each in (ROOT / part).rglob("*.md")),
    ]
    named = list(pages(project["nav"]))
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in written)
    assert project["theme"]["font"] is False


def test_a_site_of_which_every_link_leads_somewhere(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "style.css").touch()
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="style.css"><link rel="canonical" href="https://example.com/">'
        '<a href="docs/a.html#b-c">b</a><a href="https://example.com">elsewhere</a>'
        '<a href="docs/">d</a>'
    )
    (tmp_path / "docs/index.html").write_text('<h1 id="top">d</h1><a href="#top">up</a>')
    (tmp_path / "docs/a.html").write_text('<h2 id="b-c">b c</h2><a href="../index.html">up</a>')
    assert checked(tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="b.html">b</a>', "b.html: leads nowhere"),
        ('<a href="#c">c</a>', "#c: has no such section"),
        ('<a href="../secret">up</a>', "../secret: leads nowhere"),
        ('<img src="b.png">', "b.png: leads nowhere"),
        ('<script src="https://cdn.example/x.js"></script>', "loads https://cdn.example/x.js"),
        ('<link rel="preconnect" href="//fonts.example">', "loads //fonts.example"),
    ],
)
def test_what_is_wrong_is_named_with_its_page(tmp_path: Path, html: str, problem: str) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "secret").touch()
    (site / "index.html").write_text(html)
    assert checked(site) == (1, [f"index.html: {problem}"])


def test_the_generator_is_locked_with_its_hashes() -> None:
    wanted = (ROOT / "requirements/site.in").read_text().strip()
    lock = (ROOT / "requirements/site.txt").read_text()
    assert f"{wanted} \\\n    --hash=sha256:" in lock
    assert lock.count("==") <= lock.count(" \\\n    --hash=sha256:")
    assert os.access(ROOT / "scripts/site", os.X_OK)
