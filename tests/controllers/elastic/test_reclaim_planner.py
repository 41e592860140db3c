"""What plans to reclaim read of the API server: as little as they need, once for each look."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.builders import a_pod
from tests.quota.elastic.pools import Cluster, a_quota
from tests.quota.nodes.objects import node
from tests.reactions import Call, ReactiveClient
from webhook.config import ElasticSettings, NodeFit, ReclaimSettings
from webhook.controllers.elastic.assigned_pods import AssignedPod, read_assigned_pod
from webhook.controllers.elastic.reclaim_planner import ReclaimPlanner
from webhook.controllers.elastic.reclaim_view import ReclaimView
from webhook.kube.api import NODES, POD_DISRUPTION_BUDGETS, PODS
from webhook.kube.informer import Informer
from webhook.quota.elastic.capacity import ElasticPod
from webhook.quota.elastic.fair_share import Pool
from webhook.quota.shared.grants import MAX_PROMISES


class Planning:
    """A planner, and pods of a namespace with a budget that lets one of them go."""

    def __init__(self) -> None:
        self.client = ReactiveClient()
        self.refused: set[str] = set()
        self.planner = ReclaimPlanner(self.client, ElasticSettings, lambda: self.refused, tuple)
        cluster = Cluster(a_quota("b", 0))
        self.pods = [self._stored(cluster.pod("b", 1, name=f"web-{one}")) for one in range(3)]
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "web", "namespace": "b"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        }
        self.client.create(POD_DISRUPTION_BUDGETS, budget)
        one = {"status": {"disruptionsAllowed": 1, "observedGeneration": 1}}
        self.client.patch(POD_DISRUPTION_BUDGETS, "web", one, namespace="b", subresource="status")
        self.client.calls.clear()

    def _stored(self, pod: ElasticPod) -> ElasticPod:
        metadata = {"labels": {"app": "web"}}
        made = a_pod(name=pod.name, namespace="b", nodeName="n", metadata=metadata)
        return replace(pod, uid=self.client.create(PODS, made).uid)

    def allowed(self, *numbers: int) -> bool:
        """Return whether a plan may take these pods together."""
        return self.planner.may_go([self.pods[number] for number in numbers])

    def lists(self) -> list[Call]:
        return self.client.calls_of("list", PODS)


def test_of_the_pods_beside_a_budget_no_more_than_the_metadata_is_read() -> None:
    here = Planning()
    assert (here.allowed(0), here.allowed(0, 1)) == (True, False)
    assert [call.options["is_brief"] for call in here.lists()] == [True]


def test_the_plans_of_one_look_share_what_is_read() -> None:
    here = Planning()
    for _ in range(5):
        assert here.allowed(0)
    assert len(here.lists()) == len(here.client.calls_of("list", POD_DISRUPTION_BUDGETS)) == 1
    here.planner.forget()
    assert here.allowed(0)
    assert len(here.lists()) == 2


def test_no_more_is_read_than_some_bytes_of_what_a_tenant_can_make_large() -> None:
    """Of what is left nothing is known, and all pods that it may be about are protected."""
    here = Planning()
    for kind, number in ((PODS, 70), (POD_DISRUPTION_BUDGETS, 20)):
        metadata = {"namespace": "b", "annotations": {"large": "x" * 2**20}}
        for one in range(number):
            made: dict[str, Any] = {"metadata": {"name": f"a-{one}", **metadata}, "spec": {}}
            if kind is PODS:
                made["spec"] = {"nodeName": "n", "containers": [{"name": "a"}]}
            here.client.create(kind, made)
        here.planner.forget()
        assert not here.allowed(0)
        for one in range(number):
            here.client.delete(kind, f"a-{one}", namespace="b")
        here.planner.forget()
        assert (here.allowed(0), here.allowed(0, 1)) == (True, False)


def test_what_one_plan_has_evicted_counts_for_the_next_of_the_same_look() -> None:
    here = Planning()
    assert here.allowed(0)
    here.planner.take([here.pods[0]])
    assert not here.allowed(1)
    here.planner.forget()
    assert here.allowed(1)  # the API server says so now


def test_a_pod_that_was_refused_is_asked_no_budget_about() -> None:
    here = Planning()
    here.refused.add(here.pods[0].uid)
    assert not here.allowed(0)
    assert here.client.calls == []


class Placing:
    """A planner for a pod that its quota has room for, on a node for one pod."""

    def __init__(self, cpu: str = "1") -> None:
        self.client = ReactiveClient()
        self.planner = ReclaimPlanner(self.client, ElasticSettings, tuple, tuple)
        self.quota = a_quota("b", {"cpu": 9})
        self.assigned: dict[str, AssignedPod] = {}
        self.client.create(NODES, node("n"))
        status = {"status": {"allocatable": {"cpu": cpu, "pods": "500"}}}
        self.client.patch(NODES, "n", status, subresource="status")

    def pod(self, name: str, **fields: Any) -> ElasticPod:
        raw = a_pod(name=name, namespace="b", requests={"cpu": "1"}, uid="", **fields)
        made = self.client.create(PODS, raw)
        if "node" in fields:
            self.assigned[name] = read_assigned_pod(made.object)
        return ElasticPod("b", name, made.uid, None, 0, {})

    def is_possible(self, *, released: list[ElasticPod], leaving: list[ElasticPod]) -> bool:
        """Return whether the pod has a plan, in a look of its own."""
        key, raw = self.quota.key, a_pod(name="waits", namespace="b", requests={"cpu": "1"})
        view = ReclaimView(
            {"b": self.quota},
            {"default": Pool("default", [self.quota])},
            {key: []},
            {key: leaving},
            frozenset(),
            cast("Informer[AssignedPod]", SimpleNamespace(items=lambda: self.assigned)),
            {one.uid: one for one in released},
        )
        self.client.calls.clear()
        self.planner.forget()
        return self.planner.plan(view, self.quota, raw).plan.is_possible

    def reads(self) -> int:
        return len(self.client.calls_of("get", PODS))


def test_a_pod_that_is_ending_leaves_its_place() -> None:
    here = Placing()
    placed = here.pod("placed", node="n")
    assert not here.is_possible(released=[], leaving=[])
    assert here.is_possible(released=[], leaving=[placed])


def test_of_pods_without_a_node_some_are_read_in_each_look_and_no_others_remembered() -> None:
    here = Placing(cpu="100")
    released = [here.pod(f"r{number}") for number in range(100)]
    found = [
        (here.is_possible(released=looked_at, leaving=[]), here.reads())
        for looked_at in (released, released, released, [], released)
    ]
    assert found == [(True, 64), (False, 36), (False, 0), (True, 0), (True, 64)]


def test_a_quota_with_many_promises_leaves_some_to_others() -> None:
    """Its pods that end slowly would have them all, as what ends counts as gone."""
    quotas = {name: a_quota(name, {"cpu": 0 if name == "b" else 5}) for name in "abc"}
    cluster, most = Cluster(*quotas.values(), resource="cpu"), MAX_PROMISES // 2
    cluster.run("b", 5, 5)
    settings = ElasticSettings(reclaim=ReclaimSettings(node_fit=NodeFit.OFF))
    planner = ReclaimPlanner(ReactiveClient(), lambda: settings, tuple, tuple)

    def obstacle(namespace: str, name: str, promised: int) -> str:
        held = [ElasticPod("a", f"a-{one}", f"a-{one}", None, 0, {}) for one in range(promised)]
        view = ReclaimView(
            quotas,
            {"default": cluster.pool},
            cluster.pods,
            {key: [] for key in cluster.pods},
            frozenset(),
            cast("Informer[AssignedPod]", SimpleNamespace(items=dict)),
            promised={one.uid: one for one in held},
        )
        raw = a_pod(name=name, namespace=namespace, requests={"cpu": "1"}, uid=name)
        claim = planner.plan(view, quotas[namespace], raw)
        assert bool(claim.plan.victims) == claim.plan.is_possible == (not claim.plan.obstacle)
        return claim.plan.obstacle

    assert not obstacle("a", "new", most - 1)
    assert "promises" in obstacle("a", "new", most)
    assert not obstacle("c", "new", most)
    assert not obstacle("a", "a-0", most + 1)  # goes on with its own
