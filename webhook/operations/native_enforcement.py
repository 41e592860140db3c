"""Hand a namespace back to the API server's own quota check."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.api import (
    RESOURCE_QUOTAS,
    ApiError,
    ClusterApi,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    Revision,
)
from webhook.operations.reading import Inhabitants, inhabitants
from webhook.operations.retry import Report, RetryTimer
from webhook.quota.amounts.resources import ResourceList, exceeding, mask
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.charging.status_mask import (
    Patch,
    carried_over,
    claimed_keys,
    hidden_keys,
    incomplete_keys,
    native_count,
    restoring_patch,
)
from webhook.quota.objects.model import ResourceQuota
from webhook.state.quota_lister import list_device_claims

_CONFLICTS: Final = 20
_WORTH_SAYING_SECONDS: Final = 10.0
"""After how long a message says what keeps quotas incomplete: caches are behind for less."""


@dataclass(frozen=True, slots=True)
class OverQuota:
    """A quota of which more is used than it allows, as the API server counts."""

    quota: str
    hard: ResourceList
    used: ResourceList


@dataclass(frozen=True, slots=True)
class Restored:
    """Outcome for the statuses of a namespace's quotas."""

    quotas: tuple[str, ...]
    """Names of those that were completed."""
    over: tuple[OverQuota, ...]
    """Those of which too much is used now."""
    problems: tuple[str, ...] = ()
    """Why others are not complete."""


@dataclass(slots=True)
class _Progress:
    written: dict[str, None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Those that were completed for the first time, and not looked at again yet."""
    hidden: dict[str, Set[str]] = field(default_factory=dict)
    """Quota → what its status lacked at some look; claims are counted for no other keys."""
    is_refused: bool = False
    told: set[str] = field(default_factory=set)

    def tell(self, namespace: str, has_lasted: bool, report: Report) -> None:
        """Report what is going on, each thing once."""
        lasting = self.unfinished if has_lasted else []
        for words in ("completing the status of its quotas", *lasting):
            if words not in self.told:
                self.told.add(words)
                report(f"{namespace}: {words}")


def restore_statuses(api: ClusterApi, namespace: str, wait: RetryTimer, report: Report) -> Restored:
    """Complete the status of every quota, so that the API server enforces all of it at once.

    Limits and usage are written together. While they are, pods may be created that the API
    server has not charged: it is finished when two looks, as far apart as the API server's own
    caches may be behind, find nothing to say. So it also outlasts a mask that is still at work.

    Raises:
        ApiError: Quotas, pods or claims cannot be listed.
    """
    progress = _Progress()
    is_settled = False
    begun = wait.patience.clock()
    while True:
        there = inhabitants(api, namespace, wait.retry)
        is_complete = _complete(api, namespace, there, wait, progress)
        if progress.is_refused or (is_complete and is_settled) or wait.is_over:
            return _outcome(there, progress, is_complete=is_complete)
        is_settled = is_complete
        if is_complete:
            wait.wait_for_caches()
        else:
            has_lasted = wait.patience.clock() - begun >= _WORTH_SAYING_SECONDS
            progress.tell(namespace, has_lasted, report)
            wait.pause(0)


def _complete(
    api: ClusterApi, namespace: str, there: Inhabitants, wait: RetryTimer, progress: _Progress
) -> bool:
    """Write what is missing; return whether nothing was."""
    progress.problems, progress.unfinished = list(there.unreadable), []
    progress.unseen = []
    is_complete = True
    claimed = {quota.name: _claimed(quota, progress) for quota in there.quotas}
    claims = wait.retry(lambda: list_device_claims(api, namespace)) if any(claimed.values()) else ()
    for quota in there.quotas:
        keys = claimed[quota.name]
        try:
            counted = native_count(quota, there.pods, now=there.now, claims=claims, claimed=keys)
        except ScopeError as err:
            progress.problems.append(f"quota {quota.name} cannot be counted: {err}")
            continue
        if restoring_patch(quota, counted) is None:
            continue
        is_complete = False
        was_written = quota.name in progress.written
        try:
            is_written = _write(api, namespace, quota, counted, wait)
        except ForbiddenError as err:
            progress.is_refused = True
            progress.problems.append(
                f"quota {quota.name}: its status cannot be completed: {err.message}; the API"
                " server's quota controller does it within five minutes"
            )
        except ApiError as err:
            progress.problems.append(f"quota {quota.name}: {err.message}")
        else:
            if is_written:
                progress.written[quota.name] = None
            if is_written and not was_written:
                progress.unseen.append(_unseen(quota))
            else:
                progress.unfinished.append(_unfinished(quota, was_written=was_written))
    return is_complete


def _claimed(quota: ResourceQuota, progress: _Progress) -> Set[str]:
    hidden = progress.hidden.get(quota.name, frozenset()) | frozenset(hidden_keys(quota))
    progress.hidden[quota.name] = hidden
    return claimed_keys(quota, hidden)


def _write(
    api: ClusterApi, namespace: str, quota: ResourceQuota, counted: ResourceList, wait: RetryTimer
) -> bool:
    """Complete one status; return whether it was written.

    Where pods are created all the time the API server writes this status as often, and a list of
    the pods is never as new as it. So after a conflict the count is carried over to the status
    as it is now; too little is found at the next look, too much by the quota controller.
    """
    newest = quota
    for _ in range(_CONFLICTS):
        patch = restoring_patch(newest, counted)
        if patch is None:
            return False
        try:
            wait.retry(lambda patch=patch: _patch_status(api, namespace, quota.name, patch))  # type: ignore[misc]
        except ConflictError:
            raw = wait.retry(lambda: api.get(RESOURCE_QUOTAS, quota.name, namespace=namespace))
            before, newest = newest, ResourceQuota.from_stored(raw)
            counted = carried_over(counted, before, newest)
        except NotFoundError:
            return False
        else:
            return True
    return False


def _patch_status(api: ClusterApi, namespace: str, name: str, patch: Patch) -> Revision:
    return api.patch(RESOURCE_QUOTAS, name, patch, namespace=namespace, subresource="status")


def _outcome(there: Inhabitants, progress: _Progress, *, is_complete: bool) -> Restored:
    problems = progress.problems
    if not is_complete and not progress.is_refused:
        problems = [*problems, *progress.unfinished, *progress.unseen]
    return Restored(tuple(progress.written), over_quota(there), tuple(problems))


def _unseen(quota: ResourceQuota) -> str:
    return f"quota {quota.name}: its status was completed, and not looked at again: the time was up"


def _unfinished(quota: ResourceQuota, *, was_written: bool) -> str:
    missing = incomplete_keys(quota)
    if missing and was_written:  # else nothing was completed that could have gone again
        lacking = ", ".join(missing)
        return f"quota {quota.name}: status lacks {lacking}: something takes it out again"
    return f"quota {quota.name}: pods come faster than they can be counted"


def over_quota(there: Inhabitants) -> tuple[OverQuota, ...]:
    """Return the quotas of which the pods that are there use too much, with or without a node."""
    found: list[OverQuota] = []
    for quota in there.quotas:
        try:
            used = native_count(quota, there.pods, now=there.now)
        except ScopeError:
            continue
        names = exceeding(used, quota.hard)
        if names:
            found.append(OverQuota(quota.name, mask(quota.hard, names), mask(used, names)))
    return tuple(found)
