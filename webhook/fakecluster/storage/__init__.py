"""Storage of the fake API server: versions, conflicts and watches as in a real one, and no network.

`FakeCluster` is the cluster, `FakeClient` one client of it. From the outside in: `client`,
`writer` (how a write passes admission and strategies) with `preconditions`, `strategies`,
`pod_strategy` and `deletion` (what the API server makes of an object), `admission_hook` (where
admission steps in), `watch`, `cluster`, `store` and `history` (versions, compare-and-swap,
changes), `stored_object` (one revision as bytes).
"""

from webhook.fakecluster.storage.client import FakeClient
from webhook.fakecluster.storage.cluster import FakeCluster

__all__ = ["FakeClient", "FakeCluster"]
