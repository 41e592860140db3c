"""The API server as a port: objects and versions, nothing about quota.

- `api`: the `ClusterApi` protocol with its `kinds` and `errors`.
- `rest`: the port over HTTPS.
- `informer`: follows a kind into a `cache`, however often the connection breaks (`informer_types`:
  its timings and changes); `pager` reads long lists page by page; `joint_reads` joins equal reads.
- `files`: objects from files.
- `codec`, `metadata`, `patches`, `selectors`: what these share.

Does not belong here: what a pod is charged, what a quota means, HTTP servers, settings.
"""
