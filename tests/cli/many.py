"""Namespaces to opt in: one, or more than are changed at a time, and what opts them in."""

from __future__ import annotations

import threading
from typing import Final

from tests.builders import a_pod, a_quota
from tests.operations.healthy import NOW, CreationGuard, Pulse, healthy, renewing
from tests.operations.scenes import QUICK, a_namespace, load
from tests.reactions import ReactiveClient, preceded_by
from webhook.cli.cluster_context import read_bundle
from webhook.cli.enable import Opting
from webhook.config import Configuration
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import NAMESPACES
from webhook.operations.doctor.check_context import Settings
from webhook.operations.namespaces_at_once import AT_ONCE
from webhook.operations.retry import RetryPolicy
from webhook.state.well_known import DEFERRED_MODE

MANY: Final = [f"team-{number:02}" for number in range(2 * AT_ONCE)]


def changes_meet(client: ReactiveClient) -> ReactiveClient:
    """Let changes of Namespaces through when as many have been sent as may be at once."""
    in_parallel = threading.Barrier(AT_ONCE)
    client.on("patch", NAMESPACES, preceded_by(lambda _: in_parallel.wait(10)))
    return client


IMPATIENT = RetryPolicy(seconds=0.0, pause_seconds=0.001)


def a_client(cluster: FakeCluster) -> ReactiveClient:
    return ReactiveClient(cluster, admission=CreationGuard())


def opting(
    cluster: FakeCluster,
    patience: RetryPolicy = QUICK,
    *,
    api: FakeClient | None = None,
    mode: str = DEFERRED_MODE,
) -> Opting:
    """Opt namespaces in, or begin to watch them, while a controller renews its Lease."""
    pulse = Pulse(renewing(cluster))
    settings = Settings(
        read_bundle=read_bundle, now=lambda: NOW, clock=pulse.clock, sleep=pulse.sleep
    )
    client = api or a_client(cluster)
    return Opting(client, Configuration(), patience=patience, settings=settings, mode=mode)


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
