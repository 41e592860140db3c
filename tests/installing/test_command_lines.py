"""scripts/install and scripts/uninstall say what is wrong before anything is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.controlplane.ports import free_ports

SCRIPT: Final = Path(__file__).parents[2] / "scripts" / "installation.py"


def run(*arguments: str | Path, code: int) -> str:
    """Run a command without any cluster; return what it said on standard error."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"HOME": "/nowhere", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


USAGE = {
    "an address without TLS": (["install", "--url", "http://here"], "is not https://HOST:PORT"),
    "a CA for nothing": (["install", "--ca", "ca.crt"], "--ca goes with --url"),
    "a CA that is missing": (
        ["install", "--url", "https://here", "--ca", "/nowhere/ca.crt"],
        "/nowhere/ca.crt: No such file or directory",
    ),
    "a CA that is none": (
        ["install", "--url", "https://here", "--ca", __file__],
        "has no certificate in PEM form",
    ),
    "a configuration that is missing": (
        ["install", "--config", "/nowhere/config.yaml"],
        "/nowhere/config.yaml: No such file or directory",
    ),
    "no cluster": (["install"], "there is no kubeconfig"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE.keys())
def test_wrong_usage_is_told(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, code=2)


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_the_scripts_are_called_by_their_files(command: str) -> None:
    told = run(command, "--surprise", code=2)
    assert told.startswith(f"Usage: scripts/{command} [OPTIONS]\n")
    assert f"Try 'scripts/{command} --help' for help." in told


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path, command: str) -> None:
    (port,) = free_ports(1)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
current-context: c
"""
    )
    assert "the cluster does not answer" in run(command, "--kubeconfig", kubeconfig, code=4)
