"""Answers to a scheduler about a pod: what its bind would get now.

The bind is tried out at the very handlers that decide it. So presence rules, exempt namespaces,
scopes and amounts are judged by the same code, and a reservation that the pod itself holds does not
count against it.

Two questions, two ways to be careful:

- Which nodes are left? The bind is a dry run, and nothing is written. What cannot be decided
  passes: the guard decides at the bind, whatever is said here, and a quota that cannot be looked at
  must not stop the scheduler. Only a refusal that stands leaves no node.
- Which pods may this one evict? Its quota is reserved, as by its bind: until its victims are gone
  it has no node, and others that ask meanwhile would find the same room. A reservation for a pod
  that is not bound runs out. What cannot be decided evicts none: an eviction cannot be undone, and
  the scheduler asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeAlias

from webhook.admission.deadline import Deadline
from webhook.admission.extender.protocol import PodIdentity
from webhook.admission.review import (
    AdmissionRequest,
    AdmissionResponse,
    Allowed,
    Denied,
    GroupVersionKind,
    Phase,
)
from webhook.quota.objects.scheduler_messages import exceeded_text

ReviewHandler: TypeAlias = Callable[[AdmissionRequest, Deadline], AdmissionResponse]

NOT_OPTED_IN_SECONDS: Final = 2.0
"""How long a namespace that had not opted in is taken for such. A scheduler asks for every pod of
the cluster, and the handlers ask the API server whenever their cache says no."""

_MAX_NOT_OPTED_IN: Final = 4096
_MAX_CHARACTERS: Final = 1024
"""Of a text that is given for every node; an event of the scheduler shows no more."""

_FINAL_CODES: Final = frozenset({403, 422})
"""Codes of refusals that stand until a quota or the pod changes. 404 and 409 are storage's own
words for a pod that is gone or gated; it says them itself at the bind."""

_NOT_OPTED_IN: Final = "not-opted-in"
_PASSTHROUGH: Final = "passthrough"
_NUMBERS: Final = ("quota", "requested", "used", "limited")


class BindTrial:
    """Tries binds out at the handlers that decide them. Safe to use from several threads.

    Args:
        handler: Answers a request; what it raises comes through.
        clock: Seconds that only grow.
    """

    def __init__(self, handler: ReviewHandler, clock: Callable[[], float] = time.monotonic) -> None:
        self._handler = handler
        self._clock = clock
        self._not_opted_in: dict[str, float] = {}

    def for_filter(self, request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        """Answer a bind for a scheduler that looks for nodes."""
        if self._not_opted_in.get(request.namespace, 0.0) > self._clock():
            return Allowed(decision=_NOT_OPTED_IN)
        answer = self._handler(request, deadline)
        if answer.decision == _NOT_OPTED_IN:
            self._remember(request.namespace)
        return answer

    def for_preempt(self, request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        """Answer a bind for a scheduler that is about to evict: by nothing that is remembered."""
        return self._handler(request, deadline)

    def _remember(self, namespace: str) -> None:
        if len(self._not_opted_in) >= _MAX_NOT_OPTED_IN:
            self._not_opted_in.clear()
        self._not_opted_in[namespace] = self._clock() + NOT_OPTED_IN_SECONDS


def bind_request(pod: PodIdentity, *, dry_run: bool = True) -> AdmissionRequest:
    """Make the request of a pod's bind. The node is left open: quota does not depend on it."""
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return AdmissionRequest(
        uid=pod.uid,
        phase=Phase.VALIDATING,
        operation="CREATE",
        group="",
        version="v1",
        resource="pods",
        subresource="binding",
        kind=GroupVersionKind("", "v1", "Binding"),
        name=pod.name,
        namespace=pod.namespace,
        dry_run=dry_run,
        object={"apiVersion": "v1", "kind": "Binding", "metadata": metadata},
    )


def failure_message(answer: AdmissionResponse) -> str:
    """Return why no node is left for the pod; empty when all are."""
    if isinstance(answer, Allowed) or answer.code not in _FINAL_CODES:
        return ""
    return _cut(_reason(answer))


def may_evict(answer: AdmissionResponse) -> bool:
    """Return whether pods may be evicted for the pod.

    Not for one that cannot be bound any more either, because it has a node or is being deleted.
    """
    return isinstance(answer, Allowed) and answer.decision != _PASSTHROUGH


def _reason(answer: Denied) -> str:
    """Word a refusal as a scheduler's plugin would: it is printed behind a count of nodes."""
    if not all(answer.audit.get(name) for name in _NUMBERS):
        return answer.message
    return exceeded_text(**{name: answer.audit[name] for name in _NUMBERS})


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 3]}..."
