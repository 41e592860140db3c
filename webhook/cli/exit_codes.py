"""Exit codes of commands, and the errors that lead to them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import IO, Any, Final

import click


class ExitCode(IntEnum):
    """Exit status of every command."""

    OK = 0
    """Everything is fine."""

    FINDINGS = 1
    """The command did its work and found something: a refusal, a pod that does not fit."""

    BAD_INPUT = 2
    """Wrong usage, input that cannot be read, or output that cannot be written."""

    DRIFT = 3
    """Drift, something left to do, or warnings where the caller asked to fail on them."""

    UNREACHABLE = 4
    """The cluster does not answer."""

    INTERNAL = 5
    """A fault of this program."""

    INTERRUPTED = 130
    """Ended by the keyboard, as a shell reports SIGINT."""

    BROKEN_PIPE = 141
    """The reader of the output went away, as a shell reports SIGPIPE."""


def printable(text: str) -> str:
    """Return the text with control characters escaped, so that input cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


_MOST_SHOWN: Final = 50


def shortened(lines: Sequence[str], what: str) -> Iterator[str]:
    """Yield the first lines, and after them the number of the rest."""
    yield from lines[:_MOST_SHOWN]
    if len(lines) > _MOST_SHOWN:
        yield f"{len(lines) - _MOST_SHOWN} more {what}, not shown"


class CommandError(click.ClickException):
    """An expected failure, printed as one line for each problem."""

    exit_code = int(ExitCode.BAD_INPUT)

    def __init__(self, problems: str | Sequence[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(printable(each) for each in self.problems))

    def show(self, file: IO[Any] | None = None) -> None:
        """Print problems, each on a line of its own, and how many more there are."""
        label = click.style("Error:", fg="red")
        for line in shortened(self.problems, "errors like these"):
            click.echo(f"{label} {printable(line)}", file, err=True, color=self.show_color)


class NotConfirmedError(CommandError):
    """The question was not answered with yes."""

    exit_code = int(ExitCode.FINDINGS)


def confirm_on_terminal(question: str) -> None:
    """Ask on standard error where a person can answer; a script goes on.

    Raises:
        NotConfirmedError: The answer was not yes.
        Abort: The keyboard ended it.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        confirm(question, err=True)


def confirm(question: str, *, err: bool = False) -> None:
    """Ask, and go on with a yes only; an input that ends is none.

    Args:
        err: Whether to ask on standard error, where the output is data.

    Raises:
        NotConfirmedError: It was none.
        Abort: The keyboard ended it.
    """
    try:
        is_confirmed = click.confirm(question, err=err)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):  # which is all that tells it from Ctrl-C
            raise
        click.echo(err=err)  # below the question
        raise NotConfirmedError(
            "not confirmed, nothing was changed; to run without a question, use --yes"
        ) from abort
    if not is_confirmed:
        raise NotConfirmedError("not confirmed, nothing was changed")


class InputError(CommandError):
    """Input that cannot be read; a problem names file, document and field where it has them."""


class UnreachableError(CommandError):
    """The cluster does not answer."""

    exit_code = int(ExitCode.UNREACHABLE)
