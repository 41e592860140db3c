"""A process is ready while it can decide, and says what it lacks when it cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.admission.handlers.harness import a_namespace, eventually
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    NAMESPACES,
    QUOTA_LEDGERS,
    ApiError,
    Kind,
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


class FailingClient(FakeClient):
    """A client to which lists and watches of one kind fail for as long as a test wants."""

    error: ApiError | None = None
    kind: Kind = QUOTA_LEDGERS

    def pages(self, kind: Kind, **arguments: Any) -> Any:
        self._fail(kind)
        return super().pages(kind, **arguments)

    def watch(self, kind: Kind, **arguments: Any) -> Any:
        self._fail(kind)
        return super().watch(kind, **arguments)

    def _fail(self, kind: Kind) -> None:
        if self.error is not None and kind == self.kind:
            raise self.error


@pytest.fixture
def client() -> FailingClient:
    cluster = FakeCluster()
    cluster.load([(NAMESPACES, a_namespace(DEFAULT_NAMESPACE, mode=""))])
    return FailingClient(cluster)


@pytest.fixture
def engine(client: FailingClient) -> Iterator[Engine]:
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
    client: FailingClient, engine: Engine, failure: ApiError, told: str
) -> None:
    client.error = failure
    eventually(lambda: engine.readiness_problems() == [told], "it is not ready")
    client.error = None
    eventually(lambda: engine.readiness_problems() == [], "it is ready again")


def test_an_outage_leaves_it_ready(client: FailingClient, engine: Engine) -> None:
    client.error = UnreachableError("not now")
    informer = engine.informers[QUOTA_LEDGERS.plural]
    eventually(lambda: informer.last_error is client.error, "the watch fails")
    assert engine.readiness_problems() == []


def test_the_namespace_of_the_installation_is_missed(client: FailingClient, engine: Engine) -> None:
    client.delete(NAMESPACES, DEFAULT_NAMESPACE)
    told = f"the namespace {DEFAULT_NAMESPACE} of the installation is gone"
    eventually(lambda: engine.readiness_problems() == [told], "it is not ready")
    client.create(NAMESPACES, a_namespace(DEFAULT_NAMESPACE, mode=""))
    eventually(lambda: engine.readiness_problems() == [], "it is ready again")
