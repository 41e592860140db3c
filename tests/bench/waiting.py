"""What `scripts/bench --waiting` measures: from quota that is freed to the next pod without a gate.

A thousand pods wait in 50 namespaces of a real control plane, whose quotas are full. A running pod
ends; the oldest that waits in its namespace loses its gate, and is bound here, as there is no
scheduler. That happens in one namespace after the other, and then in all of them at once.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

from tests.bench.cluster import Bench, control_plane, pod_body, wait_until, wait_until_counted
from tests.bench.load_generator import request_bytes
from tests.bench.watch import follow_pods
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import Product
from webhook.kube.api import PODS, ListOptions, WatchEvent, split_key
from webhook.kube.rest import RestClient, load_config

NAMESPACES = 50
RUNNING = 2
"""Pods of a namespace that fill its quota."""
POD_MILLIS = 100
CLIENTS = 16
_END = {"status": {"phase": "Succeeded"}}


class Releases:
    """Notes when pods lose their gates."""

    def __init__(self, plane: ControlPlane) -> None:
        self.found: dict[str, list[tuple[str, float]]] = defaultdict(list)
        """Namespace → its pods that lost their gates, in their order, and when that was seen."""
        self._seen: set[str] = set()
        client = RestClient(load_config(plane.kubeconfig(), environ={}))
        unassigned = ListOptions(field_selector="spec.nodeName=")
        follow_pods(client, unassigned, client.list(PODS).resource_version, self._take)

    def _take(self, event: WatchEvent) -> None:
        is_gated = b'"schedulingGates":' in event.data
        if event.type == "MODIFIED" and not is_gated and event.uid not in self._seen:
            self._seen.add(event.uid)
            namespace, name = split_key(event.key)
            self.found[namespace].append((name, time.monotonic()))


class Namespaces:
    """Full namespaces: pods that wait, and pods that run and end in the order of their binds."""

    def __init__(self, bench: Bench, waiting: int) -> None:
        self.bench = bench
        self.names = [_full(bench, f"waiting-{number}") for number in range(NAMESPACES)]
        for name in self.names:
            wait_until_counted(bench, name)
        self._running = {
            name: [f"first-{number}" for number in range(RUNNING)] for name in self.names
        }
        bench.load(
            [_create(name, pod, "node-0") for name, pods in self._running.items() for pod in pods],
            CLIENTS,
            b" 201 ",
        )
        requests = [_create(self.names[n % NAMESPACES], f"pod-{n}") for n in range(waiting)]
        bench.load(requests, CLIENTS, b" 201 ")
        self._releases = Releases(bench.plane).found

    def free(self, names: Sequence[str]) -> Iterator[float]:
        """End a pod in each namespace; return after how long the next had no gate."""
        began = {}
        before = {name: len(self._releases[name]) for name in names}
        for name in names:
            path = f"/api/v1/namespaces/{name}/pods/{self._running[name].pop(0)}/status"
            began[name] = time.monotonic()
            self.bench.plane.rest.patch(path, _END)
        for name in names:
            found, count = self._releases[name], before[name]
            wait_until(partial(_has_more, found, count), f"a gate goes in {name}")
            yield found[count][1] - began[name]
        released = [(name, self._releases[name][before[name]][0]) for name in names]
        self.bench.load(self.bench.binds(released), 1, b" 201 ")
        for name, pod in released:
            self._running[name].append(pod)


def _has_more(found: Sequence[object], count: int) -> bool:
    return len(found) > count


def _create(namespace: str, name: str, node: str = "") -> bytes:
    return request_bytes(f"/api/v1/namespaces/{namespace}/pods", pod_body(name, node))


def _full(bench: Bench, name: str) -> str:
    bench.namespace(name, mode="deferred", gating="always")
    hard = {"requests.cpu": f"{RUNNING * POD_MILLIS}m"}
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": hard}}
    bench.plane.rest.create(f"/api/v1/namespaces/{name}/resourcequotas", quota)
    return name


def bench_waiting(waiting: int, rounds: int) -> None:
    """Print how long pods wait for quota that was freed.

    Args:
        waiting: How many pods wait.
        rounds: How often a pod of each namespace ends, one after the other, and all at once.
    """
    with (
        control_plane() as bench,
        Product.start(bench.plane, bench.plane.directory / "product", direct=True),
    ):
        spaces = Namespaces(bench, waiting)
        print(f"\nReal control plane: {waiting:,} pods wait in {NAMESPACES} namespaces")
        time.sleep(5)  # conditions of the new pods are written first
        alone = [
            seconds
            for _ in range(rounds)
            for name in spaces.names
            for seconds in spaces.free([name])
        ]
        _print("one pod ended, next gate gone", alone)
        crowd = [seconds for _ in range(rounds) for seconds in spaces.free(spaces.names)]
        _print(f"{NAMESPACES} ended at once, next gate gone", crowd)


def _print(what: str, seconds: Sequence[float]) -> None:
    ordered = sorted(seconds)
    p50, p99 = (ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
    print(f"  {what:<36}{p50:>7.3f} s (p50){p99:>7.3f} s (p99){ordered[-1]:>7.3f} s (most)")


__all__ = ["bench_waiting"]
