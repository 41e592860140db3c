"""Pods that a scheduler refused for their quota are touched when there is room for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from tests.admission.doors.desk import a_namespace, eventually, new_cluster, opt_out
from tests.builders import a_quota
from tests.cluster.faults import Call, Fault, FlakyClient, always, never
from tests.controllers.rig import NAMESPACE, Rig
from webhook.cluster.api import NAMESPACES, PODS, RESOURCE_QUOTAS
from webhook.cluster.memory import MemoryClient
from webhook.controllers.waking import WOKEN_ANNOTATION, WakeLimits, Waker, Wakes
from webhook.quota.line import LineRules
from webhook.state.names import GATE

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
WORDS = "quota exceeded: p1, requested: requests.cpu=1, used: requests.cpu=2, limited: ..."
REFUSED = f"0/3 nodes are available: 3 {WORDS}"
NO_NODE = "0/3 nodes are available: 3 Insufficient cpu."
AGAIN = WakeLimits().again_seconds

_numbers = itertools.count()


@dataclass
class Bell:
    """A waker beside a tracker; nothing happens but in `look`."""

    rig: Rig
    enabled: bool = True
    touched: list[str] = field(default_factory=list)
    """Names of the pods that were touched, in order."""
    reads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.api = FlakyClient(MemoryClient(self.rig.cluster), before=self._note)
        self.waker = Waker(
            self.api,
            lambda: self.rig.tracker.pods,
            Wakes(
                is_enabled=lambda: self.enabled,
                ledgers=self.rig.ledgers,
                opted=self.rig.opted,
                rules=lambda: self.rig.rules,
            ),
            is_leader=lambda: self.rig.term[0],
            limits=WakeLimits(
                clock=lambda: self.rig.clock[0],
                now=lambda: NOON + timedelta(seconds=self.rig.clock[0]),
            ),
        )
        self.rig.tracker.pods.add_handler(self.waker.on_pod)

    def _note(self, call: Call) -> None:
        if call.kind is PODS:
            name = call.key.partition("/")[2]
            (self.touched if call.verb == "patch" else self.reads).append(name)

    def look(self, *, after: float = 0.0) -> list[str]:
        """Let the tracker settle, then wake whom there is room for; name those who were."""
        self.rig.pass_time(after)
        self.rig.step()
        self.rig.catch_up()
        before = len(self.touched)
        self.waker.work()
        return self.touched[before:]

    # -- the cluster -----------------------------------------------------------------------

    def refused(
        self,
        *names: str,
        cpu: str = "1",
        message: str = REFUSED,
        namespace: str = NAMESPACE,
        **fields: Any,
    ) -> None:
        """Create pods that the scheduler has looked at."""
        for name in names:
            self.rig.pod(name, cpu, namespace, **fields)
            self.says(name, message, namespace=namespace)

    def says(
        self, name: str, message: str, reason: str = "Unschedulable", namespace: str = NAMESPACE
    ) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "try": next(_numbers),  # every attempt is a new version
        }
        patch = {"status": {"conditions": [condition]}}
        self.rig.api.patch(PODS, name, patch, namespace=namespace, subresource="status")

    def runs(self, name: str, cpu: str = "2") -> None:
        self.rig.pod(name, cpu, node="node-0")

    def quota(self, cpu: str) -> None:
        patch = {"spec": {"hard": {"requests.cpu": cpu}}}
        self.rig.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)

    def annotation(self, name: str) -> str:
        found = self.rig.api.get(PODS, name, namespace=NAMESPACE)
        metadata = cast("dict[str, dict[str, str]]", found["metadata"])
        return metadata.get("annotations", {}).get(WOKEN_ANNOTATION, "")


@pytest.fixture
def bell() -> Iterator[Bell]:
    """A quota of 2 cpu that one pod fills."""
    cluster = new_cluster()
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, a_quota("p1"))])
    rig = Rig(cluster)
    made = Bell(rig)
    rig.start()
    try:
        made.runs("first")
        rig.step()
        yield made
    finally:
        rig.stop()


def test_one_for_whom_there_is_no_room_is_left_alone(bell: Bell) -> None:
    bell.refused("a")
    assert bell.look() == []
    assert bell.look(after=3600) == []
    assert bell.reads == []


def test_room_wakes_as_many_as_fit_in_the_order_of_the_line(bell: Bell) -> None:
    bell.refused("c", "a", "b")
    bell.refused("high", priority=1000)
    assert bell.look() == []
    bell.rig.finish("first")
    assert bell.look() == ["high", "c"]
    assert bell.annotation("high").startswith("2026-05-04T12:")
    assert bell.annotation("a") == ""
    assert bell.look() == []


def test_a_raised_quota_wakes(bell: Bell) -> None:
    bell.refused("a", cpu="3")
    assert bell.look() == []
    bell.quota("5")
    assert bell.look() == ["a"]


def test_one_that_does_not_fit_holds_nobody(bell: Bell) -> None:
    bell.refused("large", cpu="2")
    bell.refused("small")
    bell.quota("3")
    assert bell.look() == ["small"]


def test_nobody_is_woken_for_room_that_a_woken_pod_takes(bell: Bell) -> None:
    bell.refused("a", "b", "c")
    bell.quota("3")
    assert bell.look() == ["a"]
    bell.rig.pod("other", "0")
    assert bell.look(after=1) == []
    bell.rig.reserve("a")
    assert bell.look(after=1) == []
    bell.rig.bind("a")
    assert bell.look(after=1) == []
    assert bell.look(after=5) == []
    bell.quota("4")
    assert bell.look(after=1) == ["b"]


def test_room_that_a_woken_pod_does_not_take_is_for_the_next(bell: Bell) -> None:
    bell.refused("a", "b")
    bell.quota("3")
    assert bell.look() == ["a"]
    bell.says("a", NO_NODE)
    assert bell.look() == ["b"]
    assert bell.look(after=1000) == ["b"]
    assert "a" not in bell.touched[1:]


def test_one_that_is_not_heard_of_is_woken_again_less_and_less_often(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    assert bell.look() == ["a"]
    assert bell.look(after=AGAIN - 1) == []
    assert bell.look(after=2) == ["a"]
    assert bell.look(after=AGAIN + 1) == []
    assert bell.look(after=AGAIN) == ["a"]


def test_one_that_others_were_quicker_than_is_woken_as_soon_as_there_is_room(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    assert bell.look() == ["a"]
    bell.runs("other", "1")
    assert bell.look() == []
    bell.rig.finish("other")
    assert bell.look(after=2) == ["a"]


def test_one_that_was_refused_again_is_woken_as_soon_as_there_is_room(bell: Bell) -> None:
    bell.refused("a", "b")
    bell.quota("3")
    assert bell.look() == ["a"]
    bell.says("a", REFUSED)
    assert bell.look() == ["b"]  # room that is there is not kept for it
    bell.says("b", NO_NODE)
    assert bell.look(after=2) == ["a"]


@pytest.mark.parametrize(
    "reason", ["SchedulerError", "SchedulingGated"], ids=["at the bind", "behind gates"]
)
def test_who_waits_for_something_else_is_left_alone(bell: Bell, reason: str) -> None:
    bell.refused("nodes", message=NO_NODE)
    bell.rig.pod("other", "1")
    bell.says("other", REFUSED, reason)
    bell.rig.pod("new", "1")
    bell.quota("9")
    assert bell.look() == []
    reads = len(bell.reads)
    assert bell.look(after=60) == []
    assert len(bell.reads) == reads  # what a pod says is read once


def test_one_without_room_on_nodes_does_not_stand_before_others(bell: Bell) -> None:
    bell.refused("nodes", message=NO_NODE, priority=5)
    bell.refused("a")
    bell.quota("3")
    assert bell.look() == ["a"]


def test_a_pod_that_holds_others_behind_our_gate_is_not_passed(bell: Bell) -> None:
    gates: dict[str, Any] = {"schedulingGates": [{"name": GATE}]}
    bell.rig.pod("large", "3", priority=5, **gates)
    bell.refused("a")
    bell.refused("above", priority=9)
    bell.quota("4")
    bell.rig.step()
    namespace, held, may_go = bell.rig.told_lines[-1]
    assert [one.is_holding for one in held.values()] == [True]
    bell.waker.on_line(namespace, held, may_go)
    assert bell.look() == ["above"]
    bell.rig.delete("large")
    bell.waker.on_line(namespace, {}, ())
    bell.rig.delete("above")
    assert bell.look() == ["a"]


def test_nothing_happens_while_schedulers_are_told_nothing(bell: Bell) -> None:
    bell.enabled = False
    bell.refused("a")
    bell.quota("3")
    assert bell.look() == []
    bell.enabled = True
    assert bell.look() == ["a"]


def test_only_the_leader_wakes_and_the_next_one_begins_anew(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    bell.rig.step()
    bell.rig.term[0] = 0
    assert bell.look() == []
    bell.rig.term[0] = 2
    assert bell.look() == ["a"]
    bell.rig.term[0] = 3
    assert bell.look() == ["a"]


def test_who_waited_when_the_namespace_opted_out_is_woken(bell: Bell) -> None:
    bell.refused("a", "b")
    assert bell.look() == []
    opt_out(bell.rig.api, NAMESPACE)
    eventually(
        lambda: bell.rig.namespaces.informer.get(NAMESPACE) is not True, "the cache knows it"
    )
    assert bell.look() == ["a", "b"]


def test_namespaces_that_are_not_ours_are_not_read(bell: Bell) -> None:
    bell.rig.exempt = frozenset({NAMESPACE})
    bell.refused("a")
    assert bell.look() == []
    assert bell.reads == []


def test_while_a_quota_is_not_counted_as_it_stands_nobody_is_woken(bell: Bell) -> None:
    bell.quota("5")
    bell.look()
    bell.quota("2")
    bell.refused("a")
    bell.rig.catch_up()
    bell.waker.work()  # the quota is known to be lowered, the ledger still has room
    assert bell.touched == []
    assert bell.look() == []


def test_a_reservation_that_does_not_suffice_any_more_wakes_nobody(bell: Bell) -> None:
    bell.quota("3")
    bell.rig.pod("a", "1")
    bell.rig.step()
    bell.rig.reserve("a")
    bell.quota("2")
    bell.says("a", REFUSED)
    assert bell.look() == []
    bell.quota("3")
    assert bell.look() == ["a"]


def test_one_that_is_bound_while_it_is_touched_takes_its_room_once(bell: Bell) -> None:
    bell.refused("a", "b")
    bell.quota("3")

    def bind(call: Call) -> None:
        bell._note(call)
        if call.verb == "patch":
            bell.rig.reserve("a")
            bell.rig.bind("a")
            bell.rig.catch_up()

    bell.api.before = bind
    assert bell.look() == ["a"]
    bell.api.before = bell._note
    bell.quota("4")
    assert bell.look(after=2) == ["b"]


def test_no_more_is_sent_than_is_allowed(bell: Bell) -> None:
    names = [f"w{number:03}" for number in range(120)]
    bell.refused(*names, cpu="10m")
    bell.quota("9")
    assert bell.look() == []
    assert len(bell.reads) == 100
    assert bell.look(after=1) == names[:80]  # and 20 were read
    assert bell.look(after=1) == names[80:]


def test_what_fails_is_tried_again_after_a_pause(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    bell.api.plan = always(Fault.FAIL_BEFORE)
    assert bell.look() == []
    tries = len(bell.touched) + len(bell.reads)
    bell.look()
    assert len(bell.touched) + len(bell.reads) == tries
    bell.api.plan = never
    assert bell.look(after=2) == ["a"]
    assert bell.annotation("a")


def test_another_pod_of_the_name_is_not_touched(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    bell.rig.step()
    bell.rig.catch_up()
    bell.rig.delete("a")
    bell.rig.pod("a", "1", metadata={"uid": "uid-of-another"})
    bell.waker.work()
    assert bell.annotation("a") == ""


def test_a_pod_that_has_its_node_leaves_nothing_behind(bell: Bell) -> None:
    bell.refused("a")
    bell.quota("3")
    assert bell.look() == ["a"]
    bell.rig.bind("a")
    bell.look()
    bell.rig.finish("a")
    bell.look(after=5)
    assert bell.waker._spaces == {}


def test_rules_of_the_line_that_change_are_looked_at(bell: Bell) -> None:
    bell.rig.rules = LineRules(must_specify=True)
    bell.quota("9")
    bell.rig.api.patch(
        RESOURCE_QUOTAS,
        "p1",
        {"spec": {"hard": {"requests.cpu": "9", "requests.memory": "1Gi"}}},
        namespace=NAMESPACE,
    )
    message = "0/1 nodes are available: 1 failed quota: p1: must specify requests.memory for: main."
    bell.refused("a", message=message)
    assert bell.look() == []
    bell.rig.rules = LineRules(must_specify=False)
    assert bell.look() == ["a"]
