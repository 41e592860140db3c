"""The demo tells the truth, and `serve` says what is wrong with what it is given."""

from __future__ import annotations

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, WANTED
from webhook.tls.bootstrap import CertificateDirectory, bootstrap


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "webhook", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=ROOT,
    )


def test_every_answer_of_the_story_is_the_one_it_tells() -> None:
    story = subprocess.run(
        [sys.executable, "scripts/demo_story.py"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert story.returncode == 0, story.stderr
    assert "All 43 answers were as told" in story.stdout


def test_the_keyboard_ends_the_story_in_one_word() -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "scripts/demo_story.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as story:
        assert story.stdout is not None
        assert story.stdout.readline().startswith("The webhook serves")
        story.send_signal(signal.SIGINT)
        _, err = story.communicate(timeout=60)
    assert (story.returncode, err) == (130, "Interrupted\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a}\n")
    return path


def test_a_key_of_another_certificate_is_refused_with_both_names(
    cluster: Path, tmp_path: Path
) -> None:
    directories = [CertificateDirectory(tmp_path / name) for name in ("one", "two")]
    for directory in directories:
        bootstrap(directory, WANTED, now=datetime.now(UTC))
    directories[0].key.write_bytes(directories[1].key.read_bytes())
    refused = serve("--embedded", str(cluster), "--certs", str(directories[0].path))
    assert refused.returncode == 2
    assert "tls.key" in refused.stderr
    assert "tls.crt" in refused.stderr


def test_a_broken_snapshot_starts_nothing(cluster: Path) -> None:
    cluster.write_text("apiVersion: v1\nkind: Pod\nmetadata: {}\n")
    refused = serve("--embedded", str(cluster))
    assert refused.returncode == 2
    assert f"{cluster}: document 1" in refused.stderr


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:70000", ":"])
def test_an_address_that_is_none_is_a_matter_of_usage(cluster: Path, address: str) -> None:
    refused = serve("--embedded", str(cluster), "--listen", address)
    assert refused.returncode == 2
    assert "is not an address" in refused.stderr
