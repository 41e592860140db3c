"""Elastic quotas: charged, labelled, and reclaimed.

- `controller`: keeps the ClusterDeferredQuotas that charge elastic quotas, and their status.
- `precedence`: lets owners of a pool go before borrowers.
- `capacity_labels`: labels the pods that are over their minimum.
- `reclaim_controller`: evicts borrowers for owners that wait. `reclaim_planner` makes its plans
  from a `reclaim_view` for `waiting_pods`; `promise_reconciler` carries them out. `promises` hold
  what is freed for one pod, `evictions` are those sent.
- `assigned_pods`, `unassigned_pods`: pods with a node; pods with quota or a promise and none.
"""
