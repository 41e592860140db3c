"""Opening connections to an API server: TCP, a proxy's tunnel, TLS."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from webhook.kube.rest.config import RestConfig
from webhook.kube.rest.http1 import Connection, ConnectionBrokenError, seconds_until
from webhook.kube.rest.identity import Identity
from webhook.kube.rest.tls_config import ContextCache

_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A peer that is gone without a word is noticed after a minute."""


class Dialer:
    """Opens connections to the server of one access. Safe to use from several threads."""

    def __init__(self, config: RestConfig) -> None:
        """Connect to nothing yet.

        Raises:
            AccessError: A certificate cannot be used.
        """
        self._server: Final = urlsplit(config.server)
        self._proxy: Final = urlsplit(config.proxy) if config.proxy else None
        self._is_tls: Final = self._server.scheme == "https"
        self._name: Final = config.trust.server_name or (self._server.hostname or "")
        self._contexts = ContextCache(config.trust)
        if self._is_tls:
            self._contexts.context(config.credentials.identity().certificate)

    def connect(self, identity: Identity, deadline: float) -> Connection:
        """Open a connection that shows the identity's certificate.

        Raises:
            OSError: It cannot be opened in time, or the server is not trusted.
            ConnectionBrokenError: The proxy does not let it through.
            AccessError: A certificate cannot be used.
        """
        context = self._contexts.context(identity.certificate) if self._is_tls else None
        sock = _open(self._proxy or self._server, deadline)
        try:
            if self._proxy is not None:
                _tunnel(Connection(sock), self._server, self._proxy, deadline)
            return Connection(sock if context is None else self._wrapped(sock, context, deadline))
        except BaseException:
            sock.close()
            raise

    def _wrapped(
        self, sock: socket.socket, context: ssl.SSLContext, deadline: float
    ) -> ssl.SSLSocket:
        sock.settimeout(seconds_until(deadline))
        sock.getpeername()  # `wrap_socket` takes a socket whose peer is gone, and leaves it open
        wrapped = context.wrap_socket(
            sock, server_hostname=self._name, do_handshake_on_connect=False
        )
        try:
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped


def _open(address: SplitResult, deadline: float) -> socket.socket:
    port = address.port or (443 if address.scheme == "https" else 80)
    failure: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(
        address.hostname, port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(seconds_until(deadline))
            sock.connect(place)
        except OSError as err:
            sock.close()
            failure = err
            continue
        _tune(sock)
        return sock
    raise failure or OSError(f"no address of {address.hostname}")


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE:
        option = getattr(socket, name, None)  # not every system has them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _tunnel(
    connection: Connection, server: SplitResult, proxy: SplitResult, deadline: float
) -> None:
    """Ask a proxy for a way through to the server; only what it answers is read."""
    port = server.port or (443 if server.scheme == "https" else 80)
    host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname
    lines = [f"CONNECT {host}:{port} HTTP/1.1", f"Host: {host}:{port}"]
    if proxy.username:
        known = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {b64encode(known.encode()).decode()}")
    connection.send(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"), deadline)
    head = connection.read_head(deadline)
    if head.status != 200 or not connection.is_drained():
        raise ConnectionBrokenError(
            f"the proxy {proxy.hostname} answered {head.status} {head.reason}", was_sent=False
        )
