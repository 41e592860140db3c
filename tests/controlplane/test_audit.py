"""The audit log of service accounts."""

from __future__ import annotations

import json
from pathlib import Path

from tests.controlplane.audit import VARIABLE, audit_flags


def test_without_a_directory_nothing_is_logged(tmp_path: Path) -> None:
    assert audit_flags(tmp_path, 1, {}) == []
    assert list(tmp_path.iterdir()) == []


def test_each_api_server_has_a_log_of_its_own(tmp_path: Path) -> None:
    environment = {VARIABLE: str(tmp_path / "logs")}
    one, other = (audit_flags(tmp_path, port, environment) for port in (1, 2))
    assert (tmp_path / "logs").is_dir()
    assert one[0] == other[0]
    assert one[1] != other[1]
    policy = json.loads(Path(one[0].partition("=")[2]).read_text())
    assert [rule["level"] for rule in policy["rules"]] == ["None", "Metadata", "None"]
