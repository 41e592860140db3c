"""Other versions of Kubernetes than that of `go.mod`, each built once beside it.

The module of a version is made from the one of Kubernetes itself, with the libraries of the same
release. etcd is that of `go.mod`, whichever the version. `$KUBEBUILDER_ASSETS` then names the
directory, so that whatever starts a control plane starts that version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import (
    ASSETS,
    PACKAGES,
    BinariesError,
    Module,
    built_directory,
    cache_root,
    read_module,
    version_numbers,
)
from tests.controlplane.build import Say, build, go_environment, locked, provide
from tests.controlplane.toolchain import find_go

_KUBERNETES: Final = "k8s.io/kubernetes"
_STAGED: Final = re.compile(r"^\t(\S+) => \./staging/", re.MULTILINE)
_REQUIRED: Final = re.compile(r"^\t(\S+) (v\S+)(?: // indirect)?$", re.MULTILINE)
_NAMES: Final = tuple(name for name in PACKAGES if name != "etcd")


def provide_version(text: str, say: Say) -> Path:
    """Return a directory with all programs of a version; build first what is missing.

    Args:
        text: A release such as 1.30.14, or 1.30 for the newest of it: that which is here already,
            else that which the module proxy knows.
        say: Told what is done.

    Raises:
        BinariesError: There is no such version, or it cannot be built.
    """
    numbers = version_numbers(text)
    if len(numbers) not in {2, 3}:
        raise BinariesError(f"--version {text}: must be a release of Kubernetes, such as 1.30")
    directory = _built(numbers)
    if directory is None:
        go = find_go(read_module(), say)
        version, own = _download(go, "v" + ".".join(map(str, numbers)))
        directory = cache_root() / version
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / "lock", say):
            missing = [name for name in _NAMES if not os.access(directory / name, os.X_OK)]
            if missing:
                (directory / "go.mod").write_text(module_text(own, version))
                build(_module(directory, own, version), directory, missing, say)
    _link_etcd(directory, say)
    return directory


def module_text(own: str, version: str) -> str:
    """Return the `go.mod` from which a version is built.

    Args:
        own: Its own `go.mod`, in which libraries of the same release are directories beside it.
        version: The version, such as v1.30.14.
    """
    staged = _STAGED.findall(own)
    libraries = "v0." + version.removeprefix("v1.")
    head, _, _ = own.partition("\nreplace (")
    required = {_KUBERNETES: version}
    required |= {name: found for name, found in _REQUIRED.findall(head) if name not in staged}
    required |= dict.fromkeys(staged, libraries)
    settings = re.findall(r"^(?:go|godebug) .+$", head, re.MULTILINE)
    return "\n".join(
        (
            "module deferredquota.io/controlplane",
            *settings,
            "require (",
            *(f"\t{name} {found}" for name, found in required.items()),
            ")",
            "replace (",
            *(f"\t{name} => {name} {libraries}" for name in staged),
            ")",
            "",
        )
    )


def _built(numbers: tuple[int, ...], environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the newest release that is here with all its programs."""
    found = [
        (version_numbers(place.name), place)
        for place in cache_root(environment).glob("v*")
        if all(os.access(place / name, os.X_OK) for name in _NAMES)
    ]
    fitting = [each for each in found if each[0][: len(numbers)] == numbers]
    return max(fitting)[1] if fitting else None


def _download(go: Path, version: str) -> tuple[str, str]:
    """Return the whole version and its own `go.mod`.

    Raises:
        BinariesError: The module proxy does not know it, or is not reached.
    """
    command = [str(go), "mod", "download", "-json", f"{_KUBERNETES}@{version}"]
    ran = subprocess.run(
        command, cwd="/", env=go_environment(), capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        told = (ran.stdout + ran.stderr).strip()
        raise BinariesError(
            f"{_KUBERNETES} {version} cannot be had:\n{told}\nSet GOPROXY to a module proxy that"
            f" this machine reaches, or {ASSETS} to a directory that has the programs."
        )
    told = json.loads(ran.stdout)
    return told["Version"], Path(told["GoMod"]).read_text()


def _module(directory: Path, own: str, version: str) -> Module:
    go = re.search(r"^go (\S+)", own, re.MULTILINE)
    return Module(version, version_numbers(go[1] if go else ""), version, directory)


def _link_etcd(directory: Path, say: Say) -> None:
    """Put etcd beside the programs of a version."""
    link = directory / "etcd"
    if not os.access(link, os.X_OK):
        without_assets = {key: value for key, value in os.environ.items() if key != ASSETS}
        etcd = built_directory(read_module(), without_assets) / "etcd"
        if not os.access(etcd, os.X_OK):
            etcd = provide(say, ("etcd",))["etcd"]
        link.unlink(missing_ok=True)
        link.symlink_to(etcd)
