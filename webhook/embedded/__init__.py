"""An API server in one process: the twin of `webhook.cluster` behind REST paths and webhooks.

Belongs here: the paths (`apiserver`, `routing`, `resources`, `discovery`), the admission chain
that calls webhooks over HTTPS as an API server does (`admission`, `reviews`, `calls`, `patching`),
and how a cluster is made of snapshot files (`snapshots`).

Does not belong here: our own webhooks, or anything that a real cluster would run elsewhere.
"""
