"""Handlers: one module for each kind of request by which quota is taken or changed.

A handler looks at what the request is about, asks the core, reserves if the pod takes resources,
and answers. `dispatch` is the table of handlers. Handlers keep no state of their own.

- `gating`: pods that are created without a node: our scheduling gate.
- `pods`: creations of pods, and changes and resizes of them.
- `bindings`: `pods/binding` and `bindings`: the charge.
- `jobs`, `job_capacity`: changes of Jobs, and whether their pods fit the quotas.
- `resource_quotas`, `cluster_deferred_quotas`, `elastic_quotas`: validation of quotas; the mask.
- `shadow_pods`: creations in namespaces in shadow mode.
- `managed_metadata`: labels, annotations and gates of ours.
- `responses`, `charging`, `context`: what handlers share.
"""
