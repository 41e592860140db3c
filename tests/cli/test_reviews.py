"""AdmissionReviews from a file or standard input."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from webhook.admission.deadline import Deadline
from webhook.admission.review import AdmissionRequest, AdmissionResponse, Allowed, Denied
from webhook.cli.app import CommandLine
from webhook.cli.exit_codes import ExitCode
from webhook.cli.files.reviews import PHASES, print_replies


def a_review(uid: str, name: str = "web-1") -> dict[str, object]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "team-a",
            "name": name,
        },
    }


def decide(request: AdmissionRequest, deadline: Deadline) -> AdmissionResponse:
    """Refuse pods that are called greedy; say the phase."""
    assert not deadline.expired
    if request.name == "greedy":
        return Denied(code=403, reason="Forbidden", message="too much")
    return Allowed(decision=request.phase.value)


@click.command()
@click.argument("source")
@click.option("--jsonl", is_flag=True)
@click.option("--phase", type=click.Choice(list(PHASES)), default="validate")
def answer(source: str, jsonl: bool, phase: str) -> ExitCode:
    return print_replies(source, jsonl=jsonl, phase=PHASES[phase], decide=decide)


def run(*args: str, stdin: str = "") -> Result:
    line = CommandLine("try", lazy={"answer": (f"{__name__}:answer", "Answer.")})
    return CliRunner().invoke(line, ["answer", *args], input=stdin)


def answers(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def lines(*reviews: dict[str, object]) -> str:
    return "".join(f"{json.dumps(review)}\n" for review in reviews)


def verdict(answer: dict[str, object]) -> tuple[object, object]:
    response = answer["response"]
    assert isinstance(response, dict)
    return response["uid"], response["allowed"]


def test_one_review_on_standard_input_gets_one_answer() -> None:
    result = run("-", stdin=json.dumps(a_review("u1"), indent=2))
    assert result.exit_code == ExitCode.OK
    assert answers(result) == [
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": "u1",
                "allowed": True,
                "auditAnnotations": {"decision": "validating"},
            },
        }
    ]


def test_one_review_can_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "review.json"
    path.write_text(json.dumps(a_review("u1")))
    assert [verdict(each) for each in answers(run(str(path)))] == [("u1", True)]


def test_a_byte_order_mark_before_a_review_is_no_part_of_it() -> None:
    mark = "\ufeff"
    assert run("-", stdin=mark + lines(a_review("u1"))).exit_code == ExitCode.OK
    assert run("-", "--jsonl", stdin=mark + lines(a_review("u1"))).exit_code == ExitCode.OK


def test_the_phase_is_handed_on() -> None:
    result = run("-", "--phase", "mutate", stdin=json.dumps(a_review("u1")))
    assert '"decision":"mutating"' in result.stdout


def test_a_refusal_is_a_finding() -> None:
    result = run("-", stdin=json.dumps(a_review("u1", "greedy")))
    assert result.exit_code == ExitCode.FINDINGS
    assert [verdict(each) for each in answers(result)] == [("u1", False)]


def test_lines_are_answered_one_by_one_in_their_order() -> None:
    result = run("-", "--jsonl", stdin=lines(*(a_review(f"u{i}") for i in range(5))))
    assert result.exit_code == ExitCode.OK
    assert [verdict(each) for each in answers(result)] == [(f"u{i}", True) for i in range(5)]


def test_one_refusal_among_lines_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    path.write_text(lines(a_review("u1", "greedy"), a_review("u2")))
    result = run(str(path), "--jsonl")
    assert result.exit_code == ExitCode.FINDINGS
    assert [verdict(each) for each in answers(result)] == [("u1", False), ("u2", True)]


def test_blank_lines_and_a_missing_last_newline_are_fine() -> None:
    text = f"\n{lines(a_review('u1'))}\n  \n{json.dumps(a_review('u2'))}"
    result = run("-", "--jsonl", stdin=text)
    assert [verdict(each) for each in answers(result)] == [("u1", True), ("u2", True)]


def test_a_malformed_line_is_named_and_the_others_are_answered() -> None:
    text = lines(a_review("u1")) + "\n{oops\n" + lines(a_review("u2", "greedy"))
    result = run("-", "--jsonl", stdin=text)
    assert result.exit_code == ExitCode.BAD_INPUT
    first, second, third = answers(result)
    assert [verdict(first), verdict(third)] == [("u1", True), ("u2", False)]
    assert second["line"] == 3
    assert isinstance(second["error"], dict)
    assert second["error"]["reason"] == "json"
    assert result.stderr.startswith("Error: -: line 3: the body is not JSON")


MALFORMED = {
    "truncated": ('{"apiVersion":', "the body is not JSON"),
    "empty": ("", "the body is not JSON"),
    "not a review": ('{"apiVersion":"v1","kind":"Pod"}', "kind: must be AdmissionReview"),
    "two reviews": (lines(a_review("u1"), a_review("u2")), "the body is not JSON"),
    "deep": ('{"request":{"object":{"a":' + "[" * 100_000, "nests too deep"),
}


@pytest.mark.parametrize(("text", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_single_malformed_review_leaves_stdout_empty(text: str, reason: str) -> None:
    result = run("-", stdin=text)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr.startswith("Error: -: ")
    assert reason in result.stderr


@pytest.mark.parametrize("args", [(), ("--jsonl",)], ids=["one", "lines"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, args: tuple[str, ...]) -> None:
    path = tmp_path / "none.json"
    result = run(str(path), *args)
    assert (result.exit_code, result.stdout) == (ExitCode.BAD_INPUT, "")
    assert result.stderr == f"Error: {path}: No such file or directory\n"


def test_a_directory_is_no_review(tmp_path: Path) -> None:
    result = run(str(tmp_path), "--jsonl")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert result.stderr == f"Error: {tmp_path}: Is a directory\n"
