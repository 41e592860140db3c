"""Size from which on new pods are gated, in namespaces whose gating is `auto`.

- `controller`: writes one PodGating for each of them, by which admission policies go.

The size is computed in `quota.queue.ungated_limits`. Pods that have a gate belong to `queue`.
"""
