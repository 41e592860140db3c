"""The frame of the command line: how commands are found and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.cli.clusters import write_kubeconfig
from tests.cli.commands import line
from webhook import __version__
from webhook.cli import ExitCode, cli
from webhook.cli.app import COMMANDS

BIN = Path(sys.executable).parent
CLOSED = ("/bin/sh", "-c", 'exec "$@" >&-', "sh")
"""Starts a program without a standard output."""


def run(*args: str, env: dict[str, str | None] | None = None, color: bool = False) -> Result:
    return CliRunner().invoke(line, args, env=env, color=color, prog_name="try")


def spawn(
    command: Sequence[str | Path], env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )


ENDS = {
    "fine": ("fine", ExitCode.OK, "data\n", ""),
    "a code that is returned": ("findings", ExitCode.FINDINGS, "", ""),
    "a code that the context exits with": ("drift", ExitCode.DRIFT, "", ""),
    "unreadable input": (
        "unreadable",
        ExitCode.BAD_INPUT,
        "",
        "Error: a.yaml: broken\nError: b.yaml: \\x1b[31mred\\nnext line\n",
    ),
    "no cluster": (
        "unreachable",
        ExitCode.UNREACHABLE,
        "",
        "Error: https://127.0.0.1:6443: connection refused\n",
    ),
    "a file that click cannot open": (
        "missing-file",
        ExitCode.BAD_INPUT,
        "",
        "Error: Could not open file 'x.pem': no such file\n",
    ),
    "a fault": (
        "crash",
        ExitCode.INTERNAL,
        "",
        "Error: unexpected KeyError: 'spec\\x1b[2J' (use --debug for a traceback)\n",
    ),
    "a fault without words": (
        "silent-crash",
        ExitCode.INTERNAL,
        "",
        "Error: unexpected RecursionError (use --debug for a traceback)\n",
    ),
    "the keyboard": ("interrupt", ExitCode.INTERRUPTED, "", "\nInterrupted\n"),
}


@pytest.mark.parametrize(("name", "code", "out", "err"), ENDS.values(), ids=ENDS.keys())
def test_every_end_has_its_code_and_messages_go_to_stderr(
    name: str, code: ExitCode, out: str, err: str
) -> None:
    result = run(name)
    assert (result.exit_code, result.stdout, result.stderr) == (code, out, err)


ASKING = (
    ("disable", "team-a", "--wait", "0"),
    ("doctor",),
    ("enable", "team-a"),
    ("job", "resize", "train", "--requests", "cpu=2", "--timeout", "0"),
    ("shadow", "report"),
)


@pytest.mark.parametrize("args", ASKING, ids=" ".join)
def test_a_cluster_that_does_not_answer_ends_with_4(tmp_path: Path, args: tuple[str, ...]) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:9")
    result = CliRunner().invoke(cli, [*args, "--kubeconfig", str(kubeconfig)])
    assert (result.exit_code, result.stdout) == (ExitCode.UNREACHABLE, "")
    assert "the cluster does not answer" in result.stderr


USAGE_ERRORS = {
    "unknown command": ("nothing",),
    "unknown option": ("fine", "--nothing"),
    "missing argument": ("needs-a-path",),
    "too many arguments": ("fine", "x"),
    "no command": (),
}


@pytest.mark.parametrize("args", USAGE_ERRORS.values(), ids=USAGE_ERRORS.keys())
def test_wrong_usage_is_2_with_nothing_on_stdout(args: tuple[str, ...]) -> None:
    result = run(*args)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stdout == ""
    assert "Usage: try" in result.stderr


def test_the_exit_codes_are_those_of_the_documentation() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "OK": 0,
        "FINDINGS": 1,
        "BAD_INPUT": 2,
        "DRIFT": 3,
        "UNREACHABLE": 4,
        "INTERNAL": 5,
        "INTERRUPTED": 130,
        "BROKEN_PIPE": 141,
    }


DEBUGGED: dict[str, tuple[tuple[str, ...], dict[str, str | None]]] = {
    "before the command": (("--debug", "crash"), {}),
    "after the command": (("crash", "--debug"), {}),
    "by the environment": (("crash",), {"DEFERRED_QUOTA_DEBUG": "1"}),
}


@pytest.mark.parametrize(("args", "env"), DEBUGGED.values(), ids=DEBUGGED.keys())
def test_a_traceback_is_shown_when_asked_for(
    args: tuple[str, ...], env: dict[str, str | None]
) -> None:
    result = run(*args, env=env)
    assert result.exit_code == ExitCode.INTERNAL
    assert "Traceback (most recent call last)" in result.stderr
    assert "in crash" in result.stderr


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_a_switched_off_environment_variable_shows_no_traceback(value: str) -> None:
    assert "Traceback" not in run("crash", env={"DEFERRED_QUOTA_DEBUG": value}).stderr


def test_colors_are_for_terminals() -> None:
    assert run("colorful", color=True).stdout == "\x1b[31mred\x1b[0m\n"
    assert run("colorful").stdout == "red\n"


COLORLESS: dict[str, tuple[tuple[str, ...], dict[str, str | None]]] = {
    "NO_COLOR": (("colorful",), {"NO_COLOR": "1"}),
    "--no-color before the command": (("--no-color", "colorful"), {}),
    "--no-color after the command": (("colorful", "--no-color"), {}),
}


@pytest.mark.parametrize(("args", "env"), COLORLESS.values(), ids=COLORLESS.keys())
def test_colors_can_be_refused(args: tuple[str, ...], env: dict[str, str | None]) -> None:
    assert run(*args, env=env, color=True).stdout == "red\n"


def test_errors_have_no_colors_where_they_are_refused() -> None:
    assert "\x1b" in run("unreachable", color=True).stderr
    assert "\x1b" not in run("unreachable", env={"NO_COLOR": "1"}, color=True).stderr


def test_a_reader_that_goes_away_is_no_error_message() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cli.commands", "flood"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line 0\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == ExitCode.BROKEN_PIPE


@pytest.mark.parametrize("args", [["--help"], ["fine"]], ids=["help", "data"])
def test_a_reader_that_was_never_there_is_no_error_message(args: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.commands", *args],
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (ExitCode.BROKEN_PIPE, b"")


@pytest.mark.parametrize("args", [["fine"], ["flood"], ["--help"]], ids=" ".join)
def test_output_that_cannot_be_written_is_an_error_that_names_it(args: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.commands", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.splitlines() == ["Error: standard output: No space left on device"]


@pytest.mark.parametrize("args", [["fine"], ["flood"], ["--help"]], ids=" ".join)
def test_output_that_is_closed_is_an_error_that_names_it(args: list[str]) -> None:
    closed = [*CLOSED, sys.executable, "-m", "tests.cli.commands", *args]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.splitlines() == ["Error: standard output: Bad file descriptor"]


def test_a_command_that_writes_no_output_needs_none() -> None:
    closed = [*CLOSED, sys.executable, "-m", "tests.cli.commands", "findings"]
    done = subprocess.run(closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.FINDINGS, b"")


def test_the_keyboard_ends_a_command_that_is_being_imported(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, "-m", "webhook", "version"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        ExitCode.INTERRUPTED,
        "",
        "Interrupted\n",
    )


def test_the_help_has_every_exit_status() -> None:
    told = CliRunner().invoke(cli, ["--help"]).stdout.partition("Exit status:\n")[2]
    assert [int(entry.split()[0]) for entry in told.splitlines()] == sorted(ExitCode)


def test_messages_that_cannot_be_written_do_not_change_the_exit_status() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tests.cli.commands", "unreachable"],
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert (done.returncode, done.stdout) == (ExitCode.UNREACHABLE, b"")


def test_a_file_that_cannot_be_used_is_named() -> None:
    result = run("file-error")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stderr == "Error: /a/file: Permission denied\n"


def test_a_system_error_without_a_file_is_a_fault() -> None:
    result = run("system-error")
    assert result.exit_code == ExitCode.INTERNAL
    assert result.stderr.startswith("Error: unexpected ConnectionResetError: ")


def test_problems_without_an_end_are_counted() -> None:
    result = run("many-problems")
    assert result.exit_code == ExitCode.BAD_INPUT
    lines = result.stderr.splitlines()
    assert lines[:2] == ["Error: line 1", "Error: line 2"]
    assert lines[-2:] == ["Error: line 50", "Error: 29950 more errors like these, not shown"]
    assert len(lines) == 51


# From here on: the real commands.


def test_help_imports_no_command_and_nothing_heavy() -> None:
    script = (
        "import sys; from webhook.cli import cli; cli(['--help'], standalone_mode=False); "
        "print(*sorted({*sys.modules} - {*sys.stdlib_module_names}), file=sys.stderr)"
    )
    loaded = spawn([sys.executable, "-c", script]).stderr.split()
    assert [name for name in loaded if name.startswith("webhook.")] == [
        "webhook.cli",
        "webhook.cli.app",
        "webhook.cli.exit_codes",
        "webhook.cli.options",
    ]
    assert {"msgspec", "yaml", "flask", "cryptography", "gunicorn"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"], prog_name="deferred-quota")
    assert result.exit_code == ExitCode.OK
    assert f"Usage: deferred-quota {name}" in result.stdout
    assert f"\n    deferred-quota {name}" in result.stdout.partition("Example")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_in_the_help(name: str) -> None:
    result = CliRunner().invoke(cli, ["--help"], prog_name="deferred-quota")
    assert f"\n  {name} " in result.stdout


NAMES = {
    "the command": ([BIN / "deferred-quota"], "Usage: deferred-quota [OPTIONS]"),
    "the kubectl plug-in": ([BIN / "kubectl-deferred_quota"], "Usage: kubectl deferred-quota [OPT"),
    "the module": ([sys.executable, "-m", "webhook"], "Usage: python -m webhook [OPTIONS]"),
}


@pytest.mark.parametrize(("command", "usage"), NAMES.values(), ids=NAMES.keys())
def test_help_shows_the_name_it_was_called_by(command: list[str | Path], usage: str) -> None:
    done = spawn([*command, "--help"])
    assert done.returncode == ExitCode.OK
    assert done.stdout.startswith(usage)


def test_the_group_says_its_version() -> None:
    assert spawn([BIN / "deferred-quota", "--version"]).stdout == f"deferred-quota {__version__}\n"


def test_an_error_code_reaches_the_shell() -> None:
    done = spawn([BIN / "deferred-quota", "usage"])
    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stdout == ""


@pytest.mark.parametrize(
    "args",
    [
        ("check", "-f", "a.yaml", "-n"),
        ("usage", "-f", "a.yaml", "-n"),
        ("top", "-n"),
        ("explain", "pod", "web", "-n"),
        ("snapshot", "-n"),
        ("snapshot", "--system-namespace"),
        ("elastic", "plan", "web", "-n"),
        ("enable",),
        ("disable", "--dry-run"),
        ("doctor",),
        ("shadow", "report"),
        ("emergency", "close", "--namespace"),
    ],
    ids=" ".join,
)
def test_a_name_that_no_namespace_can_have_is_refused(args: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*args, "Bad_NS"])
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "'Bad_NS': a lowercase RFC 1123 label must consist of" in result.stderr
