"""Calls to webhooks, and what becomes of them when the other side misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.fakecluster.webhook_server import ReceivedReview, Reply, WebhookServer, allow
from webhook.fakecluster.admission.webhook_client import (
    MAX_RESPONSE_BYTES,
    CallError,
    WebhookCaller,
)
from webhook.tls.issue import issue_ca

REVIEW = b'{"request": {"uid": "u1"}}'


def post(caller: WebhookCaller, hooks: WebhookServer, *, seconds: float = 5) -> bytes:
    return caller.post(f"{hooks.url}/hook", REVIEW, timeout_seconds=seconds)


def failure(caller: WebhookCaller, hooks: WebhookServer, *, seconds: float = 5) -> str:
    with pytest.raises(CallError) as refusal:
        post(caller, hooks, seconds=seconds)
    return str(refusal.value)


def test_a_call_looks_like_one_of_an_api_server(
    hooks: WebhookServer, caller: WebhookCaller
) -> None:
    hooks.answers["/hook"] = allow
    assert b'"allowed": true' in post(caller, hooks, seconds=2.5)
    asked = hooks.asked[0]
    assert asked.timeout == "3s"
    headers = {name: asked.headers[name] for name in ("Content-Type", "Accept", "User-Agent")}
    assert headers == {
        "Content-Type": "application/json",
        "Accept": "application/json, */*",
        "User-Agent": "kube-apiserver-admission",
    }


def test_connections_are_kept(hooks: WebhookServer, caller: WebhookCaller) -> None:
    hooks.answers["/hook"] = allow
    for _ in range(5):
        post(caller, hooks)
    assert len({asked.client_port for asked in hooks.asked}) == 1


Answer = Callable[[ReceivedReview], Reply]


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: Reply(body, code, named)


PREFIX = "failed to call webhook: "
FAILURES: dict[str, tuple[Answer, str]] = {
    "400": (status(400), "the server rejected our request for an unknown reason"),
    "404": (status(404), "the server could not find the requested resource"),
    "418": (
        status(418),
        "the server responded with the status code 418 but did not return more information",
    ),
    "500": (
        status(500),
        'an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "500 with text": (
        status(500, b' it "broke"\n', Content_Type="text/plain"),
        'an error on the server ("it \\"broke\\"") has prevented the request from succeeding',
    ),
    "500 with something else": (
        status(500, b"it broke", Content_Type="application/json"),
        'an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "503": (status(503), "the server is currently unable to handle the request"),
    "a redirect": (
        status(302, Location="https://127.0.0.1/elsewhere"),
        "the server responded with the status code 302 but did not return more information",
    ),
    "an empty answer": (
        status(200, Content_Type="text/html"),
        "0-length response with status code: 200 and content type: text/html",
    ),
}


@pytest.mark.parametrize(("answering", "text"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_call_is_reported_in_the_api_servers_words(
    hooks: WebhookServer, caller: WebhookCaller, answering: Answer, text: str
) -> None:
    hooks.answers["/hook"] = answering
    assert failure(caller, hooks) == PREFIX + text
    assert len(hooks.asked) == 1


TRANSPORT: dict[str, tuple[Answer, str]] = {
    "no answer": (
        lambda _: Reply(hang_up=True),
        "the server closed the connection (webhook of the embedded cluster)",
    ),
    "half an answer": (
        lambda _: Reply(b"{", headers={"Content-Length": "99", "Connection": "close"}),
        "the answer broke off after 1 of 99 bytes (webhook of the embedded cluster)",
    ),
    "an answer without end": (
        lambda _: Reply(b"x" * (MAX_RESPONSE_BYTES + 1)),
        "the answer is too large",
    ),
}


@pytest.mark.parametrize(("answering", "text"), TRANSPORT.values(), ids=TRANSPORT.keys())
def test_a_broken_connection_is_reported(
    hooks: WebhookServer, caller: WebhookCaller, answering: Answer, text: str
) -> None:
    hooks.answers["/hook"] = answering
    expected = f'{PREFIX}Post "{hooks.url}/hook?timeout=5s": {text}'
    assert failure(caller, hooks) == expected


def test_a_late_answer_is_none(hooks: WebhookServer, caller: WebhookCaller) -> None:
    done = threading.Event()

    def late(asked: ReceivedReview) -> Reply:
        done.wait(5)
        return allow(asked)

    hooks.answers["/hook"] = late
    text = failure(caller, hooks, seconds=0.1)
    done.set()
    assert text.endswith('/hook?timeout=1s": context deadline exceeded')


def test_a_missing_server_is_reported(hooks: WebhookServer, caller: WebhookCaller) -> None:
    url = hooks.url
    hooks.close()
    with pytest.raises(CallError, match=": Connection refused "):
        caller.post(f"{url}/hook", REVIEW, timeout_seconds=5)


def test_an_unknown_certificate_is_reported(hooks: WebhookServer) -> None:
    other_ca = issue_ca(now=datetime.now(UTC)).certificate.decode()
    with pytest.raises(CallError, match="its certificate is not trusted: "):
        WebhookCaller(other_ca).post(f"{hooks.url}/hook", REVIEW, timeout_seconds=5)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_busy_webhook_that_names_a_time_is_asked_again(hooks: WebhookServer, code: int) -> None:
    pauses: list[float] = []
    caller = WebhookCaller(hooks.ca_pem, sleep=pauses.append)

    def busy_twice(asked: ReceivedReview) -> Reply:
        return status(code, Retry_After="1")(asked) if len(hooks.asked) < 3 else allow(asked)

    hooks.answers["/hook"] = busy_twice
    assert b'"allowed": true' in post(caller, hooks)
    assert pauses == [1, 1]
    caller.close()


def test_a_time_beyond_the_deadline_is_not_waited_for(hooks: WebhookServer) -> None:
    pauses: list[float] = []
    caller = WebhookCaller(hooks.ca_pem, sleep=pauses.append)
    hooks.answers["/hook"] = status(503, Retry_After="9")
    assert failure(caller, hooks).endswith("context deadline exceeded")
    assert (len(hooks.asked), pauses) == (1, [])
    caller.close()


def test_a_webhook_is_not_asked_again_for_ever(hooks: WebhookServer) -> None:
    caller = WebhookCaller(hooks.ca_pem, sleep=lambda _: None)
    hooks.answers["/hook"] = status(503, Retry_After="0")
    assert failure(caller, hooks) == PREFIX + "the server is currently unable to handle the request"
    assert len(hooks.asked) == 11
    caller.close()
