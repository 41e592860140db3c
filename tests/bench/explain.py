"""What scripts/bench --explain measures: a pod explained from a snapshot of a large cluster."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.check import spent

NAMESPACES = 50
_TAKEN = "2026-01-01T00:00:00Z"
_PARSE = "import json, sys; json.loads(open(sys.argv[1], encoding='utf-8').read())"


def cluster(nodes: int, pods: int) -> dict[str, Any]:
    """Return a snapshot of pods on nodes, and of one that waits in the first namespace."""
    items = [item for number in range(NAMESPACES) for item in _namespace(number)]
    items += map(_node, range(nodes))
    items += [_pod(f"web-{number}", number % NAMESPACES, number % nodes) for number in range(pods)]
    items.append(_pod("waiting", 0, None))
    head = {"apiVersion": "deferredquota.io/v1alpha1", "kind": "SnapshotList", "format": 1}
    return {
        **head,
        "taken": _TAKEN,
        "program": "bench",
        "namespaces": [],
        "unread": [],
        "items": items,
    }


def _namespace(number: int) -> list[dict[str, Any]]:
    name, labels = f"team-{number}", {"deferredquota.io/mode": "deferred"}
    quota = {"metadata": {"name": "team", "namespace": name, "uid": f"quota-{number}"}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            **quota,
            "spec": {"hard": {"requests.cpu": "1k"}},
        },
    ]


def _node(number: int) -> dict[str, Any]:
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": f"node-{number}", "zone": f"zone-{number % 3}"}
    images = [{"names": [f"registry.example/web:{one}"], "sizeBytes": 10**8} for one in range(8)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{number}", "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "images": images},
    }


def _pod(name: str, namespace: int, node: int | None) -> dict[str, Any]:
    requests = {"cpu": "500m" if node is not None else "99", "memory": "512Mi"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web"}
    container = {"name": "web", "image": "registry.example/web:1"}
    spec = {"containers": [{**container, "resources": {"requests": requests}}]}
    placed = {"nodeName": f"node-{node}"}
    gated = {"schedulingGates": [{"name": "deferredquota.io/quota"}]}
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": _TAKEN} for kind in kinds]
    running = {"phase": "Running", "conditions": conditions}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": f"team-{namespace}",
            "uid": f"uid-{name}",
            "creationTimestamp": _TAKEN,
            "labels": {"app": "web"},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            **spec,
            "schedulerName": "default-scheduler",
            **(placed if node is not None else gated),
        },
        "status": running if node is not None else {"phase": "Pending"},
    }


def bench_explain(nodes: int, pods: int, runs: int) -> None:
    """Explain one pod several times, each beside a process that only parses the file."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "cluster.json"
        file.write_text(json.dumps(cluster(nodes, pods), separators=(",", ":")), encoding="utf-8")
        print(f"{nodes:,} nodes and {pods:,} pods, {file.stat().st_size / 1e6:.1f} MB of JSON")
        print(f"  {'':10}{'wall s':>8}{'cpu s':>8}{'MB':>8}{'json.loads, cpu s':>20}{'x':>7}")
        spent(_command(file))  # leaves bytecode behind
        ratios = [_pair(number, file) for number in range(1, runs + 1)]
    print(f"  median{'':47}{statistics.median(ratios):8.2f}")


def _pair(number: int, file: Path) -> float:
    wall, cpu, size = spent(_command(file))
    _, parse, _ = spent([sys.executable, "-c", _PARSE, str(file)])
    print(f"  run {number:<6}{wall:8.2f}{cpu:8.2f}{size:8.0f}{parse:20.2f}{cpu / parse:7.2f}")
    return cpu / parse


def _command(file: Path) -> list[str]:
    options = ["-n", "team-0", "--snapshot", str(file)]
    return [sys.executable, "-m", "webhook", "explain", "pod", "waiting", *options]
