"""The namespace that commands work in: the one that is given, else that of the context."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import a_pod
from tests.cli.clusters import kubeconfig_of
from tests.operations.jobs import World
from webhook.cli import cli

COMMANDS = {
    "explain": (("explain", "pod", "nope"), "Pod {}/nope does not exist"),
    "elastic plan": (("elastic", "plan", "nope"), "pod {}/nope does not exist"),
    "job resize": (("job", "resize", "train", "--requests", "cpu=2", "--dry-run"), "job {}/train"),
    "check": (("check", "--live", "-o", "table", "-f", "pod.yaml"), "{}    "),
}


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The way into a cluster with a Job in `team-a`, the namespace of its context."""
    monkeypatch.chdir(tmp_path)
    pod = a_pod(name="web")
    pod["metadata"] = {"name": "web"}
    Path("pod.yaml").write_text(yaml.safe_dump(pod), encoding="utf-8")
    with kubeconfig_of(World().cluster, tmp_path) as path:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        config["contexts"][0]["context"]["namespace"] = "team-a"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield path


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, list(args))


@pytest.mark.usefixtures("kubeconfig")
@pytest.mark.parametrize(("args", "words"), COMMANDS.values(), ids=COMMANDS)
def test_it_is_that_of_the_context(args: tuple[str, ...], words: str) -> None:
    assert words.format("team-a") in run(*args).output


@pytest.mark.usefixtures("kubeconfig")
def test_one_that_is_given_goes_before() -> None:
    assert "Pod default/nope" in run("explain", "pod", "nope", "-n", "default").stderr


@pytest.mark.usefixtures("kubeconfig")
def test_a_file_has_no_context() -> None:
    done = run("explain", "pod", "nope", "--snapshot", "pod.yaml")
    assert "Pod default/nope" in done.stderr
    assert "default" in run("check", "-o", "table", "-f", "pod.yaml").stdout
