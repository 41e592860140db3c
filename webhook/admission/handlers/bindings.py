"""Binds: a pod gets its node, through `pods/binding` or the older `bindings`.

The object of the request is a Binding, so the pod has to be looked up. The cache is good enough for
a pod that waits; in any other case the API server is asked.

A Binding without a uid is for whatever pod has the name when storage looks, which need not be the
pod that is charged. Therefore the mutating handler writes the uid of the pod into it, and the
validating handler refuses a Binding without one.

Storage refuses to bind a pod that is assigned, being deleted or of another uid, and none of these
can change back: such a request passes, uncharged, so that the client gets storage's own message. A
pod that is missing or gated may change before storage looks, and would then be bound uncharged: it
is refused here, with the code and message of storage. So is a name that no pod can have: the API
server validates the name of the older `bindings` only when it writes.

Storage copies the labels and annotations of a Binding to the pod: those that only we may write are
refused, unless the pod has the same.

The rules for new pods (resources that a quota obliges containers to name, quotas that a pod needs,
a forged QoS class) are applied once more: the pod may have been created while no handler was
called, because the registration for pods without a node is `failurePolicy: Ignore`.

If `nodeFit` is on, the node is judged as its kubelet will judge it. A scheduler has done that
already; other clients that bind pods may not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import charging, managed_metadata, pods, responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.patch_builder import set_keys
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed
from webhook.config import BindNodeFit
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.deferral import check_countable, claim_for_bind
from webhook.quota.ledger.ledger import ReservationSource, Undecided
from webhook.quota.objects.model import Pod
from webhook.state.cluster_view import PodLookup
from webhook.state.nodes.bind_fit import PendingBind

_PASS_THROUGH: Final = Allowed(decision="passthrough")


@dataclass(frozen=True, slots=True)
class _Binding:
    """Fields of a Binding; an absent uid or node is empty."""

    name: str
    uid: str
    node: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def pin_uid(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Pin the pod's uid, so that no other pod of that name is bound.

    There must be a pod to pin: one that comes later would be bound whatever it is. Nothing else is
    added: storage merges annotations of a Binding into the pod whatever their size, and refuses
    every later change of a pod that has more than 262,144 bytes of them.

    Source: kubernetes v1.36, pkg/registry/core/pod/storage/storage.go setPodNodeAndMetadata;
    apimachinery/pkg/api/validation/objectmeta.go ValidateAnnotations.
    """
    binding = _parse_binding(request)
    missing = responses.nonexistent_pod(binding.name)
    if missing is not None:
        return missing
    if binding.uid:
        return Allowed(decision="pinned")
    pod = context.view.pod(request.namespace, binding.name).pod
    if pod is None:
        return responses.not_found(binding.name)
    patch = set_keys(request.object or {}, ("metadata",), {"uid": pod.uid})
    return Allowed(decision="pinned", patch=patch)


def bind(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Charge the pod, if storage can bind it at all."""
    binding = _parse_binding(request)
    missing = responses.nonexistent_pod(binding.name)
    if missing is not None:
        return missing
    if not binding.uid:
        return responses.missing_uid(binding.name)
    lookup = context.view.pod(request.namespace, binding.name)
    if not lookup.is_live and _unbindable_answer(lookup.pod, binding) is not None:
        lookup = context.view.live_pod(request.namespace, binding.name)
    answer = _bind(context, request, binding, lookup, deadline)
    if answer is None:
        lookup = context.view.live_pod(request.namespace, binding.name)
        answer = _bind(context, request, binding, lookup, deadline)
    return answer or responses.try_again("the pod keeps changing")


def _bind(
    context: HandlerContext,
    request: AdmissionRequest,
    binding: _Binding,
    lookup: PodLookup,
    deadline: Deadline,
) -> AdmissionResponse | None:
    """Decide for the pod of a lookup; None when it has to be looked up again, live."""
    pod, answer = lookup.pod, _unbindable_answer(lookup.pod, binding)
    if pod is None or answer is not None:
        return answer
    added = managed_metadata.added_by_binding(binding.labels, binding.annotations, pod)
    if added and not lookup.is_live:
        return None  # a pod in the cache has no labels
    if added and not managed_metadata.may_modify(context, request):
        return managed_metadata.deny_creation(added, context.configuration)
    return _judge_and_charge(context, request, binding, lookup, deadline)


def _judge_and_charge(
    context: HandlerContext,
    request: AdmissionRequest,
    binding: _Binding,
    lookup: PodLookup,
    deadline: Deadline,
) -> AdmissionResponse | None:
    """Charge the pod unless its node is refused; a warning about that is added to the answer."""
    pod, mode, judge = lookup.pod, context.configuration.node_fit, context.node_fit
    assert pod is not None  # noqa: S101 - the caller looked
    # A Binding without a node is the preempt call of a scheduler's extender.
    if not binding.node and context.view.is_reserved(request.namespace, pod.uid):
        # The reservation of a released pod lasts longer than that of a bind, and promises to other
        # pods do not count against it: it stays as it is.
        request = replace(request, dry_run=True)
    if mode is BindNodeFit.OFF or not binding.node:
        return _charge(context, request, pod, lookup.observed_version, deadline)
    bind = PendingBind(
        namespace=request.namespace,
        name=binding.name,
        uid=pod.uid,
        node=binding.node,
        dry_run=request.dry_run,
    )
    objection = judge.judge(bind, is_confirmed=mode is BindNodeFit.DENY)
    if objection is not None and objection.may_deny and mode is BindNodeFit.DENY:
        return responses.node_refused(objection)
    answer = None
    try:
        answer = _charge(context, request, pod, lookup.observed_version, deadline)
    finally:
        # a dry run has taken no room on the node; another bind of the same pod may have
        if not (request.dry_run or isinstance(answer, Allowed)):
            judge.forget(pod.uid)
    if objection is None or answer is None:
        return answer
    return replace(answer, warnings=(*answer.warnings, objection.message))


def _charge(
    context: HandlerContext, request: AdmissionRequest, pod: Pod, seen: int, deadline: Deadline
) -> AdmissionResponse | None:
    check_countable(pod, context.policy.deferred_keys)
    quotas = context.view.quotas(request.namespace)
    if quotas.errors:
        return responses.try_again(quotas.errors[0])
    applying = quotas.deferred.applying_to(pod)
    refusal = pods.deny_qos_class(pod) or charging.missing_requirement(
        context, request, pod, quotas, applying, gets_node=True
    )
    if refusal is not None:
        return refusal
    claim = claim_for_bind(
        pod,
        quotas.deferred,
        source=ReservationSource.BIND,
        observed_version=seen,
        applying=applying,
    )
    if claim is None:
        return charging.allow_uncharged(context, request, quotas)
    outcome = charging.reserve(context, request, claim, quotas, deadline)
    if isinstance(outcome, Undecided) and outcome.is_view_old:
        return None
    return charging.response(outcome, claim, dry_run=request.dry_run)


def _unbindable_answer(pod: Pod | None, binding: _Binding) -> AdmissionResponse | None:
    """Return the answer about a pod that storage cannot bind as it is; None where it can."""
    if pod is None:
        return responses.not_found(binding.name)
    if pod.is_assigned or pod.is_deleting or binding.uid != pod.uid:
        return _PASS_THROUGH
    return responses.gated(binding.name) if pod.is_gated else None


def _parse_binding(request: AdmissionRequest) -> _Binding:
    raw = FieldReader(request.object or {})
    metadata = raw.child("metadata")
    return _Binding(
        metadata.text("name") or request.name,
        metadata.text("uid"),
        raw.child("target").text("name"),
        metadata.string_map("labels"),
        metadata.string_map("annotations"),
    )
