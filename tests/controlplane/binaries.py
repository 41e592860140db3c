"""Where the programs of the control plane are.

First `$KUBEBUILDER_ASSETS`, the directory that Kubernetes' own test tools use; what is missing
there, or everything without it, is built once into the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODULE: Final = Path(__file__).parent
ASSETS: Final = "KUBEBUILDER_ASSETS"

PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
"""Program → the package that it is built from."""

# what `$KUBEBUILDER_ASSETS` holds at least, as Kubernetes' test tools fill it
_OF_ASSETS: Final = ("etcd", "kube-apiserver", "kubectl")
_BUILD_RECIPE: Final = "1"  # raise it when the way of building changes what is built


class BinariesError(Exception):
    """The programs cannot be found or made; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module that names the versions of programs.

    Attributes:
        version: The version of what is built, such as v1.36.3 of k8s.io/kubernetes.
        go: The least version of Go, as a tuple.
        digest: A hash of everything that decides what is built.
        directory: Where its `go.mod` is.
    """

    version: str
    go: tuple[int, ...]
    digest: str
    directory: Path = MODULE


def read_module(directory: Path = MODULE) -> Module:
    """Read go.mod and go.sum."""
    text = (directory / "go.mod").read_text()
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)", text, re.MULTILINE)
    go = re.search(r"^go (\S+)", text, re.MULTILINE)
    if found is None or go is None:
        raise BinariesError(f"{directory / 'go.mod'}: no version of Go or of k8s.io/kubernetes")
    digest = hashlib.sha256()
    for part in (text, (directory / "go.sum").read_text(), found[1], _BUILD_RECIPE):
        digest.update(part.encode() + b"\0")
    return Module(found[1], version_numbers(go[1]), digest.hexdigest()[:16], directory)


def version_numbers(text: str) -> tuple[int, ...]:
    """Read "1.26.0" or "go1.26.8" as numbers; what follows them does not count."""
    found = re.match(r"(?:go|v)?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, found[1].split("."))) if found else ()


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Give the directory of everything that is kept between runs."""
    base = environment.get("XDG_CACHE_HOME", "")
    # a relative XDG_CACHE_HOME is to be ignored, says the directory specification
    home = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return home / "deferred-quota" / "controlplane"


def built_directory(module: Module, environment: Mapping[str, str] = os.environ) -> Path:
    """Give the directory of the programs that were built from this module."""
    return cache_root(environment) / module.digest


def locate(
    names: Iterable[str] = PACKAGES, environment: Mapping[str, str] = os.environ
) -> dict[str, Path]:
    """Find programs; those which have to be built first are not in the result.

    Raises:
        BinariesError: `$KUBEBUILDER_ASSETS` is set and lacks what it always holds.
    """
    assets = _assets(environment)
    built = built_directory(read_module(), environment)
    places = [assets, built] if assets else [built]
    found = {}
    for name in names:
        for place in places:
            if os.access(place / name, os.X_OK):
                found[name] = place / name
                break
    return found


def _assets(environment: Mapping[str, str]) -> Path | None:
    text = environment.get(ASSETS, "")
    if not text:
        return None
    directory = Path(text)
    missing = [name for name in _OF_ASSETS if not os.access(directory / name, os.X_OK)]
    if missing:
        raise BinariesError(
            f"${ASSETS}: {directory} has no executable {', '.join(missing)}; "
            f"correct it, or unset it to have everything built"
        )
    return directory
