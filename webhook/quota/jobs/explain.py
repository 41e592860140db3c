"""The API server's refusal of an update of a Job, in words that say what to do.

The API server names `spec.template` and prints all of it. Here every field that may not change is
named, with its old and its new value, why it may not change, and how it can. What is refused is
not decided here: see `update_validation.job_update_errors`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from webhook.jsonfields.fields import FieldError, mapping
from webhook.quota.jobs.equality import ANY, canonical
from webhook.quota.jobs.job_fields import JOB_SHAPE
from webhook.quota.jobs.template_diff import Change, differences, refused_changes, shown
from webhook.quota.jobs.templates import TEMPLATE, read_job_template
from webhook.quota.jobs.update_validation import (
    ALL_GATES,
    Gates,
    JobGate,
    JobState,
    enabled_gates,
    job_state,
)

_Members: TypeAlias = Mapping[str, object]

IMMUTABLE: Final = "field is immutable"
MOST_CHANGES: Final = 12
"""Most changes that are listed one by one."""

_RESOURCES: Final = re.compile(r"spec\.template\.spec\.(c|initC)ontainers\[\d+\]\.resources(\.|$)")
_DIRECTIVES: Final = re.compile(
    r"spec\.template\.(spec\.(nodeSelector|tolerations|schedulingGates|affinity\.nodeAffinity)"
    r"|metadata\.(labels|annotations))([.\[]|$)"
)
_ABOVE_LIMIT: Final = re.compile(r"must be (?:less than or )?equal to (\S+) limit of .*")
_STEP: Final = re.compile(r"\[([^\]]+)\]|([^.\[\]]+)")


@dataclass(frozen=True, slots=True)
class _Case:
    """An update that is refused, and what its reasons hang on."""

    state: JobState
    suspends: bool
    """Whether the update itself would suspend the Job."""
    gates: frozenset[str]
    job: str
    """The Job in arguments of kubectl: `train -n team-a`."""


def explain(
    errors: Iterable[FieldError],
    old: _Members,
    new: _Members,
    gates: Gates = ALL_GATES,
    *,
    name: str = "",
    namespace: str = "",
) -> list[FieldError]:
    """Return the errors of `job_update_errors`, each once, with values, reason and advice.

    Args:
        errors: What `job_update_errors` returned for the other arguments.
        old: The stored Job.
        new: The Job of the update.
        gates: As in `job_update_errors`.
        name: The Job's name, for commands.

    Raises:
        InvalidFieldError: As `job_update_errors`.
    """
    case = _Case(
        state=job_state(old, field="old"),
        suspends=mapping(new.get("spec"), "spec").get("suspend") is True,
        gates=enabled_gates(gates),
        job=f"{name or 'NAME'} -n {namespace}" if namespace else name or "NAME",
    )
    found: list[FieldError] = []
    for error in dict.fromkeys(errors):
        if error.detail == IMMUTABLE and error.field in {TEMPLATE, f"{TEMPLATE}.spec"}:
            found.extend(_template_errors(case, old, new) or [error])
        elif error.detail == IMMUTABLE:
            found.append(_unchangeable(error, old, new))
        else:
            found.append(_with_values(error, old))
    return found


def _template_errors(case: _Case, old: _Members, new: _Members) -> list[FieldError]:
    changes = refused_changes(
        read_job_template(_spec(old).get("template"), f"old.{TEMPLATE}"),
        read_job_template(_spec(new).get("template"), TEMPLATE),
        resources=case.state.may_change_resources(case.gates),
        scheduling=case.state.may_change_scheduling(case.gates),
    )
    listed = list(_errors(case, changes[:MOST_CHANGES]))
    if len(changes) > MOST_CHANGES:
        more = f"{IMMUTABLE}: and {len(changes) - MOST_CHANGES} more changes"
        listed.append(FieldError("FieldValueInvalid", TEMPLATE, more))
    return listed


def _errors(case: _Case, changes: Iterable[Change]) -> Iterator[FieldError]:
    """Yield an error for each change; a reason that several share stands with the first."""
    told: set[str] = set()
    for change in changes:
        reason = _reason(case, change.field)
        words = f"{IMMUTABLE}: {change.text}"
        detail = words if reason in told else f"{words}: {reason}"
        told.add(reason)
        yield FieldError("FieldValueInvalid", change.field, detail)


def _reason(case: _Case, field: str) -> str:
    if _RESOURCES.match(field):
        if JobGate.MUTABLE_RESOURCES not in case.gates:
            return (
                "the API server lets no resources of a Job change (that takes Kubernetes 1.36, or"
                f" 1.35 with the feature gate {JobGate.MUTABLE_RESOURCES}; here it is off or not"
                " there); delete the Job and create it anew"
            )
        return _not_open(case)
    if _DIRECTIVES.match(field):
        if JobGate.MUTABLE_SCHEDULING in case.gates:
            return _not_open(case)
        return _not_new(case)
    return _never(field)


def _not_open(case: _Case) -> str:
    """Return why the Job's template is closed now, and what opens it."""
    state = case.state
    if state.finished:
        return "the Job is finished; create a new one"
    if not state.suspended:
        is_early = case.suspends
        why = "the Job is not suspended" + (" before this request" if is_early else "")
        return (
            f"{why}; suspend it first and wait until its pods are gone: kubectl patch job"
            f' {case.job} --type=merge -p \'{{"spec":{{"suspend":true}}}}\''
        )
    if state.active:
        pods = "1 active pod is" if state.active == 1 else f"{state.active} active pods are"
        return f"pods of it still run; wait until {pods} gone: kubectl get job {case.job} -w"
    return (
        "the Job ran, and the Job controller has not confirmed its suspension yet; try again in a"
        f" moment: kubectl wait job {case.job} --for=condition=Suspended"
    )


def _not_new(case: _Case) -> str:
    """Return why scheduling directives are closed where only a Job that never ran has them open."""
    if not case.state.started:
        return _not_open(case)
    return (
        "scheduling directives can change only before a Job first runs (afterwards it takes"
        f" Kubernetes 1.36, or 1.35 with the feature gate {JobGate.MUTABLE_SCHEDULING}; here it is"
        " off or not there); delete the Job and create it anew"
    )


def _never(field: str) -> str:
    part = field.removeprefix(f"{TEMPLATE}.spec.")
    if re.match(r"resources(\.|$)", part):
        return "resources of the pod as a whole never change, only those of its containers"
    if re.match(r"resourceClaims(\[|$)", part):
        return "claims of the pod never change; create a new Job"
    if re.match(r"affinity(\.|$)", part):
        return "of the affinity only nodeAffinity can change; create a new Job"
    return (
        "of a Job's template only the resources of containers and the scheduling directives can"
        " change, while the Job is suspended; create a new Job"
    )


def _unchangeable(error: FieldError, old: _Members, new: _Members) -> FieldError:
    """Add what a field beside the template was and would be."""
    shape = JOB_SHAPE.members.get(error.field.removeprefix("spec."), ANY)
    before = canonical(_value_at(old, error.field), f"old.{error.field}", shape)
    after = canonical(_value_at(new, error.field), error.field, shape)
    change = next(differences(before, after, error.field), None)
    if change is None:
        return error
    text = f"from {shown(before)} to {shown(after)}"
    return replace(error, detail=f"{IMMUTABLE}: {text}: create a new Job")


def _with_values(error: FieldError, old: _Members) -> FieldError:
    """Add the value that is refused and the one before it, where the API server names none."""
    if not error.value:
        return error
    above = _ABOVE_LIMIT.fullmatch(error.detail)
    field = f"{error.field}[{above[1]}]" if above else error.field
    value = error.value.strip('"')
    before = _value_at(old, field)
    was = f" and was {before}" if isinstance(before, str | int) and str(before) != value else ""
    advice = "; lower the request or raise the limit" if above else ""
    return replace(error, detail=f"{error.detail}: it is {value}{was}{advice}")


def _value_at(job: _Members, field: str) -> object:
    """Return the value at a path of this package's errors; None if there is none."""
    here: object = job
    for quoted, plain in _STEP.findall(field):
        step = quoted or plain
        if isinstance(here, list | tuple):
            here = here[int(step)] if step.isdecimal() and int(step) < len(here) else None
        elif isinstance(here, Mapping):
            here = here.get(step)
        else:
            return None
    return here


def _spec(job: _Members) -> _Members:
    return mapping(job.get("spec"), "spec")
