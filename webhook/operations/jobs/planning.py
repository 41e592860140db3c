"""Plan of a resize of a Job, with all checks that need no write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from webhook.kube.api import (
    JOBS,
    ApiError,
    ClusterApi,
    Object,
    Revision,
)
from webhook.operations.jobs.rules import ClusterRules, Judgement, judge
from webhook.quota.jobs.resize_plan import (
    ContainerChange,
    DesiredResources,
    Patch,
    StoredJob,
    blockers,
    change_errors,
    plan_changes,
    resize_patch,
    stored_job,
    suspend_command,
    suspend_patch,
    warnings_for,
)

_SINCE: Final = (1, 36)
"""Release since which the resources of a suspended Job can change unless that is switched off."""
_RULES: Final = "so it was checked here, by the rules of Kubernetes 1.36"


class ResizeRefusedError(Exception):
    """The Job cannot be resized, or not in time; `problems` says why, line by line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Order:
    """Order to resize a Job."""

    namespace: str
    name: str
    wanted: Mapping[str, DesiredResources]
    """Name of a container → its amounts."""
    stays_suspended: bool = False
    """It is not resumed, even if it ran."""
    rules: ClusterRules = field(default_factory=ClusterRules)
    """What the cluster wants of Jobs."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Plan of a resize."""

    facts: StoredJob
    changes: tuple[ContainerChange, ...]
    """What of its template changes; empty if it has those amounts already."""
    cautions: tuple[str, ...]
    """What may come in between, or cost something."""
    suspends: bool
    """It has to be suspended first."""
    resumes: bool
    """It is resumed in the end."""
    unasked: tuple[str, ...] = ()
    """What could not be asked before it is suspended, and why."""
    drains: bool = False
    """It has to wait until the pods that ran are gone, and not only inactive."""


@runtime_checkable
class _Versioned(Protocol):
    """An API server that says of which release it is."""

    def server_version(self) -> Object:
        """Return `major`, `minor` and more."""


def plan_resize(api: ClusterApi, order: Order) -> Plan:
    """Return what a resize would do, after all checks that need no write.

    Raises:
        ResizeRefusedError: It would not work; the problems name object and field.
        InvalidFieldError: There is no such container, or the Job cannot be read.
        ApiError: The Job cannot be read, or is not there.
    """
    job = api.get(JOBS, order.name, namespace=order.namespace)
    facts = stored_job(job)
    refuse(*blockers(facts))
    changes = plan_changes(job, order.wanted)
    if changes:
        refuse(*(f"{facts.title}: {error}" for error in change_errors(job, changes)))
    suspends = bool(changes) and not facts.state.suspended
    resumes = suspends and not order.stays_suspended
    judgement = Judgement()
    if suspends:
        _check_release(api, facts)
        judgement = judge(api, order.rules, job, changes, resumes=resumes)
        refuse(*(f"{facts.title}: {words}" for words in judgement.problems))
    return Plan(
        facts,
        changes,
        warnings_for(facts),
        suspends,
        resumes,
        unasked=judgement.unasked,
        drains=judgement.drains,
    )


def check_on_server(api: ClusterApi, plan: Plan) -> str:
    """Let the API server check a plan by a dry run, as far as it can; say what it checked.

    Raises:
        ApiError: It refuses.
    """
    facts, state = plan.facts, plan.facts.state
    if plan.suspends:
        patch_job(api, facts, suspend_patch(facts, suspend=True), dry_run=True)
        return (
            "the API server accepts the suspension. It checks a change of the resources only"
            f" when the Job is suspended and idle, {_RULES}"
        )
    if not state.is_open:
        why = f"status.active is {state.active}" if state.active else "it is not yet suspended"
        return f"the API server cannot check the change now, because {why}, {_RULES}"
    patch_job(api, facts, resize_patch(facts, plan.changes, resumes=plan.resumes), dry_run=True)
    return "the API server accepts the change"


def patch_job(
    api: ClusterApi, facts: StoredJob, patch: Patch, *, dry_run: bool = False
) -> Revision:
    """Patch a Job.

    Raises:
        ConflictError: It is not in the version that the patch names.
    """
    return api.patch(JOBS, facts.name, patch, namespace=facts.namespace, dry_run=dry_run)


def refuse(*problems: str) -> None:
    """Raise `ResizeRefusedError`, if there is a problem."""
    if problems:
        raise ResizeRefusedError(*problems)


def _check_release(api: ClusterApi, facts: StoredJob) -> None:
    """Refuse to suspend a Job that the API server may not let change then.

    Its feature gates are not served, its release is.
    """
    if not isinstance(api, _Versioned):
        return
    try:
        version = api.server_version()
    except ApiError:
        return  # who may not read it, or has an odd server, is not stopped by that
    found = tuple(_leading_number(version.get(name)) for name in ("major", "minor"))
    if found and found < _SINCE:
        refuse(
            f"{facts.title}: spec.suspend: the API server is {version.get('gitVersion')}, and"
            " lets resources of Jobs change only with the feature gate"
            " MutablePodResourcesForSuspendedJobs, which is on by default since 1.36. Its"
            " pods would perhaps be ended for nothing. If the gate is on, suspend it"
            f" yourself and run this again: {suspend_command(facts, suspend=True)}"
        )


def _leading_number(text: object) -> int:
    """Read "36+" as 36; what is no number counts as the newest."""
    digits = str(text).rstrip("+")
    return int(digits) if digits.isascii() and digits.isdecimal() else 10**6
