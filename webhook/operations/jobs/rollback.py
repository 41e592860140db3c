"""Undo a resize of a Job that came to no end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.kube.api import JOBS, ApiError, ClusterApi, ConflictError, NotFoundError, Object
from webhook.operations.retry import RetryTimer
from webhook.quota.jobs.resize_plan import (
    DesiredResources,
    StoredJob,
    plan_changes,
    stored_job,
    suspend_command,
    suspend_patch,
)


@dataclass(frozen=True, slots=True)
class Undone:
    """Result of a rollback."""

    done: tuple[str, ...] = ()
    """What was undone, or needed no undoing."""
    left: tuple[str, ...] = ()
    """What could not be undone, and what to do about it."""
    resized: StoredJob | None = None
    """The Job, if it was resized after all and nothing was undone."""


def undo(
    api: ClusterApi,
    before: StoredJob,
    wanted: Mapping[str, DesiredResources],
    wait: RetryTimer,
    *,
    suspended: bool,
    changed: bool,
) -> Undone:
    """Restore the state that a Job had, unless it was resized, or restored already.

    Args:
        before: The Job as it was.
        wanted: What it was to have.
        wait: How long to go on.
        suspended: We may have suspended it.
        changed: We may have changed its resources.

    Never raises, whatever the API server or the keyboard says.
    """
    undoing = _Undoing(api, before, wanted, wait, suspended=suspended, changed=changed)
    try:
        return undoing.finish()
    except NotFoundError:
        return Undone(("nothing: the Job is gone",))
    except ApiError as err:
        return undoing.left(err.message)
    except KeyboardInterrupt:
        return undoing.left("interrupted again")


@dataclass(frozen=True, slots=True)
class _Undoing:
    api: ClusterApi
    before: StoredJob
    wanted: Mapping[str, DesiredResources]
    wait: RetryTimer
    suspended: bool
    changed: bool

    def finish(self) -> Undone:
        is_settled = False
        while True:
            job = self.wait.retry(self._read)
            now = stored_job(job)
            is_same = now.uid == self.before.uid
            if self.changed and is_same and not plan_changes(job, self.wanted):
                return Undone(resized=now)
            reason = _reason_to_leave(self.before, now, suspended=self.suspended)
            if reason and is_settled:
                return Undone((f"nothing: {reason}",))
            if reason:  # what was interrupted may be on its way still: look again
                self.wait.wait_for_caches()
                is_settled = True
            elif self._resume(now):
                return Undone(("spec.suspend is false again, pods that have ended start anew",))
            elif not self.wait.pause():
                return self.left("others write it all the time")

    def left(self, why: str) -> Undone:
        """Return what is to be done by hand."""
        title, resources = self.before.title, "may have changed" if self.changed else "are the same"
        command = suspend_command(self.before, suspend=False)
        problem = f"{title}: spec.suspend may still be true, and the resources {resources}: {why}"
        return Undone(left=(f"{problem}. Resume it: {command}" if self.suspended else problem,))

    def _read(self) -> Object:
        return self.api.get(JOBS, self.before.name, namespace=self.before.namespace)

    def _resume(self, now: StoredJob) -> bool:
        """Resume the Job; returns whether that is so, and not the Job changed meanwhile."""
        patch = suspend_patch(now, suspend=False)
        try:
            self.wait.retry(lambda: self.api.patch(JOBS, now.name, patch, namespace=now.namespace))
        except ConflictError:
            return False
        return True


def _reason_to_leave(before: StoredJob, now: StoredJob, *, suspended: bool) -> str:
    """Return why nothing is to be undone; empty if the Job has to be resumed."""
    if now.uid != before.uid:
        return "the Job is gone, another one has its name"
    if now.is_deleting:
        return "the Job is being deleted"
    if not suspended or not now.state.suspended:
        state = "true" if now.state.suspended else "false"
        return f"spec.suspend is {state}, and the resources were not changed"
    return ""
