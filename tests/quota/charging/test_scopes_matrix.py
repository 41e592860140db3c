"""Which quota keys a scope may stand beside, and what a scope expression may say."""

from __future__ import annotations

import pytest

from tests.quota.parsed import expression_of
from webhook.jsonfields.fields import FieldError, InvalidFieldError
from webhook.quota.charging.scope_validation import (
    are_conflicting,
    is_scope,
    may_limit,
    operator_errors,
    read_expressions,
    read_legal_expressions,
    value_errors,
)
from webhook.quota.objects.model import ScopeExpression

SCOPES = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)

# One row per group of keys, one column per scope, in the order of SCOPES.
MATRIX = {
    "++++++-": ("pods",),
    "++-+++-": (
        "cpu",
        "memory",
        "requests.cpu",
        "requests.memory",
        "limits.cpu",
        "limits.memory",
    ),
    "-------": (
        "ephemeral-storage",
        "requests.ephemeral-storage",
        "limits.ephemeral-storage",
        "hugepages-2Mi",
        "requests.hugepages-1Gi",
        "configmaps",
        "secrets",
        "services",
        "services.nodeports",
        "services.loadbalancers",
        "resourcequotas",
        "replicationcontrollers",
    ),
    "------+": ("persistentvolumeclaims", "requests.storage"),
    "+++++++": (
        "count/pods",
        "count/configmaps",
        "requests.nvidia.com/gpu",
        "gold.storageclass.storage.k8s.io/requests.storage",
    ),
}


@pytest.mark.parametrize(
    ("scope", "key", "expected"),
    [
        (scope, key, mark == "+")
        for marks, keys in MATRIX.items()
        for key in keys
        for scope, mark in zip(SCOPES, marks, strict=True)
    ],
)
def test_a_scope_stands_beside_the_keys_of_the_matrix(scope: str, key: str, expected: bool) -> None:
    assert may_limit(scope, key) is expected


def test_an_unknown_scope_is_one_error_and_not_one_per_key() -> None:
    assert may_limit("Bogus", "configmaps")
    assert not is_scope("Bogus")


@pytest.mark.parametrize("scope", SCOPES)
def test_the_seven_scopes_are_known(scope: str) -> None:
    assert is_scope(scope)
    assert not is_scope(scope.lower())


@pytest.mark.parametrize(
    ("scopes", "expected"),
    [
        (["BestEffort", "NotBestEffort"], True),
        (["NotTerminating", "PriorityClass", "Terminating"], True),
        (["BestEffort", "BestEffort"], False),
        (["BestEffort", "NotTerminating"], False),
        ([], False),
    ],
)
def test_opposites_conflict_and_repetitions_do_not(scopes: list[str], expected: bool) -> None:
    assert are_conflicting(scopes) is expected


_EXISTS_ONLY = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_NO_VALUE = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
_ANY_VALUE = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
_NO_OPERATOR = "not a valid selector operator"

OPERATORS: dict[str, tuple[ScopeExpression, list[tuple[str, str, str]]]] = {
    "in with a value": (expression_of("PriorityClass", "In", "gold"), []),
    "in without": (
        expression_of("PriorityClass", "In"),
        [("FieldValueRequired", "at.values", _NO_VALUE)],
    ),
    "not in without": (
        expression_of("VolumeAttributesClass", "NotIn"),
        [("FieldValueRequired", "at.values", _NO_VALUE)],
    ),
    "exists": (expression_of("PriorityClass"), []),
    "exists with a value": (
        expression_of("PriorityClass", "Exists", "gold"),
        [("FieldValueInvalid", "at.values", _ANY_VALUE)],
    ),
    "does not exist": (expression_of("PriorityClass", "DoesNotExist"), []),
    "does not exist with a value": (
        expression_of("PriorityClass", "DoesNotExist", "gold"),
        [("FieldValueInvalid", "at.values", _ANY_VALUE)],
    ),
    "no operator": (
        expression_of("PriorityClass", ""),
        [("FieldValueInvalid", "at.operator", _NO_OPERATOR)],
    ),
    "lower case": (
        expression_of("PriorityClass", "in", "gold"),
        [("FieldValueInvalid", "at.operator", _NO_OPERATOR)],
    ),
    "unknown scope": (expression_of("Bogus", "In", "gold"), []),
    "no operator where only exists may be": (
        expression_of("Terminating", ""),
        [
            ("FieldValueInvalid", "at.operator", _EXISTS_ONLY),
            ("FieldValueInvalid", "at.operator", _NO_OPERATOR),
        ],
    ),
} | {
    f"{scope} takes exists only": (
        expression_of(scope, "In", "gold"),
        [("FieldValueInvalid", "at.operator", _EXISTS_ONLY)],
    )
    for scope in SCOPES
    if scope not in {"PriorityClass", "VolumeAttributesClass"}
}


@pytest.mark.parametrize(("expression", "expected"), OPERATORS.values(), ids=OPERATORS.keys())
def test_operators_are_judged_as_the_api_server_does(
    expression: ScopeExpression, expected: list[tuple[str, str, str]]
) -> None:
    found = [(each.type, each.field, each.detail) for each in operator_errors(expression, "at")]
    assert found == expected


def test_each_value_that_no_label_can_have_is_named() -> None:
    expression = expression_of("PriorityClass", "In", "gold", "a b", "", "x" * 64)
    assert list(value_errors(expression, "at")) == [
        FieldError("FieldValueInvalid", "at.values[1]", "must be a valid label value"),
        FieldError("FieldValueInvalid", "at.values[3]", "must be a valid label value"),
    ]


def test_expressions_are_read_as_written() -> None:
    raw = [{"scopeName": "PriorityClass", "operator": "in", "values": ["a b"]}, {}]
    expected = (expression_of("PriorityClass", "in", "a b"), expression_of("", ""))
    assert read_expressions(raw, "at") == expected
    assert read_expressions(None, "at") == ()


UNREADABLE: dict[str, tuple[object, str]] = {
    "not a list": ({}, "at"),
    "not an object": (["PriorityClass"], "at[0]"),
    "a number for a name": ([{}, {"scopeName": 1}], "at[1].scopeName"),
    "a number among the values": ([{"values": ["a", 2]}], "at[0].values[1]"),
}


@pytest.mark.parametrize(("raw", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_wrong_type_is_named_by_its_path(raw: object, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read_expressions(raw, field="at")
    assert caught.value.field == field


ILLEGAL = {
    "unknown scope": ({"scopeName": "Bogus", "operator": "Exists"}, "at[0].scopeName"),
    "operator": ({"scopeName": "PriorityClass", "operator": "in"}, "at[0].operator"),
    "values": ({"scopeName": "PriorityClass", "operator": "In"}, "at[0].values"),
    "a bad value": (
        {"scopeName": "PriorityClass", "operator": "In", "values": ["a", "b c"]},
        "at[0].values[1]",
    ),
}


@pytest.mark.parametrize(("raw", "field"), ILLEGAL.values(), ids=ILLEGAL.keys())
def test_a_strict_reader_refuses_what_cannot_be_evaluated(raw: object, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        read_legal_expressions([raw], "at")
    assert caught.value.field == field


def test_a_strict_reader_takes_what_is_legal() -> None:
    raw = {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["gold"]}
    assert read_legal_expressions([raw], "at") == (expression_of("PriorityClass", "NotIn", "gold"),)
