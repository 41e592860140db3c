"""The transcript has what was typed and what was printed, and ends where something is wrong."""

from __future__ import annotations

import re

import pytest

from tests.trial.run import PAGE
from tests.trial.transcript import ROOT, Transcript, TrialError
from tests.trial.walks import WALKS, walks_table


def a_transcript() -> Transcript:
    return Transcript({"NAME": "team-a"}, lambda _line: None)


def test_commands_stand_with_their_output() -> None:
    script = a_transcript()
    script.title("A part")
    script.text("It is broken.")
    script.run("echo $NAME; echo https://127.0.0.1:12345 >&2")
    script.run("true")
    script.text("It heals.")
    assert script.whole().splitlines() == [
        "## A part",
        "",
        "It is broken.",
        "",
        "```console",
        "$ echo $NAME; echo https://127.0.0.1:12345 >&2",
        "team-a",
        "https://127.0.0.1:PORT",
        "$ true",
        "```",
        "",
        "It heals.",
    ]


def test_a_command_that_ends_otherwise_ends_the_trial() -> None:
    script = a_transcript()
    script.run("exit 1", code=1)
    with pytest.raises(TrialError, match="exit 1: ended with 1"):
        script.run("exit 1")


def test_a_command_is_repeated_until_it_prints_what_has_to_come() -> None:
    script = a_transcript()
    assert script.until("echo healed", "^healed$") < 5
    assert "$ echo healed    # after 0 s\nhealed" in script.whole()
    with pytest.raises(TrialError, match="does not print 'healed'"):
        script.until("echo broken", "healed", seconds=0)


def test_the_page_has_both_ways_of_installation_and_each_part() -> None:
    page = PAGE.read_text()
    for title in ("By kustomize", "By the chart"):
        _, _, part = page.partition(f"\n## {title}\n")
        parts = [line for line in part.partition("\n## ")[0].splitlines() if line[:4] == "### "]
        assert len(parts) == 14, title


def test_each_runbook_is_walked_by_a_part_or_by_a_test_that_there_is() -> None:
    runbooks = (ROOT / "docs/operations/runbooks.md").read_text()
    assert list(WALKS) == re.findall("^## (Deferred.*)$", runbooks, re.MULTILINE)
    page = PAGE.read_text()
    assert walks_table() in page
    for walk in WALKS.values():
        path, is_test, name = walk.partition("::")
        if is_test:
            assert f"\ndef {name}(" in (ROOT / "tests" / path).read_text(), walk
        else:
            assert page.count(f"\n### {walk}\n") == 2, walk
