"""Programs of the directories beside this file, built once into the user's cache directory.

`python -m tests.tools.programs` builds what is missing. A program that cannot be built is an error,
and no reason to leave a test out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.controlplane.binaries import BinariesError, Module, cache_root, version_numbers
from tests.controlplane.build import Say, locked, program_of
from tests.controlplane.toolchain import find_go

HERE: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Source:
    """What a program is built from, beside the `go.mod` in the directory of its name."""

    module: str
    """The Go module whose version it has."""
    package: str
    tags: tuple[str, ...] = ()
    """Build tags."""


PROGRAMS: Final[Mapping[str, Source]] = {
    "helm": Source("helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm"),
    # without the clients of every cloud, by which a server finds what to scrape
    "promtool": Source(
        "github.com/prometheus/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
        ("remove_all_sd",),
    ),
}


def module_of(name: str, directory: Path | None = None) -> Module:
    """Return the version of a program, and what decides how it is built.

    Raises:
        BinariesError: `go.mod` names no version of it.
    """
    directory = directory or HERE / name
    text = (directory / "go.mod").read_text()
    source = PROGRAMS[name]
    version = re.search(rf"^\s*(?:require )?{re.escape(source.module)} (v\S+)", text, re.MULTILINE)
    go = re.search(r"^go (\S+)", text, re.MULTILINE)
    if version is None or go is None:
        raise BinariesError(f"{directory / 'go.mod'}: no version of Go or of {source.module}")
    parts = (text, (directory / "go.sum").read_text(), source.package, *source.tags)
    decisive = "\0".join(parts)
    digest = hashlib.sha256(decisive.encode()).hexdigest()[:16]
    return Module(version[1], version_numbers(go[1]), digest)


def built_program(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return where a program is when it has been built."""
    place = cache_root(environment).parent / "tools" / module_of(name).digest
    return place / program_of(PROGRAMS[name].package)


def provide(name: str, say: Say) -> Path:
    """Return a program; build it first where it is missing.

    Raises:
        BinariesError: It cannot be built.
    """
    program = built_program(name)
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with locked(program.parent / "lock", say):
            if not program.exists():  # another build may have made it meanwhile
                _build(name, program, say)
    return program


def _build(name: str, program: Path, say: Say) -> None:
    module, source = module_of(name), PROGRAMS[name]
    say(f"building {name} {module.version} into {program.parent}; about 3 minutes")
    with tempfile.TemporaryDirectory(prefix="part-", dir=program.parent) as part:
        command = [str(find_go(module, say)), "build", "-trimpath", "-buildvcs=false"]
        command += ["-mod=readonly", "-ldflags", "-s -w", "-o", f"{part}/"]
        command += [f"-tags={','.join(source.tags)}", source.package]
        ran = subprocess.run(
            command,
            cwd=HERE / name,
            env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            ends = "\n".join(ran.stderr.strip().splitlines()[-12:])
            raise BinariesError(
                f"{name} {module.version} cannot be built:\n{ends}\nSet GOPROXY to a module"
                f" proxy that this machine reaches, or copy the program to {program}."
            )
        (Path(part) / program.name).replace(program)


def main() -> int:
    """Build what is missing and show where everything is."""
    try:
        for name in PROGRAMS:
            path = provide(name, lambda line: print(f"tools: {line}", file=sys.stderr, flush=True))
            print(f"{name}\t{path}")
    except (BinariesError, OSError) as err:
        print(f"tools: {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
