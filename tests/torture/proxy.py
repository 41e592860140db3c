"""TCP proxies with faults, in a process of their own; TLS passes through untouched.

`python -m tests.torture.proxy` reads commands from standard input, one JSON object a line, and
answers each with one line. A link listens on a port and forwards to its targets, round-robin by
connection; a target that refuses is passed over, as a Service passes over an endpoint that is gone.

Commands: `{"do": "open", "link": L, "targets": [[host, port], ...]}` → `{"port": ...}`,
`{"do": "set", "link": L, FAULT: VALUE, ...}`, `{"do": "cut", "link": L, "older": seconds}`,
`{"do": "drop", "link": L}` → `{"connections": n}`, `{"do": "freeze", "link": L, "older": seconds}`,
`{"do": "thaw", "link": L}`, `{"do": "stats"}`.

Faults of `set`: `delay` seconds for every piece in either direction, `refuse` new connections,
`hold` everything without closing anything (a dead network).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_PIECE_BYTES: Final = 65536


@dataclass(eq=False, slots=True)
class Connection:
    """A client and the target it was given.

    Attributes:
        is_doomed: What the target next says is dropped and the connection closed, once the client
            has said something: the request gets through, its answer is lost.
        has_asked: The client has said something since the connection was doomed.
        is_frozen: Nothing passes, and nothing is lost.
    """

    client: asyncio.StreamWriter
    target: asyncio.StreamWriter
    since: float
    is_doomed: bool = False
    has_asked: bool = False
    is_frozen: bool = False

    def close(self) -> None:
        """Close both ends at once."""
        for writer in (self.client, self.target):
            with contextlib.suppress(Exception):
                writer.transport.abort()


@dataclass(eq=False, slots=True)
class Link:
    """A listening port and what is wrong with it."""

    targets: list[tuple[str, int]]
    delay: float = 0.0
    refuse: bool = False
    hold: bool = False
    next: int = 0
    accepted: int = 0
    dropped: int = 0
    cut: int = 0
    connections: set[Connection] = field(default_factory=set)
    server: asyncio.Server | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either side ends it."""
        self.accepted += 1
        if self.refuse:
            writer.transport.abort()
            return
        target = await self._connect()
        if target is None:
            writer.transport.abort()
            return
        target_reader, target_writer = target
        connection = Connection(writer, target_writer, time.monotonic())
        self.connections.add(connection)
        try:
            await asyncio.gather(
                self._pass(connection, reader, target_writer, is_answer=False),
                self._pass(connection, target_reader, writer, is_answer=True),
            )
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.connections.discard(connection)
            connection.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self.targets:
            host, port = self.targets[self.next % len(self.targets)]
            self.next += 1
            with contextlib.suppress(OSError):
                return await asyncio.open_connection(host, port)
        return None

    async def _pass(
        self,
        connection: Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            if self.delay:
                await asyncio.sleep(self.delay)
            while self.hold or connection.is_frozen:
                await asyncio.sleep(0.02)
            if is_answer and connection.is_doomed and connection.has_asked:
                self.dropped += 1
                break
            if not is_answer and connection.is_doomed:
                connection.has_asked = True
            writer.write(piece)
            await writer.drain()
        connection.close()

    def doom(self) -> int:
        """Drop the next answer of every connection that is open now."""
        for connection in self.connections:
            connection.is_doomed = True
        return len(self.connections)

    def freeze(self, seconds: float) -> int:
        """Hold what is said on connections of at least this age: watches become stale."""
        old = self._older(seconds)
        for connection in old:
            connection.is_frozen = True
        return len(old)

    def thaw(self) -> None:
        """Let go what was frozen."""
        for connection in self.connections:
            connection.is_frozen = False

    def cut_older(self, seconds: float) -> int:
        """Close every connection of at least this age."""
        old = self._older(seconds)
        for connection in old:
            connection.close()
        self.cut += len(old)
        return len(old)

    def _older(self, seconds: float) -> list[Connection]:
        now = time.monotonic()
        return [each for each in self.connections if now - each.since >= seconds]


class Proxies:
    """All links of the process."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}

    async def obey(self, command: Mapping[str, Any]) -> dict[str, object]:
        """Carry out one command and say what came of it."""
        what = command["do"]
        if what == "open":
            return await self._open(command)
        if what == "stats":
            return {name: _stats(link) for name, link in self._links.items()}
        return _ON_A_LINK[what](self._links[command["link"]], command)

    async def _open(self, command: Mapping[str, Any]) -> dict[str, object]:
        link = Link([(host, port) for host, port in command["targets"]])
        link.server = await asyncio.start_server(
            link.serve, "127.0.0.1", int(command.get("port", 0)), backlog=512
        )
        self._links[command["link"]] = link
        return {"port": link.server.sockets[0].getsockname()[1]}


def _set(link: Link, command: Mapping[str, Any]) -> dict[str, object]:
    for name in ("delay", "refuse", "hold"):
        if name in command:
            setattr(link, name, command[name])
    return {}


def _thaw(link: Link, _command: Mapping[str, Any]) -> dict[str, object]:
    link.thaw()
    return {}


_ON_A_LINK: Final[Mapping[str, Callable[[Link, Mapping[str, Any]], dict[str, object]]]] = {
    "cut": lambda link, command: {"connections": link.cut_older(float(command["older"]))},
    "drop": lambda link, _command: {"connections": link.doom()},
    "freeze": lambda link, command: {"connections": link.freeze(float(command["older"]))},
    "thaw": _thaw,
    "set": _set,
}


def _stats(link: Link) -> dict[str, int]:
    return {
        "open": len(link.connections),
        "accepted": link.accepted,
        "dropped": link.dropped,
        "cut": link.cut,
    }


async def run() -> None:
    """Obey commands until standard input ends."""
    proxies = Proxies()
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        try:
            answer = await proxies.obey(json.loads(line))
        except Exception as err:  # noqa: BLE001 - outermost frame of a command: its sender is told
            answer = {"error": repr(err)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run())
