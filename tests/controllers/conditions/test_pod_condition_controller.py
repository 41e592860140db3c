"""Waiting pods say why they wait: first those that say nothing, and never too many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.admission.handlers.harness import eventually
from tests.builders import a_binding, a_pod, a_quota
from tests.controllers.controller_harness import new_harness
from tests.counting import calls_of
from tests.reactions import (
    Call,
    Hold,
    Proceed,
    Reaction,
    ReactiveClient,
    Verb,
    for_name,
    forbid,
    lose_answer,
    preceded_by,
    throttle,
    unavailable,
)
from webhook.controllers.conditions import controller
from webhook.controllers.conditions.condition_queue import MIN_WAIT_SECONDS, RELEASE_DELAY_SECONDS
from webhook.controllers.conditions.controller import PodConditionController
from webhook.controllers.runtime.context import ControllerContext
from webhook.controllers.runtime.events import EventLimits, EventRecorder
from webhook.controllers.runtime.timings import ControllerTimings
from webhook.fakecluster.storage import FakeClient, FakeCluster
from webhook.kube.api import (
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    ListOptions,
    NotFoundError,
    RequestTimeoutError,
)
from webhook.kube.informer_types import Change
from webhook.quota.objects.model import Pod
from webhook.quota.objects.names import QUOTA_RESERVED
from webhook.quota.queue.pod_conditions import (
    UNTRIED_SECONDS,
)
from webhook.quota.queue.queued_pods import PendingReason, PendingStatus
from webhook.state.nodes.bind_fit import BindFit
from webhook.state.well_known import DEFERRED_MODE, MODE_LABEL, SCHEDULING_GATE
from webhook.telemetry.metrics import Metrics

NAMESPACE = "team-a"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GATED: dict[str, Any] = {"schedulingGates": [{"name": SCHEDULING_GATE}]}
SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class _FakePodLister:
    """The pods as they are stored."""

    def __init__(self, api: FakeClient) -> None:
        self._api = api

    def get(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        try:
            return Pod.from_object(self._api.get(PODS, name, namespace=namespace))
        except NotFoundError:
            return None

    def items(self) -> dict[str, Pod]:
        every = map(Pod.from_object, self._api.list(PODS).items)
        return {pod.key: pod for pod in every}

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        return tuple(
            map(Pod.from_object, self._api.list(PODS, ListOptions(namespace=namespace)).items)
        )


@dataclass
class ConditionHarness:
    """A writer of conditions on a clock that a test moves; `write` writes what is due."""

    rate: float = 1000.0
    cluster: FakeCluster = field(default_factory=FakeCluster)
    clock: list[float] = field(default_factory=lambda: [1000.0])
    epoch: list[int] = field(default_factory=lambda: [1])
    metrics: Metrics = field(default_factory=Metrics)
    nodes: BindFit | None = None

    def __post_init__(self) -> None:
        self.stored = FakeClient(self.cluster)
        self.api = ReactiveClient(self.cluster)
        self._first = 0
        self.cache = _FakePodLister(self.stored)
        timings = ControllerTimings(
            clock=lambda: self.clock[0],
            now=lambda: NOON + timedelta(seconds=self.clock[0] - 1000),
        )
        self.events = EventRecorder(
            self.stored,
            limits=EventLimits(per_second=1e6, burst=10**6),
            timings=timings,
        )
        self.reasons = PodConditionController(
            ControllerContext(
                api=self.api,
                leader_epoch=lambda: self.epoch[0],
                timings=timings,
                events=self.events,
                metrics=self.metrics,
            ),
            lambda: self.cache,
            per_second=lambda: self.rate,
            nodes=self.nodes,
        )

    @property
    def sent(self) -> list[str]:
        """Names of the pods whose status was patched by the last `write`, in order."""
        calls = self.api.calls_of("patch")
        return [call.name for call in calls if call.number > self._first]

    @property
    def reads(self) -> list[str]:
        """Names of what was read, in order."""
        return [call.name for call in self.api.calls_of("get")]

    # -- what happens ----------------------------------------------------------------------

    def pods(
        self,
        *names: str,
        node: str = "",
        conditions: Iterable[object] = (),
        namespace: str = NAMESPACE,
    ) -> None:
        status = {"conditions": [SCHEDULED, *conditions]}
        fields: dict[str, Any] = {"node": node, "status": status, **({} if node else GATED)}
        made = [
            a_pod(name=name, uid=f"uid-{name}", namespace=namespace, **fields) for name in names
        ]
        self.cluster.load([(PODS, one) for one in made])

    def update(
        self, held: dict[str, PendingStatus], *may_go: str, namespace: str = NAMESPACE
    ) -> None:
        """Say what a look has shown, by the names of pods."""
        named = {f"uid-{name}": one for name, one in held.items()}
        self.reasons.on_queue(namespace, named, [f"uid-{name}" for name in may_go])

    def ungate(self, name: str) -> None:
        self.stored.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)

    def bind(self, name: str) -> None:
        self.ungate(name)
        self.stored.bind(a_binding(name, namespace=NAMESPACE))

    def write(self, *, after: float = 0.0) -> list[str]:
        """Move the clock, write all that may be written then, and name the pods."""
        self.clock[0] += after
        self._first = len(self.api.calls)
        while self.reasons.reconcile_next() == 0:
            pass
        return list(self.sent)

    def run(self, seconds: float, step: float = 0.5) -> list[tuple[float, str]]:
        """Let time pass; return when what was written."""
        written: list[tuple[float, str]] = []
        end = self.clock[0] + seconds
        while self.clock[0] < end:
            written += [(self.clock[0] + step, name) for name in self.write(after=step)]
        return written

    # -- what is said ----------------------------------------------------------------------

    def condition(self, name: str) -> dict[str, Any] | None:
        pod: Any = self.stored.get(PODS, name, namespace=NAMESPACE)
        found = [one for one in pod["status"]["conditions"] if one["type"] == QUOTA_RESERVED]
        assert pod["status"]["conditions"][0] == SCHEDULED or pod["spec"].get("nodeName")
        assert len(found) <= 1
        return found[0] if found else None

    def reported(self, name: str) -> tuple[str, str, str] | None:
        one = self.condition(name)
        return None if one is None else (one["status"], one["reason"], one["message"])

    def events_recorded(self) -> list[tuple[str, str, str, str]]:
        """Level, reason, pod and message of the events, written now."""
        while self.events.backlog:
            assert self.events.step(5)
        found: Any = self.stored.list(EVENTS).items
        return sorted(
            (one["type"], one["reason"], one["involvedObject"]["name"], one["message"])
            for one in found
        )

    def count(self, result: str) -> float:
        name = "deferred_quota_pod_conditions_total"
        return self.metrics.registry.get_sample_value(name, {"result": result}) or 0.0


def full(place: int = 1, used: int = 2) -> PendingStatus:
    return PendingStatus(
        PendingReason.QUOTA_EXCEEDED, place, quota="p1", detail=f"exceeded quota: p1, used: {used}"
    )


def in_line(names: Iterable[str], used: int = 2) -> dict[str, PendingStatus]:
    return {name: full(place, used) for place, name in enumerate(names, 1)}


RESERVED = ("True", "Reserved", "quota is reserved for the pod, as far as it needs any")
EXPIRED = (
    "False",
    "ReservationExpired",
    (
        "no node took the pod in time, and what was reserved for it was given up: when it is bound,"
        " the quota may be taken"
    ),
)
FIRST = MIN_WAIT_SECONDS
"""From what is heard first to what is written first."""


@pytest.fixture
def condition_harness() -> ConditionHarness:
    return ConditionHarness()


@pytest.fixture
def waiting(condition_harness: ConditionHarness) -> ConditionHarness:
    """Pod `web` waits, and says so."""
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    condition_harness.write()
    assert condition_harness.write(after=FIRST) == ["web"]
    return condition_harness


# -- what is written -----------------------------------------------------------------------


def test_a_pod_says_why_it_waits_with_its_place_in_the_line(
    condition_harness: ConditionHarness,
) -> None:
    condition_harness.pods("a", "b", "c")
    behind = PendingStatus(PendingReason.BEHIND, 2, blocked_by="a", quota="p1")
    never_fits = PendingStatus(PendingReason.NEVER_FITS, quota="p1")
    condition_harness.update({"a": full(), "b": behind, "c": never_fits})
    condition_harness.write()
    assert condition_harness.write(after=FIRST) == ["a", "b", "c"]
    assert condition_harness.reported("a") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 2; place 1 of 2",
    )
    assert condition_harness.reported("b") == (
        "False",
        "Behind",
        "waits behind pod a, which needs quota p1; place 2 of 2",
    )
    assert condition_harness.reported("c") == (
        "False",
        "NeverFits",
        "the pod asks for more than the limit of quota p1 and can never fit",
    )
    assert condition_harness.count("written") == 3


def test_with_the_controller_the_words_are_those_of_the_api_server() -> None:
    with new_harness(a_quota("p1")) as harness:
        harness.step()
        condition_harness = ConditionHarness(cluster=harness.cluster)
        for name in ("a", "b", "c", "d"):
            harness.pod(name, status={"conditions": [SCHEDULED]}, **GATED)
        harness.step()
        condition_harness.cache = harness.controller.pods  # type: ignore[assignment]
        for told in harness.queue_updates:
            condition_harness.reasons.on_queue(*told)
        condition_harness.write()
        assert condition_harness.write(after=FIRST) == ["c", "d"]
        numbers = (
            "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
            " limited: requests.cpu=2"
        )
        assert condition_harness.reported("c") == (
            "False",
            "QuotaExceeded",
            f"{numbers}; place 1 of 2",
        )
        behind = f"{numbers}; waits behind pod c, which needs quota p1; place 2 of 2"
        assert condition_harness.reported("d") == ("False", "Behind", behind)
        harness.catch_up()
        harness.finish("a")
        harness.step()
        for told in harness.queue_updates:
            condition_harness.reasons.on_queue(*told)
        condition_harness.run(RELEASE_DELAY_SECONDS + 1)
        assert condition_harness.reported("c") == RESERVED


def test_what_takes_a_moment_only_is_not_worth_a_word(condition_harness: ConditionHarness) -> None:
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    assert condition_harness.write() == []
    condition_harness.update({}, "web")
    condition_harness.write(after=FIRST / 2)
    condition_harness.bind("web")
    condition_harness.update({})
    assert condition_harness.run(60) == []
    assert condition_harness.reads == []


def test_being_counted_is_reported_only_if_it_lasts(condition_harness: ConditionHarness) -> None:
    counting = PendingStatus(PendingReason.NOT_COUNTED, detail="usage is being counted")
    condition_harness.pods("web")
    condition_harness.update({"web": counting})
    assert condition_harness.run(5) == []
    condition_harness.update({"web": counting})
    assert [name for _, name in condition_harness.run(10)] == ["web"]
    assert condition_harness.reported("web") == ("False", "NotCounted", "usage is being counted")


def test_a_moment_of_being_counted_does_not_replace_what_is_said(waiting: ConditionHarness) -> None:
    waiting.update(
        {"web": PendingStatus(PendingReason.NOT_COUNTED, detail="usage is being counted")}
    )
    waiting.run(5)
    waiting.update(in_line(["web"]))
    assert waiting.run(60) == []


def test_only_a_change_is_written(waiting: ConditionHarness) -> None:
    for _ in range(20):
        waiting.update(in_line(["web"]))
        assert waiting.run(10) == []
    assert waiting.reads == ["web"]


def test_a_change_is_written_when_the_thirty_seconds_are_over_and_the_newest_then(
    waiting: ConditionHarness,
) -> None:
    began = waiting.clock[0]
    for used in range(3, 23):
        waiting.update(in_line(["web"], used=used))
        waiting.write(after=1.0)
    assert waiting.count("written") == 1
    ((moment, _),) = waiting.run(20)
    assert moment - began == pytest.approx(30, abs=0.5)
    assert waiting.reported("web") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 22; place 1 of 1",
    )


def test_after_that_a_change_is_written_at_once(waiting: ConditionHarness) -> None:
    waiting.run(40)
    waiting.update(in_line(["web"], used=9))
    assert waiting.write() == ["web"]


def never(place: int = 0) -> PendingStatus:
    return PendingStatus(PendingReason.NEVER_FITS, place)


def test_another_reason_is_written_at_once(waiting: ConditionHarness) -> None:
    waiting.update({"web": never()})
    ((moment, _),) = waiting.run(20)
    assert moment - 1000 <= 5
    assert (waiting.condition("web") or {})["reason"] == "NeverFits"


def test_a_later_change_of_the_reason_is_written_at_once_again(waiting: ConditionHarness) -> None:
    waiting.update({"web": never()})
    waiting.run(20)
    waiting.run(300)
    waiting.update(in_line(["web"]))
    assert waiting.run(5) != []
    waiting.update({"web": never()})
    assert waiting.run(10) != []
    assert waiting.reported("web") == ("False", "NeverFits", "the pod can never fit")


def test_a_reason_that_goes_to_and_fro_is_written_twice_in_its_time_at_most(
    waiting: ConditionHarness,
) -> None:
    moments = []
    for turn in range(200):
        waiting.update({"web": never()} if turn % 2 else in_line(["web"]))
        moments += [moment for moment, _ in waiting.run(1)]
    assert len(moments) <= 2 * 200 / 30 + 2


def test_a_pod_is_never_written_more_often_than_every_thirty_seconds(
    waiting: ConditionHarness,
) -> None:
    moments = []
    for used in range(400):
        waiting.update(in_line(["web"], used=used))
        moments += [moment for moment, _ in waiting.run(0.5)]
    pauses = [later - former for former, later in pairwise(moments)]
    assert min(pauses) >= 30
    assert len(moments) == 6


def test_another_place_alone_waits_for_five_minutes(waiting: ConditionHarness) -> None:
    began = waiting.clock[0]
    waiting.pods("front")
    moments = []
    while waiting.clock[0] < began + 400:
        waiting.update(in_line(["front", "web"]))
        moments += [moment for moment, name in waiting.run(5) if name == "web"]
    assert [moment - began for moment in moments] == [pytest.approx(300, abs=1)]
    assert str(waiting.reported("web")).endswith("place 2 of 2')")


def test_another_place_is_written_in_the_end_although_nothing_happens_any_more(
    waiting: ConditionHarness,
) -> None:
    waiting.update({"web": full(2)})
    assert waiting.run(290) == []
    assert [name for _, name in waiting.run(20)] == ["web"]


def test_another_place_goes_with_another_change(waiting: ConditionHarness) -> None:
    waiting.run(40)
    waiting.update({"web": full(2)})
    assert waiting.run(10) == []
    waiting.update({"web": full(3, used=9)})
    assert waiting.write() == ["web"]
    assert str(waiting.reported("web")).endswith("used: 9; place 3 of 3')")


def test_the_time_of_the_transition_changes_with_the_status_only(waiting: ConditionHarness) -> None:
    first = waiting.condition("web")
    waiting.run(40)
    waiting.update(in_line(["web"], used=9))
    waiting.write()
    second = waiting.condition("web")
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.run(5)
    third = waiting.condition("web")
    times = [one["lastTransitionTime"] for one in (first, second, third) if one]
    assert times == ["2026-05-04T12:00:01Z", "2026-05-04T12:00:01Z", "2026-05-04T12:00:43Z"]


# -- released pods -------------------------------------------------------------------------


def test_a_released_pod_says_so_and_does_not_wait_thirty_seconds(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    assert waiting.write() == []  # first the gate goes
    assert waiting.write(after=RELEASE_DELAY_SECONDS) == ["web"]
    assert waiting.reported("web") == RESERVED


def test_that_is_said_once_however_often_it_is_heard(waiting: ConditionHarness) -> None:
    for _ in range(100):
        waiting.update({}, "web")
        waiting.run(1)
    assert waiting.count("written") == 2


def test_a_pod_that_never_said_anything_and_has_its_node_is_left_alone(
    condition_harness: ConditionHarness,
) -> None:
    condition_harness.pods("web")
    condition_harness.update({}, "web")
    condition_harness.write()
    condition_harness.bind("web")
    assert condition_harness.run(60) == []
    assert condition_harness.reads == []
    assert condition_harness.count("dropped") == 1


def test_one_that_no_node_has_taken_says_that_quota_is_reserved(
    condition_harness: ConditionHarness,
) -> None:
    condition_harness.pods("web")
    condition_harness.update({}, "web")
    condition_harness.run(RELEASE_DELAY_SECONDS + 1)
    assert condition_harness.reported("web") == RESERVED
    assert condition_harness.events_recorded() == []


def test_one_that_said_that_it_waits_is_put_right_even_on_its_node(
    waiting: ConditionHarness,
) -> None:
    waiting.update({}, "web")
    waiting.write()
    waiting.bind("web")
    waiting.update({})
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED


def test_a_release_that_was_heard_between_two_looks_is_not_lost(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.update({})
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED


def test_a_pod_that_lost_its_reservation_before_its_gate_waits_again(
    waiting: ConditionHarness,
) -> None:
    waiting.update({}, "web")
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED
    waiting.update(in_line(["web"]))
    assert waiting.run(25) == []
    assert [name for _, name in waiting.run(10)] == ["web"]
    assert str(waiting.reported("web")).startswith("('False', 'QuotaExceeded'")


# -- pods that leave -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before its turn", "after the look"])
def test_a_pod_that_is_gone_is_dropped(condition_harness: ConditionHarness, when: str) -> None:
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    if when == "before its turn":
        condition_harness.write()
    else:
        condition_harness.api.on("patch", PODS, preceded_by(lambda _: delete()), times=1)

    def delete() -> None:
        condition_harness.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)

    if when == "before its turn":
        delete()
    condition_harness.run(60)
    assert condition_harness.count("dropped") == 1
    assert condition_harness.count("failed") == 0
    assert condition_harness.sent == []


def test_another_pod_of_the_name_is_left_alone(waiting: ConditionHarness) -> None:
    waiting.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)
    other = a_pod(name="web", uid="another", status={"conditions": [SCHEDULED]}, **GATED)
    waiting.cluster.load([(PODS, other)])
    waiting.update(in_line(["web"], used=7))
    assert waiting.run(60) == []
    assert waiting.reported("web") is None
    assert waiting.count("dropped") == 1


def test_a_pod_that_is_being_deleted_is_left_alone(waiting: ConditionHarness) -> None:
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    waiting.stored.patch(PODS, "web", held, namespace=NAMESPACE)
    waiting.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)
    waiting.update({})
    assert waiting.run(60) == []


def test_a_pod_whose_gate_a_person_removed_loses_the_condition(waiting: ConditionHarness) -> None:
    waiting.ungate("web")
    waiting.update({})
    assert waiting.write() == ["web"]
    assert waiting.condition("web") is None
    assert waiting.run(60) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pod_that_no_node_has_taken_for_too_long_says_that_its_reservation_is_over(
    waiting: ConditionHarness, *, is_known: bool
) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED
    if not is_known:
        waiting.epoch[0] += 1  # another leader
    waiting.reasons.on_reservations_lost(NAMESPACE, ["uid-web"])
    waiting.update({})
    waiting.write()
    assert waiting.reported("web") == EXPIRED
    assert waiting.write(after=100) == []
    waiting.stored.bind(a_binding("web", namespace=NAMESPACE))
    assert waiting.run(UNTRIED_SECONDS + 1) != []
    assert waiting.reported("web") == RESERVED
    waiting.update({})
    waiting.write()
    assert waiting.reasons.is_idle


def test_that_is_said_also_if_the_release_was_not_said_yet(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.write()
    waiting.reasons.on_reservations_lost(NAMESPACE, ["uid-web"])
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == EXPIRED


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_pod_that_is_bound_under_another_leader_does_not_say_for_ever_that_it_waits(
    waiting: ConditionHarness, *, is_seen: bool
) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.reasons.on_reservations_lost(NAMESPACE, ["uid-web"])
    waiting.update({})
    waiting.run(5)
    assert waiting.reported("web") == EXPIRED
    if is_seen:
        waiting.epoch[0] += 1
        waiting.write()
    waiting.stored.bind(a_binding("web", namespace=NAMESPACE))
    if is_seen:
        bound = waiting.cache.get(f"{NAMESPACE}/web")
        waiting.reasons.on_pod(
            Change("UPDATED", f"{NAMESPACE}/web", "uid-web", 9, old=None, new=bound)
        )
    else:
        waiting.epoch[0] += 1
    waiting.run(5)
    assert waiting.reported("web") == RESERVED
    assert waiting.reasons.is_idle


def test_a_pod_whose_reservation_is_over_and_that_is_deleted_is_forgotten(
    waiting: ConditionHarness,
) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.reasons.on_reservations_lost(NAMESPACE, ["uid-web"])
    waiting.update({})
    waiting.run(5)
    waiting.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)
    waiting.run(UNTRIED_SECONDS + 1)
    assert waiting.reasons.is_idle


def test_a_pod_that_no_scheduler_has_tried_names_its_scheduler(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED
    waiting.run(2 * UNTRIED_SECONDS)
    status, reason, message = waiting.reported("web") or ("", "", "")
    assert (status, reason) == RESERVED[:2]
    assert message == (
        f"{RESERVED[2]}; 30 s after its gate was removed no scheduler had tried it:"
        " its spec.schedulerName is default-scheduler"
    )
    reads = len(waiting.reads)
    assert waiting.run(300) == []
    assert len(waiting.reads) == reads
    waiting.stored.bind(a_binding("web", namespace=NAMESPACE))
    waiting.run(UNTRIED_SECONDS + 1)
    assert waiting.reported("web") == RESERVED


@pytest.mark.parametrize("is_nominated", [True, False])
def test_a_pod_that_a_scheduler_has_tried_says_only_that_quota_is_reserved(
    waiting: ConditionHarness, *, is_nominated: bool
) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    tried = {**SCHEDULED, "reason": "Unschedulable", "message": "0/2 nodes are available"}
    status: dict[str, Any] = {"conditions": [tried]}
    if is_nominated:
        status = {**status, "nominatedNodeName": "n"}
    waiting.stored.patch(PODS, "web", {"status": status}, namespace=NAMESPACE, subresource="status")
    waiting.cache.get(f"{NAMESPACE}/web")
    waiting.run(5 * UNTRIED_SECONDS)
    pod: Any = waiting.stored.get(PODS, "web", namespace=NAMESPACE)
    (said,) = [one for one in pod["status"]["conditions"] if one["type"] == QUOTA_RESERVED]
    assert said["message"] == RESERVED[2]


def test_a_pod_with_a_node_by_then_keeps_what_it_says(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.ungate("web")
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    waiting.reasons.on_reservations_lost(NAMESPACE, ["uid-web"])
    waiting.bind("web")
    waiting.run(RELEASE_DELAY_SECONDS + 1)
    assert waiting.reported("web") == RESERVED


def test_before_the_line_is_looked_at_again_such_a_pod_says_nothing_new(
    waiting: ConditionHarness,
) -> None:
    waiting.run(40)
    waiting.ungate("web")
    waiting.update(in_line(["web"], used=9))
    assert waiting.run(10) == []


# -- rate ----------------------------------------------------------------------------------


def test_no_more_is_written_than_the_rate_allows() -> None:
    condition_harness = ConditionHarness(rate=5)
    names = [f"w{number:03}" for number in range(100)]
    condition_harness.pods(*names)
    held = {name: PendingStatus(PendingReason.OTHER_GATES, detail="waits") for name in names}
    condition_harness.update(held)
    condition_harness.write()
    written = condition_harness.run(11)
    assert [name for _, name in written] == names[: len(written)]
    assert 50 <= len(written) <= 56


def test_an_event_counts_as_a_write() -> None:
    condition_harness = ConditionHarness(rate=10)
    condition_harness.pods(*[f"w{number:03}" for number in range(100)])
    condition_harness.update(in_line([f"w{number:03}" for number in range(100)]))
    condition_harness.write()
    written = len(condition_harness.run(6))
    assert len(condition_harness.events_recorded()) == written
    assert 25 <= written <= 36


def test_pods_that_come_and_go_elsewhere_keep_no_other_waiting() -> None:
    """They are created faster than conditions are written, and deleted when theirs is."""
    condition_harness = ConditionHarness(rate=20)
    condition_harness.pods("waits")
    condition_harness.update(in_line(["waits"]))
    condition_harness.run(FIRST + 1)
    alive: list[list[str]] = []
    for second in range(40):
        if second == 20:
            condition_harness.update({}, "waits")
        alive.append([f"f{second}-{number}" for number in range(15)])
        condition_harness.pods(*alive[-1], namespace="flood")
        for name in alive.pop(0) if len(alive) > 3 else ():
            condition_harness.stored.delete(PODS, name, namespace="flood")
        line = in_line([name for some in alive for name in some])
        for _ in range(4):
            condition_harness.update(line, namespace="flood")
            condition_harness.run(0.25, step=0.25)
    assert condition_harness.reported("waits") == RESERVED
    backlog = "deferred_quota_pod_conditions_backlog"
    assert (condition_harness.metrics.registry.get_sample_value(backlog) or 0) <= 100


def test_pods_that_say_nothing_yet_come_first() -> None:
    condition_harness = ConditionHarness(rate=4)
    old = [f"old{number}" for number in range(8)]
    condition_harness.pods(*old)
    condition_harness.update(in_line(old))
    condition_harness.write()
    condition_harness.run(40)
    new = [f"new{number}" for number in range(4)]
    condition_harness.pods(*new)
    condition_harness.rate = 0
    condition_harness.update(in_line([*old, *new], used=5))
    condition_harness.run(FIRST + 1, step=0.1)
    condition_harness.rate = 4
    order = [name for _, name in condition_harness.run(10)]
    assert order[:4] == new
    assert order[4:] == old


def test_with_a_rate_of_nothing_nothing_is_written_until_it_changes() -> None:
    condition_harness = ConditionHarness(rate=0)
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    assert condition_harness.run(100) == []
    assert condition_harness.reads == []
    condition_harness.rate = 20
    condition_harness.run(1)
    assert condition_harness.condition("web") is not None


def test_a_thousand_waiting_pods_and_fifty_looks_stay_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = calls_of(monkeypatch, controller, "pending_condition")
    condition_harness = ConditionHarness(rate=20)
    names = [f"w{number:04}" for number in range(1000)]
    condition_harness.pods(*names)
    pods = {pod.uid: pod for pod in condition_harness.cache.in_namespace(NAMESPACE)}
    by_name = {f"{NAMESPACE}/{pod.name}": pod for pod in pods.values()}
    condition_harness.cache.get = by_name.get  # type: ignore[method-assign, assignment]
    written = []
    for look in range(50):
        condition_harness.update(in_line(names, used=look))
        written += condition_harness.write(after=0.1)
    assert 0 < len(written) <= 20 * 5 + 20
    assert len(set(written)) == len(written)
    assert len(made) <= len(written) + 1
    events = len(condition_harness.events_recorded())
    assert len(written) + events <= 20 * 5 + 21


def test_looks_that_lead_to_nothing_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    condition_harness = ConditionHarness(rate=1000)
    names = [f"w{number:03}" for number in range(100)]
    condition_harness.pods(*names)
    condition_harness.update(in_line(names))
    condition_harness.write()
    condition_harness.run(40)
    made = calls_of(monkeypatch, controller, "pending_condition")
    condition_harness.rate = 2
    for _ in range(100):
        condition_harness.update(in_line(names))
        assert condition_harness.write(after=0.1) == []
    assert len(made) <= 10 * 2 * 10 + 20


def test_hearing_of_a_line_costs_little_and_works_out_no_message(
    condition_harness: ConditionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls_of(monkeypatch, controller, "pending_condition")
    monkeypatch.setattr(PendingStatus, "message", property(lambda _: pytest.fail("worked out")))
    held = {f"uid-{number}": full(number + 1) for number in range(1000)}
    began = time.thread_time()
    for _ in range(1000):
        condition_harness.reasons.on_queue(NAMESPACE, held, ())
    assert time.thread_time() - began < 1
    assert made == []
    assert condition_harness.api.calls == []


def test_hearing_does_not_wait_for_an_api_server_that_hangs(
    condition_harness: ConditionHarness,
) -> None:
    held = Hold()
    condition_harness.pods("web", "two")
    condition_harness.api.on("*", "*", held)
    condition_harness.update(in_line(["web"]))
    condition_harness.reasons.reconcile_next()
    condition_harness.clock[0] += FIRST
    condition_harness.reasons.start()
    held.wait_for_call()
    began = time.monotonic()
    condition_harness.update(in_line(["web", "two"]))
    assert time.monotonic() - began < 5
    held.release()
    eventually(lambda: condition_harness.condition("web") is not None, "it is written")
    condition_harness.reasons.stop()


# -- leaders -------------------------------------------------------------------------------


def test_a_standby_writes_nothing(condition_harness: ConditionHarness) -> None:
    condition_harness.epoch[0] = 0
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    assert condition_harness.run(60) == []
    assert condition_harness.api.calls == []


def test_a_former_leader_forgets_what_it_was_about_to_write(waiting: ConditionHarness) -> None:
    waiting.update({}, "web")
    waiting.write()
    waiting.epoch[0] = 0
    assert waiting.run(10) == []
    waiting.epoch[0] = 2
    assert waiting.run(10) == []
    assert str(waiting.reported("web")).startswith("('False'")


def test_a_leader_that_loses_the_lease_between_reading_and_writing_writes_nothing(
    condition_harness: ConditionHarness,
) -> None:
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    condition_harness.write()
    end_leadership = preceded_by(lambda _: condition_harness.epoch.__setitem__(0, 0))
    condition_harness.api.on("*", "*", end_leadership)
    condition_harness.run(5)
    assert condition_harness.condition("web") is None


def test_the_next_leader_repeats_nothing_and_keeps_the_time(waiting: ConditionHarness) -> None:
    before = waiting.condition("web")
    told = waiting.events_recorded()
    other = ConditionHarness(cluster=waiting.cluster, epoch=[2], clock=[2000.0])
    other.update(in_line(["web"]))
    assert other.run(10) == []
    assert other.reads == ["web"]
    other.update(in_line(["web"], used=9))
    other.run(30)
    after = other.condition("web")
    assert before is not None
    assert after is not None
    assert after["message"] != before["message"]
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert other.events_recorded() == told


def test_the_next_leader_puts_right_what_the_former_said(waiting: ConditionHarness) -> None:
    other = ConditionHarness(cluster=waiting.cluster, epoch=[2])
    other.update({}, "web")
    other.run(5)
    assert other.reported("web") == RESERVED
    assert [one[1] for one in other.events_recorded()] == ["QuotaReserved"]


# -- failures ------------------------------------------------------------------------------


def test_what_lost_a_race_is_read_again_and_written(condition_harness: ConditionHarness) -> None:
    condition_harness.pods("web")

    def race(_call: Call) -> None:
        labels = {"metadata": {"labels": {"a": "b"}}}
        condition_harness.stored.patch(PODS, "web", labels, namespace=NAMESPACE)

    condition_harness.api.on("patch", PODS, preceded_by(race), times=1)
    condition_harness.update(in_line(["web"]))
    condition_harness.run(10)
    assert condition_harness.condition("web") is not None
    assert (
        condition_harness.count("conflict"),
        condition_harness.count("written"),
        condition_harness.count("failed"),
    ) == (1, 1, 0)


def test_a_condition_that_moved_is_found_again(waiting: ConditionHarness) -> None:
    one = waiting.condition("web")
    ready = {"type": "Ready", "status": "False"}
    patch = {"status": {"conditions": [SCHEDULED, ready, one]}}
    waiting.stored.patch(PODS, "web", patch, namespace=NAMESPACE, subresource="status")
    waiting.update({}, "web")
    waiting.run(10)
    assert waiting.reported("web") == RESERVED
    pod: Any = waiting.stored.get(PODS, "web", namespace=NAMESPACE)
    kinds = [each["type"] for each in pod["status"]["conditions"]]
    assert kinds == ["PodScheduled", "Ready", QUOTA_RESERVED]


@pytest.mark.parametrize("fault", [unavailable, lose_answer, throttle])
def test_an_api_server_that_does_not_answer_is_asked_less_and_less(
    condition_harness: ConditionHarness, fault: Reaction
) -> None:
    names = [f"w{number}" for number in range(50)]
    condition_harness.pods(*names)
    condition_harness.api.on("patch", PODS, fault)
    condition_harness.update(in_line(names))
    tried = len(condition_harness.run(62))
    assert 5 <= tried <= 7
    assert condition_harness.count("failed") == tried
    condition_harness.api.reset()
    condition_harness.run(120)
    assert [name for name in names if condition_harness.condition(name) is None] == []
    assert condition_harness.count("written") + (fault is lose_answer) * tried >= 50


def slow_pods(here: ConditionHarness, verb: Verb) -> list[float]:
    """Let no request about pods called "slow..." be answered in time; return their times."""
    tried: list[float] = []

    def take_too_long(call: Call, proceed: Proceed) -> Any:
        if not call.name.startswith("slow"):
            return proceed()
        tried.append(here.clock[0])
        here.clock[0] += 10
        raise RequestTimeoutError("no answer within 10 s")

    here.api.on(verb, PODS, take_too_long)
    return tried


@pytest.mark.parametrize("verb", ["get", "patch"])
def test_pods_that_are_slow_to_write_hold_up_no_other_namespace(
    condition_harness: ConditionHarness, verb: Verb
) -> None:
    tried = slow_pods(condition_harness, verb)
    slow = [f"slow{number}" for number in range(40)]
    condition_harness.pods(*slow)
    condition_harness.pods("other", namespace="team-b")
    condition_harness.update(in_line(slow))
    condition_harness.update(in_line(["other"]), namespace="team-b")
    condition_harness.run(30)
    stored: Any = condition_harness.stored.get(PODS, "other", namespace="team-b")
    assert [one["type"] for one in stored["status"]["conditions"]][1:] == [QUOTA_RESERVED]
    assert len(tried) <= 2
    condition_harness.run(3600)
    assert 5 <= len(tried) <= 12, "the thread is free for others nearly all the time"


def test_other_pods_of_their_namespace_come_before_those_that_were_slow(
    condition_harness: ConditionHarness,
) -> None:
    tried = slow_pods(condition_harness, "patch")
    condition_harness.pods("slow0", "slow1", "web")
    condition_harness.update(in_line(["slow0", "slow1", "web"]))
    while len(tried) < 3:
        condition_harness.run(10)
    assert condition_harness.condition("web") is not None


def test_an_answer_that_was_lost_is_not_written_twice(condition_harness: ConditionHarness) -> None:
    condition_harness.pods("web")
    condition_harness.api.on("patch", PODS, lose_answer, times=1)
    condition_harness.update(in_line(["web"]))
    assert [name for _, name in condition_harness.run(60)] == ["web"]
    assert condition_harness.condition("web") is not None


def test_one_that_is_refused_does_not_hold_up_the_others(
    condition_harness: ConditionHarness,
) -> None:
    condition_harness.api.on("patch", PODS, for_name("w1", forbid))
    condition_harness.pods("w1", "w2")
    condition_harness.update(in_line(["w1", "w2"]))
    names = [name for _, name in condition_harness.run(100)]
    assert condition_harness.condition("w2") is not None
    assert names.count("w1") == 3  # after 30 s, then after 60 s


def test_a_namespace_that_opted_out_is_left_with_one_line_of_the_log(
    condition_harness: ConditionHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """Its pods are tried ever later, as it may opt in again before any cycle tells."""
    caplog.set_level("INFO", controller.__name__)
    condition_harness.api.on("patch", PODS, forbid)
    condition_harness.cluster.load([(NAMESPACES, {"metadata": {"name": NAMESPACE}})])
    condition_harness.pods("w1", "w2", "w3")
    condition_harness.update(in_line(["w1", "w2", "w3"]))
    names = [name for _, name in condition_harness.run(700, step=5)]
    assert sorted(names) == sorted(["w1", "w2", "w3"] * 5)  # after 30, 60, 120, 240 s
    lines = [(one.levelname, one.__dict__["namespace"]) for one in caplog.records]
    assert lines == [("INFO", NAMESPACE)]
    condition_harness.update({})
    assert condition_harness.run(700, step=5) == []
    assert condition_harness.reasons.is_idle


@pytest.mark.parametrize("is_released", [False, True])
def test_a_namespace_that_opted_out_for_a_moment_is_reported_again(
    condition_harness: ConditionHarness, is_released: bool
) -> None:
    opted_in = {"metadata": {"name": NAMESPACE, "labels": {MODE_LABEL: DEFERRED_MODE}}}
    condition_harness.cluster.load([(NAMESPACES, opted_in)])
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    condition_harness.run(40)
    condition_harness.stored.patch(
        NAMESPACES, NAMESPACE, {"metadata": {"labels": {MODE_LABEL: None}}}
    )
    refusal = condition_harness.api.on("patch", PODS, forbid)
    waiting, released = ({}, ["web"]) if is_released else (in_line(["web"], used=9), [])
    condition_harness.update(waiting, *released)
    assert [name for _, name in condition_harness.run(5)] == ["web"]
    refusal.remove()
    condition_harness.stored.patch(NAMESPACES, NAMESPACE, opted_in)
    condition_harness.update(waiting, *released)
    condition_harness.run(40)
    full_again = ("False", "QuotaExceeded", "exceeded quota: p1, used: 9; place 1 of 1")
    assert condition_harness.reported("web") == (RESERVED if is_released else full_again)


def test_one_that_has_left_is_forgotten_when_its_namespace_has_opted_out(
    waiting: ConditionHarness,
) -> None:
    waiting.api.on("patch", PODS, forbid)
    waiting.cluster.load([(NAMESPACES, {"metadata": {"name": NAMESPACE}})])
    waiting.update({})
    assert [name for _, name in waiting.run(700, step=5)] == ["web"]
    assert waiting.reasons.is_idle


def test_cycles_do_not_hurry_one_that_has_left_and_may_not_be_written(
    waiting: ConditionHarness,
) -> None:
    waiting.api.on("patch", PODS, forbid)
    tried = 0
    for _ in range(100):
        waiting.update({})
        tried += len(waiting.run(1))
    assert tried == 3  # after 30 s, then after 60 s


def test_a_refusal_where_the_namespace_is_opted_in_is_a_warning(
    condition_harness: ConditionHarness, caplog: pytest.LogCaptureFixture
) -> None:
    condition_harness.api.on("patch", PODS, forbid)
    labels = {MODE_LABEL: DEFERRED_MODE}
    condition_harness.cluster.load(
        [(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})]
    )
    condition_harness.pods("w1")
    condition_harness.update(in_line(["w1"]))
    assert len(condition_harness.run(50)) == 2  # tried again
    assert {one.levelname for one in caplog.records} == {"WARNING"}


def test_an_error_of_our_own_stops_nothing(
    condition_harness: ConditionHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_pod: object) -> object:
        monkeypatch.undo()
        raise ValueError("no")

    monkeypatch.setattr(controller, "observed_condition", broken)
    condition_harness.pods("web")
    condition_harness.update(in_line(["web"]))
    condition_harness.write()
    with pytest.raises(ValueError, match="no"):
        condition_harness.write(after=FIRST)
    condition_harness.run(31)
    assert condition_harness.condition("web") is not None


# -- events --------------------------------------------------------------------------------


def test_a_pod_gets_one_event_when_it_first_waits_and_one_when_it_is_released(
    waiting: ConditionHarness,
) -> None:
    waiting.run(40)
    waiting.update(in_line(["web"], used=9))
    waiting.write()
    waiting.update({}, "web")
    waiting.run(5)
    assert waiting.events_recorded() == [
        ("Normal", "QuotaReserved", "web", RESERVED[2]),
        ("Warning", "QuotaExceeded", "web", "exceeded quota: p1, used: 2"),
    ]


EVENTS_OF = {
    PendingReason.BEHIND: "QuotaExceeded",
    PendingReason.NEVER_FITS: "QuotaExceeded",
    PendingReason.LEDGER_FULL: "QuotaExceeded",
    PendingReason.NOT_COVERED: "NotCovered",
    PendingReason.MUST_SPECIFY: "MustSpecify",
    PendingReason.FORGED_QOS_CLASS: "ForgedQOSClass",
    PendingReason.OTHER_GATES: None,
    PendingReason.NOT_COUNTED: None,
}


@pytest.mark.parametrize(("reason", "event"), EVENTS_OF.items(), ids=map(str, EVENTS_OF))
def test_what_a_person_should_know_is_an_event(
    condition_harness: ConditionHarness, reason: PendingReason, event: str | None
) -> None:
    condition_harness.pods("web")
    condition_harness.update({"web": PendingStatus(reason, detail="text")})
    condition_harness.run(20)
    assert condition_harness.condition("web") is not None
    assert [one[1] for one in condition_harness.events_recorded()] == ([event] if event else [])


# -- numbers -------------------------------------------------------------------------------


def test_the_backlog_is_shown() -> None:
    condition_harness = ConditionHarness(rate=0)
    condition_harness.pods("a", "b", "c")
    condition_harness.update(in_line("abc"))
    condition_harness.write()
    condition_harness.run(2)
    condition_harness.rate = 1
    condition_harness.run(1)
    shown = condition_harness.metrics.registry.get_sample_value(
        "deferred_quota_pod_conditions_backlog"
    )
    assert shown == 2.0
    condition_harness.run(10)
    shown = condition_harness.metrics.registry.get_sample_value(
        "deferred_quota_pod_conditions_backlog"
    )
    assert shown == 0.0


def come_and_go(condition_harness: ConditionHarness) -> None:
    """Have pods wait, be released and be bound, one after the other."""
    for number in range(20):
        name = f"w{number}"
        condition_harness.pods(name)
        condition_harness.update(in_line([name]))
        condition_harness.run(2)
        condition_harness.update({}, name)
        condition_harness.write()
        condition_harness.bind(name)
        condition_harness.update({})
        condition_harness.run(5)


def test_pods_of_the_past_are_not_remembered(condition_harness: ConditionHarness) -> None:
    come_and_go(condition_harness)
    condition_harness.update({})
    condition_harness.write()
    assert condition_harness.reasons.is_idle


def test_pods_of_the_past_are_not_remembered_where_nothing_is_written() -> None:
    condition_harness = ConditionHarness(rate=0)
    come_and_go(condition_harness)
    condition_harness.run(15)
    condition_harness.update({})
    condition_harness.write()
    assert condition_harness.reasons.is_idle
    assert condition_harness.reads == []


@pytest.mark.parametrize("is_seen_at_once", [False, True])
def test_nor_are_those_of_the_last_release_which_no_later_cycle_shows(
    condition_harness: ConditionHarness, is_seen_at_once: bool
) -> None:
    condition_harness.pods("w")
    condition_harness.update({}, "w")
    if not is_seen_at_once:
        condition_harness.run(1)
    condition_harness.bind("w")
    condition_harness.update({})  # no more of it comes, as the queue is empty
    condition_harness.run(5)
    assert condition_harness.reasons.is_idle


def test_nor_are_those_for_which_nothing_is_reserved_any_more(
    condition_harness: ConditionHarness,
) -> None:
    for number in range(5):
        name = f"w{number}"
        condition_harness.pods(name)
        condition_harness.ungate(name)
        condition_harness.reasons.on_reservations_lost(NAMESPACE, [f"uid-{name}"])
        condition_harness.run(5)
        condition_harness.stored.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)
    assert condition_harness.reads == [f"w{number}" for number in range(5)]
    condition_harness.run(UNTRIED_SECONDS + 1)
    assert condition_harness.reasons.is_idle


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    yield
    left = [one.name for one in threading.enumerate() if one.name == "pod-conditions"]
    assert left == []


# -- nodes ---------------------------------------------------------------------------------


@pytest.fixture
def with_nodes() -> Iterator[ConditionHarness]:
    """One node of 4 cpu, which pod `large` does not fit."""
    cluster = FakeCluster()
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    node = {"metadata": {"name": "node-1"}, "spec": {}, "status": {"allocatable": room}}
    status = {"conditions": [SCHEDULED]}
    made = a_pod(name="large", uid="uid-large", requests={"cpu": "5"}, status=status, **GATED)
    cluster.load([(NODES, node), (PODS, made)])
    clock = [1000.0]
    nodes = BindFit(FakeClient(cluster), clock=lambda: clock[0])
    harness = ConditionHarness(cluster=cluster, clock=clock, nodes=nodes)
    harness.pods("small")
    nodes.start()
    for informer in nodes.informers.values():
        assert informer.wait_for_sync(30.0)
    yield harness
    nodes.stop()


NOWHERE = "no node fits: 0/1 nodes are available: 1 Insufficient cpu, as of 2026-05-04T12:00:01Z"


def test_a_pod_that_no_node_fits_says_so_beside_what_it_waits_for(
    with_nodes: ConditionHarness,
) -> None:
    with_nodes.update(in_line(["large", "small"]))
    with_nodes.write()
    assert with_nodes.write(after=FIRST) == ["large", "small"]
    assert with_nodes.reported("large") == (
        "False",
        "QuotaExceeded",
        f"exceeded quota: p1, used: 2; {NOWHERE}; place 1 of 2",
    )
    assert with_nodes.reported("small") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 2; place 2 of 2",
    )


def test_nodes_that_change_are_no_reason_to_write(with_nodes: ConditionHarness) -> None:
    with_nodes.update(in_line(["large"]))
    with_nodes.write()
    assert with_nodes.write(after=FIRST) == ["large"]
    assert with_nodes.nodes is not None
    more = {"status": {"allocatable": {"cpu": "8"}}}
    with_nodes.stored.patch(NODES, "node-1", more, subresource="status")
    nodes = with_nodes.nodes.informers["nodes"]
    assert nodes.wait_for_version(with_nodes.cluster.resource_version, 30.0)
    with_nodes.update(in_line(["large"]))
    assert with_nodes.write(after=60.0) == []
    with_nodes.update(in_line(["large"], used=3))
    assert with_nodes.write(after=60.0) == ["large"]
    assert with_nodes.reported("large") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 3; place 1 of 1",
    )


def test_another_leader_writes_nothing_because_of_nodes(with_nodes: ConditionHarness) -> None:
    with_nodes.update(in_line(["large"]))
    with_nodes.write()
    assert with_nodes.write(after=FIRST) == ["large"]
    with_nodes.epoch[0] += 1
    with_nodes.update(in_line(["large"]))
    assert with_nodes.write(after=60.0) == []


def test_where_nodes_are_not_followed_no_pod_is_read_for_them(
    with_nodes: ConditionHarness,
) -> None:
    assert with_nodes.nodes is not None
    with_nodes.nodes.stop()
    with_nodes.update(in_line(["large"]))
    with_nodes.write()
    assert with_nodes.write(after=FIRST) == ["large"]
    assert with_nodes.reads == ["large"]
    assert with_nodes.reported("large") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 2; place 1 of 1",
    )
