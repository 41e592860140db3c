"""Differences between what is granted and what an audit log shows are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.install import audited_rights
from tests.install.audited_rights import Right, differences, granted_rights, used_rights

CONTROLLER: Final = "deferred-quota-controller"


def line(right: Right, **changed: Any) -> str:
    resource, _, subresource = right.resource.partition("/")
    place = {"resource": resource, "name": right.name, "apiGroup": right.group}
    event = {
        "verb": right.verb,
        "user": {"username": f"system:serviceaccount:quota-home:{right.account}"},
        "userAgent": "deferred-quota/0.1.0",
        "objectRef": {**place, **({"subresource": subresource} if subresource else {})},
        **changed,
    }
    return json.dumps(event)


def logged(directory: Path, *lines: str) -> frozenset[Right]:
    log = directory / "1.log"
    log.write_text("\n".join((*lines, "")))
    return used_rights([log])


def test_a_run_that_uses_every_right_leaves_nothing_to_name(tmp_path: Path) -> None:
    granted = granted_rights()
    assert len({one.account for one in granted}) == 2
    assert differences(granted, logged(tmp_path, *map(line, granted))) == []


@pytest.mark.parametrize(
    "right",
    [
        Right(CONTROLLER, "", "pods/eviction", "create"),
        Right(CONTROLLER, "policy", "poddisruptionbudgets", "list"),
        Right(CONTROLLER, "", "secrets", "update", "deferred-quota-ca"),
        Right("deferred-quota-webhook", "", "nodes", "watch"),
    ],
    ids=str,
)
def test_a_right_that_nothing_used_is_named(tmp_path: Path, right: Right) -> None:
    granted = granted_rights()
    used = logged(tmp_path, *map(line, granted - {right}))
    assert differences(granted, used) == [f"granted and never used: {right}"]


@pytest.mark.parametrize(
    "right",
    [
        Right(CONTROLLER, "", "pods", "delete", "web"),
        Right(CONTROLLER, "", "secrets", "get", "another"),
        Right("deferred-quota-webhook", "", "pods", "patch", "web"),
    ],
    ids=str,
)
def test_what_was_asked_for_without_a_right_is_named(tmp_path: Path, right: Right) -> None:
    granted = granted_rights()
    used = logged(tmp_path, *map(line, granted), line(right))
    assert differences(granted, used) == [f"used and not granted: {right.of_any}"]


def test_half_a_line_of_a_server_that_was_killed_is_left_out(tmp_path: Path) -> None:
    right = Right(CONTROLLER, "", "pods", "list")
    assert logged(tmp_path, line(right)[:-40], line(right)) == {right}


def test_what_others_ask_for_is_not_ours(tmp_path: Path) -> None:
    right = Right(CONTROLLER, "", "pods", "delete", "web")
    assert (
        logged(
            tmp_path,
            line(right, userAgent="Python-urllib"),
            line(
                right, user={"username": "system:serviceaccount:kube-system:deployment-controller"}
            ),
            line(right, user={"username": "admin"}),
            line(right, objectRef=None),
        )
        == frozenset()
    )


def test_the_command_fails_where_there_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["audited_rights", str(tmp_path)])
    assert audited_rights.main() == 2
    assert capsys.readouterr().out.startswith(f"{tmp_path}: no call of a service account")
    logged(tmp_path, line(Right(CONTROLLER, "", "pods", "list")))
    assert audited_rights.main() == 1
    assert (
        "granted and never used: deferred-quota-controller: get pods\n" in capsys.readouterr().out
    )
    logged(tmp_path, *map(line, granted_rights()))
    assert audited_rights.main() == 0
