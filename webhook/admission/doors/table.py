"""Which door a request goes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from webhook.admission.deadline import Deadline
from webhook.admission.doors import (
    answers,
    bindings,
    cluster_quotas,
    gates,
    jobs,
    mask,
    pods,
    quotas,
    resize,
    shadow,
)
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Allowed, Answer, Denied, Phase
from webhook.cluster.api import CLUSTER_DEFERRED_QUOTAS, ApiError
from webhook.quota.defaults import created_pod
from webhook.quota.deferral import QuotaScopeError
from webhook.quota.fields import InvalidFieldError

Door: TypeAlias = Callable[[DoorContext, AdmissionRequest, Deadline], Answer]

_CLUSTER_QUOTAS: Final = CLUSTER_DEFERRED_QUOTAS.group, CLUSTER_DEFERRED_QUOTAS.plural

DOORS: Final[Mapping[tuple[Phase, str, str, str], Door]] = {
    (Phase.MUTATING, "", "pods/binding", "CREATE"): bindings.stamp,
    (Phase.MUTATING, "", "bindings", "CREATE"): bindings.stamp,
    (Phase.MUTATING, "", "pods", "CREATE"): gates.create,
    (Phase.MUTATING, "batch", "jobs", "CREATE"): jobs.create,
    (Phase.MUTATING, "batch", "jobs", "UPDATE"): jobs.update,
    (Phase.MUTATING, "", "resourcequotas/status", "UPDATE"): mask.update,
    (Phase.VALIDATING, "", "pods", "CREATE"): pods.create,
    (Phase.VALIDATING, "", "pods", "UPDATE"): pods.update,
    (Phase.VALIDATING, "", "pods/binding", "CREATE"): bindings.bind,
    (Phase.VALIDATING, "", "bindings", "CREATE"): bindings.bind,
    (Phase.VALIDATING, "", "pods/resize", "UPDATE"): resize.update,
    (Phase.VALIDATING, "batch", "jobs", "CREATE"): jobs.create,
    (Phase.VALIDATING, "batch", "jobs", "UPDATE"): jobs.update,
    (Phase.VALIDATING, "batch", "cronjobs", "CREATE"): jobs.create,
    (Phase.VALIDATING, "batch", "cronjobs", "UPDATE"): jobs.update_set,
    (Phase.VALIDATING, "jobset.x-k8s.io", "jobsets", "CREATE"): jobs.create,
    (Phase.VALIDATING, "jobset.x-k8s.io", "jobsets", "UPDATE"): jobs.update_set,
    (Phase.VALIDATING, "", "resourcequotas", "CREATE"): quotas.create,
    (Phase.VALIDATING, "", "resourcequotas", "UPDATE"): quotas.update,
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "CREATE"): cluster_quotas.create,
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "UPDATE"): cluster_quotas.update,
}
"""(phase, API group, resource/subresource, operation) → door."""

_NEVER_REFUSE: Final[Mapping[Door, Callable[[AdmissionRequest], Allowed]]] = {
    mask.update: lambda _: mask.NOT_MASKED,
    gates.create: gates.in_doubt,
}
"""Door → what it says instead, whatever kept it from deciding."""

_OF_NO_NAMESPACE: Final = frozenset({cluster_quotas.create, cluster_quotas.update})
"""Doors for objects of the cluster, where nobody opts in."""

_KNOWN_RESOURCES: Final = frozenset(
    (group, resource.partition("/")[0]) for _, group, resource, _ in DOORS
)


def decide(context: DoorContext, request: AdmissionRequest, deadline: Deadline) -> Answer:
    """Answer a request.

    What cannot be read is refused with the path of the field, what cannot be decided now is
    refused for now, and what is none of our business is allowed.
    """
    request = _without_forged_state(request)
    if request.phase is Phase.SHADOW:
        return shadow.observe(context, request)
    door = DOORS.get((request.phase, request.group, request.path, request.operation))
    if door is None:
        return _no_door(request)
    answer = _through(door, context, request, deadline)
    instead = _NEVER_REFUSE.get(door)
    return instead(request) if instead is not None and isinstance(answer, Denied) else answer


def _without_forged_state(request: AdmissionRequest) -> AdmissionRequest:
    """Return the request, of a new pod without the state that the API server does not store."""
    is_new_pod = (request.group, request.path, request.operation) == ("", "pods", "CREATE")
    if not is_new_pod or request.object is None:
        return request
    return replace(request, object=created_pod(request.object))


def _through(
    door: Door, context: DoorContext, request: AdmissionRequest, deadline: Deadline
) -> Answer:
    try:
        is_of_namespace = door not in _OF_NO_NAMESPACE
        not_ours = _not_ours(context, request) if is_of_namespace else None
        return not_ours or _unanswerable(request, deadline) or door(context, request, deadline)
    except QuotaScopeError as err:
        return answers.unmatchable(err)
    except InvalidFieldError as err:
        return answers.unreadable(err)
    except ApiError as err:
        return answers.unreachable(err)


def _not_ours(context: DoorContext, request: AdmissionRequest) -> Allowed | None:
    if request.namespace in context.current_rules().exempt_namespaces:
        return Allowed(decision="exempt", door="exempt")
    if not context.view.is_opted_in(request.namespace):
        return Allowed(decision="not-opted-in", door="exempt")
    return None


def _no_door(request: AdmissionRequest) -> Allowed:
    if (request.group, request.resource) in _KNOWN_RESOURCES:
        return Allowed(decision="not-charged")
    resource = f"{request.path}.{request.group}" if request.group else request.path
    return Allowed(
        decision="unknown-resource",
        warnings=(f"deferred-quota has no rule for {resource}: its registration is too wide",),
    )


def _unanswerable(request: AdmissionRequest, deadline: Deadline) -> Denied | None:
    """Refuse a request that came too late, or lacks what every one of its kind carries."""
    if deadline.expired:
        return answers.undecided("the request's time ran out before it was decided")
    missing = ""
    if request.object is None:
        missing = "object"
    elif request.operation == "UPDATE" and request.old_object is None:
        missing = "oldObject"
    if not missing:
        return None
    message = f"request.{missing}: must be present for {request.operation} of {request.path}"
    return Denied(code=400, reason="BadRequest", message=message)
