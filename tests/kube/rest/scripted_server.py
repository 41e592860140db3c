"""An API server that does what a test wants on each connection, faults included.

```
def script(peer: ServerConnection) -> None:
    peer.read()
    peer.send(ok({"kind": "Status"}))

with ScriptedServer(script) as server:
    client = server.client()
```

The first connection runs the first script, the second the second one; the last one stands for
all further ones. A script that returns closes its connection.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Self, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from webhook.kube.rest import RestClient, RestConfig
from webhook.kube.rest.identity import Credentials, Identity, Pem
from webhook.kube.rest.tls_config import Trust
from webhook.tls.issue import Issued, issue_ca, issue_serving

PATIENCE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as the server read it."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        """The body, decoded."""
        return json.loads(self.body)


class ServerConnection:
    """The client's end of one connection, as the server sees it."""

    def __init__(self, sock: socket.socket, server: ScriptedServer) -> None:
        self._socket = sock
        self._server = server
        self._buffer = bytearray()

    def read(self) -> ReceivedRequest:
        """Read one whole request; `EOFError` when the client has closed."""
        asked = self.read_head()
        wanted = int(asked.headers.get("content-length", "0"))
        while len(self._buffer) < wanted:
            self._receive()
        asked = replace(asked, body=bytes(self._buffer[:wanted]))
        del self._buffer[:wanted]
        self._server.requests[-1] = asked
        return asked

    def read_head(self) -> ReceivedRequest:
        """Read a request without its body."""
        while b"\r\n\r\n" not in self._buffer:
            self._receive()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        asked = ReceivedRequest(method, target, headers, b"")
        self._server.requests.append(asked)
        return asked

    def _receive(self) -> None:
        received = self._socket.recv(1 << 16)
        if not received:
            raise EOFError
        self._buffer += received

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def stall(self) -> None:
        """Do nothing until the test is over."""
        self._server.is_over.wait(PATIENCE_SECONDS)

    def drip(self, data: bytes) -> None:
        """Send a byte now and then, again and again, until the test is over or nobody listens."""
        while not self._server.is_over.wait(0.01):
            self.send(data)

    def reset(self) -> None:
        """Break the connection without a farewell."""
        linger = struct.pack("ii", 1, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._socket.close()

    def common_name(self) -> str:
        """The name in the client's certificate; empty if it has shown none."""
        assert isinstance(self._socket, ssl.SSLSocket)
        shown = self._socket.getpeercert(binary_form=True)
        if not shown:
            return ""
        subject = x509.load_der_x509_certificate(shown).subject
        return str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Go on encrypted, as behind a proxy."""
        self._socket = context.wrap_socket(self._socket, server_side=True)

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(OSError):
            self._socket.close()


Script: TypeAlias = Callable[[ServerConnection], None]


class ScriptedServer:
    """A server of this machine that follows scripts."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[ReceivedRequest] = []
        self.connections = 0
        self.failures: list[BaseException] = []
        self.is_over = threading.Event()
        self._scripts = scripts
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[RestClient] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def access(
        self, credentials: Credentials | None = None, trust: Trust | None = None, proxy: str = ""
    ) -> RestConfig:
        """Access to the server, which trusts it."""
        return RestConfig(
            server=self.url,
            source="the credentials of a test",
            credentials=credentials or Credentials(Identity),
            trust=trust or Trust(Pem(data=authority().certificate)),
            proxy=proxy,
        )

    def client(
        self,
        credentials: Credentials | None = None,
        *,
        access: RestConfig | None = None,
        timeout_seconds: float = PATIENCE_SECONDS,
    ) -> RestClient:
        """A client of the server, closed with it."""
        client = RestClient(access or self.access(credentials), timeout_seconds=timeout_seconds)
        self.closes(client)
        return client

    def closes(self, client: RestClient) -> None:
        """Close a client with the server."""
        self._clients.append(client)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            thread = threading.Thread(target=self._follow, args=(script, sock))
            thread.start()
            self._threads.append(thread)

    def _follow(self, script: Script, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE_SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = ServerConnection(sock, self)
        try:
            if self._tls is not None:
                peer.start_tls(self._tls)
            script(peer)
        except (EOFError, OSError):
            pass  # the client went away, as many of them are meant to
        except BaseException as err:  # noqa: BLE001 - shown by the test that waits for the answer
            self.failures.append(err)
        finally:
            peer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.is_over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
        assert not self.failures


def reply(status: int = 200, body: object = None, **headers: str) -> bytes:
    """An answer with a length; a body that is not text is written as JSON."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status} Somehow\r\n{lines}\r\n".encode() + data


CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """A part of a chunked answer; the empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def status(code: int, reason: str, message: str, **details: object) -> dict[str, object]:
    """A Status."""
    failure = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**failure, "code": code, "reason": reason, "message": message, "details": details}


def a_note(version: int = 5, text: str = "one") -> dict[str, object]:
    """A ConfigMap as the API server shows it."""
    metadata = {
        "name": "notes",
        "namespace": "team-a",
        "uid": "u-1",
        "resourceVersion": str(version),
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": text}}


def answering(*answers: bytes) -> Script:
    """A script that gives one answer for each request; the last one for all further requests."""

    def script(peer: ServerConnection) -> None:
        number = 0
        while True:
            peer.read()
            peer.send(answers[min(number, len(answers) - 1)])
            number += 1

    return script


@cache
def authority() -> Issued:
    """The CA of the servers."""
    return issue_ca(now=datetime.now(UTC))


def a_client_certificate(name: str) -> Issued:
    """A self-signed certificate for a client, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return Issued(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def server_context(
    directory: Path, *, name: str = "", clients: Sequence[Issued] = ()
) -> ssl.SSLContext:
    """The TLS side of a server.

    Args:
        directory: For its certificate and key.
        name: Its name; empty for 127.0.0.1.
        clients: Certificates of clients that it knows.
    """
    pair = issue_serving(
        authority(),
        dns_names=[name] if name else [],
        ip_addresses=[] if name else ["127.0.0.1"],
        now=datetime.now(UTC),
        lifetime=timedelta(days=1),
    )
    chain, key = directory / "server.crt", directory / "server.key"
    chain.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if clients:
        context.verify_mode = ssl.CERT_OPTIONAL
        for client in clients:
            context.load_verify_locations(cadata=client.certificate.decode())
    return context
