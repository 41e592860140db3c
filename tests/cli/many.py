"""More namespaces than are changed at the same time, and a client that shows how many are."""

from __future__ import annotations

import threading
from typing import Final

from tests.builders import a_pod, a_quota
from tests.operations.healthy import healthy
from tests.operations.scenes import a_namespace, load
from tests.reactions import ReactiveClient, preceded_by
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import NAMESPACES
from webhook.operations.namespaces_at_once import AT_ONCE
from webhook.operations.retry import RetryPolicy

MANY: Final = [f"team-{number:02}" for number in range(2 * AT_ONCE)]


def changes_meet(client: ReactiveClient) -> ReactiveClient:
    """Let changes of Namespaces through when as many have been sent as may be at once."""
    in_parallel = threading.Barrier(AT_ONCE)
    client.on("patch", NAMESPACES, preceded_by(lambda _: in_parallel.wait(10)))
    return client


IMPATIENT = RetryPolicy(seconds=0.0, pause_seconds=0.001)


def a_cluster_with_a_candidate() -> FakeCluster:
    cluster = healthy()
    load(
        cluster,
        a_namespace("team-b", mode=""),
        a_quota(
            "p1",
            namespace="team-b",
            hard={"requests.cpu": "4", "pods": "9"},
            used={"requests.cpu": "3", "pods": "2"},
        ),
        a_pod(name="runs", namespace="team-b", uid="u1", node="n", requests={"cpu": "1"}),
        a_pod(name="waits", namespace="team-b", uid="u2", requests={"cpu": "2"}),
    )
    return cluster
