"""A cluster, a client of it, and informers that are stopped after the test."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest

from tests.kube.builders import a_cluster
from tests.kube.informers import AT_ONCE, Seen, Start, an_informer
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import ALL, ClusterApi, ListOptions
from webhook.kube.informer import Informer, InformerTimings


@pytest.fixture
def cluster() -> FakeCluster:
    return a_cluster()


@pytest.fixture
def api(cluster: FakeCluster) -> FakeClient:
    return FakeClient(cluster)


@pytest.fixture
def start(cluster: FakeCluster) -> Iterator[Start]:
    """Starts informers and stops them after the test."""
    running: list[Informer[str]] = []

    def start_one(
        api: ClusterApi | None = None,
        *,
        scope: ListOptions = ALL,
        timing: InformerTimings = AT_ONCE,
    ) -> tuple[Informer[str], Seen]:
        informer = an_informer(api or FakeClient(cluster), scope=scope, timing=timing)
        seen: Seen = queue.Queue()
        informer.add_handler(seen.put)
        informer.start()
        running.append(informer)
        return informer, seen

    yield start_one
    for informer in running:
        informer.stop()
