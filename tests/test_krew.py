"""The plugin for krew: `scripts/krew`, and the program that it packs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

ROOT: Final = Path(__file__).parent.parent
FILES: Final = "https://example.com/releases/v1.2.3"
PROGRAM: Final = "kubectl-deferred_quota"
ARCHIVE: Final = f"{PROGRAM}-1.2.3.tar.gz"
PYTHON: Final = """\
#!/bin/sh
echo "$(basename "$0")" "$@" >> "$CALLS"
case "$1 ${2-}" in
  "-c "*) exit "${OLD:-0}" ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$SAYS" "$3/bin/deferred-quota" ;;
  "-m pip") exit "${BROKEN:-0}" ;;
esac
"""
"""A Python that makes environments, installs nothing, and notes what it was called with."""


def written(directory: Path, *, version: str = "1.2.3", code: int = 0) -> dict[str, Any]:
    wheel = directory / f"deferred_quota-{version}-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    command = [sys.executable, "scripts/krew_plugin.py", str(wheel), "https://example.com", FILES]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    manifest = directory / "deferred-quota.yaml"
    return yaml.safe_load(manifest.read_text()) if code == 0 else {"error": ran.stderr}


def test_the_manifest_names_the_archive_by_its_hash(tmp_path: Path) -> None:
    """What is asked of one: krew, internal/index/validation, ValidatePlugin."""
    manifest = written(tmp_path)
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]) == ("Plugin", {"name": "deferred-quota"})
    spec = manifest["spec"]
    assert spec["version"] == "v1.2.3"
    assert "\n" not in spec["shortDescription"] != ""
    assert "Python 3.11" in spec["caveats"]
    (platform,) = spec["platforms"]
    assert platform["selector"] == {"matchLabels": {"os": "linux"}}
    assert platform["uri"] == f"{FILES}/{ARCHIVE}"
    archive = (tmp_path / ARCHIVE).read_bytes()
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()
    with tarfile.open(tmp_path / ARCHIVE) as packed:
        modes = {each.name: each.mode for each in packed.getmembers()}
    wheel = "deferred_quota-1.2.3-py3-none-any.whl"
    assert modes == {PROGRAM: 0o755, "LICENSE": 0o644, "requirements.txt": 0o644, wheel: 0o644}
    assert platform["bin"] == PROGRAM


def test_the_same_wheel_gives_the_same_bytes(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
        written(place)
    first, second = ((place / ARCHIVE).read_bytes() for place in places)
    assert first == second


def test_a_version_that_krew_does_not_take_is_refused(tmp_path: Path) -> None:
    assert written(tmp_path, version="1.2.3rc1", code=1) == {
        "error": "krew: 1.2.3rc1: krew takes versions X.Y.Z\n"
    }


class Plugin:
    """The plugin as krew unpacks and links it, on a machine with a Python that only takes notes."""

    def __init__(self, directory: Path) -> None:
        written(directory)
        self.store = directory / "store"
        with tarfile.open(directory / ARCHIVE) as packed:
            packed.extractall(self.store, filter="data")
        self.link = directory / "bin" / PROGRAM
        self.link.parent.mkdir()
        self.link.symlink_to(self.store / PROGRAM)
        self._calls = directory / "calls"
        self._says = directory / "says"
        self._says.write_text('#!/bin/sh\necho "$@"\nexit 3\n')
        python = directory / "path/python3"
        python.parent.mkdir()
        python.write_text(PYTHON)
        for program in (python, self._says):
            program.chmod(0o755)
        self._path = f"{python.parent}:{os.environ['PATH']}"

    def call(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        own: Mapping[str, str] = {"CALLS": str(self._calls), "SAYS": str(self._says)}
        return subprocess.run(
            [self.link, *arguments],
            env={"PATH": self._path, **own, **settings},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def test_the_first_call_installs_by_hash_and_each_call_is_handed_on(plugin: Plugin) -> None:
    first = plugin.call("top", "-n", "team a")
    assert (first.stdout, first.returncode) == ("top -n team a\n", 3)
    assert "installing its packages" in first.stderr
    _, venv, locked, own = plugin.calls
    assert venv.startswith(f"python3 -m venv {plugin.store}/part-")
    assert locked.endswith(f" --require-hashes -r {plugin.store}/requirements.txt")
    assert own.endswith(
        f" --no-deps --no-index {plugin.store}/deferred_quota-1.2.3-py3-none-any.whl"
    )
    second = plugin.call("doctor")
    assert (second.stdout, second.stderr, second.returncode) == ("doctor\n", "", 3)
    assert len(plugin.calls) == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"OLD": "1"}, "Python 3.11 or newer is needed; set PYTHON to one (not python3)"),
        ({"PYTHON": "no-such-python"}, "set PYTHON to one (not no-such-python)"),
        ({"BROKEN": "1"}, "its packages cannot be installed"),
    ],
)
def test_what_could_not_be_installed_is_installed_by_the_next_call(
    plugin: Plugin, settings: dict[str, str], message: str
) -> None:
    before = sorted(plugin.store.iterdir())
    failed = plugin.call("top", **settings)
    assert (failed.stdout, failed.returncode) == ("", 5)
    assert message in failed.stderr
    assert sorted(plugin.store.iterdir()) == before
    assert plugin.call("top").returncode == 3
