"""deferred-quota: Kubernetes quota charged where resources are really taken, at the bind.

Packages, from the top down; imports point down only:

- `cli`: one module per command; a few lines over `runtime` or the core.
- `runtime`: builds and wires the objects; decides nothing.
- `install`: the objects of an installation, certificates in Secrets, the order of things.
- `admission`: AdmissionReview in, AdmissionReview out; one module per handler.
- `controllers`: loops that keep the ledger true.
- `operations`: opting namespaces in and out; looking a cluster over.
- `fakecluster`: an API server in one process, for the demo, tests and commands on files.
- `tls`: certificates: issue, check, reload.
- `policy`: the configuration, compiled into the rules of the core.
- `state`: the quota state that changes, and the only writer of reservations of handlers.
- `kube`: the API server as a port: objects and versions, nothing about quota.
- `quota`: the core: values in, values out; no I/O, clock, threads or logging.
- `config`, `telemetry`, `jsonfields`: settings; logs and metrics; JSON and its fields.
"""

import time

__version__ = "0.1.0"

STARTED = time.monotonic()
"""When the program began to import itself; Python has started a little before."""
