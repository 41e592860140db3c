"""Versions out of git."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.skew.checkout import CheckoutError, cache, provide


@pytest.mark.parametrize("ref", ["no-such-ref", "--all", ""])
def test_a_version_that_git_does_not_have_is_refused(ref: str) -> None:
    said: list[str] = []
    with pytest.raises(CheckoutError, match="rev-parse"):
        provide(ref, said.append)
    assert said == []


def test_versions_are_kept_in_the_cache_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache() == tmp_path / "deferred-quota" / "skew"
