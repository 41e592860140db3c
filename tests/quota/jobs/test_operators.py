"""Operators that are not known, and values that do not go with one."""

from __future__ import annotations

import pytest

from tests.quota.jobs.job_updates import SPEC, a_stored_job, put, twice, updated
from webhook.jsonfields.fields import FieldError
from webhook.quota.jobs import job_update_errors

REQUIRED = f"{SPEC}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = f"{SPEC}.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"

CASES = {
    "unknown": (
        {"key": "zone", "operator": "Like", "values": ["a"]},
        FieldError("FieldValueInvalid", "operator", "not a valid selector operator"),
    ),
    "missing": (
        {"key": "zone"},
        FieldError("FieldValueInvalid", "operator", "not a valid selector operator"),
    ),
    "In without values": (
        {"key": "zone", "operator": "In"},
        FieldError(
            "FieldValueRequired", "values", "must be specified when `operator` is 'In' or 'NotIn'"
        ),
    ),
    "Exists with values": (
        {"key": "zone", "operator": "Exists", "values": ["a"]},
        FieldError(
            "FieldValueForbidden",
            "values",
            "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        ),
    ),
    "Gt with two values": (
        {"key": "size", "operator": "Gt", "values": ["1", "2"]},
        FieldError(
            "FieldValueRequired",
            "values",
            "must be specified single value when `operator` is 'Lt' or 'Gt'",
        ),
    ),
}
FIELDS = {
    "a known field": ({"key": "metadata.name", "operator": "In", "values": ["a"]}, None),
    "two values": (
        {"key": "metadata.name", "operator": "In", "values": ["a", "b"]},
        FieldError(
            "FieldValueRequired",
            "values",
            "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
        ),
    ),
    "Exists": (
        {"key": "metadata.name", "operator": "Exists"},
        FieldError("FieldValueInvalid", "operator", "not a valid selector operator"),
    ),
}
RIGHT = [
    {"key": "zone", "operator": "NotIn", "values": ["a", "b"]},
    {"key": "zone", "operator": "DoesNotExist"},
    {"key": "size", "operator": "Lt", "values": ["3"]},
]


def with_term(name: str, expression: object) -> list[FieldError]:
    job = a_stored_job()
    terms = [{name: [expression]}]
    return job_update_errors(job, updated(job, put(REQUIRED, {"nodeSelectorTerms": terms})))


def at(error: FieldError, path: str) -> list[FieldError]:
    return twice([FieldError(error.type, f"{path}.{error.field}", error.detail)])


@pytest.mark.parametrize(("expression", "error"), CASES.values(), ids=CASES.keys())
def test_faulty_expressions_are_refused_with_their_path(
    expression: object, error: FieldError
) -> None:
    path = f"{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0]"
    assert with_term("matchExpressions", expression) == at(error, path)


@pytest.mark.parametrize(("expression", "error"), CASES.values(), ids=CASES.keys())
def test_preferences_are_looked_at_too(expression: object, error: FieldError) -> None:
    job = a_stored_job()
    terms = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    new = updated(job, put(PREFERRED, terms))
    path = f"{PREFERRED}[0].preference.matchExpressions[0]"
    assert job_update_errors(job, new) == at(error, path)


@pytest.mark.parametrize(("expression", "error"), FIELDS.values(), ids=FIELDS.keys())
def test_fields_of_nodes_have_two_operators(expression: object, error: FieldError | None) -> None:
    path = f"{REQUIRED}.nodeSelectorTerms[0].matchFields[0]"
    assert with_term("matchFields", expression) == ([] if error is None else at(error, path))


@pytest.mark.parametrize("expression", RIGHT)
def test_right_expressions_pass(expression: object) -> None:
    assert with_term("matchExpressions", expression) == []
