"""The doors: one module for each kind of request by which quota is taken or changed.

A door looks at what the request is about, asks the core, reserves if the pod takes resources, and
answers. `table` says which door a request goes through. Doors keep no state of their own.

- `gates`: pods that are created without a node, and wait for quota behind a gate.
- `pods`: pods that are created, with a node or without, deadlines that move a pod between scopes,
  and who may touch our marks.
- `bindings`: a pod is given its node, through `pods/binding` or `bindings`.
- `resize`: a pod's resources change in place.
- `jobs`: a Job's template changes.
- `quotas`: ResourceQuota objects.
- `mask`: their status, from which the deferred resources are hidden.
- `marks`, `neighbours`: what is ours on a pod, and what is of others who manage quota.
- `answers`, `charging`, `context`: what the doors share.
"""
