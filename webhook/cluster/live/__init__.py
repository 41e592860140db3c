"""A real API server: how to find it, and a `ClusterApi` that speaks to it.

`load_access` finds address and credentials as kubectl does, `LiveClient` is the client. What is
HTTP is in `http1`, `dialing` and `transport`, what is Kubernetes in `paths`, `answers`, `watching`
and `client`, what is credentials in `access` and the modules below it.

The `kubernetes` package is imported only where it does work that nobody should do twice: exec
plugins and OpenID Connect. It takes a second and 40 MiB, so no process in a pod imports it.
"""

from webhook.cluster.live.access import Access, AccessError, load_access
from webhook.cluster.live.client import LiveClient

__all__ = ["Access", "AccessError", "LiveClient", "load_access"]
