"""Messages about quota on pods for which a scheduler that asks us has found no node.

A scheduler prints the reason that it was given behind a count of nodes: `0/3 nodes are available:
3 quota exceeded: p1, requested: cpu=1, used: cpu=2, limited: cpu=2. ...`

Source: kubernetes v1.36, pkg/scheduler/framework/types.go FitError.Error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from webhook.quota.objects.names import BIND_ENTRY, POOL_PREFIX, SHARED_PREFIX

_EXCEEDED: Final = "quota exceeded: "
_NAME: Final = r"(?:cdq/)?[a-z0-9][a-z0-9.-]*"
_KEY: Final = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_FORMS: Final = (
    rf"{_EXCEEDED}{_NAME}, requested: {_KEY}=\S*(?:, used: |.{{0,8}}\.\.\.)",
    rf"failed quota: {_NAME}: must specify {_KEY} for: ",
    rf"insufficient quota to consume: {_KEY}",
    r"insufficient quota to match these scopes: \[\{",
)
"""Beginning of our answer to a scheduler when quota forbids a pod; the rest may be cut off.

The first is ours, the others are the API server's own.
"""
_REASON: Final = r'0/\d+ nodes are available: (?:\d+ [^"]*, )?\d+ '
"""Beginning of a message up to one of its reasons.

Reasons are sorted, separated by commas, each behind the number of its nodes; what else a scheduler
has to say stands in their place without a number, or behind them. What a tenant chooses freely,
such as the name of a claim that is not there, stands in quotes: nothing behind one is a reason.

Source: kubernetes v1.36, pkg/scheduler/framework/types.go FitError.Error.
"""
_OURS: Final = re.compile(rf"{_REASON}(?:{'|'.join(_FORMS)})", flags=re.ASCII)

_BIND_DENIED: Final = re.compile(
    rf'running Bind plugin "[^"]*": admission webhook "{re.escape(BIND_ENTRY)}" denied the request:'
    r" elastic pool \S+ is used up"
)
"""Beginning of a message: later words can be those of a tenant, as in an expression of a claim.

Source: kubernetes v1.36, pkg/scheduler/framework/runtime/framework.go runBindPlugin.
"""

_POOL_EXCEEDED: Final = re.compile(
    rf"{_REASON}{_EXCEEDED}{SHARED_PREFIX}{re.escape(POOL_PREFIX)}", flags=re.ASCII
)


def exceeded_text(*, quota: str, requested: str, used: str, limited: str) -> str:
    """Word a refusal as a plugin of the scheduler would."""
    return f"{_EXCEEDED}{quota}, requested: {requested}, used: {used}, limited: {limited}"


def says_pool_used_up(reason: str, message: str) -> bool:
    """Return whether a scheduler had found a node for a pod, and an elastic pool had no room.

    Args:
        reason: Of the condition by which the pod has not been scheduled.
        message: Of it.
    """
    if reason == "SchedulerError":
        return _BIND_DENIED.match(message) is not None
    return reason == "Unschedulable" and _POOL_EXCEEDED.match(message) is not None


def is_denied_by_quota(pod: Mapping[str, object]) -> bool:
    """Return whether a pod is unschedulable by our answer to the scheduler.

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
    return is_unplaced and isinstance(message, str) and _OURS.match(message) is not None
