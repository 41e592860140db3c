"""A Job's template changes.

The API server decides itself which changes it takes. Its refusal prints the whole template; in
the mutating phase, before it, the same refusal can be given with the field and the reason. It is
given again in the validating phase, to changes that later webhooks made.
"""

from __future__ import annotations

from webhook.admission.deadline import Deadline
from webhook.admission.doors import answers
from webhook.admission.doors.context import DoorContext
from webhook.admission.review import AdmissionRequest, Allowed, Answer
from webhook.quota.fields import FieldError
from webhook.quota.jobs import JobState, job_state, job_update_errors

_TEMPLATE = "spec.template"
_IMMUTABLE = "field is immutable"


def create(_context: DoorContext, _request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Admit a new Job: its pods are charged when they get nodes."""
    return Allowed(decision="not-charged")


def update(context: DoorContext, request: AdmissionRequest, _deadline: Deadline) -> Answer:
    """Refuse what the API server would refuse, with the reason."""
    old, new = request.old_object or {}, request.object or {}
    errors = job_update_errors(old, new, context.current_rules().job_gates)
    if not errors:
        return Allowed(decision="not-charged")
    if any(_is_of_template(error) for error in errors):
        # in the error itself: kubectl shows the causes of what is invalid, not the message
        hint = _hint(job_state(old), request)
        errors = [_explained(error, hint) if _is_of_template(error) else error for error in errors]
    return answers.invalid(errors)


def _is_of_template(error: FieldError) -> bool:
    return error.field.startswith(_TEMPLATE) and error.detail == _IMMUTABLE


def _explained(error: FieldError, hint: str) -> FieldError:
    return FieldError(error.type, error.field, f"{error.detail}: {hint}")


def _hint(state: JobState, request: AdmissionRequest) -> str:
    """Say why the template cannot change now, and what to do."""
    if not state.suspended:
        command = f"kubectl patch job {request.name} -n {request.namespace} --type=merge"
        return (
            "the Job is not suspended; suspend it and wait until its pods are gone: "
            f'{command} -p \'{{"spec":{{"suspend":true}}}}\''
        )
    if state.active:
        pods = "1 pod is" if state.active == 1 else f"{state.active} pods are"
        return f"{pods} still active; wait until none is"
    if not state.is_open:
        return "the Job controller has not confirmed the suspension yet; try again in a moment"
    return (
        "of a suspended Job, only the resources of containers and the scheduling directives"
        " of the template can change"
    )
