"""Updates of Jobs that the API server accepts, and its errors for the others.

The template of a suspended Job can change while no pod runs from it. What may change hangs on
the *stored* Job alone, so that one update may both change and resume it, and none can both
suspend and change it:

1. A Job is *open* when it is suspended, has no active pod, and either never started or has the
   condition Suspended. Pods that are still terminating do not count.
2. `resources` of containers may change in an open Job, by feature gate.
3. Scheduling directives may change in an open Job; with that gate off, in a suspended Job that
   never started, active pods or not.
4. Everything else of the template is immutable, and so are the selector, the completions and
   the policies, whatever the state.

Source: kubernetes v1.36, pkg/registry/batch/job/strategy.go validationOptionsForJob and
ValidateUpdate; pkg/apis/batch/validation/validation.go ValidateJobUpdate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import islice
from typing import Final, TypeAlias

from webhook.jsonfields.fields import (
    MOST_NATIVE_ERRORS,
    FieldError,
    InvalidFieldError,
    integer,
    mapping,
    text,
)
from webhook.jsonfields.reader import FieldReader
from webhook.quota.jobs.metadata_rules import (
    generated_errors,
    has_prefixed_labels,
    invalid,
    metadata_errors,
)
from webhook.quota.jobs.templates import (
    TEMPLATE,
    immutable_errors,
    read_job_template,
    template_errors,
)
from webhook.quota.jobs.validation import INDEXED, allowed_of, job_errors
from webhook.quota.objects.names import dns_label_errors

_Members: TypeAlias = Mapping[str, object]

_OLD: Final = "old"
_FINISHED: Final = frozenset({"Complete", "Failed"})
_IMMUTABLE_AFTER_TEMPLATE: Final = (
    "completionMode",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "managedBy",
    "successPolicy",
)


@unique
class JobGate(StrEnum):
    """Feature gates of the API server; both are on by default since 1.36."""

    MUTABLE_RESOURCES = "MutablePodResourcesForSuspendedJobs"
    MUTABLE_SCHEDULING = "MutableSchedulingDirectivesForSuspendedJobs"


ALL_GATES: Final[frozenset[str]] = frozenset(JobGate)
Gates: TypeAlias = Collection[str] | Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class JobState:
    """State of the pods of a stored Job."""

    suspended: bool
    started: bool
    """Whether `status.startTime` is set; suspending a running Job clears it after a while."""
    marked_suspended: bool
    """Whether the condition Suspended is True: the controller has seen the suspension."""
    active: int
    finished: bool = False
    """Whether the condition Complete or Failed is True: there will be no more pods."""
    terminating: int = 0
    """Pods that are being deleted; they do not keep a Job from being open."""
    ran: bool = False
    """Whether something in the status says that there were pods."""

    @property
    def is_open(self) -> bool:
        """Whether the template can change: suspended, and nothing runs from it."""
        at_rest = self.marked_suspended or not self.started
        return self.suspended and at_rest and self.active == 0

    def may_change_resources(self, gates: Collection[str]) -> bool:
        """Return whether `resources` of containers may change."""
        return self.is_open and JobGate.MUTABLE_RESOURCES in gates

    def may_change_scheduling(self, gates: Collection[str]) -> bool:
        """Return whether scheduling directives may change."""
        if JobGate.MUTABLE_SCHEDULING in gates:
            return self.is_open
        return self.suspended and not self.started


def job_update_errors(old: _Members, new: _Members, gates: Gates = ALL_GATES) -> list[FieldError]:
    """Return the errors that the API server has for an update of a Job; none if it passes.

    The API server validates the new Job twice, so its own faults are listed twice before what
    is immutable; those of labels that are generated, and of the name, once. The values, which it
    prints as its internal structures, are left out.

    Args:
        old: The stored Job, as an API object.
        new: The Job of the update.
        gates: The feature gates of `JobGate` that are on; or a mapping from gate to whether it
            is on, in which a missing one has its default.

    Raises:
        InvalidFieldError: A field of a Job that is read has the wrong type, or the template is
            missing, or a gate is unknown. Paths of the stored Job begin with `old.`.
        InvalidQuantityError: An amount of a template is not a quantity.
    """
    enabled = enabled_gates(gates)
    before = mapping(mapping(old, _OLD).get("spec"), f"{_OLD}.spec")
    after = mapping(mapping(new, "").get("spec"), "spec")
    old_template = read_job_template(before.get("template"), f"{_OLD}.{TEMPLATE}")
    new_template = read_job_template(after.get("template"), TEMPLATE)
    pod = mapping(mapping(before.get("template"), "").get("spec"), "")
    own = job_errors(
        after,
        selects=before.get("selector") is not None,
        allowed=allowed_of(pod, f"{_OLD}.{TEMPLATE}.spec"),
    )
    stored, root = FieldReader(old, _OLD), FieldReader(new)
    of_metadata = metadata_errors(root.child("metadata"), "metadata")
    metadata = list(islice(of_metadata, MOST_NATIVE_ERRORS))
    state = job_state(old, field=_OLD)
    return [
        *metadata,
        *_generated_errors(stored, root),
        *own,
        *_name_errors(root),
        *metadata,
        *own,
        *_completions_errors(before, after),
        *immutable_errors(before, after, ("selector",)),
        *template_errors(
            old_template,
            new_template,
            resources=state.may_change_resources(enabled),
            scheduling=state.may_change_scheduling(enabled),
        ),
        *immutable_errors(before, after, _IMMUTABLE_AFTER_TEMPLATE),
    ]


def job_state(job: _Members, *, field: str = "") -> JobState:
    """Read from a Job what decides which of its fields may change.

    Args:
        job: The Job, as an API object.
        field: YAML path of the Job, for messages.

    Raises:
        InvalidFieldError: A field has the wrong type.
    """
    root = FieldReader(job, field)
    spec, status = root.child("spec"), root.child("status")
    has_started = status.timestamp("startTime") is not None
    conditions = [(one.text("type"), one.text("status")) for one in status.children("conditions")]
    true_conditions = {name for name, value in conditions if value == "True"}
    counts = {
        name: status.integer(name) or 0 for name in ("active", "terminating", "succeeded", "failed")
    }
    return JobState(
        suspended=spec.boolean("suspend"),
        started=has_started,
        marked_suspended="Suspended" in true_conditions,
        active=counts["active"],
        finished=not true_conditions.isdisjoint(_FINISHED),
        terminating=counts["terminating"],
        ran=has_started or any(counts.values()),
    )


def enabled_gates(gates: Gates) -> frozenset[str]:
    """Return the gates that are on; the argument is as in `job_update_errors`.

    Raises:
        InvalidFieldError: A gate is unknown.
    """
    unknown = sorted(set(gates) - ALL_GATES)
    if unknown:
        raise InvalidFieldError("gates", f"{unknown[0]!r} is not a gate of Job updates")
    if isinstance(gates, Mapping):
        return ALL_GATES - {gate for gate, is_on in gates.items() if not is_on}
    return frozenset(gates)


def _generated_errors(old: FieldReader, new: FieldReader) -> list[FieldError]:
    """Return the errors of a selector and labels that are no longer as they were generated.

    Those of a stored Job always are. What is missing in one that was made up may be missing. An
    update may leave out the uid: the API server fills it in after its hooks.

    Source: kubernetes v1.36, apiserver/pkg/registry/rest/update.go BeforeUpdate.
    """
    prefixed = has_prefixed_labels(old.child("spec").child("template"))
    stored = old.child("metadata").text("uid")
    before = set(generated_errors(old, stored, prefixed=prefixed))
    uid = new.child("metadata").text("uid") or stored
    return [error for error in generated_errors(new, uid, prefixed=prefixed) if error not in before]


def _name_errors(job: FieldReader) -> Iterator[FieldError]:
    """Yield the error of an Indexed Job of whose name and highest index no pod can be named."""
    spec, name = job.child("spec"), job.child("metadata").text("name")
    completions = spec.integer("completions") or 0
    if name and completions > 0 and spec.text("completionMode") == INDEXED:
        host = f"{name}-{completions - 1}"
        if dns_label_errors(host):
            detail = f"will not able to create pod with invalid DNS label: {host}"
            yield invalid("metadata.name", detail, name)


def _completions_errors(old: _Members, new: _Members) -> list[FieldError]:
    """Return the error of changed completions; an Indexed Job may scale them.

    Absent parallelism is 1, as API defaulting has it.
    """
    changed = immutable_errors(old, new, ("completions",))
    mode = text(new.get("completionMode"), "spec.completionMode")
    completions = integer(new.get("completions"), "spec.completions")
    if not changed or mode != INDEXED:
        return changed
    if completions is None:  # already refused as missing
        return []
    parallelism = integer(new.get("parallelism"), "spec.parallelism")
    if completions == (1 if parallelism is None else parallelism):
        return []
    detail = "can only be modified in tandem with spec.parallelism"
    return [FieldError("FieldValueInvalid", "spec.completions", detail)]
