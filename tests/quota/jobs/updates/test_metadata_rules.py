"""How labels and annotations of a Job and of its template are checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.quota.jobs.job_updates import (
    Change,
    a_stored_job,
    drop,
    immutable,
    invalid,
    put,
    twice,
    updated,
)
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import job_update_errors
from webhook.quota.objects.names import label_value_error, qualified_name_errors

UID = "job-uid-1"
GENERATED = {
    "controller-uid": UID,
    "job-name": "train",
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "train",
}
LABELS = "spec.template.metadata.labels"
JOB = updated(
    a_stored_job(),
    put(LABELS, GENERATED),
    put("spec.selector", {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}),
)
NO_KEY = qualified_name_errors("a b")[0]
NO_VALUE = str(label_value_error("a b"))
TOO_LONG = "may not be more than 262144 bytes"


def missing(label: str, value: str) -> FieldError:
    return FieldError("FieldValueRequired", f"{LABELS}[{label}]", f"must be '{value}'")


OF_TEMPLATE: Mapping[str, tuple[Change, Sequence[FieldError]]] = {
    "labels": (
        put(f"{LABELS}.a b", "a b"),
        [invalid("spec.template.labels", NO_KEY), invalid("spec.template.labels", NO_VALUE)],
    ),
    "annotations, whose keys may have capitals": (
        put("spec.template.metadata.annotations", {"Example.COM/a": "a b", "a b": "x"}),
        [invalid("spec.template.annotations", NO_KEY)],
    ),
    "as much of them as there may be": (
        put("spec.template.metadata.annotations", {"a": "x" * 262_143}),
        [],
    ),
    "more": (
        put("spec.template.metadata.annotations", {"a": "x" * 262_142 + "\u00e4"}),
        [FieldError("FieldValueTooLong", "spec.template.annotations", TOO_LONG)],
    ),
    "the Job's own": (
        put("metadata.annotations", {"a b": "x"}),
        [invalid("metadata.annotations", NO_KEY)],
    ),
    "the Job's own labels": (
        put("metadata.labels", {"a": "a b"}),
        [invalid("metadata.labels", NO_VALUE)],
    ),
}


@pytest.mark.parametrize(("change", "errors"), OF_TEMPLATE.values(), ids=OF_TEMPLATE.keys())
def test_they_are_checked_twice(change: Change, errors: Sequence[FieldError]) -> None:
    assert job_update_errors(JOB, updated(JOB, change)) == twice(errors)


def test_an_error_of_length_does_not_show_the_value() -> None:
    new = updated(JOB, put("metadata.annotations", {"a": "x" * 262_144}))

    assert job_update_errors(JOB, new)[0].message == f"Too long: {TOO_LONG}"


ONCE: Mapping[str, tuple[Change, Sequence[FieldError]]] = {
    "a label is gone": (drop(f"{LABELS}.job-name"), [missing("job-name", "train")]),
    "a label is another": (
        put(f"{LABELS}.controller-uid", "x"),
        [invalid(f"{LABELS}[controller-uid]", f"must be '{UID}'")],
    ),
    "the uid is another": (
        put("metadata.uid", "x"),
        [
            *(
                invalid(f"{LABELS}[{prefix}controller-uid]", "must be 'x'")
                for prefix in ("", "batch.kubernetes.io/")
            ),
            invalid("spec.selector", "`selector` not auto-generated"),
        ],
    ),
    "the uid is left out, which the API server fills in": (drop("metadata.uid"), []),
}


@pytest.mark.parametrize(("change", "errors"), ONCE.values(), ids=ONCE.keys())
def test_generated_labels_are_checked_once(change: Change, errors: Sequence[FieldError]) -> None:
    assert job_update_errors(JOB, updated(JOB, change)) == errors


def test_they_come_after_the_jobs_own_and_before_its_numbers() -> None:
    new = updated(
        JOB,
        put("metadata.annotations", {"a b": "x"}),
        put("spec.parallelism", -1),
        drop(f"{LABELS}.job-name"),
    )
    own = invalid("metadata.annotations", NO_KEY)
    number = invalid("spec.parallelism", "must be greater than or equal to 0")

    assert job_update_errors(JOB, new) == [own, missing("job-name", "train"), number, own, number]


def test_the_labels_that_are_not_as_generated_are_shown() -> None:
    error = job_update_errors(JOB, updated(JOB, put(f"{LABELS}.job-name", "b")))[0]

    assert error.message == (
        'Invalid value: {"batch.kubernetes.io/controller-uid":"job-uid-1",'
        '"batch.kubernetes.io/job-name":"train","controller-uid":"job-uid-1",'
        '"job-name":"b"}: must be \'train\''
    )


def test_another_selector_is_not_as_generated() -> None:
    new = updated(JOB, put("spec.selector", {"matchLabels": {"team": "a"}}))
    selector = [
        invalid("spec.selector", "`selector` not auto-generated"),
        *twice([invalid(LABELS, "`selector` does not match template `labels`")]),
        immutable("spec.selector"),
    ]

    assert job_update_errors(JOB, new) == selector


def test_a_selector_of_ones_own_takes_no_generated_labels() -> None:
    job = updated(JOB, put("spec.manualSelector", True))

    assert job_update_errors(job, updated(job, drop(f"{LABELS}.job-name"))) == []


def test_jobs_of_old_need_no_labels_with_a_prefix() -> None:
    old_labels = {name: value for name, value in GENERATED.items() if "/" not in name}
    selector = {"matchLabels": {"controller-uid": UID}}
    old = updated(JOB, put(LABELS, old_labels), put("spec.selector", selector))

    assert job_update_errors(old, updated(old, put("spec.parallelism", 3))) == []
    assert job_update_errors(old, updated(old, drop(f"{LABELS}.job-name"))) == [
        missing("job-name", "train")
    ]
