"""The namespaces that are opted in, and their quotas, as caches show them now.

What is counted (`ledger.usage_cache`) and what is masked (`mask.controller`) follows a moment
later.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass

from webhook.controllers.mask.webhook_registration import Guard
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.quota_cache import NamespaceQuotaView, QuotaCache
from webhook.state.shared_cache import Specs


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedNamespaces:
    """Caches that decide how namespaces are deferred. Safe to use from several threads."""

    quotas: QuotaCache
    """The cached quotas."""
    namespaces: NamespaceCache
    """The cached namespaces."""
    exempt: Callable[[], Set[str]] = frozenset
    """Returns which namespaces are never touched."""
    unmasked: Callable[[], Set[str]] = frozenset
    """Returns the namespaces of which nothing may be hidden although they are guarded, because they
    are going to be exempt."""
    unmasked_keys: Callable[[], Set[str]] = frozenset
    """Returns the resources that are charged and may be hidden nowhere, see `Policy`."""
    guard: Callable[[], Guard | None] = lambda: None
    """Returns the registration of the guard at the bind, as it was seen last."""

    @property
    def are_synced(self) -> bool:
        """Whether all quotas and namespaces have been listed."""
        return (
            self.quotas.shared.is_known
            and self.quotas.informer.has_synced
            and self.namespaces.informer.has_synced
        )

    def is_managed(self, namespace: str) -> bool:
        """Return whether a namespace is opted in, as far as is known, and not exempt."""
        is_deferred = self.namespaces.informer.get(namespace) is True
        return is_deferred and namespace not in self.exempt()

    def deferred_keys(self) -> Set[str]:
        """Return which resources are deferred now."""
        return self.quotas.keys()

    def masked_keys(self) -> Set[str]:
        """Return which resources are hidden of the quotas that are deferred."""
        return self.deferred_keys() - self.unmasked_keys()

    def opted_in_at(self, namespace: str) -> int:
        """Return the version of the Namespace by which it opted in; 0 if that was never seen."""
        return self.namespaces.opted_in_at(namespace)

    def required_version(self, namespace: str) -> int:
        """Return up to which version pods have to have been counted in a ledger.

        A handler that has just started knows no better than that a namespace opted in by its
        present version, and waits for a ledger that is not older.
        """
        entry = self.namespaces.informer.entry(namespace)
        known = 0 if entry is None else entry.resource_version
        return max(known, self.opted_in_at(namespace))

    def quotas_of(self, namespace: str) -> NamespaceQuotaView:
        """Return the quotas of a namespace."""
        return self.quotas.in_namespace(namespace)

    def shared_specs(self) -> Specs:
        """Return the quotas that namespaces share."""
        return self.quotas.shared.specs

    def takes_part(self, namespace: str, name: str) -> bool:
        """Return whether a namespace takes part in a shared quota."""
        return any(one.name == name for one in self.quotas_of(namespace).deferred.quotas)
