"""Elastic quotas in force.

- `controller`: keeps the ClusterDeferredQuotas that charge elastic quotas, and their status.
- `precedence`: lets owners of a pool go before borrowers.
- `capacity_labels`: labels the pods that are over their minimum.
"""
