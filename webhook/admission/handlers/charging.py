"""Reserve for a request, and answer.

Every request by which a pod may take resources ends here, even if nothing is claimed for it. That
it takes nothing may be an error of this replica: a silent watch does not show a quota that was
created since, and a configuration that was not reloaded yet does not defer what others defer
already. So the ledger is read from the API server, not from the cache, before anything passes
uncharged.

In the same way no request is refused for want of a quota before the quotas were listed from the API
server: one that was created a moment ago may not be in the cache yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied
from webhook.config import Coverage
from webhook.config import MustSpecify as WhenToSpecify
from webhook.quota.amounts.resources import render
from webhook.quota.charging.constraints import unstated
from webhook.quota.charging.coverage import (
    CoverageRules,
    Uncovered,
    uncovered_assignment,
    uncovered_creation,
)
from webhook.quota.charging.deferral import DeferredQuota
from webhook.quota.charging.denials import MustSpecify, QuotaExceeded
from webhook.quota.ledger.ledger import Claim
from webhook.quota.objects.model import Pod, ResourceQuota
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.reserver import Outcome, Reserved

NOTHING_CHARGED = Allowed(decision="nothing-charged")


def reserve(
    context: HandlerContext,
    request: AdmissionRequest,
    claim: Claim,
    quotas: NamespaceQuotaView,
    deadline: Deadline,
) -> Outcome:
    """Reserve what a claim requests; a dry run only returns what would happen."""
    if request.dry_run:
        return context.ledger.dry_run(request.namespace, claim, quotas.deferred.observed)
    give_up = min(deadline.at, time.monotonic() + context.policy.ledger_seconds)
    return context.ledger.reserve(
        request.namespace, claim, quotas.deferred.observed, deadline=give_up
    )


def response(outcome: Outcome, claim: Claim, *, dry_run: bool) -> AdmissionResponse:
    """Return the response for the outcome of a claim."""
    if isinstance(outcome, QuotaExceeded):
        return responses.denied(outcome)
    if not isinstance(outcome, Reserved):
        return responses.try_again(outcome.message)
    return Allowed(
        decision="would-reserve" if dry_run else "reserved",
        audit={
            "quota": ",".join(claim.quotas),
            "requested": render(claim.usage),
            "ledger": str(outcome.ledger_version),
        },
    )


def charge(
    context: HandlerContext,
    request: AdmissionRequest,
    claim: Claim | None,
    quotas: NamespaceQuotaView,
    deadline: Deadline,
) -> AdmissionResponse:
    """Reserve what a claim requests, if there is one, and answer."""
    if claim is None:
        return allow_uncharged(context, request, quotas)
    outcome = reserve(context, request, claim, quotas, deadline)
    return response(outcome, claim, dry_run=request.dry_run)


def allow_uncharged(
    context: HandlerContext, request: AdmissionRequest, quotas: NamespaceQuotaView
) -> AdmissionResponse:
    """Allow a request that claims nothing, once it is certain that no quota charges it.

    A dry run finds out the same.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
    """
    observed = quotas.deferred.observed
    contradiction = context.ledger.verify_uncharged(request.namespace, observed)
    if contradiction is not None:
        return responses.try_again(contradiction.message)
    # without a ledger there may be a quota that is not counted yet, or not any more
    unseen = () if observed else _unseen_quotas(context, request.namespace)
    return responses.try_again(unseen[0]) if unseen else NOTHING_CHARGED


def _unseen_quotas(context: HandlerContext, namespace: str) -> tuple[str, ...]:
    """Return why a namespace may have deferred quotas after all."""
    quotas = context.view.live_quotas(namespace)
    names = ", ".join(each.name for each in quotas.deferred.quotas)
    unseen = (f"quota not seen here yet: {names}",) if names else ()
    return (*quotas.errors, *unseen)


def missing_requirement(
    context: HandlerContext,
    request: AdmissionRequest,
    pod: Pod,
    quotas: NamespaceQuotaView,
    applying: tuple[DeferredQuota, ...],
    *,
    gets_node: bool,
) -> Denied | None:
    """Refuse a pod that does not name what its quotas limit, or lacks a quota that it needs.

    Args:
        quotas: The quotas of its namespace as last seen.
        applying: Those that apply to the pod.
        gets_node: It has a node by this request, or is bound; else it is only created.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    refusal = unspecified(context, pod, applying, gets_node=gets_node)
    if refusal is not None:
        return refusal

    def find(every: Iterable[ResourceQuota], needed: CoverageRules) -> Uncovered | None:
        if gets_node:
            return uncovered_assignment(pod, every, needed)
        return uncovered_creation(pod, every, needed, context.policy.deferred_keys)

    return missing_coverage(context, request, quotas, find)


def unspecified(
    context: HandlerContext, pod: Pod, applying: tuple[DeferredQuota, ...], *, gets_node: bool
) -> Denied | None:
    """Refuse a pod whose containers do not name what a deferred quota limits."""
    when = context.policy.must_specify
    obliges = when is WhenToSpecify.CREATE or (when is WhenToSpecify.BIND and gets_node)
    for quota, missing in unstated(pod, applying if obliges else ()):
        return responses.denied(MustSpecify(quota.name, missing))
    return None


def missing_coverage(
    context: HandlerContext,
    request: AdmissionRequest,
    quotas: NamespaceQuotaView,
    find: Callable[[Iterable[ResourceQuota], CoverageRules], Uncovered | None],
) -> Denied | None:
    """Refuse what needs a quota, where there is none.

    Args:
        quotas: The quotas of its namespace as last seen.
        find: Returns what these quotas, by these rules, do not cover.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    policy = context.policy
    if not (policy.limited_resources or policy.priority_coverage):
        return None
    is_platform = context.configuration.coverage is Coverage.PLATFORM
    covering = CoverageRules(
        policy.limited_resources,
        policy.priority_coverage,
        "platform" if is_platform else "matching",
    )
    if find(quotas.all_quotas, covering) is None:
        return None
    live = context.view.live_quotas(request.namespace)
    if live.errors:
        return responses.try_again(live.errors[0])
    missing = find(live.all_quotas, covering)
    return None if missing is None else responses.denied(missing)
