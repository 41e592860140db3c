"""Pods that are created without a node get our scheduling gate, if a quota concerns them.

The scheduler leaves a pod with gates alone: it evicts nobody for it and wakes no autoscaler. The
controller takes the gate off when quota is reserved for the pod.

Whether a namespace wants gates is the registration's business, which goes by its labels. Nothing is
refused here. In doubt a pod is gated: the controller takes the gate off what no quota concerns,
while a pod without a gate can only be refused, again and again, at its bind. The bind is charged in
any case, with a gate or without.

Other webhooks may add containers to the pod, and then this one is asked again.
"""

from __future__ import annotations

from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.doors import marks
from webhook.admission.doors.context import DoorContext
from webhook.admission.patches import PatchOperation, PatchTargetError, append
from webhook.admission.review import AdmissionRequest, Allowed, Answer, Object
from webhook.quota.deferral import QuotaScopeError
from webhook.quota.fields import InvalidFieldError
from webhook.quota.objects import Pod
from webhook.quota.pods import usage_of
from webhook.state.names import GATE

NOT_GATED: Final = Allowed(decision="not-gated")


def create(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Gate a new pod that takes some of what a quota defers; take marks away that are not its own.

    Raises:
        InvalidFieldError: The pod cannot be read.
        PatchTargetError: It has something else where a map or a list has to be.
    """
    raw = request.object or {}
    pod = Pod.from_object(raw)
    if pod.is_assigned:
        return NOT_GATED
    gate = _gate(raw, pod) if _is_concerned(context, request, pod) else ()
    if marks.may_write(request, context.current_configuration()):
        return _answer(gate, (), ())
    fields, patch = marks.taken_away(raw, pod)
    warnings = tuple(f"{field}: taken away, deferred-quota writes it itself" for field in fields)
    return _answer(gate, patch, warnings)


def in_doubt(request: AdmissionRequest) -> Allowed:
    """Gate a pod without looking at quotas, as they cannot be asked about now."""
    try:
        pod = Pod.from_object(request.object or {})
        if request.object is None or pod.is_assigned:
            return NOT_GATED
        return _answer(_gate(request.object, pod), (), ())
    except (InvalidFieldError, PatchTargetError):
        return NOT_GATED  # the API server, or the validating doors, say what is wrong with it


def _is_concerned(context: DoorContext, request: AdmissionRequest, pod: Pod) -> bool:
    """Say whether the pod takes something that a quota of its namespace defers, or may."""
    quotas = context.view.quotas(request.namespace)
    if quotas.unreadable:
        return True
    try:
        applying = quotas.deferred.applying_to(pod)
    except QuotaScopeError:
        return True
    usage = usage_of(pod, now=None)
    return any(usage.get(name) for quota in applying for name in quota.hard)


def _gate(raw: Object, pod: Pod) -> tuple[PatchOperation, ...]:
    if marks.is_gated(pod):
        return ()
    return append(raw, ("spec", "schedulingGates"), {"name": GATE})


def _answer(
    gate: tuple[PatchOperation, ...],
    stripped: tuple[PatchOperation, ...],
    warnings: tuple[str, ...],
) -> Allowed:
    decision = "gated" if gate else "not-gated"
    return Allowed(decision=decision, patch=(*gate, *stripped), warnings=warnings)
