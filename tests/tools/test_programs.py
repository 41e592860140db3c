"""Where programs that tests run are kept, and what building them says when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.binaries import BinariesError
from tests.tools.programs import PROGRAMS, built_program, module_of


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_kept_by_what_decides_how_it_is_built(name: str, tmp_path: Path) -> None:
    place = built_program(name, {"XDG_CACHE_HOME": str(tmp_path)})
    assert place == tmp_path / "deferred-quota/tools" / module_of(name).digest / name


def test_another_version_is_kept_elsewhere(tmp_path: Path) -> None:
    for version in ("v4.3.1", "v4.3.2"):
        directory = tmp_path / version
        directory.mkdir()
        (directory / "go.sum").write_text("")
        (directory / "go.mod").write_text(f"go 1.26.0\nrequire helm.sh/helm/v4 {version}\n")
    first, second = (module_of("helm", tmp_path / each) for each in ("v4.3.1", "v4.3.2"))
    assert (first.version, first.go, second.version) == ("v4.3.1", (1, 26, 0), "v4.3.2")
    assert first.digest != second.digest


def test_a_module_without_the_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("go 1.26.0\n")
    with pytest.raises(BinariesError, match=r"go\.mod: no version of Go or of helm\.sh/helm/v4"):
        module_of("helm", tmp_path)
