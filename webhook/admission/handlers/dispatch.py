"""Dispatch of requests: the table of handlers, and what precedes every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import (
    bindings,
    cluster_deferred_quotas,
    gating,
    jobs,
    pods,
    quota_status,
    resource_quotas,
    responses,
    shadow_pods,
)
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied, Phase
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import CLUSTER_DEFERRED_QUOTAS, ApiError
from webhook.quota.charging.deferral import QuotaScopeError
from webhook.quota.objects.defaults import created_pod

Handler: TypeAlias = Callable[[HandlerContext, AdmissionRequest, Deadline], AdmissionResponse]

_CLUSTER_QUOTAS: Final = CLUSTER_DEFERRED_QUOTAS.group, CLUSTER_DEFERRED_QUOTAS.plural

HANDLERS: Final[Mapping[tuple[Phase, str, str, str], Handler]] = {
    (Phase.MUTATING, "", "pods/binding", "CREATE"): bindings.pin_uid,
    (Phase.MUTATING, "", "bindings", "CREATE"): bindings.pin_uid,
    (Phase.MUTATING, "", "pods", "CREATE"): gating.gate_pod,
    (Phase.MUTATING, "batch", "jobs", "CREATE"): jobs.create,
    (Phase.MUTATING, "batch", "jobs", "UPDATE"): jobs.update,
    (Phase.MUTATING, "", "resourcequotas/status", "UPDATE"): quota_status.update,
    (Phase.VALIDATING, "", "pods", "CREATE"): pods.create,
    (Phase.VALIDATING, "", "pods", "UPDATE"): pods.update,
    (Phase.VALIDATING, "", "pods/binding", "CREATE"): bindings.bind,
    (Phase.VALIDATING, "", "bindings", "CREATE"): bindings.bind,
    (Phase.VALIDATING, "", "pods/resize", "UPDATE"): pods.resize,
    (Phase.VALIDATING, "batch", "jobs", "CREATE"): jobs.create,
    (Phase.VALIDATING, "batch", "jobs", "UPDATE"): jobs.update,
    (Phase.VALIDATING, "batch", "cronjobs", "CREATE"): jobs.create,
    (Phase.VALIDATING, "batch", "cronjobs", "UPDATE"): jobs.update_set,
    (Phase.VALIDATING, "jobset.x-k8s.io", "jobsets", "CREATE"): jobs.create,
    (Phase.VALIDATING, "jobset.x-k8s.io", "jobsets", "UPDATE"): jobs.update_set,
    (Phase.VALIDATING, "", "resourcequotas", "CREATE"): resource_quotas.create,
    (Phase.VALIDATING, "", "resourcequotas", "UPDATE"): resource_quotas.update,
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "CREATE"): cluster_deferred_quotas.create,
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "UPDATE"): cluster_deferred_quotas.update,
}
"""(phase, API group, resource/subresource, operation) → handler."""

_FAIL_OPEN: Final[Mapping[Handler, Callable[[AdmissionRequest], Allowed]]] = {
    quota_status.update: lambda _: quota_status.NOT_MASKED,
    gating.gate_pod: gating.gate_by_default,
}
"""Handler → what it says instead, whatever kept it from deciding."""

_CLUSTER_SCOPED: Final = frozenset({cluster_deferred_quotas.create, cluster_deferred_quotas.update})
"""Handlers for objects of the cluster, where nobody opts in."""

_KNOWN_RESOURCES: Final = frozenset(
    (group, resource.partition("/")[0]) for _, group, resource, _ in HANDLERS
)


def decide(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Answer a request.

    What cannot be read is refused with the path of the field, what cannot be decided now is
    refused for now, and what is none of our business is allowed.
    """
    request = _without_forged_state(request)
    if request.phase is Phase.SHADOW:
        return shadow_pods.observe(context, request)
    handler = HANDLERS.get((request.phase, request.group, request.path, request.operation))
    if handler is None:
        return _unhandled(request)
    answer = _handle(handler, context, request, deadline)
    instead = _FAIL_OPEN.get(handler)
    return instead(request) if instead is not None and isinstance(answer, Denied) else answer


def _without_forged_state(request: AdmissionRequest) -> AdmissionRequest:
    """Return the request, of a new pod without the state that the API server does not store."""
    is_new_pod = (request.group, request.path, request.operation) == ("", "pods", "CREATE")
    if not is_new_pod or request.object is None:
        return request
    return replace(request, object=created_pod(request.object))


def _handle(
    handler: Handler, context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    try:
        is_of_namespace = handler not in _CLUSTER_SCOPED
        not_ours = _skip_reason(context, request) if is_of_namespace else None
        return (
            not_ours or _invalid_request(request, deadline) or handler(context, request, deadline)
        )
    except QuotaScopeError as err:
        return responses.invalid_scope(err)
    except InvalidFieldError as err:
        return responses.invalid_field(err)
    except ApiError as err:
        return responses.api_unavailable(err)


def _skip_reason(context: HandlerContext, request: AdmissionRequest) -> Allowed | None:
    if request.namespace in context.policy.exempt_namespaces:
        return Allowed(decision="exempt", handler="exempt")
    if not context.view.is_opted_in(request.namespace):
        return Allowed(decision="not-opted-in", handler="exempt")
    return None


def _unhandled(request: AdmissionRequest) -> Allowed:
    if (request.group, request.resource) in _KNOWN_RESOURCES:
        return Allowed(decision="not-charged")
    resource = f"{request.path}.{request.group}" if request.group else request.path
    return Allowed(
        decision="unknown-resource",
        warnings=(f"deferred-quota has no rule for {resource}: its registration is too wide",),
    )


def _invalid_request(request: AdmissionRequest, deadline: Deadline) -> Denied | None:
    """Refuse a request that came too late, or lacks what every one of its kind carries."""
    if deadline.expired:
        return responses.try_again("the request's time ran out before it was decided")
    missing = ""
    if request.object is None:
        missing = "object"
    elif request.operation == "UPDATE" and request.old_object is None:
        missing = "oldObject"
    if not missing:
        return None
    message = f"request.{missing}: must be present for {request.operation} of {request.path}"
    return Denied(code=400, reason="BadRequest", message=message)
