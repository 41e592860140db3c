"""Ledgers against the schema of their definition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.install.manifests import Manifest
from webhook.quota.amounts.quantity import Quantity
from webhook.quota.ledger.ledger import (
    Account,
    Condition,
    Ledger,
    QuotaRevision,
    Reservation,
    ReservationSource,
)

TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


CPU: Final = {"requests.cpu": Quantity.parse("500m")}
CONDITION: Final = Condition("Counted", "False", "Unreadable", "why", "2026-01-01T00:00:00Z")
RARE_LEDGER: Final = Ledger(
    {
        "q": Account(
            QuotaRevision("q", "uid-q", "hash"), hard=CPU, used=CPU, reserved={}, pending=CPU
        )
    },
    {
        one.uid: one
        for one in (
            Reservation(
                "u1",
                "p1",
                ReservationSource.UPDATE,
                CPU,
                {"q": {}},
                ("q",),
                serial=1,
                base_version=7,
            ),
            Reservation(
                "u2", "p2", ReservationSource.RESIZE, CPU, {}, ("q",), serial=2, is_intent=True
            ),
        )
    },
    pods_resource_version=1,
    serial=2,
    pods_barrier=1,
    conditions=(CONDITION,),
)
"""A ledger with every field that there is."""


def faults(value: object, wanted: Manifest, path: str = "status") -> Iterator[str]:
    """Say what the API server would refuse, or drop in silence."""
    if not isinstance(value, TYPES[wanted["type"]]) or (
        isinstance(value, bool) and wanted["type"] == "integer"
    ):
        yield f"{path}: {value!r} is not {wanted['type']}"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, wanted["items"], f"{path}[{index}]")
    elif isinstance(value, dict):
        known = wanted.get("properties", {})
        others = wanted.get("additionalProperties")
        yield from (
            f"{path}.{name}: missing" for name in wanted.get("required", ()) if name not in value
        )
        for name, item in value.items():
            inner = known.get(name, others)
            if inner is None:
                yield f"{path}.{name}: would be dropped"
            else:
                yield from faults(item, inner, f"{path}.{name}")


def parts(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        for item in value.values():
            yield from parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from parts(item)
