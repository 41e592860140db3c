"""Through a proxy's tunnel, and past it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kube.rest.kubeconfigs import a_kubeconfig
from tests.kube.rest.scripted_server import (
    PATIENCE_SECONDS,
    Script,
    ScriptedServer,
    ServerConnection,
    a_note,
    answering,
    reply,
    server_context,
)
from webhook.kube.api import CONFIG_MAPS, UnreachableError
from webhook.kube.rest import AccessError, load_config
from webhook.kube.rest.config import environment_proxy


@pytest.fixture
def behind(tmp_path: Path) -> Script:
    """A proxy that lets everything through to an API server, which it plays, too."""
    context = server_context(tmp_path)

    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
        peer.start_tls(context)
        answering(reply(body=a_note()))(peer)

    return script


def test_requests_go_through_one_tunnel(behind: Script) -> None:
    with ScriptedServer(behind) as proxy:
        access = proxy.access(proxy=f"http://us%20er:pa%3Ass@127.0.0.1:{proxy.port}")
        far = access.__class__(
            server="https://127.0.0.1:6443",
            source=access.source,
            credentials=access.credentials,
            trust=access.trust,
            proxy=access.proxy,
        )
        client = proxy.client(access=far)
        for _ in range(3):
            assert client.get(CONFIG_MAPS, "notes", namespace="team-a") == a_note()
        assert proxy.connections == 1
    connect, *rest = proxy.requests
    assert (connect.method, connect.target) == ("CONNECT", "127.0.0.1:6443")
    known = base64.b64encode(b"us er:pa:ss").decode()
    assert connect.headers == {
        "host": "127.0.0.1:6443",
        "proxy-authorization": f"Basic {known}",
    }
    assert all("proxy-authorization" not in asked.headers for asked in rest)


@pytest.mark.parametrize(
    ("script", "seconds", "expected", "words"),
    [
        (
            answering(reply(407, "who are you", Content_Type="text/plain")),
            PATIENCE_SECONDS,
            UnreachableError,
            "the proxy 127.0.0.1 answered 407 Somehow",
        ),
        (ServerConnection.stall, 0.2, UnreachableError, r"no connection within 0\.2 s"),
        (ServerConnection.close, PATIENCE_SECONDS, UnreachableError, "closed|reset"),
    ],
    ids=["refused", "silent", "gone"],
)
def test_a_proxy_that_lets_no_connection_through(
    script: Script, seconds: float, expected: type[Exception], words: str
) -> None:
    with ScriptedServer(script) as proxy:
        access = proxy.access(proxy=proxy.url)
        client = proxy.client(access=access, timeout_seconds=seconds)
        with pytest.raises(expected, match=words):
            client.update(CONFIG_MAPS, a_note())
        assert [asked.method for asked in proxy.requests] in ([], ["CONNECT"])


def test_a_kubeconfig_names_one(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path, cluster={"proxy-url": "http://proxy.example:3128"})
    assert load_config(path, environ={}).proxy == "http://proxy.example:3128"


ENVIRONMENTS: Mapping[str, tuple[dict[str, str], str, str]] = {
    "none": ({}, "https://10.0.0.1", ""),
    "one": ({"HTTPS_PROXY": "http://p:1"}, "https://10.0.0.1", "http://p:1"),
    "in small letters": ({"https_proxy": "http://p:1"}, "https://10.0.0.1", "http://p:1"),
    "for the other protocol": ({"HTTP_PROXY": "http://p:1"}, "https://10.0.0.1", ""),
    "but not for this network": (
        {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a,10.0.0.0/8"},
        "https://10.0.0.1:443",
        "",
    ),
    "but not for this host": (
        {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example.com"},
        "https://api.example.com",
        "",
    ),
    "but never for this machine": ({"HTTPS_PROXY": "http://p:1"}, "https://127.0.0.1:6443", ""),
    "nor by name": ({"HTTPS_PROXY": "http://p:1"}, "https://localhost:6443", ""),
}


@pytest.mark.parametrize(
    ("environ", "server", "expected"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys()
)
def test_the_environment_names_one(environ: dict[str, str], server: str, expected: str) -> None:
    assert environment_proxy(server, environ) == expected


def test_a_way_into_a_cluster_takes_it(tmp_path: Path) -> None:
    path = a_kubeconfig(tmp_path)
    environ = {"HTTPS_PROXY": "http://proxy.example:3128"}
    assert load_config(path, environ=environ).proxy == "http://proxy.example:3128"


def test_one_of_another_kind_is_refused() -> None:
    with pytest.raises(AccessError, match=r"\$HTTPS_PROXY: only proxies of HTTP are supported"):
        environment_proxy("https://10.0.0.1", {"HTTPS_PROXY": "socks5://p:1"})
