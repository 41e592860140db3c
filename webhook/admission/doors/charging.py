"""Reserve for a request, and answer.

Every request of these doors that takes resources ends here, also one that nothing is claimed for.
That it takes nothing may only look so from here: a watch that went silent shows no quota that came
since, and a configuration that was not reloaded yet does not defer what others defer already. So
the ledger is asked, not the cache of it, before anything passes uncharged.

In the same way nothing is refused for want of a quota before the API server was asked which there
are: one that was created a moment ago may not be in the cache yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from webhook.admission.deadline import Deadline
from webhook.admission.doors import answers
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Allowed, Answer, Denied
from webhook.config import Coverage
from webhook.config import MustSpecify as WhenToSpecify
from webhook.quota.constraints import missing_resources
from webhook.quota.coverage import (
    CoverageRules,
    Uncovered,
    uncovered_assignment,
    uncovered_creation,
)
from webhook.quota.deferral import DeferredQuota
from webhook.quota.ledger import Claim
from webhook.quota.objects import Pod, ResourceQuota
from webhook.quota.refusals import MustSpecify, QuotaExceeded
from webhook.quota.resources import render
from webhook.state.quota_cache import QuotasSeen
from webhook.state.reserver import Outcome, Reserved

NOTHING_CHARGED = Allowed(decision="nothing-charged")


def outcome_of(
    context: DoorContext,
    request: AdmissionRequest,
    claim: Claim,
    quotas: QuotasSeen,
    deadline: Deadline,
) -> Outcome:
    """Reserve what is claimed; a dry run only finds out what would happen."""
    if request.dry_run:
        return context.ledger.try_out(request.namespace, claim, quotas.deferred.observed)
    give_up = min(deadline.at, time.monotonic() + context.current_rules().ledger_seconds)
    return context.ledger.reserve(
        request.namespace, claim, quotas.deferred.observed, deadline=give_up
    )


def answer_of(outcome: Outcome, claim: Claim, *, dry_run: bool) -> Answer:
    """Put the outcome of a claim into words."""
    if isinstance(outcome, QuotaExceeded):
        return answers.refused(outcome)
    if not isinstance(outcome, Reserved):
        return answers.undecided(outcome.message)
    return Allowed(
        decision="would-reserve" if dry_run else "reserved",
        audit={
            "quota": ",".join(claim.quotas),
            "requested": render(claim.usage),
            "ledger": str(outcome.ledger_version),
        },
    )


def charge(
    context: DoorContext,
    request: AdmissionRequest,
    claim: Claim | None,
    quotas: QuotasSeen,
    deadline: Deadline,
) -> Answer:
    """Reserve what is claimed, if anything is, and answer."""
    if claim is None:
        return uncharged(context, request, quotas)
    outcome = outcome_of(context, request, claim, quotas, deadline)
    return answer_of(outcome, claim, dry_run=request.dry_run)


def uncharged(context: DoorContext, request: AdmissionRequest, quotas: QuotasSeen) -> Answer:
    """Let a request pass that claims nothing, once it is sure that nobody counts otherwise.

    A dry run finds out the same.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
    """
    observed = quotas.deferred.observed
    doubt = context.ledger.contradiction(request.namespace, observed)
    if doubt is not None:
        return answers.undecided(doubt.message)
    # without ledger, a quota may be there that is not counted yet, or not any more
    unseen = () if observed else _live_doubts(context, request.namespace)
    return answers.undecided(unseen[0]) if unseen else NOTHING_CHARGED


def _live_doubts(context: DoorContext, namespace: str) -> tuple[str, ...]:
    """Say why a namespace may have deferred quotas after all."""
    quotas = context.view.live_quotas(namespace)
    names = ", ".join(each.name for each in quotas.deferred.quotas)
    unseen = (f"quota not seen here yet: {names}",) if names else ()
    return (*quotas.unreadable, *unseen)


def lacking(
    context: DoorContext,
    request: AdmissionRequest,
    pod: Pod,
    quotas: QuotasSeen,
    applying: tuple[DeferredQuota, ...],
    *,
    gets_node: bool,
) -> Denied | None:
    """Refuse a pod that does not name what its quotas limit, or lacks a quota that it needs.

    Args:
        context: What the door works with.
        request: The request.
        pod: The pod.
        quotas: The quotas of its namespace as last seen.
        applying: Those that apply to the pod.
        gets_node: It has a node by this request, or is bound; else it is only created.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    rules = context.current_rules()
    obliges = rules.must_specify is WhenToSpecify.CREATE or (
        rules.must_specify is WhenToSpecify.BIND and gets_node
    )
    missing = _unspecified(pod, applying) if obliges else None
    if missing is not None:
        return answers.refused(missing)

    def find(every: Iterable[ResourceQuota], needed: CoverageRules) -> Uncovered | None:
        if gets_node:
            return uncovered_assignment(pod, every, needed)
        return uncovered_creation(pod, every, needed, rules.deferred_keys)

    return uncovered(context, request, quotas, find)


def _unspecified(pod: Pod, applying: tuple[DeferredQuota, ...]) -> MustSpecify | None:
    """Refuse a pod whose containers do not name what a deferred quota limits."""
    for quota in applying:
        missing = missing_resources(pod, quota.hard)
        if missing:
            return MustSpecify(quota.name, missing)
    return None


def uncovered(
    context: DoorContext,
    request: AdmissionRequest,
    quotas: QuotasSeen,
    find: Callable[[Iterable[ResourceQuota], CoverageRules], Uncovered | None],
) -> Denied | None:
    """Refuse what needs a quota, where there is none.

    Args:
        context: What the door works with.
        request: The request.
        quotas: The quotas of its namespace as last seen.
        find: Says what these quotas, by these rules, do not cover.

    Raises:
        ApiError: The API server had to be asked for quotas and does not answer.
        QuotaScopeError: A quota's scopes cannot be evaluated.
    """
    rules = context.current_rules()
    if not (rules.limited or rules.priority):
        return None
    is_platform = context.current_configuration().coverage is Coverage.PLATFORM
    covering = CoverageRules(
        rules.limited, rules.priority, "platform" if is_platform else "matching"
    )
    if find(quotas.every, covering) is None:
        return None
    live = context.view.live_quotas(request.namespace)
    if live.unreadable:
        return answers.undecided(live.unreadable[0])
    missing = find(live.every, covering)
    return None if missing is None else answers.refused(missing)
