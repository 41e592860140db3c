"""Warnings of an API server reach whoever gave the client an ear for them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.kube.rest.scripted_server import ScriptedServer, a_note, answering, reply, status
from webhook.kube.api import CONFIG_MAPS, ForbiddenError
from webhook.kube.rest import RestClient
from webhook.kube.rest.http1 import Head
from webhook.kube.rest.responses import warnings_of

HEADERS: Mapping[str, tuple[str, list[str]]] = {
    "none": ("", []),
    "one": ('299 - "careful"', ["careful"]),
    "several in one header": ('299 - "one", 299 - "two, three"', ["one", "two, three"]),
    "quotes and backslashes": (r'299 - "say \"no\" to C:\\"', ['say "no" to C:\\']),
    "with a date": ('299 - "old" "Sat, 25 Aug 2012 23:34:45 GMT", 299 - "new"', ["old", "new"]),
    "of an agent": ('299 example.com:443 "careful"', ["careful"]),
    "letters of the world": ('299 - "größer"'.encode().decode("latin-1"), ["größer"]),
    "bytes that are no text": ('299 - "\xff!"', ["\ufffd!"]),
    "of a cache": ('110 - "stale", 299 - "careful"', ["careful"]),
    "an empty one": ('299 - ""', []),
    "one without end": ('299 - "careful', []),
    "something else": ("nonsense", []),
}


@pytest.mark.parametrize(("header", "texts"), HEADERS.values(), ids=HEADERS.keys())
def test_the_texts_of_a_header_are_read(header: str, texts: list[str]) -> None:
    assert warnings_of(Head(200, "OK", {"warning": header}, keeps_alive=True)) == texts


def several(*texts: str) -> bytes:
    """An answer with one header for each warning, as the API server sends them."""
    head, blank, body = reply(200, a_note()).partition(b"\r\n\r\n")
    lines = "".join(f'\r\nWarning: 299 - "{text}"' for text in texts)
    return head + lines.encode() + blank + body


def test_every_header_of_an_answer_is_returned_in_order() -> None:
    heard: list[str] = []
    with ScriptedServer(answering(several("one", "größer", "one"), reply(200, a_note()))) as server:
        client = RestClient(server.access(), on_warning=heard.append)
        server.closes(client)
        for _ in range(2):
            client.update(CONFIG_MAPS, a_note())
    assert heard == ["one", "größer", "one"]


def test_a_refusal_that_warns_is_reported_too() -> None:
    heard: list[str] = []
    refusal = reply(403, status(403, "Forbidden", "no"), Warning='299 - "careful"')
    with ScriptedServer(answering(refusal)) as server:
        client = RestClient(server.access(), on_warning=heard.append)
        server.closes(client)
        with pytest.raises(ForbiddenError):
            client.update(CONFIG_MAPS, a_note())
    assert heard == ["careful"]


def test_a_client_that_does_not_listen_hears_nothing() -> None:
    with ScriptedServer(answering(several("one"))) as server:
        assert server.client().update(CONFIG_MAPS, a_note()).key == "team-a/notes"
