"""How many pods a Job runs at a time from now on."""

from __future__ import annotations

import pytest

from tests.builders import Object, a_job
from webhook.jsonfields.fields import InvalidFieldError
from webhook.jsonfields.reader import FieldReader
from webhook.quota.jobs.parallelism import indexes_in, pods_at_a_time, pods_to_come


def condition(name: str, status: str = "True") -> Object:
    return {"conditions": [{"type": name, "status": status}]}


INDEXED = {"completionMode": "Indexed"}
CASES: dict[str, tuple[Object, Object, int]] = {
    "nothing is said": ({}, {}, 1),
    "nothing is said and it is done": ({}, {"succeeded": 1}, 0),
    "parallelism": ({"parallelism": 4}, {}, 4),
    "parallelism 0": ({"parallelism": 0, "completions": 3}, {}, 0),
    "fewer completions": ({"parallelism": 4, "completions": 3}, {}, 3),
    "completions alone": ({"completions": 3}, {}, 1),
    "some are done": ({"parallelism": 4, "completions": 6}, {"succeeded": 4}, 2),
    "all are done": ({"parallelism": 4, "completions": 4}, {"succeeded": 4}, 0),
    "more than all": ({"parallelism": 4, "completions": 4}, {"succeeded": 5}, 0),
    "failures are tried again": ({"parallelism": 4, "completions": 4}, {"failed": 3}, 4),
    "no completions": ({"parallelism": 4, "completions": None}, {}, 4),
    "no completions and a success": ({"parallelism": 4}, {"succeeded": 1}, 0),
    "indexes": (
        {"parallelism": 9, "completions": 9, **INDEXED},
        {"succeeded": 3, "completedIndexes": "0,2-3"},
        6,
    ),
    "indexes that failed for good": (
        {"parallelism": 9, "completions": 9, "backoffLimitPerIndex": 1, **INDEXED},
        {"succeeded": 3, "failed": 8, "completedIndexes": "0,2-3", "failedIndexes": "5-6"},
        4,
    ),
    "indexes beyond the completions": (
        {"parallelism": 9, "completions": 4, **INDEXED},
        {"completedIndexes": "2-7"},
        2,
    ),
    "complete": ({"parallelism": 4}, condition("Complete"), 0),
    "failed": ({"parallelism": 4}, condition("Failed"), 0),
    "about to fail": ({"parallelism": 4}, condition("FailureTarget"), 0),
    "success policy met": (
        {"parallelism": 4, "completions": 9},
        condition("SuccessCriteriaMet"),
        0,
    ),
    "not complete": ({"parallelism": 4}, condition("Complete", "False"), 4),
    "suspended": ({"parallelism": 4, "suspend": True}, condition("Suspended"), 4),
    "backoff": ({"parallelism": 4, "completions": 4, "backoffLimit": 0}, {}, 4),
}


@pytest.mark.parametrize(("spec", "status", "count"), CASES.values(), ids=CASES.keys())
def test_counts_the_pods_that_run_together(spec: Object, status: Object, count: int) -> None:
    assert pods_at_a_time(a_job(status=status, **spec)) == count  # type: ignore[arg-type]


TO_COME: dict[str, tuple[Object, Object, int | None]] = {
    "nothing is said": ({}, {}, 1),
    "nothing is said and it is done": ({}, {"succeeded": 1}, 0),
    "no completions": ({"parallelism": 4}, {}, None),
    "no completions and a success": ({"parallelism": 4}, {"succeeded": 1}, 0),
    "scaled to zero": ({"parallelism": 0, "completions": 3}, {"succeeded": 1}, 2),
    "scaled to zero, without completions": ({"parallelism": 0}, {}, None),
    "scaled to zero, and done": ({"parallelism": 0, "completions": 3}, {"succeeded": 3}, 0),
    "failed": ({"parallelism": 0}, condition("Failed"), 0),
}


@pytest.mark.parametrize(("spec", "status", "count"), TO_COME.values(), ids=TO_COME.keys())
def test_counts_the_pods_that_have_still_to_succeed(
    spec: Object, status: Object, count: int | None
) -> None:
    job = FieldReader(a_job(status=status, **spec))  # type: ignore[arg-type]
    assert pods_to_come(job.child("spec"), job.child("status")) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("0", 1), ("1-3", 3), ("1,3-5,7", 5), ("x", 0), ("1-", 0), ("5-2", 0)],
)
def test_reads_lists_of_indexes(text: str, count: int) -> None:
    assert indexes_in(text, 10) == count


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"parallelism": -1}, "spec.parallelism"),
        ({"completions": 2**31}, "spec.completions"),
        ({"parallelism": "2"}, "spec.parallelism"),
    ],
)
def test_impossible_numbers_are_refused_with_their_path(spec: Object, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        pods_at_a_time(a_job(**spec))  # type: ignore[arg-type]
    assert caught.value.field == field
