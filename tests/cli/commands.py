"""Commands that end in every way a command can end."""

from __future__ import annotations

import errno
from pathlib import Path

import click

from webhook.cli.app import CommandLine
from webhook.cli.exit_codes import ExitCode, InputError, UnreachableError
from webhook.cli.options import Command


@click.command(cls=Command)
def fine() -> None:
    click.echo("data")


@click.command(cls=Command)
def findings() -> ExitCode:
    return ExitCode.FINDINGS


@click.command(cls=Command)
@click.pass_context
def drift(ctx: click.Context) -> None:
    ctx.exit(ExitCode.DRIFT)


@click.command(cls=Command)
def unreadable() -> None:
    raise InputError(["a.yaml: broken", "b.yaml: \x1b[31mred\nnext line"])


@click.command(cls=Command)
def unreachable() -> None:
    raise UnreachableError("https://127.0.0.1:6443: connection refused")


@click.command(cls=Command)
def missing_file() -> None:
    raise click.FileError("x.pem", "no such file")


@click.command(cls=Command)
def crash() -> None:
    raise KeyError("spec\x1b[2J")


@click.command(cls=Command)
def file_error() -> None:
    raise PermissionError(errno.EACCES, "Permission denied", "/a/file")


@click.command(cls=Command)
def system_error() -> None:
    raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


@click.command(cls=Command)
def many_problems() -> None:
    raise InputError([f"line {number}" for number in range(1, 30_001)])


@click.command(cls=Command)
def silent_crash() -> None:
    raise RecursionError


@click.command(cls=Command)
def interrupt() -> None:
    raise KeyboardInterrupt


@click.command(cls=Command)
def flood() -> None:
    for number in range(100_000):
        click.echo(f"line {number}")


@click.command(cls=Command)
def colorful() -> None:
    click.secho("red", fg="red")


@click.command(cls=Command)
@click.argument("path", type=click.Path(path_type=Path))
def needs_a_path(path: Path) -> None:
    click.echo(path.name)


_NAMES = (
    *("fine", "findings", "drift", "unreadable", "unreachable", "missing_file"),
    *("crash", "silent_crash", "interrupt", "flood", "colorful", "needs_a_path"),
    *("file_error", "system_error", "many_problems"),
)

line = CommandLine(
    "try", lazy={name.replace("_", "-"): (f"{__name__}:{name}", "Try.") for name in _NAMES}
)


if __name__ == "__main__":
    line()
