"""Elastic quotas in force.

- `controller`: keeps the ClusterDeferredQuotas that charge elastic quotas, and their status.
- `capacity_labels`: labels the pods that are over their minimum.
"""
