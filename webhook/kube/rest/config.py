"""Access to an API server: its address, the CAs to trust, and the user."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

from webhook.kube.rest.credentials import load_credentials, token_file_credentials
from webhook.kube.rest.identity import AccessError, Credentials, Pem
from webhook.kube.rest.kubeconfig import Section, SelectedContext, read_kubeconfig
from webhook.kube.rest.tls_config import Trust

__all__ = ["AccessError", "RestConfig", "load_config"]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where kubelet puts the token and the authority of a pod's service account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestConfig:
    """A way into a cluster."""

    server: str
    """Address of the API server: "https://10.96.0.1:443", perhaps with a path."""
    source: str
    """Where all this is from, for messages."""
    credentials: Credentials
    trust: Trust = field(default_factory=Trust)
    proxy: str = ""
    """Address of an HTTP proxy to tunnel through; empty for none."""
    impersonation: Sequence[tuple[str, str]] = ()
    """Headers that make a request another user's."""
    is_in_pod: bool = False
    """Whether it is the way of the pod that this runs in."""
    namespace: str = "default"
    """Namespace that commands work in which name none: as for kubectl, that of the context, or of
    the pod."""


def load_config(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> RestConfig:
    """Find the way into the cluster that is meant.

    In this order: `kubeconfig`, the files of $KUBECONFIG, ~/.kube/config, the service account of
    the pod that this runs in.

    Args:
        kubeconfig: A file that has to exist.
        context: Which context of the file; None is its current one.
        environ: The environment.
        service_account: The directory of the service account.

    Raises:
        AccessError: There is none, or it cannot be used; the message names what to mend.
    """
    paths = [kubeconfig] if kubeconfig else _usual_paths(environ)
    if paths:
        return _of_kubeconfig(read_kubeconfig(paths, context), environ)
    if context:
        raise AccessError(f"context {context!r}: there is no kubeconfig; {_where(environ)}")
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(environ, service_account)
    raise AccessError(
        f"no way into a cluster: there is no kubeconfig ({_where(environ)}), and this is no pod "
        "(KUBERNETES_SERVICE_HOST is not set)"
    )


def _usual_paths(environ: Mapping[str, str]) -> list[Path]:
    named = environ.get("KUBECONFIG", "")
    if named:
        paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
    else:
        paths = [Path(environ.get("HOME", "/")) / ".kube" / "config"]
    return [path for path in paths if path.is_file()]


def _where(environ: Mapping[str, str]) -> str:
    named = environ.get("KUBECONFIG", "")
    return (
        f"$KUBECONFIG is {named!r}" if named else "$KUBECONFIG is not set, ~/.kube/config missing"
    )


def _of_kubeconfig(chosen: SelectedContext, environ: Mapping[str, str]) -> RestConfig:
    try:
        return _assembled(chosen, environ)
    except AccessError as err:
        raise AccessError(f"{err} (context {chosen.context!r})") from err


def _assembled(chosen: SelectedContext, environ: Mapping[str, str]) -> RestConfig:
    cluster = chosen.cluster
    server = _server(cluster)
    trust = Trust(
        authority=cluster.pem("certificate-authority"),
        server_name=cluster.text("tls-server-name"),
        is_verified=not cluster.flag("insecure-skip-tls-verify"),
    )
    if trust.authority is not None and not trust.is_verified:
        cluster.refuse("insecure-skip-tls-verify", "contradicts certificate-authority")
    return RestConfig(
        server=server,
        source=chosen.source,
        credentials=load_credentials(chosen),
        trust=trust,
        proxy=_checked_proxy(cluster) or environment_proxy(server, environ),
        impersonation=_impersonation(chosen.user),
        namespace=chosen.namespace or "default",
    )


def _server(cluster: Section) -> str:
    server = cluster.required("server").rstrip("/")
    try:
        parts = urlsplit(server)
        is_address = parts.scheme in ("https", "http") and bool(parts.hostname)
        _ = parts.port
    except ValueError:
        is_address = False
    if not is_address:
        cluster.refuse("server", "must be an address like https://host:port")
    return server


def _checked_proxy(cluster: Section) -> str:
    proxy = cluster.text("proxy-url")
    if proxy and not _is_usable_proxy(proxy):
        cluster.refuse("proxy-url", "only proxies of HTTP are supported: http://host:port")
    return proxy


def _is_usable_proxy(proxy: str) -> bool:
    try:
        parts = urlsplit(proxy)
        return parts.scheme == "http" and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        return False


def environment_proxy(server: str, environ: Mapping[str, str]) -> str:
    """Return the proxy that the environment names for an address; empty for none.

    As Go's clients do it, nothing on this machine goes through a proxy.

    Raises:
        AccessError: It is of a sort that is not supported.
    """
    parts = urlsplit(server)
    variable = f"{parts.scheme.upper()}_PROXY"
    proxy = _either_case(environ, variable)
    if not proxy or _is_loopback(parts.hostname or ""):
        return ""
    if _bypasses_proxies(parts, _either_case(environ, "NO_PROXY")):
        return ""
    if not _is_usable_proxy(proxy):
        raise AccessError(f"${variable}: only proxies of HTTP are supported: http://host:port")
    return proxy


def _bypasses_proxies(server: SplitResult, no_proxy: str) -> bool:
    """Return whether $NO_PROXY names a server: by *, network, domain, with or without its port.

    Source: kubernetes-client/python v36, client/rest.py should_bypass_proxies.
    """
    host, host_and_port = (server.hostname or "").lower(), server.netloc.lower()
    for entry in filter(None, (each.strip().lower() for each in no_proxy.split(","))):
        domain = entry.lstrip(".")
        if entry == "*" or _is_in_network(host, entry):
            return True
        if any(name == domain or name.endswith(f".{domain}") for name in (host, host_and_port)):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _either_case(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower(), "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _impersonation(user: Section | None) -> Sequence[tuple[str, str]]:
    if user is None or not user.text("as"):
        return ()
    headers = [("Impersonate-User", user.text("as")), ("Impersonate-Uid", user.text("as-uid"))]
    headers += [("Impersonate-Group", group) for group in user.texts("as-groups")]
    for name, value in headers:
        if not value.isprintable():
            user.refuse("as", f"{name} would hold characters that no header can")
    return tuple((name, value) for name, value in headers if value)


def _in_cluster(environ: Mapping[str, str], directory: Path) -> RestConfig:
    token, authority = directory / "token", directory / "ca.crt"
    try:
        server = _service_address(environ)
        _require_content(authority)
        # the token is read again every minute, and at once when it is refused: kubelet rotates it
        credentials = token_file_credentials(token)
    except AccessError as err:
        raise AccessError(f"service account of this pod ({directory}): {err}") from err
    return RestConfig(
        server=server,
        source=f"service account of this pod ({directory})",
        credentials=credentials,
        trust=Trust(authority=Pem(authority)),
        proxy=environment_proxy(server, environ),
        is_in_pod=True,
        namespace=_namespace_of_pod(directory),
    )


def _namespace_of_pod(directory: Path) -> str:
    try:
        return (directory / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _require_content(authority: Path) -> None:
    if not Pem(authority).read().strip():
        raise AccessError(f"{authority}: is empty")


def _service_address(environ: Mapping[str, str]) -> str:
    """Return the API server's address as kubelet gives it to a pod.

    Source: kubernetes v1.36, client-go/rest/config.go InClusterConfig, net.JoinHostPort.
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "")
    if not port:
        raise AccessError("KUBERNETES_SERVICE_PORT is not set")
    return f"https://[{host}]:{port}" if ":" in host or "%" in host else f"https://{host}:{port}"
