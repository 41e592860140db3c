"""The answer of `explain`: a sentence and its evidence for people, plain values for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import click

from webhook.cli.exit_codes import printable
from webhook.cli.printing.output import print_structured, print_table
from webhook.kube.metadata import time_text
from webhook.quota.amounts.resources import render, to_text
from webhook.quota.explaining.values import Explanation, NodeSummary, PendingCause, Unblock

SCHEMA_VERSION: Final = 1
"""Of `webhook/schemas/explain.schema.json`."""

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


def explanation_entry(explained: Explanation) -> dict[str, object]:
    """Return an answer as plain values, as the schema has them."""
    of_pod = {"pod": explained.pod} if explained.pod else {}
    return {
        "schemaVersion": SCHEMA_VERSION,
        "kind": explained.kind,
        "namespace": explained.namespace,
        "name": explained.name,
        **of_pod,
        "cause": None if explained.cause is None else explained.cause.value,
        "text": explained.text,
        "causes": [_cause_entry(one) for one in explained.causes],
        "who": [
            {
                "namespace": one.namespace,
                "pod": one.pod,
                "amounts": to_text(one.amounts),
                "state": one.state.value,
            }
            for one in explained.consumers
        ],
        "nodes": None if explained.nodes is None else _nodes_entry(explained.nodes),
        "unblock": [_unblock_entry(one) for one in explained.unblock],
        "notes": list(explained.notes),
        "unknown": list(explained.unknown),
        "asOf": None if explained.as_of is None else time_text(explained.as_of),
    }


def _cause_entry(cause: PendingCause) -> dict[str, object]:
    entry: dict[str, object] = {"cause": cause.kind.value, "text": cause.text}
    if cause.quota:
        entry["quota"] = cause.quota
    if cause.shortages:
        entry["resources"] = [
            {
                "resource": one.resource,
                "requested": str(one.requested),
                "used": str(one.used),
                "reserved": str(one.reserved),
                "hard": str(one.hard),
                "missing": str(one.missing),
            }
            for one in cause.shortages
        ]
    if cause.holder:
        entry["holder"] = cause.holder
    if cause.place:
        entry["place"] = cause.place
    return entry


def _nodes_entry(nodes: NodeSummary) -> dict[str, object]:
    return {
        "total": nodes.total,
        "fit": nodes.fit,
        "reasons": {kind.value: number for kind, number in nodes.reasons.items()},
        "best": [{"name": one.name, "score": one.score} for one in nodes.best],
    }


def _unblock_entry(one: Unblock) -> dict[str, object]:
    entry: dict[str, object] = {"action": one.action.value, "text": one.text}
    if one.quota:
        entry["quota"] = one.quota
    if one.resource:
        entry["resource"] = one.resource
    if one.amount is not None:
        entry["amount"] = str(one.amount)
    return entry
