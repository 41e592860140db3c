"""Whether an alert fires, by its rule and what was scraped before and during an outage."""

from __future__ import annotations

import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.product import Server
from tests.tools.programs import provide
from webhook.install import MANIFESTS

RULES: Final = MANIFESTS / "components" / "monitoring" / "rules.yaml"
_MINUTES: Final = 60
_MOMENTS: Final = ("_not_after_seconds", "_since_seconds")
_COUNTERS: Final = ("_total", "_count", "_bucket", "_sum")

Scrape: TypeAlias = Mapping[str, float]
"""Series as it stands in an exposition → value."""


def scrape(plane: ControlPlane, processes: Iterable[Server]) -> Scrape:
    """Return what the API server and some processes show, those that answer."""
    status, text = plane.rest.call("GET", "/metrics")
    assert status == http.client.OK
    return {**_of_ours(_series(text.decode(), "apiserver")), **scraped(processes)}


def scraped(processes: Iterable[Server]) -> Scrape:
    """Return what some processes show, those that answer."""
    found: dict[str, float] = {}
    for process in processes:
        if process.is_running:
            found.update(_of_ours(_series(process.ops("/metrics")[1], process.name)))
    return found


def _of_ours(series: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: value for name, value in series if "deferred" in name}


def is_firing(alert: str, before: Scrape, during: Scrape) -> bool:
    """Return whether an alert fires after an hour of what happened between two scrapes each minute.

    What is shown no more has no series; what is no counter stays as it was seen last.
    """
    expression = _expression(alert)
    # all others would cost promtool a thousand times the work
    series = [
        {"series": name, "values": _values(name, before.get(name, 0.0), value)}
        for name, value in during.items()
        if name.partition("{")[0] in expression
    ]
    test = {
        "interval": "1m",
        "input_series": series,
        # none is expected: promtool then prints those that fire
        "alert_rule_test": [{"eval_time": f"{_MINUTES}m", "alertname": alert, "exp_alerts": []}],
    }
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "tests.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
        ran = subprocess.run(
            [str(provide("promtool", print)), "test", "rules", file],
            capture_output=True,
            text=True,
            check=False,
        )
    told = ran.stdout + ran.stderr
    assert ran.returncode == 0 or f"alertname: {alert}" in told, told
    return ran.returncode != 0


def _expression(alert: str) -> str:
    (found,) = (
        str(rule["expr"])
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if rule["alert"] == alert
    )
    return found


def _values(name: str, before: float, during: float) -> str:
    metric = name.partition("{")[0]
    if metric.endswith(_COUNTERS):
        return f"{before}+{max(during - before, 0.0)}x{_MINUTES * 2}"
    if metric.endswith(_MOMENTS):
        during = max(during - time.time(), 1.0)  # promtool begins in 1970
    return f"{during}x{_MINUTES * 2}"


def _series(text: str, instance: str) -> Iterable[tuple[str, float]]:
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        name, _, value = line.rpartition(" ")
        metric, _, labels = name.rstrip("}").partition("{")
        mark = f"{labels.rstrip(',')}," if labels else ""
        yield f'{metric}{{{mark}instance="{instance}"}}', float(value)
