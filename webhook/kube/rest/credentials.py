"""The credentials of a kubeconfig's user, and of a pod's service account."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from webhook.kube.rest.identity import AccessError, Credentials, Identity, Pem
from webhook.kube.rest.kubeconfig import Section, SelectedContext

Clock = Callable[[], float]

TOKEN_SECONDS: Final = 60.0
"""How long a token that was read from a file counts; kubelet renews it long before its end."""

PLUGIN_SKEW_SECONDS: Final = 10.0
"""How long before its end a plugin's credential is renewed."""


def load_credentials(chosen: SelectedContext, *, clock: Clock = time.monotonic) -> Credentials:
    """Return the credentials of the user that a context names; of no user if it names none.

    Source of the order: kubernetes v1.36, client-go/tools/clientcmd/client_config.go.

    Raises:
        AccessError: A file cannot be read, a plugin fails, or a field is wrong.
    """
    user = chosen.user
    if user is None:
        return Credentials(Identity, clock=clock)
    certificate = _certificate(user)
    token_file = user.path("tokenFile")
    if token_file is not None:
        return token_file_credentials(token_file, certificate=certificate, clock=clock)
    if user.text("token"):
        bearer = _bearer(user.text("token"), f"{user.file}: {user.place}.token")
        return Credentials(lambda: Identity(bearer, certificate), clock=clock)
    if user.values.get("exec"):
        return Credentials(_plugin(user, chosen.cluster, clock), clock=clock)
    if user.values.get("auth-provider"):
        return Credentials(_provider(user, clock), clock=clock)
    if user.text("username"):
        user.refuse("username", "the API server takes no passwords any more; use a token")
    return Credentials(lambda: Identity("", certificate), clock=clock)


def token_file_credentials(
    path: Path, *, certificate: tuple[Pem, Pem] | None = None, clock: Clock = time.monotonic
) -> Credentials:
    """Return credentials of a token in a file, which is read again every minute."""

    def read() -> Identity:
        try:
            token = path.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as err:
            raise AccessError(f"{path}: the token cannot be read: {err}") from err
        return Identity(_bearer(token, str(path)), certificate, clock() + TOKEN_SECONDS)

    return Credentials(read, clock=clock)


def _certificate(user: Section) -> tuple[Pem, Pem] | None:
    chain, key = user.pem("client-certificate"), user.pem("client-key")
    if chain is None and key is None:
        return None
    if key is None:
        user.refuse("client-key", "is missing, beside client-certificate")
    if chain is None:
        user.refuse("client-certificate", "is missing, beside client-key")
    return chain, key


def _bearer(token: str, place: str) -> str:
    if not token:
        raise AccessError(f"{place}: the token is empty")
    if not (token.isascii() and token.isprintable()):
        raise AccessError(f"{place}: the token has characters that no token has")
    return f"Bearer {token}"


def _plugin(user: Section, cluster: Section, clock: Clock) -> Callable[[], Identity]:
    """Return what asks an exec plugin.

    Source: client.authentication.k8s.io/v1 ExecCredential.
    """
    from kubernetes.config.config_exception import ConfigException  # noqa: PLC0415 - heavy
    from kubernetes.config.exec_provider import ExecProvider  # noqa: PLC0415 - heavy
    from kubernetes.config.kube_config import ConfigNode  # noqa: PLC0415 - heavy

    settings = user.section("exec")
    command = settings.required("command")
    settings.required("apiVersion")
    place = f"{user.file}: {settings.place}"
    shown = ConfigNode(cluster.place, dict(cluster.values))

    def ask() -> Identity:
        try:
            provider = ExecProvider(
                ConfigNode(settings.place, dict(settings.values)), str(user.file.parent), shown
            )
            status = provider.run()
        except (ConfigException, OSError, KeyError, TypeError) as err:
            hint = settings.text("installHint")
            advice = f"\n{hint}" if hint and isinstance(err, FileNotFoundError) else ""
            raise AccessError(f"{place}: the plugin {command!r} failed: {err}{advice}") from err
        return _answered(status, f"{place}: the plugin {command!r}", clock)

    return ask


def _answered(status: Mapping[str, Any], who: str, clock: Clock) -> Identity:
    token = status.get("token")
    chain, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if not token and not (chain and key):
        raise AccessError(f"{who} gave neither a token nor a certificate with its key")
    certificate = (_data(chain), _data(key)) if chain and key else None
    fresh_until = _fresh_until(status.get("expirationTimestamp"), who, clock)
    found = Identity(_bearer(str(token), who) if token else "", certificate)
    return Identity(found.authorization, certificate, fresh_until or found.fresh_until)


def _data(text: object) -> Pem:
    return Pem(data=str(text).encode())


def _fresh_until(timestamp: object, who: str, clock: Clock) -> float | None:
    """Return the time of the monotonic clock shortly before a timestamp; None without one."""
    if not timestamp:
        return None
    try:
        ends = datetime.fromisoformat(str(timestamp))
        seconds = (ends - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError) as err:
        raise AccessError(f"{who} gave an expirationTimestamp that is none") from err
    return clock() + max(seconds - PLUGIN_SKEW_SECONDS, 1.0)


def _provider(user: Section, clock: Clock) -> Callable[[], Identity]:
    """Return what asks an auth provider: OpenID Connect, the one that kubectl still has."""
    from kubernetes.client import Configuration  # noqa: PLC0415 - heavy
    from kubernetes.config.kube_config import KubeConfigLoader  # noqa: PLC0415 - heavy

    provider = user.section("auth-provider")
    name = provider.required("name")
    if name != "oidc":
        provider.refuse("name", f"{name!r} is not supported; use an exec plugin")
    only: dict[str, object] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://unused.invalid"}}],
        "users": [{"name": "u", "user": {"auth-provider": dict(provider.values)}}],
    }
    loader = KubeConfigLoader(only, config_base_path=str(user.file.parent))

    def ask() -> Identity:
        settings = Configuration()
        try:
            loader.load_and_set(settings)
        except Exception as err:  # whatever the provider's HTTP and OAuth libraries raise
            raise AccessError(f"{user.file}: {provider.place}: {type(err).__name__}") from err
        authorization = settings.get_api_key_with_prefix("BearerToken")
        if not authorization:
            provider.refuse("config", "gave no id-token")
        return Identity(str(authorization), fresh_until=clock() + TOKEN_SECONDS)

    return ask
