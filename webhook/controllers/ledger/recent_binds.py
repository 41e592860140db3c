"""Pods of one namespace that were seen to get their nodes, until the ledger was written next.

They are remembered only while it is sure that a handler was to claim for each of them. A request
that was answered before the ledger counted what it counts now may be on its way for as long as a
request lasts. So the ledger has to count the same for that time, in writes of this process alone.
The write that ends it has a version; a pod got its node after that if it had none in a later state
of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerVersion

_MAX_PODS: Final = 2000
"""Pods that are remembered of a namespace; nothing is said of further ones."""


@dataclass(slots=True, eq=False)
class RecentBinds:
    """Recent binds of one namespace; guarded by the lock of the counts."""

    _uids: set[str] = field(default_factory=set)
    _base: tuple[str, int] | None = None
    """The ledger that was written last: its uid, and up to which version pods were counted."""
    _since: float | None = None
    """When the first ledger was written of those that count the same since."""
    _guarded_from: int = 0
    """What is stored after this version, a handler was to claim for; 0 when that is not known."""

    def reset(self) -> None:
        """Begin anew: something is not known."""
        self._uids.clear()
        self._base = self._since = None
        self._guarded_from = 0

    def observe(self, before: Pod | None, pod: Pod, complete_version: int) -> None:
        """Note a pod that has changed, if it got its node.

        Args:
            before: The pod as it was counted until now; None when it was not.
            complete_version: Up to which version every change was counted before this one.
        """
        if not self._guarded_from or complete_version < self._guarded_from or not pod.is_assigned:
            return
        is_new = before is None or not before.is_assigned
        if is_new and not pod.is_mirror and len(self._uids) < _MAX_PODS:
            self._uids.add(pod.uid)

    def take(self) -> set[str]:
        """Return what was noted, for a ledger that is about to be written, and forget it."""
        taken, self._uids = self._uids, set()
        return taken

    def restore(self, taken: set[str]) -> None:
        """Remember what was taken: nothing was written."""
        self._uids |= taken

    def follows(self, version: LedgerVersion) -> bool:
        """Return whether only handlers have written since this process has."""
        counted = 0 if version.ledger is None else version.ledger.pods_resource_version
        return self._base == (version.uid, counted)

    def record_write(
        self,
        written: LedgerVersion,
        *,
        started_at: float,
        finished_at: float,
        expire_seconds: float,
    ) -> None:
        """Note that a ledger was written which counts the same as the one before, or is the first.

        Args:
            started_at: When it was sent, on the monotonic clock.
            finished_at: When that was answered.
            expire_seconds: Longer than any request lasts.
        """
        counted = 0 if written.ledger is None else written.ledger.pods_resource_version
        self._base = written.uid, counted
        if self._since is None:
            self._since = finished_at
        elif not self._guarded_from and started_at - self._since >= expire_seconds:
            self._guarded_from = written.resource_version
