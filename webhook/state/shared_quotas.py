"""ClusterDeferredQuota objects in the API server: read, compare-and-swap, follow.

As with ledgers, the last version that was read, written or watched of each is cached: writes find
out by their version whether it is the newest, and a denial reads first.

Names are those of ledgers (`cdq/both`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from webhook.jsonfields.fields import InvalidFieldError, NewerFormatError
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    ClusterApi,
    ConflictError,
    Object,
    find_object,
)
from webhook.kube.informer import Change, Informer, InformerTimings
from webhook.kube.joint_reads import JointReads
from webhook.quota.shared.cluster_quotas import (
    ClusterQuota,
    UnreadableClusterQuota,
    cluster_quota_or_fault,
    ledger_name,
    own_name,
)
from webhook.quota.shared.escrow import Shared
from webhook.quota.shared.grants import NO_GRANTS, Grants, grants_from_status, grants_status
from webhook.state.lazy_ledger import identity_of

_CONTENDED_SECONDS: Final = 1.0
"""After a write that lost a race: for so long it is cheaper to read before the next."""


class SharedQuotaVersion:
    """One version of a shared quota; its status is read when it is asked for."""

    __slots__ = (
        "_shared", "_status", "error", "is_newer", "quota", "resource_version", "uid",
    )  # fmt: skip

    def __init__(
        self,
        quota: ClusterQuota | UnreadableClusterQuota,
        uid: str,
        resource_version: int,
        content: Shared | object,
    ) -> None:
        self.quota = quota
        self.uid = uid
        self.resource_version = resource_version
        self.error = quota.fault if isinstance(quota, UnreadableClusterQuota) else ""
        """Why it cannot be read; known once `shared` was asked for."""
        self.is_newer = False
        """Whether a newer release wrote it; known at the same time."""
        is_read = isinstance(content, Shared)
        self._shared = content if isinstance(content, Shared) else None
        self._status = None if is_read else content

    @property
    def name(self) -> str:
        """Its name in ledgers."""
        return ledger_name(self.quota.name)

    @property
    def shared(self) -> Shared | None:
        """What it says; None if that cannot be read (`error`)."""
        if self._shared is None and not self.error and isinstance(self.quota, ClusterQuota):
            try:
                grants = grants_from_status(self._status, self.quota.name)
            except InvalidFieldError as err:
                self.error, self.is_newer = str(err), isinstance(err, NewerFormatError)
            else:
                self._shared = Shared(self.quota, grants)
        return self._shared

    def saying(self, shared: Shared) -> SharedQuotaVersion:
        """Return the version as if it said this, to be decided by."""
        return SharedQuotaVersion(self.quota, self.uid, self.resource_version, shared)

    @property
    def grants(self) -> Grants:
        """What the namespaces hold; a status that cannot be read is begun anew by a write."""
        return NO_GRANTS if self.shared is None else self.shared.grants


@dataclass(frozen=True, slots=True)
class SharedQuotaLookup:
    """A shared quota as it was looked up."""

    version: SharedQuotaVersion | None
    """The version; None where there is none, or it could not be had."""
    error: str = ""
    """Why it could not."""

    @property
    def shared(self) -> Shared | None:
        """What it says, if that is known."""
        return None if self.version is None else self.version.shared


class SharedQuotaStore:
    """Reads and writes shared quotas. Safe to use from several threads."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[str, SharedQuotaVersion] = {}
        # weak, so that a deleted quota leaves no lock: an entry lasts while a thread holds its lock
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._reads: JointReads[SharedQuotaVersion | None] = JointReads(at_once=None)
        self._contended: dict[str, float] = {}

    def follow(self, timing: InformerTimings | None = None) -> Informer[SharedQuotaVersion]:
        """Return an informer that, once started, keeps aside what others write."""
        informer = Informer(
            self._api, CLUSTER_DEFERRED_QUOTAS, transform=read_shared_quota, timings=timing
        )
        informer.add_handler(self._on_change)
        return informer

    def known(self, name: str) -> SharedQuotaVersion | None:
        """Return the newest version known here, without asking; None when none is."""
        return self._known.get(name)

    def newer_formats(self) -> list[str]:
        """Return which quotas of a newer release were met, and are still there."""
        with self._lock:
            known = list(self._known.values())
        return [
            f"{CLUSTER_DEFERRED_QUOTAS.kind} {one.quota.name} cannot be read: {one.error}"
            for one in known
            if one.is_newer
        ]

    def is_contended(self, name: str) -> bool:
        """Return whether others write it all the time: what is known is then rarely the newest."""
        return self._contended.get(name, 0.0) > time.monotonic()

    def fetch(self, name: str) -> SharedQuotaVersion | None:
        """Read a shared quota as it is now; None when there is none.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Not even its identity can be read.
        """
        found = find_object(self._api, CLUSTER_DEFERRED_QUOTAS, own_name(name))
        if found is None:
            with self._lock:
                self._known.pop(name, None)
            return None
        return self._keep(read_shared_quota(found))

    def fetch_together(self, name: str) -> SharedQuotaVersion | None:
        """Read a shared quota as `fetch`, or take what another thread has read since this call.

        Raises:
            ApiError: The API server does not answer.
            InvalidFieldError: Not even its identity can be read.
        """
        return self._reads.read(name, lambda: self.fetch(name))

    def write(self, version: SharedQuotaVersion, grants: Grants) -> SharedQuotaVersion:
        """Write what the namespaces hold in the place of `version`, whose spec can be read.

        Raises:
            ConflictError: The object is at another version; nothing was written.
            NotFoundError: It is gone.
            ApiError: Unavailable and the like leave open whether it was written.
            NewerFormatError: A newer release wrote what stands there.
            TypeError: The spec cannot be read.
        """
        quota = version.quota
        if version.shared is None and version.is_newer:
            raise NewerFormatError("", f"{version.name}: {version.error}")
        if not isinstance(quota, ClusterQuota):
            raise TypeError(f"{version.name} cannot be read: {version.error}")
        metadata = {
            "name": quota.name,
            "uid": version.uid,
            "resourceVersion": str(version.resource_version),
        }
        status = grants_status(grants, quota.quota.hard)
        obj = CLUSTER_DEFERRED_QUOTAS.make(metadata, status=status)
        try:
            written = self._api.update_status(CLUSTER_DEFERRED_QUOTAS, obj, is_brief=True)
        except ConflictError:
            self._contended[version.name] = time.monotonic() + _CONTENDED_SECONDS
            raise
        following = Shared(quota, grants)
        return self._keep(
            SharedQuotaVersion(quota, written.uid, written.resource_version, following)
        )

    @contextmanager
    def locked(self, names: Iterable[str], *, until: float) -> Iterator[bool]:
        """Keep others of this process from writing these quotas; return whether that came in time.

        Without it, writers of one process would make each other begin again and again.

        Args:
            until: How long to wait, on the monotonic clock.
        """
        with ExitStack() as stack:
            for name in sorted(names):
                with self._lock:
                    lock = self._locks.setdefault(name, threading.Lock())
                if not lock.acquire(timeout=max(0.0, until - time.monotonic())):
                    yield False
                    return
                stack.callback(lock.release)
            yield True

    def _keep(self, version: SharedQuotaVersion) -> SharedQuotaVersion:
        with self._lock:
            known = self._known.get(version.name)
            if known is None or known.resource_version < version.resource_version:
                self._known[version.name] = version
            elif known.resource_version == version.resource_version:
                return known  # its status has been read
        return version

    def _on_change(self, change: Change[SharedQuotaVersion]) -> None:
        if change.new is not None:
            self._keep(change.new)
            return
        name = ledger_name(change.key)
        self._contended.pop(name, None)
        with self._lock:
            known = self._known.get(name)
            if known is not None and known.resource_version <= change.resource_version:
                del self._known[name]


def read_shared_quota(raw: Object) -> SharedQuotaVersion:
    """Read a ClusterDeferredQuota; what is wrong with its spec or status is kept in it.

    Raises:
        InvalidFieldError: Not even its identity can be read.
    """
    uid, version = identity_of(raw)
    status: Mapping[str, object] | object = raw.get("status")
    return SharedQuotaVersion(cluster_quota_or_fault(raw), uid, version, status)
