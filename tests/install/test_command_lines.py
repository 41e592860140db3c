"""scripts/install and scripts/uninstall say what is wrong before anything is done."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.cli.clusters import kubeconfig_of
from tests.controlplane.ports import free_ports
from tests.operations.scenes import a_cluster, a_namespace
from webhook.cli import ExitCode
from webhook.fakecluster.storage import FakeCluster

SCRIPT: Final = Path(__file__).parents[2] / "scripts" / "installation.py"


ENVIRONMENT: Final = {"HOME": "/nowhere", "PATH": "/usr/bin:/bin"}
MANIFEST: Final = SCRIPT.parents[1] / "manifests" / "base" / "cluster" / "namespace.yaml"
QUESTION: Final = "Take deferred-quota out of this cluster? [y/N]: "


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_the_short_option_shows_the_help(command: str) -> None:
    run(command, "-h", code=ExitCode.OK)


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_help_imports_nothing_that_only_the_body_needs(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", SCRIPT, command, "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=ENVIRONMENT,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in imported
    heavy = {"cryptography", "yaml", "webhook.install", "webhook.kube", "webhook.operations"}
    assert not imported & heavy


def run(*arguments: str | Path, code: int, given: str = "") -> str:
    """Run a command; return what it said on standard error."""
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=ENVIRONMENT,
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
    "a CA of clients without names": (
        ["install", "--client-ca", "/nowhere/ca.crt"],
        "--client-ca and --client-name go together",
    ),
    "a CA of clients that is missing": (
        ["install", "--client-ca", "/nowhere/ca.crt", "--client-name", "kube-apiserver"],
        "--client-ca: /nowhere/ca.crt: No such file or directory",
    ),
    "a name of clients that would be expanded": (
        ["install", "--client-ca", "ca.crt", "--client-name", "$(POD_NAME)"],
        "--client-name: '$(POD_NAME)' has to be printable text without $",
    ),
    "clients of a webhook elsewhere": (
        ["install", "--url", "https://here", "--client-ca", "ca.crt", "--client-name", "a"],
        "do not go with --url, where you start the webhook with both",
    ),
    "some clients and all": (
        ["install", "--all-clients", "--client-ca", "ca.crt", "--client-name", "a"],
        "do not go with --all-clients",
    ),
    "a configuration that is missing": (
        ["install", "--config", "/nowhere/config.yaml"],
        "/nowhere/config.yaml: No such file or directory",
    ),
    "a configuration that is another object": (
        ["install", "--config", str(MANIFEST)],
        f"Error: {MANIFEST}: metadata: unknown field",
    ),
    "no cluster": (["install"], "there is no kubeconfig"),
}


@pytest.mark.parametrize(("arguments", "message"), USAGE.values(), ids=USAGE.keys())
def test_wrong_usage_is_reported(arguments: list[str], message: str) -> None:
    assert message in run(*arguments, code=2)


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_the_scripts_are_called_by_their_files(command: str) -> None:
    told = run(command, "--surprise", code=2)
    assert told.startswith(f"Usage: scripts/{command} [OPTIONS]\n")
    assert f"Try 'scripts/{command} --help' for help." in told


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_cluster_that_does_not_answer_is_reported(tmp_path: Path, command: str) -> None:
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


# -- whoever takes it out is asked -------------------------------------------------------------


@pytest.fixture
def cluster() -> FakeCluster:
    return a_cluster(a_namespace())


@pytest.fixture
def kubeconfig(cluster: FakeCluster, tmp_path: Path) -> Iterator[Path]:
    with kubeconfig_of(cluster, tmp_path) as path:
        yield path


NO = {
    "no": ("n\n", "Error: not confirmed, nothing was changed\n"),
    "nothing": ("\n", "Error: not confirmed, nothing was changed\n"),
    "the end": (
        "",
        "Error: not confirmed, nothing was changed; to run without a question, use --yes\n",
    ),
}


@pytest.mark.parametrize(("given", "told"), NO.values(), ids=NO)
def test_without_a_yes_nothing_is_changed(
    cluster: FakeCluster, kubeconfig: Path, given: str, told: str
) -> None:
    before = cluster.resource_version
    said = run("uninstall", "--kubeconfig", kubeconfig, given=given, code=ExitCode.FINDINGS)
    assert said == told
    assert cluster.resource_version == before


def test_the_keyboard_is_no_answer(cluster: FakeCluster, kubeconfig: Path) -> None:
    before = cluster.resource_version
    with subprocess.Popen(
        [sys.executable, SCRIPT, "uninstall", "--kubeconfig", kubeconfig],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    ) as asked:
        assert asked.stdout is not None
        said = ""
        while not said.endswith(QUESTION):
            one = asked.stdout.read(1)
            assert one, said
            said += one
        for _ in range(20):  # one that comes just before it reads does not end the reading
            asked.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                asked.wait(3)  # its input stays open: the end of it would be an answer
                break
        _, err = asked.communicate(timeout=10)
    assert (asked.returncode, err.strip()) == (ExitCode.INTERRUPTED, "Interrupted")
    assert cluster.resource_version == before
