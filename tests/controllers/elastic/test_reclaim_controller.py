"""Reclaim: pods above what is guaranteed to their quota make room for pods that wait."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from tests.admission.handlers.harness import Reply, eventually, opt_out
from tests.builders import a_container
from tests.controllers.elastic.objects import a_pod_group, an_elastic_quota
from tests.controllers.elastic.world import Object, World, opted_in, world
from tests.counting import calls_of
from tests.install.recording import granted, used_rights
from tests.reactions import (
    Call,
    InterceptedWatch,
    Proceed,
    Reaction,
    Reactor,
    conflict,
    fail,
    for_name,
    forbid,
    in_namespace,
    throttle,
    unavailable,
)
from webhook.config import ReclaimMode
from webhook.controllers.elastic import (
    evictions,
    promise_reconciler,
    reclaim_controller,
    reclaim_planner,
)
from webhook.install import render
from webhook.jsonfields.reader import FieldReader
from webhook.kube.api import (
    ALL,
    CLUSTER_DEFERRED_QUOTAS,
    COMPOSITE_ELASTIC_QUOTAS,
    ELASTIC_QUOTAS,
    EVENTS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    QUOTA_LEDGERS,
    RESOURCE_QUOTAS,
    BadRequestError,
    InternalError,
    Kind,
    ListOptions,
    NotFoundError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from webhook.kube.informer import Informer
from webhook.operations.elastic.planning import plan_for
from webhook.operations.elastic.reading import read_elastic
from webhook.operations.explain.session import ExplainOptions, Session
from webhook.quota.ledger.ledger_codec import ledger_from_status
from webhook.quota.queue.pod_conditions import observed_condition
from webhook.state.ledger_store import LEDGER_NAME
from webhook.state.well_known import SCHEDULING_GATE

GPU = "nvidia.com/gpu"
POOL = {"epool_default": {"requests.cpu": "4"}}
A_AND_B = (an_elastic_quota("team-a", {"cpu": 2}), an_elastic_quota("team-b", {"cpu": 2}))


def a_node(name: str = "node-1", cpu: str = "100", **further: str) -> Object:
    allocatable = {"cpu": cpu, "memory": "100Gi", "pods": "110", **further}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": allocatable},
    }


class Reclaiming(World):
    """The two teams; the pods of team-b have all of the pool."""

    def start(
        self,
        name: str,
        namespace: str,
        labels: Object | None = None,
        *,
        unseen: Informer[Any] | None = None,
        **fields: Any,
    ) -> None:
        """Create a pod, and bind it once its gate is off; one cache need not see it."""
        self.create(name, namespace, metadata={"labels": labels or {}}, **fields)
        self.says(name, namespace, "Released")
        self.harness.catch_up(but=unseen)
        reply = self.harness.bind_in_fact(name, namespace=namespace)
        assert reply.allowed, reply
        running = {"status": {"phase": "Running"}}
        self.harness.api.patch(PODS, name, running, namespace=namespace, subresource="status")

    def create(
        self, name: str, namespace: str, cpu: str = "1", memory: str = "", **fields: object
    ) -> None:
        self.harness.pod(
            name=name,
            namespace=namespace,
            requests={"memory": memory} if memory else {"cpu": cpu},
            uid=f"{namespace}-{name}",
            terminationGracePeriodSeconds=30,
            **{"schedulingGates": [{"name": SCHEDULING_GATE}], **fields},
        )

    def ending(self, namespace: str = "team-b") -> list[str]:
        """Return the pods of a namespace that were evicted and have not ended."""
        pods = self.harness.api.list(PODS, ListOptions(namespace=namespace)).items
        read = [FieldReader(one).child("metadata") for one in pods]
        return sorted(one.text("name") for one in read if one.has("deletionTimestamp"))

    def promises(self, pool: str = "default") -> list[str]:
        """Return the names of the pods to which something of a pool is promised."""
        stored = self.harness.stored(CLUSTER_DEFERRED_QUOTAS, f"epool.{pool}", "")
        held = FieldReader(stored).child("status").children("promises")
        return sorted(one.text("pod") for one in held)

    def says_of(self, name: str, namespace: str = "team-a") -> str:
        """Return the text of a pod's condition."""
        found = observed_condition(self.harness.stored(PODS, name, namespace)).condition
        return "" if found is None else found.message

    def events(self, reason: str) -> list[str]:
        """Return the messages of the events with a reason."""
        listed = self.harness.api.list(EVENTS).items
        found = [FieldReader(one) for one in listed]
        return [one.text("message") for one in found if one.text("reason") == reason]


@contextmanager
def reclaiming(
    directory: Path,
    *objects: Object,
    mode: str = "Act",
    labels: Object | None = None,
    pod_group: str = "",
    owner: Object = A_AND_B[0],
    timeouts: Object | None = None,
    terminating: str = "Release",
    **reclaim: object,
) -> Iterator[Reclaiming]:
    """Open a world in which team-b has borrowed all that team-a does not use.

    Args:
        labels: Of the pods that are borrowed.
        pod_group: Name of the PodGroup that they are in; empty without.
        owner: The elastic quota whose min is borrowed.
        terminating: What the configuration says of pods that are being deleted.
    """
    elastic: Object = {"reclaim": {"mode": mode, "afterSeconds": 0, **reclaim}}
    settings: Object = {
        "elastic": elastic,
        "timeouts": timeouts or {},
        "terminatingPods": terminating,
    }
    given = (owner, A_AND_B[1], *(objects or (a_node(),)))
    with world(*given, directory=directory, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        here.wait_for(**POOL)
        for number in range(4):
            is_over = number > 1
            group = {"schedulingGroup": {"podGroupName": pod_group}}
            grouped: dict[str, Any] = group if pod_group else {}
            here.start(
                f"b{number}",
                "team-b",
                labels if is_over else None,
                **(grouped if is_over else {}),
            )
        over = {"b0": "in-quota", "b1": "in-quota", "b2": "over-quota", "b3": "over-quota"}
        eventually(lambda: here.labels("team-b") == over, "all are seen")
        yield here


def test_an_owner_gets_its_min_back_from_the_newest_pod_that_is_over(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        assert here.promises() == ["a0"]
        here.says("a0", "team-a", "Reclaiming")
        assert here.says_of("a0") == (
            "elastic pool default is used up, requested: cpu=1, used: cpu=4, size: cpu=4; evicting"
            " team-b/b3 (cpu=1), by its own claim; host ports, volumes, topology spread, pod"
            " affinity and devices are not judged; place 1 of 1"
        )
        here.create("b4", "team-b")  # its controller makes it again
        here.end("b3", "team-b")
        here.says("a0", "team-a", "Released")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        here.says("b4", "team-b", "QuotaExceeded")
        assert here.ending() == []
        stays = "which stays within the min of its quota"
        eventually(
            lambda: (
                here.events("Reclaimed")
                == [f"evicted for pod team-a/a0 of eq/q, {stays}; this frees cpu=1"]
            ),
            "the victim says why",
        )
        quotas = {"victim": "ElasticQuota team-b/q", "beneficiary": "ElasticQuota team-a/q"}
        assert here.metric("elastic_evictions_total", **quotas) == 1
        eventually(
            lambda: here.metric("elastic_plans_total", outcome="bound") == 1, "the plan came true"
        )


def test_no_pod_is_evicted_for_what_no_bind_is_charged_for(tmp_path: Path) -> None:
    def asking(disk: str) -> dict[str, Any]:
        return {"containers": [a_container(requests={"cpu": "1", "ephemeral-storage": disk})]}

    least: Object = {"cpu": 2, "ephemeral-storage": "2Gi"}
    given = [an_elastic_quota(name, least) for name in ("team-a", "team-b")]
    settings: Object = {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0}}}
    node = a_node()
    node["status"]["allocatable"]["ephemeral-storage"] = "9Gi"  # type: ignore[index]
    with world(*given, node, directory=tmp_path, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        here.wait_for(**POOL)
        for name in ("b0", "b1", "b2", "b3"):
            here.start(name, "team-b", **asking("1Gi"))
        over = {"b0": "in-quota", "b1": "in-quota", "b2": "over-quota", "b3": "over-quota"}
        eventually(lambda: here.labels("team-b") == over, "all are seen")
        here.create("a0", "team-a", **asking("2Gi"))
        eventually(lambda: here.ending() == ["b3"], "for its cpu")
        here.end("b3", "team-b")
        here.says("a0", "team-a", "Released")
        assert here.ending() == []
        assert "ephemeral-storage" not in str(here.events("Reclaiming"))


def one_place() -> Object:
    """Return a node for one pod of 1 cpu."""
    node = a_node("fast", cpu="1")
    node["metadata"] = {"name": "fast", "labels": FAST}
    return node


@pytest.mark.parametrize("is_released", [False, True])
def test_a_place_that_another_pod_is_about_to_take_has_nothing_evicted(
    tmp_path: Path, *, is_released: bool
) -> None:
    """Until that one is gone, whether quota is promised to it or reserved."""
    with reclaiming(tmp_path, a_node(), one_place(), coolDownSeconds=0) as here:
        here.create("a0", "team-a", nodeSelector=FAST)
        eventually(lambda: here.ending() == ["b3"], "for the first")
        if is_released:
            here.end("b3", "team-b")
            here.says("a0", "team-a", "Released")
        evicted = here.ending()
        here.create("a1", "team-a", nodeSelector=FAST)
        no_place = "no node has room for it after any plan"
        eventually(lambda: no_place in here.says_of("a1"), "the second has no plan")
        assert here.ending() == evicted
        here.end("a0", "team-a")
        if is_released:
            eventually(lambda: here.reason("a1", "team-a") == "Released", "it has that quota")
        else:
            eventually(lambda: here.promises() == ["a1"], "it has that promise")
        assert here.ending() == evicted


def test_a_ceiling_of_what_no_bind_is_charged_for_keeps_no_owner_from_its_min(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path, owner=an_elastic_quota("team-a", {"cpu": 2}, {"pods": 1})) as here:
        for name, victim in (("a0", "b3"), ("a1", "b2")):
            here.create(name, "team-a")
            eventually(lambda victim=victim: here.ending() == [victim], name)  # type: ignore[misc]
            here.end(victim, "team-b")
            here.says(name, "team-a", "Released")
            here.harness.catch_up()
            assert here.harness.bind_in_fact(name, namespace="team-a").allowed
        within = {"a0": "in-quota", "a1": "in-quota"}
        eventually(lambda: here.labels("team-a") == within, "of its min")


@pytest.mark.parametrize("takes_long", [False, True])
def test_a_second_pod_is_planned_for_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, takes_long: bool
) -> None:
    if takes_long:  # each plan of the pool, so that others have their turn after it
        monkeypatch.setattr(reclaim_planner, "_LONG", -1.0)
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        here.create("a1", "team-a")
        eventually(lambda: here.ending() == ["b3"], "for the first")
        here.end("b3", "team-b")
        eventually(lambda: here.ending() == ["b2"], "then for the second")
        here.end("b2", "team-b")
        for name in ("a0", "a1"):
            here.says(name, "team-a", "Released")
        here.create("a2", "team-a")
        here.says("a2", "team-a", "QuotaExceeded")
        eventually(lambda: "nothing is evicted for it" in here.says_of("a2"), "it has its min")
        assert here.ending() == []


def test_a_pod_behind_the_first_is_planned_for_before_that_is_released(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        here.create("a1", "team-a")
        eventually(lambda: here.ending() == ["b2", "b3"], "one is evicted for each")
        assert here.promises() == ["a0", "a1"]
        for name in ("a0", "a1"):
            here.says(name, "team-a", "Reclaiming")
        here.end("b2", "team-b")
        here.end("b3", "team-b")
        for name in ("a0", "a1"):
            here.says(name, "team-a", "Released")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        assert here.events("ReclaimWithdrawn") == []


FAST: Object = {"zone": "fast"}


def label_node(here: Reclaiming, zone: str) -> None:
    labels = {"metadata": {"labels": {"zone": zone}}}
    here.harness.api.patch(NODES, "node-1", labels)


def test_nothing_is_evicted_for_a_pod_behind_one_without_a_plan(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a", nodeSelector=FAST)
        here.create("a1", "team-a")
        eventually(lambda: "no node has room" in here.says_of("a0"), "the first has no plan")
        here.says("a1", "team-a", "Behind")
        time.sleep(2.5)
        assert (here.ending(), here.promises()) == ([], [])
        label_node(here, "fast")
        eventually(lambda: here.promises() == ["a0", "a1"], "it has one, and the next one too")


def test_with_the_promise_of_a_pod_those_behind_it_end(tmp_path: Path) -> None:
    with reclaiming(tmp_path, coolDownSeconds=600) as here:
        here.harness.client.on("create", PODS, unavailable, subresource="eviction")
        label_node(here, "fast")
        here.create("a0", "team-a", nodeSelector=FAST)
        here.create("a1", "team-a")
        eventually(lambda: here.promises() == ["a0", "a1"], "both are promised")
        label_node(here, "slow")
        eventually(lambda: here.promises() == [], "no plan is left for the first")
        no_node = "no node has room for it after any plan"
        said = [
            f"nothing is held for it any more: {no_node}",
            f"nothing is held for it any more: it waits behind pod a0: {no_node}",
        ]
        eventually(lambda: sorted(here.events("ReclaimWithdrawn")) == sorted(said), "events say so")
        here.says("a0", "team-a", "QuotaExceeded")
        here.says("a1", "team-a", "Behind")


@contextmanager
def reclaiming_memory(directory: Path, memory: str) -> Iterator[Reclaiming]:
    """Open a world in which the pod m0 of team-b has memory of a pool of 2Gi, half of it team-a's.

    Promises last a second.
    """
    with reclaiming(directory, timeouts={"gateReleaseSeconds": 1}) as here:
        least: Object = {"spec": {"min": {"cpu": 2, "memory": "1Gi"}}}
        for namespace in ("team-a", "team-b"):
            here.harness.api.patch(ELASTIC_QUOTAS, "q", least, namespace=namespace)
        here.wait_for(epool_default={**POOL["epool_default"], "requests.memory": "2Gi"})
        here.start("m0", "team-b", memory=memory)
        yield here


def test_a_promise_that_has_its_room_outlasts_that_of_the_pod_before(tmp_path: Path) -> None:
    with reclaiming_memory(tmp_path, "2Gi") as here:
        here.create("a0", "team-a", memory="1Gi")
        here.create("a1", "team-a")
        eventually(lambda: here.ending() == ["b3", "m0"], "one is evicted for each")
        here.end("b3", "team-b")
        time.sleep(3.5)
        assert (here.promises(), here.events("ReclaimWithdrawn")) == (["a0", "a1"], [])
        here.end("m0", "team-b")
        for name in ("a0", "a1"):
            here.says(name, "team-a", "Released")


@pytest.mark.parametrize("is_late", [False, True])
def test_the_promise_of_a_pod_behind_one_that_is_gone_stays(
    tmp_path: Path, *, is_late: bool
) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        here.create("a1", "team-a")
        eventually(lambda: here.promises() == ["a0", "a1"], "both are promised")
        if is_late:  # the cache is
            here.harness.client.pause(PODS)
        here.end("a0", "team-a")
        said = ["nothing is held for it any more: the pod is gone"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "that of the first ends")
        here.harness.client.resume()
        here.end("b3", "team-b")
        here.end("b2", "team-b")
        here.says("a1", "team-a", "Released")
        assert here.events("ReclaimWithdrawn") == said


def test_a_pod_that_goes_stops_no_plan_for_another_namespace_of_its_quota(tmp_path: Path) -> None:
    """Its creator decides when, again and again."""
    both = an_elastic_quota("team-c", {"cpu": 2}, namespaces=["team-a", "team-c"])
    with reclaiming(tmp_path, owner=both, coolDownSeconds=600) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.end("a0", "team-a")
        eventually(lambda: here.promises() == [], "what was promised is withdrawn")
        here.create("a1", "team-a")
        here.create("c0", "team-c")
        eventually(lambda: here.promises() == ["c0"], "the other namespace gets it")
        here.end("b3", "team-b")
        here.says("c0", "team-c", "Released")
        here.says("a1", "team-a", "QuotaExceeded")
        assert here.ending() == []


def test_an_owner_whose_bind_was_denied_gets_its_min_back(tmp_path: Path) -> None:
    """Its gate went when quota was reserved for it, and nothing is reserved any more."""
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a", schedulingGates=[])
        denied = (
            'running Bind plugin "DefaultBinder": admission webhook "bind.deferredquota.io" denied'
            " the request: elastic pool default is used up"
        )
        said = {"type": "PodScheduled", "status": "False", "reason": "SchedulerError"}
        condition = {**said, "message": denied}
        status = {"status": {"conditions": [condition]}}
        here.harness.api.patch(PODS, "a0", status, namespace="team-a", subresource="status")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        eventually(lambda: "evicting team-b/b3" in here.says_of("a0"), "it says so")
        here.create("b4", "team-b")
        here.end("b3", "team-b")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        here.says("b4", "team-b", "QuotaExceeded")
        eventually(lambda: "quota is reserved" in here.says_of("a0"), "it says so")
        here.harness.catch_up()
        assert here.harness.bind_in_fact("a0", namespace="team-a").allowed
        assert here.ending() == []


def test_by_default_a_plan_is_said_and_nothing_is_evicted(tmp_path: Path) -> None:
    with reclaiming(tmp_path, mode="Plan") as here:
        here.create("a0", "team-a")
        eventually(lambda: "would evict team-b/b3 (cpu=1)" in here.says_of("a0"), "it is said")
        assert "elastic.reclaim.mode is Plan" in here.says_of("a0")
        assert (here.ending(), here.promises()) == ([], [])


def test_the_command_plans_as_the_controller_beside_a_released_pod(tmp_path: Path) -> None:
    with reclaiming(tmp_path, mode="Plan") as here:
        here.end("b3", "team-b")
        here.create("a0", "team-a")
        here.says("a0", "team-a", "Released")
        here.harness.catch_up()
        here.create("a1", "team-a")
        eventually(lambda: "would evict team-b/b2 (cpu=1)" in here.says_of("a1"), "it is said")
        session = Session(here.harness.api, ExplainOptions())
        raw = here.harness.stored(PODS, "a1", "team-a")
        found = plan_for(session, read_elastic(session, 32), raw)
        assert [one.name for one in found.plan.victims] == ["b2"]
        assert found.notes == ()


def test_off_says_nothing(tmp_path: Path) -> None:
    with reclaiming(tmp_path, mode="Off") as here:
        here.create("a0", "team-a")
        here.says("a0", "team-a", "QuotaExceeded")
        assert "evict" not in here.says_of("a0")


def a_budget(allowed: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "team-b"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1},
    }


def test_what_a_disruption_budget_protects_stays(tmp_path: Path) -> None:
    """nos: deletes victims, which no budget stops."""
    with reclaiming(tmp_path, a_node(), a_budget(0), labels={"app": "web"}) as here:
        here.create("a0", "team-a")
        eventually(lambda: "a PodDisruptionBudget" in here.says_of("a0"), "it is said")
        assert (here.ending(), here.promises()) == ([], [])
        more = {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
        here.harness.api.patch(
            POD_DISRUPTION_BUDGETS, "web", more, namespace="team-b", subresource="status"
        )
        eventually(lambda: here.ending() == ["b3"], "it is evicted once that is allowed")


def test_nothing_is_evicted_for_a_pod_that_its_ledger_has_no_place_for(tmp_path: Path) -> None:
    """It would not be released although it had its room, and others would be evicted anew."""
    reclaim: Object = {"mode": "Act", "afterSeconds": 0}
    limits: Object = {"reservationsPerNamespace": 10}
    settings: Object = {"elastic": {"reclaim": reclaim}, "limits": limits}
    with world(*A_AND_B, a_node(), directory=tmp_path, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        here.wait_for(**POOL)
        for name in ("b0", "b1", "b2"):
            here.start(name, "team-b")
        released = [f"x{number}" for number in range(8)]  # three quarters, rounded up
        for name in released:
            here.create(name, "team-a", cpu="1m")
            here.says(name, "team-a", "Released")
        here.create("a0", "team-a")
        no_place = "nothing is evicted for it: quota is reserved for as many pods"
        eventually(lambda: no_place in here.says_of("a0"), "it says so")
        assert (here.ending(), here.promises()) == ([], [])
        here.end(released[0], "team-a")
        eventually(lambda: here.ending() == ["b2"], "there is a place")


def test_a_pod_that_has_not_started_is_protected_by_no_budget(tmp_path: Path) -> None:
    """The API server evicts it, whatever budgets say."""
    with reclaiming(tmp_path, a_node(), a_budget(0), labels={"app": "web"}) as here:
        here.create("a0", "team-a")
        eventually(lambda: "a PodDisruptionBudget" in here.says_of("a0"), "it is said")
        again = {"status": {"phase": "Pending"}}
        here.harness.api.patch(PODS, "b2", again, namespace="team-b", subresource="status")
        eventually(lambda: here.ending() == ["b2"], "it is evicted, though it is the older one")


def test_a_pod_that_is_not_ready_is_protected_by_no_budget_that_says_so(tmp_path: Path) -> None:
    budget = a_budget(0)
    budget["spec"] = {**cast("Object", budget["spec"]), "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    with reclaiming(tmp_path, a_node(), budget, labels={"app": "web"}) as here:
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        here.harness.api.patch(PODS, "b3", ready, namespace="team-b", subresource="status")
        here.harness.catch_up()
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b2"], "the older one is evicted, which is not ready")


def test_a_pod_that_is_gone_is_promised_nothing(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.create("b4", "team-b")
        here.end("a0", "team-a")
        eventually(lambda: here.promises() == [], "nothing is promised any more")
        eventually(
            lambda: (
                here.events("ReclaimWithdrawn")
                == ["nothing is held for it any more: the pod is gone"]
            ),
            "an event says so",
        )
        here.end("b3", "team-b")
        here.says("b4", "team-b", "Released")


def test_a_pod_has_its_turn_at_evictions_for_as_long_as_it_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = calls_of(monkeypatch, reclaim_controller, "Evictor")
    with reclaiming(tmp_path) as here:
        ((*_, waits),) = made
        assert not waits("team-a-a0")
        here.create("a0", "team-a")
        here.create("a1", "team-a")
        eventually(lambda: here.ending() == ["b2", "b3"], "one is evicted for each")
        assert waits("team-a-a0")
        assert waits("team-a-a1")
        here.end("a1", "team-a")
        eventually(lambda: not waits("team-a-a1"), "it is gone")
        assert waits("team-a-a0")
        here.end("b3", "team-b")
        eventually(lambda: not waits("team-a-a0"), "it is released")


def promise(pod: str, uid: str, namespace: str = "team-a") -> Object:
    return {"uid": uid, "namespace": namespace, "pod": pod, "amounts": {"requests.cpu": "1m"}}


def forge(here: Reclaiming, promises: list[Object]) -> None:
    """Write promises beside those of the leader, as its token could."""
    held = FieldReader(here.derived()["epool.default"]).child("status").children("promises")
    here.harness.client.calls.clear()
    write_promises(here, [*(promise(one.text("pod"), one.text("uid")) for one in held), *promises])


def write_promises(here: Reclaiming, promises: list[Object]) -> None:
    here.harness.api.patch(
        CLUSTER_DEFERRED_QUOTAS,
        "epool.default",
        [{"op": "add", "path": "/status/promises", "value": promises}],
        subresource="status",
    )


FORGED = [promise(f"forged-{number}", f"0-{number}") for number in range(60)]


def of_waiting_pods(reaction: Reaction) -> Reaction:
    """React to lists of the pods without a node alone."""

    def react(call: Call, proceed: Proceed) -> object:
        is_meant = call.selection.field_selector == "spec.nodeName="
        return reaction(call, proceed) if is_meant else proceed()

    return react


def test_many_promises_of_pods_that_are_not_there_go_with_one_list_and_one_write(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        forge(here, FORGED)
        eventually(lambda: here.promises() == ["a0"], "only the leader's is left")
        calls = list(here.harness.client.calls)
        assert not [call for call in calls if call.name.startswith("forged-")]
        lists = [call for call in calls if call.selection.field_selector == "spec.nodeName="]
        assert [call.options["is_brief"] for call in lists] == [True]
        writes = [call for call in calls if (call.verb, call.name) == ("update", "epool.default")]
        assert len(writes) < 5  # one for all of them, and what others write meanwhile
        here.end("b3", "team-b")
        here.says("a0", "team-a", "Released")
        here.create("a1", "team-a")
        eventually(lambda: here.ending() == ["b2"], "its quota is not kept from further plans")
        assert here.events("ReclaimWithdrawn") == []


def test_a_few_promises_of_pods_that_none_may_be_called_end(tmp_path: Path) -> None:
    """A client refuses to ask for them; what is promised would be held for good."""

    def refused_if_odd(call: Call, proceed: Proceed) -> object:
        if "/" in call.name or "/" in call.namespace:
            raise BadRequestError(f"metadata.name: Invalid value: {call.name!r}")
        return proceed()

    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.harness.client.on("get", PODS, refused_if_odd)
        forge(here, [promise("a/b", "0-1"), promise("web", "0-2", "team-a/pods")])
        eventually(lambda: here.promises() == ["a0"], "only the leader's is left")


def test_promises_that_cannot_be_looked_into_keep_no_other_from_being_kept(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.harness.client.on("list", PODS, of_waiting_pods(unavailable), times=1)
        forge(here, FORGED)
        here.end("b3", "team-b")
        here.says("a0", "team-a", "Released")
        eventually(lambda: here.promises() == [], "the next list shows that they are gone")


def test_of_many_promises_those_of_pods_that_no_cache_shows_yet_are_kept(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.harness.client.pause(PODS)
        late = [f"late-{number}" for number in range(60)]
        for name in late:
            here.wait(name, "team-a")
        forge(here, [*(promise(name, f"team-a-{name}") for name in late), *FORGED])
        eventually(lambda: here.promises() == sorted(["a0", *late]), "only the forged ones go")


@pytest.mark.parametrize("mode", ["Off", "Plan"])
def test_where_nothing_is_reclaimed_all_promises_go_with_one_write(
    tmp_path: Path, mode: str
) -> None:
    with reclaiming(tmp_path, mode=mode) as here:
        forge(here, FORGED)
        eventually(lambda: here.promises() == [], "none is held any more")
        calls = here.harness.client.calls_of("update", CLUSTER_DEFERRED_QUOTAS)
        assert len(calls) < 5  # one for all of them, and what others write meanwhile


NO_CPU: Object = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "none", "namespace": "team-a"},
    "spec": {"hard": {"requests.cpu": "0"}},
}


def test_a_promise_that_is_not_used_ends_although_pods_go_on_ending(tmp_path: Path) -> None:
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 1}) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.harness.api.create(RESOURCE_QUOTAS, NO_CPU)
        here.harness.catch_up()
        for name in ("b2", "b3"):
            here.harness.api.delete(PODS, name, namespace="team-b", grace_period_seconds=30)
        here.end("b3", "team-b")
        eventually(lambda: here.promises() == [], "it is withdrawn while b2 is ending")
        assert here.ending() == ["b2"]
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")


def hide(here: Reclaiming) -> None:
    """Have no look at a0 answered."""
    here.harness.client.on("get", PODS, for_name("a0", unavailable))


def rename_resource(here: Reclaiming) -> None:
    """Have the pool name nothing any more that a0 asks for, which another quota keeps."""
    here.harness.api.create(RESOURCE_QUOTAS, NO_CPU)
    for name in ("team-a", "team-b"):
        spec: Object = {"spec": {"min": {"cpu": None, "memory": "2Gi"}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", spec, namespace=name)
    here.wait_for(epool_default={"requests.memory": "4Gi"})


@pytest.mark.parametrize("hinder", [hide, rename_resource])
def test_a_promise_that_cannot_be_gone_on_with_ends_in_time(
    tmp_path: Path, hinder: Callable[[Reclaiming], None]
) -> None:
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 2}) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        hinder(here)
        assert here.promises() == ["a0"]
        eventually(lambda: here.promises() == [], "nothing is held for it any more")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")


def test_a_promise_outlasts_the_wait_for_further_evictions(tmp_path: Path) -> None:
    """Of two evictions a minute one quota gets one, and the promise needs two."""
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 1}, maxEvictionsPerMinute=2) as here:
        here.create("a0", "team-a", cpu="2")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        here.end("b3", "team-b")
        eventually(lambda: here.ending() == [], "it has ended")
        time.sleep(2.5)
        assert (here.promises(), here.events("ReclaimWithdrawn")) == (["a0"], [])


def let_one_go(here: Reclaiming) -> None:
    """Have a budget of team-b close once it let one pod go."""
    gone: list[str] = []

    def evict(call: Call, proceed: Proceed) -> object:
        gone.append(call.name)
        if len(gone) > 1:
            throttle(call, proceed)
        return proceed()

    here.harness.client.on("create", PODS, in_namespace("team-b", evict), subresource="eviction")


def test_a_promise_whose_further_victims_may_not_go_outlasts_the_first_alone(
    tmp_path: Path,
) -> None:
    with reclaiming_memory(tmp_path, "1Gi") as here:
        let_one_go(here)
        here.create("a0", "team-a", cpu="2")
        eventually(lambda: here.ending() == ["b3"], "one of two is evicted")
        time.sleep(3.5)
        assert (here.promises(), here.events("ReclaimWithdrawn")) == (["a0"], [])
        here.harness.api.delete(PODS, "m0", namespace="team-b", grace_period_seconds=30)
        here.end("b3", "team-b")
        eventually(lambda: here.promises() == [], "what is free is held no longer")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")
        assert here.ending() == ["m0"]


@contextmanager
def half_way(directory: Path, **fields: Any) -> Iterator[tuple[Reclaiming, Reactor]]:
    """Open a world in which one of two pods was evicted for a0, and r was released beside it.

    Yields it with what has no other pod evicted. r leaves too little memory on the only node.
    """
    memory: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "m", "namespace": "team-a"},
        "spec": {"hard": {"requests.memory": "1Ti"}},
    }
    with reclaiming(directory, **fields) as here:
        here.harness.api.create(RESOURCE_QUOTAS, memory)
        here.harness.catch_up()
        closed = here.harness.client.on(
            "create", PODS, for_name("b2", unavailable), subresource="eviction"
        )
        here.create("a0", "team-a", containers=[asking("2", "60Gi")])
        eventually(lambda: here.ending() == ["b3"], "one of two is evicted")
        here.end("b3", "team-b")
        here.create("r", "team-a", containers=[asking("0", "50Gi")])
        here.says("r", "team-a", "Released")
        yield here, closed


def asking(cpu: str, memory: str) -> Object:
    return a_container(requests={"cpu": cpu, "memory": memory})


def test_a_promise_whose_place_is_taken_half_way_goes_on_once_it_is_free(tmp_path: Path) -> None:
    """By a pod that was released meanwhile: the first eviction would have gone in vain."""
    with half_way(tmp_path) as (here, closed):
        time.sleep(2.5)
        closed.remove()
        time.sleep(2.5)
        assert (here.promises(), here.ending()) == (["a0"], [])
        here.end("r", "team-a")
        eventually(lambda: here.ending() == ["b2"], "then the second goes")
        here.end("b2", "team-b")
        here.says("a0", "team-a", "Released")
        assert here.events("ReclaimWithdrawn") == []


def test_a_promise_whose_place_stays_taken_half_way_ends_in_time(tmp_path: Path) -> None:
    with half_way(tmp_path, timeouts={"gateReleaseSeconds": 3}) as (here, closed):
        assert here.harness.bind_in_fact("r", namespace="team-a").allowed
        closed.remove()
        time.sleep(1.5)
        assert here.promises() == ["a0"]
        eventually(lambda: here.promises() == [], "nothing is held for it any more")
        said = ["nothing is held for it any more: no node has room for it after any plan"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")
        assert here.ending() == []


def test_a_promise_whose_further_victims_may_not_go_ends_before_that_of_the_pod_before(
    tmp_path: Path,
) -> None:
    with reclaiming_memory(tmp_path, "2Gi") as here:
        here.harness.client.on("create", PODS, for_name("b2", throttle), subresource="eviction")
        here.harness.client.on("create", PODS, for_name("b1", throttle), subresource="eviction")
        here.create("a0", "team-a", memory="1Gi")
        here.create("a1", "team-a", cpu="2")
        eventually(lambda: here.ending() == ["b3", "m0"], "one is evicted for each")
        here.end("b3", "team-b")
        eventually(lambda: here.promises() == ["a0"], "what it cannot use is held no longer")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")
        assert here.ending() == ["m0"]


def test_no_promise_outlasts_its_time_by_pods_that_end_in_another_pool(tmp_path: Path) -> None:
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 1}) as here:
        lend_in_another_pool(here)
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        counted = in_namespace("team-b", conflict)
        here.harness.client.on("update", QUOTA_LEDGERS, counted, subresource="status")
        here.harness.api.delete(PODS, "c1", namespace="team-c", grace_period_seconds=30)
        here.end("b3", "team-b")
        eventually(lambda: here.promises() == [], "it is withdrawn while c1 is ending")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")
        assert here.ending("team-c") == ["c1"]


def replace_until_withdrawn(here: Reclaiming, held: str, cpu: str = "1", **pool: str) -> None:
    """Have team-d replace its pod d0 again and again, for each of which the next has a promise.

    Args:
        held: The pod whose promise has to go meanwhile.
    """
    ended = time.monotonic() + 8
    for number in itertools.count(1):
        former, name = f"d{number - 1}", f"d{number}"
        here.harness.api.delete(PODS, former, namespace="team-d", grace_period_seconds=30)
        here.create(name, "team-d", cpu=cpu)
        eventually(
            lambda: name in here.promises(**pool) or held not in here.promises(),  # noqa: B023
            "it is promised to the next",
        )
        if held not in here.promises():
            return
        assert time.monotonic() < ended, f"it is held after {number} other promises"
        here.end(former, "team-d")
        here.says(name, "team-d", "Released")
        eventually(lambda: name not in here.promises(**pool), "it is promised no more")  # noqa: B023
        here.harness.catch_up()
        assert here.harness.bind_in_fact(name, namespace="team-d").allowed


def test_no_promise_outlasts_its_time_by_promises_of_another_pool_that_end_well(
    tmp_path: Path,
) -> None:
    """A tenant makes a new one as often as it replaces a pod of its own."""
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 2}) as here:
        lend_in_another_pool(here)
        here.end("c1", "team-c")
        here.start("d0", "team-d")
        let_one_go(here)
        here.create("a0", "team-a", cpu="2")
        eventually(lambda: len(here.ending()) == 1, "one of two is evicted")
        here.end(here.ending()[0], "team-b")
        replace_until_withdrawn(here, "a0", pool="other")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")


@contextmanager
def reclaiming_fairly(directory: Path, **requests: str) -> Iterator[Reclaiming]:
    """Open a world in which c1 of team-c is evicted by the fair claim of p1.

    team-a runs 1 cpu of its min of 2 and gets 1.2 more, team-b 1.4 of 2, and team-d 0.1 of 0.2.

    Args:
        requests: What p1 asks for besides.
    """
    reclaim: Object = {"mode": "Act", "afterSeconds": 0}
    settings: Object = {"elastic": {"reclaim": reclaim}, "timeouts": {"gateReleaseSeconds": 3}}
    mins = {"team-a": "2", "team-b": "2", "team-c": "2", "team-d": "200m"}
    quotas = [an_elastic_quota(name, {"cpu": cpu}) for name, cpu in mins.items()]
    given = (opted_in("team-d", is_gated=True), *quotas, a_node())
    with world(*given, directory=directory, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        here.wait_for(epool_default={"requests.cpu": "6200m"})
        for name, namespace, cpu in (
            ("a0", "team-a", "1"),
            ("b0", "team-b", "1400m"),
            ("d0", "team-d", "50m"),
            ("d", "team-d", "50m"),
        ):
            here.start(name, namespace, cpu=cpu)
        for name, cpu in (("c00", "1"), ("c0", "1"), ("c1", "1200m"), ("c2", "500m")):
            here.start(name, "team-c", cpu=cpu, priority=0 if cpu != "1" else 10)
        here.create("p1", "team-a", containers=[a_container(requests={"cpu": "1200m", **requests})])
        eventually(lambda: here.ending("team-c") == ["c1"], "one is evicted for it")
        eventually(lambda: "by its fair claim" in here.says_of("p1"), "it says so")
        yield here


def test_a_pod_gets_what_is_promised_to_it_while_an_owner_waits(tmp_path: Path) -> None:
    """The owner cannot have it: each would wait for the other."""
    with reclaiming_fairly(tmp_path) as here:
        here.create("b1", "team-b", cpu="500m")
        eventually(lambda: here.ending("team-c") == ["c1", "c2"], "one is evicted for the owner")
        here.create("b2", "team-b", cpu="100m")
        here.says("b2", "team-b", "Behind")
        here.end("c2", "team-c")
        here.end("c1", "team-c")
        for name, namespace in (("b1", "team-b"), ("p1", "team-a")):
            here.says(name, namespace, "Released")
        assert here.reason("b2", "team-b") != "Released"
        assert here.events("ReclaimWithdrawn") == []


def test_no_promise_that_has_its_room_outlasts_its_time_by_others_that_end_well(
    tmp_path: Path,
) -> None:
    """Its pod lacks what no elastic quota counts; other pods of its pool come and go."""
    memory: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "memory", "namespace": "team-a"},
        "spec": {"hard": {"requests.memory": "1Gi"}},
    }
    with reclaiming_fairly(tmp_path, memory="1Gi") as here:
        here.harness.api.create(RESOURCE_QUOTAS, memory)
        here.harness.catch_up()
        here.create("m", "team-a", memory="1Gi")
        here.says("m", "team-a", "Released")
        for name in ("c1", "c2"):
            here.end(name, "team-c")
        here.start("b1", "team-b", cpu="500m")  # uses what is free beside the promise
        replace_until_withdrawn(here, "p1", cpu="50m")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")


def keep(here: Reclaiming, name: str) -> None:
    """Have a finalizer keep a pod of team-b."""
    kept: Object = {"metadata": {"finalizers": ["example.com/kept"]}}
    here.harness.api.patch(PODS, name, kept, namespace="team-b")


def test_a_promise_outlasts_a_pod_that_is_charged_past_its_grace_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promise_reconciler, "_ENDING_MARGIN", -59.0)  # a minute is as a second
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 1}) as here:
        here.harness.api.delete(PODS, "b3", namespace="team-b", grace_period_seconds=60)
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "what it frees is promised")
        time.sleep(4.5)
        assert (here.promises(), here.events("ReclaimWithdrawn")) == (["a0"], [])


def test_a_pod_that_is_charged_until_it_is_gone_keeps_no_owner_from_its_min(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path, terminating="Hold") as here:
        keep(here, "b3")
        here.harness.api.delete(PODS, "b3", namespace="team-b", grace_period_seconds=1)
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "what it should free is promised")
        eventually(lambda: here.ending() == ["b2", "b3"], "a pod that runs goes in its place")
        here.end("b2", "team-b")
        here.says("a0", "team-a", "Released")
        assert (here.ending(), here.events("ReclaimWithdrawn")) == (["b3"], [])


def test_a_promise_that_is_kept_at_the_last_moment_is_not_withdrawn(tmp_path: Path) -> None:
    """The pod is reserved for while the promise is being looked at, whose time is over."""
    with reclaiming(tmp_path, timeouts={"gateReleaseSeconds": 1}) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        held = here.harness.client.on(
            "update", QUOTA_LEDGERS, in_namespace("team-a", conflict), subresource="status"
        )
        is_over = threading.Event()

        def is_reserved() -> bool:
            ledger = ledger_from_status(
                here.harness.stored(QUOTA_LEDGERS, LEDGER_NAME, "team-a").get("status")
            )
            return ledger is not None and "team-a-a0" in ledger.reservations

        def look(_call: Call, proceed: Proceed) -> object:
            found = proceed()
            if is_over.is_set() and not is_reserved():
                time.sleep(1.2)
                held.remove()
                eventually(is_reserved, "it is reserved for just now")
            return found

        here.harness.client.on("get", PODS, for_name("a0", look))
        here.end("b3", "team-b")
        is_over.set()
        here.says("a0", "team-a", "Released")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        assert here.metric("elastic_plans_total", outcome="bound") == 1
        assert here.events("ReclaimWithdrawn") == []


def test_a_change_of_a_pod_that_waits_leaves_it_what_is_promised(tmp_path: Path) -> None:
    """A change that may move it between scopes is an intent in the ledger, which holds nothing."""
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        old = here.harness.stored(PODS, "a0", "team-a")
        spec = {**cast("Object", old["spec"]), "activeDeadlineSeconds": 900}
        assert here.harness.change_pod(old, {**old, "spec": spec}).allowed
        assert here.harness.reservations("team-a")["a0"]["intent"]
        time.sleep(2.5)  # promises are looked at each second
        bound = here.metric("elastic_plans_total", outcome="bound")
        assert (here.promises(), bound or 0) == (["a0"], 0)
        here.end("b3", "team-b")
        here.says("a0", "team-a", "Released")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        assert here.metric("elastic_plans_total", outcome="bound") == 1


def created(here: Reclaiming, name: str, cpu: str = "1") -> Reply:
    """Ask for a pod of team-b with a node; it is not stored."""
    answers = here.harness

    def is_decided() -> bool:
        replies.append(
            answers.create_pod(
                name=name,
                namespace="team-b",
                requests={"cpu": cpu},
                uid=f"team-b-{name}",
                node="node-1",
            )
        )
        return replies[-1].code != 429

    replies: list[Reply] = []
    eventually(is_decided, f"{name} is decided")
    return replies[-1]


def test_what_is_leaving_already_is_promised_too(tmp_path: Path) -> None:
    with reclaiming(tmp_path, afterSeconds=1) as here:
        for name in ("b2", "b3"):  # its owner ends them, and would make them again
            here.harness.api.delete(PODS, name, namespace="team-b", grace_period_seconds=30)
        here.create("a0", "team-a", "2")
        eventually(lambda: here.promises() == ["a0"], "what they free is promised")
        here.says("a0", "team-a", "Reclaiming")
        assert here.says_of("a0").endswith("; room is being made for it; place 1 of 1")
        here.end("b3", "team-b")
        here.harness.catch_up()
        assert "elastic pool default is used up" in str(created(here, "b4").message)
        here.end("b2", "team-b")
        here.says("a0", "team-a", "Released")
        eventually(lambda: here.promises() == [], "what was promised is reserved")
        assert here.events("Reclaimed") == []


def test_reservations_for_pods_that_are_never_stored_keep_nothing_from_owners(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path, timeouts={"expireReservationSeconds": 35}) as here:
        for name in ("b2", "b3"):
            here.end(name, "team-b")
        here.harness.catch_up()
        eventually(
            lambda: here.harness.used("cdq/epool.default", "team-b") == {"requests.cpu": "2"},
            "both are counted as gone",
        )
        for name in ("x0", "x1"):  # refused by something after the webhook
            assert created(here, name).allowed
        here.create("a0", "team-a", "2")
        eventually(lambda: here.promises() == ["a0"], "what expires is promised")
        assert "elastic pool default is used up" in str(created(here, "x2").message)
        assert here.ending() == []


def test_a_borrower_is_promised_nothing_of_what_is_leaving(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("b4", "team-b")
        here.says("b4", "team-b", "QuotaExceeded")
        here.harness.api.delete(PODS, "b3", namespace="team-b", grace_period_seconds=30)
        said = ["needless", "impossible"]
        eventually(
            lambda: all(
                (here.metric("elastic_plans_total", outcome=one) or 0) >= 1 for one in said
            ),
            "it was planned for while b3 is leaving",
        )
        assert here.promises() == []


def test_evictions_that_fail_are_tried_again_under_the_same_promise(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        failing = here.harness.client.on("create", PODS, unavailable, subresource="eviction")
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "it is promised first")
        assert here.ending() == []
        failing.remove()
        eventually(lambda: here.ending() == ["b3"], "then evicted")
        assert here.promises() == ["a0"]


def test_a_pod_that_cannot_be_evicted_stops_no_other_eviction(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        two_budgets = InternalError("This pod has more than one PodDisruptionBudget")
        here.harness.client.on(
            "create", PODS, for_name("b3", fail(two_budgets)), subresource="eviction"
        )
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b2"], "another one goes")
        here.end("b2", "team-b")
        here.says("a0", "team-a", "Released")


@pytest.mark.parametrize(("fit", "is_evicted"), [("Require", False), ("Off", True)])
def test_without_a_node_for_the_pod_nothing_is_evicted(
    tmp_path: Path, fit: str, *, is_evicted: bool
) -> None:
    full = a_node(cpu="500m")
    with reclaiming(tmp_path, full, nodeFit=fit) as here:
        here.create("a0", "team-a")
        wanted = "evicting" if is_evicted else "no node has room for it after any plan"
        eventually(lambda: wanted in here.says_of("a0"), wanted)
        assert here.ending() == (["b3"] if is_evicted else [])


def test_the_pods_of_a_group_go_together(tmp_path: Path) -> None:
    with reclaiming(tmp_path, labels={"elastic.deferredquota.io/group": "g"}) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b2", "b3"], "both are evicted")


def without(call: Call, _proceed: Proceed) -> None:
    raise NotFoundError(f"{call.kind.api_version} does not have {call.kind.plural}")


SERVED = {
    "by 1.36": ("v1beta1", "v1alpha3"),
    "by 1.37": ("v1alpha2",),
}


@pytest.mark.parametrize("unserved", SERVED.values(), ids=SERVED)
def test_the_pods_of_a_pod_group_go_together(tmp_path: Path, unserved: tuple[str, ...]) -> None:
    given = (a_node(), a_pod_group("PodGroup"))
    with reclaiming(tmp_path, *given, pod_group="train") as here:
        for kind in POD_GROUPS:
            if kind.version in unserved:
                here.harness.client.on("list", kind, without)
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b2", "b3"], "both are evicted")


ALONE = {
    "its pods go one by one": (a_node(), a_pod_group("Pod")),
    "it is not there": (a_node(), a_pod_group("PodGroup", "another")),
}


@pytest.mark.parametrize("given", ALONE.values(), ids=ALONE)
def test_pods_of_another_pod_group_go_alone(tmp_path: Path, given: tuple[Object, ...]) -> None:
    with reclaiming(tmp_path, *given, pod_group="train") as here:
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "its plan has begun")
        alone = "evicting team-b/b3 (cpu=1), by its own claim"
        eventually(lambda: alone in here.says_of("a0"), "nothing but the newest goes")


def test_an_api_server_without_pod_groups_is_asked_again_for_each_plan(tmp_path: Path) -> None:
    """It may be upgraded, or its feature gate switched on, at any time."""
    given = (a_node(), a_pod_group("PodGroup"))
    with reclaiming(tmp_path, *given, mode="Plan", pod_group="train") as here:
        refusals = [here.harness.client.on("list", kind, without) for kind in POD_GROUPS]
        here.create("a0", "team-a")
        alone = "would evict team-b/b3 (cpu=1), by its own claim"
        eventually(lambda: alone in here.says_of("a0"), "without it pods go alone")
        refusals[-1].remove()
        here.end("a0", "team-a")
        here.create("a1", "team-a")
        both = "would evict team-b/b2 (cpu=1), team-b/b3 (cpu=1)"
        eventually(lambda: both in here.says_of("a1"), "they go together from then on")


def has_asked_again(here: Reclaiming, times: int = 0) -> bool:
    """Return whether PodGroups were asked for more than once after so many times."""
    return len(here.harness.client.calls_of("list", POD_GROUPS[0])) > times + 1


def test_while_pod_groups_cannot_be_read_nothing_is_evicted(tmp_path: Path) -> None:
    given = (a_node(), a_pod_group("PodGroup"))
    with reclaiming(tmp_path, *given, pod_group="train") as here:
        refusal = here.harness.client.on("list", POD_GROUPS[0], unavailable)
        here.create("a0", "team-a")
        eventually(lambda: has_asked_again(here), "it is tried again")
        assert here.ending() == []
        refusal.remove()
        eventually(lambda: here.ending() == ["b2", "b3"], "both are evicted once they can be")


def lend_in_another_pool(here: Reclaiming) -> None:
    """Have team-c borrow all that team-d does not use, in a pool of their own."""
    here.harness.api.create(NAMESPACES, opted_in("team-d", is_gated=True))
    other: Object = {"deferredquota.io/pool": "other"}
    for namespace in ("team-c", "team-d"):
        quota = an_elastic_quota(namespace, {"cpu": 1})
        quota["metadata"] = {"name": "q", "namespace": namespace, "labels": other}
        here.harness.api.create(ELASTIC_QUOTAS, quota)
    here.wait_for(**POOL, epool_other={"requests.cpu": "2"})
    for name in ("c0", "c1"):
        here.start(name, "team-c")
    over = {"c0": "in-quota", "c1": "over-quota"}
    eventually(lambda: here.labels("team-c") == over, "they are seen")


def forbid_pod_groups(here: Reclaiming) -> None:
    """Let the controller have the rights of the release before."""
    here.harness.client.on("list", POD_GROUPS[0], forbid)


def test_a_claim_that_lacks_a_right_stops_no_other_claim(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The program was replaced before its role: it may not list PodGroups."""
    caplog.set_level("INFO", promise_reconciler.__name__)
    given = (a_node(), a_pod_group("PodGroup"))
    with reclaiming(tmp_path, *given, pod_group="train") as here:
        lend_in_another_pool(here)
        forbid_pod_groups(here)
        here.create("a0", "team-a")
        eventually(lambda: has_asked_again(here), "its plan cannot be made")
        here.create("d0", "team-d")
        eventually(lambda: here.ending("team-c") == ["c1"], "one is evicted for the other claim")
        assert (here.ending(), here.promises()) == ([], [])
        here.end("c1", "team-c")
        here.says("d0", "team-d", "Released")
    records = [one for one in caplog.records if one.name == promise_reconciler.__name__]
    said = {(one.levelname, one.getMessage(), one.__dict__["pod"]) for one in records}
    assert said == {("WARNING", "reclaim is not allowed", "team-a/a0")}
    assert {one.__dict__["error"] for one in records} == {
        "podgroups is forbidden: no right to list"
    }


def test_a_promise_that_lacks_a_right_stops_no_other_promise(tmp_path: Path) -> None:
    given, limit = (a_node(), a_pod_group("Pod")), 2  # one for each quota
    with reclaiming(tmp_path, *given, pod_group="train", maxEvictionsPerMinute=limit) as here:
        lend_in_another_pool(here)
        here.create("a0", "team-a", cpu="2")
        eventually(lambda: here.ending() == ["b3"], "one of two is evicted")
        here.create("d0", "team-d")
        eventually(lambda: here.ending("team-c") == ["c1"], "one is evicted for the other")
        forbid_pod_groups(here)
        seen = len(here.harness.client.calls_of("list", POD_GROUPS[0]))
        eventually(lambda: has_asked_again(here, seen), "the first cannot be planned for")
        here.end("d0", "team-d")
        said = ["nothing is held for it any more: the pod is gone"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "the other is withdrawn")
        assert (here.ending(), here.promises()) == (["b3"], ["a0"])


def test_a_promise_that_lacks_a_right_ends_in_time(tmp_path: Path) -> None:
    given = (a_node(), a_pod_group("Pod"))
    timeouts: Object = {"gateReleaseSeconds": 1}
    with reclaiming(
        tmp_path, *given, pod_group="train", timeouts=timeouts, maxEvictionsPerMinute=2
    ) as here:
        here.create("a0", "team-a", cpu="2")
        eventually(lambda: here.ending() == ["b3"], "one of two is evicted")
        forbid_pod_groups(here)  # and it is no progress that b3 is ending
        eventually(lambda: here.promises() == [], "nothing is held for it any more")
        said = ["nothing is held for it any more: it got no quota in time"]
        eventually(lambda: here.events("ReclaimWithdrawn") == said, "an event says so")
        assert here.ending() == ["b3"]


def of_looks(reaction: Reaction) -> Reaction:
    """React to what is asked on the thread that plans for all pools alone."""

    def react(call: Call, proceed: Proceed) -> object:
        is_meant = threading.current_thread().name == "reclaim-0"
        return reaction(call, proceed) if is_meant else proceed()

    return react


_LONG_SECONDS = 1.2
"""After a turn that long a pool rests for longer than it is until the next look."""


def test_other_pools_are_planned_for_before_one_whose_plan_took_long_goes_on(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path, mode="Plan") as here:
        lend_in_another_pool(here)
        here.harness.api.create(NAMESPACES, opted_in("team-e", is_gated=True))
        here.harness.api.create(ELASTIC_QUOTAS, an_elastic_quota("team-e", {"cpu": 1}))
        here.wait_for(epool_default={"requests.cpu": "5"}, epool_other={"requests.cpu": "2"})
        here.start("b4", "team-b")
        asked: list[str] = []
        others_wait = threading.Event()

        def look(call: Call, proceed: Proceed) -> object:
            asked.append(call.name)
            if call.name == "a0":
                others_wait.wait(10)
                time.sleep(_LONG_SECONDS)
            return proceed()

        here.harness.client.on("get", PODS, of_looks(look))
        here.create("a0", "team-a")
        eventually(lambda: asked == ["a0"], "the first is planned for")
        for name, namespace in (("e0", "team-e"), ("d0", "team-d")):
            here.create(name, namespace)
            here.says(name, namespace, "QuotaExceeded")
        others_wait.set()
        eventually(lambda: "e0" in asked, "its pool goes on")
        assert "d0" in asked[: asked.index("e0")], asked


def test_promises_of_other_pools_are_kept_before_one_that_took_long_goes_on(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path) as here:
        lend_in_another_pool(here)
        for name, namespace in (("a0", "team-a"), ("a1", "team-a"), ("d0", "team-d")):
            here.create(name, namespace)
            here.says(name, namespace, "Reclaiming")
        asked: list[str] = []

        def look(call: Call, proceed: Proceed) -> object:
            asked.append(call.name)
            time.sleep(_LONG_SECONDS if call.namespace == "team-a" else 0.0)
            return proceed()

        here.harness.client.on("get", PODS, of_looks(look))
        eventually(lambda: {"a0", "a1"} <= set(asked), "the first pool goes on")
        assert all("d0" in looks for looks in pairwise(asked)), asked


def test_a_pool_whose_evictions_are_not_answered_leaves_others_their_turn(tmp_path: Path) -> None:
    """A tenant that writes a PodDisruptionBudget without a pause has each take 3 s."""
    with reclaiming(tmp_path) as here:
        lend_in_another_pool(here)
        asked: list[str] = []
        others_wait = threading.Event()

        def evict(call: Call, proceed: Proceed) -> object:
            asked.append(call.namespace)
            if call.namespace != "team-b":
                return proceed()
            others_wait.wait(10)
            time.sleep(_LONG_SECONDS)
            raise RequestTimeoutError("no answer within 3 s")

        here.harness.client.on("create", PODS, evict, subresource="eviction")
        here.create("a0", "team-a")
        eventually(lambda: asked == ["team-b"], "one is evicted for the first")
        here.create("a1", "team-a")
        here.says("a1", "team-a", "Behind")
        here.create("d0", "team-d")
        here.says("d0", "team-d", "QuotaExceeded")
        others_wait.set()
        eventually(lambda: asked.count("team-b") == 2, "another one goes for the second")
        assert asked[1] == "team-c", asked


def test_pod_groups_are_not_read_where_no_pod_names_one(tmp_path: Path) -> None:
    with reclaiming(tmp_path, a_node(), a_pod_group("PodGroup")) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "the newest is evicted")
        asked = {call.kind.plural for call in here.harness.client.calls_of("list")}
    assert "podgroups" not in asked
    assert "poddisruptionbudgets" in asked


def test_what_is_promised_is_withdrawn_when_the_quota_goes(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "it is promised")
        here.harness.api.delete(ELASTIC_QUOTAS, "q", namespace="team-a")
        eventually(lambda: here.promises() == [], "its quota is gone")


def test_what_is_promised_goes_with_the_opt_out(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.promises() == ["a0"], "it is promised")
        opt_out(here.harness.api, "team-a")
        eventually(lambda: here.promises() == [], "its namespace has left")


def test_a_budget_that_closes_in_between_is_obeyed(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.harness.client.on("create", PODS, throttle, subresource="eviction", times=1)
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b2"], "the next one goes in the place of b3")
        assert here.promises() == ["a0"]


@contextmanager
def two_borrowers(directory: Path) -> Iterator[Reclaiming]:
    """Have team-b borrow ten cpu, as the most above its share, and team-c two."""
    least = {"team-a": 12, "team-b": 2, "team-c": 2}
    quotas = [an_elastic_quota(name, {"cpu": cpu}) for name, cpu in least.items()]
    settings: Object = {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0}}}
    with world(*quotas, a_node(), directory=directory, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        here.wait_for(epool_default={"requests.cpu": "16"})
        for namespace, number in (("team-c", 4), ("team-b", 12)):
            for one in range(number):
                here.start(f"{namespace[-1]}{one:02}", namespace)
            eventually(
                lambda namespace=namespace, number=number: (  # type: ignore[misc]
                    list(here.labels(namespace).values()).count("over-quota") == number - 2
                ),
                "all are seen",
            )
        yield here


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_tenant_whose_pods_are_refused_has_those_of_others_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_answered: bool
) -> None:
    """By a budget that it edits all the time, which no plan sees: one pod after the other."""
    monkeypatch.setattr(evictions, "_UNDECIDED_SECONDS", 0.5)
    tried: list[str] = []

    def refuse(call: Call, proceed: Proceed) -> object:
        tried.append(call.name)
        if call.namespace != "team-b":
            return proceed()
        if is_answered:
            raise TooManyRequestsError("the budget is still being processed")
        raise RequestTimeoutError("no answer within 3 s")

    with two_borrowers(tmp_path) as here:
        here.harness.client.on("create", PODS, refuse, subresource="eviction")
        here.create("a0", "team-a")
        eventually(lambda: here.ending("team-c") == ["c03"], "a pod of the other goes")
        assert tried == (["b11", "b10", "b09"] if is_answered else ["b11"]) + ["c03"]
        here.end("c03", "team-c")
        here.says("a0", "team-a", "Released")
        # both are needed: those of team-c would go in vain
        here.create("a1", "team-a", cpu="11")
        eventually(lambda: "a PodDisruptionBudget" in here.says_of("a1"), "its plan is not begun")
        assert (here.promises(), here.ending("team-c")) == ([], [])


def test_where_two_borrowers_are_needed_no_pod_goes_beside_one_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what no plan sees; once those go that are refused, the others go too."""
    monkeypatch.setattr(evictions, "_REFUSED_SECONDS", 2.0)
    with two_borrowers(tmp_path) as here:
        refused = here.harness.client.on(
            "create", PODS, in_namespace("team-b", throttle), subresource="eviction"
        )
        here.create("a0", "team-a", cpu="11")
        eventually(lambda: here.promises() == ["a0"], "its plan has begun")
        time.sleep(3.5)
        assert (here.ending("team-b"), here.ending("team-c")) == ([], [])
        refused.remove()
        all_of_them = ("team-b", "team-c")
        eventually(lambda: sum(len(here.ending(one)) for one in all_of_them) == 11, "they go")


def test_several_pods_that_cannot_be_evicted_stop_no_other_of_their_quota(tmp_path: Path) -> None:
    """A policy of the cluster keeps some pods, as those of KubeVirt, and no others can go."""
    kept = {f"b{number:02}" for number in range(7, 12)}

    def refuse(call: Call, proceed: Proceed) -> object:
        if call.name in kept:
            raise TooManyRequestsError("it is to be moved first")
        return proceed()

    with two_borrowers(tmp_path) as here:
        here.end("c02", "team-c")
        here.end("c03", "team-c")
        here.harness.client.on("create", PODS, refuse, subresource="eviction")
        here.create("a0", "team-a", cpu="4")
        eventually(lambda: here.ending("team-b") == ["b05", "b06"], "others go")


ASSIGNED = ListOptions(field_selector="spec.nodeName!=")


def test_what_only_the_cache_of_ledgers_shows_has_no_pod_within_min_evicted(
    tmp_path: Path,
) -> None:
    """Those of team-b are within its min by then, and team-c borrows."""
    hears = threading.Event()

    def hold(call: Call, proceed: Proceed) -> Any:
        is_it = call.selection == ASSIGNED
        return InterceptedWatch(proceed(), lambda _: hears.wait(30)) if is_it else proceed()

    borrower = an_elastic_quota("team-c", {"cpu": 0})
    with reclaiming(tmp_path, a_node(), borrower) as here:
        assigned = here.harness.engine.informers["assigned pods"]
        here.harness.client.on("watch", PODS, hold)
        here.harness.cluster.cut_watches()
        here.end("b0", "team-b")
        here.end("b1", "team-b")
        for name in ("c0", "c1"):
            here.start(name, "team-c", unseen=assigned)
        here.create("a0", "team-a")
        eventually(lambda: "nothing is evicted for it" in here.says_of("a0"), "it has no plan")
        assert (here.ending("team-b"), here.ending("team-c")) == ([], [])
        hears.set()
        eventually(lambda: here.ending("team-c") == ["c1"], "the newest that is over its quota")
        assert here.ending("team-b") == []


@contextmanager
def unheard(
    here: Reclaiming,
    kind: Kind,
    selection: ListOptions,
    reaction: Reaction = unavailable,
) -> Iterator[None]:
    """Have the caches of a kind that follow one selection answered otherwise."""

    def refuse(call: Call, proceed: Proceed) -> Any:
        is_it = call.verb in {"list", "watch"} and call.selection == selection
        return reaction(call, proceed) if is_it else proceed()

    with here.harness.client.on("*", kind, refuse):
        here.harness.cluster.cut_watches()
        yield


FOLLOWED = {
    "assigned pods": (PODS, ASSIGNED),
    "pods of the controller": (PODS, ALL),
    "elasticquotas": (ELASTIC_QUOTAS, ALL),
    "compositeelasticquotas": (COMPOSITE_ELASTIC_QUOTAS, ALL),
    "namespaces": (NAMESPACES, ALL),
}


@pytest.mark.parametrize("followed", FOLLOWED.values(), ids=FOLLOWED)
def test_nothing_is_evicted_while_a_cache_that_plans_depend_on_does_not_follow(
    tmp_path: Path, followed: tuple[Kind, ListOptions]
) -> None:
    with reclaiming(tmp_path, afterSeconds=2) as here:
        here.create("a0", "team-a")
        here.says("a0", "team-a", "QuotaExceeded")
        with unheard(here, *followed):
            time.sleep(3.5)
            assert (here.ending(), here.promises()) == ([], [])
        eventually(lambda: here.ending() == ["b3"], "it follows again")


def test_a_pod_says_which_cache_it_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reclaim_controller, "_STALE_SECONDS", 0.0)
    with reclaiming(tmp_path) as here, unheard(here, ELASTIC_QUOTAS, ALL):
        followed = here.harness.engine.informers["elasticquotas"]
        eventually(lambda: not followed.is_current, "it fails")
        here.create("a0", "team-a")
        why = (
            "nothing is evicted for it: the API server was not heard of lately about elasticquotas;"
        )
        eventually(lambda: why in here.says_of("a0"), "its condition says so")


def test_what_is_promised_stands_while_a_cache_does_not_follow_until_its_pod_is_gone(
    tmp_path: Path,
) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        with unheard(here, ELASTIC_QUOTAS, ALL):
            followed = here.harness.engine.informers["elasticquotas"]
            eventually(lambda: not followed.is_current, "it fails")
            time.sleep(1.0)  # a look that began before
            time.sleep(1.5)
            assert here.promises() == ["a0"]
            here.end("a0", "team-a")
            eventually(lambda: here.promises() == [], "its pod is gone")


def test_what_is_reserved_is_promised_no_more_whatever_does_not_follow(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        with unheard(here, ELASTIC_QUOTAS, ALL):
            here.end("b3", "team-b")
            here.says("a0", "team-a", "Released")
            eventually(lambda: here.promises() == [], "it holds that once")
            assert here.events("ReclaimWithdrawn") == []


def test_a_promise_that_was_gone_meanwhile_is_a_new_one_whatever_does_not_follow(
    tmp_path: Path,
) -> None:
    """Nothing of what was seen of the former one counts for it."""
    with reclaiming(tmp_path) as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        with unheard(here, ELASTIC_QUOTAS, ALL):
            followed = here.harness.engine.informers["elasticquotas"]
            eventually(lambda: not followed.is_current, "it fails")
            write_promises(here, [])
            time.sleep(2.5)  # promises are looked at each second
            write_promises(here, [promise("a0", "team-a-a0")])
            here.end("b3", "team-b")
            here.says("a0", "team-a", "Released")
            bound = {"outcome": "bound"}
            eventually(lambda: here.metric("elastic_plans_total", **bound) == 1, "it ends well")
        assert here.metric("elastic_reclaim_seconds_count") == 0


def test_plans_wait_for_no_kind_that_is_not_installed(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here, unheard(here, COMPOSITE_ELASTIC_QUOTAS, ALL, without):
        followed = here.harness.engine.informers["compositeelasticquotas"]
        eventually(lambda: followed.is_absent, "it is gone")
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")


def test_the_age_of_the_caches_that_plans_depend_on_is_shown(tmp_path: Path) -> None:
    with reclaiming(tmp_path) as here:
        kinds = ("assigned pods", "elasticquotas", "compositeelasticquotas")
        eventually(
            lambda: all(here.metric("cache_age_seconds", kind=one) is not None for one in kinds),
            "it is shown",
        )


def test_the_rights_are_those_of_the_components(tmp_path: Path) -> None:
    with reclaiming(tmp_path, pod_group="gone") as here:
        here.create("a0", "team-a")
        eventually(lambda: here.ending() == ["b3"], "one is evicted")
        used = used_rights(here.harness.client)
    installed = render(reclaim=ReclaimMode.ACT)
    usual = {right for role in installed.cluster for right in granted(role.get("rules", ()))}
    own = {right for role in installed.reclaim for right in granted(role.get("rules", ()))}
    assert used & own == own
    assert used <= usual | own
    planned = render().reclaim
    assert {right for role in planned for right in granted(role.get("rules", ()))} == {
        ("", "nodes", "list"),
        ("policy", "poddisruptionbudgets", "list"),
        ("scheduling.k8s.io", "podgroups", "list"),
    }
    assert render(reclaim=ReclaimMode.OFF).reclaim == ()


def charged_in(here: Reclaiming, namespace: str) -> dict[str, str]:
    """Return what the elastic quota of a namespace says is used."""
    return cast("dict[str, str]", here.status(namespace).get("used", {}))


def test_a_pod_of_too_many_names_keeps_no_extended_resource_from_others(tmp_path: Path) -> None:
    """It was bound while its quota named none; by one that does it takes more than there is."""
    given = [an_elastic_quota("team-a", {"cpu": 2, GPU: 2}), an_elastic_quota("team-b", {"cpu": 2})]
    node = a_node(**{GPU: "8"})
    settings: dict[str, object] = {"elastic": {"reclaim": {"mode": "Act", "afterSeconds": 0}}}
    with world(*given, node, directory=tmp_path, settings=settings, is_gated=True) as made:
        here = Reclaiming(made.harness)
        eventually(lambda: len(here.hard()) == 2, "both are derived")
        zeros = {f"example.com/r{number}": "0" for number in range(33)}
        many = a_container(requests={"cpu": "10m", **zeros}, limits=zeros)
        here.start("many", "team-b", containers=[many])
        patch = {"spec": {"min": {GPU: "1"}}}
        here.harness.api.patch(ELASTIC_QUOTAS, "q", patch, namespace="team-b")
        eventually(lambda: charged_in(here, "team-b").get(GPU, "0") != "0", "it is charged")
        wants = a_container(requests={"cpu": "1m", GPU: "1"})
        here.create("a1", "team-a", containers=[wants])
        eventually(lambda: here.ending("team-b") == ["many"], "it is evicted")
