"""What scripts/bench --check measures: manifests judged by `deferred-quota check`."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NAMESPACES = 50
_QUOTA = """\
apiVersion: v1
kind: ResourceQuota
metadata: {{name: team, namespace: team-{number}}}
spec: {{hard: {{requests.cpu: "1k", requests.memory: 1Ti, pods: "10k"}}}}
"""
_DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web-{number}
  namespace: team-{namespace}
  labels:
    app: web
    tier: front
spec:
  replicas: {replicas}
  selector:
    matchLabels:
      app: web-{number}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 0
  template:
    metadata:
      labels:
        app: web-{number}
    spec:
      containers:
      - name: web
        image: registry.example/web:1.{number}
        ports:
        - containerPort: 8080
        env:
        - name: MODE
          value: production
        resources:
          requests:
            cpu: {cpu}m
            memory: 128Mi
          limits:
            memory: 256Mi
"""


def manifests(documents: int) -> str:
    """Return Deployments of 35 lines each, and the quotas of their namespaces."""
    quotas = [_QUOTA.format(number=number) for number in range(NAMESPACES)]
    deployments = [
        _DEPLOYMENT.format(
            number=number,
            namespace=number % NAMESPACES,
            replicas=1 + number % 5,
            cpu=100 + number % 7 * 50,
        )
        for number in range(documents)
    ]
    return "---\n".join(quotas + deployments)


def bench_check(documents: int, runs: int) -> None:
    """Judge the same file several times, each in a process of its own, and print figures."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "manifests.yaml"
        file.write_text(manifests(documents), encoding="utf-8")
        size = file.stat().st_size / 1e6
        print(f"{documents:,} Deployments and {NAMESPACES} quotas, {size:.1f} MB of YAML")
        print(f"  {'':8}{'wall s':>8}{'cpu s':>8}{'MB':>8}")
        walls = [_run(number, file) for number in range(1, runs + 1)]
    print(f"  median  {statistics.median(walls):8.2f}")


def _run(number: int, file: Path) -> float:
    command = [sys.executable, "-m", "webhook", "check", "-f", str(file)]
    wall, cpu, size = spent(command)
    print(f"  run {number}   {wall:8.2f}{cpu:8.2f}{size:8.0f}")
    return wall


def spent(command: list[str]) -> tuple[float, float, float]:
    """Run a command; return its seconds, processor seconds and largest memory in MiB."""
    # an installation has its bytecode
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{command[2]} ended with {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
