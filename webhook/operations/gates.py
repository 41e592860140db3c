"""Remove our scheduling gate from pods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    PODS,
    ApiError,
    ClusterApi,
    ConflictError,
    InvalidError,
    ListOptions,
    NotFoundError,
    Object,
)
from webhook.operations.parallel_calls import in_parallel
from webhook.operations.reading import name_of, read_all
from webhook.operations.retry import Report, RetryTimer
from webhook.state.object_decoders import decode_pod
from webhook.state.well_known import SCHEDULING_GATE, gate_removal

WORKERS: Final = 8
_FRUITLESS_ROUNDS: Final = 5
_UNASSIGNED: Final = "spec.nodeName="
"""A pod with a node has no gates: the API server lets neither come to the other."""


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod that has our gate; `index` is the gate's place among all its gates."""

    namespace: str
    name: str
    uid: str
    index: int


@dataclass(frozen=True, slots=True)
class Stripped:
    """Removed gates of a namespace: how many went, and why others did not."""

    removed: int
    """Pods that had our gate and have it no more, whether this or a controller removed it."""
    problems: tuple[str, ...] = ()


def gate_of(raw: Object) -> GatedPod | None:
    """Return the pod if it has our gate.

    Raises:
        InvalidFieldError: It cannot be read.
    """
    pod = FieldReader(raw)
    meta = pod.child("metadata")
    gates = [gate.text("name") for gate in pod.child("spec").children("schedulingGates")]
    if SCHEDULING_GATE not in gates:
        return None
    return GatedPod(
        meta.text("namespace"), meta.text("name"), meta.text("uid"), gates.index(SCHEDULING_GATE)
    )


def gated_pods(api: ClusterApi, namespace: str | None) -> tuple[list[GatedPod], list[str]]:
    """Return the pods that have our gate, and words about pods that cannot be read.

    Raises:
        ApiError: The pods cannot be listed.
    """
    found = read_all(
        api,
        PODS,
        _gate_or_oddity,
        ListOptions(namespace, field_selector=_UNASSIGNED),
        decode=decode_pod,
    )
    gated = [each for each in found if isinstance(each, GatedPod)]
    return gated, [each for each in found if isinstance(each, str)]


def _gate_or_oddity(raw: Object) -> GatedPod | str | None:
    try:
        return gate_of(raw)
    except InvalidFieldError as err:
        return f"Pod {name_of(raw)}: {err}"


def strip_gates(
    api: ClusterApi,
    namespace: str,
    wait: RetryTimer,
    report: Report,
    *,
    before: Iterable[GatedPod] = (),
) -> Stripped:
    """Remove our gate from every pod of a namespace, until no pod has it.

    Nothing may put gates on any more when this begins. Pods that were on their way then are
    found by listing again: it is finished when two lists, as far apart as the API server's own
    caches may be behind, have none.

    Args:
        before: The pods that had the gate when the work began: a controller that finds the
            namespace opted out removes gates at the same time.

    Raises:
        ApiError: The pods cannot be listed.
    """
    seen = {(pod.namespace, pod.name) for pod in before}
    fruitless = 0
    is_settled = False
    while True:
        gated, odd = wait.retry(lambda: gated_pods(api, namespace))
        seen |= {(pod.namespace, pod.name) for pod in gated}
        if not gated:
            if is_settled:
                return Stripped(len(seen), tuple(odd))
            wait.wait_for_caches()
            is_settled = True
            continue
        is_settled = False
        done, problems = _strip(api, gated, wait)
        removed = len(seen) - (len(gated) - done)
        report(f"{namespace}: {removed} scheduling gates removed")
        fruitless = 0 if done else fruitless + 1
        if wait.is_over or fruitless >= _FRUITLESS_ROUNDS:
            left, odd = gated_pods(api, namespace)
            removed = len(seen - {(pod.namespace, pod.name) for pod in left})
            return Stripped(removed, (*odd, *(problems or _left(left))))
        if not done:
            wait.pause()


def _strip(api: ClusterApi, gated: list[GatedPod], wait: RetryTimer) -> tuple[int, list[str]]:
    """Remove the gates of some pods; return how many went, and why others did not."""
    outcomes = in_parallel(
        lambda pod: _remove(api, pod, wait), gated, workers=WORKERS, name="gates"
    )
    problems = [outcome for outcome in outcomes if isinstance(outcome, str)]
    return sum(outcome is True for outcome in outcomes), problems


def _remove(api: ClusterApi, pod: GatedPod, wait: RetryTimer) -> bool | str:
    """Remove the gate of a pod; return whether it is removed, or why it stays."""
    patch = gate_removal(pod.uid, pod.index)
    try:
        wait.retry(lambda: api.patch(PODS, pod.name, patch, namespace=pod.namespace))
    except (NotFoundError, ConflictError, InvalidError):
        return False  # gone, another pod, or another list of gates: listed again
    except ApiError as err:
        return f"pod {pod.namespace}/{pod.name} keeps its scheduling gate: {err.message}"
    return True


def _left(gated: list[GatedPod]) -> tuple[str, ...]:
    return tuple(
        f"pod {pod.namespace}/{pod.name} still has the scheduling gate {SCHEDULING_GATE}"
        for pod in gated
    )
