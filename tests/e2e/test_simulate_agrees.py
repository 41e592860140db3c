"""Simulations agree with the server on its cluster in memory, event by event.

Every event of a simulation is carried out on the embedded cluster: pods are created, bound to the
node that all of the scheduler's rules choose there, and deleted. The answers, the gates that come
off, and the ledger have to be those of the simulation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.builders import Object, a_binding
from tests.e2e.embedded import Embedded, serving
from tests.e2e.harness import eventually
from tests.quota.simulation.scenarios import PRIORITIES, random_scenario
from webhook.quota.amounts.quantity import ZERO, Quantity
from webhook.quota.amounts.resources import ResourceList, add, mask, remove_zeros
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.charging.scopes import matches
from webhook.quota.nodes.fitting import judge_nodes
from webhook.quota.nodes.model import NodeView
from webhook.quota.objects.model import Pod
from webhook.quota.queue.queued_pods import QueueingStrategy, QueuePolicy
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.values import Event, EventKind, Mode, Scenario
from webhook.state.well_known import SCHEDULING_GATE

DENIED = 'admission webhook "bind.deferredquota.io" denied the request: '
SEEDS = (0, 2, 4, 7, 9, 12)
MODES = {Mode.DEFERRED: "never", Mode.GATED: "always"}
POLICIES = {
    "strict": QueuePolicy(),
    "best-effort": QueuePolicy(
        order=QueueingStrategy.BEST_EFFORT, max_overtakes=2, max_wait_seconds=604_800
    ),
}
UNTIL = 3_600_000
"""Before reservations expire, for which a server has to wait as long as its clock takes."""
ACTIONS = frozenset({EventKind.CREATED, EventKind.GATED, EventKind.ENDED})


def scenario_of(seed: int, mode: Mode, order: str) -> tuple[Scenario, list[Object]]:
    scenario, quotas = random_scenario(seed, f"{mode}-{seed}", pods=11, policy=POLICIES[order])
    return replace(scenario, until=UNTIL), quotas


def snapshot(order: str) -> list[Mapping[str, object]]:
    objects: list[Mapping[str, object]] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": priority,
        }
        for name, priority in PRIORITIES.items()
        if name
    ]
    for mode, gating in MODES.items():
        for seed in SEEDS:
            scenario, quotas = scenario_of(seed, mode, order)
            labels = {"deferredquota.io/mode": "deferred", "deferredquota.io/gating": gating}
            objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": f"{mode}-{seed}", "labels": labels},
                }
            )
            objects += [*quotas, *scenario.nodes]
    return objects


def configuration(order: str) -> str:
    policy = POLICIES[order]
    return json.dumps(
        {
            "apiVersion": "deferredquota.io/v1alpha1",
            "kind": "Configuration",
            "timeouts": {"gateReleaseSeconds": 86_400},
            "queue": {
                "order": str(policy.order),
                "maxOvertakes": policy.max_overtakes,
                "maxWaitSeconds": int(policy.max_wait_seconds),
            },
        }
    )


@pytest.fixture(scope="module", params=POLICIES)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Embedded]]:
    directory = tmp_path_factory.mktemp(f"simulate-{request.param}")
    config = directory / "configuration.yaml"
    config.write_text(configuration(request.param))
    with serving(directory, snapshot(request.param), "--config", str(config)) as running:
        yield request.param, running


@dataclass
class Replay:
    """The embedded cluster, made to go through the events of a simulation."""

    server: Embedded
    scenario: Scenario
    namespace: str
    holding: dict[str, Pod] = field(default_factory=dict)
    """Pods that have a node, or a reservation, by name."""
    gated: set[str] = field(default_factory=set)

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        reply = self.server.api(method, f"/api/v1/namespaces/{self.namespace}/{path}", body)
        return reply.status, json.loads(reply.body or b"{}")

    def play(self, events: Sequence[Event]) -> None:
        for index, event in enumerate(events):
            STEPS[event.kind](self, event)
            if event.kind in ACTIONS:
                self.foresee(events[index + 1 :])
            self.check_ledger(event)
            self.check_gates(event)

    def foresee(self, following: Sequence[Event]) -> None:
        """Expect what the queue makes of an action, which is decided before the next one."""
        for event in following:
            if event.kind in ACTIONS or event.kind is EventKind.BIND_REFUSED:
                return
            if event.kind is EventKind.RELEASED:
                self.holding[event.arrival.name] = event.arrival.template.pod
                self.gated.discard(event.arrival.name)

    def create(self, event: Event) -> None:
        name = event.arrival.name
        raw = {**event.arrival.template.raw, "metadata": {"name": name}}
        code, pod = self.call("POST", "pods", raw)
        assert code == 201, pod
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", [])]
        assert gates == ([SCHEDULING_GATE] if event.kind is EventKind.GATED else [])
        self.gated.update([name] if gates else [])

    def release(self, event: Event) -> None:
        assert event.arrival.name not in self.gated

    def bind(self, event: Event) -> None:
        assert self.best_nodes(event)[:1] == [event.detail]
        code, answer = self.send_bind(event, event.detail)
        assert code == 201, answer
        self.holding[event.arrival.name] = event.arrival.template.pod

    def refuse_bind(self, event: Event) -> None:
        code, answer = self.send_bind(event, self.best_nodes(event)[0])
        assert (code, answer.get("message")) == (403, DENIED + event.detail)

    def find_no_node(self, event: Event) -> None:
        assert self.best_nodes(event) == []

    def end(self, event: Event) -> None:
        code, answer = self.call("DELETE", f"pods/{event.arrival.name}", {"gracePeriodSeconds": 0})
        assert code == 200, answer
        del self.holding[event.arrival.name]

    def send_bind(self, event: Event, node: str) -> tuple[int, dict[str, Any]]:
        name = event.arrival.name
        body = a_binding(name, node, namespace=self.namespace)
        return self.call("POST", f"pods/{name}/binding", body)

    def best_nodes(self, event: Event) -> list[str]:
        """Judge all nodes anew, by the pods that the cluster has."""
        _, listed = self.call("GET", "pods")
        pods = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        view = NodeView(self.scenario.nodes, tuple(pods.values()))
        return [node.name for node in judge_nodes(pods[event.arrival.name], view).fits]

    def check_ledger(self, event: Event) -> None:
        expected = {
            quota.name: remove_zeros(self.total(quota.name)) for quota in self.scenario.quotas
        }
        assert eventually(lambda: self.ledger() == expected), (event, expected, self.ledger())

    def check_gates(self, event: Event) -> None:
        assert eventually(lambda: self.gated_now() == self.gated), (
            event,
            self.gated,
            self.gated_now(),
        )

    def total(self, quota: str) -> ResourceList:
        found = next(one for one in self.scenario.quotas if one.name == quota)
        total: ResourceList = {}
        for pod in self.holding.values():
            if matches(found, pod):
                total = add(total, mask(usage_of(pod, now=None), found.hard))
        return total

    def ledger(self) -> dict[str, ResourceList]:
        """What is used and reserved, by quota."""
        path = f"/apis/deferredquota.io/v1alpha1/namespaces/{self.namespace}/quotaledgers/ledger"
        status = json.loads(self.server.api("GET", path).body).get("status", {})
        return {
            quota["name"]: remove_zeros(
                {
                    name: self.amount(quota, "used", name) + self.amount(quota, "reserved", name)
                    for name in quota["hard"]
                }
            )
            for quota in status.get("quotas", [])
        }

    def amount(self, quota: dict[str, Any], part: str, name: str) -> Quantity:
        text = quota.get(part, {}).get(name)
        return ZERO if text is None else Quantity.parse(text)

    def gated_now(self) -> set[str]:
        _, listed = self.call("GET", "pods")
        return {
            pod["metadata"]["name"] for pod in listed["items"] if pod["spec"].get("schedulingGates")
        }


STEPS = {
    EventKind.CREATED: Replay.create,
    EventKind.GATED: Replay.create,
    EventKind.RELEASED: Replay.release,
    EventKind.BOUND: Replay.bind,
    EventKind.BIND_REFUSED: Replay.refuse_bind,
    EventKind.UNSCHEDULABLE: Replay.find_no_node,
    EventKind.ENDED: Replay.end,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_simulation_is_what_the_cluster_does(
    server: tuple[str, Embedded], seed: int, mode: Mode
) -> None:
    order, running = server
    scenario, _ = scenario_of(seed, mode, order)
    Replay(running, scenario, f"{mode}-{seed}").play(list(simulate(scenario, mode)))
