"""Calls of a scheduler over TLS, beside the reviews of an API server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.admission.extender.calls import filter_call, passed, preempt_call
from tests.admission.reviews import a_review
from tests.e2e.harness import Server, post, running_server

LIMIT = 7 * 1024 * 1024
NAMES = [f"node-{number:05}.example.internal" for number in range(5000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("extender")
    with running_server(directory, threads=4, serves_extender=True) as server:
        yield server


def test_a_scheduler_and_an_api_server_share_port_and_connection(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        for _ in range(3):
            answer = post(connection, filter_call(), "/scheduler/filter")
            assert answer.status == 200
            assert passed(answer.json)
            assert answer.headers["Connection"] == "keep-alive"
            assert post(connection, a_review(), "/validate").status == 200


def test_five_thousand_nodes_are_one_answer(server: Server) -> None:
    answer = server.post(filter_call(names=NAMES), "/scheduler/filter")
    assert answer.json["NodeNames"] == NAMES


def test_a_pod_that_is_refused_is_refused_on_every_node(server: Server) -> None:
    call = filter_call({"metadata": {"namespace": "a", "name": "deny", "uid": "u"}}, names=NAMES)
    answer = server.post(call, "/scheduler/filter")
    assert answer.json["FailedAndUnresolvableNodes"] == dict.fromkeys(NAMES, "told to")
    assert answer.json["NodeNames"] == []


def test_a_fault_evicts_no_pod(server: Server) -> None:
    pod = {"metadata": {"namespace": "a", "name": "fail", "uid": "u"}}
    answer = server.post(preempt_call(pod), "/scheduler/preempt")
    assert (answer.status, answer.json) == (200, {"NodeNameToMetaVictims": {}})
    assert server.post(filter_call(pod), "/scheduler/filter").status == 500


def test_calls_are_counted_by_what_was_asked(server: Server) -> None:
    labels = {"phase": "validating", "operation": "CREATE"}
    pod = {"metadata": {"namespace": "a", "name": "deny", "uid": "u"}}
    for verb, call in (("filter", filter_call(pod)), ("preempt", preempt_call(pod))):
        labels |= {"handler": verb, "outcome": "denied", "dry_run": str(verb == "filter").lower()}
        before = server.metric("admission_requests_total", **labels)
        server.post(call, f"/scheduler/{verb}")
        assert server.metric("admission_requests_total", **labels) == before + 1


def test_what_is_too_large_or_no_call_is_refused(server: Server) -> None:
    assert server.post(b" " * (LIMIT + 1), "/scheduler/filter").status == 413
    wrong = server.post({"Pod": {}}, "/scheduler/preempt")
    assert (wrong.status, wrong.json["message"]) == (400, "Pod.metadata: must be present")


def test_unless_it_is_switched_on_there_is_no_such_page(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        assert server.post(filter_call(), "/scheduler/filter").status == 404
        assert server.post(preempt_call(), "/scheduler/preempt").status == 404
