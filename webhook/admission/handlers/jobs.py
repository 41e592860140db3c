"""Jobs, CronJobs and JobSets: changes of their templates, and Jobs that are created or resumed.

The API server decides itself which changes of a Job it accepts, but its refusal prints the whole
template. In the mutating phase, before it decides, the same refusal is given with the field, the
reason and the way out. Nothing is refused there that the API server might accept: neither what it
may drop before it judges, nor changes of a stored Job that cannot be read here.

The rules of a cluster, and whether the pods fit their quotas, are checked in the validating phase,
for the Job as it will be stored. The API server has judged by then: its own rules are not checked
again, because another result could only be a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from webhook.admission.deadline import Deadline
from webhook.admission.handlers import job_capacity, responses
from webhook.admission.handlers.context import HandlerContext
from webhook.admission.handlers.job_capacity import CapacityCheck, JobEvent
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Phase
from webhook.jsonfields.fields import FieldError, InvalidFieldError, child, mapping, string_map
from webhook.jsonfields.reader import FieldReader
from webhook.quota.charging.workload_pods import PodSet
from webhook.quota.jobs import job_state, job_update_errors
from webhook.quota.jobs.capacity import Share, requests_same, shares_of
from webhook.quota.jobs.droppable_fields import without_droppable
from webhook.quota.jobs.explain import explain
from webhook.quota.jobs.job_pods import READERS, pods_of_job
from webhook.quota.jobs.managed_fields import two_managers
from webhook.quota.jobs.policy import (
    Findings,
    JobRule,
    hidden_changes,
    is_job_controller,
    judged_replacement,
    judged_resizes,
    not_a_resizer,
    rule_for,
)
from webhook.quota.jobs.resize_diff import resizes_of
from webhook.quota.jobs.update_validation import JobState

_Object: TypeAlias = Mapping[str, object]

_HANDLER = "jobs"
_NOT_CHARGED = Allowed(decision="not-charged", handler=_HANDLER)


def create(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Decide on a new Job, CronJob or JobSet: its pods are charged when they get nodes."""
    if request.phase is Phase.MUTATING:
        return _NOT_CHARGED
    return _capacity_findings(context, request, _pods_in(request, request.object), JobEvent.CREATED)


def update(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Decide on a change of a Job: as the API server will, and after it as the cluster wants."""
    old, new = request.old_object or {}, request.object or {}
    if old.get("spec") == new.get("spec"):  # metadata stays writable, finalizers above all
        return _NOT_CHARGED
    decided = _foreseen if request.phase is Phase.MUTATING else _ruled
    try:
        return decided(context, request, old, new)
    except InvalidFieldError as err:
        if _is_about_stored(err):
            return _NOT_CHARGED  # the API server has read it, and judges
        raise


def _foreseen(
    context: HandlerContext, request: AdmissionRequest, old: _Object, new: _Object
) -> AdmissionResponse:
    """Refuse what the API server is going to refuse."""
    errors = _immutable(context, request, old, without_droppable(old, new))
    return responses.invalid(errors) if errors else _NOT_CHARGED


def _ruled(
    context: HandlerContext, request: AdmissionRequest, old: _Object, new: _Object
) -> AdmissionResponse:
    """Judge what the API server has taken by the rules of the cluster."""
    if is_job_controller(request.username):
        return _NOT_CHARGED
    state = job_state(old, field="old")
    return _NOT_CHARGED if state.finished else _evaluate(context, request, old, new, state)


def _immutable(
    context: HandlerContext, request: AdmissionRequest, old: _Object, new: _Object
) -> list[FieldError]:
    """Return what the API server has against an update, in our words.

    Where its feature gates are not known, that is what it refuses with all of their settings, in
    the words for the first of them. What is said not to be supported may be of a newer release.
    """
    policy = context.policy
    findings = [
        [
            error
            for error in job_update_errors(old, new, gates)
            if error.type != "FieldValueNotSupported"
        ]
        for gates in policy.possible_job_gates
    ]
    if not all(findings):
        return []
    name, namespace = request.name, request.namespace
    return explain(findings[0], old, new, policy.job_gates, name=name, namespace=namespace)


def _is_about_stored(err: InvalidFieldError) -> bool:
    return err.field == "old" or err.field.startswith("old.")


def update_set(
    context: HandlerContext, request: AdmissionRequest, _deadline: Deadline
) -> AdmissionResponse:
    """Decide on a change of a CronJob or a JobSet: a resumed JobSet is like a resumed Job.

    One that runs is looked at only if it asks for other pods than before.
    """
    old, new = request.old_object or {}, request.object or {}
    if old.get("spec") == new.get("spec") or _is_suspended(new):
        return _NOT_CHARGED
    pods = _pods_in(request, new)
    if _is_suspended(old):
        is_set = request.resource == "jobsets"
        return _capacity_findings(
            context, request, pods, JobEvent.RESUMED if is_set else JobEvent.CREATED
        )
    before = _shares_before(request)
    if requests_same(before, shares_of(pods)):
        return _NOT_CHARGED
    return _capacity_findings(context, request, pods, JobEvent.CHANGED, before)


def _evaluate(
    context: HandlerContext, request: AdmissionRequest, old: _Object, new: _Object, state: JobState
) -> AdmissionResponse:
    """Judge an update of a Job by the rule for it."""
    rule, resizes = _rule(context, request), resizes_of(old, new)
    stranger = not_a_resizer(rule, resizes, request.username, request.groups)
    if stranger is not None:
        return responses.forbidden(stranger)
    gates = context.policy.job_gates
    findings = Findings()
    if state.may_change_resources(gates):
        scheduling = state.may_change_scheduling(gates)
        findings += hidden_changes(rule, old, new, scheduling=scheduling)
    findings += judged_resizes(rule, resizes)
    resumes = _is_suspended(old) and not _is_suspended(new)
    if resizes or resumes:
        findings += judged_replacement(rule, state, new)
    if resumes and not resizes:
        findings += Findings(warnings=_by_two(request))
    before, pods = _shares_before(request), pods_of_job(new)
    after = _shares_unless_stored(old, pods)
    if after is None:
        return _response(findings)
    occasion = _event_of(request, before, after, is_resized=bool(resizes))
    if occasion is None:
        return _response(findings)
    check = CapacityCheck(rule, occasion, resizes, before)
    error = job_capacity.unreadable_quota(context, request, check)
    if error:
        return responses.try_again(error)
    return _response(findings + job_capacity.findings(context, request, check, after))


def _shares_unless_stored(old: _Object, pods: tuple[PodSet, ...]) -> tuple[Share, ...] | None:
    """Return the pods of a changed Job; None where those of the stored one are unreadable as well.

    No bind takes such pods, and the Job may be suspended, or changed back.
    """
    try:
        return shares_of(pods)
    except InvalidFieldError:
        if _is_readable(old):
            raise
        return None


def _is_readable(job: _Object) -> bool:
    try:
        shares_of(pods_of_job(job))
    except InvalidFieldError:
        return False
    return True


def _event_of(
    request: AdmissionRequest,
    before: tuple[Share, ...],
    after: tuple[Share, ...],
    *,
    is_resized: bool,
) -> JobEvent | None:
    """Return why the pods of a Job are compared with quotas; None where they need not be."""
    was_suspended, is_suspended = _is_suspended(request.old_object), _is_suspended(request.object)
    if is_suspended:
        return JobEvent.RESIZED if is_resized else None
    if was_suspended or (_count(before) == 0 < _count(after)):
        return JobEvent.RESUMED
    return JobEvent.CHANGED if _count(after) > _count(before) else None


def _capacity_findings(
    context: HandlerContext,
    request: AdmissionRequest,
    pods: tuple[PodSet, ...],
    occasion: JobEvent,
    before: tuple[Share, ...] = (),
) -> AdmissionResponse:
    """See whether the pods fit of an object that makes Jobs, if any come of it now."""
    if request.phase is Phase.MUTATING or _is_suspended(request.object):
        return _NOT_CHARGED
    check = CapacityCheck(_rule(context, request), occasion, previous=before)
    error = job_capacity.unreadable_quota(context, request, check)
    if error:
        return responses.try_again(error)
    return _response(job_capacity.findings(context, request, check, shares_of(pods)))


def _pods_in(request: AdmissionRequest, obj: _Object | None) -> tuple[PodSet, ...]:
    return READERS[request.group, request.resource](obj or {})


def _shares_before(request: AdmissionRequest) -> tuple[Share, ...]:
    """Return the pods of the stored object; none if it cannot be read, so that all is more."""
    try:
        return shares_of(_pods_in(request, request.old_object))
    except InvalidFieldError:
        return ()


def _count(shares: tuple[Share, ...]) -> int:
    return sum(share.count for share in shares)


def _by_two(request: AdmissionRequest) -> tuple[str, ...]:
    try:
        two = two_managers(request.object or {})
    except InvalidFieldError:  # clients write those fields, for a warning alone
        return ()
    if two is None:
        return ()
    return (f"resized by {two.resized_by:.30}, resumed by {two.resumed_by:.30}: do both agree?",)


def _response(findings: Findings) -> AdmissionResponse:
    if findings.errors:
        return replace(
            responses.invalid(findings.errors), warnings=findings.warnings, handler=_HANDLER
        )
    return replace(_NOT_CHARGED, warnings=findings.warnings)


def _rule(context: HandlerContext, request: AdmissionRequest) -> JobRule:
    """Return the rule for an object; labels of its namespace are asked for only where needed."""
    rules = context.policy.jobs
    if not rules:
        return JobRule()
    metadata = mapping((request.object or {}).get("metadata"), "metadata")
    labels = string_map(metadata.get("labels"), child("metadata", "labels"))
    needed = any(rule.namespaces.labels or rule.namespaces.requirements for rule in rules)
    return rule_for(rules, labels, context.namespace_labels(request.namespace) if needed else {})


def _is_suspended(job: _Object | None) -> bool:
    return FieldReader(job or {}).child("spec").boolean("suspend")
