"""Reconcile shared quotas: remove namespaces that left, report quotas that cannot be read.

A namespace that was deleted, or left without a leader, is still named in the quotas that it shared.
What a handler has raised and then not used, because it ended, is still granted. A quota that no
namespace shares is complete. All of that is checked when a shared quota or a namespace changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Set
from typing import Final

from webhook.controllers.ledger.recorder import LedgerRecorder
from webhook.controllers.shared.shared_context import EXCESS_SECONDS, SharedQuotaContext
from webhook.jsonfields.fields import InvalidFieldError
from webhook.kube.api import ApiError
from webhook.kube.informer import Change
from webhook.quota.amounts.quantity import ZERO
from webhook.quota.ledger.ledger import QuotaRevision
from webhook.quota.shared.cluster_quotas import ClusterQuota, UnreadableClusterQuota
from webhook.quota.shared.escrow import Shared, is_within
from webhook.quota.shared.grants import without
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedQuotaVersion

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 1.0


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
        self._quotas = quotas
        self._recorder = recorder
        self._is_due = threading.Event()
        self._warned: set[tuple[str, str]] = set()
        self._participants: dict[str, Set[str]] = {}
        """Quota → the namespaces that took part in it when it was looked at last."""
        if quotas.shared is not None:
            quotas.shared.informer.add_handler(self._on_quota)
            namespaces.informer.add_handler(self._on_namespace)

    def reset(self) -> None:
        """Look at everything anew."""
        self._warned.clear()
        self._participants.clear()
        self.requeue()

    def requeue(self) -> None:
        """Look at all shared quotas again with the next reconciliation."""
        self._is_due.set()

    def reconcile(self, epoch: int) -> None:
        """Look at all shared quotas, if something has changed since.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        if not self._is_due.is_set():
            return
        self._is_due.clear()
        for quota in self.shared.usage_cache.managed.shared_specs():
            try:
                if isinstance(quota, UnreadableClusterQuota):
                    self._warn_unreadable(quota)
                else:
                    self._reconcile_quota(quota, epoch)
            except (ApiError, InvalidFieldError) as err:
                _log.info("shared quota not kept", extra={"quota": quota.name, "error": str(err)})
                self.requeue()

    def pending_quotas(self) -> list[str]:
        """Return the names, as in ledgers, of shared quotas that are still being counted.

        Without those that no wait makes complete: they cannot be read, or one of the namespaces
        that take part cannot be reconciled.
        """
        return [
            quota.quota.name
            for quota in self.shared.usage_cache.managed.shared_specs()
            if isinstance(quota, ClusterQuota) and self._is_being_counted(quota)
        ]

    def _is_being_counted(self, quota: ClusterQuota) -> bool:
        sharing = set(self.shared.usage_cache.sharing_namespaces(quota.quota.name))
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
        if (
            change.old is not None
            and change.new is not None
            and _frees_quota(change.old, change.new)
        ):
            self.shared.usage_cache.requeue_waiting_for(change.new.name)

    def _on_namespace(self, _change: Change[bool]) -> None:
        self.requeue()

    # -- one quota -----------------------------------------------------------------------------

    def _reconcile_quota(self, quota: ClusterQuota, epoch: int) -> None:
        name = quota.quota.name
        version = self.shared.store.known(name)
        shared = None if version is None else version.shared
        sharing = set(self.shared.usage_cache.sharing_namespaces(name))
        named = {} if shared is None else shared.grants.namespaces
        for namespace in sharing - named.keys():  # new, or removed by another client
            self.shared.usage_cache.requeue_after(namespace, 0.0)
        if shared is None:
            return
        for namespace in named:
            if namespace in sharing:
                self._check_excess(namespace, name, shared)
            elif namespace in self.shared.usage_cache.namespaces:
                self.shared.usage_cache.requeue_after(namespace, 0.0)
            else:
                self.drop(namespace, name, epoch)
        if not sharing:
            self._complete_unshared(quota, epoch)
        elif self._has_lost_participant(name, sharing | named.keys()) and not self._is_complete(
            quota, shared
        ):
            for namespace in sharing:  # that one may have been the last that was not counted
                self.shared.usage_cache.requeue_after(namespace, 0.0)

    def _has_lost_participant(self, name: str, participants: Set[str]) -> bool:
        """Return whether a namespace took part in a quota at the last look, and does not now."""
        former = self._participants.get(name, frozenset())
        self._participants[name] = participants
        return not former <= participants

    def _check_excess(self, namespace: str, name: str, shared: Shared) -> None:
        """Have a namespace reconciled that may hold more than its ledger says, or less."""
        known = self.shared.ledgers.known(namespace)
        ledger = None if known is None else known.ledger
        account = None if ledger is None else ledger.accounts.get(name)
        granted = {} if account is None else account.granted
        granted_to = shared.grants.namespaces[namespace]
        if not (is_within(granted_to, granted) and is_within(granted, granted_to)):
            self.shared.usage_cache.requeue_after(namespace, EXCESS_SECONDS)

    def drop(self, namespace: str, name: str, epoch: int) -> None:
        """Drop a namespace that is not tracked, once nothing can be admitted by its ledger.

        Raises:
            ApiError: The API server does not do it.
            InvalidFieldError: Its ledger cannot be read.
            NotLeadingError: Another process may be writing.
        """
        with self.shared.store.locked([name], until=time.monotonic() + _WAIT_SECONDS) as is_held:
            version = self.shared.store.fetch(name) if is_held else None
            shared = None if version is None else version.shared
            if version is None or shared is None:
                self.requeue()
                return
            ledger = self.shared.ledgers.fetch(namespace)
            if ledger is not None and ledger.ledger and name in ledger.ledger.accounts:
                self.shared.usage_cache.clear_abandoned(namespace)
                return
            if not (
                isinstance(version.quota, ClusterQuota)
                and self.shared.participation.has_left(namespace, version.quota)
            ):
                return  # it is about to be tracked
            self.shared.write(version, without(shared.grants, namespace), epoch)
            _log.info("left a shared quota", extra={"namespace": namespace, "quota": name})

    def _complete_unshared(self, quota: ClusterQuota, epoch: int) -> None:
        """Write that all namespaces of a quota are named, where none shares it."""
        observed = self._observed(quota)
        with self.shared.store.locked(
            [quota.quota.name], until=time.monotonic() + _WAIT_SECONDS
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
        warning = (quota.uid, quota.fault)
        if warning not in self._warned:
            self._warned.add(warning)
            self._recorder.warn_shared_quota(
                quota.name,
                quota.uid,
                "QuotaUnreadable",
                f"nothing is decided in the namespaces that it may select: {quota.fault}",
            )


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
