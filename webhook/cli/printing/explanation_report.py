"""The answer of `explain`: a sentence and its evidence for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import print_structured, print_table
from webhook.kube.metadata import time_text
from webhook.operations.explain.entry import explanation_entry
from webhook.quota.amounts.resources import render
from webhook.quota.explaining.values import Explanation, NodeSummary, PendingCause

_NUMBERS: Final = ("QUOTA", "RESOURCE", "REQUESTED", "USED", "RESERVED", "HARD", "MISSING")
_CONSUMERS: Final = ("NAMESPACE", "POD", "STATE", "AMOUNTS")


def print_explanation(explained: Explanation, output: str) -> None:
    """Print an answer as text, JSON or YAML."""
    if output == "text":
        _print_text(explained)
    else:
        print_structured(explanation_entry(explained), output)


def _print_text(explained: Explanation) -> None:
    click.echo(click.style(printable(explained.text), bold=True))
    for line in _cause_lines(explained):
        click.echo(printable(line))
    numbers = [row for cause in explained.causes for row in _number_rows(cause)]
    if numbers:
        click.echo()
        print_table(_NUMBERS, numbers, right=range(2, len(_NUMBERS)))
    if explained.consumers:
        click.echo()
        print_table(
            _CONSUMERS,
            [
                (one.namespace, one.pod or "(all of it)", one.state.value, render(one.amounts))
                for one in explained.consumers
            ],
        )
    for line in _lines(explained):
        click.echo(printable(line) if line else "")


def _cause_lines(explained: Explanation) -> Iterator[str]:
    if len(explained.causes) > 1:
        for number, cause in enumerate(explained.causes, 1):
            yield f"  {number}. {cause.kind}: {cause.text}"


def _number_rows(cause: PendingCause) -> Iterator[tuple[str, ...]]:
    for one in cause.shortages:
        amounts = (one.requested, one.used, one.reserved, one.hard, one.missing)
        yield (cause.quota or "(a node)", one.resource, *map(str, amounts))


def _lines(explained: Explanation) -> Iterator[str]:
    if explained.nodes is not None:
        yield ""
        yield _node_line(explained.nodes)
    if explained.unblock:
        yield ""
        yield "What would unblock it:"
        yield from (f"  {one.action}: {one.text}" for one in explained.unblock)
    if explained.notes or explained.unknown:
        yield ""
    yield from (f"note: {one}" for one in explained.notes)
    yield from (f"not known: {one}" for one in explained.unknown)
    if explained.as_of is not None:
        yield f"as of {time_text(explained.as_of)}"


def _node_line(nodes: NodeSummary) -> str:
    why = ", ".join(f"{number} {kind}" for kind, number in nodes.reasons.items())
    best = ", ".join(f"{one.name} ({one.score})" for one in nodes.best)
    rest = f": {why}" if why else ""
    return f"{nodes.fit} of {nodes.total} nodes fit{rest}{f'; best: {best}' if best else ''}"
