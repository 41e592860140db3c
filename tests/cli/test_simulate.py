"""`deferred-quota simulate`."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from webhook.cli import ExitCode, cli
from webhook.config import Configuration

SCENARIO = """\
apiVersion: deferredquota.io/v1alpha1
kind: Scenario
nodes:
- {name: node-1, allocatable: {cpu: "4", memory: 8Gi}}
quotas:
- {namespace: team-a, name: compute, spec: {hard: {requests.cpu: "2"}}}
workloads:
- name: big
  namespace: team-a
  arrivals: {count: 2, every: 1s}
  duration: 1m
  spec: {containers: [{name: main, resources: {requests: {cpu: "2"}}}]}
"""

TEXT = """\
                                     native  deferred   gated
pods arrived                              2         2       2
pods started                              2         2       2
pods ended                                2         2       2
running at the end                        0         0       0
waiting at the end                        0         0       0
never created                             0         0       0
simulated time                         2m4s      2m6s      2m
wait p50                                 0s        0s      0s
wait p99                               1m3s      1m5s     59s
creations refused                         6         0       0
binds refused                             0         9       0
retries                                   6         9       0
wait p50 team-a/big                      0s        0s      0s
wait p99 team-a/big                    1m3s      1m5s     59s
team-a/compute requests.cpu running   96.8%     95.2%  100.0%
nodes cpu running                     48.4%     47.6%   50.0%
"""


def run(folder: Path, *arguments: str, scenario: str = SCENARIO) -> Result:
    path = folder / "scenario.yaml"
    path.write_text(scenario)
    return CliRunner().invoke(cli, ["simulate", "-f", str(path), *arguments])


@pytest.mark.parametrize("command", ["simulate", "replay"])
def test_help_says_that_the_default_gating_is_not_simulated(command: str) -> None:
    text = " ".join(CliRunner().invoke(cli, [command, "--help"]).output.split())
    assert f"The default of an installation, {Configuration().gating}, is not simulated" in text


def test_the_table_has_a_column_for_each_mode(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == ExitCode.OK, result.output
    assert result.stdout == TEXT


def test_csv_and_json_have_the_same_figures(tmp_path: Path) -> None:
    modes = ("--mode", "gated", "--mode", "native")
    rows = list(csv.DictReader(io.StringIO(run(tmp_path, *modes, "-o", "csv").stdout)))
    report = json.loads(run(tmp_path, *modes, "-o", "json").stdout)
    assert [*report["modes"]] == ["native", "gated"]
    for row in rows:
        for mode, figures in report["modes"].items():
            assert str(figures[row["figure"]]) == row[mode]
            assert report["units"][row["figure"]] == row["unit"]


def test_a_wait_of_no_pod_is_none_and_not_zero(tmp_path: Path) -> None:
    # natively the first pod holds the quota for ever, and no node takes it
    once = "arrivals: {at: [1s]}"
    small = SCENARIO.partition("workloads:\n")[2].replace("arrivals: {count: 2, every: 1s}", once)
    stuck = SCENARIO.replace("count: 2", "count: 1").replace(
        "spec: {con", "spec: {nodeSelector: {a: b}, con"
    )
    scenario = f"until: 5m\n{stuck}{small.replace('big', 'later')}"
    name = "wait p50 team-a/later"
    (line,) = [one for one in run(tmp_path, scenario=scenario).stdout.splitlines() if name in one]
    assert line.split()[3:5] == ["-", "0s"]
    report = json.loads(run(tmp_path, "-o", "json", scenario=scenario).stdout)
    assert [report["modes"][mode][name] for mode in ("native", "deferred")] == [None, 0]
    rows = csv.DictReader(io.StringIO(run(tmp_path, "-o", "csv", scenario=scenario).stdout))
    (row,) = [one for one in rows if one["figure"] == name]
    assert (row["native"], row["deferred"]) == ("", "0")


def test_events_are_written_in_their_order(tmp_path: Path) -> None:
    target = tmp_path / "events.csv"
    assert run(tmp_path, "--mode", "gated", "--events", str(target)).exit_code == ExitCode.OK
    with target.open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [
        ("gated", "0", "Gated", "team-a/big-0", ""),
        ("gated", "0", "Released", "team-a/big-0", ""),
        ("gated", "0", "Bound", "team-a/big-0", "node-1"),
        ("gated", "1000", "Gated", "team-a/big-1", ""),
        ("gated", "60000", "Ended", "team-a/big-0", ""),
        ("gated", "60000", "Released", "team-a/big-1", ""),
        ("gated", "60000", "Bound", "team-a/big-1", "node-1"),
        ("gated", "120000", "Ended", "team-a/big-1", ""),
    ]


def test_a_refused_pod_is_created_again_by_its_controller(tmp_path: Path) -> None:
    target = tmp_path / "events.csv"
    assert run(tmp_path, "--mode", "native", "--events", str(target)).exit_code == ExitCode.OK
    with target.open(newline="") as file:
        refused = [row for row in csv.DictReader(file) if row["event"] == "CreateRefused"]
    times = [int(row["milliseconds"]) for row in refused]
    assert times == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000]
    assert refused[0]["detail"] == (
        'pods "big-1" is forbidden: exceeded quota: compute, requested: requests.cpu=2,'
        " used: requests.cpu=2, limited: requests.cpu=2"
    )


def test_a_pod_without_controller_is_created_once(tmp_path: Path) -> None:
    target = tmp_path / "events.csv"
    scenario = SCENARIO.replace("  duration: 1m", "  duration: 1m\n  controller: None")
    run(tmp_path, "--mode", "native", "--events", str(target), scenario=scenario)
    with target.open(newline="") as file:
        kinds = Counter(row["event"] for row in csv.DictReader(file))
    assert kinds == {"Created": 1, "Bound": 1, "Ended": 1, "CreateRefused": 1}


def test_a_page_is_written_beside_the_table(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    result = run(tmp_path, "--html", str(target))
    assert result.stdout == TEXT
    assert "<h1>Simulation of scenario.yaml</h1>" in target.read_text()


def test_an_image_is_written_beside_the_table(tmp_path: Path) -> None:
    target = tmp_path / "report.png"
    result = run(tmp_path, "--png", str(target))
    assert result.stdout == TEXT
    assert target.read_bytes().startswith(b"\x89PNG\r\n")


def test_without_its_extra_an_image_is_refused_before_anything_is_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "webhook.operations.simulate.png_image", raising=False)
    target = tmp_path / "report.png"
    result = run(tmp_path, "--png", str(target))
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert "pip install pillow" in result.stderr
    assert not target.exists()


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    target = tmp_path / "none" / "report.html"
    result = run(tmp_path, "--html", str(target))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert str(target) in result.stderr


def test_bad_input_ends_with_its_place(tmp_path: Path) -> None:
    result = run(tmp_path, scenario=SCENARIO.replace("duration: 1m", "duration: -1m"))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "scenario.yaml: line 11, column 3: workloads[0].duration: must be a time" in (
        result.stderr
    )
    assert result.stdout == ""
