"""Snapshot to decide which pods to requeue: the newest ledger plus grants of other namespaces.

A ledger says nothing of what other namespaces hold of a quota that they share: that is filled in
from the shared quotas as they are cached, and their versions are part of what was looked at. Of one
that nothing may be granted of now, no pod is requeued: its bind could not be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.controllers.managed_namespaces import ManagedNamespaces
from webhook.controllers.queue.gated_pods import next_criteria
from webhook.quota.charging.deferral import NamespaceQuotas
from webhook.quota.ledger.ledger import Ledger, Undecided
from webhook.quota.queue.queued_pods import QueueCriteria, QueuedPod, QueuePolicy
from webhook.quota.shared.cluster_quotas import own_name
from webhook.quota.shared.escrow import shared_names, without_headroom
from webhook.state.grant_raising import (
    NO_SHARED_QUOTAS,
    SharedLookups,
    blocking_reason,
    shared_of,
    unavailable,
    with_other_namespaces,
)
from webhook.state.ledger_store import LedgerStore
from webhook.state.shared_quotas import SharedQuotaLookup


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueOptions:
    """Rules that decide which pods are requeued."""

    is_enabled: Callable[[], bool]
    """Returns whether schedulers use the extender at all."""
    ledgers: LedgerStore
    managed: ManagedNamespaces
    policy: Callable[[], QueuePolicy]


@dataclass(frozen=True, slots=True)
class RequeueSnapshot:
    """Facts by which the pods of one namespace are judged."""

    namespace: str
    """The namespace."""
    own_ledger: Ledger | None
    """Its ledger, without what others hold; None where nothing is counted any more."""
    criteria: QueueCriteria
    """The quotas and rules."""
    shared: SharedLookups
    """The shared quotas that the ledger counts."""
    version: object
    """What all of this is of: the same while nothing has changed."""

    def ledger(self) -> Ledger | None:
        """Return the ledger with what others hold and use: what they do not use a bind recalls."""
        if self.own_ledger is None:
            return None
        ledger = with_other_namespaces(self.own_ledger, self.namespace, self.shared)
        return without_headroom(ledger, self.namespace, shared_of(self.shared)) or ledger

    def available(self, candidates: tuple[QueuedPod, ...]) -> tuple[QueuedPod, ...]:
        """Return the candidates without a claim on quotas that nothing may be granted of now."""
        known = self.own_ledger
        blocked = {} if known is None else unavailable(self.namespace, known, self.shared)
        if known is None or not blocked:
            return candidates
        return tuple(
            entry for entry in candidates if _blocking_reason(entry, known, blocked) is None
        )


OPTED_OUT: Final = RequeueSnapshot(
    "", None, QueueCriteria(NamespaceQuotas((), frozenset())), NO_SHARED_QUOTAS, "it has opted out"
)
"""What those are judged by whose namespace has opted out: nothing stands in their way."""


def take_snapshot(
    options: RequeueOptions, namespace: str, former: QueueCriteria | None
) -> RequeueSnapshot | None:
    """Return what the pods of an opted-in namespace are judged by; None where nothing is counted.

    Args:
        options: What decides.
        former: What its pods were judged by last.
    """
    version, seen = options.ledgers.known(namespace), options.managed.quotas_of(namespace)
    ledger = None if version is None else version.ledger
    if version is None or ledger is None or ledger.observed != seen.deferred.observed:
        return None
    criteria = next_criteria(former, seen.deferred, seen, options.policy())
    cached = options.managed.quotas.shared.informer
    shared = {name: SharedQuotaLookup(cached.get(own_name(name))) for name in shared_names(ledger)}
    versions = tuple([(name, _number(entry)) for name, entry in shared.items()])
    state = (version.uid, version.resource_version, id(criteria), versions)
    return RequeueSnapshot(namespace, ledger, criteria, shared, state)


def _number(seen: SharedQuotaLookup) -> int:
    return 0 if seen.version is None else seen.version.resource_version


def _blocking_reason(
    queued: QueuedPod, ledger: Ledger, blocked: Mapping[str, Undecided]
) -> Undecided | None:
    return None if queued.claim is None else blocking_reason(queued.claim, ledger, blocked)
