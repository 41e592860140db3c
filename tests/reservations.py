"""The lines of `status.reservations`, read by tests without the code that writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def reservations_in(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the reservations of a ledger's status as objects."""
    return [_read(line) for line in str(status.get("reservations") or "").split("\n") if line]


def _read(line: str) -> dict[str, Any]:
    if line.startswith("{"):
        found: dict[str, Any] = json.loads(line)
        return found
    uid, pod, source, serial, quotas, usage, *further = line.split(" ")
    read: dict[str, Any] = {
        "uid": uid,
        "pod": pod,
        "door": source,
        "serial": int(serial),
        "quotas": [] if quotas == "-" else quotas.split(","),
        "usage": {} if usage == "-" else dict(pair.split("=", 1) for pair in usage.split(",")),
    }
    for word in further:
        name, _, value = word.partition("=")
        read[name] = value or True
    return read
