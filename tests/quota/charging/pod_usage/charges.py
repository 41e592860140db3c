"""Expected charges, written short.

`charge(pod)` is what a pod is charged, as text. Tests put the expectation together from
`COUNTS` (every eligible pod), `requests(...)` (each under both of its keys) and `limits(...)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from webhook.quota.charging.pod_usage import pod_usage

ENDED: Mapping[str, str] = {"count/pods": "1"}
COUNTS: Mapping[str, str] = {"count/pods": "1", "pods": "1"}

NAMES = {"cpu": "cpu", "memory": "memory", "storage": "ephemeral-storage"}


def charge(pod: Mapping[str, object], now: datetime | str | None = None) -> dict[str, str]:
    """What the pod is charged: quota key → text of the amount."""
    return {key: str(amount) for key, amount in pod_usage(pod, now).items()}


def requests(**amounts: str) -> dict[str, str]:
    """Requests of `cpu`, `memory` and `storage` (ephemeral) under both spellings of their key."""
    named = {NAMES[name]: amount for name, amount in amounts.items()}
    return {**named, **{f"requests.{name}": amount for name, amount in named.items()}}


def limits(**amounts: str) -> dict[str, str]:
    """Limits of `cpu`, `memory` and `storage` (ephemeral)."""
    return {f"limits.{NAMES[name]}": amount for name, amount in amounts.items()}
