"""Collaborators of handlers, as Protocols, and the context that is passed to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from webhook.config import Configuration
from webhook.policy import Policy
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.quota.ledger.ledger import Claim, QuotaRevision, Undecided
from webhook.state.cluster_view import PodLookup
from webhook.state.in_flight import InFlightPods
from webhook.state.ledger_store import LedgerVersion
from webhook.state.nodes.bind_fit import BindObjection, PendingBind
from webhook.state.quota_cache import NamespaceQuotaView
from webhook.state.reserver import Outcome
from webhook.state.shadow_attempts import Attempt


class ClusterView(Protocol):
    """Cached state of the cluster, as handlers read it."""

    def is_opted_in(self, namespace: str) -> bool:
        """Return whether the namespace defers its quotas."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace that has opted in, as last seen; None if never."""

    def quotas(self, namespace: str) -> NamespaceQuotaView:
        """Return the quotas of a namespace as last seen."""

    def live_quotas(self, namespace: str) -> NamespaceQuotaView:
        """Ask the API server for the quotas of a namespace.

        Raises:
            ApiError: It does not answer.
        """

    def pod(self, namespace: str, name: str) -> PodLookup:
        """Return a waiting pod as last seen; one that is not in the cache is looked up live.

        Raises:
            ApiError: The API server had to be asked and does not answer.
            InvalidFieldError: The pod cannot be read.
        """

    def live_pod(self, namespace: str, name: str) -> PodLookup:
        """Ask the API server for a pod.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: The pod cannot be read.
        """

    def ledger(self, namespace: str) -> LedgerVersion | None:
        """Return the namespace's ledger as last known; None when none is."""


class Ledgers(Protocol):
    """Ledgers on which claims are decided."""

    def reserve(
        self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision], *, deadline: float
    ) -> Outcome:
        """Reserve what `claim` asks, or say why not; until `deadline` on the monotonic clock."""

    def dry_run(self, namespace: str, claim: Claim, observed: frozenset[QuotaRevision]) -> Outcome:
        """Decide as `reserve` would and write nothing."""

    def verify_uncharged(
        self, namespace: str, observed: frozenset[QuotaRevision]
    ) -> Undecided | None:
        """Return why nothing may pass uncharged, if the ledger as it is now says so."""


class NodeFitJudge(Protocol):
    """Judge of binds by nodes and the pods on them."""

    def judge(self, bind: PendingBind, *, is_confirmed: bool) -> BindObjection | None:
        """Return why a kubelet would not admit a pod; None if it would, or it is not known.

        With `is_confirmed`, as the API server has nodes and pods now, not only the caches.
        """

    def forget(self, uid: str) -> None:
        """Count a pod no more whose bind was refused after it was judged."""


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Cluster, ledgers and rules by which one request is decided.

    Policy and configuration are taken once for each request, so that a reload in between does not
    judge its parts by different rules.
    """

    view: ClusterView
    ledger: Ledgers
    policy: Policy
    configuration: Configuration = field(default_factory=Configuration)
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _namespace: {}
    """Returns the labels of a namespace; raises ApiError where the API server had to be asked and
    does not answer."""
    on_creation: Callable[[Attempt], None] | None = None
    """Called with each pod that is created in a namespace in shadow mode; must not block."""
    in_flight: InFlightPods | None = None
    """Usage of pods that may be bound at any moment; None where no pod is created without gate."""
    node_fit: NodeFitJudge | None = None
    """Asked at binds where `nodeFit` is not `Off`."""
    namespaces: Callable[[str], Mapping[str, Mapping[str, str]]] = lambda _namespace: {}
    """Returns the name and the labels of every namespace, for a request about one of them; raises
    ApiError as above."""
    elastic_quotas: Callable[[str], Sequence[ElasticQuota]] = lambda _namespace: ()
    """Returns the elastic quotas that can be read, likewise."""
