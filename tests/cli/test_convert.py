"""`deferred-quota convert`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from webhook.cli import ExitCode, cli
from webhook.kube.files.documents import read_documents

PROPOSED = """\
# what gold pods may have
apiVersion: v1
kind: ResourceQuota
metadata: {name: gold, namespace: team-a}
spec:
  hard: {pods: "10", requests.cpu: 1.50}  # until autumn
  priorityClassNameList: [gold, silver]
"""
CONVERTED = """\
# what gold pods may have
apiVersion: v1
kind: ResourceQuota
metadata: {name: gold, namespace: team-a}
spec:
  hard: {pods: "10", requests.cpu: 1.50}  # until autumn
  scopeSelector:
    matchExpressions:
    - scopeName: PriorityClass
      operator: In
      values: [gold, silver]
"""
OTHERS = """\
---
apiVersion: v1
kind: ConfigMap
metadata: {name: words}
data: {"on": "yes", octal: "0o17", time: "12:30", day: "2017-09-01", empty: "", lines: "a\\nb\\n"}
---
---
apiVersion: v1
kind: List
items: []
---
apiVersion: example.com/v1
kind: ResourceQuota
spec: {priorityClassNameList: [gold], number: 1.0, flag: true, nothing: null}
"""
ABSENT = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {pods: 1}}}\n"
WARNING = (
    "warning: -: document 1, line 1: spec.priorityClassNameList: is absent: as proposed, such a"
    " quota counts only pods without a priority class, but today it counts all pods; for those"
    " without one add a scopeSelector with PriorityClass DoesNotExist\n"
)


def run(*args: str, stdin: str = "") -> Result:
    return CliRunner().invoke(cli, ["convert", *args], input=stdin)


def values_of(text: str) -> list[object]:
    """All documents of a text that are not empty, as our own commands read them."""
    found = read_documents("stdout", text.encode())
    return [each.value for each in found if each.value is not None]


def test_a_quota_of_the_proposal_becomes_one_of_today() -> None:
    result = run("-f", "-", stdin=PROPOSED)
    assert (result.exit_code, result.stdout, result.stderr) == (ExitCode.OK, CONVERTED, "")


def test_for_input_without_any_list_lists_are_not_mentioned() -> None:
    result = run("-f", "-", stdin=ABSENT + "---\n" + ABSENT)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")


def test_json_has_the_same_quota_with_its_numbers_as_they_were_written() -> None:
    result = run("-f", "-", "-o", "json", stdin=PROPOSED)
    assert result.exit_code == ExitCode.OK
    assert values_of(result.stdout) == values_of(CONVERTED)
    assert '"requests.cpu": 1.50' in result.stdout
    assert json.loads(result.stdout)["metadata"] == {"name": "gold", "namespace": "team-a"}


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_other_documents_pass_unchanged_and_in_their_order(output: str) -> None:
    result = run("-f", "-", "-o", output, stdin=PROPOSED + OTHERS)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    assert values_of(result.stdout) == [*values_of(CONVERTED), *values_of(OTHERS)]


def test_quotas_in_lists_are_converted_where_they_are() -> None:
    quota = {"metadata": {"name": "any"}, "spec": {"priorityClassNameList": ["*"]}}
    core = {"apiVersion": "v1"}
    inner = {**core, "kind": "ResourceQuotaList", "items": [quota, {"metadata": {"name": "x"}}]}
    other = {**core, "kind": "Secret", "items": [1]}
    text = json.dumps({**core, "kind": "List", "metadata": {"a": 1}, "items": [other, inner]})
    result = run("-f", "-", stdin=text)
    assert (result.exit_code, result.stderr) == (ExitCode.OK, "")
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    converted = {
        **core,
        "kind": "ResourceQuota",
        "metadata": {"name": "any"},
        "spec": {"scopeSelector": selector},
    }
    assert values_of(result.stdout) == [
        {
            **core,
            "kind": "List",
            "metadata": {"a": 1},
            "items": [other, {**inner, "items": [converted, {"metadata": {"name": "x"}}]}],
        }
    ]


def test_a_list_that_is_absent_beside_others_is_warned_of_on_stderr_and_the_quota_stays() -> None:
    result = run("-f", "-", stdin=f"{ABSENT}---\n{PROPOSED}")
    assert (result.exit_code, result.stderr) == (ExitCode.OK, WARNING)
    assert values_of(result.stdout) == [*values_of(ABSENT), *values_of(CONVERTED)]


@pytest.mark.parametrize(
    "text",
    [
        CONVERTED,
        CONVERTED.replace("\n", "\r\n"),
        CONVERTED.rstrip(),
        f"\ufeff{CONVERTED}",
        f"%YAML 1.1\n---  # first\n{CONVERTED}...\n# between\n---\n\n--- # none\n{OTHERS}\n# last",
        '{"apiVersion":"v1","kind":"Thing"}\n\n{"apiVersion": "v1", "kind": "Thing"}',
        "# nothing\n",
        "",
    ],
)
def test_input_without_anything_to_convert_is_printed_byte_for_byte(text: str) -> None:
    result = run("-f", "-", stdin=text)
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (
        ExitCode.OK,
        text.encode(),
        "",
    )


def test_json_stays_json_in_its_place_and_with_its_indentation() -> None:
    others = '{"apiVersion":"v1","kind":"Thing"}'
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "spec": {"hard": {"pods": 1}, "priorityClassNameList": ["*"]},
    }
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    converted = {**quota, "spec": {"hard": {"pods": 1}, "scopeSelector": selector}}
    text = f"{others}\n{json.dumps(quota, indent=4)}\n{json.dumps(quota)} {others}\n"
    result = run("-f", "-", stdin=text)
    assert result.stdout == (
        f"{others}\n{json.dumps(converted, indent=4)}\n{json.dumps(converted)} {others}\n"
    )


A, B, C = (f"apiVersion: v1\nkind: {kind}\n" for kind in "ABC")
JSON_A, JSON_B = ('{"apiVersion":"v1","kind":"A"}', '{"apiVersion":"v1","kind":"B"}')
JOINED: dict[str, tuple[tuple[str, ...], str]] = {
    "a marker between": ((A.rstrip(), B), f"{A}---\n{B}"),
    "a marker that is there": ((A, f"---\n{B}"), f"{A}---\n{B}"),
    "a comment above a marker": ((A, f"# b\n---\n{B}"), f"{A}...\n# b\n---\n{B}"),
    "a directive": ((A, f"%YAML 1.1\n---\n{B}"), f"{A}...\n%YAML 1.1\n---\n{B}"),
    "a comment above a value": (
        (f"{A}text: |\n  b\n", f"  # b\n{B}"),
        f"{A}text: |\n  b\n---\n  # b\n{B}",
    ),
    "comments alone": ((A, "# b", "# c\n"), f"{A}---\n# b\n---\n# c\n"),
    "comments at first": (("# a\n", B), f"# a\n---\n{B}"),
    "nothing": (("", A, ""), f"{A}---\n"),
    "byte order marks": ((f"\ufeff{A}", f"\ufeff{B}"), f"{A}---\n{B}"),
    "a block of text without a line end": (
        (f"{A}text: |\n  b", B),
        f"apiVersion: v1\nkind: A\ntext: b\n---\n{B}",
    ),
    "a line that is none of a block": ((f"{A}text: b", B), f"{A}text: b\n---\n{B}"),
    "JSON that is no YAML": (
        (A, '{"apiVersion":"v1","kind":"\\ud83d\\ude00"}\n', B),
        f"{A}---\napiVersion: v1\nkind: \U0001f600\n---\n{B}",
    ),
    "JSON": ((C, f"{JSON_A} {JSON_B}"), f"{C}---\n{JSON_A}\n---\n{JSON_B}"),
}


@pytest.mark.parametrize(("texts", "expected"), JOINED.values(), ids=JOINED.keys())
def test_files_are_joined_as_documents_of_one(
    texts: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    for index, text in enumerate(texts):
        (tmp_path / f"{index}.yaml").write_text(text)
    result = run("-f", str(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (ExitCode.OK, expected, "")
    assert values_of(result.stdout) == [value for text in texts for value in values_of(text)]


def test_directories_and_files_are_read_in_the_order_of_kubectl(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.json").write_text(
        json.dumps(values_of(PROPOSED.replace("1.50", "1"))[0])
    )
    (tmp_path / "a.yaml").write_text(ABSENT)
    flat = run("-f", str(tmp_path))
    assert flat.stdout.count("kind: ResourceQuota") == 1
    deep = run("-f", str(tmp_path), "-R")
    assert [one["metadata"]["name"] for one in values_of(deep.stdout)] == ["q", "gold"]  # type: ignore[index]


BAD: dict[str, tuple[str, str]] = {
    "a name that no expression can hold": (
        PROPOSED.replace("silver", "'si lver'"),
        "-: document 1, line 7: spec.priorityClassNameList[1]: a valid label must be an empty",
    ),
    "a list that is none": (
        PROPOSED.replace("[gold, silver]", "gold"),
        "-: document 1, line 7: spec.priorityClassNameList: must be a list, not a string",
    ),
    "a later document": (
        f"{OTHERS}---\n{PROPOSED.replace('gold, silver', '7')}",
        "-: document 5, line 22: spec.priorityClassNameList[0]: must be a string, not a number",
    ),
    "a key that classes cannot limit": (
        PROPOSED.replace("pods", "configmaps"),
        "-: document 1, line 6: spec.hard.configmaps: cannot be limited for priority classes;",
    ),
    "no object": ("- a\n- b\n", "-: document 1, line 1: must be an object, not a list"),
    "no kind": ("apiVersion: v1\n", "-: document 1, line 1: kind: required"),
    "no YAML": ("a: b: c\n", "-: document 1, line 1, column 5: mapping values are not allowed"),
    "a field twice": ("a: 1\na: 2\n", "-: document 1, line 2, column 1: the key 'a' appears twice"),
    "a broken quota in a list": (
        "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ResourceQuota, spec: 7}]}",
        "-: document 1, line 1: items[0].spec: must be an object, not a number",
    ),
}


@pytest.mark.parametrize("output", ["yaml", "json"])
@pytest.mark.parametrize(("text", "problem"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_named_and_nothing_is_printed(text: str, problem: str, output: str) -> None:
    result = run("-f", "-", "-o", output, stdin=text)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr.startswith(f"Error: {problem}")


def test_every_problem_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(PROPOSED.replace("gold, silver", "''"))
    (tmp_path / "b.yaml").write_text("a: b: c")
    (tmp_path / "c.yaml").write_text(ABSENT)
    result = run("-f", str(tmp_path))
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [
        str(tmp_path / "a.yaml"),
        str(tmp_path / "b.yaml"),
    ]


def test_something_has_to_be_given() -> None:
    result = run()
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stderr.startswith("Error: nothing to read: give manifests with -f FILE")


def test_the_help_has_an_example() -> None:
    result = run("--help")
    assert result.exit_code == ExitCode.OK
    assert "deferred-quota convert -f quotas.yaml" in result.stdout


def test_a_number_of_any_size_stays_what_it_is() -> None:
    text = f"{{apiVersion: v1, kind: Thing, spec: {{number: {10**30}}}}}"
    for output in ("yaml", "json"):
        assert values_of(run("-f", "-", "-o", output, stdin=text).stdout) == values_of(text)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_text_that_is_no_unicode_is_bad_input(output: str) -> None:
    text = '{"apiVersion": "v1", "kind": "Thing", "half": "\\ud800"}'
    result = run("-f", "-", "-o", output, stdin=text)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr.endswith("column 48: \\ud800 is half a surrogate pair\n")


def test_warnings_without_an_end_are_counted() -> None:
    result = run("-f", "-", stdin="---\n".join([PROPOSED, *[ABSENT] * 500]))
    assert result.exit_code == ExitCode.OK
    lines = result.stderr.splitlines()
    assert lines[-1] == "warning: 450 more like these, not shown"
    assert len(lines) == 51
