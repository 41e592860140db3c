"""Resources that need a covering quota, and priority classes that do."""

from __future__ import annotations

import pytest

from tests.builders import Object, an_expression
from tests.quota.parsed import amounts, expression_of, pod_of, quota_of
from webhook.jsonfields.fields import InvalidFieldError
from webhook.quota.charging.denials import UncoveredScopes
from webhook.quota.charging.limited_resources import (
    Coverage,
    LimitedResource,
    limited_keys,
    limited_scopes,
    require_quota_for_priority,
    uncovered,
)
from webhook.quota.charging.scopes import ScopeError
from webhook.quota.objects.model import ResourceQuota

GOLD = pod_of(priorityClassName="gold")
IN_GOLD = expression_of("PriorityClass", "In", "gold")
EXISTS = expression_of("PriorityClass", "Exists")
NOT_TERMINATING = expression_of("NotTerminating")

USAGE = {
    **amounts(pods="1", cpu="1", requests_cpu="1", memory="0", requests_memory="0"),
    **amounts(**{"count/pods": "1", "requests.nvidia.com/gpu": "1"}),
}

KEY_CASES: dict[str, tuple[list[LimitedResource], set[str]]] = {
    "nothing is limited": ([], set()),
    "a substring hits the alias too": (
        [LimitedResource("pods", match_contains=("cpu",))],
        {"cpu", "requests.cpu"},
    ),
    "pods hits the object count too": (
        [LimitedResource("pods", match_contains=("pods",))],
        {"pods", "count/pods"},
    ),
    "zero needs no quota": ([LimitedResource("pods", match_contains=("memory",))], set()),
    "several substrings, several entries": (
        [
            LimitedResource("pods", match_contains=("nvidia", "nothing")),
            LimitedResource("pods", match_contains=("requests.cpu",)),
        ],
        {"requests.nvidia.com/gpu", "requests.cpu"},
    ),
    "the empty substring is in every key": (
        [LimitedResource("pods", match_contains=("",))],
        {"pods", "count/pods", "cpu", "requests.cpu", "requests.nvidia.com/gpu"},
    ),
    "an entry for another resource": (
        [LimitedResource("persistentvolumeclaims", match_contains=("cpu",))],
        set(),
    ),
    "an entry for another group": (
        [LimitedResource("pods", api_group="metrics.k8s.io", match_contains=("cpu",))],
        set(),
    ),
}


@pytest.mark.parametrize(("limited", "expected"), KEY_CASES.values(), ids=KEY_CASES.keys())
def test_a_used_key_with_a_substring_needs_a_quota(
    limited: list[LimitedResource], expected: set[str]
) -> None:
    assert limited_keys(limited, USAGE) == expected


def test_scopes_count_whatever_resource_the_entry_names() -> None:
    entries = [
        LimitedResource("persistentvolumeclaims", match_scopes=(IN_GOLD,)),
        LimitedResource("pods", match_scopes=(expression_of("Terminating"), EXISTS)),
    ]
    assert limited_scopes(entries, GOLD) == (IN_GOLD, EXISTS)


def test_an_entry_that_cannot_be_evaluated_is_an_error_for_every_pod() -> None:
    entries = [LimitedResource("pods", match_scopes=(expression_of("PriorityClass", "in", "x"),))]
    with pytest.raises(ScopeError) as caught:
        limited_scopes(entries, pod_of())
    assert caught.value.field == "matchScopes[0]"


def test_covering_goes_by_the_name_of_the_scope() -> None:
    required = (IN_GOLD, NOT_TERMINATING, EXISTS)
    assert uncovered(required, ["PriorityClass"]) == (NOT_TERMINATING,)
    assert uncovered(required, []) == required


FULL: Object = {
    "apiGroup": "",
    "resource": "pods",
    "matchContains": ["cpu"],
    "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["gold"]}],
}


@pytest.mark.parametrize("strict", [False, True])
def test_an_entry_is_read_in_the_shape_of_the_api_servers_configuration(strict: bool) -> None:
    entry = LimitedResource.from_object(FULL, strict=strict)
    assert entry == LimitedResource("pods", "", ("cpu",), (IN_GOLD,))
    assert entry.is_about_pods


STRICT_CASES: dict[str, tuple[Object, str]] = {
    "no resource": ({}, "limitedResources[2].resource"),
    "unknown field": ({"resource": "pods", "matchScope": []}, "limitedResources[2].matchScope"),
    "operator": (
        {
            "resource": "pods",
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "in", "values": ["a"]}],
        },
        "limitedResources[2].matchScopes[0].operator",
    ),
    "value": (
        {
            "resource": "pods",
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a b"]}],
        },
        "limitedResources[2].matchScopes[0].values[0]",
    ),
    "scope": (
        {"resource": "pods", "matchScopes": [{"scopeName": "Priority", "operator": "Exists"}]},
        "limitedResources[2].matchScopes[0].scopeName",
    ),
    "a resource that is misspelt": (
        {"resource": "pod", "matchContains": ["cpu"]},
        "limitedResources[2].resource",
    ),
    "a resource that is judged elsewhere": (
        {"resource": "persistentvolumeclaims", "matchContains": ["storage"]},
        "limitedResources[2].resource",
    ),
    "pods of another group": (
        {"resource": "pods", "apiGroup": "apps", "matchContains": ["cpu"]},
        "limitedResources[2].resource",
    ),
}


@pytest.mark.parametrize(("raw", "field"), STRICT_CASES.values(), ids=STRICT_CASES.keys())
def test_a_strict_reader_refuses_what_the_api_server_takes(raw: Object, field: str) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        LimitedResource.from_object(raw, field="limitedResources[2]", strict=True)
    assert caught.value.field == field
    lenient = LimitedResource.from_object(raw)
    assert lenient.resource == raw.get("resource", "")


WRONG_TYPES: dict[str, tuple[Object, str]] = {
    "resource": ({"resource": 1}, "limited[0].resource"),
    "group": ({"apiGroup": []}, "limited[0].apiGroup"),
    "substrings": ({"matchContains": "cpu"}, "limited[0].matchContains"),
    "a substring": ({"matchContains": ["cpu", 1]}, "limited[0].matchContains[1]"),
    "scopes": ({"matchScopes": {}}, "limited[0].matchScopes"),
    "a scope": ({"matchScopes": ["x"]}, "limited[0].matchScopes[0]"),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("raw", "field"), WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_a_wrong_type_is_named_by_its_path(raw: Object, field: str, strict: bool) -> None:
    with pytest.raises(InvalidFieldError) as caught:
        LimitedResource.from_object(raw, field="limited[0]", strict=strict)
    assert caught.value.field == field


PODS = {"pods": "1"}
NO_PODS = {"configmaps": "1"}

# quotas; is a gold pod covered when they have to match, and when the platform counts
COVERAGE: dict[str, tuple[list[ResourceQuota], bool, bool]] = {
    "no quota": ([], False, False),
    "no scope": ([quota_of(hard=PODS)], False, False),
    "the class": (
        [quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "In", "gold")])],
        True,
        True,
    ),
    "any class": ([quota_of(hard=PODS, scopes=["PriorityClass"])], True, True),
    "all but another class": (
        [quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "NotIn", "silver")])],
        True,
        True,
    ),
    "another class": (
        [quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "In", "silver")])],
        False,
        False,
    ),
    "no class": (
        [quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "DoesNotExist")])],
        False,
        False,
    ),
    "the class, for pods with a deadline": (
        [
            quota_of(
                hard=PODS,
                scopes=["Terminating"],
                expressions=[an_expression("PriorityClass", "In", "gold")],
            )
        ],
        False,
        True,
    ),
    "the class, but nothing of pods": (
        [quota_of(hard=NO_PODS, expressions=[an_expression("PriorityClass", "In", "gold")])],
        False,
        True,
    ),
    "the second quota": (
        [quota_of(hard=PODS), quota_of(hard=PODS, scopes=["PriorityClass"])],
        True,
        True,
    ),
    "a quota that cannot be evaluated": (
        [quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "In", "a b")])],
        False,
        False,
    ),
    "one that cannot be evaluated beside one that covers": (
        [
            quota_of(hard=PODS, expressions=[an_expression("PriorityClass", "In", "a b")]),
            quota_of(hard=PODS, scopes=["PriorityClass"]),
        ],
        True,
        True,
    ),
}


@pytest.mark.parametrize(("quotas", "matching", "platform"), COVERAGE.values(), ids=COVERAGE.keys())
def test_a_class_is_covered_by_a_quota_for_it(
    quotas: list[ResourceQuota], matching: bool, platform: bool
) -> None:
    expected: dict[Coverage, bool] = {"matching": matching, "platform": platform}
    for coverage, covered in expected.items():
        refusal = require_quota_for_priority(GOLD, quotas, (IN_GOLD,), coverage=coverage)
        assert refusal == (None if covered else UncoveredScopes((IN_GOLD,), code=403))


def test_a_pod_outside_the_rule_needs_no_quota() -> None:
    assert require_quota_for_priority(pod_of(), [], (IN_GOLD, EXISTS)) is None
    assert require_quota_for_priority(pod_of(priorityClassName="silver"), [], (IN_GOLD,)) is None


def test_the_refusal_names_the_expressions_that_matched_as_forbidden() -> None:
    refusal = require_quota_for_priority(
        GOLD, [], (expression_of("PriorityClass", "In", "silver"), IN_GOLD, EXISTS)
    )
    assert refusal is not None
    assert (refusal.code, refusal.reason) == (403, "Forbidden")
    assert refusal.message == (
        "insufficient quota to match these scopes: "
        "[{PriorityClass In [gold]} {PriorityClass Exists []}]"
    )


def test_the_status_of_a_quota_plays_no_part_in_covering() -> None:
    unseen = quota_of(hard=PODS, scopes=["PriorityClass"])
    seen = quota_of(hard=PODS, used={"pods": "0"}, scopes=["PriorityClass"])
    assert unseen.status_hard == {}
    for quota in (unseen, seen):
        assert require_quota_for_priority(GOLD, [quota], (IN_GOLD,)) is None
