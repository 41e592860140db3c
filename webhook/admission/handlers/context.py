"""Context that is passed to each handler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from webhook.config import Configuration
from webhook.policy import Policy
from webhook.quota.elastic.elastic_quotas import ElasticQuota
from webhook.state.cluster_view import CachedView
from webhook.state.in_flight import InFlightPods
from webhook.state.nodes.bind_fit import BindFit
from webhook.state.reserver import Reserver
from webhook.state.shadow_attempts import Attempt


@dataclass(frozen=True, slots=True)
class HandlerContext:
    """Cluster, ledgers and rules by which one request is decided.

    Policy and configuration are taken once for each request, so that a reload in between does not
    judge its parts by different rules.
    """

    view: CachedView
    ledger: Reserver
    policy: Policy
    configuration: Configuration
    namespace_labels: Callable[[str], Mapping[str, str]]
    """Returns the labels of a namespace; raises ApiError where the API server had to be asked and
    does not answer."""
    on_creation: Callable[[Attempt], None] | None
    """Called with each pod that is created in a namespace in shadow mode; must not block."""
    in_flight: InFlightPods
    """Usage of pods that may be bound at any moment."""
    node_fit: BindFit
    """Asked at binds where `nodeFit` is not `Off`."""
    namespaces: Callable[[str], Mapping[str, Mapping[str, str]]]
    """Returns the name and the labels of every namespace, for a request about one of them; raises
    ApiError as above."""
    elastic_quotas: Callable[[str], Sequence[ElasticQuota]]
    """Returns the elastic quotas that can be read, likewise."""
