"""Results on standard output: JSON and YAML for programs, aligned tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
import yaml

from webhook.cli.exit_codes import printable
from webhook.jsonfields.encoding import encode_json
from webhook.quota.amounts.resources import render, to_text

if TYPE_CHECKING:
    from webhook.operations.native_enforcement import OverQuota


def print_json(value: object) -> None:
    """Print plain values as indented JSON."""
    click.echo(msgspec.json.format(encode_json(value), indent=2))


def print_structured(value: object, output: str) -> None:
    """Print plain values as JSON or as YAML."""
    if output == "json":
        print_json(value)
    else:
        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def print_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()
) -> None:
    """Print rows under a head; see `table_text`."""
    click.echo(table_text(head, rows, right=right))


def note_lines(notes: Iterable[str]) -> list[str]:
    """Return a line for each note of a report."""
    return [f"note: {printable(note)}" for note in notes]


def over_text(over: OverQuota) -> str:
    """Return what is too much of a quota, for a line that begins with `over quota`."""
    return f"{over.quota}: used: {render(over.used)}, limited: {render(over.hard)}"


def over_entries(every: Iterable[OverQuota]) -> list[dict[str, object]]:
    """Return the same as plain values."""
    return [
        {"quota": one.quota, "used": to_text(one.used), "hard": to_text(one.hard)} for one in every
    ]


def table_text(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()
) -> str:
    """Return rows under a head, in columns as wide as their widest cell.

    Args:
        head: Names of the columns.
        rows: Cells; control characters are escaped.
        right: Columns that are aligned to the right, by index.
    """
    cells = [tuple(head), *(tuple(map(printable, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [">" if i in set(right) else "<" for i in range(len(head))]
    lines = [
        "  ".join(
            f"{cell:{align}{width}}"
            for cell, align, width in zip(row, aligned, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join((click.style(lines[0], bold=True), *lines[1:]))
