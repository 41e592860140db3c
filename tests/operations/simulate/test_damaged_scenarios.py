"""A scenario with anything anywhere in it is refused, or can be simulated."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.operations.simulate.scenario_files import ScenarioError, read_scenario
from webhook.quota.simulation.simulator import simulate
from webhook.quota.simulation.statistics import Statistics
from webhook.quota.simulation.values import Mode

SCENARIO: dict[str, Any] = yaml.safe_load(
    """
apiVersion: deferredquota.io/v1alpha1
kind: Scenario
until: 1h
configuration: {queue: {order: BestEffortFIFO}, timeouts: {gateReleaseSeconds: 60}}
priorityClasses: {gold: 10}
nodes:
- {name: a, count: 2, labels: {zone: one}, allocatable: {cpu: "2", memory: 4Gi}}
- {name: b, taints: [{key: gpu, effect: NoSchedule}], allocatable: {cpu: "2", memory: 4Gi}}
quotas:
- namespace: team-a
  name: gold
  spec:
    hard: {requests.cpu: "2", pods: 5}
    scopeSelector:
      matchExpressions: [{scopeName: PriorityClass, operator: In, values: [gold]}]
workloads:
- name: apart
  namespace: team-a
  arrivals: {count: 3, every: {mean: 1m}}
  duration: {from: 5m, to: 6m}
  spec:
    affinity:
      podAntiAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
        - {labelSelector: {}, topologyKey: kubernetes.io/hostname}
      nodeAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 1
          preference: {matchExpressions: [{key: zone, operator: In, values: [one]}]}
    containers: [{name: main, image: app, resources: {requests: {cpu: "1"}}}]
- name: gold
  namespace: team-a
  controller: ReplicaSet
  arrivals: {at: [1m, 2m]}
  duration: 5m
  spec:
    priorityClassName: gold
    tolerations: [{key: gpu, operator: Exists}]
    topologySpreadConstraints:
    - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}
    volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
    initContainers: [{name: side, restartPolicy: Always}]
    containers:
    - {name: main, ports: [{hostPort: 80}], resources: {requests: {cpu: "1", memory: 1Gi}}}
"""
)
ODD: tuple[object, ...] = (
    None, True, 0, -1, 10**18, 10**30, 1.5, "", "x", "1e400", "-1", "1h", "\x00", "a" * 300,
    [], {}, [1], [None], [[]], {"a": 1}, {"x": {"y": []}},
)  # fmt: skip


def paths(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        inner = [*value.items()]
    elif isinstance(value, list):
        inner = [*enumerate(value)]
    for key, item in inner:
        yield (*path, key)
        yield from paths(item, (*path, key))


@settings(max_examples=300)
@given(st.sampled_from(list(paths(SCENARIO))), st.sampled_from(ODD))
def test_a_damaged_scenario_is_refused_or_simulated(
    tmp_path_factory: Any, path: tuple[str | int, ...], odd: object
) -> None:
    damaged: Any = deepcopy(SCENARIO)
    inner = damaged
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = odd
    file: Path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    file.write_text(yaml.safe_dump(damaged))
    try:
        scenario = read_scenario(file)
    except ScenarioError:
        return
    for mode in Mode:
        statistics = Statistics(scenario, mode)
        for event in simulate(scenario, mode):
            statistics.add(event)
        report = statistics.report()
        assert report.arrived == len([one for one in scenario.arrivals if one.at <= report.end])
