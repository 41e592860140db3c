"""Another version of the product, built out of git once for each commit and kept."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.controlplane.build import locked
from tests.torture.children import ROOT
from tests.torture.version import Installation, Version

GIT: Final = shutil.which("git") or "git"
_DONE: Final = ".built"
_SHOWN: Final = 10

_RENDER: Final = """
import json, sys
from webhook.config import ReclaimMode
from webhook.install.rendering import render
made = render(url=sys.argv[1], ca_pem=sys.stdin.buffer.read(), reclaim=ReclaimMode.ACT)
json.dump([[*made.cluster, *made.reclaim], made.registrations, made.masks], sys.stdout)
"""


class CheckoutError(Exception):
    """A version that git does not have, or that cannot be built or rendered."""


def provide(ref: str, say: Callable[[str], None]) -> Version:
    """Return a version, and build it first where that was not done yet.

    Args:
        ref: A commit, tag or branch of this repository.
        say: Called with what is done where that takes long.

    Raises:
        CheckoutError: There is no such commit, or `scripts/setup` of it fails.
    """
    commit = resolve(ref)
    directory = cache() / commit
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.with_suffix(".lock"), say):
        if not (directory / _DONE).exists():
            say(f"building {ref}, commit {commit[:_SHOWN]}")
            _build(commit, directory)
    return _version(f"{ref} ({commit[:_SHOWN]})", directory)


def resolve(ref: str) -> str:
    """Return the hash of a commit.

    Raises:
        CheckoutError: There is none of that name.
    """
    return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")


def cache() -> Path:
    """Return where versions are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "deferred-quota" / "skew"


def _build(commit: str, directory: Path) -> None:
    # an environment has the path of its place in it, so it is made where it stays
    shutil.rmtree(directory, ignore_errors=True)
    packed = subprocess.run(
        [GIT, "archive", "--format=tar", commit],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    ran = subprocess.run(
        [directory / "scripts" / "setup"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode != 0:
        raise CheckoutError(f"scripts/setup of {commit} ended with {ran.returncode}: {ran.stderr}")
    (directory / _DONE).touch()


def _version(name: str, directory: Path) -> Version:
    python = directory / ".venv" / "bin" / "python"

    def objects(url: str, ca_pem: bytes) -> Installation:
        ran = subprocess.run(
            [python, "-c", _RENDER, url],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(directory), "PYTHONSAFEPATH": "1"},
            input=ca_pem,
            capture_output=True,
            check=False,
        )
        if ran.returncode != 0:
            raise CheckoutError(f"{name} cannot be rendered: {ran.stderr.decode()}")
        return Installation(*json.loads(ran.stdout))

    return Version(name, python, directory, objects)


def _git(*arguments: str) -> str:
    ran = subprocess.run([GIT, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise CheckoutError(f"git {' '.join(arguments)}: {ran.stderr.strip() or 'nothing found'}")
    return ran.stdout.strip()
