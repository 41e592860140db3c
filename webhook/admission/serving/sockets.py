"""Listening sockets, and the file that says where they are."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Final

from webhook.admission.serving.server_settings import ListenAddress

BACKLOG: Final = 1024


class StartError(Exception):
    """The server cannot start; the text says what to change."""


def listen(name: str, address: ListenAddress) -> socket.socket:
    """Open a listening socket.

    Raises:
        StartError: It cannot be opened; the text names the listener and the address.
    """
    try:
        return _listen_on(address) if address.host else _listen_everywhere(address.port)
    except OSError as err:
        # create_server puts the address into its text, getaddrinfo has only a code and a text
        reason = os.strerror(err.errno) if err.errno and err.errno > 0 else err.strerror
        raise StartError(f"{name}: cannot listen on {address}: {reason}") from err


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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_bytes(data)
        part.replace(path)
    except OSError as err:  # of which a failed write does not say to which file it was
        raise OSError(err.errno, err.strerror or str(err), str(path)) from err
