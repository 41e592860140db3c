"""A real API server: how to find it, and a `ClusterApi` that speaks to it.

- `config`: address and credentials, found as kubectl finds them; below it `kubeconfig`,
  `credentials`, `identity` and `tls_config`.
- `client`: the client; `responses`, `watch` and `calls` are the parts that know Kubernetes.
- `http1`, `dialer`, `transport`: HTTP over connections that are kept.

The `kubernetes` package is imported only where it does work that should not be done twice: exec
plugins and OpenID Connect. It takes a second and 40 MiB, so no process in a pod imports it.
"""

from webhook.kube.rest.client import RestClient
from webhook.kube.rest.config import AccessError, RestConfig, load_config

__all__ = ["AccessError", "RestClient", "RestConfig", "load_config"]
