"""What every door works with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from webhook.admission.rules import Rules
from webhook.config import Configuration
from webhook.quota.ledger import Claim, Observed, Undecided
from webhook.state.ledgers import LedgerVersion
from webhook.state.quota_cache import QuotasSeen
from webhook.state.reserver import Outcome
from webhook.state.shadow_creations import Attempt
from webhook.state.underway import Underway
from webhook.state.view import PodSeen


class ClusterView(Protocol):
    """What the doors know of the cluster."""

    def is_opted_in(self, namespace: str) -> bool:
        """Say whether the namespace defers its quotas."""

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace that has opted in, as last seen; None if never."""

    def quotas(self, namespace: str) -> QuotasSeen:
        """Return the quotas of a namespace as last seen."""

    def live_quotas(self, namespace: str) -> QuotasSeen:
        """Ask the API server for the quotas of a namespace.

        Raises:
            ApiError: It does not answer.
        """

    def pod(self, namespace: str, name: str) -> PodSeen:
        """Return a waiting pod as last seen; one that is not in the cache is looked up live.

        Raises:
            ApiError: The API server had to be asked and does not answer.
            InvalidFieldError: The pod cannot be read.
        """

    def live_pod(self, namespace: str, name: str) -> PodSeen:
        """Ask the API server for a pod.

        Raises:
            ApiError: It does not answer.
            InvalidFieldError: The pod cannot be read.
        """

    def ledger(self, namespace: str) -> LedgerVersion | None:
        """Return the namespace's ledger as last known; None when none is."""


class LedgerGate(Protocol):
    """Where claims are decided."""

    def reserve(
        self, namespace: str, claim: Claim, observed: frozenset[Observed], *, deadline: float
    ) -> Outcome:
        """Reserve what `claim` asks, or say why not; until `deadline` on the monotonic clock."""

    def try_out(self, namespace: str, claim: Claim, observed: frozenset[Observed]) -> Outcome:
        """Decide as `reserve` would and write nothing."""

    def contradiction(self, namespace: str, observed: frozenset[Observed]) -> Undecided | None:
        """Say why nothing may pass uncharged, if the ledger as it is now says so."""


@dataclass(frozen=True, slots=True)
class DoorContext:
    """The view of the cluster, the ledger, and the rules in force now.

    Attributes:
        view: What is known of the cluster.
        ledger: Where claims are decided.
        current_rules: The rules as the core has read them.
        current_configuration: The settings that doors read as they stand.
        namespace_labels: Returns the labels of a namespace; raises ApiError where the API server
            had to be asked and does not answer.
        creations: Told of pods that are created in namespaces in shadow mode; must not block.
        underway: What pods take that may be bound at any moment; None where none is let through
            without a gate.
        namespaces: Returns the name and the labels of every namespace; raises ApiError where the
            API server does not answer.
    """

    view: ClusterView
    ledger: LedgerGate
    current_rules: Callable[[], Rules]
    current_configuration: Callable[[], Configuration] = Configuration
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _namespace: {}
    creations: Callable[[Attempt], None] | None = None
    underway: Underway | None = None
    namespaces: Callable[[], Mapping[str, Mapping[str, str]]] = dict
