"""What a pod says of its quota when a scheduler that asked us has found no node for it.

A scheduler prints the reason that it was given behind a count of nodes: `0/3 nodes are available:
3 quota exceeded: p1, requested: cpu=1, used: cpu=2, limited: cpu=2. ...`

Source: kubernetes v1.36, pkg/scheduler/framework/types.go FitError.Error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

_EXCEEDED: Final = "quota exceeded: "
_OURS: Final = re.compile(
    rf"\d+ (?:{_EXCEEDED}|failed quota: |insufficient quota to )", flags=re.ASCII
)
"""The beginnings of all that a scheduler is told; the last two are the API server's own."""


def exceeded_text(*, quota: str, requested: str, used: str, limited: str) -> str:
    """Word a refusal as a plugin of the scheduler would."""
    return f"{_EXCEEDED}{quota}, requested: {requested}, used: {used}, limited: {limited}"


def is_refused_by_quota(pod: Mapping[str, object]) -> bool:
    """Say whether a pod was found no node for because we told the scheduler that quota forbids it.

    Args:
        pod: The object; what cannot be read as such a pod is not one.
    """
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if not isinstance(conditions, Sequence):
        return False
    return any(_is_refusal(one) for one in conditions if isinstance(one, Mapping))


def _is_refusal(condition: Mapping[str, object]) -> bool:
    said = tuple(condition.get(name) for name in ("type", "status", "reason"))
    message = condition.get("message")
    is_unplaced = said == ("PodScheduled", "False", "Unschedulable")
    return is_unplaced and isinstance(message, str) and _OURS.search(message) is not None
