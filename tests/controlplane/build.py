"""Build the programs from the module, once, into the cache directory."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import (
    ASSETS,
    MODULE,
    PACKAGES,
    BinariesError,
    Module,
    built_directory,
    locate,
    read_module,
)
from tests.controlplane.toolchain import find_go

Say = Callable[[str], None]

_PROGRESS_SECONDS: Final = 20.0
_VERSION_PACKAGES: Final = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


def provide(say: Say, names: Sequence[str] = tuple(PACKAGES)) -> dict[str, Path]:
    """Find all programs, and build first what is missing.

    Raises:
        BinariesError: They can be neither found nor built.
    """
    found = locate(names)
    if len(found) < len(names):
        module = read_module()
        directory = built_directory(module)
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory / "lock", say):
            found = locate(names)  # another build may have made them meanwhile
            missing = [name for name in names if name not in found]
            if missing:
                build(module, directory, missing, say)
        found = locate(names)
    return found


def link_flags(kubernetes: str) -> str:
    """Give the linker's flags that tell the programs their version.

    A controller manager that does not know its version does not start.
    """
    major, minor, *_ = kubernetes.removeprefix("v").split(".")
    facts = {
        "gitVersion": kubernetes,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    told = [f"-X {package}.{k}={v}" for package in _VERSION_PACKAGES for k, v in facts.items()]
    return " ".join(["-s -w", *told])


def build(module: Module, directory: Path, names: Sequence[str], say: Say) -> None:
    """Build programs of a module into a directory.

    Raises:
        BinariesError: Go, the sources or the programs cannot be had.
    """
    go = find_go(module, say)
    say(f"building {', '.join(names)} of Kubernetes {module.version} into {directory}")
    packages = [PACKAGES[name] for name in names]
    total = fetch_sources(go, packages, module.directory)
    say(f"{total} packages; about 10 minutes of two processors, little if Go has them cached")
    with tempfile.TemporaryDirectory(prefix="part-", dir=directory) as part:
        command = [str(go), "build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly"]
        command += ["-ldflags", link_flags(module.version), "-o", f"{part}/", *packages]
        _run_with_progress(command, module.directory, total, say)
        for name in names:
            (Path(part) / program_of(PACKAGES[name])).replace(directory / name)
    say("built")


def program_of(package: str) -> str:
    """Give the file name that Go gives a program: the last part that is not a major version."""
    *_, before, last = package.split("/")
    return before if last.startswith("v") and last[1:].isdigit() else last


def go_environment() -> Mapping[str, str]:
    """Return what Go is run with, which takes no other module and no other Go than those named."""
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def fetch_sources(go: Path, packages: Sequence[str], directory: Path = MODULE) -> int:
    """Have Go download what the packages need; return how many packages that is."""
    # the module of this directory is whole; another one is completed with what is fetched
    mode = "readonly" if directory == MODULE else "mod"
    command = [str(go), "list", f"-mod={mode}", "-deps", "-f", "{{.ImportPath}}", *packages]
    ran = subprocess.run(
        command, cwd=directory, env=go_environment(), capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise BinariesError(
            f"the sources in {directory / 'go.mod'} cannot be had:\n{_tail(ran.stderr)}\n"
            f"Set GOPROXY to a module proxy that this machine reaches, or {ASSETS} to a directory"
            f" that has {', '.join(PACKAGES)}."
        )
    return len(ran.stdout.splitlines())


def _run_with_progress(command: Sequence[str], directory: Path, total: int, say: Say) -> None:
    began = time.monotonic()
    with subprocess.Popen(
        command, cwd=directory, env=go_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        lines: list[str] = []
        done = threading.Event()
        reporter = threading.Thread(target=_report, args=(done, lines, total, say), daemon=True)
        reporter.start()
        try:
            assert process.stderr is not None
            lines.extend(process.stderr)  # one by one, as they come
            code = process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            done.set()
            reporter.join()
    if code != 0:
        raise BinariesError(
            f"go build ended with {code} after {time.monotonic() - began:.0f} s:\n"
            f"{_tail(''.join(lines))}\nSet {ASSETS} to a directory that has the programs instead."
        )


def _report(done: threading.Event, lines: Sequence[str], total: int, say: Say) -> None:
    began = time.monotonic()
    while not done.wait(_PROGRESS_SECONDS):
        say(f"{time.monotonic() - began:.0f} s: {len(lines)} of at most {total} packages compiled")


@contextmanager
def locked(path: Path, say: Say) -> Iterator[None]:
    """Hold a lock on a file; it goes with the process, however that ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-12:])
