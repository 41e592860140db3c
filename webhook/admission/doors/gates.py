"""Pods that are created without a node get our scheduling gate, if a quota concerns them.

The scheduler leaves a pod with gates alone: it evicts nobody for it and wakes no autoscaler. The
controller takes the gate off when quota is reserved for the pod.

Whether a namespace wants gates is the registration's business, which goes by its labels. Nothing is
refused here. In doubt a pod is gated: the controller takes the gate off what no quota concerns,
while a pod without a gate can only be refused, again and again, at its bind, and others be evicted
for it in vain. So what the bind refuses whatever is used, by a rule, waits behind the gate as well.
The bind is charged in any case, with a gate or without.

Where the pacing is `auto`, a pod that finds enough room for itself and all before it gets no gate
(`quota.passage`).

Other webhooks may add containers to the pod, and then this one is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.doors import marks, pods
from webhook.admission.doors.context import DoorContext
from webhook.admission.patches import (
    PatchOperation,
    PatchTargetError,
    append,
    set_keys,
)
from webhook.admission.review import AdmissionRequest, Allowed, Answer, Object
from webhook.admission.rules import line_rules_of
from webhook.cluster.api import ApiError
from webhook.quota.deferral import QuotaScopeError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.ledger import excess
from webhook.quota.line import Terms, Waiter, waiter_of
from webhook.quota.objects import Pod
from webhook.quota.passage import may_pass, stands_before
from webhook.quota.pods import usage_of
from webhook.state.names import (
    AUTO_PACING,
    GATE,
    LET_THROUGH_ANNOTATION,
    NO_PACING,
    UNJUDGED,
    UNJUDGED_LABEL,
)
from webhook.state.pacing import pacing_of
from webhook.state.quota_cache import QuotasSeen

NOT_GATED: Final = Allowed(decision="not-gated")
_NO_ANSWER: Final = (ApiError, InvalidFieldError, QuotaScopeError)


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What becomes of a new pod.

    Attributes:
        decision: In one word.
        patch: What does it.
        marks: Those of `marks.GATE_DOOR_MARKS` that it writes.
        warnings: What its creator is told.
    """

    decision: str
    patch: tuple[PatchOperation, ...] = ()
    marks: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()


def create(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Gate a new pod that takes some of what a quota defers; take marks away that are not its own.

    Nobody may say of a pod that it was let through where it was not.

    Raises:
        InvalidFieldError: The pod cannot be read.
        PatchTargetError: It has something else where a map or a list has to be.
    """
    raw = request.object or {}
    pod = Pod.from_object(raw)
    if pod.is_assigned:
        return NOT_GATED
    verdict = _verdict(context, request, pod)
    fields: list[str] = []
    if marks.may_write(request, context.current_configuration(), context.current_rules().own_users):
        stripped = marks.untrue_taken_away(raw, kept=verdict.marks)
    else:
        fields, stripped = marks.taken_away(raw, pod, kept=verdict.marks)
    told = tuple(f"{field}: taken away, deferred-quota writes it itself" for field in fields)
    return Allowed(
        decision=verdict.decision,
        patch=(*stripped, *verdict.patch),
        warnings=(*told, *verdict.warnings),
    )


def in_doubt(request: AdmissionRequest) -> Allowed:
    """Gate a pod without looking at quotas, as they cannot be asked about now."""
    raw = request.object
    if raw is None:
        return NOT_GATED
    try:
        patch = (*marks.untrue_taken_away(raw), *_unjudged(raw))
    except PatchTargetError:
        return NOT_GATED  # no API server stores it
    try:
        pod = Pod.from_object(raw)
        decision, gate = _gated(raw, pod)
    except (InvalidFieldError, PatchTargetError):
        return Allowed(decision=NOT_GATED.decision, patch=patch)  # others say what is wrong
    return NOT_GATED if pod.is_assigned else Allowed(decision=decision, patch=(*patch, *gate))


def _verdict(context: DoorContext, request: AdmissionRequest, pod: Pod) -> _Verdict:
    """Decide on a pod without a node, and say of it what the door for new pods would say.

    That door refuses, and this one does not: what is to be refused gets a label, and only pods with
    the label come to that door.
    """
    raw = request.object or {}
    quotas = context.view.quotas(request.namespace)
    terms = _terms(context, quotas)
    waiters = [waiter_of(form, GATE, since=0, terms=terms) for form in _storable_forms(pod)]
    needs_gate = any(waiter.needs_gate for waiter in waiters) and not _is_spared(context, request)
    said = _judged(context, request, pod, quotas)
    if said is None:
        decision, gate = _gated(raw, pod) if needs_gate else (NOT_GATED.decision, ())
        return _Verdict(decision, (*_unjudged(raw), *gate), frozenset({UNJUDGED_LABEL}))
    if not needs_gate:
        return _Verdict(NOT_GATED.decision, warnings=said.warnings)
    token = "" if said.warnings else _passing(context, request, waiters, terms)
    if token:
        patch = set_keys(raw, ("metadata", "annotations"), {LET_THROUGH_ANNOTATION: token})
        return _Verdict("ungated", patch, frozenset({LET_THROUGH_ANNOTATION}))
    decision, gate = _gated(raw, pod)
    return _Verdict(decision, gate, warnings=said.warnings)


def _is_spared(context: DoorContext, request: AdmissionRequest) -> bool:
    """Return whether the namespace wants no gates.

    The registration leaves such namespaces out, but by the label's name of today only.
    """
    labels = context.view.labels(request.namespace)
    configured = context.current_configuration().pacing
    return labels is not None and pacing_of(labels, configured) == NO_PACING


def _terms(context: DoorContext, quotas: QuotasSeen) -> Terms:
    """Return what the controller judges the waiting pods of the namespace by."""
    rules = line_rules_of(context.current_configuration(), context.current_rules())
    return Terms(quotas.deferred, quotas.every, quotas.unreadable, rules)


def _storable_forms(pod: Pod) -> tuple[Pod, ...]:
    """Return the pod, and what becomes of it where the API server drops `spec.resources`.

    It does without the feature PodLevelResources. With it, containers that ask for more than the
    pod as a whole are refused.
    """
    if pod.resources is None:
        return (pod,)
    without = replace(pod, resources=None)
    takes_more = excess(usage_of(without, now=None), usage_of(pod, now=None))
    return (pod, without) if takes_more else (pod,)


def _unjudged(raw: Object) -> tuple[PatchOperation, ...]:
    return set_keys(raw, ("metadata", "labels"), {UNJUDGED_LABEL: UNJUDGED})


def _judged(
    context: DoorContext, request: AdmissionRequest, pod: Pod, quotas: QuotasSeen
) -> Allowed | None:
    """Return what the rules for new pods say of one; None when they refuse it, or in doubt."""
    try:
        said = pods.judged(context, request, pod, quotas)
    except _NO_ANSWER:
        return None
    return said if isinstance(said, Allowed) else None


def _passing(
    context: DoorContext, request: AdmissionRequest, waiters: Sequence[Waiter], terms: Terms
) -> str:
    """Return the token of a pod that needs no gate, as it keeps nobody waiting; or nothing.

    Only one that the rules for new pods have nothing to say about passes. `waiters` are the pod in
    each of the forms in which it may be stored.
    """
    configuration, namespace = context.current_configuration(), request.namespace
    pod = waiters[0].pod
    labels = context.view.labels(namespace)
    if context.underway is None or pod.is_gated or labels is None:
        return ""
    if pacing_of(labels, configuration.pacing) != AUTO_PACING:
        return ""
    known = context.view.ledger(namespace)
    ledger = None if known is None else known.ledger
    return context.underway.let_through(
        namespace,
        pod,
        fits=lambda underway, queued: all(
            may_pass(waiter, terms, ledger, underway, queued) for waiter in waiters
        ),
        stands_before=lambda waiting: any(
            stands_before(waiting, waiter, GATE, terms) for waiter in waiters
        ),
        is_dry_run=request.dry_run,
    )


def _gated(raw: Object, pod: Pod) -> tuple[str, tuple[PatchOperation, ...]]:
    if marks.is_gated(pod):
        return NOT_GATED.decision, ()
    return "gated", append(raw, ("spec", "schedulingGates"), {"name": GATE})
