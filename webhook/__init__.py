"""deferred-quota: Kubernetes quota charged where resources are really taken, at the bind.

Packages, from the top down; imports point down only:

- `cli`: one module per command; a few lines over `runtime`, `operations` or the core.
- `runtime`: builds and wires the objects of a process; decides nothing.
- `install`: the objects of an installation, certificates in Secrets, the order of writes.
- `page`: the read-only page of the controller.
- `admission`: AdmissionReview in, AdmissionReview out; one module per handler.
- `controllers`: control loops of the leader: ledgers, queues, mask, elastic quotas.
- `operations`: opting namespaces in and out; examining a cluster.
- `fakecluster`: an API server in one process, for the demo, tests and commands on files.
- `tls`: certificates: issue, check, reload.
- `policy`: the configuration, compiled into the rules of the core.
- `state`: caches of the cluster, and the writers of ledgers.
- `kube`: the API server as a port: objects and versions, nothing about quota.
- `quota`: the core: values in, values out; no I/O, clock, threads or logging.
- `config`, `telemetry`, `jsonfields`, `atomic_file`: settings; logs and metrics; JSON and its
  fields; files that others read while they are written.
"""

import time

__version__ = "0.1.0"

STARTED = time.monotonic()
"""When this package was imported, on the monotonic clock; Python itself started a bit earlier."""
