"""A process is ready while it can decide, and says what it lacks when it cannot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from tests.reactions import ReactiveClient, fail
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import (
    NAMESPACES,
    QUOTA_LEDGERS,
    ApiError,
    NotFoundError,
    UnauthorizedError,
    UnreachableError,
)
from webhook.kube.informer import InformerTimings
from webhook.runtime import Engine, EngineOptions
from webhook.state.well_known import DEFAULT_NAMESPACE
from webhook.telemetry.metrics import Metrics

QUICK = InformerTimings(
    first_pause=0.01, longest_pause=0.02, shortest_watch=0.02, longest_watch=0.02
)


@pytest.fixture
def client() -> ReactiveClient:
    cluster = FakeCluster()
    cluster.load([(NAMESPACES, a_namespace(DEFAULT_NAMESPACE, mode=""))])
    return ReactiveClient(cluster)


@pytest.fixture
def engine(client: ReactiveClient) -> Iterator[Engine]:
    options = EngineOptions(controller=None, follow_ledgers=True, informer=QUICK)
    made = Engine(client, Metrics(), options)
    made.start()
    assert made.wait_until_ready(10) == []
    yield made
    made.stop()


LASTING: dict[str, tuple[ApiError, str]] = {
    "the definition is gone": (
        NotFoundError("the server could not find the requested resource"),
        "the CustomResourceDefinition quotaledgers.deferredquota.io is not installed",
    ),
    "the account is gone": (
        UnauthorizedError("Unauthorized"),
        "quotaledgers cannot be listed: Unauthorized",
    ),
}


@pytest.mark.parametrize(("failure", "told"), LASTING.values(), ids=LASTING)
def test_what_does_not_pass_by_itself_makes_it_not_ready_until_it_is_mended(
    client: ReactiveClient, engine: Engine, failure: ApiError, told: str
) -> None:
    with client.on("*", QUOTA_LEDGERS, fail(failure)):
        eventually(lambda: engine.readiness_problems() == [told], "it is not ready")
    eventually(lambda: engine.readiness_problems() == [], "it is ready again")


def test_an_outage_leaves_it_ready(client: ReactiveClient, engine: Engine) -> None:
    error = UnreachableError("not now")
    client.on("*", QUOTA_LEDGERS, fail(error))
    informer = engine.informers[QUOTA_LEDGERS.plural]
    eventually(lambda: informer.last_error is error, "the watch fails")
    assert engine.readiness_problems() == []


def test_the_namespace_of_the_installation_is_missed(
    client: ReactiveClient, engine: Engine
) -> None:
    client.delete(NAMESPACES, DEFAULT_NAMESPACE)
    told = f"the namespace {DEFAULT_NAMESPACE} of the installation is gone"
    eventually(lambda: engine.readiness_problems() == [told], "it is not ready")
    client.create(NAMESPACES, a_namespace(DEFAULT_NAMESPACE, mode=""))
    eventually(lambda: engine.readiness_problems() == [], "it is ready again")
