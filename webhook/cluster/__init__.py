"""The API server as a port: objects and versions, nothing about quota.

- `api`: the `ClusterApi` protocol with its `kinds` and `errors`.
- `memory`: the API server in memory.
- `informer`: follows a kind into a `cache`, however often the connection breaks; `listing` reads
  long lists in parts.
- `shapes`: decodes of an object only what quota reads.
- `files`: objects from files.
- `codec`, `metadata`, `patches`, `selectors`: what these share.

Does not belong here: what a pod is charged, what a quota means, HTTP servers, settings.
"""
