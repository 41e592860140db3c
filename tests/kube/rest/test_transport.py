"""Connections: kept, found stale, broken, stalled; and what of it a request is repeated after."""

from __future__ import annotations

import gc
import socket
import ssl
import struct
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.cluster.waiting import eventually
from tests.kube.rest.scripted_server import (
    CHUNKED,
    PATIENCE_SECONDS,
    ScriptedServer,
    ServerConnection,
    a_note,
    answering,
    chunk,
    reply,
    server_context,
    status,
)
from webhook.config import Limits
from webhook.kube.api import (
    CONFIG_MAPS,
    Object,
    RequestTimeoutError,
    TooLargeError,
    UnavailableError,
    UnreachableError,
)
from webhook.kube.rest import RestClient, RestConfig
from webhook.kube.rest.identity import Credentials, Identity
from webhook.kube.rest.transport import Request, Transport
from webhook.telemetry.trace import read_trace, under

BIG = {**a_note(), "data": {"text": "x" * (24 << 20)}}
"""More than the buffers of both sides hold."""


def get(client: RestClient) -> Object:
    return client.get(CONFIG_MAPS, "notes", namespace="team-a")


def read_and_close(peer: ServerConnection) -> None:
    peer.read()


def test_a_call_under_a_trace_carries_its_header() -> None:
    header = f"00-{'4b' * 16}-{'7a' * 8}-01"
    with ScriptedServer(answering(reply(body=a_note()))) as server:
        client = server.client()
        with under(read_trace(header)):
            get(client)
        get(client)
        headers = [
            {name.lower(): value for name, value in request.headers.items()}
            for request in server.requests
        ]
    assert [one.get("traceparent") for one in headers] == [header, None]


class TestKeeping:
    def test_requests_one_after_the_other_share_a_connection(self) -> None:
        with ScriptedServer(answering(reply(body=a_note()))) as server:
            client = server.client()
            for _ in range(5):
                assert get(client) == a_note()
            client.update(CONFIG_MAPS, a_note())
            assert server.connections == 1

    def test_requests_at_the_same_time_do_not_mix(self) -> None:
        def echo(peer: ServerConnection) -> None:
            while True:
                name = peer.read().target.rpartition("/")[2]
                peer.send(reply(body={"metadata": {"name": name}}))

        wrong: list[object] = []

        def ask(client: RestClient, number: int) -> None:
            for step in range(30):
                name = f"n-{number}-{step}"
                found = client.get(CONFIG_MAPS, name, namespace="team-a")
                if found != {"metadata": {"name": name}}:
                    wrong.append(found)

        with ScriptedServer(echo) as server:
            client = server.client()
            threads = [threading.Thread(target=ask, args=(client, n)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert wrong == []
            assert len(server.requests) == 240
            assert server.connections <= 8

    def test_a_connection_is_kept_for_each_thread_of_a_webhook(self) -> None:
        count = Limits().threads
        together = threading.Barrier(count)

        def script(peer: ServerConnection) -> None:
            while True:
                peer.read()
                together.wait(PATIENCE_SECONDS)
                peer.send(reply(body=a_note()))

        with ScriptedServer(script) as server, ThreadPoolExecutor(count) as threads:
            client = server.client()
            for _ in range(2):
                assert list(threads.map(lambda _: get(client), range(count)))
            assert server.connections == count

    @pytest.mark.parametrize(
        "answer",
        [
            reply(body=a_note(), Connection="close"),
            b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            reply(body=a_note()) + b"HTTP/1.1 200 OK\r\n",
        ],
        ids=["asked to close", "of old", "more than an answer"],
    )
    def test_a_connection_that_cannot_be_used_again_is_not(self, answer: bytes) -> None:
        with ScriptedServer(answering(answer)) as server:
            client = server.client()
            get(client)
            get(client)
            assert server.connections == 2

    def test_a_closed_client_keeps_nothing(self) -> None:
        with ScriptedServer(answering(reply(body=a_note()))) as server:
            client = server.client()
            get(client)
            client.close()
            get(client)
            assert server.connections == 2
            assert client.idle_connections == 0


class TestStaleConnections:
    @staticmethod
    def _closing_instead_of_the_second_answer(peer: ServerConnection) -> None:
        peer.read()
        peer.send(reply(body=a_note()))
        peer.read()

    def test_a_read_is_repeated_on_another(self) -> None:
        with ScriptedServer(
            self._closing_instead_of_the_second_answer, answering(reply(body=a_note(version=6)))
        ) as server:
            client = server.client()
            get(client)
            assert get(client) == a_note(version=6)
            assert server.connections == 2

    def test_a_write_that_may_have_arrived_is_not(self) -> None:
        with ScriptedServer(
            self._closing_instead_of_the_second_answer, answering(reply(body=a_note()))
        ) as server:
            client = server.client()
            get(client)
            with pytest.raises(UnreachableError, match=r"PUT /api/v1/.*/notes: http://127"):
                client.update(CONFIG_MAPS, a_note())
            assert [asked.method for asked in server.requests] == ["GET", "PUT"]

    def test_a_write_does_not_go_to_a_connection_that_the_server_has_closed(self) -> None:
        def once(peer: ServerConnection) -> None:
            peer.read()
            peer.send(reply(body=a_note()))

        with ScriptedServer(once) as server:
            client = server.client()
            get(client)
            eventually(lambda: client.idle_connections == 0, "the server has closed")
            assert client.update(CONFIG_MAPS, a_note()).resource_version == 5
            assert server.connections == 2

    def test_a_write_that_was_not_sent_to_its_end_is_repeated(self) -> None:
        def refuse_the_second(peer: ServerConnection) -> None:
            peer.read()
            peer.send(reply(body=a_note()))
            peer.read_head()
            peer.reset()

        with ScriptedServer(refuse_the_second, answering(reply(body=a_note(version=7)))) as server:
            client = server.client()
            get(client)
            assert client.update(CONFIG_MAPS, BIG).resource_version == 7
            assert [asked.method for asked in server.requests] == ["GET", "PUT", "PUT"]

    def test_what_breaks_on_a_new_connection_is_not_repeated(self) -> None:
        with ScriptedServer(read_and_close) as server:
            with pytest.raises(UnreachableError, match="the server closed the connection"):
                get(server.client())
            assert server.connections == 1

    def test_an_answer_to_half_a_request_counts(self) -> None:
        def refuse(peer: ServerConnection) -> None:
            peer.read_head()
            peer.send(reply(413, status(413, "RequestEntityTooLarge", "limit is 3145728")))

        with (
            ScriptedServer(refuse) as server,
            pytest.raises(TooLargeError, match="limit is 3145728"),
        ):
            server.client().update(CONFIG_MAPS, BIG)


class TestDeadlines:
    def test_a_server_that_says_nothing(self) -> None:
        with (
            ScriptedServer(ServerConnection.stall) as server,
            pytest.raises(RequestTimeoutError, match=r"no answer within 0\.2 s"),
        ):
            get(server.client(timeout_seconds=0.2))

    def test_an_eviction_has_less_time_than_other_calls(self) -> None:
        with (
            ScriptedServer(ServerConnection.stall) as server,
            pytest.raises(RequestTimeoutError, match="no answer within 3 s"),
        ):
            server.client(timeout_seconds=30).evict("web", namespace="default", uid="u")

    @pytest.mark.parametrize(
        "beginning",
        [b"", b"HTTP/1.1 200 OK\r\n", reply(body="", Content_Length="99999999"), CHUNKED],
        ids=["no head", "half a head", "a long body", "chunks"],
    )
    def test_a_server_that_drips_does_not_stretch_it(self, beginning: bytes) -> None:
        def script(peer: ServerConnection) -> None:
            peer.read()
            peer.send(beginning)
            peer.drip(chunk(b"x") if beginning == CHUNKED else b"x")

        with ScriptedServer(script) as server, pytest.raises(RequestTimeoutError):
            get(server.client(timeout_seconds=0.3))

    def test_a_server_that_does_not_read(self) -> None:
        with ScriptedServer(ServerConnection.stall) as server, pytest.raises(RequestTimeoutError):
            server.client(timeout_seconds=0.3).update(CONFIG_MAPS, BIG)

    def test_a_server_that_does_not_shake_hands(self) -> None:
        with ScriptedServer(ServerConnection.stall) as server:
            access = server.access()
            secure = access.__class__(
                server=server.url.replace("http:", "https:"),
                source=access.source,
                credentials=access.credentials,
            )
            with pytest.raises(UnreachableError, match=r"no connection within 0\.2 s"):
                get(server.client(access=secure, timeout_seconds=0.2))

    def test_a_timed_out_connection_is_not_used_again(self) -> None:
        def late(peer: ServerConnection) -> None:
            peer.read()
            peer.drip(b"HTTP/1.1 200 OK\r\n")

        with ScriptedServer(late) as server:
            client = server.client(timeout_seconds=0.2)
            for _ in range(2):
                with pytest.raises(RequestTimeoutError):
                    get(client)
            assert server.connections == 2


def test_a_port_without_a_server() -> None:
    with ScriptedServer(ServerConnection.stall) as server:
        client = server.client()
    with pytest.raises(UnreachableError, match=r"Connection refused \(the credentials of a test\)"):
        get(client)


BROKEN = {
    "cut within its length": (reply(body=a_note())[:-3], "broke off after"),
    "cut within a chunk": (CHUNKED + b"ff\r\nabc", "broke off 252 bytes"),
    "cut between chunks": (CHUNKED + chunk(b"{}"), "broke off between"),
    "not HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not the beginning of an HTTP/1.1 answer"),
    "no size": (CHUNKED + b"zz\r\n", "no size"),
    "a chunk too long": (CHUNKED + b"2\r\n{}x\r\n", "longer than it says"),
    "no length": (reply(body="", Content_Length="-1"), "no length"),
    "a coding nobody asked for": (reply(Transfer_Encoding="gzip"), "encoded as 'gzip'"),
    "a head without end": (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 60_000, "head of the answer"),
}


@pytest.mark.parametrize(("answer", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_an_answer_that_is_broken_leaves_open_what_was_done(answer: bytes, words: str) -> None:
    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(answer)

    with ScriptedServer(script) as server, pytest.raises(UnreachableError, match=words):
        server.client().update(CONFIG_MAPS, a_note())


FINE = {
    "chunks": CHUNKED + chunk(b'{"a":') + b"3;ext=1\r\n" + b" 1}\r\n" + b"0\r\nTrailer: x\r\n\r\n",
    "after interim answers": b"HTTP/1.1 100 Continue\r\n\r\n" + reply(body={"a": 1}),
    "up to the end of the connection": (
        b'HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\n\r\n{"a": 1}'
    ),
    "odd spaces and letters": (
        b'HTTP/1.1 200\r\ncOnTent-TYPE:application/json  \r\nCONTENT-LENGTH:8\r\n\r\n{"a": 1}'
    ),
}


@pytest.mark.parametrize("answer", FINE.values(), ids=FINE.keys())
@pytest.mark.parametrize("pieces", [1, 7, 10_000], ids=["bytes", "pieces", "whole"])
def test_an_answer_may_come_in_many_forms_and_pieces(answer: bytes, pieces: int) -> None:
    def script(peer: ServerConnection) -> None:
        peer.read()
        for start in range(0, len(answer), pieces):
            peer.send(answer[start : start + pieces])

    with ScriptedServer(script) as server:
        client = server.client()
        assert get(client) == {"a": 1}


def test_a_long_answer_is_read_whole() -> None:
    text = "ü" * (4 << 20)

    def script(peer: ServerConnection) -> None:
        data = b'{"a": "%s"}' % text.encode()
        peer.read()
        peer.send(CHUNKED)
        for start in range(0, len(data), 100_003):
            peer.send(chunk(data[start : start + 100_003]))
        peer.send(chunk(b""))
        peer.read()
        peer.send(reply(body={"b": 1}))

    with ScriptedServer(script) as server:
        client = server.client()
        assert get(client) == {"a": text}
        assert get(client) == {"b": 1}
        assert server.connections == 1


def test_what_is_sent() -> None:
    with ScriptedServer(answering(reply(body=a_note()))) as server:
        client = RestClient(server.access(), user_agent="tests/1")
        server.closes(client)
        get(client)
        client.patch(CONFIG_MAPS, "notes", {"data": None}, namespace="team-a", dry_run=True)
        read, patched = server.requests
    assert read.headers == {
        "host": server.url.removeprefix("http://"),
        "user-agent": "tests/1",
        "accept": "application/json",
    }
    assert (read.method, read.body) == ("GET", b"")
    assert patched.target == "/api/v1/namespaces/team-a/configmaps/notes?dryRun=All"
    assert patched.headers["content-type"] == "application/merge-patch+json"
    assert patched.json == {"data": None}


def test_a_server_below_a_path() -> None:
    with ScriptedServer(answering(reply(body=a_note()))) as server:
        access = server.access()
        below = access.__class__(
            server=f"{access.server}/k8s/clusters/c-1",
            source=access.source,
            credentials=access.credentials,
        )
        client = server.client(access=below)
        get(client)
    path = "/k8s/clusters/c-1/api/v1/namespaces/team-a/configmaps/notes"
    assert server.requests[0].target == path


class TestTls:
    @pytest.fixture
    def context(self, tmp_path: Path) -> ssl.SSLContext:
        return server_context(tmp_path)

    def test_requests_share_a_connection(self, context: ssl.SSLContext) -> None:
        with ScriptedServer(answering(reply(body=a_note())), tls=context) as server:
            client = server.client()
            for _ in range(3):
                assert get(client) == a_note()
            assert server.connections == 1

    def test_a_write_does_not_go_to_a_connection_that_the_server_has_closed(
        self, context: ssl.SSLContext
    ) -> None:
        def once(peer: ServerConnection) -> None:
            peer.read()
            peer.send(reply(body=a_note()))

        with ScriptedServer(once, tls=context) as server:
            client = server.client()
            get(client)
            eventually(lambda: client.idle_connections == 0, "the server has closed")
            client.update(CONFIG_MAPS, a_note())
            assert server.connections == 2

    def test_a_connection_that_breaks_without_farewell(self, context: ssl.SSLContext) -> None:
        def script(peer: ServerConnection) -> None:
            peer.read()
            peer.send(reply(body=a_note())[:-3])
            peer.reset()

        with ScriptedServer(script, tls=context) as server, pytest.raises(UnreachableError):
            get(server.client())

    def test_a_connection_that_breaks_before_the_handshake_is_closed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def break_connection(_: socket.socket) -> None:
                peer = listener.accept()[0]
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                peer.close()

            monkeypatch.setattr("webhook.kube.rest.dialer._tune", break_connection)
            host, port = listener.getsockname()
            access = RestConfig(
                server=f"https://{host}:{port}", source="", credentials=Credentials(Identity)
            )
            client = RestClient(access)
            with warnings.catch_warnings(record=True) as left_open:
                warnings.simplefilter("always", ResourceWarning)
                with pytest.raises(UnreachableError):
                    get(client)
                gc.collect()
        assert not left_open

    def test_a_long_answer_comes_in_many_records(self, context: ssl.SSLContext) -> None:
        with ScriptedServer(answering(reply(body={"a": "x" * (3 << 20)})), tls=context) as server:
            client = server.client()
            assert get(client) == {"a": "x" * (3 << 20)}


def test_a_transport_gives_answers_as_they_are() -> None:
    with ScriptedServer(answering(reply(302, "", Location="http://other/"))) as server:
        transport = Transport(server.access(), user_agent="t", timeout_seconds=PATIENCE_SECONDS)
        answer = transport.send(Request("GET", "/"))
        assert (answer.head.status, answer.head.headers["location"]) == (302, "http://other/")
        transport.close()


def test_a_user_agent_cannot_smuggle_headers() -> None:
    with (
        ScriptedServer(ServerConnection.stall) as server,
        pytest.raises(ValueError, match="header"),
    ):
        RestClient(server.access(), user_agent="a\r\nb: c")


def test_unreachable_is_a_kind_of_unavailable() -> None:
    assert issubclass(UnreachableError, UnavailableError)
