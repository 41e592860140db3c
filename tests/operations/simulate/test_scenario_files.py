"""Scenarios from YAML, and every way in which one can be wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from webhook.operations.simulate.scenario_files import ScenarioError, read_scenario
from webhook.quota.queue.queued_pods import QueueingStrategy
from webhook.quota.simulation.values import REPLICA_SET_BACK_OFF

SCENARIO = """\
apiVersion: deferredquota.io/v1alpha1
kind: Scenario
seed: 3
until: 2h
configuration:
  deferredResources: [requests.nvidia.com/gpu]
  queue: {order: BestEffortFIFO}
priorityClasses: {gold: 1000}
nodes:
- name: node
  count: 2
  allocatable: {cpu: "4", memory: 8Gi}
quotas:
- namespace: team-a
  name: compute
  spec:
    hard:
      requests.cpu: "8"
workloads:
- name: web
  namespace: team-a
  controller: ReplicaSet
  arrivals:
    count: 3
    start: 1m
    every: {mean: 90s}
  duration: 1h30m
  spec:
    priorityClassName: gold
    containers:
    - name: main
      resources:
        requests: {cpu: "1", memory: 1Gi}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text)
    return path


def test_a_scenario_is_read(tmp_path: Path) -> None:
    scenario = read_scenario(written(tmp_path, SCENARIO))
    assert [node["metadata"]["name"] for node in scenario.nodes] == ["node-0", "node-1"]  # type: ignore[index]
    assert [quota.key for quota in scenario.quotas] == ["team-a/compute"]
    assert [arrival.name for arrival in scenario.arrivals] == ["web-0", "web-1", "web-2"]
    first = scenario.arrivals[0]
    assert (first.at, first.duration, first.group) == (60_000, 5_400_000, "team-a/web")
    assert (first.template.pod.priority, first.template.back_off) == (1000, REPLICA_SET_BACK_OFF)
    assert scenario.until == 7_200_000
    assert scenario.policy.order is QueueingStrategy.BEST_EFFORT
    assert "requests.nvidia.com/gpu" in scenario.deferred_keys


def test_times_depend_on_the_seed_alone(tmp_path: Path) -> None:
    path = written(tmp_path, SCENARIO)
    times = [[one.at for one in read_scenario(path, seed=seed).arrivals] for seed in (3, 3, 4)]
    assert times[0] == times[1] != times[2]
    assert times[0] == [one.at for one in read_scenario(path).arrivals]


WRONG = {
    "an unknown field": ("seed: 3", "sed: 3", "line 3, column 1: sed: unknown field, did you"),
    "an unknown field inside": (
        "    start: 1m",
        "    begin: 1m",
        "line 25, column 5: workloads[0].arrivals.begin: unknown field",
    ),
    "a repeated key": ("seed: 3", "seed: 3\nseed: 4", "line 4, column 1: the key 'seed' appears"),
    "a tab": ("  count: 2", "\tcount: 2", "line 11, column 1: found a tab"),
    "a name that YAML reads as a boolean": (
        "- name: node",
        "- name: n",
        "nodes[0].name: must be a string, not a boolean: put the name in quotes",
    ),
    "a negative count": (
        "  count: 2",
        "  count: -2",
        "line 11, column 3: nodes[0].count: must be from 1 to 5000, not -2",
    ),
    "a negative amount": (
        'requests.cpu: "8"',
        'requests.cpu: "-8"',
        "line 18, column 7: quotas[0].spec.hard[requests.cpu]: must not be negative: -8",
    ),
    "an amount that no cluster has": (
        'requests: {cpu: "1"',
        'requests: {cpu: "1E"',
        "line 33, column 20: workloads[0].spec.containers[0].resources.requests.cpu: is more than",
    ),
    "no quantity": (
        '{cpu: "4"',
        '{cpu: "4x"',
        "line 12, column 17: nodes[0].allocatable.cpu: '4x' is not a quantity",
    ),
    "a time without unit": (
        "every: {mean: 90s}",
        "every: soon",
        "workloads[0].arrivals.every: must be a time such as 90s, 10m or 1h30m, not 'soon'",
    ),
    "a time beyond measure": ("until: 2h", "until: 99999999h", "until: must be at most 10 years"),
    "a range that ends before it begins": (
        "duration: 1h30m",
        "duration: {from: 2h, to: 1h}",
        "workloads[0].duration.to: must not be before `from`",
    ),
    "no containers": (
        """\
    containers:
    - name: main
      resources:
        requests: {cpu: "1", memory: 1Gi}
""",
        "    containers: []\n",
        "workloads[0].spec.containers: must have at least one container",
    ),
    "a misspelt list of amounts": (
        "        requests: {cpu",
        "        request: {cpu",
        "workloads[0].spec.containers[0].resources.request: unknown field",
    ),
    "a node that a scheduler chooses": (
        "    priorityClassName: gold",
        "    nodeName: node-0",
        "workloads[0].spec.nodeName: is not set in a scenario",
    ),
    "an unknown class": (
        "priorityClassName: gold",
        "priorityClassName: silver",
        "workloads[0].spec.priorityClassName: 'silver' is not among priorityClasses",
    ),
    "an unknown controller": (
        "ReplicaSet",
        "Cron",
        "workloads[0].controller: must be one of Job, ReplicaSet, None, not 'Cron'",
    ),
    "a quota that no API server takes": (
        'requests.cpu: "8"',
        'request.cpu: "8"',
        "quotas[0].spec.hard[request.cpu]: ",
    ),
    "a setting that is not known": (
        "queue: {order: BestEffortFIFO}",
        "queue: {order: Best}",
        "line 7, column 11: configuration.queue.order: must be one of StrictFIFO",
    ),
    "a resource that cannot be deferred": (
        "[requests.nvidia.com/gpu]",
        "[pods]",
        "configuration.deferredResources[0]: must be",
    ),
    "another kind": ("kind: Scenario", "kind: Configuration", "kind: must be 'Scenario'"),
    "a taint of a wrong type": (
        "  count: 2",
        "  count: 2\n  taints: [1]",
        "line 12, column 12: nodes[0].taints[0]: must be an object",
    ),
    "two documents": ("kind: Scenario", "kind: Scenario\n---\na: 1", "must be one document, not 2"),
}


@pytest.mark.parametrize(("good", "bad", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, good: str, bad: str, message: str
) -> None:
    assert SCENARIO.count(good) >= 1
    path = written(tmp_path, SCENARIO.replace(good, bad, 1))
    with pytest.raises(ScenarioError) as raised:
        read_scenario(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", "a: b", "null", "\x00", "{" * 200], ids=repr)
def test_what_is_no_scenario_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioError):
        read_scenario(written(tmp_path, text))


def test_pods_beyond_the_most_are_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.operations.simulate.scenario_files.MOST_PODS", 5)
    text = SCENARIO.replace("count: 3", "count: 1000000")
    started = time.process_time()
    with pytest.raises(ScenarioError, match="workloads: make more than 5 pods"):
        read_scenario(written(tmp_path, text))
    assert time.process_time() - started < 1.0
