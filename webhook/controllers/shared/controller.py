"""Reconcile shared quotas: remove namespaces that left, report quotas that cannot be read.

A namespace that was deleted, or that left while no controller led, is still named in the quotas
that it shared. A grant that a handler raised and then did not use, because it stopped, is still
there. A quota that no namespace shares is complete. All of this is checked when a shared quota or a
namespace changes.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import Final

from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.shared.completeness import SHARED_RETRY_SECONDS
from webhook.controllers.shared.leaving import WAIT_SECONDS, Leaving
from webhook.controllers.shared.shared_context import EXCESS_SECONDS, SharedQuotaContext
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.kube.informer import Change
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.amounts.resources import is_within, mask, remove_zeros, subtract_non_negative
from webhook.quota.ledger.ledger import Account, QuotaRevision
from webhook.quota.objects.names import DERIVED_PREFIXES
from webhook.quota.shared.cluster_quotas import (
    ClusterQuota,
    UnreadableClusterQuota,
    ledger_name,
)
from webhook.quota.shared.escrow import (
    Raise,
    Shared,
    holding_only,
    is_counted_as,
    lowered,
    need,
    rewritten,
)
from webhook.quota.shared.grants import Grants, with_headroom, with_recall, without_promises
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

_HEADROOM_SECONDS: Final = 1.0
"""Between two looks at how much of what is granted is used."""
_RECALL_SECONDS: Final = 30.0
"""How long no headroom is given after it was in the way of a pod: the scheduler may come again as
late."""


class SharedQuotaController:
    """Looks after shared quotas, on one thread (`reconcile`); `pending_quotas` may be asked by any.

    Args:
        quotas: The cached quotas.
        namespaces: The cached namespaces.
    """

    def __init__(
        self,
        shared: SharedQuotaContext,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        recorder: LedgerRecorder,
    ) -> None:
        self.shared: Final = shared
        self.leaving = Leaving(shared)
        self._quotas = quotas
        self._recorder = recorder
        self._is_due = threading.Event()
        self._warned: dict[str, tuple[str, str]] = {}
        """Quota → its uid, and for which fault there was an event last."""
        self._headroom_seen = -math.inf
        """When it was looked at last how much is used."""
        self._recalled: dict[str, float] = {}
        """Quota → when headroom was last needed, where it is recalled."""
        quotas.shared.informer.add_handler(self._on_quota)
        namespaces.informer.add_handler(self._on_namespace)

    def reset(self) -> None:
        """Forget all state: a leadership begins."""
        self._warned.clear()
        self._recalled.clear()
        self.leaving.reset()
        self.requeue()

    def requeue(self) -> None:
        """Have all shared quotas reconciled at the next call of `reconcile`."""
        self._is_due.set()

    def reconcile(self, epoch: int) -> None:
        """Reconcile all shared quotas, if something has changed since.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        now = self.shared.clock()
        if now - self._headroom_seen >= _HEADROOM_SECONDS:
            self._headroom_seen = now
            self._look_at_headroom(epoch)
        if not self._is_due.is_set():
            return
        self._is_due.clear()
        has_failed = True  # so that an unexpected exception requeues, too
        try:
            has_failed = self._has_failed(epoch)
        finally:
            if has_failed:
                self.requeue()

    def _has_failed(self, epoch: int) -> bool:
        """Reconcile all shared quotas; return whether one has to be reconciled again."""
        has_failed = not self._has_forgotten_all()
        # computed once for all quotas: each bind that writes a grant reconciles every quota
        sharing = self.shared.usage_cache.all_sharing()
        for quota in self.shared.usage_cache.managed.shared_specs():
            try:
                if isinstance(quota, UnreadableClusterQuota):
                    self._warn_unreadable(quota)
                else:
                    self._reconcile_quota(quota, sharing.get(quota.quota.name, frozenset()), epoch)
            except (ApiError, InvalidFieldError) as err:
                _log.info("shared quota not kept", extra={"quota": quota.name, "error": str(err)})
                has_failed = True
        return has_failed

    def _has_forgotten_all(self) -> bool:
        """Forget quotas that are gone; return whether no other thread was at one of them.

        A leader can lead for months while quotas come and go.
        """
        are_all = True
        for name in self.noted_quotas() - self._names():
            with self.shared.store.locked([name], until=time.monotonic()) as is_held:
                if not is_held:
                    are_all = False
                elif name not in self._names():  # unless it was created again meanwhile
                    self._warned.pop(name, None)
                    self._recalled.pop(name, None)
                    self.leaving.forget(name)
                    self.shared.forget(name)
        return are_all

    def noted_quotas(self) -> set[str]:
        """Return the quotas of which something is noted, by their names in ledgers."""
        own = {*self._warned, *self._recalled}
        return own | self.leaving.noted_quotas() | self.shared.noted_quotas()

    def _names(self) -> set[str]:
        specs = self.shared.usage_cache.managed.shared_specs()
        return {ledger_name(quota.name) for quota in specs}

    def pending_quotas(self) -> list[str]:
        """Return the names, as in ledgers, of shared quotas that are still being counted.

        Without those that no wait makes complete: they cannot be read, or one of the namespaces
        that take part cannot be reconciled.
        """
        sharing = self.shared.usage_cache.all_sharing()
        return [
            quota.quota.name
            for quota in self.shared.usage_cache.managed.shared_specs()
            if isinstance(quota, ClusterQuota)
            and self._is_being_counted(quota, sharing.get(quota.quota.name, frozenset()))
        ]

    def _is_being_counted(self, quota: ClusterQuota, sharing: Set[str]) -> bool:
        version = self.shared.store.known(quota.quota.name)
        shared = None if version is None else version.shared
        if not sharing or shared is None:
            return False
        named = shared.grants.namespaces.keys()
        if self._is_complete(quota, shared) and sharing <= named:
            return False
        return not self.shared.usage_cache.any_failing(sharing | named)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_quota(self, change: Change[SharedQuotaVersion]) -> None:
        self.requeue()
        old, new = change.old, change.new
        if new is None:
            return
        usage_cache = self.shared.usage_cache
        if old is not None and _frees_quota(old, new):
            usage_cache.requeue_waiting_for(new.name)
        if old is not None and _is_uncounted(old, new):
            for namespace in usage_cache.sharing_namespaces(new.name):
                usage_cache.requeue_after(namespace, SHARED_RETRY_SECONDS)
        if _begins_recall(old, new):
            self.shared.recall(new.grants.headroom)

    def _on_namespace(self, _change: Change[bool]) -> None:
        self.requeue()

    # -- headroom ------------------------------------------------------------------------------

    def _look_at_headroom(self, epoch: int) -> None:
        for quota in self.shared.usage_cache.managed.shared_specs():
            if not isinstance(quota, ClusterQuota):
                continue
            version = self.shared.store.known(quota.quota.name)
            try:
                if version is not None and version.shared is not None:
                    self._look_at(version.name, version.shared, epoch)
            except (ApiError, InvalidFieldError) as err:
                _log.info("headroom not noted", extra={"quota": quota.name, "error": str(err)})

    def _look_at(self, name: str, shared: Shared, epoch: int) -> None:
        grants = shared.grants
        if not (shared.quota.headroom or grants.headroom or grants.is_recalled):
            return
        if grants.headroom and not shared.quota.headroom:
            self.shared.recall(grants.headroom)  # a quota that is edited recounts no ledger
        if grants.is_recalled:
            self._take_back(name, grants, epoch)
        else:
            self._recalled.pop(name, None)
        is_over = grants.is_recalled and self._is_recall_over(name)
        if self._noted(name, grants, is_over=is_over) is not grants:
            self._write(name, epoch, lambda now: self._noted(name, now, is_over=is_over))

    def _take_back(self, name: str, grants: Grants, epoch: int) -> None:
        """Have namespaces give headroom back; of those that cannot be counted it is taken."""
        self.shared.recall(grants.headroom)
        for namespace in grants.headroom:
            if self.shared.usage_cache.any_failing({namespace}):
                self.take_back(name, namespace, epoch)

    def take_back(self, name: str, namespace: str, epoch: int) -> None:
        """Let a namespace hold what its ledger says that it needs; nothing is counted for that.

        Raises:
            ApiError: The API server does not do it.
            InvalidFieldError: Its ledger cannot be read.
            NotLeadingError: Another process may be writing.
        """
        with self.shared.store.locked([name], until=time.monotonic() + WAIT_SECONDS) as is_held:
            version = self.shared.store.fetch(name) if is_held else None
            stored = self.shared.ledgers.fetch(namespace) if version is not None else None
            ledger = None if stored is None else stored.ledger
            if version is None or version.shared is None or stored is None or ledger is None:
                return
            account = ledger.accounts.get(name)
            if account is None or not is_counted_as(account, version.shared):
                return
            kept = Raise(need(account))
            lowered_ledger = rewritten(holding_only(ledger, name, kept.need))
            self.shared.require_leadership(epoch)
            self.shared.ledgers.write(namespace, stored, lowered_ledger)
            self.shared.write(version, lowered(version.grants, namespace, kept), epoch)

    def _is_recall_over(self, name: str) -> bool:
        """Return whether no pod has waited for a quota for a while."""
        now = self.shared.clock()
        since = self._recalled.setdefault(name, now)
        if self.shared.has_waiting(name):
            self._recalled[name] = since = now
        if now - since < _RECALL_SECONDS:
            return False
        self._recalled.pop(name, None)
        return True

    def _noted(self, name: str, grants: Grants, *, is_over: bool) -> Grants:
        """Return the grants with what is unused by the ledgers, recalled where pods wait for it."""
        noted = grants
        for namespace, held in grants.namespaces.items():
            account = self._known_account(namespace, name)
            needed = held if account is None else need(account)
            unused = remove_zeros(subtract_non_negative(held, mask(needed, held)))
            if unused != grants.headroom.get(namespace, {}):
                noted = with_headroom(noted, namespace, unused)
        if is_over and noted.is_recalled:
            noted = with_recall(noted, is_recalled=False)
        elif noted.headroom and not noted.is_recalled and self.shared.has_waiting(name):
            noted = with_recall(noted, is_recalled=True)
        return noted if noted is grants else replace(noted, serial=grants.serial + 1)

    def _write(self, name: str, epoch: int, change: Callable[[Grants], Grants]) -> None:
        with self.shared.store.locked([name], until=time.monotonic() + WAIT_SECONDS) as is_held:
            version = self.shared.store.fetch(name) if is_held else None
            if version is not None and version.shared is not None:
                following = change(version.grants)
                if following is not version.grants:
                    self.shared.write(version, following, epoch)

    # -- one quota -----------------------------------------------------------------------------

    def _reconcile_quota(self, quota: ClusterQuota, sharing: Set[str], epoch: int) -> None:
        name = quota.quota.name
        version = self.shared.store.known(name)
        shared = None if version is None else version.shared
        named = {} if shared is None else shared.grants.namespaces
        for namespace in sharing - named.keys():  # new, or removed by another client
            self.shared.usage_cache.requeue_after(namespace, 0.0)
        if shared is None:
            return
        left: list[str] = []
        for namespace in named:
            if namespace in sharing:
                self._check_excess(namespace, name, shared)
            elif namespace in self.shared.usage_cache.namespaces and self._has_ledger(namespace):
                self.shared.usage_cache.requeue_after(namespace, 0.0)
            else:  # without a ledger no reconciliation drops the namespace
                left.append(namespace)
        if left and not self.leaving.drop(left, name, epoch):
            self.requeue()
        self._withdraw_promises(quota, shared.grants, epoch)
        self._repair_texts(quota, shared.grants, epoch)
        is_awaited = self.shared.completeness.awaits_other(name, sharing | named.keys())
        if not sharing or (is_awaited and not self._is_complete(quota, shared)):
            self._complete(quota, epoch)

    def _withdraw_promises(self, quota: ClusterQuota, grants: Grants, epoch: int) -> None:
        """Withdraw promises of a quota that charges no elastic quota: no leader has made them."""
        if grants.promises and not quota.name.startswith(DERIVED_PREFIXES):
            self._write(quota.quota.name, epoch, _without_any_promise)

    def _repair_texts(self, quota: ClusterQuota, grants: Grants, epoch: int) -> None:
        """Write conditions and texts for people again that another client has changed."""
        observed = self._observed(quota)
        if observed is None:
            return
        change = partial(self.shared.completeness.repaired, quota=quota, observed=observed)
        if change(grants) is not grants:
            self._write(quota.quota.name, epoch, change)

    def _check_excess(self, namespace: str, name: str, shared: Shared) -> None:
        """Have a namespace reconciled that may hold more than its ledger says, or less."""
        account = self._known_account(namespace, name)
        granted = {} if account is None else account.granted
        granted_to = shared.grants.namespaces[namespace]
        if not (is_within(granted_to, granted) and is_within(granted, granted_to)):
            self.shared.usage_cache.requeue_after(namespace, EXCESS_SECONDS)

    def _has_ledger(self, namespace: str) -> bool:
        return self.shared.ledgers.known(namespace) is not None

    def _known_account(self, namespace: str, name: str) -> Account | None:
        """Return what a ledger says of a quota, as far as that is known here."""
        known = self.shared.ledgers.known(namespace)
        ledger = None if known is None else known.ledger
        return None if ledger is None else ledger.accounts.get(name)

    def _complete(self, quota: ClusterQuota, epoch: int) -> None:
        """Write that all namespaces of a quota are counted, where that is so.

        Else the reconciliation of the last one does so: here none shares it, or the last has left.
        """
        observed = self._observed(quota)
        with self.shared.store.locked(
            [quota.quota.name], until=time.monotonic() + WAIT_SECONDS
        ) as is_held:
            version = self.shared.store.known(quota.quota.name) if is_held else None
            if version is not None and observed and quota.is_same(version.quota):
                self.shared.completeness.mark_complete(observed, version, epoch)

    def _observed(self, quota: ClusterQuota) -> QuotaRevision | None:
        """Return what a quota is counted for now; None when nothing of it is deferred."""
        chosen = self._quotas.deferred_of([quota.quota]).quotas
        return chosen[0].observed if chosen else None

    def _is_complete(self, quota: ClusterQuota, shared: Shared) -> bool:
        return shared.grants.observed == self._observed(quota)

    def _warn_unreadable(self, quota: UnreadableClusterQuota) -> None:
        name, warning = ledger_name(quota.name), (quota.uid, quota.fault)
        if self._warned.get(name) != warning:
            self._warned[name] = warning
            self._recorder.warn_shared_quota(
                quota.name,
                quota.uid,
                "QuotaUnreadable",
                f"nothing is decided in the namespaces that it may select: {quota.fault}",
            )


def _begins_recall(old: SharedQuotaVersion | None, new: SharedQuotaVersion) -> bool:
    return new.grants.is_recalled and not (old is not None and old.grants.is_recalled)


def _is_uncounted(old: SharedQuotaVersion, new: SharedQuotaVersion) -> bool:
    """Return whether a quota that was counted no longer says so, as another client may write."""
    former = old.grants.observed
    return former is not None and new.grants.observed != former


def _frees_quota(old: SharedQuotaVersion, new: SharedQuotaVersion) -> bool:
    """Return whether pods may go that could not before.

    All are counted now, a namespace takes part now, or less is granted, promised or kept, so that
    others may have it.
    """
    if old.shared is None or new.shared is None:
        return True
    if old.shared.quota.kept != new.shared.quota.kept:
        return True
    former, present = old.shared.grants, new.shared.grants
    if former.observed != present.observed:
        return True
    if present.namespaces.keys() - former.namespaces.keys():
        return True
    if former.promises.keys() - present.promises.keys():
        return True
    return any(amount > present.total.get(name, ZERO) for name, amount in former.total.items())


def _without_any_promise(grants: Grants) -> Grants:
    return without_promises(grants, grants.promises) if grants.promises else grants
