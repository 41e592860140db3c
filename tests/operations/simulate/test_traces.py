"""Traces: our own columns, and the pod tables of Alibaba and Google."""

from __future__ import annotations

from pathlib import Path

import pytest

from webhook.operations.simulate.scenario_files import ScenarioError, read_scenario
from webhook.quota.amounts.resources import to_text
from webhook.quota.charging.pod_usage import usage_of
from webhook.quota.simulation.values import Arrival

SHOWN = ("requests.cpu", "requests.memory", "requests.nvidia.com/gpu")

OWN = """\
name,namespace,arrival,duration,priority,requests.cpu,requests.memory,limits.cpu
web-1,team-b,90s,1h,10,500m,1Gi,1
web-2,,60,30.5,,2,,
"""

ALIBABA = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
openb-pod-0022,4000,15258,1,220,,BE,Running,9679175,9973826,9679180
openb-pod-0035,16000,32768,0,0,V100M16|V100M32,LS,Pending,9437507,9437607,
"""

GOOGLE = """\
time,type,collection_id,collection_type,priority,instance_index,resource_request.cpus,resource_request.memory
500000,SUBMIT,6,0,200,0,0.5,0.25
1000000,SUBMIT,7,0,200,0,0.5,0.25
1500000,SUBMIT,7,0,200,1,0.001,0.0009765625
2000000,SCHEDULE,7,0,200,0,0.5,0.25
2000000,3,7,0,200,1,0.001,0.0009765625
3000000,EVICT,7,0,200,0,0.5,0.25
3500000,SUBMIT,7,0,200,0,0.5,0.25
4000000,SCHEDULE,7,0,200,0,0.5,0.25
9000000,6,7,0,200,0,0.5,0.25
9000000,SUBMIT,8,1,200,0,0.5,0.25
9500000,SUBMIT,9,0,0,0,0.5,0.25
12000000,UPDATE_RUNNING,7,0,200,1,0.002,0.002
"""

COLLECTIONS = """\
time,type,collection_id,user
1000000,0,7,aGVsbG8=
"""


def arrivals(folder: Path, trace: str, fields: str) -> list[Arrival]:
    (folder / "pods.csv").write_text(trace)
    (folder / "collections.csv").write_text(COLLECTIONS)
    scenario = folder / "scenario.yaml"
    scenario.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Scenario\nnodes: []\n"
        f"traces:\n- {{file: pods.csv, namespace: team-a, {fields}}}\n"
    )
    return list(read_scenario(scenario).arrivals)


def charged(arrival: Arrival) -> dict[str, str]:
    usage = usage_of(arrival.template.pod, now=None)
    return to_text({name: usage[name] for name in SHOWN if name in usage})


def test_our_own_columns(tmp_path: Path) -> None:
    second, first = arrivals(tmp_path, OWN, "format: csv")
    assert (first.key, first.at, first.duration) == ("team-b/web-1", 90_000, 3_600_000)
    assert first.template.pod.priority == 10
    assert charged(first) == {"requests.cpu": "500m", "requests.memory": "1Gi"}
    assert (second.key, second.at, second.duration) == ("team-a/web-2", 60_000, 30_500)
    assert charged(second) == {"requests.cpu": "2"}


def test_the_pods_of_alibaba(tmp_path: Path) -> None:
    first, pending, shared = arrivals(tmp_path, ALIBABA, "format: alibaba-gpu-2023")
    assert (first.key, first.at, first.duration) == ("team-a/openb-pod-0017", 0, 1_332_357_000)
    assert charged(first) == {
        "requests.cpu": "88",
        "requests.memory": "320Gi",
        "requests.nvidia.com/gpu": "8",
    }
    assert charged(shared)["requests.nvidia.com/gpu"] == "1"
    assert shared.duration == 294_646_000
    assert (pending.at, pending.duration) == (10_000, 100_000)
    assert "requests.nvidia.com/gpu" not in charged(pending)


def test_the_instances_of_google(tmp_path: Path) -> None:
    machine = "machine: {cpu: '64', memory: 256Gi}, collections: collections.csv"
    first, second = arrivals(tmp_path, GOOGLE, f"format: google-2019, {machine}")
    assert (first.key, first.at, first.duration) == ("user-0/i-7-0", 0, 5_000)
    assert charged(first) == {"requests.cpu": "32", "requests.memory": "64Gi"}
    assert first.template.pod.priority == 200
    assert (second.key, second.at, second.duration) == ("user-0/i-7-1", 500, 10_000)
    assert charged(second) == {"requests.cpu": "64m", "requests.memory": "256Mi"}


PARTS = {
    "a thousandth of a core and a bit": ("0.00001563", "64", "2m"),
    "next to nothing": ("0.0000001", "64", "1m"),
    "nothing": ("0", "64", "0"),
    "a thousandth of a core": ("0.5", "2m", "1m"),
}


@pytest.mark.parametrize(("part", "whole", "expected"), PARTS.values(), ids=PARTS.keys())
def test_parts_of_a_machine_are_rounded_up(
    tmp_path: Path, part: str, whole: str, expected: str
) -> None:
    table = GOOGLE.replace("0.5,0.25", f"{part},0.25")
    machine = f"machine: {{cpu: '{whole}', memory: 256Gi}}, collections: collections.csv"
    first, _ = arrivals(tmp_path, table, f"format: google-2019, {machine}")
    assert charged(first)["requests.cpu"] == expected


def test_a_part_that_no_machine_has_is_an_error(tmp_path: Path) -> None:
    table = GOOGLE.replace("0.5,0.25", f"{10**18 - 1},0.25")
    machine = "machine: {cpu: 900P, memory: 256Gi}, collections: collections.csv"
    with pytest.raises(ScenarioError, match="is more than any cluster has"):
        arrivals(tmp_path, table, f"format: google-2019, {machine}")


def test_a_namespace_of_blanks_is_none(tmp_path: Path) -> None:
    table = OWN.replace("web-1,team-b", "web-1, team-b ").replace("web-2,,", "web-2,  ,")
    found = arrivals(tmp_path, table, "format: csv")
    assert {one.key for one in found} == {"team-b/web-1", "team-a/web-2"}


def test_pods_that_ask_for_the_same_share_a_template(tmp_path: Path) -> None:
    rows = "".join(f"web-{number},0,1,500m\n" for number in range(9))
    found = arrivals(tmp_path, f"name,arrival,duration,requests.cpu\n{rows}", "format: csv")
    assert len({one.template for one in found}) == 1


WRONG = {
    "an unknown column": (
        OWN.replace("limits.cpu", "limit.cpu"),
        "format: csv",
        "pods.csv: line 2, column limit.cpu: unknown column",
    ),
    "a column twice": (
        OWN.replace("limits.cpu", "requests.cpu"),
        "format: csv",
        "pods.csv: line 1, column requests.cpu: appears twice",
    ),
    "a column that is missing": (
        OWN.replace("arrival", "namespace2"),
        "format: csv",
        "pods.csv: line 2, column namespace2: unknown column",
    ),
    "too few cells": (OWN + "web-3,,1\n", "format: csv", "line 4, column 3: the first line has 8"),
    "no quantity": (
        OWN.replace("500m", "half"),
        "format: csv",
        "pods.csv: line 2, column requests.cpu: 'half' is not a quantity",
    ),
    "a negative amount": (
        OWN.replace("500m", "-500m"),
        "format: csv",
        "pods.csv: line 2, column requests.cpu: must not be negative: -500m",
    ),
    "an amount that no cluster has": (
        OWN.replace("500m", "1E"),
        "format: csv",
        "pods.csv: line 2, column requests.cpu: is more than any cluster has: 1E",
    ),
    "a negative time": (
        OWN.replace("90s", "-90s"),
        "format: csv",
        "pods.csv: line 2, column arrival: must be a time",
    ),
    "a name that no pod can have": (
        OWN.replace("web-1", "Web 1"),
        "format: csv",
        "pods.csv: line 2, column name: ",
    ),
    "a pod twice": (
        OWN.replace("web-2,", "web-1,team-b"),
        "format: csv",
        "two pods have the name 'team-b/web-1'",
    ),
    "a quote that does not end": (OWN.replace("web-2", '"web-2'), "format: csv", "line 3: "),
    "no number": (
        ALIBABA.replace("88000", "many"),
        "format: alibaba-gpu-2023",
        "pods.csv: line 2, column cpu_milli: must be a number from 0 to 10^18, not 'many'",
    ),
    "a number as Python writes it": (
        ALIBABA.replace("88000", "88_000"),
        "format: alibaba-gpu-2023",
        "pods.csv: line 2, column cpu_milli: must be a number from 0 to 10^18, not '88_000'",
    ),
    "more than any machine": (
        ALIBABA.replace("88000", "1000000000000000000"),
        "format: alibaba-gpu-2023",
        "pods.csv: line 2, column cpu_milli: must be a number from 0 to 10^18",
    ),
    "a pod that ends before it begins": (
        ALIBABA.replace("10769854", "9437000"),
        "format: alibaba-gpu-2023",
        "pods.csv: line 2, column deletion_time: is before the pod was scheduled",
    ),
    "the columns of another trace": (
        OWN,
        "format: alibaba-gpu-2023",
        "pods.csv: line 2, column creation_time: there is no such column",
    ),
    "no machine": (GOOGLE, "format: google-2019", "machine.cpu must be given"),
    "no type of event": (
        GOOGLE.replace("EVICT", "EXPLODE"),
        "format: google-2019, machine: {cpu: '1', memory: 1Gi}",
        "pods.csv: line 7, column type: is no type of event: 'EXPLODE'",
    ),
    "an unknown format": (OWN, "format: borg", "traces[0].format: must be one of csv, alibaba"),
}


@pytest.mark.parametrize(("trace", "fields", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, trace: str, fields: str, message: str
) -> None:
    with pytest.raises(ScenarioError) as raised:
        arrivals(tmp_path, trace, fields)
    assert message in str(raised.value)
