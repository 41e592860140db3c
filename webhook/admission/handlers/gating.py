"""Gating handler: new pods without a node get our scheduling gate, if a quota concerns them.

The scheduler ignores a pod with gates: it evicts no pod for it and triggers no autoscaler. The
controller removes the gate when quota is reserved for the pod.

The registration selects the namespaces, by the label of their gating. Nothing is denied here. In
doubt a pod is gated: the controller removes the gate from a pod that no quota concerns, while an
ungated pod that does not fit is denied at its bind again and again, and others are evicted for it
in vain. So a pod that a rule denies at its bind, whatever is used, is gated as well. The bind is
charged in any case, with a gate or without.

Where gating is `auto`, a pod gets no gate if there is enough room for it and for all pods before it
(`quota.queue.fast_path`), unless its bind might find no room for a reservation in the ledger.

If other webhooks add containers to the pod, this one is called again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import managed_metadata, pods
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.patch_builder import (
    PatchOperation,
    PatchTargetError,
    append,
    set_keys,
)
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Object
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import ApiError
from webhook.policy import queue_policy
from webhook.quota.amounts.resources import excess
from webhook.quota.charging.constraints import states_pod_level
from webhook.quota.charging.deferral import QuotaScopeError
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.ledger.ledger_room import is_crowded
from webhook.quota.objects.defaults import with_pod_level_defaults
from webhook.quota.objects.model import Pod
from webhook.quota.queue.fast_path import can_skip_gate, is_ahead_of
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, to_queued_pod
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.well_known import (
    AUTO_GATING,
    SCHEDULING_GATE,
    UNEVALUATED,
    UNEVALUATED_LABEL,
    UNGATED_ANNOTATION,
    gating_of,
)

NOT_GATED: Final = Allowed(decision="not-gated")
_UNDECIDABLE: Final = (ApiError, InvalidFieldError, QuotaScopeError)


@dataclass(frozen=True, slots=True)
class _GatingDecision:
    """Decision about a new pod."""

    decision: str
    patch: tuple[PatchOperation, ...] = ()
    written: frozenset[str] = frozenset()
    """Those of `managed_metadata.GATING_METADATA` that it writes."""
    warnings: tuple[str, ...] = ()
    """For the creator of the pod."""


def gate_pod(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Gate a new pod that takes some of what a quota defers; take marks away that are not its own.

    No user may mark a pod as let through.

    Raises:
        InvalidFieldError: The pod cannot be read.
        PatchTargetError: It has something else where a map or a list has to be.
    """
    raw = request.object or {}
    pod = Pod.from_object(raw)
    if pod.is_assigned:
        return NOT_GATED
    verdict = _decide(context, request, pod)
    fields: list[str] = []
    if managed_metadata.may_modify(context, request):
        stripped = managed_metadata.strip_forged(raw, kept=verdict.written)
    else:
        fields, stripped = managed_metadata.strip(raw, pod, kept=verdict.written)
    told = tuple(f"{field}: taken away, deferred-quota writes it itself" for field in fields)
    return Allowed(
        decision=verdict.decision,
        patch=(*stripped, *verdict.patch),
        warnings=(*told, *verdict.warnings),
    )


def gate_by_default(request: AdmissionRequest) -> Allowed:
    """Gate a pod without looking at quotas, as they cannot be asked about now."""
    raw = request.object
    if raw is None:
        return NOT_GATED
    try:
        patch = (*managed_metadata.strip_forged(raw), *_mark_unevaluated(raw))
    except PatchTargetError:
        return NOT_GATED  # no API server stores such a pod
    try:
        spec = FieldReader(raw).child("spec")  # other parts may be unreadable
        gates = [gate.text("name") for gate in spec.children("schedulingGates")]
        if spec.text("nodeName"):
            return NOT_GATED
        decision, gate = _with_gate(raw, is_gated=SCHEDULING_GATE in gates)
    except (InvalidFieldError, PatchTargetError):
        return Allowed(decision=NOT_GATED.decision, patch=patch)  # as above
    return Allowed(decision=decision, patch=(*patch, *gate))


def _decide(context: HandlerContext, request: AdmissionRequest, pod: Pod) -> _GatingDecision:
    """Decide on a pod without a node, and say of it what the handler for new pods would say.

    That handler refuses, and this one does not: what is to be refused gets a label, and only pods
    with the label come to that handler.
    """
    raw, is_gated = request.object or {}, managed_metadata.is_gated(pod)
    quotas = context.view.quotas(request.namespace)
    terms = _queue_criteria(context, quotas)
    forms = _storable_forms(pod)
    waiters = [to_queued_pod(form, SCHEDULING_GATE, since=0, terms=terms) for form in forms]
    needs_gate = any(waiter.needs_gate for waiter in waiters) and not pods.wants_no_gates(
        context, request
    )
    said = _evaluate(context, request, forms[0], quotas)
    if said is None:
        decision, gate = _with_gate(raw, is_gated=is_gated or not needs_gate)
        return _GatingDecision(
            decision, (*_mark_unevaluated(raw), *gate), frozenset({UNEVALUATED_LABEL})
        )
    if not needs_gate:
        return _GatingDecision(NOT_GATED.decision, warnings=said.warnings)
    token = "" if said.warnings else _fast_path_token(context, request, waiters, terms)
    if token:
        patch = set_keys(raw, ("metadata", "annotations"), {UNGATED_ANNOTATION: token})
        return _GatingDecision("ungated", patch, frozenset({UNGATED_ANNOTATION}))
    decision, gate = _with_gate(raw, is_gated=is_gated)
    return _GatingDecision(decision, gate, warnings=said.warnings)


def _queue_criteria(context: HandlerContext, quotas: NamespaceQuotaView) -> QueueCriteria:
    """Return what the controller judges the waiting pods of the namespace by."""
    rules = queue_policy(context.configuration, context.policy)
    return QueueCriteria(quotas.deferred, quotas.all_quotas, quotas.errors, rules)


def _storable_forms(pod: Pod) -> tuple[Pod, ...]:
    """Return the pod as it may be stored, with what the API server fills in.

    Without the feature PodLevelResources it drops `spec.resources`; with it, containers that ask
    for more than the pod as a whole are refused. Where they state nothing, the QoS class is that
    of the pod without them from 1.37 on.
    """
    if pod.resources is None:
        return (pod,)
    filled, without = with_pod_level_defaults(pod), replace(pod, resources=None)
    takes_more = excess(usage_of(without, now=None), usage_of(filled, now=None))
    return (filled, without) if takes_more or not states_pod_level(pod) else (filled,)


def _mark_unevaluated(raw: Object) -> tuple[PatchOperation, ...]:
    return set_keys(raw, ("metadata", "labels"), {UNEVALUATED_LABEL: UNEVALUATED})


def _evaluate(
    context: HandlerContext, request: AdmissionRequest, pod: Pod, quotas: NamespaceQuotaView
) -> Allowed | None:
    """Return what the rules for new pods say of one; None when they refuse it, or in doubt."""
    try:
        said = pods.evaluate(context, request, pod, quotas)
    except _UNDECIDABLE:
        return None
    return said if isinstance(said, Allowed) else None


def _fast_path_token(
    context: HandlerContext,
    request: AdmissionRequest,
    waiters: Sequence[QueuedPod],
    terms: QueueCriteria,
) -> str:
    """Return the token of a pod that needs no gate, as it delays no queued pod; or nothing.

    Only one that the rules for new pods have nothing to say about passes. `waiters` are the pod in
    each of the forms in which it may be stored.
    """
    configuration, namespace = context.configuration, request.namespace
    pod = waiters[0].pod
    labels = context.view.labels(namespace)
    if pod.is_gated or labels is None:
        return ""
    if gating_of(labels, configuration.gating) != AUTO_GATING:
        return ""
    known = context.view.ledger(namespace)
    ledger = None if known is None else known.ledger
    if ledger is None or is_crowded(ledger, configuration.limits.reservations_per_namespace):
        return ""
    return context.in_flight.try_admit(
        namespace,
        pod,
        fits=lambda underway, queued: all(
            can_skip_gate(waiter, terms, ledger, underway, queued) for waiter in waiters
        ),
        is_ahead=lambda waiting: any(
            is_ahead_of(waiting, waiter, SCHEDULING_GATE, terms) for waiter in waiters
        ),
        is_dry_run=request.dry_run,
    )


def _with_gate(raw: Object, *, is_gated: bool) -> tuple[str, tuple[PatchOperation, ...]]:
    if is_gated:
        return NOT_GATED.decision, ()
    return "gated", append(raw, ("spec", "schedulingGates"), {"name": SCHEDULING_GATE})
