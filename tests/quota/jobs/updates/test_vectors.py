"""Random updates of Jobs, compared with the answers of Kubernetes 1.36.2's own code."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.quota.oracle import VECTORS
from webhook.jsonfields.encoding import decode_json
from webhook.jsonfields.fields import mapping, sequence, text
from webhook.quota.jobs import job_update_errors


def read_answers() -> list[Mapping[str, object]]:
    lines = (VECTORS / "jobs.jsonl").read_bytes().splitlines()
    return [mapping(decode_json(line), "answer") for line in lines]


ANSWERS = read_answers()


@pytest.mark.parametrize("answer", ANSWERS, ids=map(str, range(len(ANSWERS))))
def test_agrees_with_the_platform(answer: Mapping[str, object]) -> None:
    expected = [mapping(error, "error") for error in sequence(answer["errors"], "errors")]
    errors = job_update_errors(mapping(answer["old"], "old"), mapping(answer["new"], "new"))

    assert [(error.type, error.field, error.detail) for error in errors] == [
        (text(e["type"], "type"), text(e["field"], "field"), text(e["detail"], "detail"))
        for e in expected
    ]
    assert (not errors) == answer["allowed"]


def test_there_are_answers_of_both_kinds() -> None:
    allowed = [answer["allowed"] for answer in ANSWERS]

    assert allowed.count(True) > 50
    assert allowed.count(False) > 50
