"""`deferred-quota serve`: what it refuses before it serves."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from webhook.cli import ExitCode, cli
from webhook.tls.issue import issue_ca

NAME = "--client-name=kube-apiserver"


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "client-ca.crt"
    path.write_bytes(issue_ca(now=datetime.now(UTC)).certificate)
    return path


def refused(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["serve", "--certs", "nowhere", *arguments])
    assert result.exit_code == ExitCode.BAD_INPUT
    return result


def test_a_ca_of_clients_needs_their_names(authority: Path) -> None:
    result = refused("--client-ca", str(authority))
    assert "--client-ca needs --client-name: else every client with a certificate of that CA" in (
        result.stderr
    )


@pytest.mark.parametrize("name", ["kube-apiserver", ""])
def test_names_of_clients_need_their_ca(name: str) -> None:
    assert "--client-name needs --client-ca" in refused("--client-name", name).stderr


def test_a_name_is_not_empty(authority: Path) -> None:
    assert (
        "--client-name: must not be empty"
        in refused("--client-ca", str(authority), NAME, "--client-name=").stderr
    )


def test_each_file_that_cannot_be_used_is_named(authority: Path, tmp_path: Path) -> None:
    several, empty, missing = (tmp_path / name for name in ("several", "empty", "missing"))
    several.write_bytes(authority.read_bytes() + issue_ca(now=datetime.now(UTC)).certificate)
    empty.write_bytes(b"")
    options = [f"--client-ca={path}" for path in (authority, several, empty, missing)]
    lines = refused(*options, NAME).stderr
    assert f"{several}:" not in lines
    assert f"--client-ca: {empty}: holds no PEM certificate that can be read" in lines
    assert f"--client-ca: {missing}: No such file or directory" in lines
    assert f"{authority}:" not in lines


def test_a_cluster_in_memory_has_no_certificate_to_show(authority: Path) -> None:
    result = refused("--embedded-api", "127.0.0.1:0", "--client-ca", str(authority), NAME)
    assert "calls the webhook without a client certificate" in result.stderr
