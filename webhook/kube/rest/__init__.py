"""A real API server: how to find it, and a `ClusterApi` that speaks to it.

`load_config` finds address and credentials as kubectl does, `RestClient` is the client. What is
HTTP is in `http1`, `dialer` and `transport`, what is Kubernetes in `urls`, `responses`, `watch` and
`client`, what is credentials in `config` and the modules below it.

The `kubernetes` package is imported only where it does work that should not be done twice: exec
plugins and OpenID Connect. It takes a second and 40 MiB, so no process in a pod imports it.
"""

from webhook.kube.rest.client import RestClient
from webhook.kube.rest.config import AccessError, RestConfig, load_config

__all__ = ["AccessError", "RestClient", "RestConfig", "load_config"]
