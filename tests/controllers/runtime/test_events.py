"""Events say things once, count repetitions, and never hold up who says them."""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from tests.admission.handlers.harness import eventually
from tests.reactions import Hold, Reaction, ReactiveClient, lose_answer, throttle, unavailable
from webhook.controllers.runtime.events import EventLimits, EventRecorder, ObjectReference
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import EVENTS, NAMESPACES, PODS, QUOTA_LEDGERS, Kind, ListOptions
from webhook.telemetry.metrics import Metrics

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
LEDGER = ObjectReference(QUOTA_LEDGERS, "ledger", "team-a", "uid-1")
LEDGER_OF_OTHERS = ObjectReference(QUOTA_LEDGERS, "ledger", "team-b", "uid-2")


@dataclass
class EventHarness:
    """A recorder on a clock that a test moves; `write` writes what is due."""

    limits: EventLimits = field(default_factory=EventLimits)
    clock: list[float] = field(default_factory=lambda: [0.0])
    cluster: FakeCluster = field(default_factory=FakeCluster)
    metrics: Metrics = field(default_factory=Metrics)
    api: ReactiveClient = field(init=False)
    recorder: EventRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.api = ReactiveClient(self.cluster)
        timings = ControllerTimings(
            clock=lambda: self.clock[0], now=lambda: NOON + timedelta(seconds=self.clock[0])
        )
        self.recorder = EventRecorder(
            self.api,
            instance="pod-1",
            limits=self.limits,
            timings=timings,
            metrics=self.metrics,
        )

    def write(self) -> None:
        """Write all that is due now, as the recorder's thread does."""
        while self.recorder.step():
            pass

    def events(self, namespace: str = "team-a") -> list[dict[str, object]]:
        found = FakeClient(self.cluster).list(EVENTS, ListOptions(namespace=namespace)).items
        return [dict(one) for one in found]

    def count(self, result: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "deferred_quota_events_total", {"result": result}
        )
        return value or 0.0


@pytest.fixture
def event_harness() -> EventHarness:
    return EventHarness()


def test_an_event_is_complete(event_harness: EventHarness) -> None:
    event_harness.recorder.warning(LEDGER, "LedgerLost", "it is gone")
    event_harness.write()
    (event,) = event_harness.events()
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


def test_an_object_without_namespace_has_its_events_in_default(event_harness: EventHarness) -> None:
    event_harness.recorder.normal(ObjectReference(NAMESPACES, "team-a"), "Hello", "text")
    event_harness.write()
    (event,) = event_harness.events("default")
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Namespace", "name": "team-a"}


def test_the_same_again_raises_the_count_of_one_event(event_harness: EventHarness) -> None:
    event_harness.recorder.normal(LEDGER, "Said", "text")
    event_harness.write()
    calls = len(event_harness.api.calls)
    for _ in range(5):
        event_harness.clock[0] += 1
        event_harness.recorder.normal(LEDGER, "Said", "text")
        event_harness.write()
    assert len(event_harness.api.calls) == calls  # not before the pause is over
    event_harness.clock[0] = 31
    event_harness.write()
    (event,) = event_harness.events()
    assert (event["count"], event["lastTimestamp"]) == (6, "2026-05-04T12:00:05Z")
    assert (event_harness.count("created"), event_harness.count("repeated")) == (1, 1)


def test_other_words_and_other_objects_are_other_events(event_harness: EventHarness) -> None:
    for regarding in (LEDGER, ObjectReference(QUOTA_LEDGERS, "ledger", "team-a", "uid-2")):
        for reason in ("One", "Two"):
            event_harness.recorder.normal(regarding, reason, "text")
            event_harness.recorder.warning(regarding, reason, "text")
            event_harness.recorder.normal(regarding, reason, "other text")
    event_harness.write()
    assert len(event_harness.events()) == 12


def test_an_event_that_the_server_has_forgotten_is_made_again(event_harness: EventHarness) -> None:
    event_harness.recorder.normal(LEDGER, "Said", "text")
    event_harness.write()
    (event,) = event_harness.events()
    name = cast("dict[str, str]", event["metadata"])["name"]
    FakeClient(event_harness.cluster).delete(EVENTS, name, namespace="team-a")
    event_harness.recorder.normal(LEDGER, "Said", "text")
    event_harness.clock[0] = 31
    event_harness.write()
    (event,) = event_harness.events()
    assert event["count"] == 2


def test_what_was_not_said_for_long_begins_anew(event_harness: EventHarness) -> None:
    event_harness.recorder.normal(LEDGER, "Said", "text")
    event_harness.write()
    event_harness.clock[0] = 601
    event_harness.recorder.normal(LEDGER, "Said", "text")
    event_harness.write()
    assert [event["count"] for event in event_harness.events()] == [1, 1]


def test_what_was_not_said_for_long_is_not_kept(event_harness: EventHarness) -> None:
    regarding = ObjectReference(QUOTA_LEDGERS, "ledger", "team-b", "uid-2")
    before = sys.getrefcount(regarding)
    event_harness.recorder.normal(regarding, "Said", "text")
    event_harness.write()
    assert sys.getrefcount(regarding) > before
    event_harness.clock[0] = 601
    event_harness.recorder.normal(LEDGER, "Said", "text")
    assert sys.getrefcount(regarding) == before


def test_of_many_events_the_latest_are_remembered() -> None:
    event_harness = EventHarness(EventLimits(burst=1000, max_remembered=100))
    gc.collect()
    of_other_tests = _remembered(PODS)
    for number in range(500):
        pod = ObjectReference(PODS, f"web-{number}", "team-a", f"uid-{number}")
        event_harness.recorder.normal(pod, "Said", "text")
        event_harness.write()
    assert _remembered(PODS) - of_other_tests == 100
    for number in (0, 499):
        pod = ObjectReference(PODS, f"web-{number}", "team-a", f"uid-{number}")
        event_harness.recorder.normal(pod, "Said", "text")
    event_harness.clock[0] = 30
    event_harness.write()
    assert (event_harness.count("created"), event_harness.count("repeated")) == (501, 1)


def _remembered(kind: Kind) -> int:
    return sum(isinstance(one, ObjectReference) and one.kind is kind for one in gc.get_objects())


def test_too_many_events_are_dropped_and_counted() -> None:
    event_harness = EventHarness(EventLimits(max_queued=6))
    for number in range(10):
        event_harness.recorder.normal(LEDGER, "Said", f"text {number}")
    event_harness.write()
    assert len(event_harness.events()) == 3
    assert event_harness.count("dropped") == 7


def test_repeats_are_bounded_and_what_is_left_out_is_written_when_it_is_said_again() -> None:
    """While new events come faster than they are written no repeat has its turn."""
    event_harness = EventHarness(EventLimits(max_queued=6, burst=1000))
    pods = [ObjectReference(PODS, f"web-{number}", "team-a") for number in range(10)]
    for _ in range(2):
        for pod in pods:
            event_harness.recorder.normal(pod, "Said", "text")
            event_harness.write()
    event_harness.clock[0] = 100
    event_harness.write()
    assert event_harness.count("repeated") == 6
    for pod in pods[6:]:
        event_harness.recorder.normal(pod, "Said", "text")
    event_harness.clock[0] = 200
    event_harness.write()
    assert [one["count"] for one in event_harness.events()] == [2] * 6 + [3] * 4


def test_events_of_one_namespace_leave_room_for_those_of_others() -> None:
    event_harness = EventHarness(EventLimits(max_queued=9, burst=2))
    for number in range(20):
        event_harness.recorder.normal(LEDGER, "Flood", f"text {number}")
        event_harness.recorder.normal(ObjectReference(NAMESPACES, "team-c"), "Flood", f"{number}")
    assert event_harness.recorder.backlog < 9
    event_harness.recorder.normal(LEDGER_OF_OTHERS, "Said", "text")
    event_harness.clock[0] = 1e6
    event_harness.write()
    event_harness.clock[0] = 2e6
    event_harness.write()
    assert [event["reason"] for event in event_harness.events("team-b")] == ["Said"]


def test_namespaces_take_turns(event_harness: EventHarness) -> None:
    for reason in ("First", "Second", "Third"):
        event_harness.recorder.normal(LEDGER, reason, "text")
    event_harness.recorder.normal(LEDGER_OF_OTHERS, "First", "text")
    written: list[str] = []
    for _ in range(4):
        event_harness.recorder.step()
        (call,) = event_harness.api.calls
        written.append(f"{call.namespace} {call.body['reason']}")
        event_harness.api.calls.clear()
    assert written == ["team-a First", "team-b First", "team-a Second", "team-a Third"]


def test_no_more_is_written_than_the_rate_allows() -> None:
    event_harness = EventHarness(EventLimits(burst=4, per_second=2.0))
    for number in range(20):
        event_harness.recorder.normal(LEDGER, "Said", f"text {number}")
    event_harness.write()
    assert len(event_harness.events()) == 4
    event_harness.clock[0] += 3
    event_harness.write()
    assert len(event_harness.events()) == 8  # 6 are allowed, but no more than a burst at once


def test_a_long_message_is_cut_and_a_long_name_too(event_harness: EventHarness) -> None:
    regarding = ObjectReference(QUOTA_LEDGERS, "a" * 253, "team-a")
    event_harness.recorder.normal(regarding, "Said", "x" * 5000)
    event_harness.write()
    (event,) = event_harness.events()
    metadata = event["metadata"]
    assert isinstance(metadata, dict)
    assert len(str(metadata["name"])) <= 253
    assert len(str(event["message"])) <= 1024


@pytest.mark.parametrize("fault", [unavailable, lose_answer, throttle])
def test_an_api_server_that_refuses_is_counted_and_stops_nothing(
    event_harness: EventHarness, fault: Reaction
) -> None:
    with event_harness.api.on("*", "*", fault):
        event_harness.recorder.normal(LEDGER, "Said", "text")
        event_harness.write()
    event_harness.recorder.normal(LEDGER, "Later", "text")
    event_harness.write()
    assert event_harness.count("failed") == 1
    assert "Later" in [event["reason"] for event in event_harness.events()]


def test_saying_something_does_not_wait_for_a_server_that_hangs() -> None:
    api, held = ReactiveClient(), Hold()
    api.on("*", "*", held)
    recorder = EventRecorder(api)
    recorder.start()
    recorder.normal(LEDGER, "Said", "text")
    held.wait_for_call()
    began = time.monotonic()
    for number in range(5000):
        recorder.normal(LEDGER, "Said", f"text {number}")
    assert time.monotonic() - began < 5
    assert recorder.backlog <= 1000
    held.release()
    recorder.stop()


def test_the_thread_writes_and_stopping_writes_what_waits() -> None:
    cluster = FakeCluster()
    recorder = EventRecorder(FakeClient(cluster))
    recorder.start()
    recorder.normal(LEDGER, "First", "text")
    eventually(lambda: len(FakeClient(cluster).list(EVENTS).items) == 1, "it is written")
    recorder.normal(LEDGER, "Last", "text")
    recorder.stop()
    conditions = {str(one["reason"]) for one in FakeClient(cluster).list(EVENTS).items}
    assert conditions == {"First", "Last"}
