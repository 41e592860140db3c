"""Deletion of objects: at once, after a grace period, or when their finalizers are gone.

Source: kubernetes v1.36, apiserver/pkg/registry/rest/delete.go BeforeDelete,
apiserver/pkg/registry/generic/registry/store.go Delete and ShouldDeleteDuringUpdate.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from webhook.fakecluster.storage.stored_object import StoredObject
from webhook.fakecluster.storage.strategies import grace_seconds


@dataclass(frozen=True, slots=True)
class DeletionStep:
    """Effect of a delete request: first a write, if any, then whether the object goes."""

    write: StoredObject | None
    removes: bool

    @property
    def does_nothing(self) -> bool:
        """Return whether the object stays as it is."""
        return self.write is None and not self.removes

    @property
    def goes_on(self) -> bool:
        """Return whether the object is marked first and removed in a second write."""
        return self.write is not None and self.removes


def next_step(old: StoredObject, asked: int | None, now: datetime) -> DeletionStep:
    """Return what deleting an object with a grace period of `asked` seconds does to it now."""
    if old.meta.deletion_timestamp is not None:
        return _hurry(old, old.meta.deletion_timestamp, asked)
    seconds = grace_seconds(old, asked)
    if seconds is None and not old.meta.finalizers:
        return DeletionStep(None, removes=True)
    return _marking(_counted(old), now, seconds or 0)


def _hurry(old: StoredObject, due: datetime, asked: int | None) -> DeletionStep:
    """Delete what is being deleted already: the grace period can only become shorter."""
    left = old.meta.deletion_grace_period_seconds
    if not left:
        return DeletionStep(None, removes=not old.meta.finalizers)
    if asked is None or asked >= left:
        return DeletionStep(None, removes=False)
    return _marking(old, due - timedelta(seconds=left), 1 if asked < 0 else asked)


def _marking(old: StoredObject, since: datetime, seconds: int) -> DeletionStep:
    marked = old.with_meta(
        deletion_timestamp=since + timedelta(seconds=seconds),
        deletion_grace_period_seconds=seconds,
    )
    return DeletionStep(marked, removes=seconds == 0 and not old.meta.finalizers)


def _counted(old: StoredObject) -> StoredObject:
    generation = old.meta.generation
    return old.with_meta(generation=generation + 1) if generation else old


def is_due(stored: StoredObject) -> bool:
    """Return whether nothing holds a deleted object any longer: an update of it removes it."""
    meta = stored.meta
    return (
        meta.deletion_timestamp is not None
        and not meta.finalizers
        and not meta.deletion_grace_period_seconds
    )
