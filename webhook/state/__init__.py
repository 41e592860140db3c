"""The quota state that changes: what is known of the cluster, and the ledger's only writers.

- `ledgers`: ledger objects by compare-and-swap, with a look-aside of the newest version known;
  `ledger_text` reads those that come from a watch, when somebody asks.
- `reserver`: decides claims that arrive together on one ledger and writes once (`deciding`,
  `outcomes`); they wait for each other in `lanes`.
- `shared_quotas`: ClusterDeferredQuota objects by compare-and-swap; `sharing` raises there what a
  namespace holds before the reserver writes, and `shared_view` tells which namespaces share what.
- `names`, `label_selectors`: names in the cluster that more than one package goes by, and the
  LabelSelector objects of registrations.
- `gates`: the write that takes our scheduling gate off a pod.
- `quota_cache`, `namespace_cache`: quotas and opted-in namespaces, from caches that follow the API
  server. `staleness` says how long those are believed; `live_quotas` and `namespace_labels` ask.
- `view`: all of that and the pods that wait, as the doors look at it.

No rule of quota stands here (see `webhook.quota`), and nothing of HTTP.
"""
