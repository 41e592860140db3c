"""What `scripts/bench --simulate` measures: 100,000 pods in simulated time, in each mode."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from tests.bench.check import spent

NAMESPACES: Final = 20
NODES: Final = 100
_CPU: Final = 16
_SECONDS: Final = 600
"""How long a pod of one cpu runs, on average."""


def scenario(pods: int) -> dict[str, Any]:
    """Return a scenario whose pods take 95 % of quotas and nodes, on average."""
    slots = NODES * _CPU // NAMESPACES
    names = [f"team-{number}" for number in range(NAMESPACES)]
    requests = {"cpu": "1", "memory": "2Gi"}
    container = {"name": "main", "image": "report", "resources": {"requests": requests}}
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "Scenario",
        "seed": 1,
        "nodes": [
            {
                "name": "node",
                "count": NODES,
                "allocatable": {"cpu": str(_CPU), "memory": "64Gi"},
            }
        ],
        "quotas": [
            {"namespace": name, "name": "compute", "spec": {"hard": {"requests.cpu": str(slots)}}}
            for name in names
        ],
        "workloads": [
            {
                "name": "report",
                "namespace": name,
                "arrivals": {
                    "count": pods // NAMESPACES,
                    "every": {"mean": f"{_SECONDS * 1000 // (slots * 19 // 20)}ms"},
                },
                "duration": {"mean": f"{_SECONDS}s"},
                "spec": {"containers": [container]},
            }
            for name in names
        ],
    }


def bench_simulate(pods: int) -> None:
    """Simulate the same scenario once in each mode, each in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "scenario.json"
        file.write_text(json.dumps(scenario(pods)), encoding="utf-8")
        print(f"{pods:,} pods of {NAMESPACES} namespaces on {NODES} nodes")
        print(f"  {'':10}{'wall s':>8}{'cpu s':>8}{'MB':>8}")
        for mode in ("native", "deferred", "gated"):
            command = [sys.executable, "-m", "webhook", "simulate", "-f", str(file)]
            wall, cpu, size = spent([*command, "--mode", mode])
            print(f"  {mode:<10}{wall:8.1f}{cpu:8.1f}{size:8.0f}")
