"""Reviews that a real API server sent, posted to the running server, which knows its objects."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace
from tests.admission.recorded import NAMESPACE, PODS_CREATED, REFUSED, kinds, stored
from tests.admission.reviews import phase_of, recorded, recorded_names
from tests.admission.validity import response_of
from tests.e2e.embedded import serving
from tests.e2e.harness import Server, post
from webhook.admission.review import Phase

PATHS = {Phase.MUTATING: "/mutate?timeout=10s", Phase.VALIDATING: "/validate?timeout=10s"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    objects = [a_namespace(NAMESPACE), *(obj for _, obj in stored())]
    with serving(tmp_path_factory.mktemp("recorded"), objects) as served:
        yield served.webhook


def decisions() -> dict[str, str]:
    """What is answered, where it is an allow."""
    created = {f"validate.create.pods.{name}": one for name, one in PODS_CREATED.items()}
    return {**dict(kinds()), **created}


def test_all_recorded_reviews_are_answered_as_they_should_be_on_one_connection(
    server: Server,
) -> None:
    expected = decisions()
    with contextlib.closing(server.connect()) as connection:
        connection.connect()
        local_port = connection.sock.getsockname()[1]
        for name in recorded_names():
            phase = phase_of(name)
            reply = post(connection, recorded(name), PATHS[phase])
            assert (reply.status, reply.headers["Connection"]) == (200, "keep-alive"), name
            response = response_of(reply.body, json.loads(recorded(name)), phase)
            assert response["allowed"] == (name not in REFUSED), name
            if name in expected:
                audit = response["auditAnnotations"]
                assert isinstance(audit, dict)
                assert audit["decision"] == expected[name], name
        assert connection.sock.getsockname()[1] == local_port
