"""`deferred-quota check`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml
from click.testing import CliRunner, Result

import webhook
from tests.builders import Object, a_container, a_job, a_pod, a_quota, out_of_bounds
from tests.cli.clusters import kubeconfig_of
from tests.json_schema import schema_errors
from tests.xml_schema import xml_errors
from webhook.cli import ExitCode, cli
from webhook.fakecluster.manifests.loading import load_cluster
from webhook.operations.check import manifest_check

VECTORS: Final = Path(__file__).parents[1] / "vectors"
SCHEMA: Final = json.loads(
    (Path(webhook.__file__).parent / "schemas/check.schema.json").read_text(encoding="utf-8")
)
SARIF: Final = json.loads((VECTORS / "sarif-2.1.0.schema.json").read_text(encoding="utf-8"))

MODE: Final = "deferredquota.io/mode"
QUOTA: Final = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: team, namespace: team-a}
spec: {hard: {requests.cpu: "4", count/configmaps: "2"}}
"""
WEB: Final = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: team-a
spec:
  replicas: 3
  template:
    spec:
      containers:
      - name: app
        resources:
          requests:
            cpu: "2"
"""
TEXT: Final = """\
web.yaml:8:3: waits: Deployment team-a/web: 1 of 3 pods is refused until there is room: exceeded \
quota: team, requested: requests.cpu=6, used: requests.cpu=0, limited: requests.cpu=4 [quota-wait]
    missing: requests.cpu=2
    fix: kubectl patch resourcequota team -n team-a --type=merge -p \
'{"spec":{"hard":{"requests.cpu":"6"}}}'
2 objects: 1 admitted, 1 wait
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a quota that is too small for a Deployment."""
    monkeypatch.chdir(tmp_path)
    write("quota.yaml", QUOTA)
    write("web.yaml", WEB)
    return tmp_path


def write(name: str, text: str) -> None:
    Path(name).write_text(text, encoding="utf-8")


def run(*args: str, text: str | None = None, **env: str) -> Result:
    return CliRunner().invoke(cli, ["check", *args], input=text, env=env)


def checked(*args: str, text: str | None = None) -> Any:
    """The JSON report, which keeps to its schema."""
    result = run(*args, "-o", "json", text=text)
    assert result.exit_code in {0, 1, 2, 3}, result.output
    assert result.stdout, result.output
    report = json.loads(result.stdout)
    assert list(schema_errors(report, SCHEMA)) == []
    return report


def dumped(*objects: Object) -> str:
    return yaml.safe_dump_all(objects)


def findings(report: Any) -> list[Any]:
    return [found for one in report["objects"] for found in one["findings"]]


def test_text_has_place_rule_numbers_and_a_command() -> None:
    result = run("-f", "quota.yaml", "-f", "web.yaml")
    assert (result.exit_code, result.stdout) == (ExitCode.FINDINGS, TEXT)


def test_json_has_the_same_as_values() -> None:
    report = checked("-f", "quota.yaml", "-f", "web.yaml")
    assert report["summary"]["waits"] == 1
    (found,) = findings(report)
    assert found["resources"] == [
        {
            "resource": "requests.cpu",
            "requested": "6",
            "used": "0",
            "reserved": "0",
            "hard": "4",
            "missing": "2",
        }
    ]
    assert (found["file"], found["line"], found["column"]) == ("web.yaml", 8, 3)


def everything() -> None:
    """Write manifests of which every kind of finding comes."""
    odd = a_pod(a_container(), name="<script>\x1b[2J")
    write("odd.yaml", dumped(odd))
    write("tab.yaml", "a:\n\tb: c\n")


EVERY: Final = ("-f", "quota.yaml", "-f", "web.yaml", "-f", "odd.yaml", "-f", "tab.yaml")


def test_every_format_to_its_file() -> None:
    everything()
    formats = ("json", "junit", "sarif", "github", "tap", "table")
    outputs = [word for name in formats for word in ("-o", f"{name}=out.{name}")]
    result = run(*EVERY, *outputs, "-o", "text")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "4 objects" not in result.stdout
    assert "3 objects: 1 admitted, 1 wait, 1 refused, 1 not readable" in result.stdout
    for name in formats:
        text = Path(f"out.{name}").read_text(encoding="utf-8")
        assert "team-a" in text
        assert "\x1b" not in text


def test_sarif_is_valid() -> None:
    everything()
    log = json.loads(run(*EVERY, "-o", "sarif").stdout)
    assert list(schema_errors(log, SARIF)) == []
    results = log["runs"][0]["results"]
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [one["ruleId"] for one in results] == ["invalid", "bad-input", "quota-wait"]
    assert all(rules[one["ruleIndex"]]["id"] == one["ruleId"] for one in results)
    place = results[2]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "web.yaml"
    assert place["region"] == {"startLine": 8, "startColumn": 3}


def test_the_checker_of_sarif_can_find_faults() -> None:
    assert list(schema_errors({"version": "2.1.0", "runs": [{"tool": {}}]}, SARIF))


def test_junit_is_valid() -> None:
    everything()
    text = run(*EVERY, "-o", "junit").stdout
    assert list(xml_errors(text, VECTORS / "junit-10.xsd")) == []
    assert '<testsuites name="deferred-quota check" tests="4" failures="2" errors="1">' in text
    assert "&lt;script&gt;" in text
    assert list(xml_errors('<testsuite name="a"/>', VECTORS / "junit-10.xsd"))


def test_annotations_are_one_line_each() -> None:
    everything()
    lines = run(*EVERY, "-o", "github").stdout.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith(
        "::warning file=web.yaml,line=8,col=3,title=deferred-quota quota-wait::Deployment"
    )
    assert "%0Afix: kubectl patch" in lines[2]


def test_a_file_name_reaches_no_terminal_as_it_is() -> None:
    write("a\x1b[2J.yaml", "x: [")
    for output in ("text", "github", "tap", "table"):
        assert "a\\x1b[2J.yaml" in run("-f", "a\x1b[2J.yaml", "-o", output).output.replace(
            "\\\\", "\\"
        )


def test_tap_counts_every_object() -> None:
    everything()
    lines = run(*EVERY, "-o", "tap").stdout.splitlines()
    assert lines[:2] == ["TAP version 13", "1..4"]
    tests = [line.split(" - ")[0] for line in lines if line.startswith(("ok", "not ok"))]
    assert tests == ["not ok 1", "ok 2", "not ok 3", "not ok 4"]


def test_only_one_format_goes_to_standard_output() -> None:
    result = run("-f", "web.yaml", "-o", "text", "-o", "json")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "only one output" in result.stderr


def test_each_format_has_a_file_of_its_own() -> None:
    result = run("-f", "web.yaml", "-o", "json=check.out", "-o", "tap=check.out")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "check.out: two outputs cannot go to one file" in result.stderr


FAILS: Final = {
    "refuse": (ExitCode.OK, ExitCode.OK),
    "wait": (ExitCode.FINDINGS, ExitCode.OK),
    "warn": (ExitCode.FINDINGS, ExitCode.DRIFT),
    "never": (ExitCode.OK, ExitCode.OK),
}


@pytest.mark.parametrize(("least", "codes"), FAILS.items())
def test_what_makes_it_fail(least: str, codes: tuple[ExitCode, ExitCode]) -> None:
    waits, warns = codes
    files = ("-f", "quota.yaml", "-f", "web.yaml", "--fail-on", least)
    assert run(*files).exit_code == waits
    write(
        "web.yaml",
        WEB.replace("replicas: 3", "replicas: 2\n  strategy: {}").replace(
            "  strategy: {}", "  strategy: {rollingUpdate: {maxUnavailable: 1}}"
        ),
    )
    assert run(*files).exit_code == warns


def test_an_object_that_is_there_twice_is_named_with_both_places_and_counted_once() -> None:
    twice = dumped(a_pod(a_container(requests={"cpu": "3"}), namespace="team-a", name="web"))
    write("one.yaml", twice)
    write("two.yaml", f"---\n{twice}")
    report = checked("-f", "quota.yaml", "-f", "one.yaml", "-f", "two.yaml", "-f", "quota.yaml")
    first, second = findings(report)
    assert (first["rule"], first["verdict"]) == ("duplicate", "refused")
    assert (first["file"], first["line"]) == ("two.yaml", 4)
    assert first["text"].startswith('pods "web" already exists: it is at one.yaml:1:1 too')
    assert second["text"].startswith('resourcequotas "team" already exists')
    assert [one["pods"] for one in report["objects"]] == [0, 1, 0, 0]
    assert not findings(checked("-f", "one.yaml", "-f", "two.yaml", "--ignore", "duplicate"))


def test_the_first_of_two_quotas_of_a_name_judges() -> None:
    write("larger.yaml", QUOTA.replace('"4"', '"40"'))
    found = findings(checked("-f", "quota.yaml", "-f", "larger.yaml", "-f", "web.yaml"))
    assert [one["rule"] for one in found] == ["duplicate", "quota-wait"]


def test_objects_with_names_that_the_api_server_makes_are_not_the_same() -> None:
    pod = a_pod(a_container(requests={"cpu": "1"}), namespace="team-a")
    pod["metadata"] = {"generateName": "web-", "namespace": "team-a"}
    assert not findings(checked("-f", "quota.yaml", "-f", "-", text=dumped(pod, pod)))


def test_findings_are_sorted_by_file_and_line() -> None:
    odd = a_pod(a_container(requests={"cpu": "1x"}), namespace="team-a", name="b")
    write("a.yaml", f"{WEB}---\n{dumped(odd)}---\nkind: Pod\napiVersion: v2\n")
    write("z.yaml", "apiVersion: v1\nkind: Pod\n")
    lines = run("-f", "z.yaml", "-f", "quota.yaml", "-f", "a.yaml").stdout.splitlines()
    places = [line.split(": ")[0] for line in lines if line.startswith(("a.", "z."))]
    lines_of_files = [one.rpartition(":")[0] for one in places]
    assert lines_of_files == ["a.yaml:8", "a.yaml:28", "a.yaml:33", "z.yaml:1"]
    problems = checked("-f", "z.yaml", "-f", "a.yaml")["problems"]
    assert [one["file"] for one in problems] == ["a.yaml", "a.yaml", "z.yaml"]
    assert problems[0]["line"] < problems[1]["line"]


def test_findings_are_ignored_by_rule_and_object() -> None:
    files = ("-f", "quota.yaml", "-f", "web.yaml")
    for ignore in ("quota-wait", "*", "quota-wait:web", "*:team-a/Deployment/*"):
        assert run(*files, "--ignore", ignore).exit_code == ExitCode.OK, ignore
    assert run(*files, "--ignore", "quota-wait:api").exit_code == ExitCode.FINDINGS
    wrong = run(*files, "--ignore", "quota-wiat")
    assert (wrong.exit_code, "there is no rule" in wrong.stderr) == (ExitCode.BAD_INPUT, True)


def test_options_come_from_a_file_and_from_the_environment() -> None:
    files = ("-f", "quota.yaml", "-f", "web.yaml")
    assert run(*files, DEFERRED_QUOTA_CHECK_FAIL_ON="never").exit_code == ExitCode.OK
    write(".deferred-quota-check.yaml", "fail-on: never\nignore: [rollout]\n")
    assert run(*files).exit_code == ExitCode.OK
    assert run(*files, "--fail-on", "wait").exit_code == ExitCode.FINDINGS
    write("other.yaml", "ignore: [quota-wait]\noutput: [json]\n")
    result = run(*files, "--options-file", "other.yaml")
    assert (result.exit_code, json.loads(result.stdout)["summary"]["waits"]) == (ExitCode.OK, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fail-at: wait", "fail-at: unknown option"),
        ("fail-on: [a, b]", "fail-on: takes one value, not a list"),
        ("ignore: {a: b}", "ignore: must be a value, or a list of values"),
        ("- a", "must be an object of options"),
        ("fail-on: soon", "fail-on: 'soon' is not one of"),
        ("max-simultaneous-rollouts: 0", "max-simultaneous-rollouts: 0 is not in the range"),
        ("live: perhaps", "live: 'perhaps' is not a valid boolean"),
    ],
)
def test_a_wrong_options_file_is_named(text: str, words: str) -> None:
    write("options.yaml", text)
    result = run("-f", "web.yaml", "--options-file", "options.yaml")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "options.yaml: document 1, line 1" in result.stderr
    assert words in result.stderr


A_POD: Final = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n"
BAD: Final = {
    "a tab": ("a:\n\tb: 1\n", 2, 1, "a tab"),
    "a wrong kind": ("apiVersion: v1\nkind: [Pod]\n", 2, 1, "must be a string, not a list"),
    "a repeated key": ("apiVersion: v1\nkind: Pod\nkind: Pod\n", 3, 1, "appears twice"),
    "no container": (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers: []\n",
        5,
        3,
        "must have a container",
    ),
    "no name": ("apiVersion: v1\nkind: Pod\nmetadata: {}\n", 3, 1, "must be given"),
    "no quantity": (
        f"{A_POD}  - name: a\n    resources: {{requests: {{cpu: 1x}}}}\n",
        7,
        28,
        "quantities must match",
    ),
    "a name with dots": (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {limits.cpu: x}}\n",
        4,
        15,
        "quantities must match",
    ),
    "an object of a List": (
        "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {}}\n",
        4,
        31,
        "must be given",
    ),
    "not rendered": ("kind: Pod\nmetadata:\n  name: {{ .Values.name }}\n", 3, 10, "helm template"),
    "not rendered, quoted": (
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: '{{ .Release.Name }}'\n",
        4,
        3,
        "helm template",
    ),
    "a directive": ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", 1, 2, "helm template"),
    "no such kind": (A_POD.replace("kind: Pod", "kind: Pood"), 2, 1, "v1 has no kind Pood"),
    "a kind of another group": (
        "apiVersion: v1\nkind: Deployment\nmetadata: {name: x}\n",
        2,
        1,
        "v1 has no kind Deployment",
    ),
    "a version that is gone": (
        "apiVersion: apps/v1beta1\nkind: Deployment\nmetadata: {name: x}\n",
        1,
        1,
        "Kubernetes has apps/v1, not apps/v1beta1",
    ),
    "a group that is gone": (
        "apiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: x}\n",
        1,
        1,
        "Kubernetes has no extensions/v1beta1 any more",
    ),
    "a Kustomization": (
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
        2,
        1,
        "check the output of 'kustomize build'",
    ),
    "cut off": ('{"kind": "Pod",\n "a": "b', 2, 7, "the text ends in the middle of a value"),
    "a text for a flag of an owner": (
        (
            "apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n  metadata:"
            " {name: a, namespace: team-a, ownerReferences: [{controller: 'true'}]}\n"
        ),
        6,
        61,
        "must be a boolean, not a string",
    ),
    "a list without its end": ("x: [", 2, 1, "did not find expected node content"),
    "broken JSON": ('{"kind": "Pod",\n "a" 1}', 2, 6, "Expecting"),
}


@pytest.mark.parametrize(("text", "line", "column", "words"), BAD.values(), ids=BAD.keys())
def test_bad_input_has_its_place_and_the_other_files_are_checked(
    text: str, line: int, column: int, words: str
) -> None:
    write("bad.yaml", text)
    files = ("-f", "bad.yaml", "-f", "quota.yaml", "-f", "web.yaml")
    assert run(*files).exit_code == ExitCode.BAD_INPUT
    report = checked(*files)
    (problem,) = report["problems"]
    assert words in problem["text"]
    assert (problem["file"], problem["line"], problem["column"]) == ("bad.yaml", line, column)
    assert report["summary"]["waits"] == 1


def test_a_number_for_a_namespace_that_is_not_needed_has_its_place() -> None:
    quota: Any = a_cluster_quota("1")
    quota["metadata"]["namespace"] = 5
    opted_in = a_namespace(**{MODE: "deferred"})
    report = checked("-f", "-", text=dumped(quota, opted_in, a_pod(requests={"cpu": "1"})))
    assert [one["field"] for one in report["problems"]] == ["metadata.namespace"]


@pytest.mark.parametrize("name", ["Chart.yaml", "values.yaml"])
def test_a_chart_that_was_not_rendered_is_named(name: str) -> None:
    write(name, "apiVersion: v2\nname: web\nversion: 1.0.0\n")
    result = run("-f", name)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert f"{name}:1:1: error: kind: required; this is a file of a Helm chart" in result.stdout


def test_a_file_without_objects_is_no_cluster() -> None:
    write("cluster.yaml", "---\n# kubectl failed\n")
    result = run("-f", "web.yaml", "--snapshot", "cluster.yaml")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "cluster.yaml: is empty" in result.stderr


def test_amounts_may_be_huge() -> None:
    pod = a_pod(requests={"memory": "1000000000000000000"})
    report = checked("-f", "-", text=dumped(a_quota(hard={"requests.memory": "1"}), pod))
    (found,) = findings(report)
    assert (found["rule"], found["resources"][0]["requested"]) == ("never-fits", "1E")


@pytest.mark.parametrize("output", ["text", "json"])
def test_two_processes_say_what_one_says(monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    wrong = a_pod(name="wrong", namespace="team-1", requests={"cpu": "1x"})
    documents = [wrong, {**wrong, "metadata": {"name": "also", "namespace": "team-6"}}]
    for number in range(8):
        space = f"team-{number}"
        documents += [
            a_quota(namespace=space, hard={"requests.cpu": "3"}),
            *(
                a_pod(name=f"p{each}", namespace=space, requests={"cpu": str(each)})
                for each in range(4)
            ),
        ]
    documents.reverse()
    options = ("-f", "-", "-o", output)
    alone = run(*options, text=dumped(*documents))
    monkeypatch.setattr(manifest_check, "_MANY", 0)
    together = run(*options, text=dumped(*documents))
    assert together.stdout == alone.stdout
    assert alone.stdout.count("quota-exceeded") >= 8
    assert (together.exit_code, alone.exit_code) == (ExitCode.BAD_INPUT, ExitCode.BAD_INPUT)


def test_a_bad_item_of_a_list_does_not_hide_those_after_it() -> None:
    pods = [a_pod(name=name, requests={"cpu": "5"}) for name in ("a", "b")]
    bad: list[object] = [{"apiVersion": "v1"}, "text", {"apiVersion": "v1", "kind": "Pod"}]
    inner = {"apiVersion": "v1", "kind": "List", "items": [bad[0], pods[1]]}
    items = [a_quota(hard={"requests.cpu": "4"}), bad[0], pods[0], *bad[1:], inner]
    report = checked("-f", "-", text=dumped({"apiVersion": "v1", "kind": "List", "items": items}))
    assert [one["verdict"] for one in report["objects"]] == ["admitted", "never-fits", "never-fits"]
    assert {one["field"] for one in report["problems"]} == {
        "items[1].kind",
        "items[3]",
        "items[4].metadata.name",
        "items[5].items[0].kind",
    }


def test_lists_job_sets_and_kinds_by_path() -> None:
    template: Object = {"spec": {"containers": [a_container(requests={"cpu": "1"})]}}
    job = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    job_set: Object = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 3, "template": job}]},
    }
    cluster: Object = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray"},
        "spec": {"workerGroupSpecs": [{"replicas": 5, "template": template}]},
    }
    both: Object = {"apiVersion": "v1", "kind": "List", "items": [job_set, cluster]}
    path = "RayCluster.ray.io=spec.workerGroupSpecs[*].template:replicas"
    report = checked("-f", "-", "--template-path", path, text=dumped(both))
    assert [(one["kind"], one["pods"]) for one in report["objects"]] == [
        ("JobSet", 6),
        ("RayCluster", 5),
    ]
    assert report["notes"] == []
    assert run("-f", "web.yaml", "--template-path", "x").exit_code == ExitCode.BAD_INPUT
    # what is not said is not judged, and that is said
    report = checked("-f", "-", text=dumped(both))
    assert [(one["kind"], one["pods"]) for one in report["objects"]] == [
        ("JobSet", 6),
        ("RayCluster", 0),
    ]
    assert report["notes"] == [
        f"pods of RayCluster.ray.io are not judged: --template-path '{path}'"
    ]


def a_thing(spec: Object, *, kind: str = "Thing") -> Object:
    return {
        "apiVersion": "example.com/v1",
        "kind": kind,
        "metadata": {"name": "a"},
        "spec": spec,
    }


def test_the_option_of_a_note_can_be_pasted() -> None:
    template = {"spec": {"containers": [a_container()]}}
    text = dumped(a_thing({"h'; touch x; '": template}))
    (note,) = checked("-f", "-", text=text)["notes"]
    words = shlex.split(note.removeprefix("pods of Thing.example.com are not judged: "))
    assert words == ["--template-path", "Thing.example.com=spec.h'; touch x; '"]
    report = checked("-f", "-", *words, text=text)
    assert (report["objects"][0]["pods"], report["notes"]) == (1, [])


@pytest.mark.parametrize("kind", ["Thing", "Odd=Thing"])
def test_a_note_offers_no_option_where_none_would_do(kind: str) -> None:
    template = {"spec": {"containers": [a_container()]}}
    groups = [{"template": template}, {}] if kind == "Thing" else [{"template": template}]
    report = checked("-f", "-", text=dumped(a_thing({"groups": groups}, kind=kind)))
    assert report["notes"] == [
        f"pods of {kind}.example.com are not judged, and no --template-path reads them"
    ]


def test_a_kind_that_is_not_known_is_taken_for_one_in_namespaces_and_that_is_noted() -> None:
    inside: Object = {**a_thing({}), "metadata": {"name": "b", "namespace": "team-b"}}
    known: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "c"},
    }
    things: Object = {"apiVersion": "v1", "kind": "List", "items": [a_thing({}), inside, known]}
    report = checked("-f", "-", "-n", "team-a", text=dumped(things))
    assert [one["namespace"] for one in report["objects"]] == ["team-a", "team-b", ""]
    (note,) = report["notes"]
    assert note == (
        "Thing.example.com without a namespace is taken to be in namespace team-a: whether the kind"
        " has namespaces is not known"
    )


NOTE: Final = (
    "pods of Thing.example.com are not judged: --template-path Thing.example.com=spec.pods"
)


def a_note(output: str) -> str:
    """The answer about an object that makes a note."""
    template = {"spec": {"containers": [a_container()]}}
    return run("-f", "-", "-o", output, text=dumped(a_thing({"pods": template}))).stdout


@pytest.mark.parametrize(
    ("output", "lines"),
    {
        "text": [f"note: {NOTE}", "1 object: 1 admitted"],
        "table": [f"note: {NOTE}", "1 object: 1 admitted"],
        "github": [f"::notice title=deferred-quota: note::{NOTE}"],
        "tap": ["ok 1 - Thing default/a", f"# note: {NOTE}"],
    }.items(),
)
def test_every_format_of_lines_has_the_notes(output: str, lines: list[str]) -> None:
    assert a_note(output).splitlines()[-len(lines) :] == lines


def test_a_note_is_the_output_of_the_suite_of_junit() -> None:
    text = a_note("junit")
    assert list(xml_errors(text, VECTORS / "junit-10.xsd")) == []
    assert ET.fromstring(text).findtext("testsuite/system-out") == f"note: {NOTE}"  # noqa: S314


def test_a_note_is_a_notification_of_sarif() -> None:
    log = json.loads(a_note("sarif"))
    assert list(schema_errors(log, SARIF)) == []
    (run_of_log,) = log["runs"]
    assert run_of_log["results"] == []
    (invocation,) = run_of_log["invocations"]
    assert invocation["toolExecutionNotifications"] == [
        {"level": "note", "message": {"text": NOTE}}
    ]


def a_node(name: str, cpu: str, **labels: str) -> Object:
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def a_namespace(name: str = "team-a", **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def a_cluster(*more: Object) -> str:
    quota = a_quota("team", namespace="team-a", hard={"requests.cpu": "4"})
    quota["status"] = {"hard": {"requests.cpu": "4"}, "used": {"requests.cpu": "3"}}
    return dumped(a_namespace(), quota, a_node("small", "1"), *more)


def test_a_snapshot_says_what_is_used_and_which_nodes_there_are() -> None:
    write("cluster.yaml", a_cluster())
    report = checked("-f", "web.yaml", "--snapshot", "cluster.yaml")
    assert [one["rule"] for one in findings(report)] == ["quota-wait", "no-node-fits"]
    assert findings(report)[0]["resources"][0]["missing"] == "5"
    assert report["objects"][0]["verdict"] == "no-node-fits"


def test_the_manifests_quotas_replace_those_of_the_snapshot() -> None:
    write("cluster.yaml", a_cluster(a_node("large", "64")))
    write("quota.yaml", QUOTA.replace('"4"', '"9"'))
    files = ("-f", "quota.yaml", "-f", "web.yaml", "--snapshot", "cluster.yaml")
    report = checked(*files, "--rollout", "steady")
    assert findings(report) == []
    (found,) = findings(checked(*files))
    assert (found["rule"], found["resources"][0]["used"]) == ("rollout", "9")


def test_a_quota_that_is_refused_does_not_replace_the_one_that_is_there() -> None:
    write("cluster.yaml", a_cluster(a_node("large", "64")))
    write("quota.yaml", QUOTA.replace('"4"', '"-9"'))
    report = checked("-f", "quota.yaml", "-f", "web.yaml", "--snapshot", "cluster.yaml")
    refused, waits = findings(report)
    assert refused["rule"] == "invalid"
    assert refused["text"] == (
        'ResourceQuota "team" is invalid: spec.hard[requests.cpu]: must be greater than or equal'
        " to 0"
    )
    assert (refused["field"], refused["line"]) == ("spec.hard[requests.cpu]", 4)
    assert (waits["rule"], waits["resources"][0]["hard"]) == ("quota-wait", "4")
    # an amount that is none is input that cannot be read
    write("quota.yaml", QUOTA.replace('"4"', '"4x"'))
    assert run("-f", "quota.yaml").exit_code == 2


def test_the_scopes_of_a_quota_that_is_there_stay() -> None:
    write("cluster.yaml", a_cluster(a_node("large", "64")))
    scoped = "{hard: {requests.cpu: '9'}, scopes: [NotTerminating]}"
    write("quota.yaml", QUOTA.replace('{hard: {requests.cpu: "4", count/configmaps: "2"}}', scoped))
    files = ("-f", "quota.yaml", "-f", "web.yaml", "--snapshot", "cluster.yaml")
    refused, waits = findings(checked(*files))
    assert (refused["rule"], refused["field"]) == ("invalid", "spec.scopes")
    assert refused["text"] == 'ResourceQuota "team" is invalid: spec.scopes: field is immutable'
    assert (waits["rule"], waits["resources"][0]["hard"]) == ("quota-wait", "4")
    # one of another name may have them
    write("quota.yaml", Path("quota.yaml").read_text("utf-8").replace("name: team,", "name: new,"))
    assert [one["quota"] for one in findings(checked(*files))] == ["team"]


ODD_SCOPE: Final = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: odd, namespace: team-a}
spec:
  hard: {requests.cpu: "9"}
  scopeSelector:
    matchExpressions: [{scopeName: PriorityClass, operator: In, values: ["not a label"]}]
"""


def test_a_quota_that_the_webhook_refuses_judges_nothing_where_it_is_refused() -> None:
    namespace = a_namespace(**{"deferredquota.io/mode": "deferred"})
    pod = dumped(a_pod(name="p", requests={"cpu": "1"}))
    deferred = f"{dumped(namespace)}---\n{ODD_SCOPE}---\n{pod}"
    (refused,) = findings(checked("-f", "-", text=deferred))
    assert refused["rule"] == "invalid"
    assert refused["text"].startswith('ResourceQuota "odd" is invalid: spec.scopeSelector')
    # the API server stores it, and then cannot evaluate it
    (scopes,) = findings(checked("-f", "-", text=f"{ODD_SCOPE}---\n{pod}"))
    assert scopes["rule"] == "quota-scopes"


@pytest.mark.parametrize(("quotas", "reason"), out_of_bounds().values(), ids=out_of_bounds())
def test_no_pod_starts_beside_quotas_for_which_nothing_is_bound(
    quotas: list[Object], reason: str
) -> None:
    deployment = Path("web.yaml").read_text("utf-8")
    for mode, expected in (("deferred", ["quota-bounds"]), ("shadow", [])):
        namespace = a_namespace(**{"deferredquota.io/mode": mode})
        text = f"{dumped(namespace, *quotas)}---\n{deployment}"
        found = [one for one in findings(checked("-f", "-", text=text)) if "bounds" in one["rule"]]
        assert [one["rule"] for one in found] == expected
        assert all(one["text"].endswith(f"no node is given to it: {reason}") for one in found)


def test_a_quota_that_the_webhook_refuses_does_not_replace_the_one_that_is_there() -> None:
    quota = a_quota("odd", namespace="team-a", hard={"requests.cpu": "4"})
    write("cluster.yaml", dumped(a_namespace(**{"deferredquota.io/mode": "deferred"}), quota))
    files = ("-f", "-", "-f", "web.yaml", "--snapshot", "cluster.yaml")
    refused, waits = findings(checked(*files, text=ODD_SCOPE))
    assert refused["rule"] == "invalid"
    assert (waits["quota"], waits["resources"][0]["hard"]) == ("odd", "4")


SHARED: Final = """\
apiVersion: deferredquota.io/v1alpha1
kind: ClusterDeferredQuota
metadata: {name: shared}
spec:
"""
ELASTIC: Final = """\
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: quota, namespace: team-a}
spec:
"""
INVALID_QUOTAS: Final = {
    "not deferred": (
        SHARED + "  hard: {count/pods: 1}\n  namespaceSelector: {}\n",
        "spec.hard[count/pods]: is not deferred",
    ),
    "no selector": (
        SHARED + "  hard: {requests.cpu: 1}\n",
        "spec.namespaceSelector: Required value: must say which namespaces share the quota",
    ),
    "wrong amount": (
        SHARED + "  hard: {requests.cpu: 1x}\n  namespaceSelector: {}\n",
        "spec.hard[requests.cpu]: '1x' is not a quantity",
    ),
    "unknown field": (
        SHARED + "  hard: {requests.cpu: 1}\n  namespaceSelector: {}\n  keep: []\n",
        "spec.keep: unknown field, did you mean 'kept'?",
    ),
    "min above max": (
        ELASTIC + "  min: {cpu: 4}\n  max: {cpu: 2}\n",
        'spec.min[cpu]: Invalid value: "4": must be less than or equal to spec.max[cpu]',
    ),
    "wrong type": (ELASTIC + "  min: [cpu]\n", "spec.min: must be an object, not a list"),
    "no namespaces": (
        ELASTIC.replace("kind: ", "kind: Composite") + "  min: {cpu: 4}\n",
        "spec.namespaces: Required value: must name at least one",
    ),
}


@pytest.mark.parametrize(("text", "words"), INVALID_QUOTAS.values(), ids=INVALID_QUOTAS)
def test_a_quota_of_our_kinds_that_the_webhook_refuses_is_refused(text: str, words: str) -> None:
    (refused,) = findings(checked("-f", "-", text=text))
    assert refused["rule"] == "invalid"
    assert f" is invalid: {words}" in refused["text"]
    assert refused["field"] == words.partition(": ")[0]


def test_a_cluster_quota_limits_extended_resources_and_no_device_class() -> None:
    quota = SHARED + "  hard: {requests.example.com/licences: 1}\n  namespaceSelector: {}\n"
    assert findings(checked("-f", "-", text=quota)) == []
    quota = quota.replace("example.com/licences", "deviceclass.resource.kubernetes.io/a")
    assert [one["rule"] for one in findings(checked("-f", "-", text=quota))] == ["invalid"]


ODD_TYPES: Final = {
    "a word that is a flag": (
        "nodeSelector: {disk: yes}\n  containers: [{name: a}]",
        "nodeSelector.disk",
    ),
    "a number for a text": (
        "containers: [{name: a, env: [{name: PORT, value: 8080}]}]",
        "containers[0].env[0].value",
    ),
    "a text for a list": (
        "containers: [{name: a, command: sleep 1}]",
        "containers[0].command",
    ),
    "a flag for a text": (
        "tolerations: [{key: a, value: true}]\n  containers: [{name: a}]",
        "tolerations[0].value",
    ),
    "a text for a flag": ("hostNetwork: 'true'\n  containers: [{name: a}]", "hostNetwork"),
    "a text for a number": (
        "terminationGracePeriodSeconds: '5'\n  containers: [{name: a}]",
        "terminationGracePeriodSeconds",
    ),
    "a list for an object": (
        "securityContext: []\n  containers: [{name: a}]",
        "securityContext",
    ),
}


@pytest.mark.parametrize(("spec", "field"), ODD_TYPES.values(), ids=ODD_TYPES)
def test_a_field_of_a_pod_of_the_wrong_type_is_named(spec: str, field: str) -> None:
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team-a}\nspec:\n  "
    report = checked("-f", "-", text=f"{head}{spec}\n")
    (problem,) = report["problems"]
    assert problem["field"] == f"spec.{field}"
    assert problem["text"].startswith("must be ")


def test_an_annotation_that_is_no_text_is_named_wherever_it_is() -> None:
    odd = WEB.replace("name: web\n", "name: web\n  annotations: {example.com/scrape: true}\n")
    problems = checked("-f", "-", text=odd)["problems"]
    assert [(one["field"], one["line"]) for one in problems] == [
        ("metadata.annotations[example.com/scrape]", 5)
    ]


def test_what_kubectl_reads_as_the_right_type_is_no_problem() -> None:
    spec = (
        "terminationGracePeriodSeconds: 5.0\n  nodeSelector: {since: 2026-01-01, no: }\n"
        "  containers: [{name: a, env: [{name: AT, value: 1:30}, {name: PORT, value: '8080'}],"
        " command: null}]\n"
    )
    head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team-a}\nspec:\n  "
    report = checked("-f", "-", text=f"{head}{spec}")
    assert [one["verdict"] for one in report["objects"]] == ["admitted"]


def test_pods_that_run_already_are_not_counted_twice() -> None:
    owner = {"kind": "ReplicaSet", "name": "web-abc", "controller": True, "uid": "rs"}
    meta = {"labels": {"pod-template-hash": "abc"}, "ownerReferences": [owner]}
    pods = [
        a_pod(
            name=f"web-{index}",
            uid=f"uid-{index}",
            node="large",
            requests={"cpu": "2"},
            metadata=meta,
        )
        for index in range(2)
    ]
    write("cluster.yaml", a_cluster(a_node("large", "64"), *pods))
    text = WEB.replace("replicas: 3", "replicas: 2")
    files = ("-f", "-", "--snapshot", "cluster.yaml", "--rollout", "steady")
    assert findings(checked(*files, text=text)) == []
    assert [one["rule"] for one in findings(checked(*files, text=WEB))] == ["quota-wait"]


def a_partly_done_job(status: Object, *, active: int, **spec: Any) -> tuple[Object, str]:
    """A Job in a deferred namespace with pods on nodes, and the cluster's other objects."""
    job = a_job(
        a_container(requests={"cpu": "500m"}), name="night", suspend=False, status=status, **spec
    )
    owner = {"kind": "Job", "name": "night", "controller": True, "uid": "job-uid-1"}
    pods = [
        a_pod(
            name=f"night-{index}",
            uid=f"uid-{index}",
            node="large" if index < active else "small",
            requests={"cpu": "500m"},
            metadata={"ownerReferences": [owner]},
            status={"phase": "Running" if index < active else "Succeeded"},
        )
        for index in range(4)
    ]
    quota = a_quota("team", namespace="team-a", hard={"requests.cpu": "1500m"})
    namespace = a_namespace(**{"deferredquota.io/mode": "deferred"})
    nodes = a_node("large", "64"), a_node("small", "1")
    return job, dumped(namespace, quota, *nodes, *pods, job)


FOUR: Final[Object] = {"parallelism": 4, "completions": 4}
PARTLY_DONE: Final[Mapping[str, tuple[Object, Object, int]]] = {
    "one of four": ({"active": 3, "succeeded": 1}, FOUR, 3),
    "an index": (
        {"active": 3, "succeeded": 1, "completedIndexes": "2"},
        {**FOUR, "completionMode": "Indexed"},
        3,
    ),
    "the first of a work queue": ({"active": 3, "succeeded": 1}, {"parallelism": 4}, 3),
    "all": (
        {"succeeded": 4, "conditions": [{"type": "Complete", "status": "True"}]},
        FOUR,
        0,
    ),
}


@pytest.mark.parametrize(("status", "spec", "left"), PARTLY_DONE.values(), ids=PARTLY_DONE)
def test_pods_of_a_job_that_have_succeeded_are_not_run_again(
    tmp_path: Path, status: Object, spec: Object, left: int
) -> None:
    job, cluster = a_partly_done_job(status, active=left, **spec)
    write("cluster.yaml", cluster)
    files = ("-f", "-", "--snapshot", "cluster.yaml")
    report = checked(*files, text=dumped({**job, "status": {}}))
    assert findings(report) == []
    assert [one["pods"] for one in report["objects"]] == [left]
    with kubeconfig_of(load_cluster([tmp_path / "cluster.yaml"]), tmp_path) as kubeconfig:
        live = checked("-f", "-", "--kubeconfig", str(kubeconfig), text=dumped(job))
    assert live["objects"] == report["objects"]
    # what is still to run is judged beside it
    other = a_pod(name="other", requests={"cpu": "1"})
    verdicts = [one["verdict"] for one in checked(*files, text=dumped(job, other))["objects"]]
    assert verdicts == ["admitted", "waits" if left else "admitted"]


CHANGES: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any], bool]]] = {
    "nothing": ({}, {}, False),
    "the same amount in other words": ({"requests": {"cpu": "0.5"}}, {}, False),
    "an amount": ({"requests": {"cpu": "1"}}, {}, True),
    "a limit more": ({"limits": {"cpu": "1"}}, {}, True),
    "an image": ({"image": "other"}, {}, True),
    "an amount of one that rests": ({"requests": {"cpu": "1"}}, {"suspend": True}, False),
    "an image of one that rests": ({"image": "other"}, {"suspend": True}, True),
    "another container": ({"name": "other", "requests": {"cpu": "1"}}, {}, False),
}


@pytest.mark.parametrize(("change", "stored", "is_refused"), CHANGES.values(), ids=CHANGES)
def test_what_the_api_server_refuses_of_a_stored_job_is_refused(
    change: dict[str, Any], stored: dict[str, Any], is_refused: bool
) -> None:
    def night(**change: Any) -> Object:
        container = a_container(**{"requests": {"cpu": "500m"}, **change})
        return a_job(container, name="night", **{"suspend": False, **stored})

    write("cluster.yaml", dumped(a_namespace(), night()))
    files = ("-f", "-", "--snapshot", "cluster.yaml")
    found = findings(checked(*files, text=dumped(night(**change))))
    assert [one["rule"] for one in found] == ["invalid"] * is_refused
    assert all(one["text"].endswith("field is immutable") for one in found)


DONE: Final[Object] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
JOB_SETS_DONE: Final[Mapping[str, tuple[Object, dict[str, Object], int]]] = {
    "not begun": ({}, {}, 6),
    "one Job, and a half": ({}, {"set-a-0": DONE, "set-a-1": {"succeeded": 1, "active": 1}}, 3),
    "Jobs of others": ({}, {"set-a-3": DONE, "set-a-x": DONE, "set-b-0": DONE}, 6),
    "odd": ({"conditions": 1}, {"set-a-0": {"succeeded": "x"}}, 6),
    "all": ({"conditions": [{"type": "Completed", "status": "True"}]}, {"set-a-0": DONE}, 0),
}


@pytest.mark.parametrize(
    ("status", "jobs", "left"), JOB_SETS_DONE.values(), ids=JOB_SETS_DONE.keys()
)
def test_pods_of_a_job_set_that_have_succeeded_are_not_run_again(
    status: Object, jobs: dict[str, Object], left: int
) -> None:
    template = {"spec": {"containers": [a_container(requests={"cpu": "1"})]}}
    job = {"spec": {"parallelism": 2, "completions": 2, "template": template}}
    job_set: Object = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "team-a"},
        "spec": {"replicatedJobs": [{"name": "a", "replicas": 3, "template": job}]},
        "status": status,
    }
    there = [a_job(name=name, status=each) for name, each in jobs.items()]
    write("cluster.yaml", dumped(a_namespace(), job_set, *there))
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=dumped(job_set))
    assert [one["pods"] for one in report["objects"]] == [left]


@pytest.mark.parametrize(("completions", "rules"), [(4, []), (5, ["quota-wait", "no-node-fits"])])
def test_full_nodes_keep_no_job_whose_pods_are_all_on_nodes(
    completions: int, rules: list[str]
) -> None:
    job, cluster = a_partly_done_job(
        {"active": 3, "succeeded": 1}, active=3, parallelism=5, completions=completions
    )
    write("cluster.yaml", cluster.replace("cpu: '64'", "cpu: 1500m").replace("'1'", "400m"))
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=dumped(job))
    assert [one["rule"] for one in findings(report)] == rules


def test_a_job_that_is_there_and_has_not_begun_is_judged_with_all_its_pods() -> None:
    job, cluster = a_partly_done_job({"succeeded": 1, "active": 3}, active=3, **FOUR)
    write("cluster.yaml", cluster)
    text = dumped({**job, "metadata": {"name": "new", "namespace": "team-a"}})
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=text)
    assert [one["rule"] for one in findings(report)] == ["quota-wait"]
    assert [one["pods"] for one in report["objects"]] == [4]


def test_a_pod_that_has_ended_is_not_run_again() -> None:
    pod = a_pod(name="once", node="large", requests={"cpu": "2"})
    quota = a_quota("team", hard={"requests.cpu": "3"})
    other = a_pod(name="other", uid="other", node="large", requests={"cpu": "2"})
    ended = {**pod, "status": {"phase": "Succeeded"}}
    write("cluster.yaml", dumped(a_namespace(), quota, a_node("large", "64"), other, ended))
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=dumped(pod))
    assert findings(report) == []


LISTED_PODS: Final = {
    "with the ReplicaSet between": ("Deployment", "ReplicaSet", "Pod"),
    "their ReplicaSet left out": ("Deployment", "Pod"),
    "their Deployment left out": ("ReplicaSet", "Pod"),
    "before what makes them": ("Pod", "ReplicaSet", "Deployment"),
}


@pytest.mark.parametrize("kinds", LISTED_PODS.values(), ids=LISTED_PODS.keys())
def test_what_a_controller_made_is_counted_with_the_object_it_made_it_for(
    kinds: tuple[str, ...],
) -> None:
    report = checked("-f", "-", "--rollout", "steady", text=f"{QUOTA}---\n{listed(*kinds)}")
    assert findings(report) == []
    assert sum(one["pods"] for one in report["objects"]) == 1
    made = len(kinds) - 1
    (note,) = report["notes"]
    assert note.startswith(f"{made} object{'s' * (made > 1)} ")


def test_a_pod_is_counted_where_nothing_in_the_input_made_it() -> None:
    text = f"{QUOTA}---\n{listed('Pod')}---\n{WEB.replace('team-a', 'team-b')}"
    report = checked("-f", "-", text=text)
    assert [one["pods"] for one in report["objects"]] == [0, 1, 3]
    assert report["notes"] == []


def test_pods_of_a_kind_that_is_not_judged_are_counted() -> None:
    owner = {"kind": "Rollout", "name": "web", "controller": True}
    made = a_pod(name="web-1", requests={"cpu": "2"}, metadata={"ownerReferences": [owner]})
    meta = {"name": "web", "namespace": "team-a"}
    rollout: Object = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": meta}
    report = checked("-f", "-", text=dumped(rollout, made))
    assert [one["pods"] for one in report["objects"]] == [0, 1]


def listed(*kinds: str) -> str:
    """Return objects of one Deployment with one pod of 3 cpu, as kubectl prints them."""
    template = {"spec": {"containers": [a_container(requests={"cpu": "3"})]}}
    spec = {"replicas": 1, "template": template}
    of_set = {"kind": "ReplicaSet", "name": "web-abc", "controller": True, "uid": "rs"}
    of_web = {"kind": "Deployment", "name": "web", "controller": True, "uid": "web"}
    labels = {"pod-template-hash": "abc"}
    metadata = {"namespace": "team-a", "labels": labels}
    objects: dict[str, Object] = {
        "Deployment": {
            "apiVersion": "apps/v1",
            "metadata": {"name": "web", "namespace": "team-a"},
            "spec": spec,
        },
        "ReplicaSet": {
            "apiVersion": "apps/v1",
            "metadata": {"name": "web-abc", **metadata, "ownerReferences": [of_web]},
            "spec": spec,
        },
        "Pod": {
            "apiVersion": "v1",
            "metadata": {"name": "web-abc-1", **metadata, "ownerReferences": [of_set]},
            "spec": template["spec"],
        },
    }
    return dumped(*({"kind": kind, **objects[kind]} for kind in kinds))


def test_a_deferred_namespace_waits_instead_of_refusing() -> None:
    namespace = dumped(a_namespace(**{"deferredquota.io/mode": "deferred"}))
    pods = [a_pod(name=name, requests={"cpu": "3"}) for name in ("a", "b", "c")]
    report = checked("-f", "-", text=f"{QUOTA}---\n{namespace}---\n{dumped(*pods)}")
    assert [one["verdict"] for one in report["objects"]][2:] == ["admitted", "waits", "waits"]


def a_waiting_pod(name: str, cpu: str, **fields: Any) -> Object:
    gates = [{"name": "deferredquota.io/quota"}]
    return a_pod(name=name, uid=name, requests={"cpu": cpu}, schedulingGates=gates, **fields)


@pytest.mark.parametrize(
    ("pod", "quota", "expected"),
    [
        (a_pod(name="new", requests={"cpu": "1"}), "4", "waits behind Pod large, which waits for"),
        (a_pod(name="first", requests={"cpu": "2"}, priority=9), "4", ""),
        (a_pod(name="first", requests={"cpu": "3"}, priority=9), "4", "requests.cpu=2"),
        (a_pod(name="new", requests={"cpu": "1"}), "8", ""),  # there is room for those that wait
        (a_pod(name="large", requests={"cpu": "4"}), "4", "1 of 1 pod waits"),  # not behind itself
        (a_pod(name="new", node="node-1", requests={"cpu": "1"}), "4", ""),
    ],
    ids=("behind", "before it", "beside what is released", "larger quota", "itself", "assigned"),
)
def test_pods_that_wait_in_the_cluster_have_their_turn_before_those_of_the_manifests(
    pod: Object, quota: str, expected: str
) -> None:
    namespace = a_namespace(**{"deferredquota.io/mode": "deferred"})
    waiting = [a_waiting_pod("small", "2", priority=1), a_waiting_pod("large", "4")]
    write("cluster.yaml", f"{dumped(namespace, *waiting)}---\n{QUOTA}")
    write("quota.yaml", QUOTA.replace('"4"', f'"{quota}"'))
    report = checked("-f", "quota.yaml", "-f", "-", "--snapshot", "cluster.yaml", text=dumped(pod))
    texts = [one["text"] for one in findings(report)]
    assert len(texts) == bool(expected)
    assert expected in "".join(texts)


FIXES = {
    "web": "kubectl patch clusterdeferredquota web --type=merge",
    "epool.default": "",
    "eq.team-a.q": "",
}
"""Name of a quota → how the command begins that would raise it; the controller keeps the others."""


@pytest.mark.parametrize(("name", "fix"), FIXES.items(), ids=FIXES)
def test_what_one_namespace_takes_of_a_shared_quota_another_finds_taken(
    name: str, fix: str
) -> None:
    deferred = {"deferredquota.io/mode": "deferred", "team": "web"}
    shared: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": name, "uid": "cdq-1"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"team": "web"}},
            "hard": {"requests.cpu": "3"},
        },
    }
    namespaces = [a_namespace(name, **deferred) for name in ("team-a", "team-b")]
    write("cluster.yaml", dumped(*namespaces, shared))
    pods = [a_pod(namespace=name, requests={"cpu": "2"}) for name in ("team-a", "team-b")]
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=dumped(*pods))
    assert [one["verdict"] for one in report["objects"]] == ["admitted", "waits"]
    (found,) = findings(report)
    assert (found["quota"], found["resources"][0]["missing"]) == (f"cdq/{name}", "1")
    assert found.get("fix", "").startswith(fix)
    assert bool(found.get("fix")) is bool(fix)


def test_a_namespace_that_is_nowhere_is_refused() -> None:
    write("cluster.yaml", a_cluster())
    text = WEB.replace("team-a", "team-b")
    (found,) = findings(checked("-f", "-", "--snapshot", "cluster.yaml", text=text))
    assert (found["rule"], found["text"]) == ("namespace", 'namespaces "team-b" not found')
    assert found["fix"] == "kubectl create namespace team-b"
    both = f"{text}---\n{dumped(a_namespace('team-b'))}"
    rules = [
        one["rule"] for one in findings(checked("-f", "-", "--snapshot", "cluster.yaml", text=both))
    ]
    assert "namespace" not in rules


@pytest.mark.parametrize(
    ("applied", "verdict"),
    [
        ("", "waits"),
        (json.dumps(a_namespace()), "waits"),
        (json.dumps(a_namespace(**{MODE: "deferred"})), "refused"),
        ("{", "waits"),
    ],
    ids=("never applied", "set by others", "taken out of the manifest", "unreadable"),
)
def test_labels_that_others_set_of_a_namespace_in_the_manifests_stay(
    applied: str, verdict: str
) -> None:
    stored: Any = a_namespace(**{MODE: "deferred"})
    stored["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": applied
    }
    write("cluster.yaml", f"{dumped(stored)}---\n{QUOTA}")
    pods = [a_pod(name=name, requests={"cpu": "3"}) for name in ("a", "b")]
    text = dumped(a_namespace(owner="x"), *pods)
    report = checked("-f", "-", "--snapshot", "cluster.yaml", text=text)
    assert [one["verdict"] for one in report["objects"]] == ["admitted", "admitted", verdict]


def test_a_namespace_of_the_manifests_takes_of_quotas_by_the_labels_that_others_set() -> None:
    both = [a_namespace(name, **{MODE: "deferred"}) for name in ("team-a", "team-b")]
    runs = a_pod(namespace="team-a", node="node-1", requests={"cpu": "3"})
    brought = (a_namespace("team-a", owner="x"), a_cluster_quota("4"))
    found = judged(brought, a_pod_in("team-b", "3"), there=(*both, runs))
    assert found == ["waits cdq/shared"]


def test_a_claim_that_the_manifests_bring_keeps_no_pod_from_its_nodes() -> None:
    write("cluster.yaml", dumped(a_namespace(), a_node("node-0", "4")))
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"containers": [a_container()], "volumes": [volume]},
    }
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim: Object = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": spec}

    def rules(*more: Object) -> list[str]:
        text = dumped(pod, *more)
        return [
            one["rule"]
            for one in findings(checked("-f", "-", "--snapshot", "cluster.yaml", text=text))
        ]

    named = {"metadata": {"name": "data", "namespace": "team-a"}}
    elsewhere = {"metadata": {"name": "data", "namespace": "team-b"}}
    assert rules({**claim, **named}) == []
    assert rules() == ["no-node-fits"]
    assert "no-node-fits" in rules({**claim, **elsewhere})


def test_devices_of_a_class_are_no_resource_that_nodes_lack() -> None:
    gpu = {"example.com/gpu": "1"}
    text = dumped(a_pod(name="web", namespace="team-a", requests=gpu, limits=gpu))
    devices: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"extendedResourceName": "example.com/gpu"},
    }

    def rules(*more: Object) -> list[str]:
        write("cluster.yaml", dumped(a_namespace(), a_node("node-0", "4"), *more))
        report = checked("-f", "-", "--snapshot", "cluster.yaml", text=text)
        return [one["rule"] for one in findings(report)]

    assert rules() == ["no-node-fits"]
    assert rules(devices) == []


def test_a_daemon_set_runs_on_the_nodes_that_take_it() -> None:
    nodes = [a_node(f"node-{index}", "4", disk="fast" if index else "slow") for index in range(3)]
    write("cluster.yaml", dumped(a_namespace(), *nodes))
    spec: Object = {
        "nodeSelector": {"disk": "fast"},
        "containers": [a_container(requests={"cpu": "1"})],
    }
    daemon: Object = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "team-a"},
        "spec": {"template": {"spec": spec}},
    }
    text = dumped(daemon)
    assert checked("-f", "-", "--snapshot", "cluster.yaml", text=text)["objects"][0]["pods"] == 2
    assert checked("-f", "-", "--nodes", "7", text=text)["objects"][0]["pods"] == 7


def test_pods_of_a_workload_that_is_not_in_the_input_are_not_counted_twice() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "u", "controller": True}
    owned = {"ownerReferences": [owner]}
    pods = [
        a_pod(name=name, uid=name, node="node-1", requests={"cpu": "2"}, metadata=owned)
        for name in ("a", "b")
    ]
    write("cluster.yaml", f"{dumped(a_namespace(), *pods)}---\n{QUOTA}")
    result = run("-f", "-", "--snapshot", "cluster.yaml", text=dumped(*pods))
    assert result.stdout == "note: nodes: the snapshot has none\n2 objects: 2 admitted\n"


def test_a_live_cluster_is_read(tmp_path: Path) -> None:
    write("cluster.yaml", a_cluster())
    cluster = load_cluster([tmp_path / "cluster.yaml"])
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        live = checked("-f", "web.yaml", "--kubeconfig", str(kubeconfig))
    offline = checked("-f", "web.yaml", "--snapshot", "cluster.yaml")
    assert findings(live) == findings(offline)


def test_objects_outside_of_namespaces_are_checked_on_a_live_cluster(tmp_path: Path) -> None:
    write("cluster.yaml", a_cluster())
    cluster = load_cluster([tmp_path / "cluster.yaml"])
    role: Object = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    storage: Object = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    named = {"metadata": {"name": "x"}}
    text = dumped({**role, **named}, {**storage, **named, "provisioner": "y"}, a_namespace("new"))
    with kubeconfig_of(cluster, tmp_path) as kubeconfig:
        done = run("-f", "-", "--kubeconfig", str(kubeconfig), text=text)
    assert (done.exit_code, "3 objects: 3 admitted" in done.output) == (ExitCode.OK, True)


def test_snapshot_and_live_exclude_each_other() -> None:
    result = run("-f", "web.yaml", "--snapshot", "quota.yaml", "--live")
    assert result.exit_code == ExitCode.BAD_INPUT


def test_nothing_to_check_is_an_error() -> None:
    write("empty.yaml", "---\n")
    assert run("-f", "empty.yaml").exit_code == ExitCode.BAD_INPUT
    assert run().exit_code == ExitCode.BAD_INPUT


DOCS: Final = Path(webhook.__file__).parents[1] / "docs/check.md"


def snippets() -> list[Any]:
    blocks = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    return [yaml.safe_load(block) for block in blocks]


def commands(value: object) -> Iterator[str]:
    """Every text in a snippet that runs the command."""
    if isinstance(value, str) and " check " in value:
        yield value.partition(" check ")[2]
    elif isinstance(value, dict):
        yield from (found for one in value.values() for found in commands(one))
    elif isinstance(value, list):
        yield from (found for one in value for found in commands(one))


def test_the_snippets_of_the_docs_run() -> None:
    options, *others = snippets()
    write("options.yaml", yaml.safe_dump(options))
    Path("deploy").mkdir()
    Path("web.yaml").rename("deploy/web.yaml")
    found = [command for one in others for command in commands(one)]
    assert len(found) == 3
    for command in found:
        result = run(*shlex.split(command), "--options-file", "options.yaml")
        assert result.exit_code == ExitCode.OK, result.output


DEFERRED: Final = {"deferredquota.io/mode": "deferred"}
TWO_TEAMS: Final = tuple(a_namespace(name, **DEFERRED) for name in ("team-a", "team-b"))


def a_cluster_quota(cpu: str, name: str = "shared") -> Object:
    return {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "ClusterDeferredQuota",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "hard": {"requests.cpu": cpu}},
    }


def an_elastic_quota(namespace: str, least: str, most: str = "9", *others: str) -> Object:
    named = {"namespaces": [namespace, *others]} if others else {}
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "CompositeElasticQuota" if others else "ElasticQuota",
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"min": {"cpu": least}, "max": {"cpu": most}, **named},
    }


def a_pod_in(namespace: str, cpu: str, **fields: Any) -> Object:
    return a_pod(name=f"new-{cpu}", namespace=namespace, requests={"cpu": cpu}, **fields)


def judged(objects: tuple[Object, ...], *pods: Object, there: tuple[Object, ...] = ()) -> list[str]:
    """Return verdict and quota of each pod, with objects in the input behind them."""
    options = []
    if there:
        write("cluster.yaml", dumped(*there))
        options = ["--snapshot", "cluster.yaml"]
    report = checked("-f", "-", *options, text=dumped(*pods, *objects))
    return [
        " ".join([one["verdict"], *(found["quota"] for found in one["findings"])])
        for one in report["objects"][: len(pods)]
    ]


def test_a_cluster_quota_of_the_manifests_limits_all_of_its_namespaces() -> None:
    pods = (a_pod_in("team-a", "2"), a_pod_in("team-b", "3"))
    limited = ["admitted", "waits cdq/shared"]
    assert judged((*TWO_TEAMS, a_cluster_quota("4")), *pods) == limited
    assert judged((*TWO_TEAMS, a_cluster_quota("5")), *pods) == ["admitted", "admitted"]
    assert judged((a_cluster_quota("5"), TWO_TEAMS[0]), *pods) == ["admitted", "admitted"]
    # it stands for the one of its name, and finds taken what other namespaces have
    there = (*TWO_TEAMS, a_cluster_quota("9"), a_pod_in("team-b", "1", node="node-1", uid="u"))
    assert judged((a_cluster_quota("3"),), pods[0], there=there) == ["admitted"]
    assert judged((a_cluster_quota("2"),), pods[0], there=there) == ["waits cdq/shared"]
    there_alone = (*TWO_TEAMS, a_cluster_quota("2"), there[-1])
    assert judged((), pods[0], there=there_alone) == ["waits cdq/shared"]
    new = (a_cluster_quota("2", "new"),)
    assert judged(new, pods[0], there=there) == ["waits cdq/new"]
    # one that is refused limits nothing
    assert judged((*TWO_TEAMS, a_cluster_quota("-4")), *pods) == ["admitted", "admitted"]


def test_elastic_quotas_of_the_manifests_limit_their_namespaces() -> None:
    quotas = (an_elastic_quota("team-a", "2", "5"), an_elastic_quota("team-b", "4"))
    input_objects = (*TWO_TEAMS, *quotas)
    borrowing = a_pod_in("team-a", "5")
    assert judged(input_objects, borrowing, a_pod_in("team-b", "1")) == ["admitted", "admitted"]
    waits = ["admitted", "waits cdq/epool.default"]
    assert judged(input_objects, borrowing, a_pod_in("team-b", "2")) == waits
    assert judged(input_objects, a_pod_in("team-a", "6")) == ["never-fits cdq/eq.team-a.q"]
    # beside those of the cluster, which stay
    there = (*TWO_TEAMS, quotas[1], a_pod_in("team-b", "3", node="node-1", uid="u"))
    assert judged((quotas[0],), a_pod_in("team-a", "3"), there=there) == ["admitted"]
    waits = ["waits cdq/epool.default"]
    assert judged((quotas[0],), a_pod_in("team-a", "4"), there=there) == waits


def test_elastic_quotas_limit_nothing_where_they_are_switched_off() -> None:
    config: Object = {
        "apiVersion": "deferredquota.io/v1alpha1",
        "kind": "Configuration",
        "elastic": {"enabled": False},
    }
    write("config.yaml", dumped(config))
    text = dumped(*TWO_TEAMS, an_elastic_quota("team-a", "2", "5"), a_pod_in("team-a", "6"))
    assert findings(checked("-f", "-", "--config", "config.yaml", text=text)) == []


def test_a_second_elastic_quota_of_a_namespace_is_refused() -> None:
    first, second = an_elastic_quota("team-a", "2"), an_elastic_quota("team-b", "1", "9", "team-a")
    text = dumped(*TWO_TEAMS, first, second)
    report = checked("-f", "-", text=text)
    (refused,) = report["objects"][-1]["findings"]
    assert findings(report) == [refused]
    assert (refused["rule"], refused["field"]) == ("invalid", "spec.namespaces[0]")
    assert refused["text"].endswith(
        "spec.namespaces[0]: Forbidden: namespace team-a has ElasticQuota team-a/q already:"
        " change that one, or kubectl delete -n team-a elasticquota q first"
    )
    write("cluster.yaml", dumped(*TWO_TEAMS, second))
    options = ("-f", "-", "--snapshot", "cluster.yaml")
    (refused,) = findings(checked(*options, text=dumped(first)))
    assert "has CompositeElasticQuota team-b/q already" in refused["text"]
    assert findings(checked(*options, text=dumped(second))) == []
    # what is there already, and stays as it is, is not compared
    write("cluster.yaml", dumped(*TWO_TEAMS, second, first))
    assert findings(checked(*options, text=dumped(first))) == []


def test_a_second_elastic_quota_is_stored_where_no_webhook_judges_it() -> None:
    names = ("team-a", "team-b")
    objects = (*map(a_namespace, names), an_elastic_quota("team-a", "2"))
    second = an_elastic_quota("team-b", "1", "9", "team-a")
    assert findings(checked("-f", "-", text=dumped(*objects, second))) == []


@pytest.mark.parametrize("options", [(), ("--snapshot", "cluster.yaml")])
def test_what_every_namespace_has_is_not_counted_twice(options: tuple[str, ...]) -> None:
    limits: Object = {"configmaps": "1", "count/serviceaccounts": "1"}
    quota = a_quota("counts", hard=limits)
    write(
        "cluster.yaml", dumped(a_namespace(), {**quota, "status": {"hard": limits, "used": limits}})
    )

    def one(kind: str, name: str) -> Object:
        metadata = {"name": name, "namespace": "team-a"}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata}

    first = one("ServiceAccount", "default"), one("ConfigMap", "kube-root-ca.crt")
    assert findings(checked("-f", "-", *options, text=dumped(quota, *first))) == []
    text = dumped(quota, one("ServiceAccount", "mine"))
    assert [found["rule"] for found in findings(checked("-f", "-", *options, text=text))] == [
        "object-quota"
    ]


def test_what_is_not_counted_for_a_new_quota_yet_is_noted() -> None:
    metadata = {"name": "new", "namespace": "team-a"}
    service: Object = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    quota = a_quota("few", hard={"services": "1", "pods": "3", "count/configmaps": "9"})
    write("cluster.yaml", dumped(a_namespace(), a_pod_in("team-a", "1")))
    options = ("-f", "-", "--snapshot", "cluster.yaml")
    note = "what namespace team-a has of services: the cluster does not count it for quota few yet"
    assert note in checked(*options, text=dumped(quota, service))["notes"]
    # a namespace that is not there yet has nothing
    assert note not in checked("-f", "-", text=dumped(quota, service))["notes"]
    write("cluster.yaml", dumped(a_namespace("team-b")))
    text = dumped(a_namespace(), quota, service)
    assert note not in checked(*options, text=text)["notes"]
    used: Object = {"services": "1", "pods": "1", "count/configmaps": "1"}
    write("cluster.yaml", dumped(a_namespace(), {**quota, "status": {"hard": used, "used": used}}))
    report = checked(*options, text=dumped(quota, service))
    assert note not in report["notes"]
    assert [one["rule"] for one in findings(report)] == ["object-quota"]
