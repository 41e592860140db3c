"""Commands that messages advise are there, and take what the advice gives them."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Final

import click
import pytest

from webhook.cli.app import cli

ROOT: Final = Path(__file__).parents[1]
SCRIPTS: Final = ROOT / "scripts"
SOURCES: Final = sorted((ROOT / "webhook").rglob("*.py")) + sorted(SCRIPTS.glob("*.py"))

_PLACEHOLDER: Final = "NAME"
_WORD: Final = r"""(?:"[^"]*"|\$\([^)]*\)|[^\s;()`'"|#<>]*[^\s.,;:()`'"|#<>])"""
_OURS: Final = re.compile(rf"(?<![\w./-])deferred-quota ([a-z]+)((?: {_WORD})*)")
_SCRIPT: Final = re.compile(r"\bscripts/([a-z]+)((?: +--[a-z-]+(?:[ =][^\s,;()-][^\s,;()]*)?)*)")
_PROSE: Final = frozenset(
    {"has", "writes", "is", "may", "into", "out", "works", "itself", "does", "runs", "and"}
)
"""What follows the name of the product where no command is meant."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Return the texts of a module except its docstrings; what is filled in is a placeholder."""
    tree = ast.parse(path.read_text())
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (
                str(each.value) if isinstance(each, ast.Constant) else _PLACEHOLDER
                for each in node.values
            )
            yield node.lineno, "".join(parts)
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in inside | documentation
        ):
            yield node.lineno, node.value


def found(pattern: re.Pattern[str]) -> list[tuple[str, str, list[str]]]:
    """Return every place where a pattern matches: the place, the command, its arguments."""
    return [
        (f"{path.relative_to(ROOT)}:{line}", match[1], re.findall(_WORD, match[2]))
        for path in SOURCES
        for line, text in texts(path)
        for match in pattern.finditer(text)
    ]


ADVISED: Final = [each for each in found(_OURS) if each[1] not in _PROSE]
ADVISED_SCRIPTS: Final = found(_SCRIPT)


def test_there_is_advice() -> None:
    assert {"enable", "disable", "doctor", "shadow"} <= {command for _, command, _ in ADVISED}
    assert {"install", "uninstall"} <= {script for _, script, _ in ADVISED_SCRIPTS}
    assert any("--url" in arguments for _, _, arguments in ADVISED_SCRIPTS)


@pytest.mark.parametrize(
    ("command", "arguments"), [each[1:] for each in ADVISED], ids=[each[0] for each in ADVISED]
)
def test_a_command_that_is_advised_is_there(command: str, arguments: list[str]) -> None:
    parse(cli, [command, *arguments])


@pytest.mark.parametrize(
    ("script", "arguments"),
    [each[1:] for each in ADVISED_SCRIPTS],
    ids=[each[0] for each in ADVISED_SCRIPTS],
)
def test_a_script_that_is_advised_is_there(
    script: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (SCRIPTS / script).is_file()
    if not arguments:
        return
    monkeypatch.syspath_prepend(str(SCRIPTS))
    group = import_module("installation")
    try:
        parse(getattr(group, script), arguments)
    finally:
        sys.modules.pop("installation", None)


def parse(command: click.Command, arguments: list[str]) -> None:
    """Read arguments as the command line does, and run nothing.

    Raises:
        click.UsageError: There is no such command, or it does not take them.
    """
    is_itself = isinstance(command, click.Group) and command.invoke_without_command
    names_none = not arguments or arguments[0].startswith("-")
    if not isinstance(command, click.Group) or (is_itself and names_none):
        words = takewhile(lambda each: each != "&&", arguments)
        # what the reader is to fill in, such as NAME, stands for a name that can be
        given = [
            each.lower() if each.isupper() and each.isalpha() else each
            for each in words
            if each != "--help"
        ]
        with contextlib.suppress(click.MissingParameter):  # a command may be named alone
            command.make_context(command.name or "", given).close()
        return
    if arguments == ["--help"]:
        return
    inner = command.get_command(click.Context(command), arguments[0])
    if inner is None:
        raise click.UsageError(f"there is no command {arguments[0]!r}")
    parse(inner, arguments[1:])


@pytest.mark.parametrize("arguments", [["enabel", "team-a"], ["doctor", "--no-such-option"]])
def test_what_is_not_there_would_be_noticed(arguments: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(cli, arguments)


def test_no_advice_names_a_component_that_does_not_write_the_ca() -> None:
    told = [text for path in SOURCES for _, text in texts(path) if "controller" in text.lower()]
    assert not [text for text in told if re.search(r"\bLet the controller\b", text)]
