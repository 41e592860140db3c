"""What `scripts/bench --commands` measures: how long the command line takes to answer.

`--help`, what completion offers, and `explain` of a pod that waits in a namespace of 1,000 pods, on
a real control plane with a controller and a webhook. Each run is a process of its own; the
requests of `explain` are counted in another run of it.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.cluster import (
    Bench,
    control_plane,
    pod_body,
    used_of,
    wait_until,
    wait_until_counted,
)
from tests.bench.load_generator import request_bytes
from tests.e2e.cluster.product import Product
from webhook.kube.rest import RestClient, load_config
from webhook.operations.explain.explaining import KINDS, Target, explain
from webhook.operations.explain.session import ExplainOptions

PODS: Final = 1_000
_SPACE: Final = "crowded"
_ROUNDS: Final = 9
_PROGRAM: Final = "deferred-quota"


def bench_commands() -> None:
    """Print the seconds of each command."""
    print(f"{'':<40}{'median s':>10}{'most':>8}{'cpu s':>8}{'silent':>8}")
    _row("--help", ["--help"], "explain")
    _row("completion of a command", [], "explain", line=f"{_PROGRAM} ex")
    with (
        control_plane() as bench,
        Product.start(bench.plane, bench.plane.directory / "product", direct=True) as product,
    ):
        assert product.controllers
        _crowd(bench)
        access = {"KUBECONFIG": str(bench.plane.kubeconfig())}
        asked = f"{_PROGRAM} explain -n {_SPACE} pod run-"
        _row(f"completion of names, {PODS:,} pods", [], "run-1", line=asked, access=access)
        command = ["explain", "pod", "waiting", "-n", _SPACE]
        _row(f"explain pod, {PODS:,} pods", command, "exceeded quota", access=access)
        print(f"  requests: {_requests(bench.plane.kubeconfig())}")


def _crowd(bench: Bench) -> None:
    """Fill a namespace to the last millicore, and let a pod wait in it."""
    bench.namespace(_SPACE, mode="deferred", gating="always")
    hard = {"requests.cpu": str(PODS // 10)}
    quota = {"metadata": {"name": "compute"}, "spec": {"hard": hard}}
    bench.plane.rest.create(f"/api/v1/namespaces/{_SPACE}/resourcequotas", quota)
    wait_until_counted(bench, _SPACE)
    path = f"/api/v1/namespaces/{_SPACE}/pods"
    pods = [request_bytes(path, pod_body(f"run-{one}", "node-0")) for one in range(PODS)]
    bench.load(pods, 16, b" 201 ")
    wait_until(lambda: used_of(bench).get(_SPACE) == PODS * 100, "every pod is counted")
    bench.plane.rest.create(path, json.loads(pod_body("waiting")))


def _requests(kubeconfig: Path) -> str:
    """Return how many requests one explanation takes, by verb and resource."""
    counts: Counter[str] = Counter()

    def count(verb: str, resource: str, _code: str, _seconds: float) -> None:
        counts[f"{verb} {resource}"] += 1

    api = RestClient(load_config(kubeconfig, None), on_call=count)
    explain(api, Target(KINDS["pod"], _SPACE, "waiting"), ExplainOptions())
    listed = ", ".join(f"{what} {number}" for what, number in sorted(counts.items()))
    return f"{counts.total()} ({listed})"


def _row(
    what: str,
    arguments: list[str],
    expected: str,
    *,
    line: str = "",
    access: Mapping[str, str] | None = None,
) -> None:
    """Print a command line's seconds, or those of completing a line."""
    words = {
        "_DEFERRED_QUOTA_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(line.count(" ")),
    }
    environment = {**os.environ, **(access or {}), **(words if line else {})}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installation has its bytecode
    command = [str(Path(sys.executable).with_name(_PROGRAM)), *arguments]

    def run() -> bool:
        answer = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        )
        return expected in answer.stdout

    run()
    runs = [_timed(run) for _ in range(_ROUNDS)]
    silent = sum(not one.is_answered for one in runs)
    wall = [one.wall for one in runs]
    cpu = statistics.median(one.cpu for one in runs)
    median = statistics.median(wall)
    print(f"{what:<40}{median:>10.2f}{max(wall):>8.2f}{cpu:>8.2f}{silent:>8}", flush=True)


@dataclass(frozen=True)
class _Run:
    wall: float
    cpu: float
    is_answered: bool


def _timed(work: Callable[[], bool]) -> _Run:
    before, began = _processor_seconds(), time.monotonic()
    is_answered = work()
    wall = time.monotonic() - began
    return _Run(wall, _processor_seconds() - before, is_answered)


def _processor_seconds() -> float:
    """Processor time of all processes that were started here and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
