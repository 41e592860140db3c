"""Alerts and dashboard: tried by promtool, and against what the product and the API server show."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster.install.alert_cases import CASES
from tests.e2e.cluster.objects import Api
from tests.e2e.cluster.product import Product, apply_namespace
from tests.e2e.cluster.tenant import Tenant
from tests.e2e.cluster.waiting import becomes, eventually
from tests.tools.programs import provide
from webhook.install import MANIFESTS
from webhook.telemetry.metrics import Metrics

MONITORING: Final = MANIFESTS / "components" / "monitoring"
RULES: Final = MONITORING / "rules.yaml"
ALERTS: Final[dict[str, dict[str, Any]]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
GATED: Final = "e2e-monitoring"
_FUNCTIONS: Final = frozenset(
    {
        *("sum", "rate", "by", "max", "min", "count", "histogram_quantile", "absent", "increase"),
        *("count_values", "vector", "time", "or"),
    }
)


@cache
def promtool() -> Path:
    return provide("promtool", print)


def run(*arguments: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(promtool()), *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def dashboard_expressions() -> list[str]:
    board = json.loads((MONITORING / "dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def names_in(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\bby \([^)]*\)', "", expression)
    return set(re.findall(r"[a-z_]{2,}", bare)) - _FUNCTIONS


def test_the_rules_can_be_read() -> None:
    ran = run("check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(ALERTS)} rules found" in ran.stdout


def test_every_alert_has_series_with_which_it_fires_and_others() -> None:
    assert CASES.keys() == ALERTS.keys()


def test_alerts_fire_and_are_quiet(tmp_path: Path) -> None:
    tests = [
        case.test_of(ALERTS[name], series, fires=fires)
        for name, case in CASES.items()
        for series, fires in ((case.fires, True), (case.quiet, False))
    ]
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    ran = run("test", "rules", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_alert_that_does_not_fire_is_noticed(tmp_path: Path) -> None:
    name, case = next(iter(CASES.items()))
    wrong = case.test_of(ALERTS[name], case.quiet, fires=True)
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [wrong]}))
    assert run("test", "rules", file).returncode != 0


def test_the_expressions_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    rules = [
        {"record": f"dashboard:panel:{number}", "expr": text.replace("$__rate_interval", "5m")}
        for number, text in enumerate(dashboard_expressions())
    ]
    assert len(rules) > 20
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    ran = run("check", "rules", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def shown_by_the_api_server(plane: ControlPlane, product: Product, tenant: Tenant) -> set[str]:
    """Names of the samples that an API server shows which has called webhooks, in vain too."""
    tenant.quota()
    tenant.bound("runs", "1")
    apply_namespace(Api(plane.rest), GATED, gating="always")
    for webhook in product.webhooks:
        webhook.kill()
    Tenant(plane.rest, GATED).pod("waits", "1")  # gates are put on by an entry that is ignored
    tenant.pod("more", "1")
    assert tenant.bind("more").code == 500
    product.restore()
    status, text = plane.rest.call("GET", "/metrics")
    assert status == http.client.OK
    return set(re.findall(r"^([a-z_]+)", text.decode(), re.MULTILINE))


def test_alerts_and_dashboard_name_metrics_that_exist(shown_by_the_api_server: set[str]) -> None:
    own = Metrics()
    shown = {
        f"{one.name}{suffix}"
        for one in own.registry.collect()
        for suffix in {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(
            one.type, [""]
        )
    }
    expressions = [*dashboard_expressions(), *(rule["expr"] for rule in ALERTS.values())]
    named = set().union(*map(names_in, expressions))
    assert named - shown - shown_by_the_api_server == set()
    assert {name for name in named if name.startswith("apiserver_")} <= shown_by_the_api_server


def test_a_live_scrape_has_no_faults(product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    eventually(lambda: product.metric("ledger_writes_total", result="written"), "a write")
    for process in product.processes:
        status, text = process.ops("/metrics")
        assert status == http.client.OK
        ran = run("check", "metrics", stdin=text)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_what_a_bind_costs_is_shown(product: Product, tenant: Tenant) -> None:
    tenant.quota()
    tenant.bound("runs", "1")
    calls = {"verb": "update", "resource": "quotaledgers/status", "code": "200"}
    assert product.metric("api_requests_total", **calls) >= 2, "the reservation, and the count"
    assert product.metric("claim_wait_seconds_count") >= 1
    assert product.metric("ledger_size_bytes_count") >= 2
    assert product.metric("leadership_changes_total", change="began") >= 1
    components = {"webhook": len(product.webhooks), "controller": len(product.controllers)}
    for component, count in components.items():
        becomes(
            lambda: product.metric("build_info", component=component),  # noqa: B023
            float(count),
            f"processes that are a {component}",
        )
