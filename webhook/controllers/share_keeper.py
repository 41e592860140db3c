"""Look after shared quotas where no namespace is settled: who is named and should not be.

A namespace that was deleted, or left while nobody led, is still named in the quotas that it shared.
What a door has raised and then not used, because it ended, is still granted. A quota that nobody
shares is complete. All of that is looked at when a shared quota or a namespace has changed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Set
from typing import Final

from webhook.cluster.api import ApiError
from webhook.cluster.informer import Change
from webhook.controllers.shares import EXCESS_SECONDS, Shares
from webhook.controllers.voice import Voice
from webhook.quota.cluster_quotas import ClusterQuota, UnreadableClusterQuota
from webhook.quota.escrow import Shared, is_within
from webhook.quota.fields import InvalidFieldError
from webhook.quota.grants import dropped
from webhook.quota.ledger import Observed
from webhook.quota.quantity import ZERO
from webhook.state.ledgers import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedVersion

_log = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 1.0


class ShareKeeper:
    """Looks after shared quotas, on one thread (`look`); `uncounted` may be asked by any.

    Args:
        shares: The shared quotas.
        ledgers: Where ledgers are read and written.
        quotas: The cached quotas.
        namespaces: The cached namespaces.
        voice: Where it is told what was found.
    """

    def __init__(
        self,
        shares: Shares,
        ledgers: LedgerStore,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        voice: Voice,
    ) -> None:
        self._shares = shares
        self._ledgers = ledgers
        self._quotas = quotas
        self._voice = voice
        self._is_due = threading.Event()
        self._told: set[tuple[str, str]] = set()
        self._taking_part: dict[str, Set[str]] = {}
        """Quota → the namespaces that took part in it when it was looked at last."""
        if quotas.shared is not None:
            quotas.shared.informer.add_handler(self._on_quota)
            namespaces.informer.add_handler(self._on_namespace)

    def begin_term(self) -> None:
        """Look at everything anew."""
        self._told.clear()
        self._taking_part.clear()
        self._is_due.set()

    def look(self, term: int) -> None:
        """Look at all shared quotas, if something has changed since.

        Raises:
            NotLeadingError: Another process may be writing.
        """
        if not self._is_due.is_set():
            return
        self._is_due.clear()
        for quota in self._shares.counts.opted.shared_specs():
            try:
                if isinstance(quota, UnreadableClusterQuota):
                    self._tell(quota)
                else:
                    self._look_at(quota, term)
            except (ApiError, InvalidFieldError) as err:
                _log.info("shared quota not kept", extra={"quota": quota.name, "error": str(err)})
                self._is_due.set()

    def uncounted(self) -> list[str]:
        """Name the quotas, as ledgers do, that somebody shares and that are being counted still.

        Without those that no wait makes complete: they cannot be read, or one of the namespaces
        that take part cannot be settled.
        """
        return [
            quota.quota.name
            for quota in self._shares.counts.opted.shared_specs()
            if isinstance(quota, ClusterQuota) and self._is_being_counted(quota)
        ]

    def _is_being_counted(self, quota: ClusterQuota) -> bool:
        sharing = set(self._shares.counts.sharing(quota.quota.name))
        version = self._shares.store.known(quota.quota.name)
        shared = None if version is None else version.shared
        if not sharing or shared is None:
            return False
        named = shared.grants.namespaces.keys()
        if self._is_complete(quota, shared) and sharing <= named:
            return False
        return not self._shares.counts.is_one_failing(sharing | named)

    # -- events, on the informers' threads -----------------------------------------------------

    def _on_quota(self, change: Change[SharedVersion]) -> None:
        self._is_due.set()
        if change.old is not None and change.new is not None and _lets_go(change.old, change.new):
            self._shares.counts.look_at_waiting(change.new.name)

    def _on_namespace(self, _change: Change[bool]) -> None:
        self._is_due.set()

    # -- one quota -----------------------------------------------------------------------------

    def _look_at(self, quota: ClusterQuota, term: int) -> None:
        name = quota.quota.name
        version = self._shares.store.known(name)
        shared = None if version is None else version.shared
        sharing = set(self._shares.counts.sharing(name))
        named = {} if shared is None else shared.grants.namespaces
        for namespace in sharing - named.keys():  # new, or somebody took it out
            self._shares.counts.look_again(namespace, 0.0)
        if shared is None:
            return
        for namespace in named:
            if namespace in sharing:
                self._look_for_excess(namespace, name, shared)
            elif namespace in self._shares.counts.tracked:
                self._shares.counts.look_again(namespace, 0.0)
            else:
                self._drop(namespace, name, term)
        if not sharing:
            self._complete(quota, term)
        elif self._has_lost_one(name, sharing | named.keys()) and not self._is_complete(
            quota, shared
        ):
            for namespace in sharing:  # that one may have been the last that was not counted
                self._shares.counts.look_again(namespace, 0.0)

    def _has_lost_one(self, name: str, taking_part: Set[str]) -> bool:
        """Tell whether a namespace took part in a quota at the last look, and does not now."""
        former = self._taking_part.get(name, frozenset())
        self._taking_part[name] = taking_part
        return not former <= taking_part

    def _look_for_excess(self, namespace: str, name: str, shared: Shared) -> None:
        """Have a namespace settled that may hold more than its ledger says, or less."""
        known = self._ledgers.known(namespace)
        ledger = None if known is None else known.ledger
        account = None if ledger is None else ledger.accounts.get(name)
        granted = {} if account is None else account.granted
        held = shared.grants.namespaces[namespace]
        if not (is_within(held, granted) and is_within(granted, held)):
            self._shares.counts.look_again(namespace, EXCESS_SECONDS)

    def _drop(self, namespace: str, name: str, term: int) -> None:
        """Drop a namespace that is not tracked, once its ledger cannot be admitted by.

        Raises:
            ApiError: The API server does not do it.
            InvalidFieldError: Its ledger cannot be read.
            NotLeadingError: Another process may be writing.
        """
        with self._shares.store.held([name], until=time.monotonic() + _WAIT_SECONDS) as is_held:
            version = self._shares.store.fetch(name) if is_held else None
            shared = None if version is None else version.shared
            if version is None or shared is None:
                self._is_due.set()
                return
            ledger = self._ledgers.fetch(namespace)
            if ledger is not None and ledger.ledger and name in ledger.ledger.accounts:
                self._shares.counts.leave_again(namespace)
                return
            if not (
                isinstance(version.quota, ClusterQuota)
                and self._shares.membership.has_left(namespace, version.quota)
            ):
                return  # it is about to be tracked
            self._shares.write(version, dropped(shared.grants, namespace), term)
            _log.info("left a shared quota", extra={"namespace": namespace, "quota": name})

    def _complete(self, quota: ClusterQuota, term: int) -> None:
        """Say of a quota that nobody shares that all who take part are named."""
        observed = self._observed(quota)
        with self._shares.store.held(
            [quota.quota.name], until=time.monotonic() + _WAIT_SECONDS
        ) as is_held:
            version = self._shares.store.known(quota.quota.name) if is_held else None
            if version is not None and observed and quota.is_same(version.quota):
                self._shares.completeness.say(observed, version, term)

    def _observed(self, quota: ClusterQuota) -> Observed | None:
        """Return what a quota is counted for now; None when nothing of it is deferred."""
        chosen = self._quotas.deferred_of([quota.quota]).quotas
        return chosen[0].observed if chosen else None

    def _is_complete(self, quota: ClusterQuota, shared: Shared) -> bool:
        return shared.grants.observed == self._observed(quota)

    def _tell(self, quota: UnreadableClusterQuota) -> None:
        said = (quota.uid, quota.fault)
        if said not in self._told:
            self._told.add(said)
            self._voice.warn_of_shared(
                quota.name,
                quota.uid,
                "QuotaUnreadable",
                f"nothing is decided in the namespaces that it may select: {quota.fault}",
            )


def _lets_go(old: SharedVersion, new: SharedVersion) -> bool:
    """Tell whether pods may go that could not before.

    All are counted now, a namespace takes part now, or less is granted, so that others may have it.
    """
    if old.shared is None or new.shared is None:
        return True
    former, present = old.shared.grants, new.shared.grants
    if former.observed != present.observed:
        return True
    if present.namespaces.keys() - former.namespaces.keys():
        return True
    return any(amount > present.total.get(name, ZERO) for name, amount in former.total.items())
