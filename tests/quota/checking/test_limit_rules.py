"""Quotas, LimitRanges and PriorityClasses that the API server refuses for what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.builders import Object
from webhook.quota.checking.limit_rules import limit_errors


def a_limit_range(*items: Mapping[str, object]) -> Object:
    return {"metadata": {"name": "limits"}, "spec": {"limits": list(items)}}


def an_item(kind: str = "Container", **parts: Mapping[str, str]) -> Object:
    return {"type": kind, **parts}


RANGES: Mapping[str, tuple[Sequence[Object], Sequence[str]]] = {
    "nothing wrong": (
        [
            an_item(min={"cpu": "1"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "2"}),
            an_item("Pod", max={"memory": "1Gi"}),
            an_item("PersistentVolumeClaim", max={"storage": "1Gi"}),
            an_item("example.com/thing", max={"pods": "1"}),
        ],
        [],
    ),
    "the least above the most": (
        [an_item("Pod", min={"cpu": "2"}, max={"cpu": "1"})],
        ['spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'],
    ),
    "defaults beyond the limits": (
        [an_item(min={"cpu": "1"}, default={"cpu": "500m"}, defaultRequest={"cpu": "600m"})],
        [
            (
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "600m": min value 1 is greater'
                " than default request value 600m"
            ),
            (
                'spec.limits[0].defaultRequest[cpu]: Invalid value: "600m": default request value'
                " 600m is greater than default limit value 500m"
            ),
            (
                'spec.limits[0].default[cpu]: Invalid value: "1": min value 1 is greater than'
                " default value 500m"
            ),
        ],
    ),
    "a default of whole pods": (
        [an_item("Pod", default={"cpu": "1"})],
        ["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
    ),
    "a type twice, and one that is none": (
        [an_item("Pod"), an_item("Pod"), an_item("Job")],
        [
            'spec.limits[1].type: Duplicate value: "Pod"',
            (
                'spec.limits[2].type: Invalid value: "Job": must be a standard limit type or fully'
                " qualified"
            ),
        ],
    ),
    "a claim without storage": (
        [an_item("PersistentVolumeClaim", max={"cpu": "1"})],
        [
            (
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is"
                " required, but neither was provided"
            )
        ],
    ),
    "a resource that containers have not": (
        [an_item(max={"pods": "1"}, default={"pods": "1"}, defaultRequest={"pods": "1"})],
        [
            f'spec.limits[0].{part}[pods]: Invalid value: "pods": must be a standard resource for'
            " containers"
            for part in ("max", "default", "defaultRequest")
        ],
    ),
    "ratios": (
        [
            an_item(
                "Pod",
                min={"cpu": "1", "memory": "0"},
                max={"cpu": "2", "memory": "1Gi"},
                maxLimitRequestRatio={"cpu": "3", "memory": "500m"},
            )
        ],
        [
            (
                'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater'
                " than max/min = 2.000000"
            ),
            (
                'spec.limits[0].maxLimitRequestRatio[memory]: Invalid value: "500m": ratio 500m is'
                " less than 1"
            ),
        ],
    ),
    "a device that is requested less than limited": (
        [an_item(default={"example.com/gpu": "2"}, defaultRequest={"example.com/gpu": "1"})],
        [
            (
                'spec.limits[0].defaultRequest[example.com/gpu]: Invalid value: "1": default value'
                " 2 must equal to defaultRequest value 1 in example.com/gpu"
            )
        ],
    ),
}


@pytest.mark.parametrize(("items", "errors"), RANGES.values(), ids=RANGES.keys())
def test_a_limit_range_agrees_with_itself(items: Sequence[Object], errors: Sequence[str]) -> None:
    assert [str(one) for one in limit_errors("limitranges", a_limit_range(*items))] == list(errors)


CLASSES = {
    "of a user": ("gold", 1_000_000_000, False, ""),
    "too high": (
        "gold",
        1_000_000_001,
        False,
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
    "of the system": ("system-node-critical", 2_000_001_000, False, ""),
    "with a name of the system": (
        "system-gold",
        1,
        False,
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for"
            " system use only. error: system-gold is not a known system priority class"
        ),
    ),
    "of the system with another value": (
        "system-node-critical",
        1,
        False,
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for"
            " system use only. error: value of system-node-critical PriorityClass must be"
            " 2000001000"
        ),
    ),
    "of the system as the default": (
        "system-node-critical",
        2_000_001_000,
        True,
        (
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for"
            " system use only. error: globalDefault of system-node-critical PriorityClass must be"
            " false"
        ),
    ),
}


@pytest.mark.parametrize(
    ("name", "value", "is_default", "error"), CLASSES.values(), ids=CLASSES.keys()
)
def test_priorities_of_users_are_below_those_of_the_system(
    name: str, value: int, is_default: bool, error: str
) -> None:
    raw = {"metadata": {"name": name}, "value": value, "globalDefault": is_default}
    found = limit_errors("priorityclasses.scheduling.k8s.io", raw)
    assert [str(one) for one in found] == ([error] if error else [])


def test_the_webhooks_own_rules_for_quotas_hold_where_it_is_asked() -> None:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["not a label"]}
    raw: Object = {
        "spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [expression]}}
    }
    assert limit_errors("resourcequotas", raw) == ()
    (error,) = limit_errors("resourcequotas", raw, is_guarded=True)
    assert error.detail == "must be a valid label value"


def test_other_kinds_have_no_such_rules() -> None:
    assert limit_errors("pods", {"spec": {"limits": [{"type": "Job"}]}}) == ()


def test_a_field_that_the_spec_does_not_have_is_named_with_what_may_be_meant() -> None:
    quota: Object = {"metadata": {"name": "q"}, "spec": {"hards": {"cpu": "1"}, "x": 1}}
    assert [str(error) for error in limit_errors("resourcequotas", quota)] == [
        "spec.hards: unknown field, did you mean 'hard'?",
        "spec.x: unknown field",
    ]
    (error,) = limit_errors("limitranges", {"spec": {"limit": []}})
    assert str(error) == "spec.limit: unknown field, did you mean 'limits'?"
    assert limit_errors("resourcequotas", {"spec": {"hard": {"cpu": "1"}, "scopes": []}}) == ()
