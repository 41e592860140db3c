"""Events say things once, count repetitions, and never hold up who says them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from tests.admission.doors.desk import eventually
from tests.cluster.faults import Call, Fault, FlakyClient, always, never
from webhook.cluster.api import EVENTS, NAMESPACES, QUOTA_LEDGERS
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers.events import About, EventLimits, EventRecorder
from webhook.telemetry.metrics import Metrics

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LEDGER = About(QUOTA_LEDGERS, "ledger", "team-a", "uid-1", "42")


@dataclass
class Newsroom:
    """A recorder on a clock that a test moves; `write` writes what is due."""

    limits: dict[str, float] = field(default_factory=dict)
    clock: list[float] = field(default_factory=lambda: [0.0])
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    metrics: Metrics = field(default_factory=Metrics)
    api: FlakyClient = field(init=False)
    recorder: EventRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.api = FlakyClient(MemoryClient(self.cluster))
        limits = EventLimits(
            clock=lambda: self.clock[0],
            now=lambda: NOON + timedelta(seconds=self.clock[0]),
            **self.limits,  # type: ignore[arg-type]
        )
        self.recorder = EventRecorder(
            self.api, instance="pod-1", limits=limits, metrics=self.metrics
        )

    def write(self) -> None:
        """Write all that is due now, as the recorder's thread does."""
        while True:
            wait = self.recorder._wait_seconds()
            if wait is None or wait > 0:
                return
            series = self.recorder._next()
            assert series is not None
            self.recorder._write_or_count(series)

    def events(self, namespace: str = "team-a") -> list[dict[str, object]]:
        found = MemoryClient(self.cluster).list(EVENTS, namespace=namespace).items
        return [dict(one) for one in found]

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "deferred_quota_events_total", {"result": result}
        )
        return value or 0.0


@pytest.fixture
def newsroom() -> Newsroom:
    return Newsroom()


def test_an_event_is_complete(newsroom: Newsroom) -> None:
    newsroom.recorder.warning(LEDGER, "LedgerLost", "it is gone")
    newsroom.write()
    (event,) = newsroom.events()
    metadata = event.pop("metadata")
    assert isinstance(metadata, dict)
    assert str(metadata["name"]).startswith("ledger.")
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "deferredquota.io/v1alpha1",
            "kind": "QuotaLedger",
            "name": "ledger",
            "namespace": "team-a",
            "uid": "uid-1",
            "resourceVersion": "42",
        },
        "type": "Warning",
        "reason": "LedgerLost",
        "message": "it is gone",
        "count": 1,
        "firstTimestamp": "2026-05-04T12:00:00Z",
        "lastTimestamp": "2026-05-04T12:00:00Z",
        "source": {"component": "deferred-quota"},
        "reportingComponent": "deferred-quota",
        "reportingInstance": "pod-1",
    }


def test_an_object_without_namespace_has_its_events_in_default(newsroom: Newsroom) -> None:
    newsroom.recorder.normal(About(NAMESPACES, "team-a"), "Hello", "text")
    newsroom.write()
    (event,) = newsroom.events("default")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"}


def test_the_same_again_raises_the_count_of_one_event(newsroom: Newsroom) -> None:
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.write()
    calls = newsroom.api.calls
    for _ in range(5):
        newsroom.clock[0] += 1
        newsroom.recorder.normal(LEDGER, "Said", "text")
        newsroom.write()
    assert newsroom.api.calls == calls  # not before the pause is over
    newsroom.clock[0] = 31
    newsroom.write()
    (event,) = newsroom.events()
    assert (event["count"], event["lastTimestamp"]) == (6, "2026-05-04T12:00:05Z")
    assert (newsroom.count("created"), newsroom.count("repeated")) == (1, 1)


def test_other_words_and_other_objects_are_other_events(newsroom: Newsroom) -> None:
    for about in (LEDGER, About(QUOTA_LEDGERS, "ledger", "team-a", "uid-2")):
        for reason in ("One", "Two"):
            newsroom.recorder.normal(about, reason, "text")
            newsroom.recorder.warning(about, reason, "text")
            newsroom.recorder.normal(about, reason, "other text")
    newsroom.write()
    assert len(newsroom.events()) == 12


def test_an_event_that_the_server_has_forgotten_is_made_again(newsroom: Newsroom) -> None:
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.write()
    name = newsroom.recorder._series.popitem()[1]
    newsroom.recorder._series[name.said] = name
    MemoryClient(newsroom.cluster).delete(EVENTS, name.event, namespace="team-a")
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.clock[0] = 31
    newsroom.write()
    (event,) = newsroom.events()
    assert event["count"] == 2


def test_what_was_not_said_for_long_begins_anew(newsroom: Newsroom) -> None:
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.write()
    newsroom.clock[0] = 601
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.write()
    assert [event["count"] for event in newsroom.events()] == [1, 1]


def test_too_many_events_are_dropped_and_counted() -> None:
    newsroom = Newsroom({"queue": 3})
    for number in range(10):
        newsroom.recorder.normal(LEDGER, "Said", f"text {number}")
    newsroom.write()
    assert len(newsroom.events()) == 3
    assert newsroom.count("dropped") == 7


def test_no_more_is_written_than_the_rate_allows() -> None:
    newsroom = Newsroom({"burst": 4, "per_second": 2.0})
    for number in range(20):
        newsroom.recorder.normal(LEDGER, "Said", f"text {number}")
    newsroom.write()
    assert len(newsroom.events()) == 4
    newsroom.clock[0] += 3
    newsroom.write()
    assert len(newsroom.events()) == 8  # 6 are allowed, but no more than a burst at once


def test_a_long_message_is_cut_and_a_long_name_too(newsroom: Newsroom) -> None:
    about = About(QUOTA_LEDGERS, "a" * 253, "team-a")
    newsroom.recorder.normal(about, "Said", "x" * 5000)
    newsroom.write()
    (event,) = newsroom.events()
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    assert len(str(metadata["name"])) <= 253
    assert len(str(event["message"])) <= 1024


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.THROTTLE])
def test_an_api_server_that_refuses_is_counted_and_stops_nothing(
    newsroom: Newsroom, fault: Fault
) -> None:
    newsroom.api.plan = always(fault)
    newsroom.recorder.normal(LEDGER, "Said", "text")
    newsroom.write()
    newsroom.api.plan = never
    newsroom.recorder.normal(LEDGER, "Later", "text")
    newsroom.write()
    assert newsroom.count("failed") == 1
    assert "Later" in [event["reason"] for event in newsroom.events()]


def test_saying_something_does_not_wait_for_a_server_that_hangs() -> None:
    api = FlakyClient(MemoryClient(MemoryCluster()))
    reached, may_go = threading.Event(), threading.Event()

    def hang(_call: Call) -> None:
        reached.set()
        assert may_go.wait(30)

    api.before = hang
    recorder = EventRecorder(api)
    recorder.start()
    recorder.normal(LEDGER, "Said", "text")
    assert reached.wait(10)
    began = time.monotonic()
    for number in range(5000):
        recorder.normal(LEDGER, "Said", f"text {number}")
    assert time.monotonic() - began < 5
    assert len(recorder._queue) <= 1000
    may_go.set()
    recorder.stop()


def test_the_thread_writes_and_stopping_writes_what_waits() -> None:
    cluster = MemoryCluster()
    recorder = EventRecorder(MemoryClient(cluster))
    recorder.start()
    recorder.normal(LEDGER, "First", "text")
    eventually(lambda: len(MemoryClient(cluster).list(EVENTS).items) == 1, "it is written")
    recorder.normal(LEDGER, "Last", "text")
    recorder.stop()
    reasons = {str(one["reason"]) for one in MemoryClient(cluster).list(EVENTS).items}
    assert reasons == {"First", "Last"}
