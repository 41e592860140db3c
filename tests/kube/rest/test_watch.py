"""Watches: lines of all sizes, and every way in which one can end."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from tests.e2e.cluster.waiting import eventually
from tests.kube.builders import a_cluster, a_config_map, first, lines
from tests.kube.rest.scripted_server import (
    CHUNKED,
    PATIENCE_SECONDS,
    Script,
    ScriptedServer,
    ServerConnection,
    a_note,
    answering,
    chunk,
    reply,
    server_context,
    status,
)
from tests.kube.rest.served import served
from webhook.kube.api import (
    CONFIG_MAPS,
    ApiError,
    ExpiredError,
    ForbiddenError,
    ListOptions,
    Object,
    RequestTimeoutError,
    UnavailableError,
    UnreachableError,
    WatchEvent,
)
from webhook.kube.informer import Informer, InformerTimings
from webhook.kube.rest import RestClient
from webhook.kube.rest.transport import Request, Transport
from webhook.kube.rest.watch import RestWatch


def line(kind: str, obj: object) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return line("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": str(version)}})


def sending(*parts: bytes, ending: bytes = chunk(b"")) -> Script:
    """A script that grants a watch, sends these parts each in a chunk, and ends like this."""

    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(CHUNKED)
        for part in parts:
            peer.send(chunk(part))
        peer.send(ending)

    return script


def watch(
    server: ScriptedServer, seconds: float | None = 60, *, bookmarks: bool = True
) -> RestWatch:
    return server.client().watch(
        CONFIG_MAPS,
        ListOptions(namespace="team-a"),
        resource_version=4,
        timeout_seconds=seconds,
        bookmarks=bookmarks,
    )


def events(*parts: bytes, ending: bytes = chunk(b"")) -> list[WatchEvent]:
    with ScriptedServer(sending(*parts, ending=ending)) as server, watch(server) as stream:
        return list(stream)


def test_an_event_is_read_by_its_identity_and_decoded_later() -> None:
    (event,) = events(line("ADDED", a_note()))
    assert (event.type, event.key, event.uid) == ("ADDED", "team-a/notes", "u-1")
    assert event.resource_version == 5
    assert json.loads(event.data) == a_note()
    assert event.object == a_note()


def test_what_is_asked_for() -> None:
    with ScriptedServer(sending()) as server:
        list(watch(server, 1.2))
        list(watch(server, None, bookmarks=False))
    path = "/api/v1/namespaces/team-a/configmaps?watch=true&resourceVersion=4"
    assert [asked.target for asked in server.requests] == [
        f"{path}&timeoutSeconds=2&allowWatchBookmarks=true",
        path,
    ]


def test_lines_and_parts_have_nothing_to_do_with_each_other() -> None:
    sent = b"".join(line("MODIFIED", a_note(version)) for version in range(1, 20))
    for size in (1, 3, 100, len(sent)):
        parts = [sent[start : start + size] for start in range(0, len(sent), size)]
        assert [event.resource_version for event in events(*parts)] == list(range(1, 20))


def test_a_line_may_be_megabytes_long() -> None:
    long = line("MODIFIED", a_note(text="x" * (8 << 20)))
    parts = [long[start : start + 65_521] for start in range(0, len(long), 65_521)]
    one, two = events(*parts, line("MODIFIED", a_note(version=6)))
    assert len(one.data) > 8 << 20
    assert (one.resource_version, two.resource_version) == (5, 6)


def test_a_watch_without_chunks_is_a_watch() -> None:
    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        peer.send(line("ADDED", a_note()))

    with ScriptedServer(script) as server, watch(server) as stream:
        assert lines(stream) == [("ADDED", "team-a/notes")]


def test_empty_lines_are_nothing() -> None:
    assert len(events(b"\n\r\n \n" + line("ADDED", a_note()) + b"\n")) == 1


def test_bookmarks_only() -> None:
    seen = events(bookmark(7), bookmark(9))
    assert [(event.type, event.key, event.resource_version) for event in seen] == [
        ("BOOKMARK", "", 7),
        ("BOOKMARK", "", 9),
    ]


def test_an_error_event_is_an_event() -> None:
    (event,) = events(line("ERROR", status(410, "Expired", "too old resource version: 4 (9)")))
    assert (event.type, event.key, event.resource_version) == ("ERROR", "", 0)
    assert isinstance(event.error(), ExpiredError)


REFUSALS: dict[str, tuple[bytes, type[ApiError]]] = {
    "410": (reply(410, status(410, "Expired", "too old resource version")), ExpiredError),
    "403": (reply(403, status(403, "Forbidden", "may not watch")), ForbiddenError),
    "a page": (reply(503, "<html>", Content_Type="text/html"), UnavailableError),
    "another success": (reply(201, {}), UnavailableError),
}


@pytest.mark.parametrize(("answer", "expected"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_watch_that_is_refused_raises_at_once(answer: bytes, expected: type[ApiError]) -> None:
    with ScriptedServer(answering(answer)) as server, pytest.raises(expected):
        watch(server)


CUTS = {
    "within a line": (chunk(line("MODIFIED", a_note(6))[:-9]) + chunk(b""), "within a line"),
    "within a chunk": (b"ff\r\n" + line("MODIFIED", a_note(6))[:40], "broke off"),
    "between chunks": (b"", "broke off between two parts"),
    "before the line's end": (chunk(line("MODIFIED", a_note(6))[:-1]) + chunk(b""), "within a"),
}


@pytest.mark.parametrize(("ending", "words"), CUTS.values(), ids=CUTS.keys())
def test_a_watch_that_is_cut_never_gives_half_an_object(ending: bytes, words: str) -> None:
    with ScriptedServer(sending(line("ADDED", a_note()), ending=ending)) as server:
        stream = watch(server)
        assert next(stream).resource_version == 5
        with pytest.raises(UnreachableError, match=f"watch of configmaps: .*{words}"):
            next(stream)
        assert list(stream) == []


@pytest.mark.parametrize(
    "odd", [b"{]\n", b'{"type":"ADDED"}\n', b'{"type":"NEW","object":{}}\n', b"5\n", b"\xff\n"]
)
def test_a_line_that_is_no_event_is_an_error(odd: bytes) -> None:
    with pytest.raises(UnavailableError):
        events(odd)


def test_a_connection_that_is_reset_is_an_error() -> None:
    def reset(peer: ServerConnection) -> None:
        peer.read()
        peer.send(CHUNKED + chunk(line("ADDED", a_note())))
        is_seen.wait(PATIENCE_SECONDS)
        peer.reset()

    is_seen = threading.Event()
    with ScriptedServer(reset) as server:
        stream = watch(server)
        next(stream)
        is_seen.set()
        with pytest.raises(UnreachableError):
            next(stream)


def silent_watch(server: ScriptedServer, seconds: float) -> RestWatch:
    """A watch that gives up after so long without a byte."""
    transport = Transport(server.access(), user_agent="t", timeout_seconds=PATIENCE_SECONDS)
    head, connection = transport.stream(Request("GET", "/"))
    return RestWatch(connection, head, silence_seconds=seconds, name="watch of silence")


def test_a_server_that_falls_silent_is_an_error() -> None:
    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(CHUNKED + chunk(bookmark(3)))
        peer.stall()

    with ScriptedServer(script) as server, silent_watch(server, 0.2) as stream:
        assert next(stream).type == "BOOKMARK"
        with pytest.raises(UnreachableError, match=r"watch of silence: no byte within 0\.2 s"):
            next(stream)
        assert list(stream) == []


def test_a_server_that_does_not_grant_the_watch_in_time() -> None:
    with ScriptedServer(ServerConnection.stall) as server, pytest.raises(RequestTimeoutError):
        server.client(timeout_seconds=0.2).watch(CONFIG_MAPS, resource_version=1)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_closing_wakes_the_reader_at_once(tmp_path: Path, tls: bool) -> None:
    def script(peer: ServerConnection) -> None:
        peer.read()
        peer.send(CHUNKED + chunk(bookmark(3)))
        peer.stall()

    seen: list[object] = []
    with ScriptedServer(script, tls=server_context(tmp_path) if tls else None) as server:
        stream = watch(server)
        reader = threading.Thread(target=lambda: seen.extend(stream))
        reader.start()
        eventually(lambda: stream.is_reading and seen, "it waits for the second event")
        began = time.monotonic()
        stream.close()
        reader.join(PATIENCE_SECONDS)
        assert not reader.is_alive()
        # not by running out of time, which a watch of a minute would take
        assert time.monotonic() - began < PATIENCE_SECONDS / 2
        stream.close()
    assert len(seen) == 1


def test_a_closed_watch_gives_nothing_that_was_still_to_come() -> None:
    with ScriptedServer(sending(bookmark(1) + bookmark(2) + bookmark(3))) as server:
        stream = watch(server)
        assert next(stream).resource_version == 1
        stream.close()
        assert list(stream) == []


def test_closing_while_it_is_read_never_hurts() -> None:
    def flood(peer: ServerConnection) -> None:
        peer.read()
        peer.send(CHUNKED)
        while True:
            peer.send(chunk(bookmark(1) * 50))

    with ScriptedServer(flood) as server:
        for number in range(30):
            stream = watch(server)
            failures: list[BaseException] = []

            def read(stream: RestWatch = stream, failures: list[BaseException] = failures) -> None:
                try:
                    for _ in stream:
                        pass
                except BaseException as err:  # noqa: BLE001 - whatever it is, the test fails
                    failures.append(err)

            reader = threading.Thread(target=read)
            reader.start()
            for _ in range(number * 100):
                pass  # another moment each time
            stream.close()
            reader.join(PATIENCE_SECONDS)
            assert not reader.is_alive()
            assert failures == []


def test_a_watch_has_a_connection_of_its_own() -> None:
    def script(peer: ServerConnection) -> None:
        while not peer.read().target.count("watch=true"):
            peer.send(reply(body=a_note()))
        peer.send(CHUNKED + chunk(bookmark(1)))
        peer.stall()

    with ScriptedServer(script) as server:
        client = server.client()
        client.get(CONFIG_MAPS, "notes", namespace="team-a")
        with client.watch(CONFIG_MAPS, resource_version=1, timeout_seconds=60) as stream:
            next(stream)
            client.get(CONFIG_MAPS, "notes", namespace="team-a")
        assert server.connections == 2


class TestInformer:
    """The informer over the client over a server whose watches break."""

    @staticmethod
    def informer(client: RestClient) -> Informer[Object]:
        timing = InformerTimings(first_pause=0.01, longest_pause=0.05)
        return Informer(client, CONFIG_MAPS, transform=lambda obj: obj, timings=timing)

    def test_nothing_is_lost_when_watches_are_cut(self) -> None:
        cluster = a_cluster()
        with served(cluster) as client:
            informer = self.informer(client)
            informer.start()
            assert informer.wait_for_sync(PATIENCE_SECONDS)
            for number in range(30):
                client.create(CONFIG_MAPS, a_config_map(f"n-{number}"))
                if number % 3 == 0:
                    cluster.cut_watches()
            eventually(lambda: len(informer) == 30, "all have arrived")
            assert informer.relists == 1
            informer.stop()

    def test_a_server_that_has_forgotten_is_listed_anew(self) -> None:
        listing = reply(body={"metadata": {"resourceVersion": "9"}, "items": [a_note(version=8)]})
        expired = line("ERROR", status(410, "Expired", "too old resource version"))

        def script(peer: ServerConnection) -> None:
            asked = peer.read()
            if "watch=true" not in asked.target:
                peer.send(listing)
                script(peer)
            elif informer.relists < 3:
                peer.send(CHUNKED + chunk(expired) + chunk(b""))
            else:
                peer.send(CHUNKED + chunk(line("MODIFIED", a_note(version=12))))
                peer.stall()

        with ScriptedServer(script) as server:
            informer = self.informer(server.client())
            informer.start()
            assert informer.wait_for_version(12, PATIENCE_SECONDS)
            assert informer.relists == 3
            informer.stop()


def test_the_first_events_of_a_stream_can_be_taken() -> None:
    with ScriptedServer(sending(bookmark(1), bookmark(2))) as server, watch(server) as stream:
        assert len(first(stream, 1)) == 1
        assert next(stream).resource_version == 2
