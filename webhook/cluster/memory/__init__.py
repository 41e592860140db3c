"""A Kubernetes API server in memory: the same conflicts, versions and watches, and no network.

`MemoryCluster` is the cluster, `MemoryClient` one client of it. From the outside in: `client`,
`writing` (how a write passes admission and rules) with `write_checks`, `rules`, `pod_rules` and
`deletion` (what the API server makes of an object), `interception` (where admission steps in),
`watching`, `cluster`, `store` and `history` (versions, compare-and-swap, what happened), `stored`
(one revision as bytes).
"""

from webhook.cluster.memory.client import MemoryClient
from webhook.cluster.memory.cluster import MemoryCluster

__all__ = ["MemoryClient", "MemoryCluster"]
