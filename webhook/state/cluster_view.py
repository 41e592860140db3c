"""Cached view of the cluster for handlers: opted-in namespaces, quotas, pods without a node.

Everything comes from caches that follow the API server (`kube.informer`), so that the common
decision makes no call. What a cache cannot answer is asked of the API server; so is everything once
a cache has not heard of the API server for longer than `STALE_SECONDS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from webhook.kube.api import PODS, ClusterApi, ListOptions, NotFoundError, object_key
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.informer_types import STALE_SECONDS
from webhook.quota.objects.compact import compact_pod
from webhook.quota.objects.model import Pod
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.object_decoders import decode_live_pod, decode_pod
from webhook.state.quota_cache import QuotaCache

WAITING_PODS: Final = ListOptions(field_selector="spec.nodeName=")


@dataclass(frozen=True, slots=True)
class PodLookup:
    """A pod that was looked up; None when there is none."""

    pod: Pod | None
    observed_version: int
    """How far pods had been seen at the look-up (`Claim.observed_version`)."""
    is_live: bool
    """The API server was asked, so this is how the pod is now."""


class CachedView:
    """Caches that the handlers look at. Safe to use from several threads.

    A pod in the cache has no labels, and of its annotations only those that something is decided
    by (`objects.compact`): tenants decide how large the others are. One that is read live also has
    the labels and annotations that only the product writes.

    Args:
        ledgers: Where ledgers are known.
        quotas: The cached quotas.
        namespaces: The cached namespaces.
        timing: Clock and pauses of the informer of waiting pods.
    """

    def __init__(
        self,
        api: ClusterApi,
        ledgers: LedgerStore,
        quotas: QuotaCache,
        namespaces: NamespaceCache,
        *,
        timing: InformerTimings = InformerTimings(),
    ) -> None:
        self._api = api
        self.is_opted_in: Final = namespaces.is_opted_in
        self.labels: Final = namespaces.labels
        self.quotas: Final = quotas.up_to_date
        self.live_quotas: Final = quotas.live
        self.ledger: Final = ledgers.known
        self.pods: Final = Informer(
            api,
            PODS,
            transform=compact_pod,
            options=WAITING_PODS,
            timings=timing,
            decode=decode_pod,
        )

    def is_reserved(self, namespace: str, uid: str) -> bool:
        """Return whether something is reserved for a pod, by the ledger as it is known here."""
        known = self.ledger(namespace)
        return known is not None and known.ledger is not None and known.ledger.is_reserved(uid)

    def pod(self, namespace: str, name: str) -> PodLookup:
        """Return a waiting pod as last seen, or live if the cache is too old or lacks some of it.

        Raises:
            ApiError: The API server had to be asked and does not answer.
            InvalidFieldError: The pod cannot be read.
        """
        seen = self.pods.resource_version  # before the pod: it is at least as new
        pod = self.pods.get(object_key(namespace, name))
        is_stale = self.pods.last_event_age_seconds > STALE_SECONDS
        if pod is None or pod.has_many_names or is_stale:
            return self.live_pod(namespace, name)
        return PodLookup(pod, seen, is_live=False)

    def live_pod(self, namespace: str, name: str) -> PodLookup:
        """Ask the API server for a pod.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: The pod cannot be read.
        """
        known = self.ledger(namespace)
        barrier = 0 if known is None else known.pods_barrier
        try:
            raw = self._api.get(PODS, name, namespace=namespace, decode=decode_live_pod)
        except NotFoundError:
            return PodLookup(None, barrier, is_live=True)
        return PodLookup(Pod.from_stored(raw), barrier, is_live=True)
