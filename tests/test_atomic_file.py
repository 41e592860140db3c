"""Files are seen whole, or as they were."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from webhook.atomic_file import write_file


def test_files_are_written_whole_with_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "tls.key"
    path.write_bytes(b"old")
    before = path.stat().st_ino
    mask = os.umask(0o077)
    try:
        write_file(path, b"new", mode=0o644)
    finally:
        os.umask(mask)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.stat().st_ino != before  # replaced, never written in place
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "nothing" / "tls.key", b"x", mode=0o600)
