"""The command line, as far as nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.__main__ import main
from tests.controlplane.state import Left, State, write_state


def test_without_one_there_is_nothing_to_stop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["down", "--directory", str(tmp_path)]) == 0
    assert main(["status", "--directory", str(tmp_path)]) == 1
    assert f"none runs in {tmp_path}" in capsys.readouterr().out


def test_it_does_not_delete_what_is_not_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["up", "--directory", str(tmp_path)]) == 1
    assert "not a control plane's" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_status_shows_what_has_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = State("https://127.0.0.1:1", "/k", (Left("etcd", 1, 1),))
    write_state(tmp_path / "state.json", state)
    assert main(["status", "--directory", str(tmp_path)]) == 1
    assert "does not run" in capsys.readouterr().out


def test_down_takes_away_what_is_left_of_one_that_ended(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    directory.mkdir()
    write_state(directory / "state.json", State("u", "k", (Left("etcd", 1, 1),)))
    assert main(["down", "--directory", str(directory)]) == 0
    assert not directory.exists()


def test_programs_that_cannot_be_found_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert main(["build"]) == 1
    assert f"$KUBEBUILDER_ASSETS: {tmp_path} has no executable" in capsys.readouterr().err
