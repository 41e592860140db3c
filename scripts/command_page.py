"""What scripts/docs writes of docs/commands.md: the help of every command."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from webhook.cli.app import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
WIDTH = 100

HEAD = """\
# Commands

<!-- Written by scripts/docs from the help of the commands; do not edit. -->

`deferred-quota COMMAND`, and the same as `kubectl deferred-quota COMMAND` where the package is
installed. `--help` prints what stands here.
"""


def page() -> str:
    """Return the whole document."""
    lines = [HEAD]
    for path, text in _helps(cli, None, "deferred-quota"):
        lines += [f"{'###' if len(path.split()) > 2 else '##'} {path}", ""]
        lines += ["```text", text, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _helps(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, str]]:
    """Return the help of a command and of those below it, under their whole names."""
    context = command.make_context(name, [], parent, resilient_parsing=True, terminal_width=WIDTH)
    help_text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    yield context.command_path, help_text
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None and not below.hidden:
                yield from _helps(below, context, each)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
