"""Addresses to listen on, listening sockets, and the file that says where they are."""

from __future__ import annotations

import errno
import os
import re
import socket
from dataclasses import dataclass
from typing import Final

BACKLOG: Final = 1024
_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\[\]:]*)):([0-9]{1,5})")
_GIVEN_BY: Final = {
    "webhook": "--listen",
    "ops": "--ops (probes and metrics)",
    "api": "--embedded-api",
    "page": "page.port",
}
"""Listener → the option, or the field of the configuration, with its address."""


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address on which the server listens.

    An empty host is every address of the machine, IPv6 and IPv4; port 0 is any free port, which
    the announcement then tells.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read `host:port`, `[v6]:port` or `:port`.

        Raises:
            ValueError: The text is none of them, or the port is above 65535.
        """
        match = _HOST_PORT.fullmatch(text)
        if match is None or int(match[3]) > 65535:
            raise ValueError(f"{text!r} is not an address such as 127.0.0.1:9443, [::1]:0 or :9443")
        return cls(match[1] or match[2], int(match[3]))


class StartError(Exception):
    """The server cannot start; the text says what to change."""


def listen(name: str, address: ListenAddress) -> socket.socket:
    """Open a listening socket.

    Raises:
        StartError: It cannot be opened; the text names its option and the address.
    """
    try:
        return _listen_on(address) if address.host else _listen_everywhere(address.port)
    except OSError as err:
        # create_server puts the address into its text, getaddrinfo has only a code and a text
        reason = os.strerror(err.errno) if err.errno and err.errno > 0 else err.strerror
        given = _GIVEN_BY.get(name, name)
        raise StartError(f"{given}: cannot listen on {address}: {reason}") from err


def _listen_everywhere(port: int) -> socket.socket:
    """Listen on IPv6 and IPv4, or on IPv4 alone where the machine has no other."""
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True
            )
        except OSError as err:
            if err.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                raise
    return socket.create_server(("", port), backlog=BACKLOG)


def _listen_on(address: ListenAddress) -> socket.socket:
    family, _, _, _, target = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    host, port = str(target[0]), int(target[1])
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def address_of(sock: socket.socket, scheme: str) -> dict[str, object]:
    """Return where a socket listens, as announcements do: `url`, `host`, `port`."""
    host, port = sock.getsockname()[:2]
    shown = ListenAddress("localhost" if host in {"0.0.0.0", "::"} else host, port)  # noqa: S104
    return {"url": f"{scheme}://{shown}", "host": host, "port": port}
