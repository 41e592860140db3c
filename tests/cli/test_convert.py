"""`deferred-quota convert`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from webhook.cli import ExitCode, cli
from webhook.jsonfields.encoding import NumberText
from webhook.kube.files.documents import read_documents

PROPOSED = """\
# what gold pods may have
apiVersion: v1
kind: ResourceQuota
metadata: {name: gold, namespace: team-a}
spec:
  hard: {pods: "10", requests.cpu: 1.50}
  priorityClassNameList: [gold, silver]
"""
CONVERTED = """\
apiVersion: v1
kind: ResourceQuota
metadata:
  name: gold
  namespace: team-a
spec:
  hard:
    pods: '10'
    requests.cpu: 1.50
  scopeSelector:
    matchExpressions:
    - scopeName: PriorityClass
      operator: In
      values:
      - gold
      - silver
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


def test_input_without_any_list_is_not_told_of_lists() -> None:
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


def test_strings_stay_strings_for_a_reader_of_another_dialect() -> None:
    result = run("-f", "-", stdin=OTHERS)
    words = next(yaml.safe_load_all(result.stdout))
    assert words["data"] == {
        "on": "yes",
        "octal": "0o17",
        "time": "12:30",
        "day": "2017-09-01",
        "empty": "",
        "lines": "a\nb\n",
    }


def test_text_of_several_lines_is_a_block_unless_it_begins_with_space() -> None:
    lines = '{apiVersion: v1, kind: Thing, plain: "a\\n b\\n", odd: "\\n a"}'
    result = run("-f", "-", stdin=lines)
    assert result.stdout == 'apiVersion: v1\nkind: Thing\nplain: |\n  a\n   b\nodd: "\\n a"\n'


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


def test_what_was_converted_needs_no_further_conversion() -> None:
    result = run("-f", "-", stdin=CONVERTED)
    assert (result.stdout, result.stderr) == (CONVERTED, "")


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


def test_text_that_is_no_unicode_is_bad_input_where_it_cannot_be_written() -> None:
    text = '{"apiVersion": "v1", "kind": "Thing", "half": "\\ud800"}'
    result = run("-f", "-", "-o", "json", stdin=text)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr.startswith("Error: cannot be written as JSON: ")
    assert run("-f", "-", stdin=text).stdout.endswith('half: "\\uD800"\n')


_TEXTS = st.text(max_size=12) | st.sampled_from(
    [
        *("yes", "No", "on", "null", "~", "", " ", "=", "<<", "1e3", "0x1F", "0o7", "1_000"),
        *("1:30", "2017-09-01", ".5", "-", "- a", "? a", ": a", "a: b", "a #b", "#a", "&a", "*a"),
        *("!a", "%a", "@a", "`a", "|", ">", "{}", "[]", "'", '"', "a\nb", "a\n\n", "\n", " a\nb"),
        *("a\r\nb", "\ta", "a\t", "...", "---", "--- a", ".inf", ".nan", "0b1", "+1", "a\u2028b"),
    ]
)
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([NumberText("1.50"), NumberText("1E3"), NumberText("-0.5e-7")])
    | _TEXTS.filter(lambda text: text.isprintable() or text.isascii()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(_TEXTS.filter(lambda text: text.isprintable()), inner, max_size=3)
    ),
    max_leaves=8,
)


def typed(value: object) -> object:
    """A form of a value that tells a number from its text, and true from 1."""
    if isinstance(value, dict):
        return {name: typed(item) for name, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return type(value).__name__, value


@pytest.mark.parametrize("output", ["yaml", "json"])
@given(value=_VALUES)
def test_any_document_is_written_as_it_was_read(output: str, value: object) -> None:
    document = {"apiVersion": "v1", "kind": "Thing", "value": value}
    text = json.dumps(document, default=str)
    # numbers that are no integers are text to json, so they go in as they are written
    for number in ("1.50", "1E3", "-0.5e-7"):
        text = text.replace(f'"{number}"', number)
    (read,) = values_of(text)
    result = run("-f", "-", "-o", output, stdin=text)
    assert result.exit_code == ExitCode.OK, result.stderr
    (written,) = values_of(result.stdout)
    assert typed(written) == typed(read)


def test_warnings_without_an_end_are_counted() -> None:
    result = run("-f", "-", stdin="---\n".join([PROPOSED, *[ABSENT] * 500]))
    assert result.exit_code == ExitCode.OK
    lines = result.stderr.splitlines()
    assert lines[-1] == "warning: 450 more like these, not shown"
    assert len(lines) == 51
