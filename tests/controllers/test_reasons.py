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

from tests.admission.doors.desk import eventually
from tests.builders import a_binding, a_pod, a_quota
from tests.cluster.faults import Call, Fault, FlakyClient, in_turn, never
from tests.controllers.rig import a_rig
from webhook.cluster.api import EVENTS, NAMESPACES, PODS, ForbiddenError, NotFoundError
from webhook.cluster.memory import MemoryClient, MemoryCluster
from webhook.controllers import reasons as reasons_module
from webhook.controllers.events import EventLimits, EventRecorder
from webhook.controllers.reason_queue import RELEASED_SECONDS, SETTLED_SECONDS
from webhook.controllers.reasons import ReasonLimits, Reasons
from webhook.quota import pod_conditions
from webhook.quota.line import Held, Waits
from webhook.quota.objects import Pod
from webhook.quota.pod_conditions import QUOTA_RESERVED
from webhook.state.names import DEFERRED_MODE, GATE, MODE_LABEL
from webhook.telemetry.metrics import Metrics

NAMESPACE = "team-a"
NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
GATED: dict[str, Any] = {"schedulingGates": [{"name": GATE}]}
SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class _Cache:
    """The pods as they are stored."""

    def __init__(self, api: MemoryClient) -> None:
        self._api = api

    def get(self, key: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        try:
            return Pod.from_object(self._api.get(PODS, name, namespace=namespace))
        except NotFoundError:
            return None

    def in_namespace(self, namespace: str) -> tuple[Pod, ...]:
        return tuple(map(Pod.from_object, self._api.list(PODS, namespace=namespace).items))


@dataclass
class Pen:
    """A writer of conditions on a clock that a test moves; `write` writes what is due."""

    rate: float = 1000.0
    cluster: MemoryCluster = field(default_factory=MemoryCluster)
    clock: list[float] = field(default_factory=lambda: [1000.0])
    term: list[int] = field(default_factory=lambda: [1])
    metrics: Metrics = field(default_factory=Metrics)
    sent: list[str] = field(default_factory=list)
    """Names of the pods whose status was patched, in order."""
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored = MemoryClient(self.cluster)
        self.api = FlakyClient(self.stored, before=self._note)
        self.cache = _Cache(self.stored)
        self.events = EventRecorder(
            self.stored,
            limits=EventLimits(clock=lambda: self.clock[0], per_second=1e6, burst=10**6),
        )
        self.reasons = Reasons(
            self.api,
            lambda: self.cache,
            is_leader=lambda: self.term[0],
            limits=ReasonLimits(
                per_second=lambda: self.rate,
                clock=lambda: self.clock[0],
                now=lambda: NOON + timedelta(seconds=self.clock[0] - 1000),
            ),
            events=self.events,
            metrics=self.metrics,
        )

    def _note(self, call: Call) -> None:
        name = call.key.partition("/")[2]
        if call.verb == "patch":
            self.sent.append(name)
        if call.verb == "get":
            self.reads.append(name)

    # -- what happens ----------------------------------------------------------------------

    def pods(self, *names: str, node: str = "", conditions: Iterable[object] = ()) -> None:
        status = {"conditions": [SCHEDULED, *conditions]}
        made = [
            a_pod(name=name, uid=f"uid-{name}", node=node, status=status, **({} if node else GATED))
            for name in names
        ]
        self.cluster.load([(PODS, one) for one in made])

    def tell(self, held: dict[str, Held], *may_go: str, namespace: str = NAMESPACE) -> None:
        """Say what a look has shown, by the names of pods."""
        named = {f"uid-{name}": one for name, one in held.items()}
        self.reasons.on_line(namespace, named, [f"uid-{name}" for name in may_go])

    def ungate(self, name: str) -> None:
        self.stored.patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=NAMESPACE)

    def bind(self, name: str) -> None:
        self.ungate(name)
        self.stored.bind(a_binding(name, namespace=NAMESPACE))

    def write(self, *, after: float = 0.0) -> list[str]:
        """Move the clock, write all that may be written then, and name the pods."""
        self.clock[0] += after
        del self.sent[:]
        while self.reasons.work() == 0:
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

    def said(self, name: str) -> tuple[str, str, str] | None:
        one = self.condition(name)
        return None if one is None else (one["status"], one["reason"], one["message"])

    def told(self) -> list[tuple[str, str, str, str]]:
        """Level, reason, pod and message of the events, written now."""
        while self.events._queue:
            series = self.events._next()
            assert series is not None
            self.events._write(series)
        found: Any = self.stored.list(EVENTS).items
        return sorted(
            (one["type"], one["reason"], one["involvedObject"]["name"], one["message"])
            for one in found
        )

    def count(self, result: str) -> float:
        name = "deferred_quota_pod_conditions_total"
        return self.metrics.registry.get_sample_value(name, {"result": result}) or 0.0


def full(place: int = 1, used: int = 2) -> Held:
    return Held(Waits.QUOTA_EXCEEDED, place, quota="p1", detail=f"exceeded quota: p1, used: {used}")


def in_line(names: Iterable[str], used: int = 2) -> dict[str, Held]:
    return {name: full(place, used) for place, name in enumerate(names, 1)}


RESERVED = ("True", "Reserved", "quota is reserved for the pod, as far as it needs any")
FIRST = SETTLED_SECONDS
"""From what is heard first to what is written first."""


@pytest.fixture
def pen() -> Pen:
    return Pen()


@pytest.fixture
def waiting(pen: Pen) -> Pen:
    """Pod `web` waits, and says so."""
    pen.pods("web")
    pen.tell(in_line(["web"]))
    pen.write()
    assert pen.write(after=FIRST) == ["web"]
    return pen


# -- what is written -----------------------------------------------------------------------


def test_a_pod_says_why_it_waits_with_its_place_in_the_line(pen: Pen) -> None:
    pen.pods("a", "b", "c")
    behind = Held(Waits.BEHIND, 2, holder="a", quota="p1")
    never_fits = Held(Waits.NEVER_FITS, quota="p1")
    pen.tell({"a": full(), "b": behind, "c": never_fits})
    pen.write()
    assert pen.write(after=FIRST) == ["a", "b", "c"]
    assert pen.said("a") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 2; place 1 of 2",
    )
    assert pen.said("b") == (
        "False",
        "Behind",
        "waits behind pod a, which needs quota p1; place 2 of 2",
    )
    assert pen.said("c") == (
        "False",
        "NeverFits",
        "the pod asks for more than the quota's limit and can never fit",
    )
    assert pen.count("written") == 3


def test_with_the_tracker_the_words_are_those_of_the_api_server() -> None:
    with a_rig(a_quota("p1")) as rig:
        rig.step()
        pen = Pen(cluster=rig.cluster)
        for name in ("a", "b", "c", "d"):
            rig.pod(name, status={"conditions": [SCHEDULED]}, **GATED)
        rig.step()
        pen.cache = rig.tracker.pods  # type: ignore[assignment]
        for told in rig.told_lines:
            pen.reasons.on_line(*told)
        pen.write()
        assert pen.write(after=FIRST) == ["c", "d"]
        numbers = (
            "exceeded quota: p1, requested: requests.cpu=1, used: requests.cpu=2,"
            " limited: requests.cpu=2"
        )
        assert pen.said("c") == ("False", "QuotaExceeded", f"{numbers}; place 1 of 2")
        behind = f"{numbers}; waits behind pod c, which needs quota p1; place 2 of 2"
        assert pen.said("d") == ("False", "Behind", behind)
        rig.catch_up()
        rig.finish("a")
        rig.step()
        for told in rig.told_lines:
            pen.reasons.on_line(*told)
        pen.run(RELEASED_SECONDS + 1)
        assert pen.said("c") == RESERVED


def test_what_takes_a_moment_only_is_not_worth_a_word(pen: Pen) -> None:
    pen.pods("web")
    pen.tell(in_line(["web"]))
    assert pen.write() == []
    pen.tell({}, "web")
    pen.write(after=FIRST / 2)
    pen.bind("web")
    pen.tell({})
    assert pen.run(60) == []
    assert pen.reads == []


def test_being_counted_is_told_only_if_it_lasts(pen: Pen) -> None:
    counting = Held(Waits.NOT_COUNTED, detail="usage is being counted")
    pen.pods("web")
    pen.tell({"web": counting})
    assert pen.run(5) == []
    pen.tell({"web": counting})
    assert [name for _, name in pen.run(10)] == ["web"]
    assert pen.said("web") == ("False", "NotCounted", "usage is being counted")


def test_a_moment_of_being_counted_does_not_replace_what_is_said(waiting: Pen) -> None:
    waiting.tell({"web": Held(Waits.NOT_COUNTED, detail="usage is being counted")})
    waiting.run(5)
    waiting.tell(in_line(["web"]))
    assert waiting.run(60) == []


def test_only_a_change_is_written(waiting: Pen) -> None:
    for _ in range(20):
        waiting.tell(in_line(["web"]))
        assert waiting.run(10) == []
    assert waiting.reads == ["web"]


def test_a_change_is_written_when_the_thirty_seconds_are_over_and_the_newest_then(
    waiting: Pen,
) -> None:
    began = waiting.clock[0]
    for used in range(3, 23):
        waiting.tell(in_line(["web"], used=used))
        waiting.write(after=1.0)
    assert waiting.count("written") == 1
    ((moment, _),) = waiting.run(20)
    assert moment - began == pytest.approx(30, abs=0.5)
    assert waiting.said("web") == (
        "False",
        "QuotaExceeded",
        "exceeded quota: p1, used: 22; place 1 of 1",
    )


def test_after_that_a_change_is_written_at_once(waiting: Pen) -> None:
    waiting.run(40)
    waiting.tell(in_line(["web"], used=9))
    assert waiting.write() == ["web"]


def test_a_pod_is_never_written_more_often_than_every_thirty_seconds(waiting: Pen) -> None:
    moments = []
    for used in range(400):
        waiting.tell(in_line(["web"], used=used))
        moments += [moment for moment, _ in waiting.run(0.5)]
    pauses = [later - former for former, later in pairwise(moments)]
    assert min(pauses) >= 30
    assert len(moments) == 6


def test_another_place_alone_waits_for_five_minutes(waiting: Pen) -> None:
    began = waiting.clock[0]
    waiting.pods("front")
    moments = []
    while waiting.clock[0] < began + 400:
        waiting.tell(in_line(["front", "web"]))
        moments += [moment for moment, name in waiting.run(5) if name == "web"]
    assert [moment - began for moment in moments] == [pytest.approx(300, abs=1)]
    assert str(waiting.said("web")).endswith("place 2 of 2')")


def test_another_place_is_written_in_the_end_although_nothing_happens_any_more(
    waiting: Pen,
) -> None:
    waiting.tell({"web": full(2)})
    assert waiting.run(290) == []
    assert [name for _, name in waiting.run(20)] == ["web"]


def test_another_place_goes_with_another_change(waiting: Pen) -> None:
    waiting.run(40)
    waiting.tell({"web": full(2)})
    assert waiting.run(10) == []
    waiting.tell({"web": full(3, used=9)})
    assert waiting.write() == ["web"]
    assert str(waiting.said("web")).endswith("used: 9; place 3 of 3')")


def test_the_time_of_the_transition_changes_with_the_status_only(waiting: Pen) -> None:
    first = waiting.condition("web")
    waiting.run(40)
    waiting.tell(in_line(["web"], used=9))
    waiting.write()
    second = waiting.condition("web")
    waiting.tell({}, "web")
    waiting.ungate("web")
    waiting.run(5)
    third = waiting.condition("web")
    times = [one["lastTransitionTime"] for one in (first, second, third) if one]
    assert times == ["2026-05-04T12:00:01Z", "2026-05-04T12:00:01Z", "2026-05-04T12:00:43Z"]


# -- released pods -------------------------------------------------------------------------


def test_a_released_pod_says_so_and_does_not_wait_thirty_seconds(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.ungate("web")
    assert waiting.write() == []  # first the gate goes
    assert waiting.write(after=RELEASED_SECONDS) == ["web"]
    assert waiting.said("web") == RESERVED


def test_that_is_said_once_however_often_it_is_heard(waiting: Pen) -> None:
    for _ in range(100):
        waiting.tell({}, "web")
        waiting.run(1)
    assert waiting.count("written") == 2


def test_a_pod_that_never_said_anything_and_has_its_node_is_left_alone(pen: Pen) -> None:
    pen.pods("web")
    pen.tell({}, "web")
    pen.write()
    pen.bind("web")
    assert pen.run(60) == []
    assert pen.reads == []
    assert pen.count("dropped") == 1


def test_one_that_no_node_has_taken_says_that_quota_is_reserved(pen: Pen) -> None:
    pen.pods("web")
    pen.tell({}, "web")
    pen.run(RELEASED_SECONDS + 1)
    assert pen.said("web") == RESERVED
    assert pen.told() == []


def test_one_that_said_that_it_waits_is_put_right_even_on_its_node(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.write()
    waiting.bind("web")
    waiting.tell({})
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") == RESERVED


def test_a_release_that_was_heard_between_two_looks_is_not_lost(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.ungate("web")
    waiting.tell({})
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") == RESERVED


def test_a_pod_that_lost_its_reservation_before_its_gate_waits_again(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") == RESERVED
    waiting.tell(in_line(["web"]))
    assert waiting.run(25) == []
    assert [name for _, name in waiting.run(10)] == ["web"]
    assert str(waiting.said("web")).startswith("('False', 'QuotaExceeded'")


# -- pods that leave -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before its turn", "after the look"])
def test_a_pod_that_is_gone_is_dropped(pen: Pen, when: str) -> None:
    pen.pods("web")
    pen.tell(in_line(["web"]))
    if when == "before its turn":
        pen.write()
    else:
        pen.api.before = lambda call: delete() if call.verb == "patch" else None

    def delete() -> None:
        pen.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)

    if when == "before its turn":
        delete()
    pen.run(60)
    assert pen.count("dropped") == 1
    assert pen.count("failed") == 0
    assert pen.sent == []


def test_another_pod_of_the_name_is_left_alone(waiting: Pen) -> None:
    waiting.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)
    other = a_pod(name="web", uid="another", status={"conditions": [SCHEDULED]}, **GATED)
    waiting.cluster.load([(PODS, other)])
    waiting.tell(in_line(["web"], used=7))
    assert waiting.run(60) == []
    assert waiting.said("web") is None
    assert waiting.count("dropped") == 1


def test_a_pod_that_is_being_deleted_is_left_alone(waiting: Pen) -> None:
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    waiting.stored.patch(PODS, "web", held, namespace=NAMESPACE)
    waiting.stored.delete(PODS, "web", namespace=NAMESPACE, grace_period_seconds=0)
    waiting.tell({})
    assert waiting.run(60) == []


def test_a_pod_whose_gate_a_person_removed_loses_the_condition(waiting: Pen) -> None:
    waiting.ungate("web")
    waiting.tell({})
    assert waiting.write() == ["web"]
    assert waiting.condition("web") is None
    assert waiting.run(60) == []


@pytest.mark.parametrize("is_known", [True, False])
def test_a_pod_that_no_node_has_taken_for_too_long_says_no_more_that_quota_is_reserved(
    waiting: Pen, *, is_known: bool
) -> None:
    waiting.tell({}, "web")
    waiting.ungate("web")
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") == RESERVED
    if not is_known:
        waiting.term[0] += 1  # another leader
    waiting.reasons.on_given_up(NAMESPACE, ["uid-web"])
    waiting.tell({})
    waiting.write()
    assert waiting.said("web") is None
    assert waiting.write(after=100) == []


def test_that_is_taken_away_also_if_it_was_not_said_yet(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.ungate("web")
    waiting.write()
    waiting.reasons.on_given_up(NAMESPACE, ["uid-web"])
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") is None


def test_who_has_a_node_by_then_keeps_what_it_says(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.ungate("web")
    waiting.run(RELEASED_SECONDS + 1)
    waiting.reasons.on_given_up(NAMESPACE, ["uid-web"])
    waiting.bind("web")
    waiting.run(RELEASED_SECONDS + 1)
    assert waiting.said("web") == RESERVED


def test_before_the_line_is_looked_at_again_such_a_pod_says_nothing_new(waiting: Pen) -> None:
    waiting.run(40)
    waiting.ungate("web")
    waiting.tell(in_line(["web"], used=9))
    assert waiting.run(10) == []


# -- rate ----------------------------------------------------------------------------------


def test_no_more_is_written_than_the_rate_allows() -> None:
    pen = Pen(rate=5)
    names = [f"w{number:03}" for number in range(100)]
    pen.pods(*names)
    held = {name: Held(Waits.OTHER_GATES, detail="waits") for name in names}
    pen.tell(held)
    pen.write()
    written = pen.run(11)
    assert [name for _, name in written] == names[: len(written)]
    assert 50 <= len(written) <= 56


def test_an_event_counts_as_a_write() -> None:
    pen = Pen(rate=10)
    pen.pods(*[f"w{number:03}" for number in range(100)])
    pen.tell(in_line([f"w{number:03}" for number in range(100)]))
    pen.write()
    written = len(pen.run(6))
    assert len(pen.told()) == written
    assert 25 <= written <= 36


def test_pods_that_say_nothing_yet_come_first() -> None:
    pen = Pen(rate=4)
    old = [f"old{number}" for number in range(8)]
    pen.pods(*old)
    pen.tell(in_line(old))
    pen.write()
    pen.run(40)
    new = [f"new{number}" for number in range(4)]
    pen.pods(*new)
    pen.rate = 0
    pen.tell(in_line([*old, *new], used=5))
    pen.run(FIRST + 1, step=0.1)
    pen.rate = 4
    order = [name for _, name in pen.run(10)]
    assert order[:4] == new
    assert order[4:] == old


def test_with_a_rate_of_nothing_nothing_is_written_until_it_changes() -> None:
    pen = Pen(rate=0)
    pen.pods("web")
    pen.tell(in_line(["web"]))
    assert pen.run(100) == []
    assert pen.reads == []
    pen.rate = 20
    pen.run(1)
    assert pen.condition("web") is not None


def test_a_thousand_waiting_pods_and_fifty_looks_stay_within_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = count_messages(monkeypatch)
    pen = Pen(rate=20)
    names = [f"w{number:04}" for number in range(1000)]
    pen.pods(*names)
    pods = {pod.uid: pod for pod in pen.cache.in_namespace(NAMESPACE)}
    by_name = {f"{NAMESPACE}/{pod.name}": pod for pod in pods.values()}
    pen.cache.get = by_name.get  # type: ignore[method-assign, assignment]
    written = []
    for look in range(50):
        pen.tell(in_line(names, used=look))
        written += pen.write(after=0.1)
    assert 0 < len(written) <= 20 * 5 + 20
    assert len(set(written)) == len(written)
    assert len(made) <= len(written) + 1
    events = len(pen.told())
    assert len(written) + events <= 20 * 5 + 21


def count_messages(monkeypatch: pytest.MonkeyPatch) -> list[Held]:
    made: list[Held] = []
    genuine = pod_conditions.waiting

    def counted(held: Held, total: int) -> object:
        made.append(held)
        return genuine(held, total)

    monkeypatch.setattr(reasons_module, "waiting", counted)
    return made


def test_looks_that_lead_to_nothing_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pen = Pen(rate=1000)
    names = [f"w{number:03}" for number in range(100)]
    pen.pods(*names)
    pen.tell(in_line(names))
    pen.write()
    pen.run(40)
    made = count_messages(monkeypatch)
    pen.rate = 2
    for _ in range(100):
        pen.tell(in_line(names))
        assert pen.write(after=0.1) == []
    assert len(made) <= 10 * 2 * 10 + 20


def test_hearing_of_a_line_costs_little_and_works_out_no_message(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = count_messages(monkeypatch)
    monkeypatch.setattr(Held, "message", property(lambda _: pytest.fail("worked out")))
    held = {f"uid-{number}": full(number + 1) for number in range(1000)}
    began = time.monotonic()
    for _ in range(1000):
        pen.reasons.on_line(NAMESPACE, held, ())
    assert time.monotonic() - began < 1
    assert made == []
    assert pen.api.calls == 0


def test_hearing_does_not_wait_for_an_api_server_that_hangs(pen: Pen) -> None:
    reached, may_go = threading.Event(), threading.Event()

    def hang(_call: Call) -> None:
        reached.set()
        assert may_go.wait(30)

    pen.pods("web", "two")
    pen.api.before = hang
    pen.tell(in_line(["web"]))
    pen.reasons.work()
    pen.clock[0] += FIRST
    pen.reasons.start()
    assert reached.wait(10)
    began = time.monotonic()
    pen.tell(in_line(["web", "two"]))
    assert time.monotonic() - began < 5
    may_go.set()
    eventually(lambda: pen.condition("web") is not None, "it is written")
    pen.reasons.stop()


# -- leaders -------------------------------------------------------------------------------


def test_who_does_not_lead_writes_nothing(pen: Pen) -> None:
    pen.term[0] = 0
    pen.pods("web")
    pen.tell(in_line(["web"]))
    assert pen.run(60) == []
    assert pen.api.calls == 0


def test_who_leads_no_more_forgets_what_it_was_about_to_write(waiting: Pen) -> None:
    waiting.tell({}, "web")
    waiting.write()
    waiting.term[0] = 0
    assert waiting.run(10) == []
    waiting.term[0] = 2
    assert waiting.run(10) == []
    assert str(waiting.said("web")).startswith("('False'")


def test_who_loses_the_lead_between_reading_and_writing_writes_nothing(pen: Pen) -> None:
    pen.pods("web")
    pen.tell(in_line(["web"]))
    pen.write()
    pen.api.before = lambda _: pen.term.__setitem__(0, 0)
    pen.run(5)
    assert pen.condition("web") is None


def test_the_next_leader_repeats_nothing_and_keeps_the_time(waiting: Pen) -> None:
    before = waiting.condition("web")
    told = waiting.told()
    other = Pen(cluster=waiting.cluster, term=[2], clock=[2000.0])
    other.tell(in_line(["web"]))
    assert other.run(10) == []
    assert other.reads == ["web"]
    other.tell(in_line(["web"], used=9))
    other.run(30)
    after = other.condition("web")
    assert before is not None
    assert after is not None
    assert after["message"] != before["message"]
    assert after["lastTransitionTime"] == before["lastTransitionTime"]
    assert other.told() == told


def test_the_next_leader_puts_right_what_the_former_said(waiting: Pen) -> None:
    other = Pen(cluster=waiting.cluster, term=[2])
    other.tell({}, "web")
    other.run(5)
    assert other.said("web") == RESERVED
    assert [one[1] for one in other.told()] == ["QuotaReserved"]


# -- failures ------------------------------------------------------------------------------


def test_what_lost_a_race_is_read_again_and_written(pen: Pen) -> None:
    pen.pods("web")
    raced: list[int] = []

    def race(call: Call) -> None:
        if call.verb == "patch" and not raced:
            raced.append(1)
            labels = {"metadata": {"labels": {"a": "b"}}}
            pen.stored.patch(PODS, "web", labels, namespace=NAMESPACE)

    pen.api.before = race
    pen.tell(in_line(["web"]))
    pen.run(10)
    assert pen.condition("web") is not None
    assert (pen.count("conflict"), pen.count("written"), pen.count("failed")) == (1, 1, 0)


def test_a_condition_that_moved_is_found_again(waiting: Pen) -> None:
    one = waiting.condition("web")
    ready = {"type": "Ready", "status": "False"}
    patch = {"status": {"conditions": [SCHEDULED, ready, one]}}
    waiting.stored.patch(PODS, "web", patch, namespace=NAMESPACE, subresource="status")
    waiting.tell({}, "web")
    waiting.run(10)
    assert waiting.said("web") == RESERVED
    pod: Any = waiting.stored.get(PODS, "web", namespace=NAMESPACE)
    kinds = [each["type"] for each in pod["status"]["conditions"]]
    assert kinds == ["PodScheduled", "Ready", QUOTA_RESERVED]


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.LOSE_ANSWER, Fault.THROTTLE])
def test_an_api_server_that_does_not_answer_is_asked_less_and_less(pen: Pen, fault: Fault) -> None:
    names = [f"w{number}" for number in range(50)]
    pen.pods(*names)
    pen.api.plan = lambda call: fault if call.verb == "patch" else None
    pen.tell(in_line(names))
    tried = len(pen.run(62))
    assert 5 <= tried <= 7
    assert pen.count("failed") == tried
    pen.api.plan = never
    pen.run(120)
    assert [name for name in names if pen.condition(name) is None] == []
    assert pen.count("written") + (fault is Fault.LOSE_ANSWER) * tried >= 50


def test_an_answer_that_was_lost_is_not_written_twice(pen: Pen) -> None:
    pen.pods("web")
    pen.api.plan = in_turn([Fault.LOSE_ANSWER], verb="patch")
    pen.tell(in_line(["web"]))
    assert [name for _, name in pen.run(60)] == ["web"]
    assert pen.condition("web") is not None


def test_one_that_is_refused_does_not_hold_up_the_others(
    pen: Pen, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = pen.api.patch

    def refuse(kind: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "w1":
            pen.sent.append(name)
            raise ForbiddenError("no")
        return genuine(kind, name, *args, **kwargs)

    monkeypatch.setattr(pen.api, "patch", refuse)
    pen.pods("w1", "w2")
    pen.tell(in_line(["w1", "w2"]))
    names = [name for _, name in pen.run(100)]
    assert pen.condition("w2") is not None
    assert names.count("w1") == 3  # after 30 s, then after 60 s


def test_a_namespace_that_opted_out_is_left_with_one_line_of_the_log(
    pen: Pen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", reasons_module.__name__)
    refuse_conditions(pen, monkeypatch)
    pen.cluster.load([(NAMESPACES, {"metadata": {"name": NAMESPACE}})])
    pen.pods("w1", "w2", "w3")
    pen.tell(in_line(["w1", "w2", "w3"]))
    assert sorted(name for _, name in pen.run(700, step=5)) == ["w1", "w2", "w3"]
    lines = [(one.levelname, one.__dict__["namespace"]) for one in caplog.records]
    assert lines == [("INFO", NAMESPACE)]


def test_a_refusal_where_the_namespace_is_opted_in_is_a_warning(
    pen: Pen, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_conditions(pen, monkeypatch)
    labels = {MODE_LABEL: DEFERRED_MODE}
    pen.cluster.load([(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}})])
    pen.pods("w1")
    pen.tell(in_line(["w1"]))
    assert len(pen.run(50)) == 2  # tried again
    assert {one.levelname for one in caplog.records} == {"WARNING"}


def refuse_conditions(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_kind: Any, name: str, *_args: Any, **_kwargs: Any) -> Any:
        pen.sent.append(name)
        raise ForbiddenError("no")

    monkeypatch.setattr(pen.api, "patch", refuse)


def test_an_error_of_our_own_stops_nothing(pen: Pen, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_pod: object) -> object:
        monkeypatch.undo()
        raise ValueError("no")

    monkeypatch.setattr(reasons_module, "find", broken)
    pen.pods("web")
    pen.tell(in_line(["web"]))
    pen.write()
    with pytest.raises(ValueError, match="no"):
        pen.write(after=FIRST)
    pen.run(31)
    assert pen.condition("web") is not None


# -- events --------------------------------------------------------------------------------


def test_a_pod_gets_one_event_when_it_first_waits_and_one_when_it_is_released(
    waiting: Pen,
) -> None:
    waiting.run(40)
    waiting.tell(in_line(["web"], used=9))
    waiting.write()
    waiting.tell({}, "web")
    waiting.run(5)
    assert waiting.told() == [
        ("Normal", "QuotaReserved", "web", RESERVED[2]),
        ("Warning", "QuotaExceeded", "web", "exceeded quota: p1, used: 2"),
    ]


EVENTS_OF = {
    Waits.BEHIND: "QuotaExceeded",
    Waits.NEVER_FITS: "QuotaExceeded",
    Waits.LEDGER_FULL: "QuotaExceeded",
    Waits.NOT_COVERED: "NotCovered",
    Waits.MUST_SPECIFY: "MustSpecify",
    Waits.FORGED_QOS_CLASS: "ForgedQOSClass",
    Waits.OTHER_GATES: None,
    Waits.NOT_COUNTED: None,
}


@pytest.mark.parametrize(("reason", "event"), EVENTS_OF.items(), ids=map(str, EVENTS_OF))
def test_what_a_person_should_know_is_an_event(pen: Pen, reason: Waits, event: str | None) -> None:
    pen.pods("web")
    pen.tell({"web": Held(reason, detail="text")})
    pen.run(20)
    assert pen.condition("web") is not None
    assert [one[1] for one in pen.told()] == ([event] if event else [])


# -- numbers -------------------------------------------------------------------------------


def test_the_backlog_is_shown() -> None:
    pen = Pen(rate=0)
    pen.pods("a", "b", "c")
    pen.tell(in_line("abc"))
    pen.write()
    pen.run(2)
    pen.rate = 1
    pen.run(1)
    shown = pen.metrics.registry.get_sample_value("deferred_quota_pod_conditions_backlog")
    assert shown == 2.0
    pen.run(10)
    shown = pen.metrics.registry.get_sample_value("deferred_quota_pod_conditions_backlog")
    assert shown == 0.0


def test_pods_of_the_past_are_not_remembered(pen: Pen) -> None:
    for number in range(20):
        name = f"w{number}"
        pen.pods(name)
        pen.tell(in_line([name]))
        pen.run(2)
        pen.tell({}, name)
        pen.write()
        pen.bind(name)
        pen.tell({})
        pen.run(5)
    pen.tell({})
    pen.write()
    assert pen.reasons._queue._spaces == {}
    assert pen.reasons._news == {}


def test_nor_are_those_for_which_nothing_is_reserved_any_more(pen: Pen) -> None:
    for number in range(5):
        name = f"w{number}"
        pen.pods(name)
        pen.ungate(name)
        pen.reasons.on_given_up(NAMESPACE, [f"uid-{name}"])
        pen.run(5)
    assert pen.reads == [f"w{number}" for number in range(5)]
    assert pen.reasons._queue._spaces == {}


@pytest.fixture(autouse=True)
def _no_threads() -> Iterator[None]:
    yield
    left = [one.name for one in threading.enumerate() if one.name == "reasons"]
    assert left == []
