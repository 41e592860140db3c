"""The scheduler's paths over HTTP, called as any server would call them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.admission.extender.calls import (
    CANDIDATES,
    NODES,
    ask,
    filter_call,
    passed,
    preempt_call,
    reason,
)
from tests.admission.fake_handler import FakeHandler
from webhook.admission.deadline import Deadline
from webhook.admission.review import Denied
from webhook.admission.serving.app import RECEIVED, create_app
from webhook.telemetry.metrics import HANDLERS, Metrics, bounded

JSON = "application/json"
NOBODY: dict[str, Any] = {"NodeNameToMetaVictims": {}}
REFUSED = Denied(code=403, reason="Forbidden", message="failed quota: p1")
VERBS = {"filter": filter_call(), "preempt": preempt_call()}


class Switch:
    """Whether schedulers are answered."""

    is_on = True

    def __call__(self) -> bool:
        return self.is_on


@pytest.fixture
def handler() -> FakeHandler:
    return FakeHandler()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def switch() -> Switch:
    return Switch()


@pytest.fixture
def client(handler: FakeHandler, metrics: Metrics, switch: Switch) -> Iterator[FlaskClient]:
    app = create_app(handler, metrics=metrics, body_bytes=4096, serves_extender=switch)
    with app.test_client() as client:
        yield client


def post(client: FlaskClient, verb: str = "filter", **changes: Any) -> TestResponse:
    given = {"data": json.dumps(VERBS[verb]), "content_type": JSON, **changes}
    return client.post(f"/scheduler/{verb}", **given)


def message(response: TestResponse) -> str:
    status = json.loads(response.data)
    assert response.content_type == JSON
    assert (status["kind"], status["code"]) == ("Status", response.status_code)
    return str(status["message"])


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"deferred_quota_{name}", labels)


def counted(metrics: Metrics, verb: str, outcome: str) -> float | None:
    labels = {"handler": bounded(verb, HANDLERS), "phase": "validating", "operation": "CREATE"}
    labels |= {"outcome": outcome, "dry_run": str(verb == "filter").lower()}
    return sample(metrics, "admission_requests_total", **labels)


@pytest.mark.parametrize("verb", VERBS)
def test_unless_it_is_switched_on_there_is_no_such_page(handler: FakeHandler, verb: str) -> None:
    with create_app(handler).test_client() as client:
        response = post(client, verb)
    assert response.status_code == 404
    assert message(response)
    assert handler.asked == []


def test_it_is_switched_off_and_on_while_the_server_runs(
    client: FlaskClient, switch: Switch
) -> None:
    switch.is_on = False
    assert post(client).status_code == 404
    switch.is_on = True
    assert post(client).status_code == 200


def test_what_the_handlers_allow_passes_and_what_they_refuse_does_not(
    client: FlaskClient, handler: FakeHandler
) -> None:
    assert passed(ask(client, "filter", filter_call())) == list(NODES)
    assert ask(client, "preempt", preempt_call()) == {"NodeNameToMetaVictims": CANDIDATES}
    handler.answer = REFUSED
    assert reason(ask(client, "filter", filter_call())) == "failed quota: p1"
    assert ask(client, "preempt", preempt_call()) == NOBODY


BAD: dict[str, tuple[dict[str, Any], int, str]] = {
    "no body": ({"data": b""}, 400, "not JSON"),
    "not JSON": ({"data": b"{"}, 400, "not JSON"),
    "no call": ({"data": b"{}"}, 400, "Pod.metadata: must be present"),
    "a wrong type": ({"data": b'{"Pod": 1}'}, 400, "Pod: expected object, got int"),
    "beyond the limit": ({"data": b"x" * 4097}, 413, "larger than 4096 bytes"),
    "compressed": ({"headers": {"Content-Encoding": "gzip"}}, 415, "encoded bodies are not read"),
    "another type": ({"content_type": "text/plain"}, 415, "application/json"),
    "another method": ({"method": "GET"}, 405, "calls of a scheduler are sent with POST"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("changes", "code", "text"), BAD.values(), ids=BAD.keys())
def test_what_cannot_be_read_is_refused_with_the_reason(
    client: FlaskClient,
    handler: FakeHandler,
    verb: str,
    changes: dict[str, Any],
    code: int,
    text: str,
) -> None:
    response = (
        client.get(f"/scheduler/{verb}") if "method" in changes else post(client, verb, **changes)
    )
    assert response.status_code == code
    assert text in message(response)
    assert handler.asked == []


def test_what_cannot_be_read_is_counted_by_reason(client: FlaskClient, metrics: Metrics) -> None:
    post(client, data=b"{")
    post(client, data=b"{}")
    post(client, "preempt", data=b"x" * 5000)
    for why in ("json", "request", "too_large"):
        assert sample(metrics, "malformed_requests_total", reason=why) == 1


def test_a_scheduler_waits_five_seconds_unless_the_url_says_otherwise(
    client: FlaskClient, handler: FakeHandler
) -> None:
    received = time.monotonic() - 1
    environ: dict[str, Any] = {"environ_overrides": {RECEIVED: received}}
    post(client, **environ)
    post(client, query_string="timeout=10s", **environ)
    assert [deadline for _, deadline in handler.asked] == [
        Deadline(received + 4.5),
        Deadline(received + 9.5),
    ]


def test_a_fault_evicts_no_pod(
    client: FlaskClient, handler: FakeHandler, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    handler.fault = KeyError("secret detail")
    assert ask(client, "preempt", preempt_call()) == NOBODY
    response = post(client, "filter")
    assert response.status_code == 500
    assert message(response) == "internal error while looking at pod team-a/web-1"
    assert [record.message for record in caplog.records] == ["review failed", "review failed"]
    assert all(record.exc_info for record in caplog.records)
    assert all(counted(metrics, verb, "error") for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_is_one_line_with_its_facts_and_one_more_in_the_metrics(
    client: FlaskClient,
    handler: FakeHandler,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    verb: str,
) -> None:
    caplog.set_level(logging.INFO)
    handler.answer = REFUSED
    post(client, verb)
    (record,) = [record for record in caplog.records if record.message == "decided"]
    facts = vars(record)
    assert {key: facts[key] for key in ("key", "handler", "outcome", "dry_run", "detail")} == {
        "key": "team-a/web-1",
        "handler": verb,
        "outcome": "denied",
        "dry_run": verb == "filter",
        "detail": "failed quota: p1",
    }
    assert counted(metrics, verb, "denied") == 1
