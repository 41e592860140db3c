"""The answer of `explain` as plain values, as `webhook/schemas/explain.schema.json` has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from webhook.kube.metadata import time_text
from webhook.quota.amounts.resources import to_text
from webhook.quota.explaining.values import (
    Explanation,
    NodeSummary,
    PendingCause,
    Shortage,
    Unblock,
)

SCHEMA_VERSION: Final = 1


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


def shortage_entries(shortages: Iterable[Shortage]) -> list[dict[str, str]]:
    """Return what a quota lacks as plain values, by resource."""
    return [
        {
            "resource": one.resource,
            "requested": str(one.requested),
            "used": str(one.used),
            "reserved": str(one.reserved),
            "hard": str(one.hard),
            "missing": str(one.missing),
        }
        for one in shortages
    ]


def _cause_entry(cause: PendingCause) -> dict[str, object]:
    entry: dict[str, object] = {"cause": cause.kind.value, "text": cause.text}
    if cause.quota:
        entry["quota"] = cause.quota
    if cause.shortages:
        entry["resources"] = shortage_entries(cause.shortages)
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
