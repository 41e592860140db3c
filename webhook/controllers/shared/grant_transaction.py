"""Grants of shared quotas to one namespace, written around the write of its ledger.

A reconciliation raises the grants of its namespace before the ledger is written, by force where
pods run already, and lowers them afterwards. The order of reads and writes, and why nothing can be
granted twice, is in `webhook.quota.shared.escrow`.

A quota is new to a ledger once: that write only counts. What is counted is granted with the next
one, by which the namespace takes part; when all have done so the quota is complete
(`completeness`). No namespace is dropped, and no grant lowered, by what a cache shows: the cache of
a new leader may be behind that of the one before.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.controllers.ledger.namespace_state import NamespaceState
from webhook.controllers.ledger.usage_cache import LedgerUpdate
from webhook.controllers.shared.completeness import SHARED_RETRY_SECONDS, Count
from webhook.controllers.shared.shared_context import EXCESS_SECONDS, SharedQuotaContext
from webhook.kube.api import ApiError, ConflictError, NotFoundError
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import (
    ResourceList,
    is_within,
    max_of,
    remove_zeros,
    subtract_non_negative,
)
from webhook.quota.ledger.ledger import Account, Ledger
from webhook.quota.objects.names import SHARED_PREFIX
from webhook.quota.queue.queued_pods import Blocker, PendingReason, PendingStatus, QueuedPod
from webhook.quota.shared.cluster_quotas import ClusterQuota
from webhook.quota.shared.escrow import (
    Raise,
    Shared,
    headroom_limit,
    holding_only,
    is_counted_as,
    lowered,
    names_former_spec,
    need,
    raised,
    rewritten,
    shared_names,
)
from webhook.quota.shared.grants import with_recall, without
from webhook.state.grant_raising import look_up, unavailable, with_other_namespaces
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 5.0


@contextmanager
def begin(
    shared: SharedQuotaContext,
    namespace: str,
    state: NamespaceState,
    ledger: Ledger | None,
    epoch: int,
) -> Iterator[GrantTransaction | None]:
    """Lock the shared quotas of a namespace; None while other threads hold them.

    Args:
        shared: The shared quotas of all.
        ledger: What its ledger says; it was read already.
        epoch: The leadership to write under.
    """
    counted = [one.name for one in state.usage.quotas.quotas if one.name.startswith(SHARED_PREFIX)]
    names = sorted({*counted, *shared_names(ledger), *shared.quotas_naming(namespace)})
    with shared.store.locked(names, until=time.monotonic() + _WAIT_SECONDS) as is_held:
        if not is_held:
            yield None
            return
        lookups = look_up(shared.store, names, is_fresh=False)
        versions = {name: lookup.version for name, lookup in lookups.items()}
        yield GrantTransaction(shared, namespace, state, ledger, epoch, versions)


@dataclass(eq=False)
class GrantTransaction:
    """Grants of one reconciliation of one namespace; without shared quotas it changes nothing."""

    shared: SharedQuotaContext
    """The shared quotas of all."""
    namespace: str
    """The namespace."""
    state: NamespaceState
    """The same."""
    previous_ledger: Ledger | None
    """What its ledger says."""
    epoch: int
    """The leadership to write under."""
    versions: dict[str, SharedQuotaVersion | None]
    """Its shared quotas, each at the version that is to be written over."""
    to_lower: dict[str, Raise | None] = field(default_factory=dict)
    """What is to be held once the ledger is written; None is dropped altogether."""

    def prepare(self, update: LedgerUpdate) -> LedgerUpdate | None:
        """Return what follows with what others hold; None when it counts quotas not looked up.

        Pods whose quota is not complete have to wait for that.
        """
        names = shared_names(update.ledger)
        if not names:
            return update
        if not self.versions.keys() >= set(names):
            return None
        lookups = {
            name: replace(lookup, version=self.versions[name])
            for name, lookup in look_up(self.shared.store, names, is_fresh=False).items()
        }
        ledger = with_other_namespaces(update.ledger, self.namespace, lookups)
        blocked = {
            name: undecided.message
            for name, undecided in unavailable(self.namespace, ledger, lookups).items()
        }
        for name in names:
            if not self._had_joined(ledger, name):
                blocked.setdefault(name, f"usage is being counted for quota: {name}")
        queue = update.queue if not blocked else tuple(_block(one, blocked) for one in update.queue)
        return LedgerUpdate(ledger, queue)

    def recall_headroom(self, pending: Mapping[str, PendingStatus]) -> None:
        """Have others give their headroom of the quotas that pods of the queue wait for.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        waited_for = {
            one.quota for one in pending.values() if one.reason is PendingReason.QUOTA_EXCEEDED
        }
        self.shared.forget_others(self.versions, self.namespace)
        for name, version in self.versions.items():
            self.shared.note_waiting(name, self.namespace, is_waiting=name in waited_for)
            if version is None or name not in waited_for or version.grants.is_recalled:
                continue
            if version.grants.headroom:
                try:
                    following = with_recall(version.grants, is_recalled=True)
                    self.versions[name] = self.shared.write(version, following, self.epoch)
                except ApiError:
                    # the version stays the one that was decided by: a raise must not be written
                    # over another
                    self._requeue_after(SHARED_RETRY_SECONDS)
                else:
                    self.shared.recall(version.grants.headroom)

    def raise_grants(self, ledger: Ledger, *, has_released: bool = False) -> Ledger | None:
        """Let the namespace hold what the ledger needs; None when it may not be written now.

        Args:
            ledger: What is about to be written.
            has_released: Pods of the queue have been reserved for. What others hold has to be
                compared for that, even if the namespace holds enough.

        Returns:
            The ledger to write, in which it holds what it needs, and its headroom.

        Raises:
            NotLeadingError: Another process may be writing.
            ApiError: The API server does not do it.
        """
        if not (self._can_join(ledger) and self._can_leave(ledger)):
            self._requeue_after(SHARED_RETRY_SECONDS)
            return None
        for name in shared_names(ledger):
            version = self.versions[name]
            if version is None or not _may_be_written(version):
                self._requeue_after(EXCESS_SECONDS)
            elif not self._had_joined(ledger, name):
                self._requeue_after(0.0)  # this write only counts; what is counted is granted next
            else:
                wanted = need(ledger.accounts[name])
                held = self._raise(name, version, wanted, has_released=has_released)
                if held is None:
                    return None
                kept = Raise(wanted, self._kept_headroom(name, held, wanted))
                self._plan_lowering(name, held, kept)
                ledger = holding_only(ledger, name, kept.held)
        self._plan_leaving(ledger)
        self._refresh_lowered(ledger)
        # which makes it a change
        return rewritten(ledger) if self.to_lower or self._may_be_overtaken(ledger) else ledger

    def lower_grants(self) -> None:
        """Lower what the namespace holds of the quotas, now that its ledger says so.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        # only after the ledger: until then handlers may admit by what it held
        for name, wanted in self.to_lower.items():
            version = self.versions[name]
            if version is None:
                continue
            following = (
                without(version.grants, [self.namespace])
                if wanted is None
                else lowered(version.grants, self.namespace, wanted)
            )
            try:
                self.versions[name] = self.shared.write(version, following, self.epoch)
            except ApiError as err:
                self._refresh_after(name, err)
                if not isinstance(err, NotFoundError):
                    self.state.excess[name] = (-math.inf, {})
                    self._requeue_after(SHARED_RETRY_SECONDS)
                    continue
            self.state.excess.pop(name, None)

    def close(self, ledger: Ledger, uid: str) -> None:
        """Note what is counted, once the ledger of this uid says so.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        count = Count(self.state, uid, ledger.guard_uid)
        for name in shared_names(ledger):
            version, account = self.versions[name], ledger.accounts[name]
            shared = None if version is None else version.shared
            if version is None or shared is None or not self._had_joined(ledger, name):
                continue
            held = shared.grants.namespaces.get(self.namespace)
            is_granted = held is not None and is_within(need(account), held)
            if not (is_granted and is_counted_as(account, shared)):
                continue
            try:
                self.versions[name] = self.shared.completeness.record_counted(
                    self.namespace, count, account.observed, version, self.epoch
                )
            except ApiError as err:
                self._refresh_after(name, err)
                self._requeue_after(SHARED_RETRY_SECONDS)

    # -- joining and leaving -------------------------------------------------------------------

    def _previous(self, name: str) -> Account | None:
        """Return what the ledger said of a quota before this reconciliation."""
        return None if self.previous_ledger is None else self.previous_ledger.accounts.get(name)

    def _had_joined(self, ledger: Ledger, name: str) -> bool:
        """Return whether the ledger counted this very quota before this reconciliation."""
        former = self._previous(name)
        return former is not None and former.observed == ledger.accounts[name].observed

    def _can_join(self, ledger: Ledger) -> bool:
        """Mark quotas incomplete that the ledger begins to count: no handler may admit by them.

        False where the quota is another by now, or another client wrote first.
        """
        for name in shared_names(ledger):
            if self._had_joined(ledger, name):
                continue
            # no edit is noted there that is taken back before it was counted to the end
            self.shared.completeness.uncount(self.namespace, name)
            account, version = ledger.accounts[name], self._fetch(name)
            shared = None if version is None else version.shared
            if version is None or shared is None:
                continue
            if not is_counted_as(account, shared):
                return False
            complete_for = shared.grants.observed
            is_new_here = self.namespace not in shared.grants.namespaces
            if complete_for is None or (complete_for == account.observed and is_new_here):
                continue
            if not self._mark_incomplete(version):
                return False
        return True

    def _can_leave(self, ledger: Ledger) -> bool:
        """Return whether the namespace has left what the ledger stops to count.

        One that is made anew may be in the place of one that counted what names the namespace.
        """
        former = self.previous_ledger
        for name in list(self.versions) if former is None else shared_names(former):
            if name in ledger.accounts:
                continue
            self.shared.completeness.uncount(self.namespace, name)
            if (version := self._fetch(name)) is None:
                continue
            quota = self.shared.participation.deferred_quota(version.quota)
            if quota is not None and not self.shared.participation.has_left(self.namespace, quota):
                return False
            is_vague = quota is None or names_former_spec(version.shared)
            if is_vague and version.grants.observed and not self._mark_incomplete(version):
                return False
        return True

    def _may_be_overtaken(self, ledger: Ledger) -> bool:
        """Return whether a ledger that is counted for a quota may stop to count it afterwards.

        A write of which this process has no answer, or of the former leader, may be carried out
        late, by a spec that was taken back meanwhile. It fails once there is another version.
        """
        return self.state.last_write is None and any(
            version is not None and version.grants.observed != ledger.accounts[name].observed
            for name in shared_names(ledger)
            for version in [self.versions[name]]
        )

    def _mark_incomplete(self, version: SharedQuotaVersion) -> bool:
        """Write that not all namespaces of a quota are counted; return False after a conflict."""
        try:
            taken_back = self.shared.completeness.mark_incomplete(version, self.epoch)
        except (ConflictError, NotFoundError) as err:
            self._refresh_after(version.name, err)
            return False
        self.versions[version.name] = taken_back
        return True

    # -- raising and lowering ------------------------------------------------------------------

    def _raise(
        self, name: str, version: SharedQuotaVersion, wanted: ResourceList, *, has_released: bool
    ) -> SharedQuotaVersion | None:
        """Write what the namespace needs, if it is not held yet; None when another was first."""
        former = self._previous(name)
        # a handler may be admitting by the ledger as it is: its grant is not lowered here
        floor = wanted if former is None else max_of(wanted, former.granted)
        if self._is_outdated(name, version):
            return None
        held = version.grants.namespaces.get(self.namespace)
        is_granted = former is not None and is_within(wanted, former.granted)
        if is_granted and not has_released and held is not None and is_within(floor, held):
            return version
        unused = subtract_non_negative(floor, wanted)
        following = raised(version.grants, self.namespace, Raise(wanted, unused))
        try:
            written = self.versions[name] = self.shared.write(version, following, self.epoch)
        except (ConflictError, NotFoundError) as err:
            self._refresh_after(name, err)
            return None
        return written

    def _is_outdated(self, name: str, version: SharedQuotaVersion) -> bool:
        """Return whether the ledger that is written over says more than the one that is stored.

        It says more than the quota, so it is older than a lowering of it, unless another client has
        edited the quota. What it said is not raised to again: others may hold it by now.
        """
        former = self._previous(name)
        held = version.grants.namespaces.get(self.namespace, {})
        if former is None or is_within(former.granted, held):
            return False
        stored = self.shared.ledgers.fetch(self.namespace)
        ledger = None if stored is None else stored.ledger
        account = None if ledger is None else ledger.accounts.get(name)
        return account is None or account.granted != former.granted

    def _kept_headroom(
        self, name: str, version: SharedQuotaVersion, wanted: ResourceList
    ) -> ResourceList:
        """Return what the namespace goes on to hold unused, out of what its ledger has unused."""
        former, shared = self._previous(name), version.shared
        if former is None or shared is None or not shared.quota.headroom:
            return {}
        if self.shared.has_waiting(name):
            return {}
        limit = headroom_limit(shared, self.namespace, wanted)
        unused = subtract_non_negative(former.granted, wanted)
        return remove_zeros({one: min(unused.get(one, ZERO), most) for one, most in limit.items()})

    def _plan_lowering(self, name: str, version: SharedQuotaVersion, kept: Raise) -> None:
        """Plan to lower what the ledger needs no more, or no handler has used for a while."""
        held, wanted = version.grants.namespaces.get(self.namespace, {}), kept.held
        if is_within(held, wanted):
            self.state.excess.pop(name, None)
            return
        former = self._previous(name)
        has_fallen = former is not None and not is_within(former.granted, wanted)
        now = self.shared.clock()
        since, former_held = self.state.excess.get(name, (now, held))
        if former_held != held and since > -math.inf:
            since = now  # a handler has just raised it, and is about to write the ledger
        self.state.excess[name] = (since, held)
        if has_fallen or now - since >= EXCESS_SECONDS:
            self.to_lower[name] = kept
        else:
            self._requeue_after(EXCESS_SECONDS)

    def _plan_leaving(self, ledger: Ledger) -> None:
        for name, version in self.versions.items():
            if name in ledger.accounts or version is None:
                continue
            is_named = self.namespace in version.grants.namespaces
            if is_named and isinstance(version.quota, ClusterQuota):
                self.to_lower[name] = None

    def _refresh_lowered(self, ledger: Ledger) -> None:
        """Have the newest version of what is lowered: the ledger is written only after this."""
        for name in list(self.to_lower):
            version = self._fetch(name)
            if version is None or version.shared is None:
                del self.to_lower[name]
            elif not self._may_lower(name, version, version.shared, ledger):
                del self.to_lower[name]
                self._requeue_after(SHARED_RETRY_SECONDS)

    def _may_lower(
        self, name: str, version: SharedQuotaVersion, shared: Shared, ledger: Ledger
    ) -> bool:
        account = ledger.accounts.get(name)
        if account is not None:
            return is_counted_as(account, shared)
        quota = self.shared.participation.deferred_quota(version.quota)
        return quota is None or self.shared.participation.has_left(self.namespace, quota)

    # -- inside --------------------------------------------------------------------------------

    def _fetch(self, name: str) -> SharedQuotaVersion | None:
        version = self.versions[name] = self.shared.store.fetch(name)
        return version

    def _refresh_after(self, name: str, err: ApiError) -> None:
        """Have the newest version at hand for the next attempt."""
        extra = {"namespace": self.namespace, "quota": name, "error": str(err)}
        _log.info("shared quota not written", extra=extra)
        try:
            self._fetch(name)
        except (ApiError, ValueError) as again:
            _log.warning("shared quota not read", extra={"quota": name, "error": str(again)})

    def _requeue_after(self, seconds: float) -> None:
        self.shared.usage_cache.requeue_after(self.namespace, seconds)


def _may_be_written(version: SharedQuotaVersion) -> bool:
    """Return whether a quota can be read, and its status is of a format that is known here.

    A status that is damaged is begun anew.
    """
    return isinstance(version.quota, ClusterQuota) and (
        version.shared is not None or not version.is_newer
    )


def _block(queued: QueuedPod, blocked: Mapping[str, str]) -> QueuedPod:
    claim = queued.claim
    if queued.blocker is not None or claim is None:
        return queued
    message = next((blocked[name] for name in claim.quotas if name in blocked), None)
    if message is None:
        return queued
    return replace(queued, blocker=Blocker(PendingReason.NOT_COUNTED, message))
