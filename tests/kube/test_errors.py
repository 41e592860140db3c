"""Errors of the API and the Status objects that stand for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.kube.api import (
    JOBS,
    PODS,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InternalError,
    InvalidError,
    NotFoundError,
)
from webhook.kube.errors import forbidden_field, invalid_field, required_field

CLASSES = sorted(ApiError.__subclasses__(), key=lambda one: one.__name__)
"""Every class that a Status can become; `UnreachableError` comes of no Status."""


@pytest.mark.parametrize("error_class", CLASSES)
def test_an_error_survives_as_a_status(error_class: type[ApiError]) -> None:
    error = error_class("no", details={"name": "x", "kind": "pods"}, retry_after=3)
    again = ApiError.from_status(error.to_status())
    assert type(again) is error_class
    assert (again.code, again.reason, again.message) == (error.code, error.reason, "no")
    assert again.retry_after == 3
    assert again.details == {"name": "x", "kind": "pods", "retryAfterSeconds": 3}


WORDS = {
    "not found": (
        NotFoundError.of(JOBS, "train"),
        'jobs.batch "train" not found',
        {"name": "train", "group": "batch", "kind": "jobs"},
    ),
    "conflict below a pod": (
        ConflictError.of(PODS, "web-1", "it has a node", subresource="binding"),
        'Operation cannot be fulfilled on pods/binding "web-1": it has a node',
        {"name": "web-1", "kind": "pods/binding"},
    ),
    "internal": (
        InternalError.of("it broke"),
        "Internal error occurred: it broke",
        {"causes": [{"message": "it broke"}]},
    ),
    "one field": (
        InvalidError.of(JOBS, "train", [required_field("spec.template")]),
        'Job.batch "train" is invalid: spec.template: Required value',
        {
            "name": "train",
            "group": "batch",
            "kind": "Job",
            "causes": [
                {
                    "reason": "FieldValueRequired",
                    "message": "Required value",
                    "field": "spec.template",
                }
            ],
        },
    ),
}


@pytest.mark.parametrize(("error", "message", "details"), WORDS.values(), ids=WORDS.keys())
def test_an_error_speaks_as_the_api_server(
    error: ApiError, message: str, details: dict[str, object]
) -> None:
    assert error.message == str(error) == message
    assert error.details == details


def test_several_fields_are_listed() -> None:
    causes = [forbidden_field("spec.a", "no"), invalid_field("spec.b", '"x"', "bad")]
    error = InvalidError.of(PODS, "web-1", causes)
    assert error.message == (
        'Pod "web-1" is invalid: [spec.a: Forbidden: no, spec.b: Invalid value: "x": bad]'
    )


UNUSUAL: dict[str, tuple[dict[str, object], type[ApiError], int]] = {
    "a reason decides before the code": (
        {"reason": "AlreadyExists", "code": 409},
        AlreadyExistsError,
        409,
    ),
    "without a reason the code decides": ({"code": 409}, ConflictError, 409),
    "an unknown reason with a known code": ({"reason": "Odd", "code": 403}, ForbiddenError, 403),
    "gone is expired": ({"reason": "Gone", "code": 410}, ExpiredError, 410),
    "a code of nobody": ({"code": 418}, ApiError, 418),
    "nothing at all": ({}, ApiError, 500),
    "fields of other types": (
        {"code": "x", "reason": 5, "message": [], "details": "y"},
        ApiError,
        500,
    ),
}


@pytest.mark.parametrize(("status", "error_class", "code"), UNUSUAL.values(), ids=UNUSUAL.keys())
def test_a_status_is_read_for_what_it_says(
    status: dict[str, object], error_class: type[ApiError], code: int
) -> None:
    error = ApiError.from_status(status)
    assert type(error) is error_class
    assert error.code == code
    assert error.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    status=st.dictionaries(
        st.sampled_from(["code", "reason", "message", "details", "status", "kind"]), JSON
    )
)
def test_any_status_can_be_read(status: dict[str, object]) -> None:
    error = ApiError.from_status(status)
    assert error.to_status()["code"] == error.code
