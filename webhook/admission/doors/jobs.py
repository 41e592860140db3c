"""Jobs, and what makes Jobs: templates that change, and Jobs that are let run.

The API server decides itself which changes of a Job it takes. Its refusal prints the whole
template; in the mutating phase, before it, the same refusal can be given with the field, the reason
and the way out. It is given again in the validating phase, to changes that later webhooks made.

What a cluster allows beyond that, and whether the pods fit their quotas, is asked in the
validating phase, of the Job as it will be stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from webhook.admission.deadline import Deadline
from webhook.admission.doors import answers, job_fit
from webhook.admission.doors.context import DoorContext
from webhook.admission.doors.job_fit import Occasion, Question
from webhook.admission.review import AdmissionRequest, Allowed, Answer, Phase
from webhook.quota.fields import child, mapping, string_map
from webhook.quota.jobs import job_state, job_update_errors
from webhook.quota.jobs.explaining import explained
from webhook.quota.jobs.managers import two_managers
from webhook.quota.jobs.pods import READERS, pods_of_job
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
from webhook.quota.jobs.resizes import Resize, resizes_of
from webhook.quota.jobs.update import JobState
from webhook.quota.reading import Node

_DOOR = "jobs"
_NOT_CHARGED = Allowed(decision="not-charged", door=_DOOR)


def create(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Decide on a new Job, CronJob or JobSet: its pods are charged when they get nodes."""
    return _examined(context, request, Occasion.CREATED)


def update(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Decide on a change of a Job: first as the API server does, then as the cluster wants it."""
    old, new = request.old_object or {}, request.object or {}
    if old.get("spec") == new.get("spec"):  # metadata stays writable, finalizers above all
        return _NOT_CHARGED
    gates = context.current_rules().job_gates
    errors = job_update_errors(old, new, gates)
    if errors:
        name, namespace = request.name, request.namespace
        return answers.invalid(explained(errors, old, new, gates, name=name, namespace=namespace))
    if request.phase is Phase.MUTATING or is_job_controller(request.username):
        return _NOT_CHARGED
    change = _Change(
        state=job_state(old, field="old"),
        resizes=resizes_of(old, new),
        resumes=_is_suspended(old) and not _is_suspended(new),
    )
    if change.state.finished:
        return _NOT_CHARGED
    return _judged(context, request, change)


def update_set(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Decide on a change of a CronJob or a JobSet; a JobSet that is resumed is like a Job."""
    old, new = request.old_object or {}, request.object or {}
    if old.get("spec") == new.get("spec"):
        return _NOT_CHARGED
    is_resumed = request.resource == "jobsets" and _is_suspended(old)
    return _examined(context, request, Occasion.RESUMED if is_resumed else Occasion.CREATED)


@dataclass(frozen=True, slots=True)
class _Change:
    """An update of a Job that the API server takes."""

    state: JobState
    resizes: tuple[Resize, ...]
    resumes: bool


def _judged(context: DoorContext, request: AdmissionRequest, change: _Change) -> Answer:
    old, new = request.old_object or {}, request.object or {}
    rule = _rule(context, request)
    stranger = not_a_resizer(rule, change.resizes, request.username, request.groups)
    if stranger is not None:
        return answers.forbidden(stranger)
    gates = context.current_rules().job_gates
    found = Findings()
    if change.state.may_change_resources(gates):
        scheduling = change.state.may_change_scheduling(gates)
        found += hidden_changes(rule, old, new, scheduling=scheduling)
    found += judged_resizes(rule, change.resizes)
    if change.resizes or change.resumes:
        found += judged_replacement(rule, change.state, new)
        occasion = Occasion.RESUMED if change.resumes else Occasion.RESIZED
        question = Question(rule, occasion, change.resizes)
        doubt = job_fit.doubt(context, request, question)
        if doubt:
            return answers.undecided(doubt)
        found += job_fit.findings(context, request, question, pods_of_job(new))
    if change.resumes and not change.resizes:
        found += Findings(warnings=_by_two(request))
    return _answer(found)


def _examined(context: DoorContext, request: AdmissionRequest, occasion: Occasion) -> Answer:
    """Read the templates of an object and, if Jobs come of it, see whether their pods fit."""
    made = request.object or {}
    pods = READERS[request.group, request.resource](made)
    if request.phase is Phase.MUTATING or _is_suspended(made):
        return _NOT_CHARGED
    question = Question(_rule(context, request), occasion)
    doubt = job_fit.doubt(context, request, question)
    if doubt:
        return answers.undecided(doubt)
    return _answer(job_fit.findings(context, request, question, pods))


def _by_two(request: AdmissionRequest) -> tuple[str, ...]:
    two = two_managers(request.object or {})
    if two is None:
        return ()
    return (f"resized by {two.resized_by:.30}, resumed by {two.resumed_by:.30}: do both agree?",)


def _answer(found: Findings) -> Answer:
    if found.errors:
        return replace(answers.invalid(found.errors), warnings=found.warnings, door=_DOOR)
    return replace(_NOT_CHARGED, warnings=found.warnings)


def _rule(context: DoorContext, request: AdmissionRequest) -> JobRule:
    """Return the rule for an object; labels of its namespace are asked for only where needed."""
    rules = context.current_rules().jobs
    if not rules:
        return JobRule()
    metadata = mapping((request.object or {}).get("metadata"), "metadata")
    labels = string_map(metadata.get("labels"), child("metadata", "labels"))
    needed = any(rule.namespaces.labels or rule.namespaces.requirements for rule in rules)
    return rule_for(rules, labels, context.namespace_labels(request.namespace) if needed else {})


def _is_suspended(job: object) -> bool:
    return Node(job).child("spec").boolean("suspend")
