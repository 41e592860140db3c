"""By what it is decided which refused pods are woken: the newest ledger, beside what others hold.

A ledger says nothing of what other namespaces hold of a quota that they share: that is filled in
from the shared quotas as they are cached, and their versions are part of what was looked at. Of one
that nothing may be granted of now, nobody is woken: a bind could not be decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.controllers.opted import Opted
from webhook.controllers.waiting import following_terms
from webhook.quota.cluster_quotas import own_name
from webhook.quota.deferral import NamespaceQuotas
from webhook.quota.escrow import shared_names
from webhook.quota.ledger import Ledger, Undecided
from webhook.quota.line import LineRules, Terms, Waiter
from webhook.state.ledgers import LedgerStore
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedSeen
from webhook.state.sharing import NOTHING_SHARED, SharedMap, closed, reason_of, with_others


@dataclass(frozen=True, slots=True, kw_only=True)
class Wakes:
    """What decides who is woken.

    Attributes:
        is_enabled: Tells whether schedulers are told of quotas at all.
        ledgers: What is known of ledgers.
        opted: The opted-in namespaces and their quotas.
        rules: How lines move.
    """

    is_enabled: Callable[[], bool]
    ledgers: LedgerStore
    opted: Opted
    rules: Callable[[], LineRules]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the pods of one namespace are judged by.

    Attributes:
        namespace: The namespace.
        known: Its ledger, without what others hold; None where nothing is counted any more.
        terms: The quotas and rules.
        shared: The shared quotas that the ledger counts.
        state: What all of this is of: the same while nothing has changed.
    """

    namespace: str
    known: Ledger | None
    terms: Terms
    shared: SharedMap
    state: object

    def ledger(self) -> Ledger | None:
        """Return the ledger with what others hold."""
        if self.known is None:
            return None
        return with_others(self.known, self.namespace, self.shared)

    def open_line(self, line: tuple[Waiter, ...]) -> tuple[Waiter, ...]:
        """Return those of a line who concern no quota that nothing may be granted of now."""
        known = self.known
        shut = {} if known is None else closed(self.namespace, known, self.shared)
        if known is None or not shut:
            return line
        return tuple(one for one in line if _hindrance(one, known, shut) is None)


NOTHING_COUNTS: Final = Facts(
    "", None, Terms(NamespaceQuotas((), frozenset())), NOTHING_SHARED, "it has opted out"
)
"""What those are judged by whose namespace has opted out: nothing stands in their way."""


def facts_of(wakes: Wakes, namespace: str, former: Terms | None) -> Facts | None:
    """Return what the pods of an opted-in namespace are judged by; None where nobody can judge.

    Args:
        wakes: What decides.
        namespace: The namespace.
        former: What its pods were judged by last.
    """
    version, seen = wakes.ledgers.known(namespace), wakes.opted.quotas_of(namespace)
    ledger = None if version is None else version.ledger
    if version is None or ledger is None or ledger.observed != seen.deferred.observed:
        return None
    terms = following_terms(former, seen.deferred, seen, wakes.rules())
    shared = _shared(wakes.opted.quotas, ledger)
    versions = tuple([(name, _number(one)) for name, one in shared.items()])
    state = (version.uid, version.resource_version, id(terms), versions)
    return Facts(namespace, ledger, terms, shared, state)


def _shared(quotas: QuotaCache, ledger: Ledger) -> SharedMap:
    cache = quotas.shared
    return {
        name: SharedSeen(None if cache is None else cache.informer.get(own_name(name)))
        for name in shared_names(ledger)
    }


def _number(seen: SharedSeen) -> int:
    return 0 if seen.version is None else seen.version.resource_version


def _hindrance(waiter: Waiter, ledger: Ledger, shut: Mapping[str, Undecided]) -> Undecided | None:
    return None if waiter.claim is None else reason_of(waiter.claim, ledger, shut)
