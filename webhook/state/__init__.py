"""The quota state that changes: caches of the cluster, and the only writers of ledgers.

- `ledger_store`: ledger objects by compare-and-swap, with a cache of the newest version known;
  `lazy_ledger` parses those that come from a watch on first use.
- `reserver`: decides claims that arrive together on one ledger and writes once (`group_commit`,
  `batch_decision`).
- `shared_quotas`: ClusterDeferredQuota objects by compare-and-swap; `grant_raising` raises the
  grants of a namespace before the reserver writes, `shared_cache` finds the quotas of a namespace.
- `quota_cache`, `namespace_cache`: quotas and opted-in namespaces, from informers; `quota_lister`
  (of claims, too) and `namespace_labels` ask the API server. `object_decoders` decodes what is
  read of objects.
- `cluster_view`: all of that and the pods without a node, as handlers read it; `in_flight`: usage
  of pods that may be bound at any moment.
- `nodes`: usage of nodes, and binds judged by it.
- `shadow_store`, `shadow_attempts`: the record of shadow mode.
- `well_known`, `webhook_selectors`, `feature_gates`: names in the cluster, selectors of
  registrations, the API server's feature gates for Jobs.

No rule of quota stands here (see `webhook.quota`), and nothing of HTTP.
"""
