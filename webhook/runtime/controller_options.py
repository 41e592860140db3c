"""Options of the controller in one process; this module imports none of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from webhook.config import Configuration
from webhook.controllers.mask.webhook_registration import Guard
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.kube.api import ClusterApi
from webhook.kube.informer import Informer
from webhook.policy import Policy, queue_policy
from webhook.quota.queue.queued_pods import QueuePolicy
from webhook.state.lazy_ledger import LazyLedger
from webhook.state.ledger_store import LedgerStore
from webhook.state.namespace_cache import NamespaceCache
from webhook.state.nodes.bind_fit import BindFit
from webhook.state.quota_cache import QuotaCache
from webhook.state.shared_quotas import SharedQuotaStore
from webhook.state.well_known import (
    ALWAYS_GATING,
    AUTO_GATING,
    GATING_LABEL,
    NEVER_GATING,
    gating_of,
)


@dataclass(frozen=True, slots=True)
class LeaderElectionConfig:
    """Settings of a candidate for leadership."""

    api: ClusterApi
    """A client of its own, with short timeouts: a call that hangs must not cost the lease."""
    namespace: str
    identity: str
    """The name in the Lease, unlike that of any other process."""


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """Options of the controller."""

    candidate: LeaderElectionConfig | None = None
    """How it stands for election; None where this process is the only one."""
    timings: ControllerTimings = field(default_factory=ControllerTimings)
    """When the controllers act, except for when reservations expire."""
    expire_seconds: float | None = None
    """When they do; None is what the configuration says."""
    gate_workers: int = 16
    """How many scheduling gates are removed at the same time."""


@dataclass(frozen=True, slots=True)
class InForce:
    """A configuration and the policy that was compiled from it; no decision mixes two of them."""

    configuration: Configuration
    policy: Policy


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """The configuration as it is now, and what the handlers make of it."""

    current: Callable[[], InForce]

    def configuration(self) -> Configuration:
        """Return the configuration."""
        return self.current().configuration

    def policy(self) -> Policy:
        """Return the rules."""
        return self.current().policy

    def queue_policy(self) -> QueuePolicy:
        """Return the queueing policy."""
        now = self.current()
        return queue_policy(now.configuration, now.policy)

    def may_admit_ungated(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether pods of a namespace with these labels may be admitted ungated."""
        return gating_of(labels or {}, self.configuration().gating) == AUTO_GATING

    def gating_by_need(self, labels: Mapping[str, str] | None) -> str | None:
        """Return the gating of a namespace that the policy selects which gates by need, else None.

        The policy reads the label of this version only; the former one may say otherwise.
        """
        if labels is None:
            return None
        configured = self.configuration().gating
        label = labels.get(GATING_LABEL, "")
        is_selected = label == AUTO_GATING or (
            configured == AUTO_GATING and label not in (ALWAYS_GATING, NEVER_GATING)
        )
        return gating_of(labels, configured) if is_selected else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCaches:
    """Caches that handlers and controllers of one process share; the engine starts them."""

    api: ClusterApi
    ledgers: LedgerStore
    quotas: QuotaCache
    namespaces: NamespaceCache
    shared: SharedQuotaStore
    ledger_informer: Informer[LazyLedger] | None
    nodes: BindFit | None = None
    """The nodes, followed where the configuration says so."""
    guard: Callable[[], Guard | None] = lambda: None
    """Returns the registration of the guard; None where nothing is to be compared with it."""
