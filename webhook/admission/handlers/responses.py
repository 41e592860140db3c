"""Responses that several handlers share."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from webhook.admission.review import MAX_CAUSES, Denied
from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.kube.api import ApiError, ForbiddenError
from webhook.quota.amounts.go_format import quoted
from webhook.quota.amounts.resources import render
from webhook.quota.charging.deferral import QuotaScopeError
from webhook.quota.charging.denials import Cause, QuotaExceeded, Refusal, ScopeFailure
from webhook.quota.objects.names import object_name_errors
from webhook.state.nodes.bind_fit import BindObjection

RETRY_SECONDS = 1


def denied(refusal: Refusal) -> Denied:
    """Deny for good, in the API server's words."""
    audit = {"reason": refusal.message}
    if isinstance(refusal, QuotaExceeded):
        audit = {
            "quota": refusal.quota,
            "requested": render(refusal.requested),
            "used": render(refusal.used),
            "limited": render(refusal.limited),
        }
    return Denied(
        code=refusal.code,
        reason=refusal.reason,
        message=refusal.message,
        causes=refusal.causes,
        audit=audit,
    )


def refused(code: int, reason: str, message: str, *, causes: Iterable[Cause] = ()) -> Denied:
    """Deny for good, in words that the audit log has as well."""
    return Denied(
        code=code, reason=reason, message=message, causes=tuple(causes), audit={"reason": message}
    )


def try_again(message: str) -> Denied:
    """Deny for now: the same request may be admitted a second later."""
    return Denied(
        code=429,
        reason="TooManyRequests",
        message=message,
        retry_after_seconds=RETRY_SECONDS,
        decision="undecided",
        audit={"reason": message},
    )


def api_unavailable(err: ApiError) -> Denied:
    """Deny for now, because the API server was asked and gave no answer to decide by."""
    if isinstance(err, ForbiddenError):
        return try_again(f"the webhook lacks a right, see deferred-quota doctor: {err.message}")
    return try_again(f"the API server does not answer: {err.message}")


def invalid_scope(err: QuotaScopeError) -> Denied:
    """Deny for now, because a quota's scopes cannot be evaluated."""
    return try_again(ScopeFailure(err.quota, err.expression, err.detail).message)


def invalid_field(err: InvalidFieldError) -> Denied:
    """Deny an object with a field that cannot be read."""
    return invalid([FieldError("FieldValueInvalid", err.field, err.detail)])


def invalid(errors: Iterable[FieldError]) -> Denied:
    """Deny an object with faulty fields; every one of the first is listed once, in order."""
    listed = islice(dict.fromkeys(errors), MAX_CAUSES)
    once = [(error, error.detail or error.message) for error in listed]
    text = "; ".join(f"{error.field}: {detail}" for error, detail in once)
    causes = (Cause(error.type, error.field, detail) for error, detail in once)
    return refused(422, "Invalid", text, causes=causes)


def forbidden(error: FieldError) -> Denied:
    """Deny what this user may not do to a field."""
    cause = Cause(error.type, error.field, error.detail)
    return refused(403, "Forbidden", f"{error.field}: {error.detail}", causes=[cause])


def not_found(name: str) -> Denied:
    """Deny as storage does where there is no such pod."""
    return refused(404, "NotFound", f'pods "{name}" not found')


def invalid_name(name: str) -> Denied | None:
    """Deny as storage does where a name cannot be part of a key; None where it can.

    Source: kubernetes v1.36, apiserver/pkg/registry/generic/registry/store.go NamespaceKeyFunc;
    apimachinery/pkg/api/validation/path/name.go IsValidPathSegmentName.
    """
    if not name:
        message = "Name parameter required."
    elif name in (".", ".."):
        message = f"Name parameter invalid: {quoted(name)}: may not be '{name}'"
    elif found := [f"may not contain '{sign}'" for sign in "/%" if sign in name]:
        message = f"Name parameter invalid: {quoted(name)}: {';'.join(found)}"
    else:
        return None
    return refused(400, "BadRequest", message)


def nonexistent_pod(name: str) -> Denied | None:
    """Deny a Binding of a pod that cannot be there, whatever is; None where it may be."""
    return invalid_name(name) or (not_found(name) if object_name_errors(name) else None)


def name_taken(name: str) -> Denied:
    """Deny a new pod in the words of storage, which would refuse it for its name."""
    return Denied(
        code=409,
        reason="AlreadyExists",
        message=f'pods "{name}" already exists',
        audit={"reason": "name taken"},
    )


def missing_uid(name: str) -> Denied:
    """Deny a Binding that does not say which pod of the name it means."""
    field = "metadata.uid"
    detail = (
        f"must name the uid of pod {name}, so that no other pod of that name is bound;"
        " the mutating webhook that adds it was not asked"
    )
    cause = Cause("FieldValueRequired", field, detail)
    return refused(409, "Conflict", f"{field}: {detail}", causes=[cause])


def gated(name: str) -> Denied:
    """Deny as storage does where a pod may not be scheduled yet."""
    return refused(409, "Conflict", f"pod {name} has non-empty .spec.schedulingGates")


def node_refused(objection: BindObjection) -> Denied:
    """Deny a bind to a node whose kubelet would not admit the pod.

    For now only, where pods that are being bound leave no room, as their binds may fail, and where
    the API server could not be asked.
    """
    if objection.in_flight or not objection.is_final:
        return try_again(objection.message)
    return Denied(
        code=403,
        reason="Forbidden",
        message=objection.message,
        causes=tuple(
            Cause("NodeFit", f"{objection.node}/{one.reason}", one.detail)
            for one in objection.rejections
        ),
        audit={"node": objection.node, "reason": objection.message},
    )
