"""Dispatch of requests: the table of handlers, and what precedes every one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import (
    bindings,
    cluster_deferred_quotas,
    elastic_quotas,
    gating,
    jobs,
    pods,
    resource_quotas,
    responses,
    shadow_pods,
)
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied, Phase
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    ApiError,
)
from webhook.quota.charging.deferral import QuotaScopeError
from webhook.quota.objects.defaults import created_pod

Handler: TypeAlias = Callable[[HandlerContext, AdmissionRequest, Deadline], AdmissionResponse]


@dataclass(frozen=True, slots=True)
class Route:
    """Handler of one kind of request."""

    name: str
    """The value of `handler` in metrics and log, unless the answer names another one."""
    handler: Handler
    is_cluster_scoped: bool = False
    """For objects of the cluster, which no namespace opts in."""
    fallback: Callable[[AdmissionRequest], Allowed] | None = None
    """Returns what is answered instead of any denial."""
    fails_closed: Callable[[AdmissionRequest], bool] = lambda _request: False
    """Returns whether the request's registration has the failure policy `Fail`."""


def _always(_request: AdmissionRequest) -> bool:
    return True


def _has_node(request: AdmissionRequest) -> bool:
    return bool(_spec(request.object).get("nodeName"))


def _may_charge(request: AdmissionRequest) -> bool:
    """Return whether an update gives or takes a pod's deadline, or gives it another size."""
    old, new = _spec(request.old_object), _spec(request.object)
    ends, ended = (each.get("activeDeadlineSeconds") is not None for each in (new, old))
    return ends is not ended or _resources(new) != _resources(old)


def _resources(spec: Mapping[str, object]) -> list[object]:
    containers = spec.get("containers")
    listed = containers if isinstance(containers, list) else []
    return [each.get("resources") if isinstance(each, Mapping) else None for each in listed]


def _spec(pod: Mapping[str, object] | None) -> Mapping[str, object]:
    spec = (pod or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


_PIN_UID: Final = Route("bind", bindings.pin_uid, fails_closed=_always)
_BIND: Final = Route("bind", bindings.bind, fails_closed=_always)
_JOB_SETS: Final = "jobset.x-k8s.io", "jobsets"
_CLUSTER_QUOTAS: Final = CLUSTER_DEFERRED_QUOTAS.group, CLUSTER_DEFERRED_QUOTAS.plural

ROUTES: Final[Mapping[tuple[Phase, str, str, str], Route]] = {
    (Phase.MUTATING, "", "pods/binding", "CREATE"): _PIN_UID,
    (Phase.MUTATING, "", "bindings", "CREATE"): _PIN_UID,
    (Phase.MUTATING, "", "pods", "CREATE"): Route(
        "pods", gating.gate_pod, fallback=gating.gate_by_default
    ),
    (Phase.MUTATING, "batch", "jobs", "CREATE"): Route("jobs", jobs.create),
    (Phase.MUTATING, "batch", "jobs", "UPDATE"): Route("jobs", jobs.update),
    (Phase.MUTATING, "", "resourcequotas/status", "UPDATE"): Route(
        "mask", resource_quotas.update_status, fallback=lambda _: resource_quotas.NOT_MASKED
    ),
    (Phase.VALIDATING, "", "pods", "CREATE"): Route("pods", pods.create, fails_closed=_has_node),
    (Phase.VALIDATING, "", "pods", "UPDATE"): Route("pods", pods.update, fails_closed=_may_charge),
    (Phase.VALIDATING, "", "pods/binding", "CREATE"): _BIND,
    (Phase.VALIDATING, "", "bindings", "CREATE"): _BIND,
    (Phase.VALIDATING, "", "pods/resize", "UPDATE"): Route(
        "resize", pods.resize, fails_closed=_always
    ),
    (Phase.VALIDATING, "batch", "jobs", "CREATE"): Route("jobs", jobs.create),
    (Phase.VALIDATING, "batch", "jobs", "UPDATE"): Route("jobs", jobs.update),
    (Phase.VALIDATING, "batch", "cronjobs", "CREATE"): Route("jobs", jobs.create),
    (Phase.VALIDATING, "batch", "cronjobs", "UPDATE"): Route("jobs", jobs.update_set),
    (Phase.VALIDATING, *_JOB_SETS, "CREATE"): Route("jobs", jobs.create),
    (Phase.VALIDATING, *_JOB_SETS, "UPDATE"): Route("jobs", jobs.update_set),
    (Phase.VALIDATING, "", "resourcequotas", "CREATE"): Route("quotas", resource_quotas.create),
    (Phase.VALIDATING, "", "resourcequotas", "UPDATE"): Route("quotas", resource_quotas.update),
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "CREATE"): Route(
        "quotas", cluster_deferred_quotas.create, is_cluster_scoped=True
    ),
    (Phase.VALIDATING, *_CLUSTER_QUOTAS, "UPDATE"): Route(
        "quotas", cluster_deferred_quotas.update, is_cluster_scoped=True
    ),
    **{
        (Phase.VALIDATING, kind.group, kind.plural, operation): Route("quotas", handler)
        for kind in (ELASTIC_QUOTAS, COMPOSITE_ELASTIC_QUOTAS)
        for operation, handler in (
            ("CREATE", elastic_quotas.create),
            ("UPDATE", elastic_quotas.update),
        )
    },
}
"""(phase, API group, resource/subresource, operation) → how it is handled.

The other half of a kind of request is its entry in manifests/base/registrations; a test compares
both with each other and with the copies of them (tests/install/test_registrations.py).
"""

_KNOWN_RESOURCES: Final = frozenset((group, path.partition("/")[0]) for _, group, path, _ in ROUTES)
_NAMES: Final[Mapping[tuple[str, str], str]] = {
    (group, path): route.name for (_, group, path, _), route in ROUTES.items()
}


def handler_name(request: AdmissionRequest) -> str:
    """Return the name of the handler of a request, as far as its resource says; else empty."""
    return _NAMES.get((request.group, request.path), "")


def fails_closed(request: AdmissionRequest) -> bool:
    """Return whether the API server refuses the request if it gets no answer."""
    route = ROUTES.get((request.phase, request.group, request.path, request.operation))
    return route is not None and route.fails_closed(request)


def denies_undecided(request: AdmissionRequest) -> bool:
    """Return whether a request is denied for now where there is no time to decide it.

    Besides those that fail closed, a change of a pod: few come here, and one that takes our gate
    off must not pass because the webhook is kept busy.
    """
    is_change = (request.group, request.path, request.operation) == ("", "pods", "UPDATE")
    return fails_closed(request) or (is_change and request.phase is Phase.VALIDATING)


def may_deny(request: AdmissionRequest) -> bool:
    """Return whether a request is one that may be denied for its size.

    The status of a quota is not: its writes stand in the way of every new pod.
    """
    route = ROUTES.get((request.phase, request.group, request.path, request.operation))
    return route is not None and route.handler is not resource_quotas.update_status


def decide(
    context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    """Answer a request.

    What cannot be read is denied with the path of the field, what cannot be decided now is denied
    for now, and requests of other kinds and namespaces are allowed.
    """
    request = _without_forged_state(request)
    if request.phase is Phase.SHADOW:
        return shadow_pods.observe(context, request)
    route = ROUTES.get((request.phase, request.group, request.path, request.operation))
    if route is None:
        return _unhandled(request)
    answer = _handle(route, context, request, deadline)
    if isinstance(answer, Denied) and route.fallback is not None:
        return route.fallback(request)
    return answer


def _without_forged_state(request: AdmissionRequest) -> AdmissionRequest:
    """Return the request, of a new pod without the state that the API server does not store."""
    is_new_pod = (request.group, request.path, request.operation) == ("", "pods", "CREATE")
    if not is_new_pod or request.object is None:
        return request
    return replace(request, object=created_pod(request.object))


def _handle(
    route: Route, context: HandlerContext, request: AdmissionRequest, deadline: Deadline
) -> AdmissionResponse:
    try:
        not_ours = None if route.is_cluster_scoped else _skip_reason(context, request)
        return (
            not_ours
            or _invalid_request(request, deadline)
            or route.handler(context, request, deadline)
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
    """Deny a request that came too late, or lacks an object that each of its kind carries."""
    if deadline.expired:
        return responses.try_again("the request's time ran out before it was decided")
    if request.object is None:
        missing = "object"
    elif request.operation == "UPDATE" and request.old_object is None:
        missing = "oldObject"
    else:
        return None
    message = f"request.{missing}: must be present for {request.operation} of {request.path}"
    return Denied(code=400, reason="BadRequest", message=message)
