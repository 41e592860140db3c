"""`deferred-quota usage`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.builders import Object, a_container, a_job, a_pod, a_quota
from webhook.cli import ExitCode, cli
from webhook.quota.objects.names import DEFERRED_KEYS

Json: TypeAlias = dict[str, object]

MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team-a}
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: app
        resources:
          requests: {cpu: 500m}
          limits: {cpu: 1, memory: 1.5Gi}
---
apiVersion: batch/v1
kind: Job
metadata: {generateName: train-}
spec:
  parallelism: 4
  completions: 2
  template:
    spec:
      containers:
      - name: main
        resources: {limits: {cpu: "2", nvidia.com/gpu: 1}}
"""

TEXT = """\
NAMESPACE  OBJECT          RESOURCE                 CHARGED AT  PER POD  PODS   TOTAL
team-a     Deployment/web  count/pods               creation          1     3       3
team-a     Deployment/web  limits.cpu               bind              1     3       3
team-a     Deployment/web  limits.memory            bind         1536Mi     3  4608Mi
team-a     Deployment/web  pods                     creation          1     3       3
team-a     Deployment/web  requests.cpu             bind           500m     3   1500m
team-a     Deployment/web  requests.memory          bind         1536Mi     3  4608Mi
default    Job/train-*     count/pods               creation          1     2       2
default    Job/train-*     limits.cpu               bind              2     2       4
default    Job/train-*     pods                     creation          1     2       2
default    Job/train-*     requests.cpu             bind              2     2       4
default    Job/train-*     requests.nvidia.com/gpu  creation          1     2       2
default    (total)         count/pods               creation                2       2
default    (total)         limits.cpu               bind                    2       4
default    (total)         pods                     creation                2       2
default    (total)         requests.cpu             bind                    2       4
default    (total)         requests.nvidia.com/gpu  creation                2       2
team-a     (total)         count/pods               creation                3       3
team-a     (total)         limits.cpu               bind                    3       3
team-a     (total)         limits.memory            bind                    3  4608Mi
team-a     (total)         pods                     creation                3       3
team-a     (total)         requests.cpu             bind                    3   1500m
team-a     (total)         requests.memory          bind                    3  4608Mi
"""


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["usage", *args], input=stdin)


def text_of(*objects: Object) -> str:
    return yaml.safe_dump_all(objects)


def report(*args: str, stdin: str = "") -> Json:
    result = run("-f", "-", "-o", "json", *args, stdin=stdin)
    assert result.exit_code == ExitCode.OK, result.stderr
    found: Json = json.loads(result.stdout)
    return found


def objects_of(found: Json) -> list[Json]:
    objects = found["objects"]
    assert isinstance(objects, list)
    return objects


def usage_of(*objects: Object) -> list[object]:
    return [each["usage"] for each in objects_of(report(stdin=text_of(*objects)))]


def total_of(found: Json, namespace: str) -> Json:
    namespaces = found["namespaces"]
    assert isinstance(namespaces, list)
    (only,) = [each for each in namespaces if each["namespace"] == namespace]
    assert isinstance(only, dict)
    return only


def test_the_table_shows_pods_amounts_and_totals() -> None:
    result = run("-f", "-", stdin=MANIFESTS)
    assert result.exit_code == ExitCode.OK
    assert result.stdout == TEXT
    assert result.stderr == ""


def test_a_pod_that_is_created_with_a_node_is_charged_at_its_creation() -> None:
    container = a_container(requests={"cpu": "1"})
    pods = [a_pod(container, name="free"), a_pod(container, name="pinned", node="node-1")]
    lines = run("-f", "-", stdin=text_of(*pods)).stdout.splitlines()
    moments = [re.split(" {2,}", line)[1:4:2] for line in lines if "requests.cpu" in line]
    assert moments == [
        ["Pod/free", "bind"],
        ["Pod/pinned", "creation"],
        ["(total)", "bind + creation"],
    ]


def test_the_json_has_every_key_as_exact_text() -> None:
    found = report(stdin=MANIFESTS)
    assert found["schemaVersion"] == 1
    assert found["deferredResources"] == sorted(DEFERRED_KEYS)
    assert objects_of(found)[1] == {
        "file": "-",
        "document": 2,
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": "train-*",
        "pods": 2,
        "perNode": False,
        "usage": {
            "count/pods": "1",
            "cpu": "2",
            "limits.cpu": "2",
            "pods": "1",
            "requests.cpu": "2",
            "requests.nvidia.com/gpu": "1",
        },
        "total": {
            "count/pods": "2",
            "cpu": "4",
            "limits.cpu": "4",
            "pods": "2",
            "requests.cpu": "4",
            "requests.nvidia.com/gpu": "2",
        },
    }


def test_namespaces_are_added_up_apart_and_the_option_names_the_missing_one() -> None:
    pods = text_of(
        a_pod(name="a", namespace="team-a", requests={"cpu": "100m"}),
        a_pod(name="b", namespace="team-b", requests={"cpu": "1"}),
        a_pod(name="c", requests={"cpu": "0.2"}, metadata={"namespace": None}),
    )
    found = report("-n", "team-a", stdin=pods)
    assert total_of(found, "team-a") == {
        "namespace": "team-a",
        "pods": 2,
        "total": {"count/pods": "2", "cpu": "300m", "pods": "2", "requests.cpu": "300m"},
    }
    assert total_of(found, "team-b")["pods"] == 1


def test_templates_and_pods_are_defaulted_as_the_api_server_does() -> None:
    container = a_container(limits={"cpu": "1", "memory": "0.1m"})
    expected = {
        "count/pods": "1",
        "pods": "1",
        **dict.fromkeys(("cpu", "requests.cpu", "limits.cpu"), "1"),
        **dict.fromkeys(("memory", "requests.memory", "limits.memory"), "1m"),
    }
    assert usage_of(a_pod(container), a_job(container)) == [expected, expected]


def test_one_container_keeps_the_text_of_its_amount() -> None:
    (usage,) = usage_of(a_pod(requests={"cpu": "1.500"}))
    assert isinstance(usage, dict)
    assert usage["requests.cpu"] == "1.500"


@pytest.mark.parametrize("written", ["0.1", "1e-1", "100e-3", "'0.1'", "100m"])
def test_a_number_is_read_from_its_source_text(written: str) -> None:
    text = f"""
apiVersion: v1
kind: Pod
metadata: {{name: a}}
spec: {{containers: [{{name: a, resources: {{requests: {{cpu: {written}}}}}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: b}}
spec: {{containers: [{{name: b, resources: {{requests: {{cpu: "0.2"}}}}}}]}}
"""
    total = total_of(report(stdin=text), "default")["total"]
    assert isinstance(total, dict)
    assert total["requests.cpu"] in ("300m", "300e-3")


def test_a_finished_pod_is_counted_and_charged_nothing_else() -> None:
    pod = a_pod(requests={"cpu": "1"}, status={"phase": "Succeeded"})
    assert usage_of(pod) == [{"count/pods": "1"}]


def test_a_pod_that_should_be_long_gone_is_charged_nothing_else() -> None:
    gone = {"deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    assert usage_of(a_pod(requests={"cpu": "1"}, metadata=gone)) == [{"count/pods": "1"}]


def a_daemon_set() -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"template": {"spec": {"containers": [a_container(requests={"cpu": "10m"})]}}},
    }


def test_a_daemon_set_is_counted_for_as_many_nodes_as_are_said() -> None:
    found = report("--nodes", "12", stdin=text_of(a_daemon_set()))
    (entry,) = objects_of(found)
    assert (entry["perNode"], entry["pods"]) == (True, 12)
    assert total_of(found, "default")["total"] == {
        "count/pods": "12",
        "cpu": "120m",
        "pods": "12",
        "requests.cpu": "120m",
    }


def test_a_resource_that_the_configuration_defers_is_charged_at_the_bind(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\n"
        "deferredResources: [requests.nvidia.com/gpu]\n"
    )
    result = run("-f", "-", "--config", str(config), stdin=MANIFESTS)
    rows = [line.split() for line in result.stdout.splitlines() if "gpu" in line]
    assert [row[3] for row in rows] == ["bind", "bind"]


STUCK = """
apiVersion: v1
kind: Pod
metadata:
  name: stuck
  deletionTimestamp: "2020-01-01T00:00:00Z"
  deletionGracePeriodSeconds: 1
spec:
  nodeName: node-1
  containers: [{name: c, image: i, resources: {requests: {cpu: "1", ephemeral-storage: 1Gi}}}]
"""
CHARGED = {
    "Release": {"count/pods": "1"},
    "Hold": {"count/pods": "1", "cpu": "1", "requests.cpu": "1"},
}


@pytest.mark.parametrize(("word", "charged"), CHARGED.items(), ids=CHARGED)
def test_a_pod_that_is_stuck_terminating_is_charged_as_the_configuration_says(
    word: str, charged: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        f"apiVersion: deferredquota.io/v1alpha1\nkind: Configuration\nterminatingPods: {word}\n"
    )
    result = run("-f", "-", "-o", "json", "--config", str(config), stdin=STUCK)
    assert json.loads(result.stdout)["objects"][0]["usage"] == charged


def test_a_wrong_configuration_is_bad_input(tmp_path: Path) -> None:
    result = run("-f", "-", "--config", str(tmp_path / "none.yaml"), stdin=MANIFESTS)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr == f"Error: {tmp_path}/none.yaml: No such file or directory\n"


LIMIT_RANGE: Object = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "l", "namespace": "team-a"},
}
NOTES = {
    "no pods": ([a_quota()], "note: no object in the input makes pods\n"),
    "limit range": (
        [LIMIT_RANGE, a_pod()],
        "note: LimitRange objects are not applied; the API server would add their defaults\n",
    ),
    "runtime class": (
        [a_pod(runtimeClassName="kata")],
        "note: the overhead of a RuntimeClass is not known and not counted\n",
    ),
    "runtime class whose overhead is written": (
        [a_pod(runtimeClassName="kata", overhead={"cpu": "1"})],
        "",
    ),
    "daemon set": (
        [a_daemon_set()],
        "note: pods of DaemonSets are counted for 1 node(s); --nodes changes that\n",
    ),
}


@pytest.mark.parametrize(("objects", "note"), NOTES.values(), ids=NOTES.keys())
def test_what_the_figures_leave_out_is_said_on_stderr(objects: list[Object], note: str) -> None:
    result = run("-f", "-", stdin=text_of(*objects))
    assert (result.exit_code, result.stderr) == (ExitCode.OK, note)


def test_what_a_controller_made_is_counted_with_the_object_it_made_it_for() -> None:
    owner = {"kind": "Job", "name": "train", "controller": True, "uid": "job"}
    pod = a_pod(name="train-x", metadata={"ownerReferences": [owner]})
    result = run("-f", "-", "-o", "json", stdin=text_of(pod, a_job(name="train")))
    assert [one["name"] for one in objects_of(json.loads(result.stdout))] == ["train"]
    note = "1 object that a controller made for another one of the input (metadata.ownerReferences)"
    assert result.stderr == f"note: {note} is counted with that one\n"


def test_nothing_is_printed_where_nothing_makes_pods() -> None:
    assert run("-f", "-", stdin=text_of(a_quota())).stdout == ""


def test_an_empty_input_is_an_empty_report() -> None:
    assert report(stdin="")["objects"] == []


LEAST = "must be greater than or equal to 0"
BELOW = f'Invalid value: "-1Gi": {LEAST} (Job train)'
PROBLEMS = {
    "bad quantity": (
        a_pod(requests={"cpu": "1x"}),
        "spec.containers[0].resources.requests.cpu: '1x' is not a quantity",
    ),
    "bad quantity in a template": (
        a_job(a_container(), a_container(limits={"memory": "1GB"})),
        "spec.template.spec.containers[1].resources.limits.memory: '1GB' is not a quantity",
    ),
    "quantity of any size": (
        a_pod(requests={"cpu": "1e999999999"}),
        "spec.containers[0].resources.requests.cpu: '1e999999999' is not a quantity",
    ),
    "amount that cannot be printed": (
        a_pod(requests={"cpu": "1000E"}),
        "spec: cpu is more than Kubernetes can print",
    ),
    "sum that cannot be printed": (
        a_job(a_container(requests={"cpu": "500E"}), parallelism=2),
        "spec.template.spec: cpu is more than Kubernetes can print",
    ),
    "field of the wrong type": (
        a_pod(initContainers="none"),
        "spec.initContainers: must be a list",
    ),
    "no name": (a_pod(metadata={"name": None}), "metadata.name: must be given"),
    "negative request": (
        a_pod(requests={"cpu": "-1"}, name="below"),
        f'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": {LEAST} (Pod below)',
    ),
    "negative limit in a template": (
        a_job(a_container(), a_container(limits={"memory": "-1Gi"})),
        f"spec.template.spec.containers[1].resources.limits[memory]: {BELOW}",
    ),
    "negative overhead": (
        a_pod(overhead={"cpu": "-1m"}),
        f'spec.overhead.limits[cpu]: Invalid value: "-1m": {LEAST}',
    ),
    "negative amount of the pod": (
        a_pod(resources={"requests": {"cpu": "-2"}}),
        f'spec.resources.requests[cpu]: Invalid value: "-2": {LEAST}',
    ),
    "negative count": (a_job(parallelism=-1), "spec.parallelism: must be from 0 to"),
}


@pytest.mark.parametrize(("wrong", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_bad_input_is_named_with_file_document_and_field(
    tmp_path: Path, wrong: Object, problem: str
) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(text_of(a_pod(), wrong, a_pod(name="b")))
    result = run("-f", str(path))
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    place = re.escape(f"Error: {path}: document 2, line ") + r"\d+, column \d+: "
    assert re.match(place + re.escape(problem), result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_every_problem_of_every_file_is_named(tmp_path: Path) -> None:
    bad = a_pod(requests={"cpu": "x"})
    for name, objects in {
        "a.yaml": [bad, a_pod(), bad],
        "b.yaml": [a_pod()],
        "c.yaml": [bad],
    }.items():
        (tmp_path / name).write_text(text_of(*objects))
    (tmp_path / "d.json").write_text("{")
    result = run("-f", str(tmp_path), "-o", "json")
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    starts = [line.partition(", line")[0].split(": ")[1:] for line in result.stderr.splitlines()]
    assert starts == [
        [f"{tmp_path}/a.yaml", "document 1"],
        [f"{tmp_path}/a.yaml", "document 3"],
        [f"{tmp_path}/c.yaml", "document 1"],
        [f"{tmp_path}/d.json", "document 1"],
    ]


def test_control_characters_in_names_are_escaped() -> None:
    result = run("-f", "-", stdin=json.dumps(a_pod(name="a\x1b[2J\nb")))
    assert "\x1b" not in result.stdout
    assert "Pod/a\\x1b[2J\\nb" in result.stdout


def test_a_list_is_taken_apart_and_its_items_are_named() -> None:
    items = [a_pod(name="a"), a_pod(name="b", requests={"cpu": "no"})]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    wrong = '"cpu": "no"'
    assert run("-f", "-", stdin=text).stderr.startswith(
        f"Error: -: document 1, line 1, column {text.index(wrong) + 1}: items[1].spec.containers[0]"
        ".resources.requests.cpu: 'no' is"
    )


def test_a_list_of_kubectl_is_read() -> None:
    items = [a_pod(name="a"), a_job()]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    assert [each["name"] for each in objects_of(report(stdin=text))] == ["a", "train"]


NODE_TABLE = """
NAMESPACE  OBJECT          CONTAINER  QOS CLASS  OOM_SCORE_ADJ  CPU.WEIGHT  OLDER RUNTIMES
team-a     Deployment/web  (pod)      Burstable                         20              20
team-a     Deployment/web  app        Burstable            977          59              20
default    Job/train-*     (pod)      Burstable                         79              79
default    Job/train-*     main       Burstable            999         174              79
"""


def test_what_a_kubelet_sets_is_shown_for_a_node_of_some_memory() -> None:
    result = run("-f", "-", "--node-memory", "64Gi", stdin=MANIFESTS)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    assert result.stdout == TEXT + NODE_TABLE


def test_settings_of_a_kubelet_in_json_name_each_container() -> None:
    sidecar = {**a_container(name="proxy", requests={"memory": "1Gi"}), "restartPolicy": "Always"}
    main = a_container(requests={"memory": "8Gi"})
    given = a_pod(main, initContainers=[sidecar], priorityClassName="system-cluster-critical")
    critical = a_pod(main, name="critical", priorityClassName="system-node-critical")
    found = objects_of(report("--node-memory", "10Gi", stdin=text_of(given, critical)))
    assert [{name: one[name] for name in ("qosClass", "podCpuWeight")} for one in found] == [
        {"qosClass": "Burstable", "podCpuWeight": 1},
        {"qosClass": "Burstable", "podCpuWeight": 1},
    ]
    assert [one["containers"] for one in found] == [
        [
            {"name": "proxy", "oomScoreAdj": 200, "cpuWeight": 1, "cpuWeightLinear": 1},
            {"name": "main", "oomScoreAdj": 200, "cpuWeight": 1, "cpuWeightLinear": 1},
        ],
        [{"name": "main", "oomScoreAdj": -997, "cpuWeight": 1, "cpuWeightLinear": 1}],
    ]


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        ("much", "'much' is not a quantity: "),
        ("0", "'0' must be greater than 0"),
        ("-1Gi", "'-1Gi' must be greater than 0"),
    ],
)
def test_a_node_has_some_memory(memory: str, reason: str) -> None:
    result = run("-f", "-", f"--node-memory={memory}", stdin=MANIFESTS)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert f"Invalid value for '--node-memory': {reason}" in result.stderr


def test_the_real_command_reads_a_pipe() -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "deferred-quota", "usage", "-f", "-"],
        input=MANIFESTS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT, "")


def test_a_closed_standard_input_is_bad_input() -> None:
    command = f"{Path(sys.executable).parent}/deferred-quota usage -f - <&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)  # noqa: S607
    assert (done.returncode, done.stderr) == (2, "Error: -: standard input is closed\n")


def test_errors_without_an_end_are_counted() -> None:
    broken = "---\n".join(["{apiVersion: v1, kind: Pod, spec: {containers: 7}}\n"] * 500)
    result = CliRunner().invoke(cli, ["usage", "-f", "-"], input=broken)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    lines = result.stderr.splitlines()
    assert lines[-1] == "Error: 450 more errors like these, not shown"
    assert len(lines) == 51


def test_an_owner_that_cannot_be_read_is_named() -> None:
    pod = a_pod(name="a", metadata={"ownerReferences": [{"controller": "true"}]})
    result = run("-f", "-", stdin=text_of(pod))
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "metadata.ownerReferences[0].controller" in result.stderr
