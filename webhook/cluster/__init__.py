"""The API server as a port: objects and versions, nothing about quota.

Belongs here: the `ClusterApi` protocol with its kinds and errors (`api`), what implements it
(`memory`), what follows it (`informer`), and what reads objects from files (`snapshot`).

The twin in memory, from the outside in: `memory` (clients), `writing` (how a write passes admission
and rules), `rules` and `pod_rules` (what the API server makes of an object), `watching`,
`memory_cluster`, `store` and `history` (versions, compare-and-swap, what happened), `stored`
(one revision as bytes).

Does not belong here: what a pod is charged, what a quota means, HTTP servers, settings.
"""
