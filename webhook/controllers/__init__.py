"""Control loops of the leader: read caches, take one idempotent step, requeue.

One sub-package for each loop, with the loop itself in its `controller` module:

- `ledger`: counts the pods of each namespace and reconciles its QuotaLedger.
- `queue`: the queue of gated pods of each namespace; it is part of the ledger's reconciliation.
- `gating`: PodGatings, by which policies of the API server gate new pods.
- `conditions`: the condition `QuotaReserved` of queued pods.
- `requeue`: unschedulable pods that the extender denied, tried again by their scheduler.
- `shared`: grants of quotas that several namespaces share.
- `elastic`: elastic quotas: charging, labels, and evictions to reclaim what was borrowed.
- `mask`: the status of ResourceQuotas, from which deferred resources are hidden.
- `shadow`: records of namespaces in shadow mode.
- `runtime`: leader election, work queue, threads, rate limits and events that all of them use.

`managed_namespaces`, `label_validation` and `overview` concern all namespaces. Decisions are the
core's (`webhook.quota`); requests of the API server are answered in `webhook.admission`.
"""
