"""Validation of ResourceQuota objects.

The platform's rules: answers of a kube-apiserver v1.36.2, and what its source says of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import Object, a_quota, an_expression
from tests.quota.pod_strategies import damaged, json_values, places
from webhook.jsonfields.encoding import NumberText
from webhook.jsonfields.fields import FieldError
from webhook.quota.objects.quota_validation import (
    SCOPE_FIELDS,
    changed_fields,
    quota_errors,
    quota_update_errors,
    quota_warnings,
)

EXPRESSIONS = "spec.scopeSelector.matchExpressions"
STANDARD = "must be a standard resource for quota"
QUALIFIED = "must be a standard resource type or fully qualified"
MISPLACED = "unsupported scope applied to resource"
NEGATIVE = "must be greater than or equal to 0"
INTEGER = "must be an integer"


def _found(errors: list[FieldError]) -> list[tuple[str, str]]:
    assert {each.type for each in errors} <= {"FieldValueInvalid", "FieldValueRequired"}
    return [(each.field, each.detail) for each in errors]


HARD: dict[str, tuple[Mapping[str, object], list[tuple[str, str]]]] = {
    "nothing": ({}, []),
    "all forms of compute": (
        {
            f"{prefix}{name}": "1500m"
            for prefix in ("", "requests.", "limits.")
            for name in ("cpu", "memory", "ephemeral-storage")
        },
        [],
    ),
    "counts": (
        {
            "pods": "1",
            "services": "1",
            "services.nodeports": "1",
            "services.loadbalancers": "1",
            "secrets": "1k",
            "configmaps": 3,
            "persistentvolumeclaims": "1000m",
            "replicationcontrollers": "0",
            "resourcequotas": "1",
            "count/pods": "1",
            "count/jobs.batch": "1",
        },
        [],
    ),
    "storage and huge pages": (
        {"requests.storage": "1.5", "hugepages-2Mi": "1", "requests.hugepages-1Gi": "1Gi"},
        [],
    ),
    "null is zero": ({"cpu": None, "pods": None}, []),
    "numbers": ({"cpu": 2, "memory": NumberText("1E3")}, []),
    "devices in part": ({"requests.nvidia.com/gpu": "1.5"}, []),
    "a bare device": ({"nvidia.com/gpu": "1"}, []),
    "a bare device in part": (
        {"nvidia.com/gpu": "1.5"},
        [("spec.hard[nvidia.com/gpu]", INTEGER)],
    ),
    "counts in part": (
        {"pods": "1500m", "count/pods": "0.5", "secrets": "1e-1"},
        [
            ("spec.hard[count/pods]", INTEGER),
            ("spec.hard[pods]", INTEGER),
            ("spec.hard[secrets]", INTEGER),
        ],
    ),
    "the smallest part, rounded up to a thousandth": (
        {"pods": "1n"},
        [("spec.hard[pods]", INTEGER)],
    ),
    "an unknown name": (
        {"foo": "1"},
        [("spec.hard[foo]", QUALIFIED), ("spec.hard[foo]", STANDARD)],
    ),
    "a name that is no quota key": ({"storage": "1"}, [("spec.hard[storage]", STANDARD)]),
    "huge pages cannot be limited by limits": (
        {"limits.hugepages-2Mi": "1"},
        [
            ("spec.hard[limits.hugepages-2Mi]", QUALIFIED),
            ("spec.hard[limits.hugepages-2Mi]", STANDARD),
        ],
    ),
    "negative": ({"cpu": "-1"}, [("spec.hard[cpu]", NEGATIVE)]),
    "negative in part": (
        {"pods": "-0.5"},
        [("spec.hard[pods]", NEGATIVE), ("spec.hard[pods]", INTEGER)],
    ),
    "too large to be stored": (
        {"cpu": "1000E", "memory": "1e21"},
        [("spec.hard[cpu]", "cannot be stored exactly: the API server would keep 1")],
    ),
    "too large once it is rounded up to a thousandth": (
        {"cpu": "999999999999999999999.9999"},
        [("spec.hard[cpu]", "cannot be stored exactly: the API server would keep 1")],
    ),
    "large, and stored": ({"cpu": "999E", "memory": "16Ei", "pods": "1E"}, []),
}


@pytest.mark.parametrize(("hard", "expected"), HARD.values(), ids=HARD.keys())
def test_keys_and_amounts(hard: Mapping[str, object], expected: list[tuple[str, str]]) -> None:
    assert _found(quota_errors(a_quota(hard=hard))) == expected


def test_an_amount_that_is_none_is_an_error_of_its_key_only() -> None:
    errors = quota_errors(a_quota(hard={"cpu": "2x", "memory": True, "pods": "-1", "foo": "1"}))
    assert [each.field for each in errors] == [
        "spec.hard[cpu]",
        "spec.hard[foo]",
        "spec.hard[foo]",
        "spec.hard[memory]",
        "spec.hard[pods]",
    ]
    assert "'2x' is not a quantity" in errors[0].detail
    assert "a boolean is not a quantity" in errors[3].detail


def test_a_name_that_is_not_qualified_is_refused_as_such() -> None:
    [first, second] = quota_errors(a_quota(hard={"a b": "1"}))
    assert first.field == "spec.hard[a b]"
    assert first.detail.startswith("name part must consist of alphanumeric characters")
    assert second.detail == STANDARD


SCOPES: dict[str, tuple[list[str], Mapping[str, object], list[tuple[str, str]]]] = {
    "none": ([], {"configmaps": "1"}, []),
    "legal": (["NotTerminating", "NotBestEffort"], {"cpu": "1", "pods": "1"}, []),
    "repeated": (["Terminating", "Terminating"], {"pods": "1"}, []),
    "unknown": (["Bogus"], {"configmaps": "1"}, [("spec.scopes", "unsupported scope")]),
    "two unknown are one error": (
        ["Bogus", "Hocus"],
        {},
        [("spec.scopes", "unsupported scope")],
    ),
    "a key that does not go with it": (
        ["BestEffort"],
        {"cpu": "1"},
        [("spec.scopes", MISPLACED)],
    ),
    "several keys and scopes are one error": (
        ["BestEffort", "Terminating"],
        {"cpu": "1", "configmaps": "1", "services": "1"},
        [("spec.scopes", MISPLACED)],
    ),
    "qualified names go with any": (
        ["BestEffort"],
        {"count/configmaps": "1", "requests.nvidia.com/gpu": "1"},
        [],
    ),
    "opposites": (
        ["BestEffort", "NotBestEffort"],
        {"pods": "1"},
        [("spec.scopes", "conflicting scopes")],
    ),
    "the order of errors": (
        ["Terminating", "Bogus", "NotTerminating"],
        {"configmaps": "1"},
        [
            ("spec.scopes", MISPLACED),
            ("spec.scopes", "unsupported scope"),
            ("spec.scopes", "conflicting scopes"),
        ],
    ),
}


@pytest.mark.parametrize(("scopes", "hard", "expected"), SCOPES.values(), ids=SCOPES.keys())
def test_scopes(
    scopes: list[str], hard: Mapping[str, object], expected: list[tuple[str, str]]
) -> None:
    assert _found(quota_errors(a_quota(hard=hard, scopes=scopes))) == expected


_EXISTS_ONLY = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
BAD_VALUE = "must be a valid label value"

SELECTORS: dict[str, tuple[list[Object], list[tuple[str, str]]]] = {
    "legal": (
        [
            an_expression("PriorityClass", "In", "gold", ""),
            an_expression("PriorityClass", "DoesNotExist"),
            an_expression("Terminating"),
        ],
        [],
    ),
    "unknown scope": (
        [an_expression("Bogus")],
        [(f"{EXPRESSIONS}.scopeName", "unsupported scope")],
    ),
    "a key that does not go with it": (
        [an_expression("BestEffort")],
        [(EXPRESSIONS, MISPLACED)],
    ),
    "no values": (
        [an_expression("PriorityClass", "In")],
        [
            (
                f"{EXPRESSIONS}.values",
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
            )
        ],
    ),
    "a value too many": (
        [an_expression("PriorityClass", "Exists", "a")],
        [
            (
                f"{EXPRESSIONS}.values",
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            )
        ],
    ),
    "no operator": (
        [{"scopeName": "PriorityClass"}],
        [(f"{EXPRESSIONS}.operator", "not a valid selector operator")],
    ),
    "an operator where only Exists may be": (
        [an_expression("Terminating", "In", "a")],
        [(f"{EXPRESSIONS}.operator", _EXISTS_ONLY)],
    ),
    "opposites": (
        [an_expression("Terminating"), an_expression("NotTerminating")],
        [(EXPRESSIONS, "conflicting scopes")],
    ),
    "a value that would fail every pod": (
        [an_expression("PriorityClass", "In", "bad value!")],
        [(f"{EXPRESSIONS}[0].values[0]", BAD_VALUE)],
    ),
    "such a value further on": (
        [an_expression("PriorityClass"), an_expression("PriorityClass", "NotIn", "ok", "-")],
        [(f"{EXPRESSIONS}[1].values[1]", BAD_VALUE)],
    ),
}


@pytest.mark.parametrize(("expressions", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_selectors(expressions: list[Object], expected: list[tuple[str, str]]) -> None:
    assert _found(quota_errors(a_quota(expressions=expressions))) == expected


def test_opposites_in_both_places_are_accepted() -> None:
    quota = a_quota(scopes=["Terminating"], expressions=[an_expression("NotTerminating")])
    assert quota_errors(quota) == []


def test_a_missing_value_is_a_required_one() -> None:
    [error] = quota_errors(a_quota(expressions=[an_expression("PriorityClass", "In")]))
    assert error.type == "FieldValueRequired"


UNREADABLE: dict[str, tuple[object, str]] = {
    "not an object": ([], ""),
    "spec": ({"spec": "x"}, "spec"),
    "hard": ({"spec": {"hard": []}}, "spec.hard"),
    "scopes": ({"spec": {"scopes": "Terminating"}}, "spec.scopes"),
    "a scope": ({"spec": {"scopes": ["Terminating", 1]}}, "spec.scopes[1]"),
    "selector": ({"spec": {"scopeSelector": []}}, "spec.scopeSelector"),
    "expressions": ({"spec": {"scopeSelector": {"matchExpressions": {}}}}, EXPRESSIONS),
    "an expression": (
        {"spec": {"scopeSelector": {"matchExpressions": ["x"]}}},
        f"{EXPRESSIONS}[0]",
    ),
    "a value": (
        {
            "spec": {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "In", "values": [1]}
                    ]
                }
            }
        },
        f"{EXPRESSIONS}[0].values[0]",
    ),
}


@pytest.mark.parametrize(("raw", "field"), UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_wrong_type_is_an_error_like_any_other(raw: Object, field: str) -> None:
    [error] = quota_errors(raw)
    assert (error.type, error.field) == ("FieldValueInvalid", field)
    assert quota_warnings(raw) == []


def test_one_wrong_type_does_not_hide_other_errors() -> None:
    quota: Object = {"spec": {"hard": {"cpu": "-1"}, "scopes": "Terminating"}}
    assert [each.field for each in quota_errors(quota)] == ["spec.scopes", "spec.hard[cpu]"]


def _is_json(value: object) -> bool:
    """Return whether an API server can send it: keys are texts."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    return all(map(_is_json, value)) if isinstance(value, list) else True


@given(data=st.data())
def test_whatever_is_wrong_is_listed_and_never_raised(data: st.DataObject) -> None:
    quota = a_quota(
        hard={"cpu": "1", "pods": 2},
        scopes=["NotTerminating"],
        expressions=[an_expression("PriorityClass", "In", "gold")],
    )
    place = data.draw(st.sampled_from(sorted(places(quota), key=str)))
    value = data.draw(json_values().filter(_is_json))
    broken: Object = damaged(quota, place, value)  # type: ignore[assignment]
    frozen = quota_update_errors(broken, quota, frozen=lambda _: True)
    for error in quota_errors(broken) + quota_update_errors(broken, quota) + frozen:
        assert error.detail
    assert changed_fields(broken, broken) == ()
    assert changed_fields(broken, quota) == changed_fields(quota, broken)
    assert all(isinstance(warning, str) for warning in quota_warnings(broken))


UPDATES: dict[str, tuple[Object, Object, list[tuple[str, str]]]] = {
    "the same scopes in another order": (
        a_quota(scopes=["Terminating", "NotBestEffort"]),
        a_quota(scopes=["NotBestEffort", "Terminating", "Terminating"]),
        [],
    ),
    "a scope added": (
        a_quota(scopes=["Terminating"]),
        a_quota(),
        [("spec.scopes", "field is immutable")],
    ),
    "a scope removed": (
        a_quota(),
        a_quota(scopes=["Terminating"]),
        [("spec.scopes", "field is immutable")],
    ),
    "the selector may change": (a_quota(expressions=[an_expression("Terminating")]), a_quota(), []),
    "amounts may change": (a_quota(hard={"pods": "1"}), a_quota(), []),
    "what the new object says is judged as well": (
        a_quota(hard={"cpu": "-1"}, scopes=["Terminating"]),
        a_quota(),
        [("spec.hard[cpu]", NEGATIVE), ("spec.scopes", "field is immutable")],
    ),
}


@pytest.mark.parametrize(("new", "old", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_only_the_scopes_are_immutable(
    new: Object, old: Object, expected: list[tuple[str, str]]
) -> None:
    assert _found(quota_update_errors(new, old)) == expected


CHANGED: dict[str, tuple[Object, Object, tuple[str, ...]]] = {
    "nothing": (a_quota(), a_quota(), ()),
    "what is beside the spec": (a_quota("a", used={"cpu": "1"}), a_quota("b"), ()),
    "amounts of the same value": (
        a_quota(hard={"cpu": "1", "memory": "1Gi"}),
        a_quota(hard={"memory": "1024Mi", "cpu": 1}),
        (),
    ),
    "an amount": (a_quota(hard={"cpu": "1"}), a_quota(hard={"cpu": "1001m"}), ("hard",)),
    "an amount of zero is a limit": (a_quota(hard={"cpu": "0"}), a_quota(hard={}), ("hard",)),
    "scopes in another order": (
        a_quota(scopes=["Terminating", "NotBestEffort"]),
        a_quota(scopes=["NotBestEffort", "Terminating", "Terminating"]),
        (),
    ),
    "a scope": (a_quota(scopes=["Terminating"]), a_quota(), ("scopes",)),
    "values of an expression": (
        a_quota(expressions=[an_expression("PriorityClass", "In", "gold")]),
        a_quota(expressions=[an_expression("PriorityClass", "In", "silver")]),
        ("scopeSelector",),
    ),
    "an operator": (
        a_quota(expressions=[an_expression("PriorityClass", "Exists")]),
        a_quota(expressions=[an_expression("PriorityClass", "DoesNotExist")]),
        ("scopeSelector",),
    ),
    "absent, null and empty": (
        {"spec": {"hard": {}, "scopes": None, "scopeSelector": {"matchExpressions": []}}},
        {"spec": {}},
        (),
    ),
    "no spec and an empty one": ({}, {"spec": {}}, ()),
    "what cannot be read, as before": (
        {"spec": {"hard": [1], "scopes": {"a": 1}}},
        {"spec": {"hard": [1], "scopes": {"a": 1}}},
        (),
    ),
    "what cannot be read, beside what can": (
        {"spec": {"hard": [1], "scopes": ["Terminating"]}},
        {"spec": {"hard": {"pods": "1"}, "scopes": ["Terminating", "Terminating"]}},
        ("hard",),
    ),
    "all of it": (
        a_quota(scopes=["Terminating"], expressions=[an_expression("PriorityClass")]),
        {},
        ("hard", "scopeSelector", "scopes"),
    ),
    "a field that is not known": ({"spec": {"later": 1}}, {"spec": {}}, ("later",)),
}


@pytest.mark.parametrize(("new", "old", "changed"), CHANGED.values(), ids=CHANGED.keys())
def test_a_field_has_changed_when_it_means_something_else(
    new: Object, old: Object, changed: tuple[str, ...]
) -> None:
    assert changed_fields(new, old) == changed
    assert changed_fields(old, new) == changed


def test_a_frozen_field_is_refused_with_what_to_do_instead() -> None:
    advice = "field is immutable: create a quota with another name, then delete this one"
    old = a_quota(scopes=["Terminating"], expressions=[an_expression("PriorityClass")])
    new = a_quota(hard={"pods": "1"})
    selecting = quota_update_errors(new, old, frozen=SCOPE_FIELDS.__contains__)
    assert _found(selecting) == [("spec.scopeSelector", advice), ("spec.scopes", advice)]
    everything = quota_update_errors(new, old, frozen=lambda _: True)
    assert _found(everything) == [("spec.hard", advice), *_found(selecting)]
    assert quota_update_errors(old, old, frozen=lambda _: True) == []
    assert _found(quota_update_errors({**new, "spec": 7}, old, frozen=lambda _: True))[:2] == [
        ("spec", "must be an object, not a number"),
        ("spec", advice),
    ]


WARNINGS: dict[str, tuple[Mapping[str, object], list[str]]] = {
    "requests above limits": (
        {"requests.cpu": "5", "limits.cpu": "1"},
        ["ResourceQuota requests.cpu (5) should be less than limits.cpu (1)"],
    ),
    "the bare name stands for requests": (
        {"cpu": "5", "limits.cpu": "1"},
        ["ResourceQuota cpu (5) should be less than limits.cpu (1)"],
    ),
    "but not beside them": ({"cpu": "5", "requests.cpu": "1", "limits.cpu": "1"}, []),
    "equal": ({"requests.cpu": "1", "limits.cpu": "1000m"}, []),
    "no limits": ({"requests.cpu": "5"}, []),
    "no bare name for storage": ({"ephemeral-storage": "5", "limits.ephemeral-storage": "1"}, []),
    "all four, in the platform's order": (
        {
            "requests.ephemeral-storage": "2Gi",
            "limits.ephemeral-storage": "1Gi",
            "requests.storage": "2",
            "limits.storage": "1",
            "memory": "2Gi",
            "limits.memory": "1.5Gi",
            "cpu": "2",
            "limits.cpu": "0.0001",
        },
        [
            "ResourceQuota cpu (2) should be less than limits.cpu (1m)",
            "ResourceQuota memory (2Gi) should be less than limits.memory (1536Mi)",
            "ResourceQuota requests.storage (2) should be less than limits.storage (1)",
            (
                "ResourceQuota requests.ephemeral-storage (2Gi) should be less than "
                "limits.ephemeral-storage (1Gi)"
            ),
        ],
    ),
    "what cannot be read is passed over": (
        {"requests.cpu": "x", "limits.cpu": "1", "requests.memory": "2", "limits.memory": "1"},
        ["ResourceQuota requests.memory (2) should be less than limits.memory (1)"],
    ),
}


@pytest.mark.parametrize(("hard", "expected"), WARNINGS.values(), ids=WARNINGS.keys())
def test_requests_above_limits_are_warned_about(
    hard: Mapping[str, object], expected: list[str]
) -> None:
    assert quota_warnings(a_quota(hard=hard)) == expected
