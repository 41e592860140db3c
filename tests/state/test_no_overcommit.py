"""Nothing is ever given twice: replicas, controllers, people and faults, on real threads."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.admission.handlers.harness import (
    AdmissionHarness,
    a_namespace,
    eventually,
    new_cluster,
)
from tests.reactions import Reaction, ReactiveClient, at_random, expire, lose_answer, unavailable
from tests.state.load import (
    EXPIRE_SECONDS,
    Load,
    Replicas,
    RequestClock,
    ResponseLog,
    quotas,
)
from tests.state.replay import Recorder, Replay
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeCluster
from webhook.kube.api import NAMESPACES, RESOURCE_QUOTAS
from webhook.kube.informer import InformerTimings
from webhook.runtime import ControllerOptions, Engine, EngineOptions
from webhook.telemetry.metrics import Metrics

RUN_SECONDS = 3.0
_SOUGHT: Final = ("reserved", "403")
"""What pods have to be told for the quotas to have been full: of those that bind, and of others."""
_ENOUGH: Final = 60
_QUICK = InformerTimings(first_pause=0.005, longest_pause=0.02)


def _controller(clock: RequestClock) -> ControllerOptions:
    timing = ControllerTimings(
        clock=clock, write_interval_seconds=0.005, resync_seconds=0.3, informer=_QUICK
    )
    # shorter than any configuration may be: requests are shorter here, too
    return ControllerOptions(timings=timing, expire_seconds=EXPIRE_SECONDS)


@contextmanager
def an_engine(
    cluster: FakeCluster,
    seed: int,
    *,
    clock: RequestClock | None = None,
    metrics: Metrics | None = None,
) -> Iterator[Engine]:
    """Run a replica with a bad connection to the API server; given a clock, with a controller."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    # a controller waits for a second after a failure: with many of them it would never count
    scale = 1 if clock is None else 0.1
    client = ReactiveClient(cluster)
    client.on("get", "*", at_random(rng, {unavailable: 0.02 * scale}))
    status_faults: dict[Reaction, float] = {lose_answer: 0.01 * scale, unavailable: 0.01 * scale}
    client.on("update", "*", at_random(rng, status_faults), subresource="status")
    client.on("patch", "*", at_random(rng, {lose_answer: 0.05, unavailable: 0.05}))
    client.on("watch", "*", at_random(rng, {expire: 0.2}))

    options = EngineOptions(
        controller=None if clock is None else _controller(clock), informer=_QUICK
    )
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
    journal = ResponseLog(cluster)
    print(f"seed {seed}")
    with (
        an_engine(cluster, seed, clock=journal.clock) as first,
        an_engine(cluster, seed + 1, clock=journal.clock if controllers > 1 else None) as second,
        an_engine(cluster, seed + 2) as third,
    ):
        replicas = Replicas([first, second, third], journal, seed)
        crowd = Load(cluster, replicas, seed)
        crowd.start()
        _cut_watches(cluster, RUN_SECONDS)
        _cut_watches_until(
            cluster, lambda: min(journal.outcomes[one] for one in _SOUGHT) >= _ENOUGH
        )
        crowd.stop()
        replay = Replay(journal.admissions)
        try:
            harness = AdmissionHarness(cluster, ReactiveClient(cluster), first)
            eventually(
                lambda: harness.is_settled() and not _unpromised(harness),
                "the ledger is exact, with promises alone",
            )
            crowd.delete_waiting()
            eventually(
                lambda: harness.is_settled() and not harness.reservations(),
                "the ledger is quiet and exact",
            )
        finally:
            replay.run(recorder.stop())
    print(dict(journal.outcomes), replay.commits, replay.judged)
    assert crowd.faults == []
    # otherwise nothing would have shown it
    assert min(journal.outcomes[one] for one in _SOUGHT) >= _ENOUGH
    assert replay.judged > 0


@pytest.mark.parametrize("seed", [3, 4])
def test_neither_do_those_that_waited_behind_our_gate(seed: int) -> None:
    """Two leaders at once, one of which ends in the middle, perhaps between write and patch."""
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace())])
    recorder = Recorder(cluster)
    cluster.load([(RESOURCE_QUOTAS, quota) for quota in quotas()])
    journal, metrics = ResponseLog(cluster), Metrics()
    print(f"seed {seed}")
    with (
        an_engine(cluster, seed, clock=journal.clock, metrics=metrics) as first,
        an_engine(cluster, seed + 1) as second,
    ):
        crowd = Load(cluster, Replicas([first, second], journal, seed), seed, gated=0.7)
        with an_engine(cluster, seed + 2, clock=journal.clock):
            crowd.start()
            _cut_watches(cluster, RUN_SECONDS / 2)
        _cut_watches(cluster, RUN_SECONDS / 2)
        _cut_watches_until(
            cluster, lambda: _released(metrics) > 10 and journal.outcomes["reserved"] >= _ENOUGH
        )
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
    print(dict(journal.outcomes), replay.commits, replay.judged, released)
    assert crowd.faults == []
    assert replay.judged > 0
    assert released > 10


def _unpromised(harness: AdmissionHarness) -> list[str]:
    """The pods with a reservation of a request: of those, none is kept without a request.

    The growth of a pod that a scheduler may have is a promise, and kept for as long as the pod may
    be bound.
    """
    held = harness.reservations().items()
    return [pod for pod, reservation in held if reservation["door"] != "Release"]


def _released(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("deferred_quota_released_pods_total") or 0.0


def _cut_watches(cluster: FakeCluster, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(0.3)
        cluster.cut_watches()


def _cut_watches_until(cluster: FakeCluster, is_enough: Callable[[], bool]) -> None:
    """Go on: on a busy machine little happens in that time."""
    give_up = time.monotonic() + 60
    while not is_enough() and time.monotonic() < give_up:
        _cut_watches(cluster, 0.5)
