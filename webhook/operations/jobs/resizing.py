"""Resize a Job: suspend it, wait until its pods are gone, change and resume it in one write.

Each step reads the Job and takes the one step that brings it further, by a patch that names the
version that was read. So a conflict, or an answer that was lost, is met by reading again. What is
written is `spec.suspend: true`, and then the resources and `spec.suspend: false` together. Until
that second write the Job has its old resources: all there is to undo is the suspension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.api import (
    JOBS,
    ApiError,
    ClusterApi,
    ConflictError,
    InternalError,
    Object,
    RequestTimeoutError,
    Revision,
    UnavailableError,
)
from webhook.operations.jobs.planning import (
    Order,
    Plan,
    ResizeRefusedError,
    patch_job,
    plan_resize,
    refuse,
)
from webhook.operations.jobs.rollback import Undone, undo
from webhook.operations.retry import Report, RetryPolicy, RetryTimer, silent
from webhook.quota.jobs.resize_plan import (
    ContainerChange,
    StoredJob,
    blockers,
    plan_changes,
    resize_patch,
    stored_job,
    suspend_patch,
)

_UNKNOWN: Final = (UnavailableError, RequestTimeoutError, InternalError)
"""Errors that leave open whether a write took place."""


class ResizeFailedError(Exception):
    """A resize that had begun came to no end; chained is why.

    Attributes:
        problem: What went wrong.
        undone: What was undone, and what could not be.
    """

    def __init__(self, problem: str, undone: Undone) -> None:
        super().__init__(problem)
        self.problem, self.undone = problem, undone


@dataclass(frozen=True, slots=True)
class Resized:
    """Result of a resize."""

    plan: Plan
    suspended: bool = False
    """It suspended the Job itself."""
    resumed: bool = False
    """It resumed the Job."""
    problems: tuple[str, ...] = ()
    """What is not as it should be now, although all was written."""


def resize(
    api: ClusterApi,
    order: Order,
    *,
    report: Report = silent,
    patience: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
    undo_seconds: float = 30.0,
) -> Resized:
    """Resize a Job. To repeat it does no harm.

    Args:
        order: What is wanted.
        report: Receives progress.
        patience: How long to go on until the Job is resized.
        undo_seconds: How long to go on with undoing, if that fails for now.

    Raises:
        ResizeRefusedError: It cannot work, and nothing was written.
        ResizeFailedError: It came to no end; chained is why, be it an interruption.
        InvalidFieldError: There is no such container, or the Job cannot be read.
        ApiError: The Job cannot be read, or the first write was refused; nothing was written.
    """
    wait = patience.begin()
    plan = wait.retry(lambda: plan_resize(api, order))
    if not plan.changes:
        return Resized(plan)
    run = _Run(api, order, plan, wait, report)
    try:
        return run.finish()
    except BaseException as err:  # an interruption too must not leave the Job suspended
        if not run.may_have_written:
            raise
        undone = undo(
            api,
            plan.facts,
            order.wanted,
            replace(patience, seconds=undo_seconds).begin(),
            suspended=run.suspension.may_have_landed,
            changed=run.change.may_have_landed,
        )
        if undone.resized is not None and isinstance(err, ApiError | KeyboardInterrupt):
            return run.outcome(undone.resized)
        raise ResizeFailedError(run.words(err), undone) from err


class _Write:
    """A write that may be sent more than once.

    Attributes:
        may_have_landed: It was sent, and not each time refused: an interruption, or an answer that
            was lost, leave it open.
    """

    def __init__(self) -> None:
        self.may_have_landed = False

    def send(self, wait: RetryTimer, call: Callable[[], Revision]) -> Revision | None:
        """Send it until the answer is known; None if the object is in another version.

        Raises:
            ApiError: It was refused, or the time is up.
        """
        is_open, self.may_have_landed = self.may_have_landed, True

        def attempt() -> Revision:
            nonlocal is_open
            try:
                return call()
            except _UNKNOWN:
                is_open = True
                raise

        try:
            return wait.retry(attempt)
        except ApiError as err:
            self.may_have_landed = is_open
            if isinstance(err, ConflictError):
                return None
            raise


class _Run:
    """One resize that has begun; `suspension` and `change` are what it writes."""

    def __init__(
        self, api: ClusterApi, order: Order, plan: Plan, wait: RetryTimer, report: Report
    ) -> None:
        self._api, self._order, self._plan = api, order, plan
        self._wait, self._report = wait, report
        self._has_suspended = False
        self._told = ""
        self._step = ""
        self.suspension, self.change = _Write(), _Write()

    @property
    def may_have_written(self) -> bool:
        """Whether anything may have been written."""
        return self.suspension.may_have_landed or self.change.may_have_landed

    def finish(self) -> Resized:
        """Take steps until the Job is resized."""
        while True:
            job = self._wait.retry(self._read)
            done = self._take_step(job)
            if done is not None:
                return done
            if not self._wait.pause():
                refuse(self._too_late())

    def words(self, err: BaseException) -> str:
        """Return what went wrong, and in which step."""
        if isinstance(err, ResizeRefusedError):
            return str(err)
        what = err.message if isinstance(err, ApiError) else str(err) or type(err).__name__
        if isinstance(err, KeyboardInterrupt):
            what = "interrupted"
        return f"{self._plan.facts.title}: {self._step or 'beginning'}: {what}"

    def outcome(self, now: StoredJob, odd: tuple[ContainerChange, ...] = ()) -> Resized:
        """Return what was done; `now` is the resized Job, `odd` what of it is not as wanted."""
        problems = [f"{now.title}: {each.field}: something else changed them" for each in odd]
        title, suspends = now.title, self.suspension.may_have_landed
        if self._plan.suspends and not suspends:
            problems.append(f"{title}: spec.suspend: another client suspended it, it stays so")
        elif self._resumes and now.state.suspended:
            problems.append(f"{title}: spec.suspend: is true again, something holds it back")
        resumed = self._resumes and not now.state.suspended
        return Resized(self._plan, suspends, resumed, tuple(problems))

    @property
    def _resumes(self) -> bool:
        return self.suspension.may_have_landed and not self._order.stays_suspended

    def _read(self) -> Object:
        return self._api.get(JOBS, self._order.name, namespace=self._order.namespace)

    def _take_step(self, job: Object) -> Resized | None:
        facts = stored_job(job)
        self._check(facts)
        changes = plan_changes(job, self._order.wanted)
        if not changes and not (self._resumes and facts.state.suspended):
            return self.outcome(facts)
        if not facts.state.suspended:
            self._check_resumption(facts)
            self._suspend(facts)
            return None
        if not facts.state.is_open or self._drains(facts):
            self._tell(f"{facts.title}: waiting: {_obstruction(facts)}")
            return None
        return self._change(facts, changes)

    def _check(self, facts: StoredJob) -> None:
        """Look whether it is still the same Job, and can still be resized."""
        if facts.uid != self._plan.facts.uid:
            refuse(f"{facts.title}: metadata.uid: another Job has this name now")
        refuse(*blockers(facts))

    def _drains(self, facts: StoredJob) -> bool:
        """Whether a rule refuses the change until the pods that still end are gone."""
        return self._plan.drains and facts.state.terminating > 0

    def _check_resumption(self, facts: StoredJob) -> None:
        """Do not suspend what another user resumed."""
        if self._has_suspended or not self._plan.suspends:
            refuse(f"{facts.title}: spec.suspend: another client resumed it before it was resized")

    def _suspend(self, facts: StoredJob) -> None:
        self._step = "suspending it"
        patch = suspend_patch(facts, suspend=True)
        sent = self.suspension.send(self._wait, lambda: patch_job(self._api, facts, patch))
        if sent is not None:
            self._has_suspended = True
            self._tell(f"{facts.title}: suspended")
            self._step = "waiting until its pods are gone"

    def _change(self, facts: StoredJob, changes: tuple[ContainerChange, ...]) -> Resized | None:
        self._step = "changing its resources"
        self._tell(f"{facts.title}: changing its resources")
        patch = resize_patch(facts, changes, resumes=self._resumes)
        sent = self.change.send(self._wait, lambda: patch_job(self._api, facts, patch))
        if sent is None:
            return None
        odd = plan_changes(sent.object, self._order.wanted)
        return self.outcome(stored_job(sent.object), odd)

    def _tell(self, words: str) -> None:
        if words != self._told:
            self._told = words
            self._report(words)

    def _too_late(self) -> str:
        facts = stored_job(self._read())
        seconds = self._wait.patience.seconds
        return f"{facts.title}: not suspended and idle after {seconds:g} s: {_obstruction(facts)}"


def _obstruction(facts: StoredJob) -> str:
    """Return why the resources cannot change yet."""
    if facts.state.active:
        return f"status.active is {facts.state.active}"
    if not facts.state.is_open:
        return "status.conditions has no Suspended: True"
    if facts.state.terminating:
        return f"status.terminating is {facts.state.terminating}"
    return "others write it all the time"
