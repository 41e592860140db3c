"""Put deferred-quota into a cluster, and take it out again.

Belongs here: reading `manifests/` as kustomize does, writing into it what an installation knows
(address, CA, image, configuration), certificates in Secrets, the order of things. Does not: what is
decided in a namespace (`operations`), command lines, and what a certificate is like (`tls`).

`render` gives all objects of an installation:

    render(url="https://127.0.0.1:9443", ca_pem=pem, mask="policy").objects
"""

from webhook.install.kustomizations import InstallError
from webhook.install.rendering import MANIFESTS, Mask, Rendered, render

__all__ = ["MANIFESTS", "InstallError", "Mask", "Rendered", "render"]
