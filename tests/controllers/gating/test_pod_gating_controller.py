"""The PodGating of a namespace follows what its quotas have left."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import a_namespace, new_cluster, wait_until_seen
from tests.builders import a_quota
from tests.controllers.controller_harness import NAMESPACE, ControllerHarness, second_harness
from tests.controllers.queue.queue_steps import gated
from tests.controllers.shared.shared_quota_steps import OTHER, granted, shared_quota
from tests.reactions import fail, unavailable
from webhook.controllers.gating.controller import PodGatingController
from webhook.controllers.ledger.usage_cache import UsageCache
from webhook.kube.api import (
    CLUSTER_DEFERRED_QUOTAS,
    NAMESPACES,
    POD_GATINGS,
    PODS,
    RESOURCE_QUOTAS,
    ForbiddenError,
    NotFoundError,
)
from webhook.quota.queue.queued_pods import QueueingStrategy, QueuePolicy
from webhook.state.reserver import Reserved
from webhook.state.well_known import MODE_LABEL, POD_GATING

Object = dict[str, Any]


@dataclass
class Gating:
    """A controller of PodGatings beside one of ledgers, on the same cluster."""

    harness: ControllerHarness
    gating: str | None = "auto"
    controller: PodGatingController = field(init=False)

    def __post_init__(self) -> None:
        self.controller = PodGatingController(
            self.harness.context,
            self.harness.controller.usage_cache,
            self.harness.ledgers,
            self.harness.store,
            gating=lambda _namespace: self.gating,
            max_reservations=lambda: self.harness.max_reservations,
        )

    def step(self, seconds: float = 1) -> None:
        """Let both see everything and write what is due after so long."""
        self.harness.step()
        if self.controller.poll():
            wait_until_seen(self.harness.cluster, [self.controller.gatings])
        self.harness.pass_time(seconds)
        if self.controller.poll():
            self.controller.workers.drain()

    def settle(self) -> None:
        """Step until nothing is due any more."""
        for _ in range(4):
            self.step()

    def said(self) -> Object:
        """Return what is stored; nothing where there is no object."""
        try:
            found = self.harness.api.get(POD_GATINGS, POD_GATING, namespace=NAMESPACE)
        except NotFoundError:
            return {}
        return cast("Object", found["spec"])

    def most(self) -> str:
        """Return the most cpu that a pod may request and go ungated."""
        return str(self.said()["requests"]["cpu"])

    def writes(self) -> int:
        """Return how often it was written."""
        client = self.harness.client
        return len(client.calls_of("create", POD_GATINGS) + client.calls_of("patch", POD_GATINGS))


@pytest.fixture
def gating() -> Iterator[Gating]:
    """A quota of 8 cpu, counted, in a namespace whose gating is `auto`."""
    cluster = new_cluster()
    quota = a_quota("p1", hard={"requests.cpu": "8"})
    cluster.load([(NAMESPACES, a_namespace()), (RESOURCE_QUOTAS, quota)])
    harness = ControllerHarness(cluster, may_admit_ungated=True, follows_ledgers=True)
    made = Gating(harness)
    harness.start()
    try:
        made.settle()
        yield made
    finally:
        made.controller.stop()
        harness.stop()


def test_it_says_what_goes_ungated(gating: Gating) -> None:
    assert gating.said() == {
        "state": "Open",
        "requests": {"cpu": "2"},
        "limits": {},
        "gatesExtended": False,
        "gatesAll": False,
        "reason": "",
    }
    assert gating.writes() == 1


def test_pods_in_flight_close_a_namespace_and_their_end_opens_it(gating: Gating) -> None:
    for number in range(8):
        gating.harness.pod(f"pod-{number}", "1")
    gating.settle()
    assert (gating.said()["state"], gating.most()) == ("Closed", "0")
    assert gating.said()["reason"] == "quota p1: little requests.cpu is left"
    for number in range(8):
        gating.harness.delete(f"pod-{number}")
    gating.settle()
    assert (gating.said()["state"], gating.most()) == ("Open", "2")


def test_intents_of_pods_in_flight_open_nothing(gating: Gating) -> None:
    for number in range(8):
        gating.harness.pod(f"pod-{number}", "1")
    gating.settle()
    for number in range(8):
        assert isinstance(gating.harness.reserve_resize(f"pod-{number}", "1100m"), Reserved)
    gating.harness.pod("last", "1m")
    gating.settle()
    assert [one.is_intent for one in gating.harness.held().values()] == [True] * 8
    assert (gating.said()["state"], gating.most()) == ("Closed", "0")


def test_reservations_that_fill_half_of_the_ledger_gate_every_pod_until_many_are_gone(
    gating: Gating,
) -> None:
    gating.harness.max_reservations = 8
    for number in range(5):
        gating.harness.pod(f"pod-{number}", "1m")
        gating.harness.reserve(f"pod-{number}")
    gating.settle()
    assert gating.said()["gatesAll"]
    assert gating.said()["reason"] == "many pods hold reservations"
    gating.harness.bind("pod-0")
    gating.settle()
    assert gating.said()["gatesAll"]  # 4 of 8 would not have closed it
    gating.harness.bind("pod-1")
    gating.settle()
    assert (gating.said()["state"], gating.said()["gatesAll"]) == ("Open", False)


def test_assigned_pods_close_it(gating: Gating) -> None:
    gating.harness.pod("large", "7500m")
    gating.harness.bind("large")
    gating.settle()
    assert gating.most() == "0"


def test_a_queued_pod_closes_it_for_what_it_waits_for(gating: Gating) -> None:
    gating.harness.pod("runs", "3")
    gating.harness.bind("runs")
    gated(gating.harness, "waits", "6")
    gating.settle()
    assert gating.most() == "0"
    assert gating.harness.held() == {}


def test_a_pod_that_never_fits_does_not(gating: Gating) -> None:
    gated(gating.harness, "never", "9")
    gating.settle()
    assert gating.most() == "2"


def test_waiting_pods_are_judged_by_other_rules_where_the_namespace_rests_for_it_alone(
    gating: Gating,
) -> None:
    harness = gating.harness
    cache, queue = harness.controller.usage_cache, harness.state().pod_queue
    gated(harness, "never", "9")
    gating.settle()
    former = queue.criteria
    harness.policy = QueuePolicy(order=QueueingStrategy.BEST_EFFORT)
    demand = cache.demand(NAMESPACE, ())
    assert demand is not None
    assert (demand.is_counted, queue.criteria) == (False, former)
    harness.controller.requeue_waiting()
    gating.settle()
    demand = cache.demand(NAMESPACE, ())
    assert demand is not None
    assert (demand.is_counted, gating.most()) == (True, "2")


def test_what_pods_take_is_summed_while_others_have_the_lock(gating: Gating) -> None:
    """Of thousands of pods that is milliseconds, for which binds of all namespaces would wait."""
    cache, asked = gating.harness.controller.usage_cache, []

    class Reserved(frozenset[str]):
        def __contains__(self, uid: object) -> bool:
            asked.append(cache.lock.locked())
            return super().__contains__(uid)

    gating.harness.pod("runs", "3")
    gating.harness.bind("runs")
    gated(gating.harness, "waits", "6")
    gating.settle()
    demand = cache.demand(NAMESPACE, Reserved())
    assert demand is not None
    assert demand.queued is not None
    assert asked == [False]


def test_a_new_leader_closes_no_namespace_in_which_pods_wait(gating: Gating) -> None:
    """It has counted them while another one led, and judged none yet."""
    gated(gating.harness, "never", "9")
    gating.settle()
    gating.harness.epoch[0] = 0
    other = ControllerHarness(
        gating.harness.cluster,
        gating.harness.clock,
        may_admit_ungated=True,
        follows_ledgers=True,
        epoch=[0],
    )
    following = Gating(other)
    other.start()
    try:
        other.step()
        other.epoch[0] = 2
        following.controller.poll()
        wait_until_seen(other.cluster, [following.controller.gatings])
        assert following.controller.poll()
        following.controller.workers.drain()
        following.settle()
        assert following.writes() == 0
    finally:
        following.controller.stop()
        other.stop()


def test_one_that_is_reserved_for_counts_once(gating: Gating) -> None:
    gated(gating.harness, "fits", "4")
    gating.settle()
    assert set(gating.harness.held()) == {"fits"}
    assert gating.most() == "2"


def test_nothing_is_written_with_each_pod(gating: Gating) -> None:
    before = gating.writes()
    for number in range(4):
        gating.harness.pod(f"pod-{number}", "1")
        gating.step()
    assert gating.writes() == before


def test_what_gates_less_waits_and_what_gates_more_does_not(gating: Gating) -> None:
    gating.harness.pod("large", "7500m")
    gating.harness.bind("large")
    gating.step(0.2)
    assert gating.most() == "0"
    gating.harness.delete("large")
    for _ in range(3):
        gating.step(0.2)
        assert gating.most() == "0"
    gating.settle()
    assert gating.most() == "2"


def test_an_edited_quota_is_followed(gating: Gating) -> None:
    patch = {"spec": {"hard": {"requests.cpu": "80"}}}
    gating.harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    gating.settle()
    assert gating.most() == "20"


def test_headroom_of_another_namespace_closes_none(gating: Gating) -> None:
    harness = gating.harness
    parts = [{"namespaces": [OTHER], "amounts": {"requests.cpu": "8"}}]
    harness.api.create(NAMESPACES, a_namespace(OTHER))
    harness.api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("8", headroom=parts))
    gating.settle()
    harness.pod("other", "1", OTHER)
    assert isinstance(harness.reserve("other", OTHER), Reserved)
    assert granted(harness)[OTHER] == "4500m"
    gating.settle()
    assert gating.most() == "1"  # of 7 that are free; of 3500m it would be half of that


def test_namespaces_are_walked_through_once_for_all_shared_quotas_that_have_changed(
    gating: Gating, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[str] = []
    for name in ("sharing_namespaces", "all_sharing"):
        walk = getattr(UsageCache, name)

        def walked(*args: Any, walk: Any = walk) -> Any:
            walks.append(walk.__name__)
            return walk(*args)

        monkeypatch.setattr(UsageCache, name, walked)
    for number in range(3):
        quota = shared_quota("8", f"shared-{number}")
        gating.harness.api.create(CLUSTER_DEFERRED_QUOTAS, quota)
    gating.harness.step()
    gating.harness.pass_time(1)
    walks.clear()
    gating.controller.workers.drain()
    assert len(walks) == 1


def test_without_a_quota_nothing_is_limited(gating: Gating) -> None:
    gating.harness.api.delete(RESOURCE_QUOTAS, "p1", namespace=NAMESPACE)
    gating.settle()
    assert gating.said()["requests"] == {}
    assert gating.said()["state"] == "Open"


def test_what_another_writes_is_written_again(gating: Gating) -> None:
    api = gating.harness.api
    api.patch(POD_GATINGS, POD_GATING, {"spec": {"requests": {"cpu": "9"}}}, namespace=NAMESPACE)
    gating.settle()
    assert gating.most() == "2"
    api.delete(POD_GATINGS, POD_GATING, namespace=NAMESPACE)
    gating.settle()
    assert gating.most() == "2"


def test_a_namespace_that_is_gated_otherwise_has_none(gating: Gating) -> None:
    gating.gating = None
    gating.controller.requeue_all()
    gating.settle()
    assert gating.said() == {}


@pytest.mark.parametrize(("former", "gates_all"), [("always", True), ("never", False)])
def test_one_whose_former_label_says_otherwise_is_gated_as_that_says(
    gating: Gating, former: str, gates_all: bool
) -> None:
    gating.gating = former
    gating.controller.requeue_all()
    gating.settle()
    assert (gating.said()["gatesAll"], gating.said()["requests"]) == (gates_all, {})


def test_a_quota_that_cannot_be_read_gates_all(gating: Gating) -> None:
    broken: Any = a_quota("p2", uid="p2", hard={"requests.cpu": "8"}, scopes=["NoSuchScope"])
    broken["spec"]["hard"] = {"requests.cpu": "x"}
    gating.harness.cluster.load([(RESOURCE_QUOTAS, broken)])
    gating.settle()
    assert gating.said()["gatesAll"]
    assert gating.said()["reason"] == "a quota cannot be read"


def test_pods_in_flight_are_summed_as_they_come_and_go(gating: Gating) -> None:
    for number in range(3):
        gating.harness.pod(f"pod-{number}", "1500m")
    gating.settle()
    assert gating.most() == "1"
    gating.harness.bind("pod-0")
    gating.harness.delete("pod-1")
    gating.settle()
    assert gating.most() == "2"


def test_one_that_opts_out_has_none(gating: Gating) -> None:
    labels = {"deferredquota.io/mode": None}
    gating.harness.api.patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": labels}})
    gating.settle()
    assert gating.said() == {}


def test_a_standby_writes_nothing_and_a_new_leader_everything(gating: Gating) -> None:
    gating.harness.epoch[0] = 0
    gating.harness.pod("large", "7500m")
    gating.harness.bind("large")
    gating.settle()
    assert gating.most() == "2"
    gating.harness.epoch[0] = 2
    gating.settle()
    assert gating.most() == "0"


def test_a_standby_keeps_nothing_of_what_comes_and_goes(
    gating: Gating, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up: list[str] = []

    class Sharing(dict[str, Set[str]]):
        def get(self, name: str, default: Any = None) -> Any:
            looked_up.append(name)
            return default

    monkeypatch.setattr(UsageCache, "all_sharing", lambda _: Sharing())
    api = gating.harness.api
    gating.harness.epoch[0] = 0
    api.create(NAMESPACES, a_namespace("gone"))
    api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("8", "gone"))
    gating.step()
    api.delete(NAMESPACES, "gone")
    api.delete(CLUSTER_DEFERRED_QUOTAS, "gone")
    gating.step()
    assert len(gating.controller.workers.queue) == 0
    gating.harness.epoch[0] = 2
    api.create(CLUSTER_DEFERRED_QUOTAS, shared_quota("8", "new"))
    gating.settle()
    assert set(looked_up) == {"cdq/new"}


def begin_to_lead_after_an_edit(gating: Gating) -> None:
    """Let another leader count an edited quota, and this one lead before it has counted by it."""
    harness = gating.harness
    harness.epoch[0] = 0
    patch = {"spec": {"hard": {"requests.cpu": "8500m"}}}
    harness.api.patch(RESOURCE_QUOTAS, "p1", patch, namespace=NAMESPACE)
    with second_harness(harness, may_admit_ungated=True) as former_leader:
        former_leader.step()
    harness.catch_up()
    harness.epoch[0] = 2
    assert gating.controller.poll()
    gating.controller.workers.drain()


def test_a_new_leader_does_not_open_what_it_has_not_counted(gating: Gating) -> None:
    """The former leader has counted the edited quota, so the ledger is as that quota wants it."""
    harness = gating.harness
    harness.pod("runs", "3")
    harness.bind("runs")
    gated(harness, "waits", "6")
    gating.settle()
    assert gating.said()["state"] == "Closed"
    begin_to_lead_after_an_edit(gating)
    assert gating.said()["reason"] == "usage is being counted"
    gating.settle()
    assert (gating.said()["state"], gating.most()) == ("Closed", "0")
    harness.delete("waits")
    gating.settle()
    assert (gating.said()["state"], gating.most()) == ("Open", "2125m")


def test_a_new_leader_opens_what_it_has_counted(gating: Gating) -> None:
    """Nothing else changes: the ledger is what the former leader made of it."""
    begin_to_lead_after_an_edit(gating)
    assert gating.said()["gatesAll"]
    gating.settle()
    assert (gating.said()["state"], gating.most()) == ("Open", "2125m")


def test_a_write_that_fails_is_tried_again(gating: Gating) -> None:
    gating.harness.client.on("patch", POD_GATINGS, unavailable, times=2)
    gating.harness.pod("large", "7500m")
    gating.harness.bind("large")
    gating.settle()
    assert gating.most() == "0"


def test_a_namespace_rests_after_a_look_that_took_long(
    gating: Gating, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []
    demand = UsageCache.demand

    def slowly(*args: Any) -> object:
        gating.harness.processor_seconds += 0.2
        looked.append(gating.harness.clock[0])
        return demand(*args)

    monkeypatch.setattr(UsageCache, "demand", slowly)
    for number in range(40):
        labels = {"number": str(number)}
        gating.harness.pod("web", "1") if not number else gating.harness.api.patch(
            PODS, "web", {"metadata": {"labels": labels}}, namespace=NAMESPACE
        )
        gating.step(0.1)
    assert 2 <= len(looked) <= 4


def refuse_creation(gating: Gating) -> None:
    """Let nothing be created in the place of what is stored, as by a quota of a tenant."""
    refusal = fail(ForbiddenError("exceeded quota: none, requested: count/podgatings=1"))
    gating.harness.client.on("create", POD_GATINGS, refusal)
    gating.harness.api.delete(POD_GATINGS, POD_GATING, namespace=NAMESPACE)


def test_what_is_refused_is_not_tried_again_with_each_pod(gating: Gating) -> None:
    refuse_creation(gating)
    gating.harness.pod("web", "1")
    before = gating.writes()
    for number in range(50):
        labels = {"number": str(number)}
        gating.harness.api.patch(PODS, "web", {"metadata": {"labels": labels}}, namespace=NAMESPACE)
        gating.step(0.2)
    assert 3 < gating.writes() - before < 10


def test_what_was_refused_is_tried_at_once_where_the_namespace_opts_in_again(
    gating: Gating,
) -> None:
    refuse_creation(gating)
    for _ in range(30):
        gating.step()
    gating.harness.client.reset()
    for mode in (None, "deferred"):
        labels = {"metadata": {"labels": {MODE_LABEL: mode}}}
        gating.harness.api.patch(NAMESPACES, NAMESPACE, labels)
        gating.settle()
    assert gating.most() == "2"
