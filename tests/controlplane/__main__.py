"""scripts/controlplane: build, start, look at and stop a control plane by hand."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.controlplane.binaries import ASSETS, BinariesError, cache_root
from tests.controlplane.build import provide
from tests.controlplane.plane import ControlPlane
from tests.controlplane.process import ProcessError
from tests.controlplane.state import Left, State, StateError, end, read_state, write_state
from tests.controlplane.versions import provide_version

FAILED = 1


def say(line: str) -> None:
    """Tell the person in front of the terminal; standard output is for the shell."""
    print(f"controlplane: {line}", file=sys.stderr, flush=True)


def build(options: argparse.Namespace) -> int:
    """Build what is missing and show where everything is."""
    if options.version:
        say(f"for tests on this version: export {ASSETS}={_choose(options.version)}")
    for name, path in provide(say).items():
        print(f"{name}\t{path}")
    return 0


def up(options: argparse.Namespace) -> int:
    """Start a control plane that stays."""
    directory: Path = options.directory
    state = read_state(directory / "state.json")
    if state is not None and state.is_running:
        say(f"runs already: {state.url}")
    else:
        state = _start(directory, options)
    say(f"the API server is {state.url}; logs are in {directory / 'logs'}")
    say("eval what follows, or copy it, for kubectl and for the product")
    print(f"export KUBECONFIG={shlex.quote(state.kubeconfig)}")
    return 0


def down(options: argparse.Namespace) -> int:
    """Stop it and delete what it wrote."""
    directory: Path = options.directory
    state = read_state(directory / "state.json")
    if state is None:
        say(f"none runs in {directory}")
        return 0
    if left := end(state.processes):
        say("still running: " + ", ".join(f"{one.name} ({one.pid})" for one in left))
        return FAILED
    shutil.rmtree(directory)
    say("stopped")
    return 0


def status(options: argparse.Namespace) -> int:
    """Say what runs."""
    directory: Path = options.directory
    state = read_state(directory / "state.json")
    if state is None:
        print(f"none runs in {directory}")
        return FAILED
    print(f"{state.url}\nKUBECONFIG={state.kubeconfig}")
    for process in state.processes:
        shown = f"runs as {process.pid}" if process.is_running else "does not run"
        print(f"{process.name:<26}{shown}; {directory}/logs/{process.name}.log")
    return 0 if state.is_running else FAILED


def _choose(version: str) -> Path:
    """Let everything that this process starts be of a version."""
    directory = provide_version(version, say)
    os.environ[ASSETS] = str(directory)
    return directory


def _start(directory: Path, options: argparse.Namespace) -> State:
    if options.version:
        _choose(options.version)
    _clear(directory)
    directory.mkdir(parents=True)
    plane = ControlPlane.start(
        directory,
        apiserver_flags=options.apiserver_flag,
        controller_manager_flags=options.controller_manager_flag,
        is_bound=False,
        say=say,
    )
    try:
        state = State(
            plane.url,
            str(plane.kubeconfig()),
            tuple(Left.of(process.name, process.pid) for process in plane.processes),
        )
        plane.add_nodes(options.nodes)
        write_state(directory / "state.json", state)
    except BaseException:
        plane.stop()
        raise
    return state


def _clear(directory: Path) -> None:
    """Delete what an earlier one wrote; anything else is not ours to delete."""
    state = read_state(directory / "state.json")
    if state is not None:
        end(state.processes)
        shutil.rmtree(directory)
    elif directory.is_dir() and any(directory.iterdir()):
        if not (directory / "pki" / "ca.crt").is_file():
            raise StateError(f"{directory} has files that are not a control plane's; name another")
        shutil.rmtree(directory)


_COMMANDS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "build": build,
    "up": up,
    "down": down,
    "status": status,
}


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    whole = argparse.ArgumentParser(prog="scripts/controlplane", description=__doc__)
    commands = whole.add_subparsers(dest="command", required=True)
    text = "build the programs, once; $KUBEBUILDER_ASSETS comes first"
    versioned = [commands.add_parser("build", help=text)]
    for name in ("up", "down", "status"):
        described = _COMMANDS[name].__doc__ or ""
        one = commands.add_parser(name, help=described, description=described)
        one.add_argument(
            "--directory",
            type=lambda text: Path(text).absolute(),
            default=cache_root() / "up",
            help="its data, keys and logs (default: %(default)s)",
        )
        if name == "up":
            versioned.append(one)
            one.add_argument("--nodes", type=int, default=3, help="nodes without a kubelet")
            for program in ("apiserver", "controller-manager"):
                text = f"a further flag of the {program}; repeatable, as in --{program}-flag=--v=4"
                one.add_argument(f"--{program}-flag", action="append", default=[], help=text)
    text = "another release of Kubernetes, such as 1.30 or 1.30.14, kept beside the usual one"
    for one in versioned:
        one.add_argument("--version", default="", help=text)
    return whole


def main(arguments: Sequence[str]) -> int:
    """Run one command."""
    options = parser().parse_args(arguments)
    try:
        return _COMMANDS[options.command](options)
    except (BinariesError, ProcessError, StateError, OSError) as err:
        say(str(err))
        return FAILED
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    os.umask(0o077)  # keys of a cluster
    # asked to end, what was started is ended too
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
