"""Nothing is ever given twice: replicas, controllers, people and faults, on real threads."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.admission.handlers.harness import (
    AdmissionHarness,
    a_namespace,
    eventually,
    new_cluster,
)
from tests.reactions import Reaction, ReactiveClient, at_random, expire, lose_answer, unavailable
from tests.state.load import EXPIRE_SECONDS, Load, Replicas, ResponseLog, quotas
from tests.state.replay import Recorder, Replay
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS
from webhook.kube.informer import InformerTimings
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

RUN_SECONDS = 3.0
_QUICK = InformerTimings(first_pause=0.005, longest_pause=0.02)


@contextmanager
def an_engine(
    cluster: FakeCluster, seed: int, *, with_controller: bool, metrics: Metrics | None = None
) -> Iterator[Engine]:
    """Run a replica whose connection to the API server is a bad one."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    # a controller waits for a second after a failure: with many of them it would never count
    scale = 0.1 if with_controller else 1
    client = ReactiveClient(cluster)
    client.on("get", "*", at_random(rng, {unavailable: 0.02 * scale}))
    status_faults: dict[Reaction, float] = {lose_answer: 0.01 * scale, unavailable: 0.01 * scale}
    client.on("update", "*", at_random(rng, status_faults), subresource="status")
    client.on("patch", "*", at_random(rng, {lose_answer: 0.05, unavailable: 0.05}))
    client.on("watch", "*", at_random(rng, {expire: 0.2}))

    # shorter than any configuration may be: requests are shorter here, too
    timing = ControllerTimings(write_interval_seconds=0.005, resync_seconds=0.3, informer=_QUICK)
    control = (
        ControllerOptions(timings=timing, expire_seconds=EXPIRE_SECONDS)
        if with_controller
        else None
    )
    options = EngineOptions(controller=control, informer=_QUICK)
    engine = Engine(client, metrics or Metrics(), options)
    engine.start()
    try:
        assert engine.wait_until_ready(10) == []
        yield engine
    finally:
        engine.stop()


@pytest.mark.parametrize(
    ("seed", "controllers"), [(1, 1), (2, 2)], ids=["one controller", "two controllers"]
)
def test_pods_never_take_more_than_their_quotas_allow(seed: int, controllers: int) -> None:
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    recorder = Recorder(cluster)
    cluster.load([(RESOURCE_QUOTAS, quota) for quota in quotas()])
    journal = ResponseLog()
    print(f"seed {seed}")
    with (
        an_engine(cluster, seed, with_controller=True) as first,
        an_engine(cluster, seed + 1, with_controller=controllers > 1) as second,
        an_engine(cluster, seed + 2, with_controller=False) as third,
    ):
        replicas = Replicas([first, second, third], journal, seed)
        crowd = Load(cluster, replicas, seed)
        crowd.start()
        _cut_watches(cluster, RUN_SECONDS)
        crowd.stop()
        replay = Replay(journal.admissions)
        try:
            harness = AdmissionHarness(cluster, ReactiveClient(cluster), first)
            eventually(
                lambda: harness.is_settled() and not harness.reservations(),
                "the ledger is quiet and exact",
            )
        finally:
            replay.run(recorder.stop())
    print(dict(journal.outcomes), replay.commits, replay.judged, replay.tight)
    assert crowd.faults == []
    # otherwise nobody would have noticed
    assert replay.judged > 50
    assert replay.tight > 5


@pytest.mark.parametrize("seed", [3, 4])
def test_neither_do_those_that_waited_behind_our_gate(seed: int) -> None:
    """Two leaders at once, one of which ends in the middle, perhaps between write and patch."""
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    recorder = Recorder(cluster)
    cluster.load([(RESOURCE_QUOTAS, quota) for quota in quotas()])
    journal, metrics = ResponseLog(), Metrics()
    print(f"seed {seed}")
    with (
        an_engine(cluster, seed, with_controller=True, metrics=metrics) as first,
        an_engine(cluster, seed + 1, with_controller=False) as second,
    ):
        crowd = Load(cluster, Replicas([first, second], journal, seed), seed, gated=0.7)
        with an_engine(cluster, seed + 2, with_controller=True):
            crowd.start()
            _cut_watches(cluster, RUN_SECONDS / 2)
        _cut_watches(cluster, RUN_SECONDS / 2)
        for _ in range(20):  # on a busy machine little happens in that time
            if _released(metrics) > 10:
                break
            _cut_watches(cluster, RUN_SECONDS / 6)
        crowd.stop()
        crowd.delete_waiting()
        replay = Replay(journal.admissions)
        try:
            harness = AdmissionHarness(cluster, ReactiveClient(cluster), first)
            eventually(
                lambda: harness.is_settled() and not harness.reservations(),
                "the ledger is quiet and exact",
            )
        finally:
            replay.run(recorder.stop())
    released = _released(metrics)
    print(dict(journal.outcomes), replay.commits, replay.judged, replay.tight, released)
    assert crowd.faults == []
    assert replay.judged > 30
    assert released > 10


def _released(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("deferred_quota_released_pods_total") or 0.0


def _cut_watches(cluster: FakeCluster, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(0.3)
        cluster.cut_watches()
