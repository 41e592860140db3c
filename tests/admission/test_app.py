"""The WSGI application, called as any server would call it."""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.admission.fake_handler import FakeHandler
from tests.admission.reviews import a_review, encoded
from webhook import __version__
from webhook.admission.deadline import Deadline
from webhook.admission.patch_builder import add
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied, Phase
from webhook.admission.serving.app import RECEIVED, create_app
from webhook.admission.serving.concurrency import SMALL_BYTES
from webhook.admission.serving.undecided import overload_response
from webhook.telemetry.metrics import Metrics
from webhook.telemetry.trace import current_trace

JSON = "application/json"


@pytest.fixture
def handler() -> FakeHandler:
    return FakeHandler()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def client(handler: FakeHandler, metrics: Metrics) -> Iterator[FlaskClient]:
    with create_app(handler, metrics=metrics, body_bytes=4096).test_client() as client:
        yield client


def post(client: FlaskClient, path: str = "/validate", **changes: Any) -> TestResponse:
    return client.post(path, **{"data": encoded(a_review()), "content_type": JSON, **changes})


def message(response: TestResponse) -> str:
    """The message of an answer that is no decision; checks that it is a Status."""
    status = json.loads(response.data)
    assert response.content_type == JSON
    assert (status["kind"], status["code"]) == ("Status", response.status_code)
    text: str = status["message"]
    return text


def test_a_review_is_answered_with_its_uid(client: FlaskClient) -> None:
    response = post(client)
    assert (response.status_code, response.content_type) == (200, JSON)
    assert json.loads(response.data)["response"]["uid"] == "uid-1"
    assert response.content_length == len(response.data)


@pytest.mark.parametrize(
    ("path", "phase"), [("/mutate", Phase.MUTATING), ("/validate", Phase.VALIDATING)]
)
def test_the_path_says_the_phase(
    client: FlaskClient, handler: FakeHandler, path: str, phase: Phase
) -> None:
    post(client, path)
    assert [request.phase for request, _ in handler.asked] == [phase]


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


def decided(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of the lines about decisions."""
    return [vars(record) for record in caplog.records if record.message == "decided"]


def test_the_trace_of_a_review_is_in_its_line_and_an_exemplar(
    client: FlaskClient, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post(client, headers={"Traceparent": TRACEPARENT})
    post(client)
    assert [line.get("trace_id") for line in decided(caplog)] == [TRACE_ID, None]
    text, content_type = metrics.exposition("application/openmetrics-text;version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    exemplars = re.findall(r'duration_seconds_bucket\{.*# \{trace_id="([^"]+)"\}', text.decode())
    assert exemplars == [TRACE_ID]
    assert b"trace_id" not in metrics.exposition("text/plain")[0]


def test_a_trace_that_is_not_recorded_is_no_exemplar(client: FlaskClient, metrics: Metrics) -> None:
    post(client, headers={"Traceparent": f"{TRACEPARENT[:-1]}0"})
    assert b"trace_id" not in metrics.exposition("application/openmetrics-text")[0]


def test_a_review_works_under_its_trace_and_the_next_one_does_not(
    handler: FakeHandler, metrics: Metrics
) -> None:
    traces: list[str] = []

    def decide(request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
        trace = current_trace()
        traces.append("" if trace is None else trace.header)
        return handler(request, deadline)

    with create_app(decide, metrics=metrics).test_client() as client:
        post(client, headers={"Traceparent": TRACEPARENT})
        post(client)
    assert traces == [TRACEPARENT, ""]


@pytest.mark.parametrize(("every", "logged"), [(1, 6), (3, 2), (0, 0)])
def test_of_allowed_decisions_some_are_logged_and_of_others_all(
    handler: FakeHandler,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    every: int,
    logged: int,
) -> None:
    caplog.set_level(logging.INFO)
    app = create_app(handler, metrics=metrics, log_allowed_every=lambda: every)
    with app.test_client() as client:
        for _ in range(6):
            post(client)
        assert len(decided(caplog)) == logged
        assert all(line.get("one_of", 1) == every for line in decided(caplog))
        handler.answer = OUTCOMES["denied"][0]
        for _ in range(2):
            post(client)
    assert [line["outcome"] for line in decided(caplog)][logged:] == ["denied", "denied"]
    assert sum(sample(metrics, "admission_requests_total", **one) or 0 for one in counted()) == 8


def counted() -> Iterator[dict[str, str]]:
    fixed = {"handler": "bind", "phase": "validating", "operation": "CREATE", "dry_run": "false"}
    for outcome in ("allowed", "denied"):
        yield {**fixed, "outcome": outcome}


def test_the_client_of_what_cannot_be_read_is_logged(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    post(client, data=b"{", environ_overrides={"REMOTE_ADDR": "192.0.2.7"})
    (line,) = [vars(record) for record in caplog.records if record.message == "refused"]
    assert line["client"] == "192.0.2.7"


def test_the_deadline_counts_from_the_last_byte_of_the_request(
    client: FlaskClient, handler: FakeHandler
) -> None:
    received = time.monotonic() - 1
    post(client, "/validate?timeout=5s", environ_overrides={RECEIVED: received})
    assert handler.asked[0][1] == Deadline(received + 4.5)


def test_a_request_that_waited_too_long_is_not_decided(
    client: FlaskClient, handler: FakeHandler, metrics: Metrics
) -> None:
    late = {RECEIVED: time.monotonic() - 60}
    waits = encoded(a_review({"subResource": ..., "object": A_POD}))
    response = post(client, "/validate?timeout=5s", data=waits, environ_overrides=late)
    assert response.status_code == 503
    assert "over before" in message(response)
    assert "Retry-After" not in response.headers
    assert handler.asked == []
    assert sample(metrics, "turned_away_requests_total", reason="too_late") == 1


def test_a_bind_that_waited_too_long_is_denied_for_now(
    client: FlaskClient, handler: FakeHandler
) -> None:
    late = {RECEIVED: time.monotonic() - 60}
    response = post(client, "/validate?timeout=5s", environ_overrides=late)
    assert response.status_code == 200
    answer = response.get_json()["response"]
    assert (answer["allowed"], answer["status"]["code"]) == (False, 429)
    assert answer["status"]["details"]["retryAfterSeconds"] == 1
    assert "over before" in answer["status"]["message"]
    assert handler.asked == []


A_POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}}
NOT_DECIDED: dict[str, tuple[str, dict[str, Any], int]] = {
    "a bind": ("/validate", {}, 429),
    "a bind without uid": ("/mutate", {}, 429),
    "a resize": ("/validate", {"subResource": "resize", "operation": "UPDATE"}, 429),
    "a pod with a node": (
        "/validate",
        {"subResource": ..., "object": {**A_POD, "spec": {"nodeName": "node-1"}}},
        429,
    ),
    "a change of a pod": ("/validate", {"subResource": ..., "operation": "UPDATE"}, 429),
    "a pod without node": ("/validate", {"subResource": ..., "object": A_POD}, 503),
    "a gate": ("/mutate", {"subResource": ..., "object": A_POD}, 503),
    "shadow mode": ("/shadow", {"subResource": ..., "object": A_POD}, 503),
    "another page": ("/", {}, 503),
    "a large one": ("/validate", {"object": {"x": "y" * SMALL_BYTES}}, 429),
    "a large gate": (
        "/mutate",
        {"subResource": ..., "object": {**A_POD, "x": "y" * SMALL_BYTES}},
        429,
    ),
    "a large one in shadow mode": (
        "/shadow",
        {"subResource": ..., "object": {**A_POD, "x": "y" * SMALL_BYTES}},
        503,
    ),
    "a large status of a quota": (
        "/mutate",
        {
            "resource": {"group": "", "version": "v1", "resource": "resourcequotas"},
            "subResource": "status",
            "operation": "UPDATE",
            "object": {"x": "y" * SMALL_BYTES},
        },
        503,
    ),
    "a large one of a user": ("/validate", {"userInfo": {"x": "y" * SMALL_BYTES}}, 429),
    "a large one about nothing": ("/validate", {"name": "y" * SMALL_BYTES}, 503),
}


@pytest.mark.parametrize(
    ("target", "request_", "code"), NOT_DECIDED.values(), ids=NOT_DECIDED.keys()
)
def test_what_no_thread_decides_is_answered_as_its_registration_fails(
    target: str, request_: dict[str, Any], code: int
) -> None:
    body = encoded(a_review(request_))
    response = overload_response(f"{target}?timeout=5s", body, "too many requests wait")
    assert response.code == (200 if code == 429 else code)
    if code == 429:
        answer = json.loads(response.body)["response"]
        assert (answer["uid"], answer["allowed"]) == ("uid-1", False)
        assert answer["status"]["code"] == 429
        assert answer["status"]["message"] == "too many requests wait"


@pytest.mark.parametrize("body", [b"", b"{", b'{"kind":"AdmissionReview"}'])
def test_what_cannot_be_read_is_an_error_under_overload_too(body: bytes) -> None:
    assert overload_response("/validate", body, "too many requests wait").code == 503


def test_a_scheduler_evicts_nothing_while_there_is_no_time_to_answer() -> None:
    """An extender that is `ignorable` would go on after an error, and evict."""
    for size in (10, 100_000):
        answer = overload_response("/scheduler/preempt?timeout=5s", b"x" * size, "too many wait")
        assert (answer.code, answer.body) == (200, b'{"NodeNameToMetaVictims":{}}')
        assert overload_response("/scheduler/filter", b"x" * size, "too many wait").code == 503


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "no body": ({"data": b""}, 400, "not JSON"),
    "not JSON": ({"data": b"{"}, 400, "not JSON"),
    "no review": ({"data": b"{}"}, 400, "kind: must be AdmissionReview"),
    "v1beta1": (
        {"data": encoded(a_review(apiVersion="admission.k8s.io/v1beta1"))},
        400,
        "apiVersion: must be admission.k8s.io/v1",
    ),
    "no uid": ({"data": encoded(a_review({"uid": ""}))}, 400, "request.uid: must not be empty"),
    "a wrong type": ({"data": encoded(a_review({"name": 1}))}, 400, "request.name: expected str"),
    "beyond the limit": ({"data": b"x" * 4097}, 413, "larger than 4096 bytes"),
    "compressed": (
        {"headers": {"Content-Encoding": "gzip"}},
        415,
        "encoded bodies are not read",
    ),
    "another type": ({"content_type": "text/plain"}, 415, "application/json"),
    "no type": ({"content_type": None}, 415, "application/json"),
    "YAML": ({"content_type": "application/yaml"}, 415, "application/json"),
}


@pytest.mark.parametrize(("changes", "code", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_a_review_is_refused_with_the_reason(
    client: FlaskClient, handler: FakeHandler, changes: dict[str, Any], code: int, text: str
) -> None:
    response = post(client, **changes)
    assert response.status_code == code
    assert text in message(response)
    assert handler.asked == []


def test_a_review_that_is_no_json_further_on_is_denied(client: FlaskClient) -> None:
    """An error would let it pass where the failure policy is `Ignore`."""
    response = post(client, data=encoded(a_review()).replace(b'"node-1"', b'"\\ud800"'))
    answer = json.loads(response.data)["response"]
    assert (answer["uid"], answer["allowed"]) == ("uid-1", False)
    assert answer["status"]["code"] == 400
    assert "not JSON" in answer["status"]["message"]


def test_refused_requests_are_counted_by_reason(client: FlaskClient, metrics: Metrics) -> None:
    post(client, data=b"{")
    post(client, data=b"x" * 5000)
    post(client, content_type="text/plain")
    assert sample(metrics, "malformed_requests_total", reason="json") == 1
    assert sample(metrics, "malformed_requests_total", reason="too_large") == 1
    assert sample(metrics, "malformed_requests_total", reason="content_type") == 1


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", "Application/JSON"])
def test_parameters_and_case_of_the_content_type_do_not_matter(
    client: FlaskClient, content_type: str
) -> None:
    assert post(client, content_type=content_type).status_code == 200


def test_identity_is_no_encoding(client: FlaskClient) -> None:
    assert post(client, headers={"Content-Encoding": "identity"}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_reviews_are_only_posted(client: FlaskClient, method: str) -> None:
    response = client.open("/validate", method=method)
    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"
    assert "POST" in message(response)


def post_with(client: FlaskClient, data: bytes, **environ: object) -> TestResponse:
    """Post bytes whose length the server learned in another way, or not at all."""
    return post(client, input_stream=io.BytesIO(data), data=None, environ_overrides=environ)


def test_a_length_that_lies_is_found_out(client: FlaskClient) -> None:
    data = encoded(a_review())
    response = post_with(client, data, CONTENT_LENGTH=str(len(data) + 50))
    assert response.status_code == 400
    assert f"ends after {len(data)} of {len(data) + 50} bytes" in message(response)


@pytest.mark.parametrize(("size", "code"), [(4096, 400), (4097, 413), (100_000, 413)])
def test_a_body_without_a_length_is_read_up_to_the_limit(
    client: FlaskClient, size: int, code: int
) -> None:
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    assert post_with(client, b" " * size, **chunked).status_code == code


def test_a_chunked_review_is_answered(client: FlaskClient) -> None:
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    assert post_with(client, encoded(a_review()), **chunked).status_code == 200


def test_a_body_without_any_end_is_not_read(client: FlaskClient) -> None:
    assert post_with(client, encoded(a_review()), CONTENT_LENGTH="").status_code == 400


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", "9" * 30, "0x10"])
def test_a_length_that_is_no_number_is_refused(client: FlaskClient, length: str) -> None:
    response = post(client, environ_overrides={"CONTENT_LENGTH": length})
    assert response.status_code == 400
    assert "not a number" in message(response)


def test_the_last_of_repeated_keys_decides(client: FlaskClient) -> None:
    data = encoded(a_review()).replace(b'"uid":"uid-1"', b'"uid":"a","uid":"b"')
    assert json.loads(post(client, data=data).data)["response"]["uid"] == "b"


def test_a_fault_of_the_handler_is_500_and_not_an_answer(
    client: FlaskClient, handler: FakeHandler, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    handler.fault = KeyError("secret detail")
    response = post(client)
    assert response.status_code == 500
    assert message(response) == "internal error while reviewing the request 'uid-1'"
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert (record.message, vars(record)["uid"]) == ("review failed", "uid-1")
    assert record.exc_info is not None
    labels = {"handler": "bind", "phase": "validating", "operation": "CREATE"}
    labels |= {"outcome": "error", "dry_run": "false"}
    assert sample(metrics, "admission_requests_total", **labels) == 1


def test_an_answer_that_cannot_be_sent_is_a_fault(
    client: FlaskClient, handler: FakeHandler
) -> None:
    handler.answer = Allowed(decision="x", patch=(add(("a",), 1),))
    assert post(client, "/validate").status_code == 500
    assert post(client, "/mutate").status_code == 200


OUTCOMES: dict[str, tuple[AdmissionResponse, str]] = {
    "allowed": (Allowed(decision="none"), "allowed"),
    "patched": (Allowed(decision="stamped", patch=(add(("a",), 1),)), "patched"),
    "denied": (Denied(code=403, reason="Forbidden", message="no"), "denied"),
    "undecided": (Denied(code=429, reason="TooManyRequests", message="busy"), "undecided"),
    "a fault as an answer": (Denied(code=500, reason="InternalError", message="x"), "error"),
}


@pytest.mark.parametrize(("answer", "outcome"), OUTCOMES.values(), ids=OUTCOMES.keys())
def test_decisions_are_counted_by_their_outcome(
    client: FlaskClient,
    handler: FakeHandler,
    metrics: Metrics,
    answer: AdmissionResponse,
    outcome: str,
) -> None:
    handler.answer = answer
    assert post(client, "/mutate").status_code == 200
    labels = {"handler": "bind", "phase": "mutating", "operation": "CREATE"}
    labels |= {"outcome": outcome, "dry_run": "false"}
    assert sample(metrics, "admission_requests_total", **labels) == 1
    del labels["operation"]
    assert sample(metrics, "admission_duration_seconds_count", **labels) == 1


def test_labels_are_bounded_whatever_is_sent(
    client: FlaskClient, handler: FakeHandler, metrics: Metrics
) -> None:
    handler.answer = Allowed(decision="none", handler="a handler nobody knows")
    request = {"operation": "EXPLODE", "resource": {"resource": "secrets"}, "dryRun": True}
    post(client, data=encoded(a_review(request)))
    labels = {"handler": "other", "phase": "validating", "operation": "other"}
    labels |= {"outcome": "allowed", "dry_run": "true"}
    assert sample(metrics, "admission_requests_total", **labels) == 1


def test_a_decision_is_one_line_with_its_facts(
    client: FlaskClient, handler: FakeHandler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler.answer = Denied(
        code=403, reason="Forbidden", message="exceeded quota: p1", audit={"quota": "p1"}
    )
    post(client)
    (record,) = [record for record in caplog.records if record.message == "decided"]
    facts = vars(record)
    assert facts["duration_ms"] >= 0
    assert {key: facts[key] for key in ("uid", "key", "handler", "outcome", "code", "detail")} == {
        "uid": "uid-1",
        "key": "team-a/web-1",
        "handler": "bind",
        "outcome": "denied",
        "code": 403,
        "detail": "exceeded quota: p1",
    }
    assert facts["audit"] == {"quota": "p1"}
    assert "node-1" not in str(facts)  # nothing of the object's body


def test_the_index_says_what_this_is(client: FlaskClient) -> None:
    response = client.get("/")
    assert json.loads(response.data) == {
        "name": "deferred-quota",
        "version": __version__,
        "reviews": ["/mutate", "/validate", "/shadow"],
    }


def test_an_unknown_path_is_404_as_json(client: FlaskClient) -> None:
    response = client.get("/nothing")
    assert response.status_code == 404
    assert message(response)


def test_a_wrong_method_elsewhere_is_405_as_json(client: FlaskClient) -> None:
    response = client.post("/")
    assert response.status_code == 405
    assert "GET" in response.headers["Allow"]
    assert message(response)


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"deferred_quota_{name}", labels)


def test_what_waits_to_be_logged_is_no_longer_than_a_line_shows(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    long = "x" * 1500
    with caplog.at_level(logging.INFO):
        post(client, data=encoded(a_review({"name": long, "userInfo": {"username": long}})))
    (record,) = [one for one in caplog.records if one.message == "decided"]
    facts = vars(record)
    assert max(len(facts["key"]), len(facts["user"])) < 1100
