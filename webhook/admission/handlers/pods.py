"""Pods that are created or updated.

A pod without a node takes nothing yet: only rules that do not depend on usage are applied. A pod
that is created with a node is charged like one that is bound.

Which quotas a pod needs is checked for every new pod. The registration for pods without a node is
`Ignore` all the same: an outage of this webhook must not stop creations in a namespace. The
handlers that charge, whose registrations are `Fail`, check again, so that such a pod does not run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import charging, managed_metadata, responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied
from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import ApiError
from webhook.quota.amounts.resources import excess, render
from webhook.quota.charging.coverage import (
    uncovered_growth,
)
from webhook.quota.charging.deferral import (
    TOO_LARGE,
    DeferredQuota,
    check_countable,
    claim_for_bind,
    claim_for_update,
    deferred_part,
    may_increase_usage,
    uncountable_fields,
    usage_by_quota,
)
from webhook.quota.charging.denials import name_quota
from webhook.quota.charging.evaluation import over_hard
from webhook.quota.charging.pod_usage import charged_to
from webhook.quota.charging.scopes import is_terminating
from webhook.quota.ledger.ledger import EMPTY, NEWEST, Claim, ReservationSource
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import SHARED_PREFIX, is_uid, object_name_errors
from webhook.quota.objects.qos import forged_qos_class
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.well_known import NEVER_GATING, gating_of


def create(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Decide on a new pod."""
    pod = Pod.from_object(request.object or {})
    check_countable(pod, context.policy.deferred_keys)
    quotas = context.view.quotas(request.namespace)
    if not pod.is_assigned:
        return evaluate(context, request, pod, quotas)
    refusal = denied_by_policy(context, request, pod, quotas)
    if refusal is not None:
        return refusal
    _require_identity(pod, "metadata")
    claim = claim_for_bind(
        pod, quotas.deferred, source=ReservationSource.CREATE, observed_version=NEWEST
    )
    if claim is not None and _is_name_taken(context, pod):
        return responses.name_taken(pod.name)
    if claim is not None and _runs_anyway(context, request, pod, claim):
        claim = replace(claim, skip_limits=True)
    return charging.charge(context, request, claim, quotas, deadline)


def evaluate(
    context: HandlerContext, request: AdmissionRequest, pod: Pod, quotas: NamespaceQuotaView
) -> Allowed | Denied:
    """Return what there is to say of a new pod without a node, which is what needs no usage.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    refusal = denied_by_policy(context, request, pod, quotas)
    if refusal is not None:
        return refusal
    applying = quotas.deferred.applying_to(pod)
    others = _other_managers(pod) if applying else ()
    return Allowed(decision="not-assigned", warnings=(*_never_fits(quotas, pod, applying), *others))


def denied_by_policy(
    context: HandlerContext, request: AdmissionRequest, pod: Pod, quotas: NamespaceQuotaView
) -> Denied | None:
    """Return how a new pod is refused whatever is used; None if it is not.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    forged = deny_qos_class(pod)
    if forged is not None:
        return forged
    if quotas.errors:
        return responses.try_again(quotas.errors[0])
    if not _is_enforced(context, request, pod):
        return None
    return _static_denial(context, request, pod, quotas, quotas.deferred.applying_to(pod))


def deny_qos_class(pod: Pod) -> Denied | None:
    """Refuse a QoS class that the client wrote itself: it decides which quotas apply."""
    message = forged_qos_class(pod)
    return responses.refused(403, "Forbidden", message) if message else None


def update(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Decide on a change of a pod.

    Our marks are not for users to change. A deadline that comes or goes moves a pod between quotas,
    and up to Kubernetes 1.31 a pod is resized by an update, where the API server lets it.

    Source: kubernetes v1.30, pkg/apis/core/validation/validation.go ValidatePodUpdate.
    """
    old, new = parse_update(context, request)
    touched = managed_metadata.changed_keys(old, new)
    if touched and not managed_metadata.may_modify(context, request):
        return managed_metadata.deny_update(touched, request, context.configuration)
    if is_terminating(old) != is_terminating(new):
        return charge_update(context, request, old, new, ReservationSource.UPDATE, deadline)
    if _sizes(old) != _sizes(new):
        return charge_update(context, request, old, new, ReservationSource.RESIZE, deadline)
    return Allowed(decision="marked" if touched else "not-charged")


def resize(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Charge what the pod grows by; shrinking is free, and given back once it is seen."""
    old, new = parse_update(context, request)
    return charge_update(context, request, old, new, ReservationSource.RESIZE, deadline)


def parse_update(context: HandlerContext, request: AdmissionRequest) -> tuple[Pod, Pod]:
    """Return the stored pod and the pod after the update.

    One that is stored with an amount that is too large to be counted may be changed, and healed.

    Raises:
        InvalidFieldError: One of them cannot be read, or asks for more than can be counted where
            the stored one does not.
    """
    keys = context.policy.deferred_keys
    old = Pod.from_stored(request.old_object or {}, field="oldObject")
    new = Pod.from_stored(request.object or {})
    stored = frozenset(uncountable_fields(old, keys))
    for path in uncountable_fields(new, keys):
        if path not in stored:
            raise InvalidFieldError(path, TOO_LARGE)
    return old, new


def charge_update(
    context: HandlerContext,
    request: AdmissionRequest,
    old: Pod,
    new: Pod,
    source: ReservationSource,
    deadline: Deadline,
) -> AdmissionResponse:
    """Charge the growth of a stored pod; of a waiting one, remember it.

    Raises:
        InvalidFieldError: The stored pod has no uid or no version, so that nothing could be
            remembered of it.
    """
    version = old.resource_version
    is_version = version.isascii() and version.isdecimal() and len(version) <= 20
    _require_identity(old, "oldObject.metadata")
    _require(is_version, "oldObject.metadata.resourceVersion", "must be a resource version")
    quotas = context.view.quotas(request.namespace)
    if quotas.errors:
        return responses.try_again(quotas.errors[0])
    deferred = context.policy.deferred_keys
    uncovered = charging.missing_coverage(
        context,
        request,
        quotas,
        lambda every, rules: uncovered_growth(old, new, every, rules, deferred),
    )
    if uncovered is not None:
        return uncovered
    waits = not old.is_assigned and not wants_no_gates(context, request)
    if (waits or old.is_assigned) and source is ReservationSource.UPDATE:
        refusal = _denied_in_new_scope(context, request, old, new, quotas)
        if refusal is not None:
            return refusal
    if waits and new.may_preempt:
        refusal = _denied_past_the_queue(context, request, old, new, quotas)
        if refusal is not None:
            return refusal
    claim = claim_for_update(old, new, quotas.deferred, source=source)
    if claim is None and not may_increase_usage(old, new):
        return charging.NOTHING_CHARGED
    if claim is not None and claim.is_intent and waits and not managed_metadata.is_gated(old):
        # A scheduler has the pod because it fitted, and would evict others once it does not fit any
        # more. So the change is reserved for, as by a release, or denied.
        claim = replace(claim, source=ReservationSource.RELEASE, is_intent=False)
    return charging.charge(context, request, claim, quotas, deadline)


def _sizes(pod: Pod) -> object:
    """Return what a pod requests, without what its node reports."""
    containers = (*pod.containers, *pod.init_containers)
    return [(each.requests, each.limits) for each in containers], pod.resources


def wants_no_gates(context: HandlerContext, request: AdmissionRequest) -> bool:
    """Return whether the namespace wants no gates.

    The registration of the gating handler leaves such namespaces out, but by the label's name of
    today only.
    """
    labels = context.view.labels(request.namespace)
    configured = context.configuration.gating
    return labels is not None and gating_of(labels, configured) == NEVER_GATING


def _denied_in_new_scope(
    context: HandlerContext,
    request: AdmissionRequest,
    old: Pod,
    new: Pod,
    quotas: NamespaceQuotaView,
) -> Denied | None:
    """Return how a pod is refused for good in the scope that it moves into, whatever is used.

    Without a node and a gate, a scheduler would evict others for it again and again; and its gate
    may be going just now, by a release that was decided before.
    """
    former = {quota.name for quota in quotas.deferred.applying_to(old)}
    entered = tuple(one for one in quotas.deferred.applying_to(new) if one.name not in former)
    if old.is_assigned:  # its growth has been checked for coverage
        return charging.unspecified(context, new, entered, gets_node=True)
    return charging.missing_requirement(context, request, new, quotas, entered, gets_node=True)


def _denied_past_the_queue(
    context: HandlerContext,
    request: AdmissionRequest,
    old: Pod,
    new: Pod,
    quotas: NamespaceQuotaView,
) -> Denied | None:
    """Return how a pod that may preempt is refused more of a quota once it is let go.

    How much such pods take without a node is bounded at their release (`quota.queue.preemptors`),
    and nowhere later. What is reserved for a pod is no measure of it: that ends, and its gate is
    not put back.
    """
    before = usage_by_quota(old, quotas.deferred)
    after = usage_by_quota(replace(new, resize_infeasible=False), quotas.deferred)
    grown = [name for name, taken in after.items() if excess(taken, before.get(name, EMPTY))]
    # a gated pod waits its turn for more, unless its gate is about to be removed
    is_going = not before or context.view.is_reserved(request.namespace, old.uid)
    if not grown or (managed_metadata.is_gated(old) and not is_going):
        return None
    moves = is_terminating(old) != is_terminating(new)
    field = "spec.activeDeadlineSeconds" if moves else "spec.containers[*].resources"
    detail = (
        f"may not have the pod take more of {name_quota(grown[0]).text} now: it is let go to its"
        " scheduler, and others may be evicted for it before its bind is decided; create it anew"
        " like this, so that it waits its turn, or change it once it has a node"
    )
    return responses.forbidden(FieldError("FieldValueForbidden", field, detail))


def _require_identity(pod: Pod, field: str) -> None:
    """Refuse a uid or a name that no stored pod has: a ledger would have to hold it."""
    _require(pod.uid != "", f"{field}.uid", "must be given")
    _require(is_uid(pod.uid), f"{field}.uid", "must be at most 128 printable characters")
    errors = object_name_errors(pod.name)
    _require(not errors, f"{field}.name", "; ".join(errors))


def _require(condition: bool, field: str, rule: str) -> None:
    """Refuse what no API server sends: a reservation made of it could not be read again."""
    if not condition:
        raise InvalidFieldError(field, rule)


def _is_name_taken(context: HandlerContext, pod: Pod) -> bool:
    """Return whether storage would refuse a new pod because another one has its name.

    The reservation of such a pod would keep quota from others until it expires. A pod that is
    deleted just now may still be found: the answer is then the one before the deletion.
    """
    try:
        stored = context.view.live_pod(pod.namespace, pod.name).pod
    except (ApiError, InvalidFieldError):
        return False  # so the pod is charged: a superfluous reservation expires
    return stored is not None and stored.uid != pod.uid


def _is_enforced(context: HandlerContext, request: AdmissionRequest, pod: Pod) -> bool:
    """Return whether a new pod may be refused; one that runs already may not, and is mirrored only.

    A kubelet mirrors pods; others can write the annotation too.
    """
    is_mirror = pod.is_mirror and managed_metadata.NODES_GROUP in request.groups
    return not is_mirror or context.policy.enforces_mirror_pods


def _runs_anyway(
    context: HandlerContext, request: AdmissionRequest, pod: Pod, claim: Claim
) -> bool:
    """Return whether a new pod that a quota has no room for is stored all the same.

    Not where namespaces share the quota: what others give back cannot be kept for it.
    """
    is_shared = any(name.startswith(SHARED_PREFIX) for name in claim.quotas)
    return not is_shared and not _is_enforced(context, request, pod)


def _static_denial(
    context: HandlerContext,
    request: AdmissionRequest,
    pod: Pod,
    quotas: NamespaceQuotaView,
    applying: tuple[DeferredQuota, ...],
) -> Denied | None:
    """Apply the rules that compare nothing with usage, ours first, then in the API server's order.

    Marks on a pod without a node are none of them: they are gone, or will be written anew.
    """
    forged = managed_metadata.forbidden(pod, request) if pod.is_assigned else []
    if forged and not managed_metadata.may_modify(context, request):
        return managed_metadata.deny_creation(forged, context.configuration)
    return charging.missing_requirement(
        context, request, pod, quotas, applying, gets_node=pod.is_assigned
    )


def _never_fits(
    quotas: NamespaceQuotaView, pod: Pod, applying: tuple[DeferredQuota, ...]
) -> tuple[str, ...]:
    """Warn of quotas that are too small for the pod even when nothing else is used."""
    usage = deferred_part(charged_to(pod), quotas.deferred.keys)
    found = [over_hard(quota.name, usage, {}, quota.hard) for quota in applying]
    return tuple(
        f"can never fit quota {over.quota}: requested {render(over.requested)},"
        f" limited {render(over.limited)}"
        for over in found
        if over is not None
    )


def _has_gate(name: str) -> Callable[[Pod], bool]:
    return lambda pod: name in pod.scheduling_gates


def _has_label(name: str) -> Callable[[Pod], bool]:
    return lambda pod: name in pod.labels


_OTHER_MANAGERS: Final[Mapping[str, tuple[str, Callable[[Pod], bool]]]] = {
    "kueue.x-k8s.io/queue-name": ("Kueue", _has_label("kueue.x-k8s.io/queue-name")),
    "kueue.x-k8s.io/admission": ("Kueue", _has_gate("kueue.x-k8s.io/admission")),
    "ApplicationAwareQuotaGate": ("AAQ", _has_gate("ApplicationAwareQuotaGate")),
}
"""A label or a scheduling gate → the manager whose it is, and whether a pod has it."""


def _other_managers(pod: Pod) -> tuple[str, ...]:
    """Return warnings that name, once each, other managers of quota for a pod (Kueue, AAQ).

    Such a pod runs when both let it go. That works, but may not be intended.
    """
    found: dict[str, str] = {}
    for sign, (owner, has) in _OTHER_MANAGERS.items():
        if has(pod):
            found.setdefault(owner, sign)
    return tuple(
        f"{owner} holds this pod for quota too ({sign}): it runs when both let it go"
        for owner, sign in found.items()
    )
